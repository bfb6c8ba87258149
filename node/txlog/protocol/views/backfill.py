"""Fetches transactions that the next view or another branch's view names, and that are not persisted here yet."""

from __future__ import annotations

from typing import Final

from txlog.model.entry import Span
from txlog.model.ids import Origin
from txlog.model.view import NO_VIEW
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.post_schedule import PostSchedule
from txlog.protocol.views.view_state import FOREVER_MS, ViewState
from txlog.wire.messages import FetchRuns, RunsReply

EARLY_HELLO_COUNT: Final = 100
"""Transactions fetched since the last hello, after which the next one asks early for what the holders have now."""


class Backfill:
    """Requests from one holder at a time, and from the next one when no answer comes. Safety never depends on it (rule
    18)."""

    def __init__(self, views: ViewState) -> None:
        self.views = views
        self._last_request: tuple[str, int, int] = ("", 0, 0)
        self._last_request_ms = -FOREVER_MS
        self._source_offset = 0

    @property
    def is_backfilling(self) -> bool:
        """Transactions of others are taken although no view is active."""
        return (
            self.views.newer_view is not None
            or self.views.pending_accept is not None
            or bool(self.views.other_branches)
        )

    @property
    def lacks_newer_position(self) -> bool:
        """Everything that the holders reported is persisted here, and it was much: they have more by now."""
        log = self.views.log_state
        if log is None or self.views.fetched_since_hello < EARLY_HELLO_COUNT or self.views.pending_accept is not None:
            return False
        return self.is_backfilling and self._first_missing(log)[1] is None

    def request_missing(self) -> None:
        """Request the first missing span, at intervals, or at once when the last request was answered."""
        agreement = self.views.log_state
        if agreement is None or not self.is_backfilling:
            return
        sources, span = self._first_missing(agreement)
        if span is None or not sources:
            return
        now_ms = self.views.failure_detector.now_ms
        asked = (span.node, span.birth, span.first_seq)
        if asked == self._last_request and now_ms < self._last_request_ms + self.views.local.settings.repeat_ms:
            return
        if asked == self._last_request:
            self._source_offset += 1
        self._last_request, self._last_request_ms = asked, now_ms
        count = min(span.count, self.views.local.settings.frame_items_max)
        source = sources[self._source_offset % len(sources)]
        self.views.outbox.send_routed(source, FetchRuns(Span(span.node, span.birth, span.first_seq, count)))

    def is_in_current_view(self, agreement: LogState, origin: Origin) -> bool:
        """Whether transactions of the origin come with the stamps of the active view. Elsewhere they may have other
        stamps, by which no member here would order them. A silent member counts too, for its messages may return."""
        inside = self.views.is_active and self.views.newer_view is None and agreement.enters_queue(origin)
        return inside and not self.views.is_identity_lost(origin)

    def stop_for_newer_view(self) -> None:
        """Stop the active view for good, before a member's transaction is persisted with the stamps of the newer view.
        The others here order it by the stamps of this view, and would do so after a restart, too."""
        if self.views.newer_view is not None and self.views.newer_view.number > self.views.promised:
            self.views.promise(self.views.newer_view.number)

    def on_runs(self, peer: str, message: RunsReply, schedule: PostSchedule, mono_ms: int) -> None:
        """Persist transactions that were requested from ``peer``."""
        views, log = self.views, self.views.log_state
        if log is None or views.local.disk_full or not (views.is_active or self.is_backfilling):
            return
        same = message.view == views.number
        if message.view == NO_VIEW:  # an older program does not send it: its last hello names its view
            same = views.last_views.get(peer) == views.number
        for run in message.runs:
            if self.is_backfilling and run.origin not in log.by_origin:
                log.add_origin(run.origin)
            inside = self.is_in_current_view(log, run.origin)
            if inside and not same:
                continue  # it may have other stamps there than in the view that is active here
            if not same and log.has_new_from_member(run):
                self.stop_for_newer_view()
            if log.persist_replicated(run, not inside):
                schedule.on_foreign_transactions(mono_ms)
                views.fetched_since_hello += len(run.items)

    def _first_missing(self, agreement: LogState) -> tuple[list[str], Span | None]:
        accept = self.views.pending_accept
        if accept is not None:
            lacks = self.views.needed.missing(accept, agreement)
            others = [
                m.node for m in accept.view.members if m.node not in (self.views.local.node, self.views.accept_sender)
            ]
            sources = [self.views.accept_sender] if self.views.accept_sender != self.views.local.node else []
            sources += [node for node in others if node != self.views.local.node]
            return sources, lacks[0] if lacks else None
        for node, holds in sorted(self.views.branch_holders.items()):
            for origin, seq in holds.items():
                queue = agreement.by_origin.get(origin)
                held = queue.held if queue is not None else 0
                if seq > held and origin != self.views.origin and not self.is_in_current_view(agreement, origin):
                    return [node], Span(origin.node, origin.birth, held + 1, seq - held)
        return [], None
