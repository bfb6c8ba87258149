"""Fetches transactions that the next view or another branch's view names, and that are not persisted here yet."""

from __future__ import annotations

from typing import Final

from txlog.model.bounds import SLOTS_MAX
from txlog.model.entry import Span
from txlog.model.ids import Origin
from txlog.model.view import NO_VIEW
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.post_schedule import PostSchedule
from txlog.protocol.views.view_state import FOREVER_MS, ViewState
from txlog.wire.messages import FetchRuns, RunsReply

EARLY_HELLO_COUNT: Final = 100
"""Transactions fetched since the last hello, after which the next one asks early for what the holders have now."""
ANSWER_ROUNDS_MAX: Final = 4
"""The longest wait for an answer before its request is repeated, in round time-outs."""


class Backfill:
    """Requests from one holder at a time, and from the next one when no answer comes, or one that has nothing. Safety
    never depends on it (rule 18).

    One request names what is missing of every origin. A log has an origin for each disk that its masters ever had: one
    round trip for each would make a join slower with the age of the cluster (rule 32).

    A request is repeated after twice the time that the last answer took, and each time later. An answer may be a whole
    frame. On a slow link, copies of it would arrive before the next one."""

    def __init__(self, views: ViewState) -> None:
        self.views = views
        self._requested: set[tuple[str, int, int]] = set()
        """The first missing transaction of each span that was requested last."""
        self._is_repeat = False
        self._last_request_ms = -FOREVER_MS
        self._wait_ms = 0
        self._source_offset = 0
        self._source = ""
        self._empty_answers = 0
        """In a row, of different holders. After those of all of them, the next request waits like a repeat."""
        self._is_answered_empty = False

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
        return self.is_backfilling and not self._missing(log)

    def request_missing(self) -> None:
        """Request the missing spans, at intervals, or at once when the last request was answered."""
        log = self.views.log_state
        if log is None or not self.is_backfilling:
            return
        missing = self._missing(log)
        if not missing:
            return
        now_ms, settings = self.views.failure_detector.now_ms, self.views.local.settings
        if self._requested and self._requested <= {_first_of(span) for _, spans in missing for span in spans}:
            if not (self._is_answered_empty and self._empty_answers % len(missing)):
                wait_ms = max(self._wait_ms, settings.repeat_ms)
                if now_ms < self._last_request_ms + wait_ms:
                    return
                self._wait_ms = min(2 * wait_ms, ANSWER_ROUNDS_MAX * settings.round_timeout_ms)
            self._source_offset += 1
            self._is_repeat = True
        else:
            self._is_repeat, self._empty_answers = False, 0
        self._source, spans = missing[self._source_offset % len(missing)]
        self._is_answered_empty = False
        spans = _within(settings.frame_items_max, spans)
        self._requested, self._last_request_ms = {_first_of(span) for span in spans}, now_ms
        self.views.outbox.send_routed(self._source, FetchRuns(spans[0], spans[1:]))

    def _on_answer(self, now_ms: int) -> None:
        """Learn how long an answer takes. Which of several requests was answered is not known."""
        if not self._is_repeat:
            settings = self.views.local.settings
            self._wait_ms = min(2 * (now_ms - self._last_request_ms), ANSWER_ROUNDS_MAX * settings.round_timeout_ms)

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
        if not message.runs and peer == self._source and not self._is_answered_empty:
            self._is_answered_empty = True
            self._empty_answers += 1
        if any((run.node, run.birth, run.first_seq) in self._requested for run in message.runs):
            self._on_answer(mono_ms)
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

    def _missing(self, log: LogState) -> list[tuple[str, list[Span]]]:
        """By master, the spans that it holds and this master lacks. Only masters with any. The first is the best."""
        accept = self.views.pending_accept
        if accept is None:
            held_by = [(node, self._missing_of(log, held)) for node, held in sorted(self.views.branch_holders.items())]
            return [(node, spans) for node, spans in held_by if spans]
        spans = self.views.needed.missing(accept, log)
        owners = {span.node for span in spans}
        others = [m.node for m in accept.view.members if m.node != self.views.accept_sender]
        others.sort(key=lambda node: node not in owners)  # a master holds its own transactions
        sources = [self.views.accept_sender, *others] if spans else []
        return [(node, spans) for node in sources if node != self.views.local.node]

    def _missing_of(self, log: LogState, held: dict[Origin, int]) -> list[Span]:
        spans: list[Span] = []
        for origin, seq in held.items():
            queue = log.by_origin.get(origin)
            mine = queue.held if queue is not None else 0
            if seq > mine and origin != self.views.origin and not self.is_in_current_view(log, origin):
                spans.append(Span(origin.node, origin.birth, mine + 1, seq - mine))
        return spans


def _first_of(span: Span) -> tuple[str, int, int]:
    return span.node, span.birth, span.first_seq


def _within(count_max: int, spans: list[Span]) -> list[Span]:
    """The first ``count_max`` transactions of these spans, as spans that one request may name."""
    chosen: list[Span] = []
    for span in spans[: SLOTS_MAX + 1]:
        chosen.append(Span(span.node, span.birth, span.first_seq, min(span.count, count_max)))
        count_max -= chosen[-1].count
        if count_max <= 0:
            break
    return chosen
