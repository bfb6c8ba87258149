"""What a received next view names and is not persisted here yet."""

from __future__ import annotations

from txlog.model.entry import Span
from txlog.model.ids import Origin
from txlog.protocol.log.base_log import last_seqs, missing_spans
from txlog.protocol.log.log_state import LogState
from txlog.wire.messages import AcceptView


class NeededTransactions:
    """It is asked for again and again, so the long list of a view's spans is read once."""

    def __init__(self) -> None:
        self._accept: AcceptView | None = None
        self._last_seqs: dict[Origin, int] = {}

    def missing(self, accept: AcceptView, log: LogState) -> list[Span]:
        """The parts of the view that this log lacks."""
        if accept is not self._accept:
            self._accept, self._last_seqs = accept, last_seqs(accept.spans, accept.waiting)
        return missing_spans(log.by_origin, self._last_seqs)
