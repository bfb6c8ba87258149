"""Answers the requests of other masters for transactions, for the order of the log, and for a snapshot."""

from __future__ import annotations

from typing import Final

from txlog.model.entry import Span
from txlog.model.errors import PeerFault
from txlog.model.ids import Origin
from txlog.model.view import Number
from txlog.protocol.events import OutgoingMessage
from txlog.protocol.log.log_start import SnapshotChunks
from txlog.protocol.log.log_state import LogState
from txlog.protocol.outbox import Outbox
from txlog.protocol.replication.snapshot_install import SNAPSHOT_CHUNK_BYTES
from txlog.wire.messages import FetchOrder, FetchSnapshot, LogTruncatedBelow, Message, OrderReply, RunsReply
from txlog.wire.protocol_level import LEVEL_FIRST_STAMPS

ORDER_ENTRIES_MAX: Final = 20_000
"""Entries in one ``OrderReply``: at most a megabyte."""


class FetchResponder:
    """A request below the log start gets the log start's position: the requester needs a snapshot."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._snapshot_chunks = SnapshotChunks()
        self._waiting: dict[str, FetchSnapshot] = {}
        """The last request of each peer for a snapshot that is being prepared."""

    def on_fetch_runs(
        self, spans: list[Span], log: LogState | None, view: Number, sends: list[OutgoingMessage]
    ) -> None:
        """The requester lacks ``spans``. One answer brings what is persisted here of all of them. ``view``: the view
        whose stamps the persisted transactions have. ``sends``: to which peers the answer goes, and for which master;
        their message is replaced by the answer."""
        held: list[Span] = []
        for span in spans if log is not None else ():
            assert log is not None
            queue = log.by_origin.get(Origin(span.node, span.birth))
            if queue is None or not 1 <= span.first_seq <= queue.held:
                continue  # certain: it was never persisted here
            if log.log_index.is_trimmed(queue.origin, span.first_seq):
                self._answer(sends, _log_start_of(log))
                return
            count = min(span.count, queue.held - span.first_seq + 1)
            held.append(Span(span.node, span.birth, span.first_seq, count))
        if held:
            self._outbox.read(sends, RunsReply([], view), held)
        else:
            self._answer(sends, RunsReply([]))

    def on_fetch_order(self, peer: str, asked: FetchOrder, log: LogState | None) -> None:
        """The requester lacks the order of the log after an index; :class:`PeerFault` when this log ends before it."""
        if log is None or asked.after >= log.log_index.length or asked.after < 0:
            raise PeerFault(peer, "NotHeld", f"it asks for the log behind {asked.after}, which is not here")
        history = log.log_index
        if asked.after < history.start:
            self._outbox.send(peer, _log_start_of(log))
            return
        end = min(asked.upto, history.length, asked.after + ORDER_ENTRIES_MAX)
        spans = history.spans(asked.after, end)
        self._outbox.send(peer, OrderReply(asked.after, spans, history.hash_at(end)))

    def on_fetch_snapshot(self, peer: str, asked: FetchSnapshot, log: LogState | None) -> None:
        """Send one chunk of the present log start only. A master outside the view may ask for it chunk by chunk. One of
        an older version gets none: it would take the keys for forgotten."""
        if log is None:
            raise PeerFault(peer, "NotHeld", "it asks for a snapshot, and there is no log here")
        if not log.log_index.log_start.index or asked.level < LEVEL_FIRST_STAMPS:
            self._outbox.send(peer, _log_start_of(log))
        elif self._snapshot_chunks.prepare(log):
            self._send_chunk(peer, asked, log)
        else:
            self._waiting[peer] = asked

    def poll(self, log: LogState | None) -> bool:
        """Continue with a snapshot that is being prepared. False when there is none."""
        if log is None:
            self._waiting.clear()
        elif self._waiting and self._snapshot_chunks.prepare(log):
            peer = next(iter(self._waiting))
            self._send_chunk(peer, self._waiting.pop(peer), log)
        return bool(self._waiting)

    def _send_chunk(self, peer: str, asked: FetchSnapshot, log: LogState) -> None:
        chunk = self._snapshot_chunks.chunk(peer, asked.index, asked.offset, SNAPSHOT_CHUNK_BYTES)
        self._outbox.send(peer, chunk or _log_start_of(log))

    def _answer(self, sends: list[OutgoingMessage], message: Message) -> None:
        self._outbox.sends += [OutgoingMessage(one.peer, message, None, one.target) for one in sends]


def _log_start_of(log: LogState) -> LogTruncatedBelow:
    return LogTruncatedBelow(log.log_index.start, log.log_index.log_start_hash)
