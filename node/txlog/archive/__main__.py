"""``python -m txlog.archive --config FILE.json``: the archiver of one data centre, until SIGTERM.

Exit code 0 after SIGTERM, when everything that was read is archived; 1 for what needs a person, with the event
``Failed`` on standard output: its fields are ``error`` and ``message``.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from txlog.archive.archive_errors import NoConditionalPut, StreamTaken
from txlog.archive.archiver import TARGET_ERRORS, TARGET_RETRY_S, Archiver, ArchiverSettings
from txlog.archive.compaction_plan import CompactionLimits
from txlog.archive.file_name import Node
from txlog.archive.read_back import ReadBack
from txlog.archive.stream import Stream
from txlog.archive.upkeep import StreamUpkeep
from txlog.archive.window_retention import retire_files
from txlog.backup.backup_errors import TargetDenied, TargetFull, TargetUnreachable, UnknownFormat
from txlog.backup.target import BackupTarget, open_target
from txlog.client import MasterClient
from txlog.client.report_sender import ReportSender
from txlog.config.json_file import read_json_file
from txlog.config.process_config import ArchiverConfig
from txlog.model.errors import BadInput, TxLogError
from txlog.telemetry.event_log import EventLog
from txlog.telemetry.json_log import install_json_log
from txlog.wire.archive_report import PLACES_REPORTED_MAX, ArchivePlace, ArchiveReport

NEEDS_A_PERSON: Final = (StreamTaken, NoConditionalPut, UnknownFormat, BadInput)
"""Trying again does not help."""
FLUSH_TRIES: Final = 3
ERROR_CHARS_MAX: Final = 500
_ERROR_STATES: Final[tuple[tuple[type[TxLogError] | tuple[type[TxLogError], ...], str], ...]] = (
    (NEEDS_A_PERSON, "Refused"),
    (TargetDenied, "Denied"),
    (TargetFull, "Full"),
    (TargetUnreachable, "Unreachable"),
)
"""The reported state for an error; ``Waiting``, for the masters, where none fits."""


def run_archiver(config: ArchiverConfig, log: EventLog, stop: threading.Event) -> None:
    """Archives until ``stop`` is set. An error of the target or of all masters is logged, reported and tried again; the
    errors of :data:`NEEDS_A_PERSON` are raised. What the masters have at the end is read once more and archived."""
    settings = ArchiverSettings(config.data_center, config.max_delay_ms / 1000, config.file_bytes, config.probe_s)
    with ExitStack() as closing:
        masters = [closing.enter_context(MasterClient(url)) for url in config.masters]
        sender = ReportSender(
            config.masters, "/txlog/archive", ArchiveReport([], state="Waiting"), log, "ArchiveNotReported"
        )
        closing.callback(sender.stop)
        target = open_target(config.target)
        run = _ArchiverRun(Archiver(target, masters, settings, log), masters, log, sender)
        run.start_upkeep = partial(_start_upkeep, config, target, log)
        while not stop.is_set() and not run.succeeds(run.start):
            stop.wait(TARGET_RETRY_S)
        while not stop.is_set():
            stop.wait(run.wait_s if run.succeeds(run.round) else TARGET_RETRY_S)
        run.stop_upkeep()
        if run.is_started:
            run.succeeds(run.round)
            for _ in range(FLUSH_TRIES):
                if run.succeeds(run.archiver.flush):
                    break
            run.publish()


def _start_upkeep(config: ArchiverConfig, target: BackupTarget, log: EventLog, stream: Stream) -> StreamUpkeep | None:
    if not config.compact_s:
        return None
    limits = CompactionLimits(span_s=config.compact_s, grace_s=config.grace_s)
    retire = partial(retire_files, stream, target, config.window_s) if config.window_s is not None else None
    return StreamUpkeep(stream, log, limits, config.compact_s, retire)


class _ArchiverRun:
    """The archiver, its read-back and its reports, step by step."""

    def __init__(self, archiver: Archiver, masters: list[MasterClient], log: EventLog, sender: ReportSender) -> None:
        self.archiver = archiver
        self.wait_s = 0.0
        self.start_upkeep: Callable[[Stream], StreamUpkeep | None] = lambda _: None
        self._upkeep: StreamUpkeep | None = None
        self.is_started = False
        self._read_back = ReadBack(masters, log)
        self._log = log
        self._sender = sender
        self._state, self._error = "Waiting", ""
        self._error_count = 0

    def start(self) -> None:
        self.archiver.start()
        self.archiver.prepare_read_back(self._read_back)
        self.is_started = True
        if self._upkeep is None:
            self._upkeep = self.start_upkeep(self.archiver.stream)

    def stop_upkeep(self) -> None:
        if self._upkeep is not None:
            self._upkeep.stop()

    def round(self) -> None:
        for result in self._upkeep.take_results() if self._upkeep is not None else ():
            self.archiver.files_changed(result.written, result.deleted)
        self.wait_s = self.archiver.run_round()
        self._read_back.step()

    def succeeds(self, step: Callable[[], None]) -> bool:
        """Whether the step ended without an error. Each step is reported, also one that needs a person."""
        try:
            step()
        except TxLogError as error:
            self._error_count += isinstance(error, TARGET_ERRORS)
            self._state, self._error = _state_of(error), f"{error.name}: {error}"[:ERROR_CHARS_MAX]
            self.publish()
            if isinstance(error, NEEDS_A_PERSON):
                raise
            event = "ArchiveTargetFailed" if isinstance(error, TARGET_ERRORS) else "ArchiverWaits"
            self._log.warning_rate_limited(event, error.name, error=str(error))
            return False
        fault = self.archiver.fault
        self._state, self._error = ("Waiting", fault[:ERROR_CHARS_MAX]) if fault else ("Shipping", "")
        self.publish()
        return True

    def publish(self) -> None:
        archiver = self.archiver
        report = ArchiveReport([], state=self._state, error=self._error, errors=self._error_count)
        if self.is_started:
            report = msgspec.structs.replace(
                report,
                archived=report_places(archiver.places),
                verified=report_places(self._read_back.verified),
                stream=archiver.stream.location,
                files=archiver.files_written,
                bytes=archiver.bytes_written,
                gaps=archiver.gaps,
                losses=archiver.losses,
            )
        self._sender.publish(report)


def report_places(newest_first: Sequence[Node]) -> list[ArchivePlace]:
    """The newest places, as a report has them."""
    return [ArchivePlace(node.index, node.hash.hex()) for node in newest_first[:PLACES_REPORTED_MAX][::-1]]


def _state_of(error: TxLogError) -> str:
    return next((state for kind, state in _ERROR_STATES if isinstance(error, kind)), "Waiting")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and archives until a signal ends it. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="txlog.archive", description="the archiver of one data centre")
    parser.add_argument("--config", type=Path, required=True, help="an ArchiverConfig as JSON")
    options = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    node = "archiver"
    try:
        config = read_json_file(options.config, ArchiverConfig)
        node = f"{config.data_center}-archiver"
        install_json_log(node, logging.WARNING)
        run_archiver(config, EventLog(node), stop)
    except TxLogError as error:
        EventLog(node, sys.stdout).error("Failed", error=error.name, message=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
