"""The yardstick: a server of the masters' kind (aiohttp on uvloop) that does nothing but answer. What the same load
reaches against it says how fast this machine is; no master can be faster. ``python -m bench.echo PORT``."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import uvloop
from aiohttp import web

from bench.load import Load, Requests
from bench.machine import CpuMeter
from bench.masters import CannotMeasure, free_ports, stop, wait_listening

CLIENTS = 64


async def serve(port: int) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        await request.read()
        return web.Response(status=204)

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


def yardstick(seconds: float, log: Path) -> tuple[float, float]:
    """Requests a second of 64 clients, and microseconds of the server's processor for each."""
    port = free_ports(1)[0]
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.echo", str(port)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_listening(port)
        meter = CpuMeter({"echo": process.pid})
        shares: dict[str, float] = {}
        load = Load([f"http://127.0.0.1:{port}"], Requests("echo", "synced", 1, "echo"), CLIENTS)
        round_ = load.run(0.5, seconds, meter.begin, lambda: shares.update(meter.shares()))
    finally:
        stop([process])
    if load.wrong:
        raise CannotMeasure(f"the yardstick failed: {load.wrong[0]}")
    return round_.per_s, 1e4 * shares["echo"] / round_.per_s


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
