"""What the keyed entries of a log mean: idempotency keys, skips, and changes of the configuration."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.model.configuration import Configuration, InLineage
from txlog.model.entry import KIND_CONFIG, KIND_SKIP
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.records import LogStart
from txlog.protocol.log.configuration_history import ConfigurationHistory
from txlog.protocol.log.idempotency_keys import FirstUse, IdempotencyKeys
from txlog.protocol.log.log_index import LogIndex


class KeyedEffects:
    """``noops``: index → txid that counts instead. ``skips``: txid → index of the entry that skips it."""

    def __init__(self, first: Configuration) -> None:
        self.configurations = ConfigurationHistory(first)
        self.keys = IdempotencyKeys(first.key_retention_ms)
        self.noops: dict[int, Txid] = {}
        self.skips: dict[str, int] = {}

    def apply(self, index: int, kind: int, key: str, use: FirstUse, in_lineage: InLineage) -> None:
        """The entry at ``index`` takes effect, in the order of the log. ``in_lineage``: from which views the
        log's view descends; a configuration change of another branch has no effect."""
        if kind == KIND_SKIP:
            self.skips.setdefault(key, index)
        elif kind == KIND_CONFIG:
            if self.configurations.apply(index, use.txid, key, in_lineage):
                self.keys.change_retention(index, use.stamp, self.configurations.latest.key_retention_ms)
        else:
            counts = self.keys.record_use(index, key, use)
            if counts is not None:
                self.noops[index] = counts

    def track_waiting(
        self,
        origin: Origin,
        first_seq: int,
        keys: list[str],
        stamps: Sequence[int],
        hashes: bytes | bytearray,
        kinds: Sequence[int],
    ) -> None:
        """These transactions wait for their order. ``hashes``: their content hashes, concatenated."""
        if not any(keys):
            return
        for offset, key in enumerate(keys):
            if key and kinds[offset] & 255 == KIND_CONFIG:
                self.configurations.held[Txid(origin, first_seq + offset)] = key
            elif key:
                content = bytes(hashes[offset * HASH_BYTES : (offset + 1) * HASH_BYTES])
                first = FirstUse(Txid(origin, first_seq + offset), stamps[offset], content)
                self.keys.waiting.setdefault(key, first)

    def restore(self, start: LogStart) -> None:
        """The log begins after this log start."""
        self.keys.restore(start)
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
        self.configurations.trim(index)
        held = self.configurations.held
        self.configurations.held = {
            txid: key for txid, key in held.items() if not history.is_trimmed(txid.origin, txid.seq)
        }

    def truncate(self, cut: int) -> None:
        """The log was truncated after ``cut``."""
        self.keys.truncate(cut)
        self.configurations.truncate(cut)
        self.noops = {index: txid for index, txid in self.noops.items() if index <= cut}
        self.skips = {txid: index for txid, index in self.skips.items() if index <= cut}
