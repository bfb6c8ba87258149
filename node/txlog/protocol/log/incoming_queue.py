"""The incoming queue: per origin the persisted transactions not yet in the log, merged in key order on demand.

Within an origin stamps grow with seq (rule 13). So the queue's order ``(stamp, node id, birth, seq)`` is a merge of the
origins' own orders. A transaction takes 32 bytes in three columns rather than an object.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

from txlog.model.bounds import KEY_BYTES_MAX
from txlog.model.entry import KIND_CONFIG, TransactionRun
from txlog.model.errors import PeerFault
from txlog.model.hashes import HASH_BYTES, chain_leaf, origin_tag
from txlog.model.ids import Origin
from txlog.model.synchronous_entry import SYNCHRONOUS_AND_DECISION, key_error

_ASCII_KEY_MAX: Final = KEY_BYTES_MAX // 4
"""A key with at most this many characters fits the journal in any script."""
_COMPACT_AT: Final = 4096
UNBOUNDED: Final = 1 << 63


class QueuePrefix:
    """The head of the queue, in key order. ``order``: the slot of each transaction, one byte each; ``leaves``:
    what each adds to the chain hash; ``counts``: how many of each slot that has some; ``last_stamp``: the last
    one's."""

    __slots__ = ("counts", "last_stamp", "leaves", "order")

    def __init__(self, order: bytes, leaves: list[bytes], counts: dict[int, int], last_stamp: int) -> None:
        self.order = order
        self.leaves = leaves
        self.counts = counts
        self.last_stamp = last_stamp


class UnstampedTransaction(NamedTuple):
    """An own transaction without a stamp. ``size``: payload bytes."""

    kind: int
    key: str
    size: int
    first_stamp: int = 0


class OriginQueue:
    """One origin's transactions. ``in_log``: last seq in the log; ``held``: last seq persisted (≥ in_log), with all
    before it persisted or in the log too. The columns cover the seqs above ``final_seq``: those that may still leave
    the log when a view is closed. ``_head`` is the cell of the first seq above ``in_log``. ``_keys`` has, by seq, the
    keys that are not empty; ``_first_stamps`` those that are recorded."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.tag = origin_tag(origin)
        self.in_log = 0
        self.held = 0
        self.final_seq = 0
        self.limit = UNBOUNDED
        """Persisted transactions beyond it take no part in this view: they come from another branch (*parked*)."""
        self.payload_bytes = 0
        self.keyed_count = 0
        """How many of them carry a key."""
        self._head = 0
        self._stamps: array[int] = array("Q")
        self._contents = bytearray()
        self._kinds: array[int] = array("Q")  # kind | payload bytes << 8
        self._keys: dict[int, str] = {}
        self._first_stamps: dict[int, int] = {}

    def __len__(self) -> int:
        """How many wait for their order in this view."""
        return min(self.held, self.limit) - self.in_log

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it can change in this view: all that the view takes from it is final, and nothing is
        parked."""
        return self.held == self.limit and self.final_seq == self.limit and self.in_log == self.limit

    def extend(
        self,
        stamps: Sequence[int],
        contents: bytes | bytearray,
        keys: list[str],
        kinds: Sequence[int],
        first_stamps: Sequence[int] = (),
    ) -> None:
        """Add persisted transactions from ``held + 1`` on. Stamps grow strictly. ``contents``: :data:`HASH_BYTES` of
        each, concatenated. ``kinds`` are ``kind | payload bytes << 8``. ``first_stamps``: 0 for none; may be empty."""
        self._stamps.extend(stamps)
        self._contents += contents
        self._kinds.extend(kinds)
        if any(keys):
            for seq, key in enumerate(keys, self.held + 1):
                if key:
                    self._keys[seq] = key
                    self.keyed_count += 1
            for seq, first_stamp in enumerate(first_stamps, self.held + 1):
                if first_stamp:
                    self._first_stamps[seq] = first_stamp
        self.held += len(stamps)
        self.payload_bytes += sum([k >> 8 for k in kinds])

    def extend_stamped(self, waiting: list[tuple[UnstampedTransaction, bytes]], stamps: list[int]) -> None:
        """Add transactions that had no stamp, with these stamps. ``waiting``: each with its content hash."""
        self.extend(
            stamps,
            b"".join([content for _, content in waiting]),
            [one.key for one, _ in waiting],
            [one.kind | one.size << 8 for one, _ in waiting],
            [one.first_stamp for one, _ in waiting],
        )

    @property
    def last_stamp(self) -> int:
        """The greatest stamp persisted and not in the log, else 0."""
        return self._stamps[-1] if self.held > self.in_log else 0

    def _offset(self, seq: int) -> int:
        at = self._head + seq - self.in_log - 1
        assert 0 <= at < len(self._stamps), (self.origin, seq, self.in_log, self.held)
        return at

    @property
    def first_kept(self) -> int:
        """The first seq of which the stamp and the content are still in memory."""
        return self.in_log + 1 - self._head

    def content(self, seq: int) -> bytes:
        """Content hash."""
        at = self._offset(seq) * HASH_BYTES
        return bytes(self._contents[at : at + HASH_BYTES])

    def stamp(self, seq: int) -> int:
        """The stamp of a seq that is kept in memory."""
        return self._stamps[self._offset(seq)]

    def key(self, seq: int) -> str:
        """The key of a seq, empty when it has none."""
        return self._keys.get(seq, "")

    def first_stamp(self, seq: int) -> int:
        """The first stamp of a seq, 0 where none is recorded."""
        return self._first_stamps.get(seq, 0)

    def age_stamp(self, seq: int) -> int:
        """The stamp from which the age of its key counts."""
        return self._first_stamps.get(seq, 0) or self.stamp(seq)

    def oldest_keyed(self) -> int:
        """The least stamp from which the age of a key counts, of those not in the log; a value above all for none."""
        if not self.keyed_count:
            return UNBOUNDED
        return min([self.age_stamp(seq) for seq in self.keyed(self.held - self.in_log)], default=UNBOUNDED)

    def kind(self, seq: int) -> int:
        """The kind of a seq that is kept in memory (:mod:`txlog.model.entry`)."""
        return self._kinds[self._offset(seq)] & 255

    def size(self, seq: int) -> int:
        """Payload bytes."""
        return self._kinds[self._offset(seq)] >> 8

    def keyed(self, count: int) -> list[int]:
        """Which of the first ``count`` seqs carry a key."""
        if not self.keyed_count:
            return []
        return [seq for seq in range(self.in_log + 1, self.in_log + count + 1) if seq in self._keys]

    def keyed_in_log(self) -> list[int]:
        """Which seqs in the log carry a key, of those kept in memory."""
        return [seq for seq in self._keys if self.first_kept <= seq <= self.in_log]

    def named(self) -> list[tuple[int, int, str]]:
        """Seq, kind and key of each one that carries a key, in the log or not, of those kept in memory."""
        return [(seq, self.kind(seq), key) for seq, key in self._keys.items() if seq >= self.first_kept]

    def first_stamp_beyond(self, stamp_max: int, seq_max: int) -> int:
        """The stamp of the first transaction above either bound; a value above every stamp when there is none."""
        waiting = len(self)
        within = min(max(0, seq_max - self.in_log), waiting)
        within = min(within, bisect_right(self._stamps, stamp_max, self._head, self._head + waiting) - self._head)
        return self._stamps[self._head + within] if within < waiting else UNBOUNDED

    def count_before(self, stamp: int, first: bool) -> int:
        """How many have a stamp below ``stamp``, or at it when this origin comes ``first`` at equal stamps."""
        find = bisect_right if first else bisect_left
        return find(self._stamps, stamp, self._head, self._head + len(self)) - self._head

    def head_rows(self, count: int, rank: int) -> list[tuple[int, int, bytes]]:
        """``(stamp, rank, leaf)`` of the first ``count``."""
        a, b = self._head, self._head + count
        stamps = self._stamps[a:b]
        contents = bytes(self._contents[a * HASH_BYTES : b * HASH_BYTES])
        cells = [contents[at : at + HASH_BYTES] for at in range(0, len(contents), HASH_BYTES)]
        seqs = range(self.in_log + 1, self.in_log + count + 1)
        return list(zip(stamps, repeat(rank), map(chain_leaf, stamps, repeat(self.tag), seqs, cells), strict=False))

    def move_to_log(self, count: int) -> None:
        """The first ``count`` have entered the log."""
        a = self._head
        self.payload_bytes -= sum([k >> 8 for k in self._kinds[a : a + count]])
        if self.keyed_count:
            self.keyed_count -= len(self.keyed(count))
        self._head += count
        self.in_log += count

    def mark_final(self, seq: int) -> None:
        """Mark all seqs up to ``seq`` as stable: they never leave the log while views descend from this one."""
        self.final_seq = seq
        dead = seq + 1 - self.first_kept
        if dead >= _COMPACT_AT and dead * 2 >= len(self._stamps):
            if self._keys:
                for gone in range(self.first_kept, seq + 1):
                    self._keys.pop(gone, None)
                    self._first_stamps.pop(gone, None)
            del self._stamps[:dead]
            del self._contents[: dead * HASH_BYTES]
            del self._kinds[:dead]
            self._head -= dead

    def return_to_queue(self, count: int) -> None:
        """The last ``count`` that entered the log have left it again."""
        assert count <= self._head, (self.origin, count, self._head)
        self._head -= count
        self.in_log -= count
        self.payload_bytes += sum([k >> 8 for k in self._kinds[self._head : self._head + count]])
        if self._keys:
            self.keyed_count += sum([1 for seq in range(self.in_log + 1, self.in_log + count + 1) if seq in self._keys])

    def restamp(self, first_seq: int, stamps: list[int]) -> None:
        """These transactions, none of them in the log, have other stamps from now on."""
        at = self._offset(first_seq)
        assert at + len(stamps) <= len(self._stamps), (self.origin, first_seq, len(stamps), self.held)
        self._stamps[at : at + len(stamps)] = array("Q", stamps)

    def stamps(self, first_seq: int, last_seq: int) -> list[int]:
        """The stamps of the seqs from ``first_seq`` to ``last_seq``, kept in memory."""
        at = self._offset(first_seq)
        return self._stamps[at : at + last_seq - first_seq + 1].tolist()

    def contents(self, first_seq: int, last_seq: int) -> bytes:
        """Content hashes of the seqs from ``first_seq`` to ``last_seq``, kept in memory, concatenated."""
        at = self._offset(first_seq)
        return bytes(self._contents[at * HASH_BYTES : (at + last_seq - first_seq + 1) * HASH_BYTES])

    def start_after(self, seq: int) -> None:
        """All seqs up to ``seq`` are below the log start. Persisted transactions beyond it stay."""
        assert seq >= self.in_log, (self.origin, seq, self.in_log)
        kept = min(max(0, seq - self.in_log), self.held - self.in_log)
        if kept:
            self.move_to_log(kept)
        if seq > self.held:
            self.in_log = self.held = seq
            self._stamps = array("Q")
            self._contents = bytearray()
            self._kinds = array("Q")
            self._keys.clear()
            self._first_stamps.clear()
            self._head = 0
        self.final_seq = max(self.final_seq, seq)

    def skip_final(self, count: int) -> None:
        """The next ``count`` seqs are in the log of a journal that is being recovered."""
        assert self.held == self.in_log
        self.in_log += count
        self.held += count
        self.final_seq = self.in_log


def check_items(run: TransactionRun, known: int, last_stamp: int | None) -> None:
    """:class:`PeerFault` when an item after the first ``known`` ones cannot be stored (rule 32). Unless ``last_stamp``
    is None, also when the stamps do not grow from above it."""
    for item in run.items[known:]:
        if item.kind > KIND_CONFIG and item.kind not in SYNCHRONOUS_AND_DECISION:  # this program gives it no meaning
            raise PeerFault(run.node, "UnknownKind", f"seq {run.first_seq + known} and later: kind {item.kind}")
        if item.kind < 1 or (len(item.key) > _ASCII_KEY_MAX and len(item.key.encode()) > KEY_BYTES_MAX):
            raise PeerFault(run.node, "Malformed", f"seq {run.first_seq + known} and later: a kind or a key")
        if item.kind > KIND_CONFIG and (error := key_error(item.kind, item.key)):
            raise PeerFault(run.node, "Malformed", f"seq {run.first_seq + known} and later: {error}")
        if item.first_stamp > item.stamp:
            raise PeerFault(run.node, "Malformed", f"seq {run.first_seq + known} and later: a first stamp comes later")
        if last_stamp is not None:
            if item.stamp <= last_stamp:
                raise PeerFault(run.node, "StampsFall", f"seq {run.first_seq + known} and later: stamps must grow")
            last_stamp = item.stamp


def stamp_floor(log_key: tuple[int, int], ranks: list[int], slot: int | None) -> int:
    """No transaction that the origin in this slot has still to send has a stamp up to here (rule 13): the log has
    passed it, up to the stamp and rank ``log_key``. 0 for an origin outside of the view."""
    if slot is None:
        return 0
    stamp, rank = log_key
    return stamp - 1 if ranks[slot] > rank else stamp


def rank_origins(queues: list[OriginQueue]) -> list[int]:
    """Rank of each queue's origin in the order that decides between equal stamps."""
    order = sorted(range(len(queues)), key=lambda slot: queues[slot].origin)
    ranks = [0] * len(queues)
    for rank, slot in enumerate(order):
        ranks[slot] = rank
    return ranks


def prefix_within(
    queues: list[OriginQueue], slots: list[int], ranks: list[int], stamp_max: int, seq_max: list[int]
) -> QueuePrefix | None:
    """The longest prefix of the queue with stamps up to ``stamp_max`` and, per slot, seqs up to ``seq_max`` (rule 12).
    ``slots``: those whose queues may hold something.

    It ends before the first transaction, in key order, that breaks either bound: every later one waits, even if it is
    within the bounds itself. The queues are not changed."""
    waiting = [slot for slot in slots if len(queues[slot])]
    if not waiting:
        return None
    beyond = [(queues[slot].first_stamp_beyond(stamp_max, seq_max[slot]), ranks[slot]) for slot in waiting]
    stamp, rank = min(min(beyond), (stamp_max, len(ranks)))
    return merge_in_key_order(
        queues, ranks, {slot: queues[slot].count_before(stamp, ranks[slot] < rank) for slot in waiting}
    )


def merge_in_key_order(queues: list[OriginQueue], ranks: list[int], counts: dict[int, int]) -> QueuePrefix | None:
    """The first ``counts[slot]`` of each queue, merged."""
    counts = {slot: count for slot, count in counts.items() if count}
    if not counts:
        return None
    busy = list(counts)
    if len(busy) == 1:
        rows = queues[busy[0]].head_rows(counts[busy[0]], 0)
        order = bytes(busy) * len(rows)
    else:
        slot_of_rank = {ranks[slot]: slot for slot in busy}
        rows = []
        for rank in sorted(slot_of_rank):
            slot = slot_of_rank[rank]
            rows += queues[slot].head_rows(counts[slot], rank)
        rows.sort()
        order = bytes([slot_of_rank[row[1]] for row in rows])
    return QueuePrefix(order, [row[2] for row in rows], counts, rows[-1][0])
