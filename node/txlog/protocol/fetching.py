"""Transactions that the next view names, or that a view elsewhere has, and that are not held here yet."""

from __future__ import annotations

from txlog.model.entry import Span
from txlog.model.ids import Origin
from txlog.model.view import Number
from txlog.protocol.agreement import Agreement
from txlog.protocol.standing import Standing
from txlog.wire.messages import (
    FetchRuns,
)


class Fetching(Standing):
    """Asks one holder at a time, the next one when no answer comes. Nothing of it bears on safety (rule 18)."""

    @property
    def fetching(self) -> bool:
        """Transactions of others are taken although no view is at work."""
        return self.ahead is not None or self._incoming is not None or bool(self.apart)

    def _fetch(self) -> None:
        """Ask for the first thing that is missing, once in a while, or at once when the last question was answered."""
        agreement = self.agreement
        if agreement is None or not self.fetching:
            return
        sources, span = self._missed(agreement)
        if span is None or not sources:
            return
        now_ms = self.around.now_ms
        asked = (span.node, span.birth, span.first_seq)
        if asked == self._asked and now_ms < self._asked_ms + self.settings.repeat_ms:
            return
        if asked == self._asked:
            self._turn += 1
        self._asked, self._asked_ms = asked, now_ms
        count = min(span.count, self.settings.frame_items_max)
        source = sources[self._turn % len(sources)]
        self.sends.append((source, FetchRuns(Span(span.node, span.birth, span.first_seq, count))))

    def is_inside(self, agreement: Agreement, origin: Origin) -> bool:
        """What a member of the view at work makes comes with the stamps of this view; elsewhere it may have others, by
        which nobody here would order. It is the same while that member is silent, for it may be heard again."""
        inside = self.at_work and self.ahead is None and agreement.takes_part(origin)
        return inside and not self._is_lost(origin)

    @property
    def stamped_in(self) -> Number:
        """The view whose stamps are those of what is held here. A stopped one may have taken others in since."""
        return self.promised if self.stopped else self.number

    def give_way(self) -> None:
        """Stop the view at work, for good, before something that a member made is held with the stamps of the view
        that is ahead: the others here order it by those of this view, and would after a restart, too."""
        if self.ahead is not None and self.ahead.number > self.promised:
            self._promise(self.ahead.number)

    def _missed(self, agreement: Agreement) -> tuple[list[str], Span | None]:
        accept = self._incoming
        if accept is not None:
            lacks = agreement.lacks(accept.spans, accept.waiting)
            others = [m.node for m in accept.view.members if m.node not in (self.settings.node, self._from)]
            sources = [self._from] if self._from != self.settings.node else []
            sources += [node for node in others if node != self.settings.node]
            return sources, lacks[0] if lacks else None
        for node, holds in sorted(self._holders.items()):
            for origin, seq in holds.items():
                queue = agreement.by_origin.get(origin)
                held = queue.held if queue is not None else 0
                if seq > held and origin != self.origin and not self.is_inside(agreement, origin):
                    return [node], Span(origin.node, origin.birth, held + 1, seq - held)
        return [], None
