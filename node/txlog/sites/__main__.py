"""``python -m txlog.sites --config FILE.json``: the link from another site, until SIGTERM.

Exit code 0 after SIGTERM. 1 where it cannot begin: one line of JSON ``{"error", "message"}`` on standard output.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from txlog.client.report_sender import ReportSender
from txlog.config.json_file import read_json_file
from txlog.config.process_config import SiteLinkConfig
from txlog.model.errors import BadInput, TxLogError
from txlog.sites.site_link import SiteLink
from txlog.telemetry.event_log import EventLog

REPORTS_PATH: Final = "/txlog/sites"


def run_link(config: SiteLinkConfig, log: EventLog, stop: threading.Event) -> None:
    """Imports until ``stop`` is set. Raises :class:`BadInput` where another process has the folder."""
    config.folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(config.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadInput(f"{config.folder}: another process has this link") from None
    sender: ReportSender | None = None
    try:
        link = SiteLink(config, log, lambda report: sender.publish(report) if sender is not None else None)
        sender = ReportSender(config.masters, REPORTS_PATH, link.report, log, "LinkNotReported")
        link.run(stop)
    finally:
        if sender is not None:
            sender.stop()
        os.close(lock)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and works until a signal ends it. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="txlog.sites", description="the link from another site")
    parser.add_argument("--config", type=Path, required=True, help="a SiteLinkConfig as JSON")
    options = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        config = read_json_file(options.config, SiteLinkConfig)
        run_link(config, EventLog(f"{config.site}-from-{config.other.name}"), stop)
    except (TxLogError, OSError) as error:
        name = error.name if isinstance(error, TxLogError) else type(error).__name__
        print(json.dumps({"error": name, "message": str(error)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
