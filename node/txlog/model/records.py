"""What a master makes durable, in the order in which it happens. The core emits records, the journal stores them.

A record is durable when its fsync has returned; nothing that depends on it leaves the process before
(rules 3, 5, 8, 15, 33). All indexes count log entries from 1; 0 means "nothing yet".
"""

from __future__ import annotations

from array import array
from typing import Final

import msgspec

from txlog.model.bounds import Birth, NodeId, Seq, Stamp
from txlog.model.configuration import Configuration
from txlog.model.entry import Span, TransactionRun
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.view import NO_VIEW, Number, View


class TransactionsPersisted(msgspec.Struct, frozen=True):
    """These transactions, own or replicated, are persisted with their payload. ``contents``: their content hashes,
    16 bytes each, concatenated. Seqs of one origin arrive without a gap."""

    run: TransactionRun
    contents: bytes


class LogAppended(msgspec.Struct, frozen=True):
    """The log grew: ``spans`` are the entries from ``first_index`` on, ``hashes`` the chain hash after each of
    them (16 bytes each), ``stable`` the stable index afterwards (rule 33)."""

    first_index: int
    spans: list[Span]
    hashes: bytes
    stable: int


class StableAdvanced(msgspec.Struct, frozen=True):
    """The stable index grew while the log did not."""

    index: int


class CounterCeiling(msgspec.Struct, frozen=True):
    """No counter above this stamp was ever posted; a restart resumes here (rule 5)."""

    stamp: int


class ViewPromised(msgspec.Struct, frozen=True):
    """A report was sent for the proposal of this number: the view in force is stopped for good. No lower view is
    accepted, installed or posted in any more (rule 34). Numbers grow from record to record."""

    epoch: int
    ballot: int
    coordinator: str


class ReassignedStamps(msgspec.Struct, array_like=True, frozen=True):
    """New stamps of persisted transactions of one origin: ``stamps[i]`` is that of seq ``first_seq + i``."""

    node: NodeId
    birth: Birth
    first_seq: Seq
    stamps: list[Stamp]


class ViewAccepted(msgspec.Struct, frozen=True):
    """From now on this view is this master's latest, installed or not (rule 21); its promise is at least its number.

    The log is truncated after index ``cut``; the truncated transactions stay persisted. It continues with ``spans``, up
    to ``view.base_index``; ``hashes`` are the chain hash after each of these entries. ``reassigned``: transactions, in
    the base or waiting, that have another stamp from now on than they were persisted with. An own transaction that was
    persisted while no view was in force had none (0). The stable index becomes the lesser of itself and ``cut``."""

    view: View
    cut: int = 0
    spans: list[Span] = []
    hashes: bytes = b""
    reassigned: list[ReassignedStamps] = []


class ViewInstalled(msgspec.Struct, frozen=True):
    """The accepted view of this number is installed: the stable index is the index of its base."""

    epoch: int
    ballot: int
    coordinator: str


class ViewLeft(msgspec.Struct, frozen=True):
    """This master has left the view of this number, the latest it has accepted: it is stopped there for good."""

    epoch: int
    ballot: int
    coordinator: str


class AbandonedBranch(msgspec.Struct, array_like=True, frozen=True):
    """A part of the log that a view truncated, after ``after`` entries with this chain hash. It has ``spans``, the
    chain hash after each entry, and the idempotency keys in it with their transactions. Kept where ``None`` is the
    strategy of the view or of one before it: workers that executed it do not go back."""

    after: int
    after_hash: bytes
    spans: list[Span]
    hashes: bytes
    keys: list[tuple[str, Txid]]


class IdempotencyKeyRecord(msgspec.Struct, array_like=True, frozen=True):
    """The transaction that counts for an idempotency key, as :class:`txlog.protocol.log.idempotency_keys.FirstUse` has
    it."""

    key: str
    node: str
    birth: int
    seq: int
    stamp: int
    content: bytes


class KeyTablePart(msgspec.Struct, array_like=True, frozen=True):
    """A part of a table of idempotency keys (:mod:`txlog.protocol.log.key_table`): buckets in order. ``origins``: slot
    in a row → node, birth. ``lengths``: the bytes of each bucket (u32 each); ``rows``: the buckets, concatenated."""

    origins: list[tuple[str, int]]
    lengths: bytes
    rows: bytes


class KeyTableWritten(msgspec.Struct, frozen=True):
    """A part of the table of keys, in front of the :class:`LogTrimmed` that needs it. ``number``: from 0 on."""

    number: int
    part: KeyTablePart


class OpenRecord(msgspec.Struct, array_like=True, frozen=True):
    """A synchronous transaction of the log that no decision has named: its index, txid, kind, key, the stamp from which
    the age of its client's key counts, and its content hash."""

    index: int
    node: str
    birth: int
    seq: int
    kind: int
    key: str
    stamp: int
    content: bytes


class SynchronousState(msgspec.Struct, array_like=True, frozen=True):
    """What synchronous transactions have come to at an index, which is final: what a log start carries of them, without
    payloads (rule S13). Transactions are node, birth, seq.

    ``open``: in the order of the log. ``early``: decisions that precede what they name: whether it is a COMMIT, and the
    stamp. ``rolled_back``: spans. ``idle_names``: by index of a decision after the log start, what it names in vain.
    ``early_commits``: the indices after the log start of transactions that take effect at their own place. ``repeats``:
    effects after the log start that repeat a key: index, transaction, the one that counts instead. ``reaches``: for
    decisions after the log start, its index and that of the first transaction that it concludes."""

    index: int = 0
    open: list[OpenRecord] = []
    early: list[tuple[str, int, int, bool, int]] = []
    rolled_back: list[Span] = []
    idle_names: list[tuple[int, list[Span]]] = []
    early_commits: list[int] = []
    repeats: list[tuple[int, tuple[str, int, int], tuple[str, int, int]]] = []
    reaches: list[tuple[int, int]] = []


class LogStart(msgspec.Struct, array_like=True, frozen=True):
    """What is kept for ever of a log that was trimmed after its first ``index`` entries (rule 19). ``hash``: the chain
    hash there; ``last``, ``stamp``: the last entry's origin and stamp; ``seqs``: the last seq of each origin among
    them (node, birth, seq). ``keys``: those that may still be repeated, where an older version wrote it;
    ``skips``: the txids that skips name, with the index of the skip; ``abandoned_branches``: those known then."""

    index: int
    hash: bytes
    last: tuple[str, int]
    stamp: int
    seqs: list[tuple[str, int, int]]
    keys: list[IdempotencyKeyRecord]
    skips: list[tuple[str, int]]
    abandoned_branches: list[AbandonedBranch]
    configuration: tuple[int, Configuration] | None = None
    """The configuration in force there, and the index of the entry since which it is; None without a founding one."""
    retention: int = 0
    """For how long keys are kept there, in stamps."""
    retentions: list[tuple[int, int, int]] = []
    """Where the retention was changed before: index, stamp, and the retention until then."""
    keys_index: int = 0
    """The keys, the retention and ``noops`` are those of the log up to this index, which is final. At or after
    ``index``; 0 where an older version wrote it: they are those at ``index``."""
    noops: list[tuple[int, str, int, int]] = []
    """The entries after ``index``, up to ``keys_index``, that repeat a key: index, and the txid that counts instead
    (node, birth, seq)."""
    key_parts: int = 0
    """In the journal: the number of :class:`KeyTablePart` records before it that have the table of keys."""
    key_table: list[KeyTablePart] = []
    """The table of keys, wherever a log start is used: in a snapshot, and as recovery returns it."""
    has_first_stamps: bool = False
    """Entries of the log have a first stamp: every configured master knew it then."""
    served_from: int = 0
    """Positions from here on can be served; 0: from ``index`` on. Between the two, payloads are missing of synchronous
    transactions that take effect there."""
    synchronous: SynchronousState | None = None
    """None in a cluster without synchronous transactions."""

    def without_keys(self) -> LogStart:
        """The log start as a running master keeps it: its keys are in the log's own table."""
        return msgspec.structs.replace(self, keys=[], noops=[], key_table=[], synchronous=None)

    def last_seq_of(self, node: str, birth: int) -> int:
        """The last seq of an origin at the log start, 0 for one that has none."""
        return next((seq for n, b, seq in self.seqs if n == node and b == birth), 0)


EMPTY_LOG_START: Final = LogStart(0, b"", ("", 0), 0, [], [], [], [])
"""The log start of a log that was never trimmed."""


class LogTrimmed(msgspec.Struct, frozen=True):
    """The log begins after this log start from now on. Entries below may be gone from the disk once this is durable. A
    log start above the log's end is an installed snapshot of another master; the log then is what the snapshot has."""

    log_start: LogStart


class OperatorOverrides(msgspec.Struct, array_like=True, frozen=True):
    """All operator overrides that this master has taken and that have had no effect yet; they replace those of the
    record before. ``bootstrap_members``: the masters that bootstrap the cluster (``txlog bootstrap``), by node.
    ``excluded_members``: members that the next view excludes (``txlog force-view``): node, birth, and the latest
    start of the member that was seen."""

    bootstrap_members: list[str] = []
    excluded_members: list[tuple[str, int, int]] = []

    def remaining_after(self, view: View, installed: bool) -> OperatorOverrides:
        """The overrides left once this view is accepted here, or ``installed``. A bootstrap is complete with the
        install of its first view, or where a later view is known. An exclusion is complete when the view lacks the
        member."""
        begin = [] if installed or view.ancestors else self.bootstrap_members
        return OperatorOverrides(
            begin, [one for one in self.excluded_members if view.has_member(Origin(one[0], one[1]))]
        )


NO_OVERRIDES: Final = OperatorOverrides()


Record = (
    TransactionsPersisted
    | LogAppended
    | StableAdvanced
    | CounterCeiling
    | ViewPromised
    | ViewAccepted
    | ViewInstalled
    | ViewLeft
    | KeyTableWritten
    | LogTrimmed
    | OperatorOverrides
)


class QueuedMetadata(msgspec.Struct, frozen=True):
    """Persisted transactions after the stable part of the log, as recovery returns them: ``first_seq`` on, parallel
    columns (of numbers: 8 bytes each, for there may be millions). ``kinds`` are ``kind | payload bytes << 8``,
    ``contents`` the content hashes, 16 bytes each. A stamp of 0: persisted while no view was in force, not stamped
    yet. ``first_stamps``: 8 bytes each, 0 where none is recorded; empty if all are 0."""

    node: str
    birth: int
    first_seq: int
    stamps: array[int]
    keys: list[str]
    kinds: array[int]
    contents: bytearray
    first_stamps: array[int] = msgspec.field(default_factory=lambda: array("Q"))


class RecoveredKeyEntry(msgspec.Struct, frozen=True):
    """An entry of the log whose ``key`` is not empty: an idempotency key, or (``kind`` SKIP) the txid of the
    transaction to skip. ``content`` is its content hash, ``span`` its txid (count 1). ``first_stamp``: 0 where none is
    recorded."""

    index: int
    kind: int
    key: str
    stamp: int
    content: bytes
    span: Span
    first_stamp: int = 0


class Damage(msgspec.Struct, frozen=True):
    """A bad record that is no torn tail (rule 28): records ``first`` to ``last`` (record numbers) cannot be read.

    ``log_from``/``log_to``: entries of the log whose order was stored there (from > to: none). ``spans``: the persisted
    transactions that were stored there and have no copy elsewhere in the journal (replicated and own). Both can be
    fetched from any master that has them, checked against ``end_hash`` (chain hash at ``log_to``) and by content
    hash."""

    first: int
    last: int
    where: str
    log_from: int
    log_to: int
    end_hash: bytes
    spans: list[Span]


class RecoveredState(msgspec.Struct):
    """All that a master knows when its journal has been read, ``start`` already raised and durable (rule 1).

    ``log_spans`` is the order of the log after its ``log_start``, ``log_hashes`` its chain hashes there (16 bytes
    each, the first entry after the log start first). Where the order itself is damaged, a span with an empty node
    replaces the missing entries, and their hashes are zeros except the last. ``log_stamp`` is the stamp of the last
    entry, 0 without one. ``queued`` lists, per origin, the persisted transactions beyond the stable part of the log,
    in the log or not. While a silent master is out, it lists those beyond the index that was stable when the master
    went out (``View.diverged_index``). ``keys`` are the keyed and skip entries of the log, in order. ``is_new``: this
    start created the journal. ``installed`` is the accepted view or None. ``accepted_number``, ``promised`` and
    ``left`` are known even where the records themselves cannot be read. They are the number of the latest accepted
    view, the highest number promised or accepted, and the number of the view that this master has left; (0, 0, "")
    without one. ``abandoned_branches``: oldest first, without those that cannot be read in full. ``overrides``: the
    operator's overrides that have had no effect yet."""

    node: str
    birth: int
    start: int
    is_new: bool
    accepted: View | None
    installed: View | None
    ceiling: int
    stable: int
    log_spans: list[Span]
    log_hashes: bytearray
    log_stamp: int
    queued: list[QueuedMetadata]
    keys: list[RecoveredKeyEntry]
    damage: list[Damage]
    accepted_number: Number = NO_VIEW
    promised: Number = NO_VIEW
    left: Number = NO_VIEW
    abandoned_branches: list[AbandonedBranch] = []
    log_start: LogStart = EMPTY_LOG_START
    overrides: OperatorOverrides = NO_OVERRIDES

    @property
    def log_end(self) -> int:
        """Index of the last entry."""
        return self.log_start.index + len(self.log_hashes) // HASH_BYTES

    def hash_at(self, index: int) -> bytes:
        """Chain hash after an entry that is kept, or at the log start."""
        at = HASH_BYTES * (index - self.log_start.index)
        return bytes(self.log_hashes[at - HASH_BYTES : at]) if at else self.log_start.hash
