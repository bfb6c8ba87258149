"""Loopback ports for servers of tests and measurements that start later, on this machine, beside other such runs."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

PORT_MIN: Final = 10_240
PORT_MAX: Final = 29_999
"""Below the ports that Kubernetes gives to nodes, and below Linux' ephemeral ones."""
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Ports that no process listens on now, and that no other call on this machine returned lately.

    A port that the kernel chooses (``bind`` to 0) may be taken before its server starts, or while it is restarted: by
    any outgoing connection, or by another process that asks the same. So ports come from below that range, in turn;
    a file that all processes of this user lock holds the next one."""
    counter = Path(tempfile.gettempdir()) / f"txlog-next-port-{os.getuid()}"
    with counter.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read().strip()
        following = int(text) if text.isdigit() else PORT_MIN
        found: list[int] = []
        top = min(PORT_MAX, _first_ephemeral() - 1)
        for _ in range(top - PORT_MIN):
            if len(found) == count:
                break
            port = following if PORT_MIN <= following <= top else PORT_MIN
            following = port + 1
            if _is_free(port):
                found.append(port)
        file.truncate(0)
        file.write(str(following))
    if len(found) < count:
        raise OSError(f"fewer than {count} ports between {PORT_MIN} and {top} are free")
    return found


def free_port() -> int:
    """One of them."""
    [port] = free_ports(1)
    return port


def _first_ephemeral() -> int:
    try:
        return int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return PORT_MAX + 1


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError:
            return False
    return True
