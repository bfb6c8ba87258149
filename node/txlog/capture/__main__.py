"""``python -m txlog.capture --config FILE.json``: the change sets of one data centre, until SIGTERM.

Exit code 0 after SIGTERM. 1 where it cannot begin: one line of JSON ``{"error", "message"}`` on standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from txlog.capture.capture_service import CaptureService
from txlog.capture.change_server import ChangeServer
from txlog.changesets import ChangeLogReader
from txlog.client.report_sender import ReportSender
from txlog.config.json_file import read_json_file
from txlog.config.process_config import ChangeSetsConfig
from txlog.model.errors import BadInput, TxLogError
from txlog.telemetry.event_log import EventLog

REPORTS_PATH = "/txlog/changesets"


async def run_capture(config: ChangeSetsConfig, log: EventLog, stop: asyncio.Event) -> None:
    """Makes change sets, reports them and serves them until ``stop`` is set. Raises what ends the service."""
    token = _read_token(config.peer_token_file)
    stopping = threading.Event()
    sender: ReportSender | None = None
    service = CaptureService(config, log, lambda report: sender.publish(report) if sender is not None else None)
    sender = ReportSender(config.masters, REPORTS_PATH, service.report, log, "ChangeSetsNotReported")
    reader = ChangeLogReader(service.change_log_folder)
    server = ChangeServer(reader, lambda: service.report, token, service.values, service.state)
    runner = web.AppRunner(server.application(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, config.host, config.port).start()
        work = asyncio.create_task(asyncio.to_thread(service.run, stopping))
        ended = asyncio.create_task(stop.wait())
        await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        stopping.set()
        await work
    finally:
        stopping.set()
        await runner.cleanup()
        await asyncio.to_thread(sender.stop)


def _read_token(path: Path) -> bytes:
    try:
        token = path.read_bytes().strip()
    except OSError as wrong:
        raise BadInput(f"{path}: {wrong.strerror}") from None
    if not token:
        raise BadInput(f"{path}: expected the token of the cluster")
    return token


async def _run_until_signal(config: ChangeSetsConfig, log: EventLog) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run_capture(config, log, stop)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and works until a signal ends it. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="txlog.capture", description="the change sets of one data centre")
    parser.add_argument("--config", type=Path, required=True, help="a ChangeSetsConfig as JSON")
    options = parser.parse_args(arguments)
    try:
        config = read_json_file(options.config, ChangeSetsConfig)
        asyncio.run(_run_until_signal(config, EventLog(f"{config.data_center}-changesets")))
    except (TxLogError, OSError) as error:
        name = error.name if isinstance(error, TxLogError) else type(error).__name__
        print(json.dumps({"error": name, "message": str(error)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
