"""Loopback ports: free ones, fixed for a state folder's lifetime, and different for all state folders of a user."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from txlog.local.local_errors import CannotRun
from txlog.local.state_folder import StateFolder

FIRST_PORT, LAST_PORT = 7301, 32_000
"""Below the ports that systems assign to outgoing connections, so that a port is still free after a restart."""


def is_free(port: int) -> bool:
    """Whether a socket can be bound to this loopback port now."""
    with closing(socket.socket()) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def choose_ports(
    state: StateFolder, names: Iterable[str], reserved: Path | None = None, *, running: Collection[str] = ()
) -> dict[str, int]:
    """A port for each name: its earlier one while that is free, else a new one. ``running``: names whose processes use
    their port now, and keep it.

    ``reserved`` is the list of the ports of this user's other state folders (in the system's folder for temporary
    files). A deleted folder reserves nothing.
    """
    file = reserved or Path(tempfile.gettempdir()) / f"txlog-ports-{os.getuid()}.json"
    kept: dict[str, int] = state.read("ports.json", {})
    with _locked_reservations(file) as owners:
        mine = str(state.root)
        taken = {int(p) for p, owner in owners.items() if owner != mine and (Path(owner) / "ports.json").exists()}
        ports: dict[str, int] = {}
        for name in names:
            port = kept.get(name)
            if port is None or (name not in running and (port in taken or not is_free(port))):
                port = next(
                    (p for p in range(FIRST_PORT, LAST_PORT) if p not in taken and _unused_port(p, kept, ports)), None
                )
                if port is None:
                    raise CannotRun(f"no free port on 127.0.0.1 from {FIRST_PORT} to {LAST_PORT}; end what holds them")
            ports[name] = port
        kept = {name: port for name, port in kept.items() if port not in ports.values()} | ports
        state.write("ports.json", kept)
        owners.clear()
        owners.update({str(p): mine for p in kept.values()})
    return ports


def _unused_port(port: int, kept: dict[str, int], ports: dict[str, int]) -> bool:
    return port not in kept.values() and port not in ports.values() and is_free(port)


@contextmanager
def _locked_reservations(file: Path) -> Iterator[dict[str, Any]]:
    """The reservations; changes that the caller makes to the dictionary are merged with those of others.
    :class:`CannotRun` for a file that is not this user's: everyone may make one of that name in a folder for temporary
    files, also a link to a file that must not be overwritten."""
    try:
        opened = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as wrong:
        raise CannotRun(f"{file}: {wrong.strerror}; it is not this user's list of ports: remove it") from None
    with open(opened, "r+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            reserved = json.load(handle)
        except ValueError:
            reserved = {}
        if not isinstance(reserved, dict):
            reserved = {}
        reserved = {
            port: owner
            for port, owner in reserved.items()
            if port.isdecimal() and (Path(str(owner)) / "ports.json").exists()
        }
        mine = dict(reserved)
        yield mine
        owners = set(mine.values())
        reserved = {port: owner for port, owner in reserved.items() if owner not in owners} | mine
        handle.seek(0)
        handle.truncate()
        json.dump(reserved, handle)
