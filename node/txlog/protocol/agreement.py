"""The log, the queue and the stable index of one master in one view: HOLD, ADD, FOLLOW, STABLE.

Nothing here knows of time-outs, posts or peers' addresses. Each change is said as a record; it is durable before
anything that follows from it leaves the process (the caller's duty, ``README.md``).
"""

from __future__ import annotations

from itertools import pairwise

from txlog.model.entry import KIND_SKIP, Item, Run
from txlog.model.errors import Fatal, PeerFault
from txlog.model.hashes import HASH_BYTES, chain_next, content_hash
from txlog.model.ids import Origin, Txid
from txlog.model.records import Added, Held, Record, Recovered, Stable
from txlog.model.view import View
from txlog.protocol.history import History
from txlog.protocol.keys import First, Keys
from txlog.protocol.queue import OriginQueue, Prefix, head_within, ranks_of


class Agreement:
    """``queues[slot]`` is the queue of the view's member in that slot. ``stable`` ≤ ``history.length``.

    ``last_stamp`` is the greatest stamp seen, made or promised: a new stamp lies above it (rule 4). ``log_key`` is
    the key of the log's last entry: stamp and rank of its origin. ``noops``: index → txid that counts instead.
    ``skips``: txid → index of the entry that says to pass over it."""

    def __init__(self, node: str, view: View, recovered: Recovered, key_retention_ms: int) -> None:
        self.view = view
        self.queues = [OriginQueue(m.origin) for m in view.members]
        self.history = History(view.cluster_id, [m.origin for m in view.members])
        self.ranks = ranks_of(self.queues)
        self.by_origin = {q.origin: q for q in self.queues}
        self.slots = {m.origin: slot for slot, m in enumerate(view.members)}
        self.own = next(q for q in self.queues if q.origin.node == node)
        self.keys = Keys(key_retention_ms)
        self.noops: dict[int, Txid] = {}
        self.skips: dict[str, int] = {}
        self.stable = recovered.stable
        self.own_synced = 0
        self.last_stamp = max(recovered.ceiling, recovered.log_stamp)
        self.log_key: tuple[int, int] = (0, 0)
        self.records: list[Record] = []
        self._recover(recovered)

    def _recover(self, recovered: Recovered) -> None:
        at = 0
        for span in recovered.log_spans:
            origin = Origin(span.node, span.birth)
            queue = self.by_origin[origin]
            assert span.first_seq == queue.in_log + 1, (span, queue.in_log)
            size = span.count * HASH_BYTES
            slot = self.slots[origin]
            self.history.append(bytes([slot]) * span.count, bytes(recovered.log_hashes[at : at + size]))
            at += size
            queue.pass_by(span.count)
            self.log_key = (recovered.log_stamp, self.ranks[slot])
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
        self.own_synced = self._own_synced()

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
        before = self.records[-1] if self.records else None
        if isinstance(before, Held) and before.run.origin == queue.origin:  # one record, one run of many requests
            joined = Run(run.node, run.birth, before.run.first_seq, before.run.items + run.items)
            self.records[-1] = Held(joined, before.contents + b"".join(contents))
        else:
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

    def add(self, stamp_max: int, seq_max: list[int]) -> bool:
        """Rule 12: the longest prefix of the queue within both bounds (``seq_max`` per slot) enters the log."""
        prefix = head_within(self.queues, self.ranks, stamp_max, seq_max)
        if prefix is not None:
            self._commit(prefix, self._chain(prefix.leaves))
        return prefix is not None

    def follow(self, after: int, order: bytes, end_hash: bytes) -> bool:
        """Take over a piece of another master's log, if all of it is held here and ``end_hash`` proves it (rule 18).

        False when it is no news or something is missing. :class:`Fatal` when the two logs are forked (rule 17)."""
        news = order[self.history.length - after :] if after <= self.history.length else b""
        if not news:
            return False
        counts = [news.count(slot) for slot in range(len(self.queues))]
        if sum(counts) != len(news):
            raise Fatal("Forked", f"a peer's log goes on behind {self.history.length} with an origin unknown here")
        if any(count > len(queue) for count, queue in zip(counts, self.queues, strict=True)):
            return False
        prefix = self._arranged(news, counts)
        hashes = self._chain(prefix.leaves)
        if hashes[-HASH_BYTES:] != end_hash:
            raise Fatal("Forked", f"a peer's log and this one differ between {after} and {after + len(order)}")
        self._commit(prefix, hashes)
        return True

    def _arranged(self, order: bytes, counts: list[int]) -> Prefix:
        """The entries in a peer's order. :class:`Fatal` when that is not the order of keys (rule 13)."""
        heads = [iter(q.head(counts[slot], self.ranks[slot])) for slot, q in enumerate(self.queues)]
        rows = [next(heads[slot]) for slot in order]
        if any(later[:2] <= row[:2] for row, later in pairwise(rows)):
            raise Fatal("Forked", f"a peer's log behind {self.history.length} is not in the order of stamps")
        return Prefix(order, [row[2] for row in rows], counts, rows[-1][0])

    def _chain(self, leaves: list[bytes]) -> bytes:
        """The chain hashes behind every entry, end to end, as if these were added now."""
        value = self.history.hash
        cells: list[bytes] = []
        for leaf in leaves:
            value = chain_next(value, leaf)
            cells.append(value)
        return b"".join(cells)

    def _commit(self, prefix: Prefix, hashes: bytes) -> None:
        after = self.history.length
        heads = [(q.stamp(q.in_log + 1), self.ranks[slot]) for slot, q in enumerate(self.queues) if prefix.counts[slot]]
        assert min(heads) > self.log_key, f"rule 13: keys grow along the log: {min(heads)} behind {self.log_key}"
        self.history.append(prefix.order, hashes)
        self._enter_keyed(prefix.counts)
        for queue, count in zip(self.queues, prefix.counts, strict=True):
            if count:
                queue.take(count)
        self.log_key = (prefix.last_stamp, self.ranks[prefix.order[-1]])
        self.records.append(Added(after + 1, self.history.spans(after, self.history.length), hashes, self.stable))

    def _enter_keyed(self, counts: list[int]) -> None:
        """Idempotency keys and skips take effect, in the order of the log."""
        if not any(queue.named for queue in self.queues):
            return
        keyed = [
            (self.history.index_of(queue.origin, seq), queue, seq)
            for queue, count in zip(self.queues, counts, strict=True)
            for seq in (queue.keyed(count) if count else ())
        ]
        for index, queue, seq in sorted(keyed, key=lambda row: row[0]):
            if queue.kind(seq) == KIND_SKIP:
                self.skips.setdefault(queue.key(seq), index)
                self.keys.waiting.pop(queue.key(seq), None)
            else:
                first = First(Txid(queue.origin, seq), queue.stamp(seq), queue.content(seq))
                self._note_key(index, queue.key(seq), first)

    def _note_key(self, index: int, key: str, first: First) -> None:
        counts = self.keys.entered(key, first)
        if counts is not None:
            self.noops[index] = counts

    # STABLE

    def settle(self, held_by_all: list[int]) -> bool:
        """Move the stable index as far as every member, silent ones included, is known to hold (rule 33)."""
        index = self.history.length
        for queue, held in zip(self.queues, held_by_all, strict=True):
            if held < queue.in_log:
                index = min(index, self.history.index_of(queue.origin, held + 1) - 1)
        if index <= self.stable:
            return False
        self.stable = index
        self.own_synced = self._own_synced()
        self._say_stable(index)
        return True

    def _say_stable(self, index: int) -> None:
        """In the record of the adds when there is one, so that a round costs one record."""
        last = self.records[-1] if self.records else None
        if isinstance(last, Added):
            self.records[-1] = Added(last.first_index, last.spans, last.hashes, index)
        else:
            self.records.append(Stable(index))

    def _own_synced(self) -> int:
        return self.history.seq_within(self.slots[self.own.origin], self.stable)
