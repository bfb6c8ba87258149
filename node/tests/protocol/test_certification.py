"""The verdict on an effect: as the model says in its runs, as a literal reading of the rule says, and case by case."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from e2e.model.certification import values as model
from e2e.model.certification.directed_run import HISTORIES
from e2e.model.certification.log_chain import LogNode
from e2e.model.certification.random_run import run
from e2e.model.certification.verdicts import ModelCertifier
from txlog.model.declared_writes import WRITES_ANYTHING, WRITES_NOTHING, WriteSet
from txlog.model.ids import Origin, Txid
from txlog.model.quad_pattern import DEFAULT_GRAPH, EVERY_QUAD, QuadPattern
from txlog.protocol.certification import (
    COUNTS,
    CannotDecide,
    CertificationWindow,
    CertifiedEntry,
    EffectBase,
    EffectRefusal,
    EffectVerdict,
    certify,
)

UNBOUNDED = CertificationWindow(1_000, 1 << 40)
UK, DE = Origin("uk", 1), Origin("de", 2)


@dataclass
class ListedLog:
    """A log as a list. ``branch``: another log has other hashes."""

    entries: Sequence[CertifiedEntry]
    first_index: int = 1
    branch: str = ""
    branched_behind: int = 0

    def hash_at(self, index: int) -> bytes | None:
        if index > len(self.entries):
            return None
        return f"{index}{self.branch if index > self.branched_behind else ''}".encode()

    def last_seq(self, origin: Origin) -> int:
        return max((each.txid.seq for each in self.entries if each.txid.origin == origin), default=0)

    def entry_at(self, index: int) -> CertifiedEntry:
        assert index >= self.first_index
        return self.entries[index - 1]

    def has_other_with_key(self, key: str, txid: Txid) -> bool:
        return any(each.key == key and each.txid != txid for each in self.entries)


# -- the model


class ModelLog(ListedLog):
    """A log of the model, in the values of the masters."""

    def __init__(self, nodes: Sequence[LogNode]) -> None:
        super().__init__([_entry_of(node) for node in nodes[1:]])
        self._nodes = nodes

    def hash_at(self, index: int) -> bytes | None:
        return str(self._nodes[index].hash).encode() if index < len(self._nodes) else None


def _origin_of(master: int) -> Origin:
    return Origin(f"m{master}", 0)


def _base_of(base: model.ModelBase) -> EffectBase:
    return EffectBase(
        base.log_index,
        str(base.hash).encode(),
        {_origin_of(master): seq for master, seq in enumerate(base.vector)},
        base.final,
        base.index_after,
        str(base.hash_after).encode(),
    )


def _pattern_of(pattern: model.Pattern) -> QuadPattern:
    subject, predicate, _ = pattern
    return QuadPattern(
        DEFAULT_GRAPH,
        None if subject is None else b"<urn:s%d>" % subject,
        None if predicate is None else b"<urn:p%d>" % predicate,
    )


def _quads_of(quads: Sequence[model.WrittenQuad]) -> tuple[QuadPattern, ...]:
    return tuple(_pattern_of((s, p, None))._replace(value=b'"%d"' % int(value)) for s, p, value in quads)


@cache
def _entry_of(node: LogNode) -> CertifiedEntry:
    entry, (master, seq) = node.entry, node.txid
    writes = WriteSet(_quads_of(entry.deletes), _quads_of(entry.adds))
    if entry.text is not None:
        writes = WriteSet(may_write=(_pattern_of(entry.text.written),))
    key = "" if entry.key is None else str(entry.key)
    base = None if entry.base is None else _base_of(entry.base)
    return CertifiedEntry(node.index, Txid(_origin_of(master), seq), writes, node.counts, 0, key, base)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Asks the rule of the masters whenever the model asks its own; counts what both said."""
    counts = Counter[str]()
    of_model = ModelCertifier.verdict

    def verdict(self: ModelCertifier, log: Sequence[LogNode], effect: model.LogEntryOfModel) -> model.ModelRefusal:
        expected = of_model(self, log, effect)
        assert effect.base is not None
        reads = tuple(_pattern_of(each) for each in effect.reads)
        window = CertificationWindow(model.WINDOW, 1 << 40)
        found = certify(_base_of(effect.base), reads, len(log), ModelLog(log), window)
        assert found.refusal.value == expected.value
        counts[expected.value] += 1
        return expected

    monkeypatch.setattr(ModelCertifier, "verdict", verdict)
    return counts


def test_masters_and_model_say_the_same_in_histories_made_by_hand(compared: Counter[str]) -> None:
    for history in HISTORIES:
        assert history.run(frozenset()) is history.expected
    assert set(compared) == set(EffectRefusal) - {EffectRefusal.OLD}


def test_masters_and_model_say_the_same_in_random_runs(compared: Counter[str]) -> None:
    for seed in range(3):
        run(seed)
    assert {"", "other", "old", "fallen"} <= set(compared), compared


# -- a literal reading of the rule

TERMS = [b"<x:a>", b"<x:b>"]
ORIGINS = [UK, DE, Origin("fr", 3)]
LITERAL_LOGS = 3000


class RandomLogs:
    """A log of a few entries of three origins, and a base on it or on another branch."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def log(self) -> list[CertifiedEntry]:
        chance, seqs, entries = self._chance, Counter[Origin](), list[CertifiedEntry]()
        for index in range(1, chance.randint(0, 6) + 1):
            origin = chance.choice(ORIGINS)
            seqs[origin] += 1
            writes = WriteSet(self._quads(), self._quads())
            if chance.random() < 0.05:
                writes = WriteSet(may_write=self.patterns(2))
            entries.append(
                CertifiedEntry(
                    index,
                    Txid(origin, seqs[origin]),
                    writes,
                    counts=chance.random() < 0.9,
                    payload_bytes=chance.randint(0, 10),
                    key=chance.choice(["", "", "", "", "k", "l"]),
                    base=self.base(entries) if chance.random() < 0.1 else None,
                    is_retry=chance.random() < 0.05,
                )
            )
        return entries

    def base(self, entries: Sequence[CertifiedEntry]) -> EffectBase:
        """Of a branch with the same entries, mostly."""
        first, after = sorted(self._chance.randint(0, len(entries)) for _ in range(2))
        last = Counter(entry.txid.origin for entry in entries)
        is_whole, is_absent = self._chance.random() < 0.5, self._chance.random() < 0.05
        seen = {
            origin: (last[origin] if is_whole else self._chance.randint(0, last[origin])) + is_absent
            for origin in ORIGINS
        }
        name = f"{after}{self._chance.choice(['', 'branch'])}".encode()
        return EffectBase(first, b"", seen, self._chance.randint(0, min(first, 2)), after, name)

    def patterns(self, most: int) -> tuple[QuadPattern, ...]:
        return tuple(
            QuadPattern(*(self._chance.choice([None, *TERMS]) for _ in range(3)), self._chance.choice([None, b'"1"']))
            for _ in range(self._chance.randint(1, most))
        )

    def window(self) -> CertificationWindow:
        return CertificationWindow(self._chance.randint(4, 24), self._chance.randint(10, 160))

    def _quads(self) -> tuple[QuadPattern, ...]:
        choice = self._chance.choice
        return tuple(
            QuadPattern(choice([b"", b"<x:a>"]), choice(TERMS), choice([*TERMS, None]), choice([None, b'"1"', b'"1"']))
            for _ in range(choice([0, 1, 2]))
        )


def _share_a_quad(one: QuadPattern, other: QuadPattern) -> bool:
    return all(mine in (None, its) or its is None for mine, its in zip(one, other, strict=True))


def _literal_verdict(
    entries: list[CertifiedEntry], base: EffectBase, reads: tuple[QuadPattern, ...], window: CertificationWindow
) -> str:
    """The rule as it is written, entry by entry, quad by quad."""

    def on_chain(of: EffectBase, before: int) -> bool:
        return of.index_after < before and of.hash_after == str(of.index_after).encode()

    def seen(entry: CertifiedEntry) -> bool:
        return entry.txid.origin in base.seen and entry.txid.seq <= base.seen[entry.txid.origin]

    index = len(entries) + 1
    here = on_chain(base, index)
    share = 1 if here else 2
    last = base.log_index if here else max([0, *(each.log_index for each in entries if seen(each))])
    if index - last > window.entries // share:
        return "old"
    if sum(each.payload_bytes for each in entries[last:]) > window.payload_bytes // share:
        return "old"
    present = {each.txid for each in entries}
    if not here and any(
        Txid(origin, seq) not in present for origin, last_seq in base.seen.items() for seq in range(1, last_seq + 1)
    ):
        return "missing"
    met = [
        each
        for each in entries[base.log_index if here else base.final_index :]
        if any(_share_a_quad(write, read) for write in each.writes.patterns() for read in reads)
    ]
    for each in met:
        if here:
            if each.counts:
                return "other"
        elif not seen(each):
            return "other"
        elif each.writes.may_write:
            return "text"
        elif not each.counts:
            return "fallen"
        elif (
            each.is_retry
            or (each.base is not None and on_chain(each.base, each.log_index))
            or (each.key and [other.key for other in entries].count(each.key) > 1)
        ):
            return "risen"
    if not here:
        for one in met:
            for other in met:
                if one.txid.origin != other.txid.origin and any(
                    _share_a_quad(gone, come) for gone in one.writes.deletes for come in other.writes.adds
                ):
                    return "order"
    return ""


def test_the_verdict_is_what_the_rule_says_literally() -> None:
    met = Counter[str]()
    for seed in range(LITERAL_LOGS):
        chance = RandomLogs(seed)
        entries = chance.log()
        base, reads, window = chance.base(entries), chance.patterns(2), chance.window()
        expected = _literal_verdict(entries, base, reads, window)
        assert certify(base, reads, len(entries) + 1, ListedLog(entries), window).refusal.value == expected, seed
        met[expected] += 1
    assert set(met) == {each.value for each in EffectRefusal}, met
    assert min(met.values()) > LITERAL_LOGS // 300, met


# -- case by case

READS = (QuadPattern(b"", b"<x:s>"),)


def _quad(value: bytes | None = b'"1"', predicate: bytes | None = b"<x:p>") -> QuadPattern:
    return QuadPattern(b"", b"<x:s>", predicate, value)


def _plain(index: int, origin: Origin, seq: int, writes: WriteSet, **fields: object) -> CertifiedEntry:
    return CertifiedEntry(index, Txid(origin, seq), writes, **{"counts": True, **fields})  # type: ignore[arg-type]


def _base(index: int, seen: dict[Origin, int], *, branch: str = "", final: int = 0) -> EffectBase:
    name = f"{index}{branch}".encode()
    return EffectBase(index, name, seen, final, index, name)


def _verdict(entries: Sequence[CertifiedEntry], base: EffectBase, window: CertificationWindow = UNBOUNDED) -> str:
    return certify(base, READS, len(entries) + 1, ListedLog(entries), window).refusal


def test_the_transaction_in_the_way_is_named() -> None:
    entries = [_plain(1, UK, 1, WRITES_NOTHING), _plain(2, DE, 1, WriteSet(adds=(_quad(),)))]
    log = ListedLog(entries)
    assert certify(_base(1, {UK: 1}), READS, 3, log, UNBOUNDED) == EffectVerdict(EffectRefusal.OTHER, Txid(DE, 1))
    assert certify(_base(2, {UK: 1, DE: 1}), READS, 3, log, UNBOUNDED) == COUNTS
    assert COUNTS.counts


def test_age_is_bounded_by_bytes_of_what_was_not_seen_and_by_half_for_another_branch() -> None:
    entries = [
        _plain(1, UK, 1, WRITES_NOTHING, payload_bytes=90),
        _plain(2, DE, 1, WRITES_NOTHING, payload_bytes=60),
        _plain(3, DE, 2, WRITES_NOTHING, payload_bytes=40),
    ]
    seen = {UK: 1}
    assert _verdict(entries, _base(1, seen), CertificationWindow(10, 100)) == ""
    assert _verdict(entries, _base(1, seen), CertificationWindow(10, 99)) == "old"
    assert _verdict(entries, _base(1, seen, branch="b"), CertificationWindow(10, 200)) == ""
    assert _verdict(entries, _base(1, seen, branch="b"), CertificationWindow(10, 199)) == "old"
    assert _verdict(entries, _base(1, seen), CertificationWindow(3, 1000)) == ""
    assert _verdict(entries, _base(1, seen), CertificationWindow(2, 1000)) == "old"
    assert _verdict(entries, _base(1, seen, branch="b"), CertificationWindow(6, 1000)) == ""
    assert _verdict(entries, _base(1, seen, branch="b"), CertificationWindow(5, 1000)) == "old"


def test_what_has_only_a_summary_may_do_something_else_behind_a_rejoin() -> None:
    entries = [_plain(1, UK, 1, WRITES_ANYTHING)]
    assert _verdict(entries, _base(1, {UK: 1}, branch="b")) == "text"
    assert _verdict(entries, _base(1, {UK: 1})) == ""


def test_a_later_try_may_have_risen() -> None:
    entries = [_plain(1, UK, 1, WriteSet(adds=(_quad(),)), is_retry=True)]
    assert _verdict(entries, _base(1, {UK: 1}, branch="b")) == "risen"


@pytest.mark.parametrize(
    ("deleted", "added", "refusal"),
    [
        (_quad(), _quad(), "order"),
        (_quad(None), _quad(), "order"),
        (_quad(), _quad(None), "order"),
        (_quad(b'"2"'), _quad(), ""),
        (_quad(None), _quad(None, b"<x:q>"), ""),
        (_quad(predicate=None), _quad(), "order"),
        (_quad(), _quad(predicate=None), "order"),
    ],
)
def test_a_literal_that_stores_may_write_otherwise_is_any_in_the_order(
    deleted: QuadPattern, added: QuadPattern, refusal: str
) -> None:
    one, other = WriteSet(deletes=(deleted,)), WriteSet(adds=(added,))
    seen = {UK: 1, DE: 1}
    for first, second in ((one, other), (other, one)):
        entries = [_plain(1, UK, 1, first), _plain(2, DE, 1, second)]
        assert _verdict(entries, _base(2, seen, branch="b")) == refusal
        assert _verdict(entries, _base(2, seen)) == ""
    alone = [_plain(1, UK, 1, one), _plain(2, UK, 2, other)]
    assert _verdict(alone, _base(2, {UK: 2}, branch="b")) == ""


def test_a_log_that_begins_too_late_decides_nothing() -> None:
    entries = [_plain(index, UK, index, WRITES_NOTHING) for index in range(1, 5)]
    log = ListedLog(entries, first_index=3)
    reads = (EVERY_QUAD,)
    assert certify(_base(2, {UK: 2}), reads, 5, log, UNBOUNDED) == COUNTS
    with pytest.raises(CannotDecide, match="begins at 3"):
        certify(_base(1, {UK: 1}), reads, 5, log, UNBOUNDED)
    assert certify(_base(4, {UK: 4}, branch="b", final=2), reads, 5, log, UNBOUNDED) == COUNTS
    with pytest.raises(CannotDecide, match="needs 2"):
        certify(_base(4, {UK: 4}, branch="b", final=1), reads, 5, log, UNBOUNDED)
    with pytest.raises(CannotDecide, match="last entry that was seen"):
        certify(_base(4, {UK: 1}, branch="b", final=2), reads, 5, log, UNBOUNDED)
