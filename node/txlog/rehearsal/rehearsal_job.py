"""One rehearsal of a data centre, and its report: on the target, and at the masters."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from txlog.archive.stream import Stream, StreamId
from txlog.backup.chain_check import read_cluster_id
from txlog.backup.target import BackupTarget, open_target
from txlog.client import MasterClient
from txlog.client.connection import MasterConnection
from txlog.client.json_calls import JsonCalls
from txlog.config.process_config import RehearsalConfig
from txlog.model.errors import TxLogError
from txlog.rehearsal.planted_run import PlantedRun, rehearse_planted
from txlog.rehearsal.rehearsal import RehearsalRequest, rehearse
from txlog.rehearsal.verdict import RehearsalBounds
from txlog.wire.rehearsal_report import RehearsalReport

REPORT_S = 10.0
"""How long a master may take to answer a report."""


class RehearsalJob:
    """``on_phase``: called with the name of each phase. Everything temporary is deleted at the end of a run."""

    def __init__(
        self, config: RehearsalConfig, on_phase: Callable[[str], None] = lambda _: None, base: str | None = None
    ) -> None:
        self._config = config
        self._on_phase = on_phase
        self._base = base

    def run(self) -> tuple[RehearsalReport, list[str]]:
        """The report, and why it could not be stored or given to a master."""
        with ExitStack() as closing:
            request = self._open(closing)
            report = rehearse(request)
            return report, _publish(report, request, self._config.masters)

    def run_planted(self, on_fault: Callable[[str], None] = lambda _: None) -> PlantedRun:
        """The twelve faults, each in a rehearsal of its own. Neither target nor masters get a report."""
        with ExitStack() as closing:
            return rehearse_planted(self._open(closing), on_fault=on_fault)

    def _open(self, closing: ExitStack) -> RehearsalRequest:
        config = self._config
        masters = [closing.enter_context(MasterClient(url)) for url in config.masters]
        archive = open_target(config.target)
        backups = open_target(config.backups) if config.backups is not None else archive
        folder = closing.enter_context(
            tempfile.TemporaryDirectory("", "txlog-rehearsal-", config.scratch_folder, ignore_cleanup_errors=True)
        )
        return RehearsalRequest(
            config.data_center,
            masters,
            archive,
            backups,
            Path(folder),
            RehearsalBounds(config.max_rpo_s, config.max_rto_s),
            self._base,
            config.level,
            config.archived_s,
            on_phase=self._on_phase,
        )


def _publish(report: RehearsalReport, request: RehearsalRequest, masters: Sequence[str]) -> list[str]:
    """A report that only one of them has is no reason to call the rehearsal failed."""
    problems = []
    fields: dict[str, Any] = msgspec.to_builtins(report)
    try:
        _stream_of(request.masters, request.archive, request.data_center).record_rehearsal(report.at, fields)
    except TxLogError as error:
        problems.append(f"the report is not on {request.archive.location}: {error.name}: {error}")
    for url in masters:
        connection = MasterConnection(url, timeout_s=REPORT_S)
        try:
            JsonCalls(connection).post("/txlog/rehearsals", fields)
        except TxLogError as error:
            problems.append(f"{url} did not take the report: {error.name}: {error}")
        finally:
            connection.close()
    return problems


def _stream_of(masters: Sequence[MasterClient], archive: BackupTarget, data_center: str) -> Stream:
    return Stream(archive, StreamId(bytes.fromhex(read_cluster_id(masters)), data_center))
