"""Fetches transactions that the next view or another branch's view names, and that are not persisted here yet."""

from __future__ import annotations

from txlog.model.entry import Span
from txlog.model.ids import Origin
from txlog.model.view import Number
from txlog.protocol.log.log_state import LogState
from txlog.protocol.views.view_state import ViewState
from txlog.wire.messages import (
    FetchRuns,
)


class Backfill(ViewState):
    """Requests from one holder at a time, and from the next one when no answer comes. Safety never depends on it (rule
    18)."""

    @property
    def is_backfilling(self) -> bool:
        """Transactions of others are taken although no view is active."""
        return self.newer_view is not None or self._pending_accept is not None or bool(self.other_branches)

    def _request_missing(self) -> None:
        """Request the first missing span, at intervals, or at once when the last request was answered."""
        agreement = self.log_state
        if agreement is None or not self.is_backfilling:
            return
        sources, span = self._first_missing(agreement)
        if span is None or not sources:
            return
        now_ms = self.failure_detector.now_ms
        asked = (span.node, span.birth, span.first_seq)
        if asked == self._last_request and now_ms < self._last_request_ms + self.settings.repeat_ms:
            return
        if asked == self._last_request:
            self._source_offset += 1
        self._last_request, self._last_request_ms = asked, now_ms
        count = min(span.count, self.settings.frame_items_max)
        source = sources[self._source_offset % len(sources)]
        self.sends.append((source, FetchRuns(Span(span.node, span.birth, span.first_seq, count))))

    def is_in_current_view(self, agreement: LogState, origin: Origin) -> bool:
        """Whether transactions of the origin come with the stamps of the active view. Elsewhere they may have other
        stamps, by which no member here would order them. A silent member counts too, for its messages may return."""
        inside = self.is_active and self.newer_view is None and agreement.enters_queue(origin)
        return inside and not self._is_identity_lost(origin)

    @property
    def stamps_view(self) -> Number:
        """The view whose stamps the persisted transactions have. A stopped view may have persisted others since."""
        return self.promised if self.is_stopped else self.number

    def stop_for_newer_view(self) -> None:
        """Stop the active view for good, before a member's transaction is persisted with the stamps of the newer view.
        The others here order it by the stamps of this view, and would do so after a restart, too."""
        if self.newer_view is not None and self.newer_view.number > self.promised:
            self._promise(self.newer_view.number)

    def _first_missing(self, agreement: LogState) -> tuple[list[str], Span | None]:
        accept = self._pending_accept
        if accept is not None:
            lacks = agreement.missing_spans(accept.spans, accept.waiting)
            others = [m.node for m in accept.view.members if m.node not in (self.settings.node, self._accept_sender)]
            sources = [self._accept_sender] if self._accept_sender != self.settings.node else []
            sources += [node for node in others if node != self.settings.node]
            return sources, lacks[0] if lacks else None
        for node, holds in sorted(self._branch_holders.items()):
            for origin, seq in holds.items():
                queue = agreement.by_origin.get(origin)
                held = queue.held if queue is not None else 0
                if seq > held and origin != self.origin and not self.is_in_current_view(agreement, origin):
                    return [node], Span(origin.node, origin.birth, held + 1, seq - held)
        return [], None
