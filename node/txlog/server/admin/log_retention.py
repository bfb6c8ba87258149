"""Decides how much of the log to keep: asks the core regularly, reports what blocks a trim, and warns before disks
fill. If a split is expected and no backup can be made, it uses an existing backup again.

The core decides (rule 19). This module gives it the positions of the workers of all data centres, and the backups.
``POST /txlog/backups`` reports the backups of one data centre. Masters exchange these reports and keep them in a file
next to their journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_body
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput, OffTheLog
from txlog.model.hashes import NO_HASH
from txlog.model.stamp import stamp_at
from txlog.protocol.log.log_state import LogState
from txlog.protocol.log.log_trim import (
    ARCHIVE,
    BACKUP,
    SPLIT_BACKUP,
    UNKNOWN_INDEX,
    WORKER,
    RetentionPosition,
    TrimDecision,
)
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.archive_reports import ArchiveReports
from txlog.server.admin.kept_file import keep
from txlog.wire import messages as wire

TOPIC = "backups"
FILE = "backups.json"
BODY_MAX = 4 << 20
DISK_ALARM_RATIO = 0.8
"""Share of the journal's allowed size. Above it, the event log names what blocks the trim."""
BLOCKERS_SHOWN_MAX = 20
_EXPECTED_BODY = '{"backups": [{"name": "...", "index": N, "hash": "32 hexadecimal digits", "split": false}, ...]}'


class VerifiedBackup(msgspec.Struct, frozen=True):
    """A verified backup. ``split``: TxLog pins it for a split."""

    name: str
    index: int
    hash: str
    split: bool = False


class BackupReport(msgspec.Struct, forbid_unknown_fields=True):
    """All verified backups of one data centre."""

    backups: list[VerifiedBackup]


class DataCenterBackups(msgspec.Struct):
    """The backups of one data centre. ``at``: when a master received their report, in seconds since 1970."""

    data_center: str
    at: float
    backups: list[VerifiedBackup]


class LogRetention:
    """``/txlog/backups``, and the task that trims the log. ``send(peer, message)`` sends a message to another
    master."""

    def __init__(self, site: MasterContext, send: Callable[[str, bytes], None], archive: ArchiveReports) -> None:
        self._context = site
        self._send = send
        self._archive = archive
        self._path = site.config.journal_folder / FILE
        self._backups: dict[str, DataCenterBackups] = self._read()
        self.decision = TrimDecision(0, 0, [])

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("POST", "/txlog/backups", self.report)]

    def tasks(self) -> dict[str, Any]:
        """The tasks that run until the process ends, by name."""
        return {"trimming": self._run_trims()}

    async def report(self, request: Request, _: Mapping[str, str]) -> Response:
        """Accepts all verified backups of this data centre; they replace the previous report. Answers ``{"known"}``."""
        try:
            report = msgspec.json.decode(await read_body(request, BODY_MAX), type=BackupReport)
            hashes = [bytes.fromhex(one.hash) for one in report.backups]
        except DECODE_ERRORS as wrong:
            raise BadInput(f"{_EXPECTED_BODY}: {wrong}") from None
        if any(len(one) != len(NO_HASH) for one in hashes) or any(one.index < 0 for one in report.backups):
            raise BadInput(f"a hash or an index is none: expected {_EXPECTED_BODY}")
        name = self._context.config.data_center
        self._merge(DataCenterBackups(name, time.time(), report.backups))
        return json_response({"known": len(report.backups)})

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Handles a notice from another master."""
        if topic != TOPIC:
            return
        try:
            reports = msgspec.json.decode(body, type=list[DataCenterBackups])
        except DECODE_ERRORS:
            return  # a newer version sent it
        for one in reports:
            self._merge(one)

    def _merge(self, report: DataCenterBackups) -> None:
        before = self._backups.get(report.data_center)
        if before is not None and before.at >= report.at:
            return
        self._backups[report.data_center] = report
        if before is None or before.backups != report.backups:
            self._write()

    # The trim

    async def _run_trims(self) -> None:
        interval_s = self._context.config.trim_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            if self._backups:
                notice = wire.encode(wire.Notice(TOPIC, msgspec.json.encode(list(self._backups.values()))))
                for node in self._context.other_nodes:
                    self._send(node, notice)
            if not self._context.is_closing and self._context.loop.end_reason is None:
                self.trim_now()
                self.reuse_earlier_backup()

    def trim_now(self) -> None:
        """Trims the log as far as the core allows."""
        loop = self._context.loop
        before = self.decision.start
        self.decision = loop.trim(self._positions(), self._keep_from())
        agreement = loop.status.log_state
        start = agreement.log_index.start if agreement is not None else 0
        if start > self.decision.start:
            self._context.log.info("Trimmed", index=start, before=before)
        self._warn_if_alarm()

    def reuse_earlier_backup(self) -> None:
        """If a split is expected and no backup can be made for it, use an existing backup (rule 23). It is the newest
        of this data centre that is on the log."""
        site = self._context
        known = self._backups.get(site.config.data_center)
        if known is None or not site.status.accepts_earlier_backup:
            return
        for one in sorted(known.backups, key=lambda one: -one.index):
            with contextlib.suppress(OffTheLog):
                site.loop.backup_done(one.index, bytes.fromhex(one.hash), -1)
                site.log.info("BackupRecalled", index=one.index, name=one.name)
                return

    def backup_covering(self) -> str | None:
        """The oldest known backup that contains everything that was trimmed: it is on the log, and not below the log
        start."""
        agreement = self._context.status.log_state
        if agreement is None:
            return None
        history = agreement.log_index
        found = [
            one
            for reported in self._backups.values()
            for one in reported.backups
            if history.start <= one.index <= history.length and history.hash_at(one.index).hex() == one.hash
        ]
        return min(found, key=lambda one: (one.index, one.name)).name if found else None

    def _archive_position(self) -> list[RetentionPosition]:
        """Where the archive of this data centre has been read back to. Without a report since this start it needs the
        whole log. With ``onFull: gap`` a journal that is nearly full lets it go."""
        config = self._context.config.archive
        if config is None:
            return []
        place = self._archive.verified_place()
        if config.on_full == "gap" and self.disk_alarm:
            self._context.log.warning_rate_limited(
                "ArchiveLetGo", "archive", verified=place.index if place else 0, bytes=self.bytes_used
            )
            return []
        index, value = (place.index, bytes.fromhex(place.hash)) if place else (UNKNOWN_INDEX, b"")
        return [RetentionPosition(ARCHIVE, self._context.config.data_center, index, value)]

    def _positions(self) -> list[RetentionPosition]:
        site = self._context
        registry = site.registry
        centers = [data_center for _, data_center in site.masters]
        groups = {name: registry.remote_workers.get(name) for name in centers}
        groups[registry.data_center] = registry.workers
        found = self._archive_position()
        for name, workers in groups.items():
            if workers is None:
                found.append(RetentionPosition(WORKER, f"the workers of {name}", UNKNOWN_INDEX, b""))
                continue
            for worker in workers.values():
                place = worker.position
                at, value = (place.index, bytes.fromhex(place.hash)) if place is not None else (UNKNOWN_INDEX, b"")
                found.append(RetentionPosition(WORKER, f"{name}/{worker.name}", at, value, worker.is_unordered))
        for reported in self._backups.values():
            for one in reported.backups:
                kind = SPLIT_BACKUP if one.split else BACKUP
                found.append(RetentionPosition(kind, one.name, one.index, bytes.fromhex(one.hash)))
        return found

    def _keep_from(self) -> int:
        """The last entry older than the minimum retention. When the journal exceeds its size limit, age no longer
        counts."""
        site = self._context
        agreement = site.status.log_state
        if agreement is None:
            return 0
        if not site.config.log_keep_ms or self.bytes_used >= site.config.log_bytes_max:
            return agreement.final_index
        oldest = stamp_at(int((time.time() * 1000 - site.config.log_keep_ms) * 1000))
        return self._last_below(agreement, oldest)

    def _last_below(self, agreement: LogState, stamp: int) -> int:
        """A binary search: stamps grow along the log."""
        low, high = agreement.log_index.start, agreement.final_index
        while low < high:
            middle = (low + high + 1) // 2
            if self._context.status.stamp_at(middle) <= stamp:
                low = middle
            else:
                high = middle - 1
        return low

    # Reported state

    @property
    def bytes_used(self) -> int:
        """Size of the journal, in bytes; 0 for a journal that does not report it."""
        return self._context.status.journal_bytes_used or 0

    @property
    def bytes_max(self) -> int:
        """The allowed size of the journal, in bytes: its limit, or without a limit the used plus the free bytes."""
        limit = self._context.config.journal_bytes_max
        return limit or self.bytes_used + (self._context.status.journal_bytes_free or 0)

    def reported_backups(self) -> list[DataCenterBackups]:
        """The last report of each data centre that this master knows of."""
        return list(self._backups.values())

    def describe(self) -> dict[str, Any]:
        """``keptFrom``: the log is kept after that index. ``servedFrom``: readers may begin at that index or behind it.
        It is above ``keptFrom`` where a transaction was undecided. ``mayGoTo``: no reader needs the log up to there.
        ``heldBackBy``: the first positions that block the trim, in the order of their indexes."""
        agreement = self._context.status.log_state
        holders = self.decision.blockers[:BLOCKERS_SHOWN_MAX]
        return {
            "keptFrom": agreement.log_index.start if agreement is not None else 0,
            "servedFrom": agreement.log_index.served_from if agreement is not None else 0,
            "mayGoTo": self.decision.trim_to,
            "heldBackBy": [
                {"kind": h.kind, "name": h.name, "index": h.log_index, "why": h.why or None} for h in holders
            ],
            "bytes": self.bytes_used,
            "bytesMax": self.bytes_max,
            "alarm": self.disk_alarm,
        }

    @property
    def disk_alarm(self) -> bool:
        """True once the journal uses :data:`DISK_ALARM_RATIO` of its allowed size."""
        return self.bytes_used >= DISK_ALARM_RATIO * self.bytes_max

    def _warn_if_alarm(self) -> None:
        if not self.disk_alarm:
            return
        first = [
            f"{h.kind} {h.name} at {h.log_index}{f' ({h.why})' if h.why else ''}" for h in self.decision.blockers[:3]
        ]
        self._context.log.warning_rate_limited(
            "LogHeldBack", "journal", bytes=self.bytes_used, bytesMax=self.bytes_max, heldBackBy=first
        )

    # The file

    def _read(self) -> dict[str, DataCenterBackups]:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=list[DataCenterBackups])
        except (OSError, *DECODE_ERRORS):
            return {}  # an unknown position blocks the trim until the next report
        return {one.data_center: one for one in found}

    def _write(self) -> None:
        keep(self._path, msgspec.json.encode(list(self._backups.values())), self._context.log, "BackupsNotKept")
