"""``python -m txlog.rehearsal --config FILE.json``: one rehearsal of a recovery, as a process of its own.

The supervisor starts it for schedules. The last line on standard output is JSON: the report
(:class:`~txlog.wire.rehearsal_report.RehearsalReport`) with ``problems``; exit code 1 unless it was good.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from txlog.backup.backup_job import print_result
from txlog.config.json_file import read_json_file
from txlog.config.process_config import RehearsalConfig
from txlog.model.errors import TxLogError
from txlog.rehearsal.rehearsal_job import RehearsalJob
from txlog.telemetry.event_log import EventLog
from txlog.telemetry.json_log import install_json_log

MESSAGE_MAX: Final = 1000
JOB: Final = "rehearsal"
"""Its name in the log."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and rehearses. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="txlog.rehearsal", description="a rehearsed recovery of one data centre")
    parser.add_argument("--config", type=Path, required=True, help="a RehearsalConfig as JSON")
    parser.add_argument("--answer", type=Path, help="the result goes into this file, and not to standard output")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        config = read_json_file(options.config, RehearsalConfig)
        report, problems = RehearsalJob(config, _print_phase if options.answer is None else _log_phase).run()
    except TxLogError as error:
        print_result({"ok": False, "error": error.name, "message": str(error)}, options.answer, job=JOB)
        return 1
    except KeyboardInterrupt:
        print_result({"ok": False, "error": "Interrupted", "message": "ended from outside"}, options.answer, job=JOB)
        return 130
    fields: dict[str, Any] = msgspec.to_builtins(report)
    del fields["differ"]  # named in the message; a termination message of Kubernetes holds no more than 4 kB
    fields["message"] = report.message[:MESSAGE_MAX]
    print_result({**fields, "problems": problems}, options.answer, job=JOB)
    return 0 if report.ok else 1


def _interrupt(*_: object) -> NoReturn:
    """The throw-away store and folder go with the contexts that this unwinds."""
    raise KeyboardInterrupt


def _print_phase(phase: str) -> None:
    print(json.dumps({"phase": phase}), flush=True)


def _log_phase(phase: str) -> None:
    EventLog(JOB).info("RehearsalPhase", phase=phase)


if __name__ == "__main__":
    install_json_log(JOB, logging.WARNING)
    sys.exit(main())
