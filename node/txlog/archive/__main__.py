"""``python -m txlog.archive --config FILE.json``: the archiver of one data centre, until SIGTERM.

Exit code 0 after SIGTERM, when everything that was read is archived; 1 for what needs a person, with one line of JSON
``{"error", "message"}`` on standard output.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from txlog.archive.archive_errors import NoConditionalPut, StreamTaken
from txlog.archive.archiver import TARGET_ERRORS, TARGET_RETRY_S, Archiver, ArchiverSettings
from txlog.backup.backup_errors import UnknownFormat
from txlog.backup.target import open_target
from txlog.client import MasterClient
from txlog.config.process_config import ArchiverConfig
from txlog.model.errors import BadInput, TxLogError
from txlog.telemetry.event_log import EventLog

NEEDS_A_PERSON: Final = (StreamTaken, NoConditionalPut, UnknownFormat, BadInput)
"""Trying again does not help."""
FLUSH_TRIES: Final = 3


def run_archiver(config: ArchiverConfig, log: EventLog, stop: threading.Event) -> None:
    """Archives until ``stop`` is set. An error of the target or of all masters is logged and tried again; the errors of
    :data:`NEEDS_A_PERSON` are raised."""
    settings = ArchiverSettings(config.data_center, config.max_delay_ms / 1000, config.file_bytes, config.probe_s)
    with ExitStack() as closing:
        masters = [closing.enter_context(MasterClient(url)) for url in config.masters]
        archiver = Archiver(open_target(config.target), masters, settings, log)
        while not stop.is_set() and not _succeeds(archiver.start, log):
            stop.wait(TARGET_RETRY_S)
        while not stop.is_set():
            wait_s = TARGET_RETRY_S
            try:
                wait_s = archiver.run_round()
            except NEEDS_A_PERSON:
                raise
            except TxLogError as error:
                log.warning_rate_limited(_event_name(error), error.name, error=str(error))
            stop.wait(wait_s)
        if archiver.reported is not None:
            for _ in range(FLUSH_TRIES):
                if _succeeds(archiver.flush, log):
                    break


def _succeeds(step: Callable[[], None], log: EventLog) -> bool:
    try:
        step()
    except NEEDS_A_PERSON:
        raise
    except TxLogError as error:
        log.warning_rate_limited(_event_name(error), error.name, error=str(error))
        return False
    return True


def _event_name(error: TxLogError) -> str:
    return "ArchiveTargetFailed" if isinstance(error, TARGET_ERRORS) else "ArchiverWaits"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and archives until a signal ends it. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="txlog.archive", description="the archiver of one data centre")
    parser.add_argument("--config", type=Path, required=True, help="an ArchiverConfig as JSON")
    options = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        config = _read_config(options.config)
        run_archiver(config, EventLog(f"{config.data_center}-archiver"), stop)
    except TxLogError as error:
        print(json.dumps({"error": error.name, "message": str(error)}), flush=True)
        return 1
    return 0


def _read_config(path: Path) -> ArchiverConfig:
    try:
        return ArchiverConfig.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


if __name__ == "__main__":
    sys.exit(main())
