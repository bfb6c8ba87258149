"""Distance between data centres, for kernels without netem.

``python wan.py DELAY_MS JITTER_MS LOSS_PERCENT NET,GATEWAY...`` runs in a node: what goes to those networks passes
through a TUN device that holds every packet for the delay (in order, whatever the jitter), then leaves by the cable.
Ends with SIGTERM; its routes go with it. Standard library alone: it may be run by any Python of the machine.
"""

from __future__ import annotations

import collections
import fcntl
import ipaddress
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

TUNSETIFF = 0x400454CA
TUN_WITHOUT_HEADER = 0x1001
SO_MARK = 36
MARK, TABLE = 7, 107
"""Packets that we send ourselves are marked, and leave by a table of their own."""
PID_FILE = Path("/run/wan.pid")
BURST = 64


def run_ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def remove_routes() -> None:
    subprocess.run(f"ip rule del fwmark {MARK}; ip route flush table {TABLE}", shell=True, stderr=subprocess.DEVNULL)


def add_routes(ways: list[str], device: str) -> None:
    """Routes into the TUN for all, out of the cable for what is marked."""
    run_ip(f"rule add fwmark {MARK} lookup {TABLE}")
    shown = subprocess.run(["ip", "-4", "-o", "addr", "show", "up0"], capture_output=True, text=True, check=True).stdout
    source = shown.split("inet ")[1].split("/")[0]
    for way in ways:
        net, gateway = way.split(",")
        via = "" if net == f"{gateway}/32" else f"via {gateway} "
        run_ip(f"route add {net} {via}dev up0 table {TABLE}")
        network = ipaddress.ip_network(net)
        # Halves are more specific than the standing route, which thus stays for afterwards.
        for half in network.subnets() if network.prefixlen < 32 else [network]:
            run_ip(f"route replace {half} dev {device} src {source}")


def main() -> None:
    delay, jitter, loss = float(sys.argv[1]) / 1e3, float(sys.argv[2]) / 1e3, float(sys.argv[3]) / 100
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", b"wan0", TUN_WITHOUT_HEADER))
    run_ip("link set wan0 up txqueuelen 5000 mtu 1500")
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    raw.setsockopt(socket.SOL_SOCKET, SO_MARK, MARK)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    remove_routes()
    add_routes(sys.argv[4:], "wan0")
    PID_FILE.write_text(str(os.getpid()))

    def end(*_: object) -> None:
        remove_routes()
        PID_FILE.unlink(missing_ok=True)
        os._exit(0)  # the device, and with it its routes, go with the process

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    held: collections.deque[tuple[float, bytes]] = collections.deque()
    last = 0.0
    while True:
        patience = max(0.0, held[0][0] - time.monotonic()) if held else None
        if select.select([tun], [], [], patience)[0]:
            try:
                for _ in range(BURST):
                    packet = os.read(tun, 65535)
                    if packet[0] >> 4 != 4 or (loss and random.random() < loss):
                        continue
                    last = max(last, time.monotonic() + delay + random.random() * jitter)
                    held.append((last, packet))
            except BlockingIOError:
                pass
        now = time.monotonic()
        while held and held[0][0] <= now:
            packet = held.popleft()[1]
            try:
                raw.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))
            except OSError as error:
                print(error, file=sys.stderr)


if __name__ == "__main__":
    main()
