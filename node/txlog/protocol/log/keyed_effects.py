"""What the keyed entries of a log mean: idempotency keys, skips, changes of the configuration, synchronous transactions
and decisions about them."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.model.configuration import Configuration, InLineage
from txlog.model.entry import KIND_CONFIG, KIND_SKIP
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.records import LogStart
from txlog.model.synchronous_entry import SYNCHRONOUS_AND_DECISION, idempotency_key_of
from txlog.protocol.log.configuration_history import ConfigurationHistory
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.incoming_queue import OriginQueue
from txlog.protocol.log.key_table import FirstUse
from txlog.protocol.log.limbo import LimboEntry
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.log.synchronous_effects import SynchronousEffects


class KeyedEffects:
    """``noops``: index → txid that counts instead. ``skips``: txid → index of the entry that skips it."""

    def __init__(self, first: Configuration) -> None:
        self.configurations = ConfigurationHistory(first)
        self.keys = IdempotencyKeys(first.key_retention_ms)
        self.noops: dict[int, Txid] = {}
        self.skips: dict[str, int] = {}
        self.synchronous = SynchronousEffects(self.keys)

    def apply_queued(
        self, queues: list[OriginQueue], counts: dict[int, int], history: LogIndex, in_lineage: InLineage
    ) -> None:
        """The first ``counts[slot]`` of each queue, which are in ``history`` already, take effect in its order."""
        if not any(queues[slot].keyed_count for slot in counts):
            return
        keyed = [
            (history.index_of(queues[slot].origin, seq), slot, seq)
            for slot, count in counts.items()
            for seq in queues[slot].keyed(count)
        ]
        keyed.sort()
        for index, slot, seq in keyed:
            queue = queues[slot]
            kind, key, txid = queue.kind(seq), queue.key(seq), Txid(queue.origin, seq)
            stamp, first_stamp, content = queue.stamp(seq), queue.first_stamp(seq), queue.content(seq)
            self.apply(index, kind, key, txid, stamp, first_stamp, content, in_lineage, history)
            if kind == KIND_SKIP:
                self.keys.waiting.pop(key, None)

    def apply(
        self,
        index: int,
        kind: int,
        key: str,
        txid: Txid,
        stamp: int,
        first_stamp: int,
        content: bytes,
        in_lineage: InLineage,
        history: LogIndex,
    ) -> None:
        """The entry at ``index`` takes effect, in the order of the log. ``first_stamp``: 0 for none. ``in_lineage``:
        from which views the log's view descends; a configuration change of another branch has no effect. ``history``:
        the log, which may have later entries already."""
        if kind == KIND_SKIP:
            self.skips.setdefault(key, index)
        elif kind == KIND_CONFIG:
            if self.configurations.apply(index, txid, key, in_lineage):
                self.keys.change_retention(index, stamp, self.configurations.latest.key_retention_ms)
        elif kind in SYNCHRONOUS_AND_DECISION:
            self.keys.has_first_stamps |= first_stamp > 0
            self.synchronous.apply(LimboEntry(index, txid, kind, key, first_stamp or stamp, content), history)
            if index in self.synchronous.limbo.early_commits:
                self._note_early_repeat(index, txid)
        else:
            self.keys.has_first_stamps |= first_stamp > 0
            counts = self.keys.record_use(index, key, FirstUse(txid, first_stamp or stamp, content))
            if counts is not None:
                self.noops[index] = counts

    def _note_early_repeat(self, index: int, txid: Txid) -> None:
        """One that takes effect at its own place is passed over there as any other entry that repeats a key."""
        counts = self.synchronous.repeats_at(index).get(txid)
        if counts is not None:
            self.noops[index] = counts

    def noop_of(self, txid: Txid, index: int) -> Txid | None:
        """The transaction that counts instead of this one, which would take effect at ``index``; None for none."""
        return self.noops.get(index) or self.synchronous.repeats_at(index).get(txid)

    def track_waiting(
        self,
        origin: Origin,
        first_seq: int,
        keys: list[str],
        stamps: Sequence[int],
        hashes: bytes | bytearray,
        kinds: Sequence[int],
        now: int,
    ) -> None:
        """These transactions wait for their order. ``hashes``: their content hashes, concatenated. ``stamps``: their
        first stamps, or the stamps of those that have none recorded; 0 for neither: they came at ``now``."""
        if not any(keys):
            return
        for offset, named in enumerate(keys):
            if not named:
                continue
            kind, txid = kinds[offset] & 255, Txid(origin, first_seq + offset)
            key = named
            if kind in SYNCHRONOUS_AND_DECISION:
                self.synchronous.wait(txid, kind, named)
                key = idempotency_key_of(kind, named)
            if key and kind == KIND_CONFIG:
                self.configurations.held[txid] = key
            elif key:
                content = bytes(hashes[offset * HASH_BYTES : (offset + 1) * HASH_BYTES])
                self.keys.wait(key, FirstUse(txid, stamps[offset] or now, content))

    def wait_again(self, queue: OriginQueue, count: int) -> None:
        """The first ``count`` of a queue have left the log."""
        for seq in queue.keyed(count):
            txid, kind, key = Txid(queue.origin, seq), queue.kind(seq), queue.key(seq)
            if kind in SYNCHRONOUS_AND_DECISION:
                self.synchronous.wait(txid, kind, key)
            if key := idempotency_key_of(kind, key):
                self.keys.wait(key, FirstUse(txid, queue.age_stamp(seq), queue.content(seq)))

    def mark_final(self, index: int) -> None:
        """No entry up to here leaves the log again."""
        self.keys.mark_final(index)
        self.synchronous.mark_final(index)

    def restore(self, start: LogStart) -> None:
        """The log begins after this log start."""
        self.keys.restore(start)
        self.synchronous.restore(start)
        self.noops = {index: Txid(Origin(node, birth), seq) for index, node, birth, seq in start.noops}
        self.skips = dict(start.skips)
        if start.configuration is not None:
            self.configurations.restore(*start.configuration)

    def set_bootstrap(self, configuration: Configuration) -> None:
        """The bootstrap record arrives before the log has any entry."""
        self.configurations.set_bootstrap(configuration)
        self.keys.initialize_retention(configuration.key_retention_ms)

    def trim(self, index: int, history: LogIndex) -> None:
        """The log was trimmed up to ``index``; ``history`` is the rest of it."""
        self.noops = {at: txid for at, txid in self.noops.items() if at > index}
        self.synchronous.trim(index)
        self.configurations.trim(index)
        held = self.configurations.held
        self.configurations.held = {
            txid: key for txid, key in held.items() if not history.is_trimmed(txid.origin, txid.seq)
        }

    def truncate(self, cut: int) -> None:
        """The log was truncated after ``cut``."""
        self.keys.truncate(cut)
        self.synchronous.truncate(cut)
        self.configurations.truncate(cut)
        known = max(cut, self.keys.known_until)
        self.noops = {index: txid for index, txid in self.noops.items() if index <= known}
        self.skips = {txid: index for txid, index in self.skips.items() if index <= cut}
