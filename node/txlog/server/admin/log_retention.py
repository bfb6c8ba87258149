"""How much of the log is kept: asks the core now and then, says who holds a trim back, and warns before disks fill.
Where a split is feared while no backup can be made, it recalls the one that stands.

The core decides (rule 19). This room tells it where the workers of all data centres are, and which backups there are:
``POST /txlog/backups`` says so for one data centre; masters tell each other, and keep it beside their journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
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
from txlog.protocol.log.log_trimming import BACKUP, SPLIT_BACKUP, UNKNOWN_INDEX, WORKER, RetentionPosition, TrimDecision
from txlog.runtime.master_context import MasterContext
from txlog.wire import messages as wire

TOPIC = "backups"
FILE = "backups.json"
BODY_MAX = 4 << 20
DISK_ALARM_RATIO = 0.8
"""Of the room that the journal may take: above it whoever holds the log back is named in the log of events."""
BLOCKERS_SHOWN_MAX = 20
_EXPECTED_BODY = '{"backups": [{"name": "...", "index": N, "hash": "32 hexadecimal digits", "split": false}, ...]}'


class VerifiedBackup(msgspec.Struct, frozen=True):
    """A verified backup. ``split``: it is held for a split."""

    name: str
    index: int
    hash: str
    split: bool = False


class _BackupReport(msgspec.Struct, forbid_unknown_fields=True):
    backups: list[VerifiedBackup]


class DataCenterBackups(msgspec.Struct):
    """``log_index``: when its target was looked at, in seconds since 1970."""

    data_center: str
    at: float
    backups: list[VerifiedBackup]


class LogRetention:
    """``send(peer, message)`` is the way to the other masters."""

    def __init__(
        self, site: MasterContext, send: Callable[[str, bytes], None], clock: Callable[[], float] = time.time
    ) -> None:
        self._context = site
        self._send = send
        self._clock = clock
        self._path = site.config.journal_folder / FILE
        self._backups: dict[str, DataCenterBackups] = self._read()
        self.decision = TrimDecision(0, 0, [])

    def routes(self) -> list[Route]:
        return [Route("POST", "/txlog/backups", self.report)]

    def tasks(self) -> dict[str, Any]:
        """What runs for ever, by name."""
        return {"trimming": self._run_trims()}

    async def report(self, request: Request, _: Mapping[str, str]) -> Response:
        """All verified backups of this data centre; what was said before counts no more. Answers ``{"known"}``."""
        try:
            told = msgspec.json.decode(await read_body(request, BODY_MAX), type=_BackupReport)
            hashes = [bytes.fromhex(one.hash) for one in told.backups]
        except DECODE_ERRORS as wrong:
            raise BadInput(f"{_EXPECTED_BODY}: {wrong}") from None
        if any(len(one) != len(NO_HASH) for one in hashes) or any(one.index < 0 for one in told.backups):
            raise BadInput(f"a hash or an index is none: expected {_EXPECTED_BODY}")
        name = self._context.config.data_center
        self._merge(DataCenterBackups(name, self._clock(), told.backups))
        return json_response({"known": len(told.backups)})

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """A notice of another master."""
        if topic != TOPIC:
            return
        try:
            told = msgspec.json.decode(body, type=list[DataCenterBackups])
        except DECODE_ERRORS:
            return  # a newer version's
        for one in told:
            self._merge(one)

    def _merge(self, told: DataCenterBackups) -> None:
        before = self._backups.get(told.data_center)
        if before is not None and before.at >= told.at:
            return
        self._backups[told.data_center] = told
        if before is None or before.backups != told.backups:
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
        """Trim what may go."""
        loop = self._context.loop
        before = self.decision.start
        self.decision = loop.trim(self._positions(), self._keep_from())
        agreement = loop.log_state
        start = agreement.log_index.start if agreement is not None else 0
        if start > self.decision.start:
            self._context.log.info("Trimmed", index=start, before=before)
        self._warn_if_alarm()

    def reuse_earlier_backup(self) -> None:
        """Where a split is feared and no backup can be made for it, the newest of this data centre that stands on the
        log does (rule 23)."""
        site = self._context
        told = self._backups.get(site.config.data_center)
        if told is None or not site.loop.core.accepts_earlier_backup:
            return
        for one in sorted(told.backups, key=lambda one: -one.index):
            with contextlib.suppress(OffTheLog):
                site.loop.backup_done(one.index, bytes.fromhex(one.hash), -1)
                site.log.info("BackupRecalled", index=one.index, name=one.name)
                return

    def backup_covering(self) -> str | None:
        """The oldest known backup that holds all that was trimmed: it stands on the log, not below its beginning."""
        agreement = self._context.loop.log_state
        if agreement is None:
            return None
        history = agreement.log_index
        found = [
            one
            for told in self._backups.values()
            for one in told.backups
            if history.start <= one.index <= history.length and history.hash_at(one.index).hex() == one.hash
        ]
        return min(found, key=lambda one: (one.index, one.name)).name if found else None

    def _positions(self) -> list[RetentionPosition]:
        site = self._context
        registry = site.registry
        centers = [m.data_center for m in site.loop.core.views.configured_members]
        groups = {name: registry.remote_workers.get(name) for name in centers}
        groups[registry.data_center] = registry.workers
        found: list[RetentionPosition] = []
        for name, workers in groups.items():
            if workers is None:
                found.append(RetentionPosition(WORKER, f"the workers of {name}", UNKNOWN_INDEX, b""))
                continue
            for worker in workers.values():
                place = worker.position
                at, value = (place.index, bytes.fromhex(place.hash)) if place is not None else (UNKNOWN_INDEX, b"")
                found.append(RetentionPosition(WORKER, f"{name}/{worker.name}", at, value))
        for told in self._backups.values():
            for one in told.backups:
                kind = SPLIT_BACKUP if one.split else BACKUP
                found.append(RetentionPosition(kind, one.name, one.index, bytes.fromhex(one.hash)))
        return found

    def _keep_from(self) -> int:
        """The last entry that is older than what is kept in any case; where the journal is above its size, age counts
        no more."""
        site = self._context
        agreement = site.loop.log_state
        if agreement is None:
            return 0
        if not site.config.log_keep_ms or self.bytes_used >= site.config.log_bytes_max:
            return agreement.final_index
        oldest = stamp_at(int((self._clock() * 1000 - site.config.log_keep_ms) * 1000))
        return self._last_below(agreement, oldest)

    def _last_below(self, agreement: LogState, stamp: int) -> int:
        """Stamps grow along the log."""
        low, high = agreement.log_index.start, agreement.final_index
        while low < high:
            middle = (low + high + 1) // 2
            if self._context.loop.executor.stamp_at(agreement, middle) <= stamp:
                low = middle
            else:
                high = middle - 1
        return low

    # What is shown

    @property
    def bytes_used(self) -> int:
        return int(getattr(self._context.loop.executor.journal, "bytes_used", 0))

    @property
    def bytes_max(self) -> int:
        """What the journal may take: its limit, else what is used and free now."""
        journal = self._context.loop.executor.journal
        limit = self._context.config.journal_bytes_max
        return limit or self.bytes_used + int(getattr(journal, "bytes_free", 0))

    def describe(self) -> dict[str, Any]:
        """``keptFrom``: the log is kept behind that index; ``mayGoTo``: nobody needs it up to there; ``heldBackBy``:
        the first that do, by where they are."""
        agreement = self._context.loop.log_state
        holders = self.decision.blockers[:BLOCKERS_SHOWN_MAX]
        return {
            "keptFrom": agreement.log_index.start if agreement is not None else 0,
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
            return {}  # unknown holds the log back; it is told again
        return {one.data_center: one for one in found}

    def _write(self) -> None:
        new = self._path.with_name(FILE + ".new")
        try:
            new.write_bytes(msgspec.json.encode(list(self._backups.values())))
            os.replace(new, self._path)
        except OSError as wrong:  # a full disk says so elsewhere
            self._context.log.warning_rate_limited("BackupsNotKept", "backups", error=str(wrong))
