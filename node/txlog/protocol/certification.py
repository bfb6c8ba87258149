"""Whether the effect of an update that was evaluated once counts: decided from the log in front of it alone.

A master evaluated the update on the state at its *base*. The effect counts if the update, evaluated at the effect's own
index with the same random values, would certainly do the same. The state that was read is that of the base's position.
If that is in this log, only entries behind it can have changed what was read. Otherwise a rejoin has moved what was
read: entries that were *seen* may be missing, in another order, refused, or count only here.

Pure: all masters decide alike. Nothing calls it yet (docs/decisions/0094-the-model-of-certification.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from txlog.model.declared_writes import WriteSet
from txlog.model.ids import Origin, Txid
from txlog.model.quad_pattern import PatternTerm, QuadPattern, sets_meet


class EffectRefusal(StrEnum):
    """Why an effect changes nothing."""

    NONE = ""
    OLD = "old"
    """Too many entries, or too many bytes, since what was read."""
    MISSING = "missing"
    """An entry that was seen is not before it in this log."""
    OTHER = "other"
    """An entry that was not seen wrote what was read."""
    TEXT = "text"
    """A text that was seen may do something else at its index here."""
    FALLEN = "fallen"
    """An entry that was seen changes nothing here."""
    RISEN = "risen"
    """An entry that was seen counts here, and perhaps not where it was seen."""
    ORDER = "order"
    """Entries that were seen are perhaps in another order here."""


class EffectBase(NamedTuple):
    """What was read. ``index``, ``hash``: the position of the worker before the first query; ``index_after``,
    ``hash_after``: behind the last one. ``seen``: the last seq of each origin in the log at ``index``. ``final_index``:
    the final index then, at most ``index``: up to there no branch has another log."""

    log_index: int
    hash: bytes
    seen: Mapping[Origin, int]
    final_index: int
    index_after: int
    hash_after: bytes

    def has_seen(self, txid: Txid) -> bool:
        """Whether a transaction was in the log that was read."""
        return txid.seq <= self.seen.get(txid.origin, 0)


class CertifiedEntry(NamedTuple):
    """An entry of the log, as far as verdicts need it. ``counts``: it is no no-op. ``key``: of a client. ``base``: of
    an effect. ``is_retry``: it counts only if an earlier try is refused."""

    log_index: int
    txid: Txid
    writes: WriteSet
    counts: bool
    payload_bytes: int = 0
    key: str = ""
    base: EffectBase | None = None
    is_retry: bool = False


class CertifiedLog(Protocol):
    """The log in front of an effect."""

    @property
    def first_index(self) -> int:
        """The first entry that this master still has."""

    def hash_at(self, index: int) -> bytes | None:
        """The hash of the log at an index; None above its end, and where it is no longer known."""

    def last_seq(self, origin: Origin) -> int:
        """The last transaction of an origin in the log; 0 for none."""

    def entry_at(self, index: int) -> CertifiedEntry:
        """The entry at an index from :attr:`first_index` on."""

    def has_other_with_key(self, key: str, txid: Txid) -> bool:
        """Whether another entry of the log, on either side of that one, has this key of a client."""


class CertificationWindow(NamedTuple):
    """How much of the log may be between what was read and its effect. Half of it, where a rejoin moved what was read:
    so what counts there was not too old before."""

    entries: int = 250_000
    payload_bytes: int = 256 << 20

    def halved(self) -> CertificationWindow:
        """For a base of another branch."""
        return CertificationWindow(self.entries // 2, self.payload_bytes // 2)


class EffectVerdict(NamedTuple):
    """``conflict``: the transaction in the way, if one is."""

    refusal: EffectRefusal
    conflict: Txid | None = None

    @property
    def counts(self) -> bool:
        """Whether the effect takes place."""
        return not self.refusal


COUNTS: Final = EffectVerdict(EffectRefusal.NONE)


class CannotDecide(Exception):
    """The log begins behind an entry that the verdict needs. The rules of trimming keep it, or carry the verdict."""


def is_on_chain(base: EffectBase, log: CertifiedLog, before: int) -> bool:
    """Whether the position behind the last query is in this log, in front of an index."""
    return base.index_after < before and log.hash_at(base.index_after) == base.hash_after


def certify(
    base: EffectBase,
    reads: tuple[QuadPattern, ...],
    log_index: int,
    log: CertifiedLog,
    window: CertificationWindow,
) -> EffectVerdict:
    """The verdict on an effect at an index of a log. ``reads``: a superset of all that it depends on.
    :class:`CannotDecide` where the log does not go back far enough."""
    on_chain = is_on_chain(base, log, log_index)
    if _is_too_old(base, log_index, log, window if on_chain else window.halved(), on_chain=on_chain):
        return EffectVerdict(EffectRefusal.OLD)
    if not on_chain and any(log.last_seq(origin) < seq for origin, seq in base.seen.items()):
        return EffectVerdict(EffectRefusal.MISSING)
    first = (base.log_index if on_chain else base.final_index) + 1
    if first < log.first_index:
        raise CannotDecide(f"the log begins at {log.first_index}, and a verdict needs {first}")
    judge = _judge_on_chain if on_chain else _judge_moved
    return judge(base, reads, (log.entry_at(index) for index in range(first, log_index)), log)


def _is_too_old(
    base: EffectBase, log_index: int, log: CertifiedLog, window: CertificationWindow, *, on_chain: bool
) -> bool:
    """Age counts from the last entry that was seen."""
    payload_bytes, index = 0, log_index - 1
    while index > (base.log_index if on_chain else 0):
        if log_index - index > window.entries or payload_bytes > window.payload_bytes:
            return True
        if index < log.first_index:
            raise CannotDecide(f"the log begins at {log.first_index}, and the last entry that was seen is before it")
        entry = log.entry_at(index)
        if not on_chain and base.has_seen(entry.txid):
            break
        payload_bytes += entry.payload_bytes
        index -= 1
    return log_index - index > window.entries or payload_bytes > window.payload_bytes


def _judge_on_chain(
    _base: EffectBase, reads: tuple[QuadPattern, ...], entries: Iterable[CertifiedEntry], _log: CertifiedLog
) -> EffectVerdict:
    """What was read is a state of this log. What is refused since then wrote nothing."""
    for entry in entries:
        if entry.counts and sets_meet(entry.writes.patterns(), reads):
            return EffectVerdict(EffectRefusal.OTHER, entry.txid)
    return COUNTS


def _judge_moved(
    base: EffectBase, reads: tuple[QuadPattern, ...], entries: Iterable[CertifiedEntry], log: CertifiedLog
) -> EffectVerdict:
    """What was read is a state of another branch. An unseen entry is in the way also where it is refused here: so no
    effect counts because another one fell."""
    order = _OrderCheck()
    for entry in entries:
        if not sets_meet(entry.writes.patterns(), reads):
            continue
        refusal = _refusal_of_seen(entry, log) if base.has_seen(entry.txid) else EffectRefusal.OTHER
        if refusal:
            return EffectVerdict(refusal, entry.txid)
        order.add(entry)
    return EffectVerdict(EffectRefusal.ORDER, order.conflict) if order.conflict is not None else COUNTS


def _refusal_of_seen(entry: CertifiedEntry, log: CertifiedLog) -> EffectRefusal:
    """Why an entry that was seen may have another outcome at its index here."""
    if entry.writes.may_write:
        return EffectRefusal.TEXT
    if not entry.counts:
        return EffectRefusal.FALLEN
    was_judged = entry.base is not None and is_on_chain(entry.base, log, entry.log_index)
    if was_judged or entry.is_retry or (entry.key and log.has_other_with_key(entry.key, entry.txid)):
        return EffectRefusal.RISEN
    return EffectRefusal.NONE


class _OrderCheck:
    """``conflict``: a transaction that adds a quad that one of another origin deletes, or the other way round. Entries
    of one origin are in the same order everywhere."""

    def __init__(self) -> None:
        self.conflict: Txid | None = None
        self._deleted = _QuadsByOrigin()
        self._added = _QuadsByOrigin()

    def add(self, entry: CertifiedEntry) -> None:
        """An entry that was seen and counts."""
        origin, writes = entry.txid.origin, entry.writes
        if self._added.has_other(origin, writes.deletes) or self._deleted.has_other(origin, writes.adds):
            self.conflict = self.conflict or entry.txid
        self._deleted.add(origin, writes.deletes)
        self._added.add(origin, writes.adds)


class _QuadsByOrigin:
    """Quads by all terms but the value, which may be None: any."""

    def __init__(self) -> None:
        self._found: dict[QuadPattern, dict[PatternTerm, set[Origin]]] = {}
        self._with_any_term: dict[QuadPattern, set[Origin]] = {}

    def add(self, origin: Origin, quads: Iterable[QuadPattern]) -> None:
        """Of a transaction of this origin."""
        for quad in quads:
            if None in quad[:3]:
                self._with_any_term.setdefault(quad, set()).add(origin)
            else:
                by_value = self._found.setdefault(quad._replace(value=None), {})
                by_value.setdefault(quad.value, set()).add(origin)

    def has_other(self, origin: Origin, quads: Iterable[QuadPattern]) -> bool:
        """Whether another origin has one that meets one of these."""
        return any(self._has_other(origin, quad) for quad in quads)

    def _has_other(self, origin: Origin, quad: QuadPattern) -> bool:
        others = [origins for each, origins in self._with_any_term.items() if each.meets(quad)]
        if None in quad[:3]:
            others += [
                origins
                for each, by_value in self._found.items()
                for value, origins in by_value.items()
                if each._replace(value=value).meets(quad)
            ]
        else:
            by_value = self._found.get(quad._replace(value=None), {})
            values = by_value if quad.value is None else (quad.value, None)
            others += [by_value[value] for value in values if value in by_value]
        return any(origins - {origin} for origins in others)
