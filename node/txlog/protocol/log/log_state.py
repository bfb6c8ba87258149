"""The log, the queue and the stable index of one master in one view: PERSIST, APPEND, FOLLOW, STABLE.

Nothing here depends on time-outs, posts or peer addresses. Each change is emitted as a record. The caller makes the
record durable before anything that follows from it leaves the process (``README.md``).
"""

from __future__ import annotations

from typing import Final

from txlog.model.configuration import Configuration
from txlog.model.entry import KIND_CONFIG, RunItem, Span, TransactionRun
from txlog.model.errors import Fatal, PeerFault
from txlog.model.hashes import HASH_BYTES
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
    ViewAccepted,
    ViewInstalled,
)
from txlog.model.view import NO_VIEW, Number, View
from txlog.protocol.events import NOT_TRUNCATED
from txlog.protocol.log.base_log import (
    abandoned_after,
    base_chain_hashes,
    base_fits,
    common_prefix_end,
    keys_in_log_after,
    last_seqs,
    missing_spans,
    restamp,
    stamps_of,
)
from txlog.protocol.log.configuration_history import ConfigurationHistory
from txlog.protocol.log.entry_hashes import chain_hashes, check_contents, checked_prefix, content_hashes, hash_if_closed
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.incoming_queue import (
    UNBOUNDED,
    OriginQueue,
    QueuePrefix,
    UnstampedTransaction,
    check_items,
    prefix_within,
    rank_origins,
    stamp_floor,
)
from txlog.protocol.log.keyed_effects import KeyedEffects
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.log.open_queues import OpenQueues
from txlog.protocol.log.record_merge import record_persisted, record_stable
from txlog.protocol.log.synchronous_effects import SynchronousEffects

_RANK_MAX: Final = 256
"""Above the rank of every origin."""
NO_CONTENTS: Final[dict[Txid, bytes]] = {}
"""No content hash is known in advance. Never modified."""


class LogState:
    """``queues[slot]`` is the queue of the origin in that slot of ``view``. ``stable`` ≤ ``log_index.length``.

    ``installed``: every member has accepted the view; before that, nothing of its base is used. ``last_stamp`` is the
    greatest stamp seen, made or promised: a new stamp lies above it (rule 4). ``log_key`` is at or above the key of the
    log's last entry: its stamp and the rank of its origin. ``unstamped``: own transactions that arrived while no view
    was in force. They follow those of the own queue and have no stamp yet. ``configured``: the configuration of the
    manifests, used where no bootstrap record holds one."""

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
        self.open = OpenQueues([])
        self.by_origin: dict[Origin, OriginQueue] = {}
        self.slots: dict[Origin, int] = {}
        self.ranks: list[int] = []
        start, origins = recovered.log_start.without_keys(), [Origin(*one) for one in view.origins]
        self.log_index = LogIndex(view.cluster_id, origins, start)
        self._assign_slots(self.log_index.origins)
        self.own = self.by_origin[own]
        self.unstamped: list[tuple[UnstampedTransaction, bytes]] = []
        first = view.bootstrap_configuration or configured or Configuration([], False, key_retention_ms)
        self.keyed = KeyedEffects(first)
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
        self.open = OpenQueues(self.queues)

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
            txid = Txid(Origin(seen.span.node, seen.span.birth), seen.span.first_seq)
            if seen.kind == KIND_CONFIG:
                self.configurations.held[txid] = seen.key
            use = seen.index, seen.kind, seen.key, txid, seen.stamp, seen.first_stamp, seen.content
            self.keyed.apply(*use, self.view.is_or_descends_from, self.log_index)
        self.keyed.mark_final(self.final_index)
        self.synchronous.wait_for_open()
        self.own_synced = self._compute_own_synced()
        self.open.refresh()

    def _start_at(self, log_start: LogStart) -> None:
        """The log begins after this log start."""
        for node, birth, seq in log_start.seqs:
            self.by_origin[Origin(node, birth)].start_after(seq)
        if log_start.index:
            self.log_key = (log_start.stamp, self.ranks[self.slots[Origin(*log_start.last)]])
            self.last_stamp = max(self.last_stamp, log_start.stamp)
        self.keyed.restore(log_start)

    def trim(self, log_start: LogStart) -> None:
        """Discard the log up to this log start (rule 19). The caller has verified that no master, worker or backup
        needs it."""
        assert self.log_index.start < log_start.index <= self.final_index, log_start.index
        self.log_index.trim(log_start)
        self.keyed.trim(log_start.index, self.log_index)
        self.records.append(LogTrimmed(log_start))

    def install_snapshot(self, log_start: LogStart) -> None:
        """A snapshot replaces a log whose end is below it; persisted transactions beyond the snapshot stay. Only a
        master in no view does this: it has promised nothing of its own log."""
        assert log_start.index > self.log_index.length, (log_start.index, self.log_index.length)
        origins = list(self.log_index.origins)
        origins += [Origin(n, b) for n, b, _ in log_start.seqs if Origin(n, b) not in origins]
        self.log_index.reassign_slots(origins)
        self.log_index.reset_to(log_start.without_keys())
        self._assign_slots(origins)
        self._start_at(log_start)
        self.open.refresh()
        self.stable = self._final_index = log_start.index
        self.own_synced = self._compute_own_synced()
        self.abandoned_branches = list(log_start.abandoned_branches)
        self.records.append(LogTrimmed(log_start))

    def _recover_queued(self, meta: QueuedMetadata) -> None:
        origin = Origin(meta.node, meta.birth)
        queue = self.by_origin[origin] if origin in self.by_origin else self.add_origin(origin)
        assert meta.first_seq == queue.held + 1, (meta.node, meta.first_seq, queue.held)
        stamped = meta.stamps.index(0) if 0 in meta.stamps else len(meta.stamps)
        hashes = meta.contents
        firsts = meta.first_stamps or [0] * len(meta.stamps)
        columns = meta.keys[:stamped], meta.kinds[:stamped], firsts[:stamped]
        queue.extend(meta.stamps[:stamped], hashes[: stamped * HASH_BYTES], *columns)
        ages = [first or stamp for first, stamp in zip(firsts, meta.stamps, strict=True)]
        self.keyed.track_waiting(queue.origin, meta.first_seq, meta.keys, ages, hashes, meta.kinds, self.last_stamp)
        # the stamps to come lie above the first stamps, which no ceiling in the journal covers
        self.last_stamp = max([self.last_stamp, queue.last_stamp, *firsts[stamped:]])
        for offset in range(stamped, len(meta.stamps)):
            assert queue is self.own, "only own transactions may wait for a stamp"
            kind, size = meta.kinds[offset] & 255, meta.kinds[offset] >> 8
            content = bytes(hashes[offset * HASH_BYTES : (offset + 1) * HASH_BYTES])
            self.unstamped.append((UnstampedTransaction(kind, meta.keys[offset], size, firsts[offset]), content))

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

    @property
    def keys(self) -> IdempotencyKeys:
        """Which entry used an idempotency key first."""
        return self.keyed.keys

    @property
    def configurations(self) -> ConfigurationHistory:
        """The configuration in force at each index."""
        return self.keyed.configurations

    @property
    def synchronous(self) -> SynchronousEffects:
        """What synchronous transactions come to along the log."""
        return self.keyed.synchronous

    @property
    def noops(self) -> dict[int, Txid]:
        """Index → txid that counts instead."""
        return self.keyed.noops

    @property
    def skips(self) -> dict[str, int]:
        """Txid → index of the entry that skips it."""
        return self.keyed.skips

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
        origin, first = self.own.origin, self.last_own_seq + 1
        self.unstamped += [
            (UnstampedTransaction(i.kind, i.key, len(i.payload), i.first_stamp), content)
            for i, content in zip(items, contents, strict=True)
        ]
        hashes, kinds = b"".join(contents), [item.kind for item in items]
        keys, ages = [i.key for i in items], [i.age_stamp for i in items]
        self.keyed.track_waiting(origin, first, keys, ages, hashes, kinds, self.last_stamp)
        record_persisted(self.records, TransactionRun(origin.node, origin.birth, first, items), hashes)

    def persist_replicated(
        self, run: TransactionRun, fetched: bool = False, contents: dict[Txid, bytes] = NO_CONTENTS
    ) -> bool:
        """Persist transactions of other masters. Known ones are skipped; a run that would leave a gap is not taken.
        ``fetched``: for the next view, which stamps every one again, so the stamps may fall. ``contents``: content
        hashes that the caller computed itself. True when something new is persisted. :class:`Fatal` for one id with
        two contents (rule 3)."""
        if (queue := self.by_origin.get(run.origin)) is None:
            raise PeerFault(run.node, "UnknownOrigin", f"birth {run.birth:016x} is no member of this view")
        if run.first_seq > queue.held + 1 or not run.items:
            return False
        known = min(queue.held - run.first_seq + 1, len(run.items))
        check_contents(queue, run, known)
        if not (items := run.items[known:]):
            return False
        floor = stamp_floor(self.log_key, self.ranks, self.slots.get(queue.origin))
        check_items(run, known, None if fetched else max(queue.last_stamp, floor))
        rest = TransactionRun(run.node, run.birth, run.first_seq + known, items)
        self._enqueue(queue, rest, content_hashes(run, known, contents))
        return True

    def _enqueue(self, queue: OriginQueue, run: TransactionRun, contents: list[bytes]) -> None:
        stamps = [item.stamp for item in run.items]
        keys = [item.key for item in run.items]
        kinds = [item.kind | len(item.payload) << 8 for item in run.items]
        hashes = b"".join(contents)
        queue.extend(stamps, hashes, keys, kinds, [item.first_stamp for item in run.items])
        if queue.limit != UNBOUNDED and queue.origin in self.slots:
            self.open.reopen(self.slots[queue.origin])
        self.last_stamp = max(self.last_stamp, stamps[-1])
        if any(keys):
            ages = [item.age_stamp for item in run.items]
            self.keyed.track_waiting(queue.origin, run.first_seq, keys, ages, hashes, kinds, self.last_stamp)
        record_persisted(self.records, run, hashes)

    # APPEND

    def append_up_to(self, stamp_max: int, seq_max: list[int]) -> bool:
        """Rule 12: the longest prefix of the queue within both bounds (``seq_max`` per slot) enters the log."""
        prefix = prefix_within(self.queues, self.open.slots, self.ranks, stamp_max, seq_max)
        if prefix is not None:
            self._append(prefix, chain_hashes(self.log_index.hash, prefix.leaves))
        return prefix is not None

    def append_from_peer(self, after: int, order: bytes, end_hash: bytes) -> bool:
        """Append a part of a peer's log, if all of it is persisted here and ``end_hash`` proves it (rule 18).

        False when it holds nothing new or a transaction is missing. :class:`Fatal` when the logs differ (rule 17)."""
        news = order[self.log_index.length - after :] if after <= self.log_index.length else b""
        if not news:
            return False
        counts = {slot: news.count(slot) for slot in set(news)}
        if max(counts) >= len(self.queues):
            raise Fatal("Forked", f"a peer's log goes on behind {self.log_index.length} with an origin unknown here")
        if any(count > len(self.queues[slot]) for slot, count in counts.items()):
            return False
        prefix = checked_prefix(self.queues, self.ranks, self.log_index.length, news, counts)
        hashes = chain_hashes(self.log_index.hash, prefix.leaves)
        if hashes[-HASH_BYTES:] != end_hash:
            raise Fatal("Forked", f"a peer's log and this one differ between {after} and {after + len(order)}")
        self._append(prefix, hashes)
        return True

    def _append(self, prefix: QueuePrefix, hashes: bytes) -> None:
        after = self.log_index.length
        heads = [(self.queues[slot], self.ranks[slot]) for slot in prefix.counts]
        first = min([(queue.stamp(queue.in_log + 1), rank) for queue, rank in heads])
        assert first > self.log_key, f"rule 13: keys grow along the log: {first} behind {self.log_key}"
        self.log_index.append(prefix.order, hashes)
        self.keyed.apply_queued(self.queues, prefix.counts, self.log_index, self.view.is_or_descends_from)
        for slot, count in prefix.counts.items():
            self.queues[slot].move_to_log(count)
        self.log_key = (prefix.last_stamp, self.ranks[prefix.order[-1]])
        self.records.append(
            LogAppended(after + 1, self.log_index.spans(after, self.log_index.length), hashes, self.stable)
        )

    # STABLE

    def advance_stable(self, held_by_all: list[int]) -> bool:
        """Move the stable index to the last entry that every member, silent ones included, is known to have persisted
        (rule 33)."""
        index = self.log_index.length
        for slot in self.open.slots:
            queue, held = self.queues[slot], held_by_all[slot]
            if held < queue.in_log:
                index = min(index, self.log_index.index_of(queue.origin, held + 1) - 1)
        if index <= self.stable:
            return False
        self._mark_final(index)
        record_stable(self.records, index)
        return True

    def _mark_final(self, index: int) -> None:
        self.stable = index
        self.own_synced = self._compute_own_synced()
        self._final_index = self.final_index
        for slot in self.open.slots:
            self.queues[slot].mark_final(self.log_index.seq_within(slot, self._final_index))
        self.open.drop_settled()
        self.keyed.mark_final(self.final_index)

    def _compute_own_synced(self) -> int:
        return self.log_index.seq_within(self.slots[self.own.origin], self.stable)

    def hash_if_view_closed(self, index: int) -> bytes | None:
        """The chain hash at ``index`` if the view were closed with the transactions persisted here: the log, then the
        queue in key order. None above all that, and below the log start."""
        return hash_if_closed(self.log_index, self.queues, self.ranks, index)

    # VIEW

    def accept_view(
        self, view: View, cut: int, spans: list[Span], stamps: list[int], waiting: list[ReassignedStamps]
    ) -> bool:
        """Make this view the latest (rule 21): truncate the log after ``cut`` and append ``spans``, whose entries have
        these ``stamps``. ``waiting`` get new stamps, and so do the own transactions that have none. False, with nothing
        changed, when the result is not the log that the view names."""
        assert not missing_spans(self.by_origin, last_seqs(spans, waiting))
        assert self.final_index <= cut <= self.log_index.length, (self.final_index, cut, self.log_index.length)
        if not base_fits(self.by_origin, self.log_index, view, cut, spans, waiting):
            return False
        stands = self.configurations.valid_up_to(self.log_index, self.final_index, cut, view.is_or_descends_from)
        if stands < cut:  # the order stays, but what follows has to take effect again, as on every other master
            again = self.log_index.spans(stands, cut)
            cut, spans, stamps = stands, again + spans, stamps_of(self.by_origin, again) + stamps
        hashes = base_chain_hashes(self.by_origin, self.log_index.hash_at(cut), spans, stamps)
        if hashes is None or (hashes[-HASH_BYTES:] or self.log_index.hash_at(cut)) != view.base_hash:
            return False
        if (
            self.view.bootstrap_configuration is None
            and view.bootstrap_configuration is not None
            and not self.log_index.length
        ):
            self.keyed.set_bootstrap(view.bootstrap_configuration)
        self._record_abandoned(view, cut)
        self.unchanged_until = common_prefix_end(self.log_index, cut, hashes)
        shown = self.log_index.length if self.installed else self.stable  # of a base nothing was, before its install
        self.displaced = (
            abandoned_after(self.log_index, self.unchanged_until, [], shown) if shown > self.unchanged_until else None
        )
        self.displaced_view = self.view.number if self.installed else (self.view.ancestors or [NO_VIEW])[-1]
        for queue, count in zip(self.queues, self.log_index.truncate(cut), strict=True):
            if count:
                queue.return_to_queue(count)
                self.keyed.wait_again(queue, count)
        self.keyed.truncate(cut)
        self.view, origins = view, [Origin(*one) for one in view.origins]
        self.log_index.reassign_slots(origins)
        self._assign_slots(origins)
        self.installed = False
        self.truncated_to = min(self.truncated_to, cut)
        self.truncated_executed_entries = cut < self.stable
        self.stable = min(self.stable, cut)
        self.own_synced = self._compute_own_synced()
        stamped = restamp(self.by_origin, spans, stamps)
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
            keys = keys_in_log_after(self.by_origin, self.log_index, cut)
            self.abandoned_branches.append(abandoned_after(self.log_index, cut, keys, self.log_index.length))

    def install_view(self) -> None:
        """Every member has accepted: the base of the view is stable."""
        self.installed = True
        self._mark_final(self.view.base_index)
        self.records.append(ViewInstalled(*self.view.number))

    def _append_base(self, spans: list[Span], hashes: bytes) -> None:
        counts: dict[int, int] = {}
        order = bytearray()
        for span in spans:
            slot = self.slots[Origin(span.node, span.birth)]
            assert span.first_seq == self.queues[slot].in_log + counts.get(slot, 0) + 1, (span, counts)
            counts[slot] = counts.get(slot, 0) + span.count
            order += bytes([slot]) * span.count
        self.log_index.append(bytes(order), hashes)
        self.keyed.apply_queued(self.queues, counts, self.log_index, self.view.is_or_descends_from)
        for slot, count in counts.items():
            self.queues[slot].move_to_log(count)

    def _stamp_unstamped(self) -> list[ReassignedStamps]:
        if not self.unstamped:
            return []
        own, count = self.own, len(self.unstamped)
        first, stamps = own.held + 1, list(range(self.last_stamp + 1, self.last_stamp + 1 + count))
        own.extend_stamped(self.unstamped, stamps)
        self.unstamped.clear()
        self.last_stamp = stamps[-1]
        return [ReassignedStamps(own.origin.node, own.origin.birth, first, stamps)]
