"""The log, the queue and the stable index of one master in one view: HOLD, ADD, FOLLOW, STABLE.

Nothing here knows of time-outs, posts or peers' addresses. Each change is said as a record; it is durable before
anything that follows from it leaves the process (the caller's duty, ``README.md``).
"""

from __future__ import annotations

from txlog.model.entry import HASH_BYTES, KIND_SKIP, Item, Run, Span, chain_hash, content_hash
from txlog.model.errors import Fatal, PeerFault
from txlog.model.ids import Origin, Txid
from txlog.model.records import Added, Held, Record, Recovered, Stable
from txlog.model.view import View
from txlog.protocol.history import History
from txlog.protocol.keys import First, Keys
from txlog.protocol.queue import OriginQueue, Piece, merged


class Agreement:
    """``queues[slot]`` is the queue of the view's member in that slot. ``stable`` ≤ ``history.length``.

    ``last_stamp`` is the greatest stamp seen, made or promised: a new stamp lies above it (rule 4). ``log_key`` is
    the key of the log's last entry. ``noops``: index → txid that counts instead. ``skips``: txid → index of the
    entry that says to pass over it."""

    def __init__(self, node: str, view: View, recovered: Recovered, key_retention_ms: int) -> None:
        self.view = view
        self.history = History(view.cluster_id)
        self.queues = [OriginQueue(m.origin) for m in view.members]
        self.by_origin = {q.origin: q for q in self.queues}
        self.slots = {m.origin: slot for slot, m in enumerate(view.members)}
        self.own = next(q for q in self.queues if q.origin.node == node)
        self.keys = Keys(key_retention_ms)
        self.noops: dict[int, Txid] = {}
        self.skips: dict[str, int] = {}
        self.stable = recovered.stable
        self.own_synced = 0
        self.last_stamp = max(recovered.ceiling, recovered.log_stamp)
        self.log_key: tuple[int, Origin, int] = (0, Origin("", 0), 0)
        self.records: list[Record] = []
        self._recover(recovered)

    def _recover(self, recovered: Recovered) -> None:
        at = 0
        for span in recovered.log_spans:
            origin = Origin(span.node, span.birth)
            queue = self.by_origin[origin]
            assert span.first_seq == queue.in_log + 1, (span, queue.in_log)
            size = span.count * HASH_BYTES
            self.history.append(origin, span.first_seq, bytes(recovered.log_hashes[at : at + size]))
            at += size
            queue.in_log = queue.held = queue.in_log + span.count
            self.log_key = (recovered.log_stamp, origin, queue.in_log)
        for seen in recovered.keys:
            origin = Origin(seen.span.node, seen.span.birth)
            if seen.kind == KIND_SKIP:
                self.skips.setdefault(seen.key, seen.index)
            else:
                self._note_key(seen.index, seen.key, First(Txid(origin, seen.span.first_seq), seen.stamp, seen.content))
        for meta in recovered.queued:
            queue = self.by_origin[Origin(meta.node, meta.birth)]
            assert meta.first_seq == queue.held + 1, (meta.node, meta.first_seq, queue.held)
            queue.extend(meta.stamps, meta.contents, meta.keys, meta.kinds)
            self._note_waiting(queue.origin, meta.first_seq, meta.keys, meta.stamps, meta.contents)
            self.last_stamp = max(self.last_stamp, queue.last_stamp)
        self.own_synced = self._own_synced(0, self.stable)

    # HOLD

    def hold_own(self, items: list[Item], contents: list[bytes]) -> None:
        """Own transactions, stamped above ``last_stamp`` by the caller."""
        own = self.own
        assert items[0].stamp > self.last_stamp, "rule 4: a stamp at or below a promise"
        self._hold(own, Run(own.origin.node, own.origin.birth, own.held + 1, items), contents)

    def hold_foreign(self, run: Run) -> bool:
        """Transactions that came from elsewhere; what is known already is passed over, what would leave a gap
        is not taken. True when something new is held. :class:`Fatal` for one id with two contents (rule 3)."""
        queue = self.by_origin.get(run.origin)
        if queue is None:
            raise PeerFault(run.node, "UnknownOrigin", f"birth {run.birth:016x} is no member of this view")
        if run.first_seq > queue.held + 1 or not run.items:
            return False
        known = min(queue.held - run.first_seq + 1, len(run.items))
        self._check_contents(queue, run, known)
        items = run.items[known:]
        if not items:
            return False
        last = queue.last_stamp
        for item in items:
            if item.stamp <= last:
                raise PeerFault(run.node, "StampsFall", f"seq {run.first_seq + known} and later: stamps must grow")
            last = item.stamp
        contents = [content_hash(item.kind, item.key, item.payload) for item in items]
        self._hold(queue, Run(run.node, run.birth, run.first_seq + known, items), contents)
        return True

    def _check_contents(self, queue: OriginQueue, run: Run, known: int) -> None:
        for offset in range(max(0, queue.in_log + 1 - run.first_seq), known):
            item = run.items[offset]
            if content_hash(item.kind, item.key, item.payload) != queue.content(run.first_seq + offset):
                txid = Txid(queue.origin, run.first_seq + offset)
                raise Fatal("TwoContents", f"{txid} came with another content than it is held with here")

    def _hold(self, queue: OriginQueue, run: Run, contents: list[bytes]) -> None:
        stamps = [item.stamp for item in run.items]
        keys = [item.key for item in run.items]
        queue.extend(stamps, contents, keys, [item.kind | len(item.payload) << 8 for item in run.items])
        self.last_stamp = max(self.last_stamp, stamps[-1])
        self._note_waiting(queue.origin, run.first_seq, keys, stamps, contents)
        self.records.append(Held(run, b"".join(contents)))

    def _note_waiting(
        self, origin: Origin, first_seq: int, keys: list[str], stamps: list[int], contents: list[bytes]
    ) -> None:
        if not any(keys):
            return
        for offset, key in enumerate(keys):
            if key:
                first = First(Txid(origin, first_seq + offset), stamps[offset], contents[offset])
                self.keys.waiting.setdefault(key, first)

    # ADD

    def add(self, stamp_max: int, seq_max: dict[Origin, int]) -> bool:
        """Rule 12: the longest prefix of the queue within both bounds enters the log."""
        pieces = merged(self.queues, stamp_max, seq_max)
        if pieces:
            self._commit(pieces, self._chain(pieces))
        return bool(pieces)

    def follow(self, after: int, order: list[Span], end_hash: bytes) -> bool:
        """Take over a piece of another master's log, if all of it is held here and ``end_hash`` proves it (rule 18).

        False when it is no news or something is missing. :class:`Fatal` when the two logs are forked (rule 17)."""
        skip = self.history.length - after
        if skip < 0:
            return False
        pieces: list[Piece] = []
        seen = {q.origin: q.in_log for q in self.queues}
        for span in order:
            if skip >= span.count:
                skip -= span.count
                continue
            origin, first, count = Origin(span.node, span.birth), span.first_seq + skip, span.count - skip
            skip = 0
            queue = self.by_origin.get(origin)
            if queue is None or first != seen[origin] + 1:
                raise Fatal("Forked", f"a peer's log goes on behind {self.history.length} with {span}, this one cannot")
            if queue.held < first + count - 1:
                return False
            seen[origin] += count
            pieces.append(Piece(queue, first, count))
        if not pieces:
            return False
        hashes = self._chain(pieces)
        if hashes[-1][-HASH_BYTES:] != end_hash:
            raise Fatal("Forked", f"a peer's log and this one differ between {after} and {after + len(order)}")
        self._commit(pieces, hashes)
        return True

    def _chain(self, pieces: list[Piece]) -> list[bytes]:
        """Chain hashes behind every entry of each piece, end to end, as if the pieces were added now."""
        value = self.history.hash
        result: list[bytes] = []
        skipped = {q.origin: 0 for q in self.queues}
        for queue, first_seq, length in pieces:
            tag, seq, cells = queue.tag, first_seq, []
            for stamp, content, _, _ in queue.rows(length, skipped[queue.origin]):
                value = chain_hash(value, stamp, tag, seq, content)
                cells.append(value)
                seq += 1
            skipped[queue.origin] += length
            result.append(b"".join(cells))
        return result

    def _commit(self, pieces: list[Piece], hashes: list[bytes]) -> None:
        first_index = self.history.length + 1
        spans: list[Span] = []
        for (queue, first_seq, length), cells in zip(pieces, hashes, strict=True):
            origin = queue.origin
            assert first_seq == queue.in_log + 1, "rule 13: an origin's seq grows by one"
            self._enter(queue, first_seq, length)
            self.history.append(origin, first_seq, cells)
            queue.take(length)
            spans.append(Span(origin.node, origin.birth, first_seq, length))
        self.records.append(Added(first_index, spans, b"".join(hashes), self.stable))

    def _enter(self, queue: OriginQueue, first_seq: int, length: int) -> None:
        """Check the order of keys (rule 13) and let idempotency keys and skips take effect."""
        head = (queue.stamp(first_seq), queue.origin, first_seq)
        assert head > self.log_key, f"rule 13: keys grow along the log: {head} behind {self.log_key}"
        index = self.history.length + 1
        if queue.any_key(length):
            for offset, (stamp, content, key, kind) in enumerate(queue.rows(length)):
                if key:
                    txid = Txid(queue.origin, first_seq + offset)
                    self._enter_keyed(index + offset, txid, stamp, content, key, kind)
        last = first_seq + length - 1
        self.log_key = (queue.stamp(last), queue.origin, last)

    def _enter_keyed(self, index: int, txid: Txid, stamp: int, content: bytes, key: str, kind: int) -> None:
        if kind == KIND_SKIP:
            self.skips.setdefault(key, index)
        else:
            self._note_key(index, key, First(txid, stamp, content))

    def _note_key(self, index: int, key: str, first: First) -> None:
        counts = self.keys.entered(key, first)
        if counts is not None:
            self.noops[index] = counts

    # STABLE

    def settle(self, held_by_all: dict[Origin, int]) -> bool:
        """Move the stable index as far as every member, silent ones included, is known to hold (rule 33)."""
        index = self.stable
        for span in self.history.spans(self.stable, self.history.length):
            last = min(span.first_seq + span.count - 1, held_by_all[Origin(span.node, span.birth)])
            index += max(0, last - span.first_seq + 1)
            if last < span.first_seq + span.count - 1:
                break
        if index == self.stable:
            return False
        self.own_synced = max(self.own_synced, self._own_synced(self.stable, index))
        self.stable = index
        self._say_stable(index)
        return True

    def _say_stable(self, index: int) -> None:
        """In the record of the adds when there is one, so that a round costs one record."""
        last = self.records[-1] if self.records else None
        if isinstance(last, Added):
            self.records[-1] = Added(last.first_index, last.spans, last.hashes, index)
        else:
            self.records.append(Stable(index))

    def _own_synced(self, after: int, upto: int) -> int:
        own = self.own.origin
        spans = [s for s in self.history.spans(after, upto) if s.node == own.node and s.birth == own.birth]
        return spans[-1].first_seq + spans[-1].count - 1 if spans else 0
