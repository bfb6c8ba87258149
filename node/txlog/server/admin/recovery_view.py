"""``GET /txlog/recovery``: to which moments a store can be restored, as far as this master knows.

A master knows positions, and the stamps of the entries that its log still holds. So a backup or an archive has the time
of its last transaction where the log reaches it, and a backup otherwise the time that its name contains.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from txlog.http.router import Request, Response, Route, json_response
from txlog.model.stamp import stamp_ms
from txlog.protocol.log.log_state import LogState
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.archive_reports import StreamStatus
from txlog.server.admin.log_retention import DataCenterBackups, VerifiedBackup
from txlog.wire.archive_report import ArchivePlace

MARKS_MAX: Final = 64
"""Points of the log whose time is shown. Each needs one read of the journal, once."""
_TIME_IN_NAME: Final = re.compile(r"-(\d{8}t\d{6}z)-")


class RecoveryHandler:
    """``backups`` and ``streams`` return what masters reported of the backups and archives of all data centres."""

    def __init__(
        self,
        site: MasterContext,
        backups: Callable[[], Iterable[DataCenterBackups]],
        streams: Callable[[], Iterable[StreamStatus]],
    ) -> None:
        self._context = site
        self._backups = backups
        self._streams = streams
        self._times: dict[tuple[int, bytes], float] = {}

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/recovery", self.get)]

    async def get(self, _: Request, __: Mapping[str, str]) -> Response:
        """Backups, archives, and the times of some entries. All times are seconds since 1970."""
        view, agreement = self._context.status.view, self._context.status.log_state
        marks = self._marks(agreement) if agreement is not None else []
        return json_response(
            {
                "at": round(time.time(), 3),
                "dataCenter": self._context.config.data_center,
                "clusterId": view.cluster_id.hex() if view is not None else None,
                "backups": [
                    self._describe_backup(agreement, reported.data_center, backup)
                    for reported in sorted(self._backups(), key=lambda one: one.data_center)
                    for backup in sorted(reported.backups, key=lambda one: (one.index, one.name))
                ],
                "streams": [self._describe_stream(agreement, stream) for stream in self._streams()],
                "marks": marks,
            }
        )

    def _marks(self, agreement: LogState) -> list[dict[str, Any]]:
        """The first and the last stable entry, and those between at round indexes, which stay the same as it grows."""
        start, end = agreement.log_index.start, self._context.durability.stable.value
        if end <= start:
            return []
        step = 1
        while (end - start) // step > MARKS_MAX - 2:
            step *= 2
        chosen = sorted({start + 1, *range((start // step + 1) * step, end, step), end})
        known = self._times
        self._times = {}
        found = []
        for index in chosen:
            key = (index, agreement.log_index.hash_at(index))
            at = known[key] if key in known else self._time_at(agreement, index)
            if at is not None:
                self._times[key] = at
                found.append({"index": index, "at": at})
        return found

    def _describe_backup(self, agreement: LogState | None, data_center: str, backup: VerifiedBackup) -> dict[str, Any]:
        is_on_log, at = self._place(agreement, backup.index, backup.hash)
        return {
            "name": backup.name,
            "dataCenter": data_center,
            "index": backup.index,
            "hash": backup.hash,
            "split": backup.split,
            "onLog": is_on_log,
            "at": at,
            "madeAt": parse_backup_time(backup.name),
        }

    def _describe_stream(self, agreement: LogState | None, stream: StreamStatus) -> dict[str, Any]:
        return {
            "dataCenter": stream.data_center,
            "stream": stream.stream,
            "state": stream.state,
            "error": stream.error,
            "delaySeconds": stream.delay_seconds,
            "gaps": stream.gaps,
            "losses": stream.losses,
            "archived": self._describe_place(agreement, stream.archived),
            "verified": self._describe_place(agreement, stream.verified),
        }

    def _describe_place(self, agreement: LogState | None, place: ArchivePlace | None) -> dict[str, Any] | None:
        if place is None:
            return None
        return {"index": place.index, "hash": place.hash, "at": self._place(agreement, place.index, place.hash)[1]}

    def _place(self, agreement: LogState | None, index: int, value: str) -> tuple[bool | None, float | None]:
        """Whether the position is on this log (None: the log no longer reaches back to it), and the time there."""
        if agreement is None or index < agreement.log_index.start:
            return None, None
        if index > agreement.log_index.length or agreement.log_index.hash_at(index).hex() != value:
            return False, None
        return True, self._time_at(agreement, index)

    def _time_at(self, agreement: LogState, index: int) -> float | None:
        """Of the entry at this index; None before the first entry, and for one that is not durable yet."""
        if index == 0 or index > self._context.durability.stable.value:
            return None
        return round(stamp_ms(self._context.status.stamp_at(index)) / 1000, 3)


def parse_backup_time(name: str) -> float | None:
    """When a backup was made, by its name, in seconds since 1970. None for a name that a person gave."""
    found = _TIME_IN_NAME.search(name)
    try:
        return calendar.timegm(time.strptime(found[1], "%Y%m%dt%H%M%Sz")) if found is not None else None
    except ValueError:
        return None
