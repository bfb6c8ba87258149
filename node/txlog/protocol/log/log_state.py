"""The log, the queue and the stable index of one master in one view: PERSIST, APPEND, FOLLOW, STABLE.

Nothing here depends on time-outs, posts or peer addresses. Each change is emitted as a record. The caller makes the
record durable before anything that follows from it leaves the process (``README.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from txlog.model.configuration import Configuration
from txlog.model.entry import KIND_CONFIG, KIND_SKIP, RunItem, Span, TransactionRun
from txlog.model.errors import Fatal, PeerFault
from txlog.model.hashes import HASH_BYTES, chain_leaf, chain_next, content_hash
from txlog.model.ids import Origin, Txid
from txlog.model.records import (
    AbandonedBranch,
    LogAppended,
    LogStart,
    LogTrimmed,
    QueuedMetadata,
    ReassignedStamps,
    Record,
    RecoveredState,
    StableAdvanced,
    TransactionsPersisted,
    ViewAccepted,
    ViewInstalled,
)
from txlog.model.view import NO_VIEW, Number, View
from txlog.protocol.events import NOT_TRUNCATED
from txlog.protocol.log.configuration_history import ConfigurationHistory
from txlog.protocol.log.idempotency_keys import FirstUse, IdempotencyKeys
from txlog.protocol.log.incoming_queue import (
    UNBOUNDED,
    OriginQueue,
    QueuePrefix,
    merge_in_key_order,
    prefix_within,
    rank_origins,
)
from txlog.protocol.log.log_index import LogIndex

_RANK_MAX: Final = 256
"""Above the rank of every origin."""
NO_CONTENTS: Final[dict[Txid, bytes]] = {}
"""No content hash is known in advance. Never modified."""


class UnstampedTransaction(NamedTuple):
    """An own transaction without a stamp. ``size``: payload bytes."""

    kind: int
    key: str
    size: int


class LogState:
    """``queues[slot]`` is the queue of the origin in that slot of ``view``. ``stable`` ≤ ``log_index.length``.

    ``installed``: every member has accepted the view; before that, nothing of its base is used. ``last_stamp`` is the
    greatest stamp seen, made or promised: a new stamp lies above it (rule 4). ``log_key`` is at or above the key of the
    log's last entry: its stamp and the rank of its origin. ``unstamped``: own transactions that arrived while no view
    was in force. They follow those of the own queue and have no stamp yet. ``noops``: index → txid that counts
    instead. ``skips``: txid → index of the entry that skips it. ``configured``: the configuration of the manifests,
    used where no founding record holds one."""

    def __init__(
        self,
        own: Origin,
        view: View,
        recovered: RecoveredState,
        key_retention_ms: int,
        configured: Configuration | None = None,
        records: list[Record] | None = None,
    ) -> None:
        self.view = view
        self.installed = recovered.installed is not None
        self.stable = recovered.stable
        self._final_index = 0
        self.queues: list[OriginQueue] = []
        self.by_origin: dict[Origin, OriginQueue] = {}
        self.slots: dict[Origin, int] = {}
        self.ranks: list[int] = []
        self.log_index = LogIndex(view.cluster_id, [Origin(*one) for one in view.origins], recovered.log_start)
        self._assign_slots(self.log_index.origins)
        self.own = self.by_origin[own]
        self.unstamped: list[tuple[UnstampedTransaction, bytes]] = []
        first = view.bootstrap_configuration or configured or Configuration([], False, key_retention_ms)
        self.configurations = ConfigurationHistory(first)
        self.keys = IdempotencyKeys(first.key_retention_ms)
        self.noops: dict[int, Txid] = {}
        self.skips: dict[str, int] = {}
        self.abandoned_branches: list[AbandonedBranch] = list(recovered.abandoned_branches)
        self.own_synced = 0
        self.truncated_to = NOT_TRUNCATED
        """The lowest index that the log was truncated to since :meth:`take_truncation` was called."""
        self.unchanged_until = 0
        """The log up to here is the same as before the latest accept. It is the truncation point of that accept, or a
        higher index where the base has the same entries."""
        self.displaced: AbandonedBranch | None = None
        self.displaced_view: Number = NO_VIEW
        """What the latest accept removed from the log of an installed view, and from which view; None for nothing.
        The caller keeps it for operators to read."""
        self.truncated_executed_entries = False
        """The accept of this view truncated entries that workers may have executed. Until the install, no position of
        those workers is stable. Unknown after a restart."""
        self.last_stamp = max(recovered.ceiling, recovered.log_stamp, view.floor)
        self.log_key: tuple[int, int] = (0, 0)
        self.records: list[Record] = [] if records is None else records
        self._recover(recovered)

    def _assign_slots(self, origins: list[Origin]) -> None:
        """Give every origin its slot."""
        known = self.by_origin
        self.queues = [known[origin] if origin in known else OriginQueue(origin) for origin in origins]
        self.ranks = rank_origins(self.queues)
        self.by_origin = {**known, **{q.origin: q for q in self.queues}}
        self.slots = {q.origin: slot for slot, q in enumerate(self.queues)}
        members = {m.origin for m in self.view.members}
        for slot, queue in enumerate(self.queues):
            queue.limit = (
                UNBOUNDED if queue.origin in members or not self.view.known_seqs else self.view.known_seqs[slot]
            )

    def _recover(self, recovered: RecoveredState) -> None:
        index, order = recovered.log_start.index, bytearray()
        self._final_index = self.final_index
        self._start_at(recovered.log_start)
        unsettled: dict[Origin, int] = {}
        for span in recovered.log_spans:
            origin = Origin(span.node, span.birth)
            queue = self.by_origin[origin]
            slot = self.slots[origin]
            order += bytes([slot]) * span.count
            settled = min(max(self.final_index - index, 0), span.count)
            assert not settled or span.first_seq == queue.in_log + 1, (span, queue.in_log)
            queue.skip_final(settled)
            unsettled[origin] = unsettled.get(origin, 0) + span.count - settled
            index += span.count
            self.log_key = (recovered.log_stamp, self.ranks[slot])
        hashes, recovered.log_hashes = recovered.log_hashes, bytearray()  # too many to have them twice
        self.log_index.load(order, hashes)
        for meta in recovered.queued:
            self._recover_queued(meta)
        for origin, count in unsettled.items():
            self.by_origin[origin].move_to_log(count)
        for seen in recovered.keys:
            origin = Origin(seen.span.node, seen.span.birth)
            if seen.kind == KIND_SKIP:
                self.skips.setdefault(seen.key, seen.index)
            elif seen.kind == KIND_CONFIG:
                self.configurations.held[Txid(origin, seen.span.first_seq)] = seen.key
                self._apply_configuration_change(seen.index, Txid(origin, seen.span.first_seq), seen.key, seen.stamp)
            else:
                self._apply_key(
                    seen.index, seen.key, FirstUse(Txid(origin, seen.span.first_seq), seen.stamp, seen.content)
                )
        self.keys.mark_final(self.final_index)
        self.own_synced = self._compute_own_synced()

    def _start_at(self, foot: LogStart) -> None:
        """The log begins after this log start."""
        for node, birth, seq in foot.seqs:
            self.by_origin[Origin(node, birth)].start_after(seq)
        if foot.index:
            self.log_key = (foot.stamp, self.ranks[self.slots[Origin(*foot.last)]])
            self.last_stamp = max(self.last_stamp, foot.stamp)
        self.keys.restore(foot)
        self.skips = dict(foot.skips)
        if foot.configuration is not None:
            self.configurations.restore(*foot.configuration)

    def trim(self, foot: LogStart) -> None:
        """Discard the log up to this log start (rule 19). The caller has verified that no master, worker or backup
        needs it."""
        assert self.log_index.start < foot.index <= self.final_index, (
            self.log_index.start,
            foot.index,
            self.final_index,
        )
        self.log_index.trim(foot)
        self.noops = {index: txid for index, txid in self.noops.items() if index > foot.index}
        self.configurations.trim(foot.index)
        held = self.configurations.held
        self.configurations.held = {
            txid: key for txid, key in held.items() if not self.log_index.is_trimmed(txid.origin, txid.seq)
        }
        self.records.append(LogTrimmed(foot))

    def install_snapshot(self, foot: LogStart) -> None:
        """A snapshot replaces a log whose end is below it; persisted transactions beyond the snapshot stay. Only a
        master in no view does this: it has promised nothing of its own log."""
        assert foot.index > self.log_index.length, (foot.index, self.log_index.length)
        origins = list(self.log_index.origins)
        origins += [Origin(n, b) for n, b, _ in foot.seqs if Origin(n, b) not in origins]
        self.log_index.reassign_slots(origins)
        self.log_index.reset_to(foot)
        self._assign_slots(origins)
        self._start_at(foot)
        self.stable = self._final_index = foot.index
        self.own_synced = self._compute_own_synced()
        self.noops.clear()
        self.abandoned_branches = list(foot.abandoned_branches)
        self.records.append(LogTrimmed(foot))

    def _recover_queued(self, meta: QueuedMetadata) -> None:
        origin = Origin(meta.node, meta.birth)
        queue = self.by_origin[origin] if origin in self.by_origin else self.add_origin(origin)
        assert meta.first_seq == queue.held + 1, (meta.node, meta.first_seq, queue.held)
        stamped = meta.stamps.index(0) if 0 in meta.stamps else len(meta.stamps)
        hashes = meta.contents
        queue.extend(meta.stamps[:stamped], hashes[: stamped * HASH_BYTES], meta.keys[:stamped], meta.kinds[:stamped])
        self._track_waiting_keys(queue.origin, meta.first_seq, meta.keys, meta.stamps, hashes, meta.kinds)
        self.last_stamp = max(self.last_stamp, queue.last_stamp)
        for offset in range(stamped, len(meta.stamps)):
            assert queue is self.own, "only own transactions may wait for a stamp"
            kind, size = meta.kinds[offset] & 255, meta.kinds[offset] >> 8
            content = bytes(hashes[offset * HASH_BYTES : (offset + 1) * HASH_BYTES])
            self.unstamped.append((UnstampedTransaction(kind, meta.keys[offset], size), content))

    def add_origin(self, origin: Origin) -> OriginQueue:
        """Add an origin that the view does not know: its persisted transactions are parked."""
        queue = self.by_origin[origin] = OriginQueue(origin)
        queue.limit = 0
        return queue

    def enters_queue(self, origin: Origin) -> bool:
        """Whether new transactions of it enter the queue of this view; else they are parked."""
        queue = self.by_origin.get(origin)
        return queue is not None and queue.limit == UNBOUNDED

    def has_new_from_member(self, run: TransactionRun) -> bool:
        """Whether the run has transactions that are not persisted here, of an origin that enters this view's queue."""
        return self.enters_queue(run.origin) and run.first_seq + len(run.items) - 1 > self.by_origin[run.origin].held

    def raise_last_stamp(self, stamp: int) -> None:
        """A stamp that was seen or promised: later own stamps lie above it (rule 4)."""
        self.last_stamp = max(self.last_stamp, stamp)

    def take_truncation(self) -> int:
        """The lowest index to which the log was truncated since the last call; :data:`NOT_TRUNCATED` for none."""
        index, self.truncated_to = self.truncated_to, NOT_TRUNCATED
        return index

    @property
    def final_index(self) -> int:
        """The highest index that no later view can remove from the log."""
        return max(self._final_index, self.view.final_index(self.stable, self.installed))

    @property
    def last_own_seq(self) -> int:
        """The last own seq, with a stamp or without."""
        return self.own.held + len(self.unstamped)

    # PERSIST

    def persist_own(self, items: list[RunItem], contents: list[bytes]) -> None:
        """Persist own transactions. The caller has stamped them above ``last_stamp``."""
        own = self.own
        assert items[0].stamp > self.last_stamp, "rule 4: a stamp at or below a promise"
        self._enqueue(own, TransactionRun(own.origin.node, own.origin.birth, own.held + 1, items), contents)

    def persist_unstamped(self, items: list[RunItem], contents: list[bytes]) -> None:
        """Persist own transactions that arrived while no view is in force. They are durable and have a txid; the next
        accept stamps them."""
        origin = self.own.origin
        first = self.last_own_seq + 1
        self.unstamped += [
            (UnstampedTransaction(i.kind, i.key, len(i.payload)), content)
            for i, content in zip(items, contents, strict=True)
        ]
        kinds = [item.kind for item in items]
        hashes = b"".join(contents)
        self._track_waiting_keys(origin, first, [i.key for i in items], [i.stamp for i in items], hashes, kinds)
        self._record_persisted(TransactionRun(origin.node, origin.birth, first, items), hashes)

    def persist_replicated(
        self, run: TransactionRun, fetched: bool = False, contents: dict[Txid, bytes] = NO_CONTENTS
    ) -> bool:
        """Persist transactions of other masters. Known ones are skipped; a run that would leave a gap is not taken.
        ``fetched``: for the next view, which stamps every one again, so the stamps may fall. ``contents``: content
        hashes that the caller computed itself. True when something new is persisted. :class:`Fatal` for one id with
        two contents (rule 3)."""
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
            if item.stamp <= last and not fetched:
                raise PeerFault(run.node, "StampsFall", f"seq {run.first_seq + known} and later: stamps must grow")
            last = item.stamp
        self._enqueue(
            queue,
            TransactionRun(run.node, run.birth, run.first_seq + known, items),
            _content_hashes(run, known, contents),
        )
        return True

    def _check_contents(self, queue: OriginQueue, run: TransactionRun, known: int) -> None:
        for offset in range(max(0, queue.in_log + 1 - run.first_seq), known):
            item = run.items[offset]
            if content_hash(item.kind, item.key, item.payload) != queue.content(run.first_seq + offset):
                txid = Txid(queue.origin, run.first_seq + offset)
                raise Fatal("TwoContents", f"{txid} came with another content than it is held with here")

    def _enqueue(self, queue: OriginQueue, run: TransactionRun, contents: list[bytes]) -> None:
        stamps = [item.stamp for item in run.items]
        keys = [item.key for item in run.items]
        kinds = [item.kind | len(item.payload) << 8 for item in run.items]
        hashes = b"".join(contents)
        queue.extend(stamps, hashes, keys, kinds)
        self.last_stamp = max(self.last_stamp, stamps[-1])
        self._track_waiting_keys(queue.origin, run.first_seq, keys, stamps, hashes, kinds)
        self._record_persisted(run, hashes)

    def _record_persisted(self, run: TransactionRun, hashes: bytes) -> None:
        before = self.records[-1] if self.records else None
        if (
            isinstance(before, TransactionsPersisted) and before.run.origin == run.origin
        ):  # one record, one run of many requests
            joined = TransactionRun(run.node, run.birth, before.run.first_seq, before.run.items + run.items)
            self.records[-1] = TransactionsPersisted(joined, before.contents + hashes)
        else:
            self.records.append(TransactionsPersisted(run, hashes))

    def _track_waiting_keys(
        self,
        origin: Origin,
        first_seq: int,
        keys: list[str],
        stamps: Sequence[int],
        hashes: bytes | bytearray,
        kinds: Sequence[int],
    ) -> None:
        if not any(keys):
            return
        for offset, key in enumerate(keys):
            if key and kinds[offset] & 255 == KIND_CONFIG:
                self.configurations.held[Txid(origin, first_seq + offset)] = key
            elif key:
                content = bytes(hashes[offset * HASH_BYTES : (offset + 1) * HASH_BYTES])
                first = FirstUse(Txid(origin, first_seq + offset), stamps[offset], content)
                self.keys.waiting.setdefault(key, first)

    # APPEND

    def append_up_to(self, stamp_max: int, seq_max: list[int]) -> bool:
        """Rule 12: the longest prefix of the queue within both bounds (``seq_max`` per slot) enters the log."""
        prefix = prefix_within(self.queues, self.ranks, stamp_max, seq_max)
        if prefix is not None:
            self._append(prefix, self._chain_hashes(prefix.leaves))
        return prefix is not None

    def append_from_peer(self, after: int, order: bytes, end_hash: bytes) -> bool:
        """Append a part of a peer's log, if all of it is persisted here and ``end_hash`` proves it (rule 18).

        False when it holds nothing new or a transaction is missing. :class:`Fatal` when the logs differ (rule 17)."""
        news = order[self.log_index.length - after :] if after <= self.log_index.length else b""
        if not news:
            return False
        counts = [news.count(slot) for slot in range(len(self.queues))]
        if sum(counts) != len(news):
            raise Fatal("Forked", f"a peer's log goes on behind {self.log_index.length} with an origin unknown here")
        if any(count > len(queue) for count, queue in zip(counts, self.queues, strict=True)):
            return False
        prefix = self._check_order(news, counts)
        hashes = self._chain_hashes(prefix.leaves)
        if hashes[-HASH_BYTES:] != end_hash:
            raise Fatal("Forked", f"a peer's log and this one differ between {after} and {after + len(order)}")
        self._append(prefix, hashes)
        return True

    def _check_order(self, order: bytes, counts: list[int]) -> QueuePrefix:
        """The entries in a peer's order. :class:`Fatal` when that is not the order of keys (rule 13)."""
        heads = [iter(q.head_rows(counts[slot], self.ranks[slot])) for slot, q in enumerate(self.queues)]
        rows = [next(heads[slot]) for slot in order]
        if any(later[:2] <= row[:2] for row, later in pairwise(rows)):
            raise Fatal("Forked", f"a peer's log behind {self.log_index.length} is not in the order of stamps")
        return QueuePrefix(order, [row[2] for row in rows], counts, rows[-1][0])

    def _chain_hashes(self, leaves: list[bytes]) -> bytes:
        """The chain hashes after every entry, concatenated, as if these entries were appended now."""
        value = self.log_index.hash
        cells: list[bytes] = []
        for leaf in leaves:
            value = chain_next(value, leaf)
            cells.append(value)
        return b"".join(cells)

    def _append(self, prefix: QueuePrefix, hashes: bytes) -> None:
        after = self.log_index.length
        heads = [(q.stamp(q.in_log + 1), self.ranks[slot]) for slot, q in enumerate(self.queues) if prefix.counts[slot]]
        assert min(heads) > self.log_key, f"rule 13: keys grow along the log: {min(heads)} behind {self.log_key}"
        self.log_index.append(prefix.order, hashes)
        self._apply_keyed(prefix.counts)
        for queue, count in zip(self.queues, prefix.counts, strict=True):
            if count:
                queue.move_to_log(count)
        self.log_key = (prefix.last_stamp, self.ranks[prefix.order[-1]])
        self.records.append(
            LogAppended(after + 1, self.log_index.spans(after, self.log_index.length), hashes, self.stable)
        )

    def _apply_keyed(self, counts: list[int]) -> None:
        """Idempotency keys and skips take effect, in the order of the log."""
        if not any(queue.keyed_count for queue in self.queues):
            return
        keyed = [
            (self.log_index.index_of(queue.origin, seq), queue, seq)
            for queue, count in zip(self.queues, counts, strict=True)
            for seq in (queue.keyed(count) if count else ())
        ]
        for index, queue, seq in sorted(keyed, key=lambda row: row[0]):
            if queue.kind(seq) == KIND_SKIP:
                self.skips.setdefault(queue.key(seq), index)
                self.keys.waiting.pop(queue.key(seq), None)
            elif queue.kind(seq) == KIND_CONFIG:
                self._apply_configuration_change(index, Txid(queue.origin, seq), queue.key(seq), queue.stamp(seq))
            else:
                first = FirstUse(Txid(queue.origin, seq), queue.stamp(seq), queue.content(seq))
                self._apply_key(index, queue.key(seq), first)

    def _apply_configuration_change(self, index: int, txid: Txid, key: str, stamp: int) -> None:
        """A configuration change takes effect at its index in the log, or never."""
        if self.configurations.apply(index, txid, key, self.view.lineage):
            self.keys.change_retention(index, stamp, self.configurations.latest.key_retention_ms)

    def _apply_key(self, index: int, key: str, first: FirstUse) -> None:
        counts = self.keys.record_use(index, key, first)
        if counts is not None:
            self.noops[index] = counts

    # STABLE

    def advance_stable(self, held_by_all: list[int]) -> bool:
        """Move the stable index to the last entry that every member, silent ones included, is known to have persisted
        (rule 33)."""
        index = self.log_index.length
        for queue, held in zip(self.queues, held_by_all, strict=True):
            if held < queue.in_log:
                index = min(index, self.log_index.index_of(queue.origin, held + 1) - 1)
        if index <= self.stable:
            return False
        self._mark_final(index)
        self._record_stable(index)
        return True

    def _mark_final(self, index: int) -> None:
        self.stable = index
        self.own_synced = self._compute_own_synced()
        self._final_index = self.final_index
        for slot, queue in enumerate(self.queues):
            queue.mark_final(self.log_index.seq_within(slot, self.final_index))
        self.keys.mark_final(self.final_index)

    def _record_stable(self, index: int) -> None:
        """Write the stable index into the record of the appends when there is one, so that a round costs one record."""
        last = self.records[-1] if self.records else None
        if isinstance(last, LogAppended):
            self.records[-1] = LogAppended(last.first_index, last.spans, last.hashes, index)
        else:
            self.records.append(StableAdvanced(index))

    def _compute_own_synced(self) -> int:
        return self.log_index.seq_within(self.slots[self.own.origin], self.stable)

    def hash_if_view_closed(self, index: int) -> bytes | None:
        """The chain hash at ``index`` if the view were closed with the transactions persisted here: the log, then the
        queue in key order. None above all that, and below the log start."""
        beyond = index - self.log_index.length
        if beyond <= 0:
            return self.log_index.hash_at(index) if self.log_index.has_hash_at(index) else None
        counts = [min(len(queue), beyond) for queue in self.queues]
        prefix = merge_in_key_order(self.queues, self.ranks, counts) if sum(counts) >= beyond else None
        return self._chain_hashes(prefix.leaves[:beyond])[-HASH_BYTES:] if prefix is not None else None

    # VIEW

    def missing_spans(self, spans: list[Span], waiting: list[ReassignedStamps]) -> list[Span]:
        """The parts of these spans that are not persisted here yet."""
        needed: dict[Origin, int] = {}
        for one in spans:
            origin = Origin(one.node, one.birth)
            needed[origin] = max(needed.get(origin, 0), one.first_seq + one.count - 1)
        for several in waiting:
            origin = Origin(several.node, several.birth)
            needed[origin] = max(needed.get(origin, 0), several.first_seq + len(several.stamps) - 1)
        found: list[Span] = []
        for origin, last in sorted(needed.items()):
            queue = self.by_origin.get(origin)
            held = queue.held if queue is not None else 0
            if held < last:
                found.append(Span(origin.node, origin.birth, held + 1, last - held))
        return found

    def accept_view(
        self, view: View, cut: int, spans: list[Span], stamps: list[int], waiting: list[ReassignedStamps]
    ) -> bool:
        """Make this view the latest (rule 21): truncate the log after ``cut`` and append ``spans``, whose entries have
        these ``stamps``. ``waiting`` get new stamps, and so do the own transactions that have none.

        False, with nothing changed, when the result is not the log that the view names."""
        assert not self.missing_spans(spans, waiting)
        assert self.final_index <= cut <= self.log_index.length, (self.final_index, cut, self.log_index.length)
        stands = self.configurations.valid_up_to(self.log_index, self.final_index, cut, view.lineage)
        if stands < cut:  # the order stays, but what is behind that has to take effect anew, as everywhere
            again = self.log_index.spans(stands, cut)
            cut, spans, stamps = stands, again + spans, self._stamps_of(again) + stamps
        hashes = self._base_chain_hashes(cut, spans, stamps)
        if hashes is None or (hashes[-HASH_BYTES:] or self.log_index.hash_at(cut)) != view.base_hash:
            return False
        if (
            self.view.bootstrap_configuration is None
            and view.bootstrap_configuration is not None
            and not self.log_index.length
        ):
            self.configurations.set_bootstrap(view.bootstrap_configuration)
            self.keys.initialize_retention(view.bootstrap_configuration.key_retention_ms)
        self._record_abandoned(view, cut)
        self.unchanged_until = self._common_prefix_end(cut, hashes)
        shown = self.log_index.length if self.installed else self.stable  # of a base nothing was, before its install
        self.displaced = (
            self._abandoned_after(self.unchanged_until, [], shown) if shown > self.unchanged_until else None
        )
        self.displaced_view = self.view.number if self.installed else (self.view.ancestors or [NO_VIEW])[-1]
        for queue, count in zip(self.queues, self.log_index.truncate(cut), strict=True):
            if count:
                queue.return_to_queue(count)
        self._truncate(cut)
        origins = [Origin(*one) for one in view.origins]
        self.log_index.reassign_slots(origins)
        self.view = view
        self._assign_slots(origins)
        self.installed = False
        self.truncated_to = min(self.truncated_to, cut)
        self.truncated_executed_entries = cut < self.stable
        self.stable = min(self.stable, cut)
        self.own_synced = self._compute_own_synced()
        stamped = self._restamp(spans, stamps)
        self._append_base(spans, hashes)
        for several in waiting:
            self.by_origin[Origin(several.node, several.birth)].restamp(several.first_seq, several.stamps)
            stamped.append(several)
        self.last_stamp = max([self.last_stamp, view.floor, *(q.last_stamp for q in self.queues)])
        self.log_key = (view.floor, _RANK_MAX)
        stamped += self._stamp_unstamped()
        self.records.append(ViewAccepted(view, cut, spans, hashes, stamped))
        return True

    def _record_abandoned(self, view: View, cut: int) -> None:
        """Record the branch that is truncated here: its workers may have executed it, and stay (``None``). The journal
        has it as well."""
        if cut < self.log_index.length and view.keeps_abandoned:
            self.abandoned_branches.append(self._abandoned_after(cut, self.keys.keys_after(cut), self.log_index.length))

    def _abandoned_after(self, index: int, keys: list[tuple[str, Txid]], end: int) -> AbandonedBranch:
        history = self.log_index
        value = history.hash_at(index) if index else b""
        return AbandonedBranch(index, value, history.spans(index, end), history.hashes(index, end), keys)

    def install_view(self) -> None:
        """Every member has accepted: the base of the view is stable."""
        self.installed = True
        self._mark_final(self.view.base_index)
        self.records.append(ViewInstalled(*self.view.number))

    def _base_chain_hashes(self, cut: int, spans: list[Span], stamps: list[int]) -> bytes | None:
        """The chain hashes of a base after ``cut``; None when its keys do not grow (rule 13)."""
        value = self.log_index.hash_at(cut)
        cells: list[bytes] = []
        at = 0
        last: tuple[int, Origin] = (0, Origin("", 0))
        for span in spans:
            origin = Origin(span.node, span.birth)
            queue = self.by_origin[origin]
            for seq in range(span.first_seq, span.first_seq + span.count):
                if (stamps[at], origin) <= last:
                    return None
                last = (stamps[at], origin)
                value = chain_next(value, chain_leaf(stamps[at], queue.tag, seq, queue.content(seq)))
                cells.append(value)
                at += 1
        return b"".join(cells)

    def _common_prefix_end(self, cut: int, hashes: bytes) -> int:
        """The last index at which this log has the chain hashes of a base after ``cut``. No later hash is equal."""
        low, high = cut, min(self.log_index.length, cut + len(hashes) // HASH_BYTES)
        while low < high:
            middle = (low + high + 1) // 2
            end = (middle - cut) * HASH_BYTES
            if self.log_index.hash_at(middle) == hashes[end - HASH_BYTES : end]:
                low = middle
            else:
                high = middle - 1
        return low

    def _truncate(self, cut: int) -> None:
        self.keys.truncate(cut)
        self.configurations.truncate(cut)
        self.noops = {index: txid for index, txid in self.noops.items() if index <= cut}
        self.skips = {txid: index for txid, index in self.skips.items() if index <= cut}

    def _stamps_of(self, spans: list[Span]) -> list[int]:
        stamps: list[int] = []
        for span in spans:
            queue = self.by_origin[Origin(span.node, span.birth)]
            stamps += queue.stamps(span.first_seq, span.first_seq + span.count - 1)
        return stamps

    def _restamp(self, spans: list[Span], stamps: list[int]) -> list[ReassignedStamps]:
        """Give the entries of a base their stamps. Returns the entries whose stamps changed."""
        changed: list[ReassignedStamps] = []
        at = 0
        for span in spans:
            queue = self.by_origin[Origin(span.node, span.birth)]
            new = stamps[at : at + span.count]
            at += span.count
            if queue.stamps(span.first_seq, span.first_seq + span.count - 1) != new:
                queue.restamp(span.first_seq, new)
                changed.append(ReassignedStamps(span.node, span.birth, span.first_seq, new))
        return changed

    def _append_base(self, spans: list[Span], hashes: bytes) -> None:
        counts = [0] * len(self.queues)
        order = bytearray()
        for span in spans:
            slot = self.slots[Origin(span.node, span.birth)]
            assert span.first_seq == self.queues[slot].in_log + counts[slot] + 1, (span, counts[slot])
            counts[slot] += span.count
            order += bytes([slot]) * span.count
        self.log_index.append(bytes(order), hashes)
        self._apply_keyed(counts)
        for queue, count in zip(self.queues, counts, strict=True):
            if count:
                queue.move_to_log(count)

    def _stamp_unstamped(self) -> list[ReassignedStamps]:
        if not self.unstamped:
            return []
        own, count = self.own, len(self.unstamped)
        first, stamps = own.held + 1, list(range(self.last_stamp + 1, self.last_stamp + 1 + count))
        own.extend(
            stamps,
            b"".join([content for _, content in self.unstamped]),
            [one.key for one, _ in self.unstamped],
            [one.kind | one.size << 8 for one, _ in self.unstamped],
        )
        self.unstamped.clear()
        self.last_stamp = stamps[-1]
        return [ReassignedStamps(own.origin.node, own.origin.birth, first, stamps)]


def _content_hashes(run: TransactionRun, known: int, computed: dict[Txid, bytes]) -> list[bytes]:
    """Content hashes of the run's items after the first ``known`` ones; ``computed`` has those known in advance."""
    items = run.items[known:]
    if not computed:
        return [content_hash(item.kind, item.key, item.payload) for item in items]
    return [
        computed.get(Txid(run.origin, seq)) or content_hash(item.kind, item.key, item.payload)
        for seq, item in enumerate(items, run.first_seq + known)
    ]
