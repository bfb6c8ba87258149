"""The yardstick: a server of the masters' kind (aiohttp on uvloop) that does nothing but answer. What the same load
reaches against it says how fast this machine is; no master can be faster. ``python -m bench.echo PORT``."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop
from aiohttp import web

from e2e.lib.cluster.masters import stop_processes, wait_for_listener
from e2e.lib.host_metrics import CpuMeter
from e2e.lib.load.closed_loop import ClosedLoad, RequestTemplate
from e2e.lib.ports import free_ports
from e2e.lib.report import CannotMeasure

CLIENTS = 64


async def run_server(port: int) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        await request.read()
        return web.Response(status=204)

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


class EchoServer:
    """A running server that only answers."""

    def __init__(self, port: int, pid: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.pid = pid

    def measure(self, seconds: float, warm_s: float = 0.5, clients: int = CLIENTS) -> tuple[float, float]:
        """Requests a second of so many clients, and microseconds of the server's processor for each."""
        meter = CpuMeter({"echo": self.pid})
        shares: dict[str, float] = {}
        load = ClosedLoad([self.url], RequestTemplate("echo", "synced", 1, "echo"), clients)
        round_ = load.run(warm_s, seconds, meter.begin, lambda: shares.update(meter.shares()))
        if load.wrong:
            raise CannotMeasure(f"the yardstick failed: {load.wrong[0]}")
        return round_.per_s, 1e4 * shares["echo"] / round_.per_s


@contextmanager
def echo_server(log: Path) -> Iterator[EchoServer]:
    """Start it, and end it."""
    port = free_ports(1)[0]
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.echo", str(port)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_for_listener(port)
        yield EchoServer(port, process.pid)
    finally:
        stop_processes([process])


def measure_baseline(seconds: float, log: Path) -> tuple[float, float]:
    """Requests a second of 64 clients, and microseconds of the server's processor for each."""
    with echo_server(log) as echo:
        return echo.measure(seconds)


if __name__ == "__main__":
    uvloop.run(run_server(int(sys.argv[1])))
