"""``POST /txlog/archive``: the archiver of this data centre says how far it is. Masters pass reports on to one another,
and each measures the delay itself, so it also grows while the archiver is dead."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_body
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput
from txlog.model.hashes import HASH_BYTES
from txlog.protocol.log.log_state import LogState
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.rehearsal_reports import RehearsalReports
from txlog.server.admin.report_notices import ReportNotices
from txlog.server.admin.stable_delay import StableDelay
from txlog.wire.archive_report import PLACES_REPORTED_MAX, ArchivePlace, ArchiveReport

TOPIC: Final = "archive"
BODY_MAX: Final = 64 << 10
INTERVAL_S: Final = 1.0
NOTICE_DELAY_S: Final = 0.02
SILENT_AFTER_S: Final = 30.0
"""An archiver reports every 5 s, also when it has nothing to do."""
BEHIND_AFTER_DELAYS: Final = 10
BEHIND_AFTER_S: Final = 5.0
PLACES_MAX: Final = 64
"""Places of one stream that a master remembers: after a rejoin an older one may be the last that is on its log."""
_EXPECTED_BODY: Final = '{"archived": [{"index": N, "hash": "32 hexadecimal digits"}], "state": "Shipping", ...}'


class ArchiveNotice(msgspec.Struct):
    """The notice between masters: the last report that the sender received itself, and its age in seconds. Clocks of
    masters differ, so no time of day is sent."""

    data_center: str
    age_s: float
    max_delay_ms: int
    report: ArchiveReport


class StreamStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What this master knows of one stream. ``delay_seconds``: the age of the oldest stable entry that is not archived;
    None until a report came, or is overdue. ``reported_at``: seconds since 1970, by the clock of this master."""

    data_center: str
    state: str
    archived: ArchivePlace | None
    verified: ArchivePlace | None
    delay_seconds: float | None
    reported_at: float | None
    error: str
    stream: str
    files: int
    bytes: int
    errors: int
    gaps: int
    losses: int


class PlaceMemory:
    """The places that were reported of one stream. ``is_on_log`` says whether a place is on this master's log."""

    def __init__(self) -> None:
        self._places: deque[ArchivePlace] = deque(maxlen=PLACES_MAX)

    def add(self, places: Iterable[ArchivePlace]) -> None:
        """Takes the places of a report. What was reported earlier stays: a file is never deleted."""
        for place in places:
            if place in self._places:
                self._places.remove(place)
            self._places.append(place)

    def highest(self, is_on_log: Callable[[ArchivePlace], bool]) -> ArchivePlace | None:
        """The highest place on the log; None when there is none, or the master does not know any more."""
        return max((each for each in self._places if is_on_log(each)), key=lambda each: each.index, default=None)


class _KnownStream:
    """The stream of one data centre. ``received_at``: monotonic seconds of the last report, None before the first."""

    def __init__(self, max_delay_s: float) -> None:
        self.max_delay_s = max_delay_s
        self.received_at: float | None = None
        self.report = ArchiveReport([], state="Unknown")
        self.archived = PlaceMemory()
        self.verified = PlaceMemory()

    def take(self, report: ArchiveReport, received_at: float) -> None:
        self.archived.add(report.archived)
        self.verified.add(report.verified)
        if self.received_at is None or received_at > self.received_at:
            self.received_at, self.report = received_at, report


class ArchiveReports:
    """The reports of archivers. ``send(peer, message)`` sends a message to another master."""

    def __init__(self, site: MasterContext, send: Callable[[str, bytes], None]) -> None:
        self._context = site
        self._began_at = time.monotonic()
        self._streams: dict[str, _KnownStream] = {}
        self._received: tuple[ArchiveReport, float] | None = None
        self._notices = ReportNotices(site, send, TOPIC, INTERVAL_S, NOTICE_DELAY_S, self._next_notice)
        self._delay = StableDelay(site)
        self.rehearsals = RehearsalReports(site, send)
        if site.config.archive is not None:
            self._streams[site.config.data_center] = _KnownStream(site.config.archive.max_delay_ms / 1000)
        self._move_watermark()

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("POST", "/txlog/archive", self.report), *self.rehearsals.routes()]

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The tasks that run until the process ends, by name."""
        return {"archive-notices": self._notices.run(), **self.rehearsals.tasks()}

    async def report(self, request: Request, _: Mapping[str, str]) -> Response:
        """Takes the report of this data centre's archiver. Answers ``{"known"}``, the number of its places."""
        try:
            report = msgspec.json.decode(await read_body(request, BODY_MAX), type=ArchiveReport)
            hashes = [bytes.fromhex(one.hash) for one in (*report.archived, *report.verified)]
        except DECODE_ERRORS as wrong:
            raise BadInput(f"{_EXPECTED_BODY}: {wrong}") from None
        if any(len(one) != HASH_BYTES for one in hashes):
            raise BadInput(f"a hash has another length: expected {_EXPECTED_BODY}")
        if any(one.index < 0 for one in (*report.archived, *report.verified)):
            raise BadInput(f"an index is negative: expected {_EXPECTED_BODY}")
        if max(len(report.archived), len(report.verified)) > PLACES_REPORTED_MAX:
            raise BadInput(f"at most {PLACES_REPORTED_MAX} places")
        now = time.monotonic()
        self._received = (report, now)
        known = self._streams.setdefault(self._context.config.data_center, _KnownStream(self._max_delay_ms / 1000))
        known.take(report, now)
        self._move_watermark()
        self._notices.send_soon()
        return json_response({"known": len(report.archived)})

    @property
    def _max_delay_ms(self) -> int:
        archive = self._context.config.archive
        return archive.max_delay_ms if archive is not None else 1000

    # Notices

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Handles a notice from another master."""
        self.rehearsals.on_notice(peer, topic, body)
        if topic != TOPIC:
            return
        try:
            notice = msgspec.json.decode(body, type=ArchiveNotice)
        except DECODE_ERRORS:
            return  # a newer version sent it
        if not self._notices.is_for_cluster(notice.data_center):
            return
        max_delay_s = notice.max_delay_ms / 1000
        known = self._streams.setdefault(notice.data_center, _KnownStream(max_delay_s))
        if notice.data_center != self._context.config.data_center:
            known.max_delay_s = max_delay_s
        known.take(notice.report, time.monotonic() - max(0.0, notice.age_s))
        self._move_watermark()

    def _next_notice(self) -> ArchiveNotice | None:
        self._delay.note()
        self._move_watermark()
        if self._received is None:
            return None
        report, at = self._received
        return ArchiveNotice(self._context.config.data_center, time.monotonic() - at, self._max_delay_ms, report)

    def _move_watermark(self) -> None:
        """What is archived moves with each report, and back and forth with the log: a rejoin may bring back a branch
        that an archive has. A report may also be ahead of what is stable here."""
        durability = self._context.durability
        durability.has_archive = bool(self._streams)
        places = [known.archived.highest(self._is_on_log) for known in self._streams.values()]
        index = min(max((place.index for place in places if place is not None), default=0), durability.stable.value)
        if index != durability.archived.value:
            durability.archived.move_to(index)

    # Measured

    def describe(self) -> dict[str, Any] | None:
        """The section ``archive`` of the status; None in a cluster without an archive."""
        streams, rehearsals = self.streams(), self.rehearsals.describe()
        if not streams and not rehearsals:
            return None
        return {"streams": msgspec.to_builtins(streams), "rehearsals": rehearsals}

    def streams(self) -> list[StreamStatus]:
        """Every stream that this master expects, or has a report of."""
        return [self._describe_stream(name, known) for name, known in sorted(self._streams.items())]

    def verified_place(self) -> ArchivePlace | None:
        """The highest place of this data centre's stream that is verified and on this log."""
        known = self._streams.get(self._context.config.data_center)
        return known.verified.highest(self._is_on_log) if known is not None else None

    def _describe_stream(self, data_center: str, known: _KnownStream) -> StreamStatus:
        now = time.monotonic()
        archived = known.archived.highest(self._is_on_log)
        silent_s = now - (self._began_at if known.received_at is None else known.received_at)
        delay_s = None
        if known.received_at is not None or silent_s > SILENT_AFTER_S:
            delay_s = round(self._delay.age_above(archived.index if archived is not None else 0), 3)
        report, state = known.report, known.report.state
        if silent_s > SILENT_AFTER_S:
            state = "Silent"
        elif state == "Shipping" and delay_s is not None:
            bound_s = max(BEHIND_AFTER_DELAYS * known.max_delay_s, BEHIND_AFTER_S)
            state = "Behind" if delay_s > bound_s else state
        return StreamStatus(
            data_center=data_center,
            state=state,
            archived=archived,
            verified=known.verified.highest(self._is_on_log),
            delay_seconds=delay_s,
            reported_at=None if known.received_at is None else round(time.time() - silent_s, 3),
            error=report.error,
            stream=report.stream,
            files=report.files,
            bytes=report.bytes,
            errors=report.errors,
            gaps=report.gaps,
            losses=report.losses,
        )

    def _is_on_log(self, place: ArchivePlace) -> bool:
        agreement = self._context.status.log_state
        return agreement is not None and is_on_log(agreement, place)


def is_on_log(agreement: LogState, place: ArchivePlace) -> bool:
    """Whether this place is on the log, as far as the log is kept."""
    history = agreement.log_index
    return history.start <= place.index <= history.length and history.hash_at(place.index).hex() == place.hash
