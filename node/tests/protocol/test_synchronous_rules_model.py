"""The rules S4 to S9, S11 and S13 of the masters say in every step of the model's runs what the model says.

The model (``e2e/model/synchronous``) was run with its assertions in thousands of runs. Here its runs ask both: whenever
the model computes an anchor, judges what is undecided, or begins a log later, so does the code of the masters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from e2e.model.synchronous import directed_run
from e2e.model.synchronous.anchors import AnchorRules, ClosedLog
from e2e.model.synchronous.decisions import DecisionRules, _holders, _undecided_of
from e2e.model.synchronous.log_fold import LogFold
from e2e.model.synchronous.masters import ModelMaster
from e2e.model.synchronous.random_run import RandomRun, RunOptions
from e2e.model.synchronous.readers import LogReaders
from e2e.model.synchronous.synchronous_mutant import DISKS_5, SIMPLE_5, SMART_5, WEIGHTS_5
from e2e.model.synchronous.values import (
    DecisionVerdict,
    MasterReport,
    ModelAnchor,
    ModelEntry,
    ModelView,
    TransactionKind,
    Weights,
)
from txlog.model.anchor import Anchor
from txlog.model.configuration import Master
from txlog.model.ids import Origin, Txid
from txlog.model.quorum import ALL, MAJORITY
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    KIND_SYNCHRONOUS_QUADS,
    DecisionKind,
    SynchronousKey,
    decide,
    encode_decision,
    encode_synchronous_key,
    join_spans,
)
from txlog.protocol.log.limbo import Limbo, LimboEntry, find_log_start
from txlog.protocol.views.anchors import AnchorReport, Candidate, NextLog, next_anchor
from txlog.protocol.views.decisions import UndecidedTransaction, judge

VERDICTS = {DecisionVerdict.COMMIT: DecisionKind.COMMIT, DecisionVerdict.ROLLBACK: DecisionKind.ROLLBACK}
HIGHEST = 1 << 40


def node_of(master: int) -> str:
    return f"m{master}"


def name_of(txid: str) -> Txid:
    """Each transaction has an origin of its own: the model's masters hold them with gaps."""
    return Txid(Origin("t" + txid.replace(".", "-"), 0), 1)


def names_of(txids: frozenset[str] | set[str]) -> list[Txid]:
    return [name_of(txid) for txid in sorted(txids)]


def electorate_of(weights: Weights) -> list[Master]:
    return [Master(node_of(master), "dc", weight) for master, weight in enumerate(weights)]


def anchor_of(anchor: ModelAnchor) -> Anchor:
    return Anchor(
        (anchor.number[0] + 1, anchor.number[1], ""),
        [(node_of(master), birth) for master, birth in anchor.births.items()],
        electorate_of(anchor.electorate),
        [electorate_of(each) for each in anchor.under],
        sorted((*name.origin, 1) for name in names_of(anchor.known)),
        join_spans(names_of(anchor.doomed)),
    )


def report_of(report: MasterReport) -> AnchorReport:
    number = report.view.number
    return AnchorReport(
        node_of(report.master),
        report.birth,
        (number[0] + 1, number[1], ""),
        report.installed and not report.is_learner,
        None if report.view.anchor is None else anchor_of(report.view.anchor),
        report.has_voted,
        HIGHEST,
        {name.origin: 1 for name in names_of(report.ids)},
    )


def entry_of(index: int, entry: ModelEntry) -> LimboEntry | None:
    one, txid = entry.transaction, name_of(entry.txid)
    if one.kind is TransactionKind.SYNCHRONOUS:
        key = encode_synchronous_key(SynchronousKey(MAJORITY, 0, "" if one.key is None else str(one.key)))
        return LimboEntry(index, txid, KIND_SYNCHRONOUS_QUADS, key, entry.stamp, b"")
    if one.kind is TransactionKind.DECISION:
        key = encode_decision(decide(VERDICTS[one.verdict], names_of(one.names)))
        return LimboEntry(index, txid, KIND_DECISION, key, entry.stamp, b"")
    return None


class Comparison:
    """Asks the rules of the masters whenever the model asks its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: Counter[str] = Counter()
        for owner, name, compare in (
            (AnchorRules, "open_view", self._compare_anchor),
            (DecisionRules, "judge", self._compare_judgement),
            (LogReaders, "trim", self._compare_start),
        ):
            monkeypatch.setattr(owner, name, self._asking_both(getattr(owner, name), compare))

    @staticmethod
    def _asking_both(asked: Callable[..., Any], compare: Callable[..., None]) -> Callable[..., Any]:
        def both(rules: object, *arguments: Any) -> Any:
            found = asked(rules, *arguments)
            compare(rules, found, *arguments)
            return found

        return both

    def _compare_anchor(
        self,
        rules: AnchorRules,
        found: ModelView,
        _number: object,
        members: tuple[int, ...],
        _winner: ModelView,
        reports: dict[int, MasterReport],
        closed: ClosedLog,
        is_late: Callable[[str], bool],
    ) -> None:
        entries = [*closed.base, *closed.queue]
        decided = {
            txid
            for entry in entries
            if entry.transaction.kind is TransactionKind.DECISION
            for txid in entry.transaction.names
        }
        synchronous = [entry for entry in entries if entry.transaction.kind is TransactionKind.SYNCHRONOUS]
        log = NextLog(
            electorate_of(rules.configured_weights(closed.base, found.history)[1]),
            {name_of(entry.txid).origin: 1 for entry in synchronous},
            [
                Candidate(1, name_of(entry.txid), 100 if is_late(entry.txid) else 0)
                for entry in synchronous
                if entry.txid not in decided
            ],
        )
        births = [(node_of(master), reports[master].birth) for master in members]
        number = (found.number[0] + 1, found.number[1], "")
        anchor, quorate = next_anchor(number, births, [report_of(each) for each in reports.values()], log)
        assert quorate == found.quorate
        assert found.anchor is not None
        assert anchor == anchor_of(found.anchor)
        self.asked["quorate" if quorate else "not quorate"] += 1
        self.asked["doomed"] += len(anchor.doomed) if quorate else 0
        self.asked["counted jointly"] += len(anchor.under) > 1

    def _compare_judgement(self, _rules: DecisionRules, found: Any, master: ModelMaster, *_: object) -> None:
        anchor = master.view.anchor
        assert anchor is not None
        waiting = _undecided_of(master)
        names = {name_of(each.txid): each.txid for each in waiting}
        judged = judge(
            [UndecidedTransaction(name_of(each.txid), ALL if each.needs_all else MAJORITY) for each in waiting],
            anchor_of(anchor),
            lambda name: frozenset(node_of(holder) for holder in _holders(master, names[name])),
            quorate=master.view.quorate,
        )
        assert [names[name] for name in judged.certain] == found.certain
        assert [names[name] for name in judged.doomed] == found.doomed
        self.asked["certain"] += len(judged.certain)

    def _compare_start(self, readers: LogReaders, _found: None, master: ModelMaster, *_: object) -> None:
        start = master.start
        if start.index:
            entries = [entry_of(index, entry) for index, entry in enumerate(master.log, 1)]
            served = self._fold(Limbo(), master, entries[: start.served_from])[0]
            assert find_log_start(start.served_from, served.snapshot()) == start.index
            at_start = self._fold(Limbo(), master, entries[: start.index])[0]
            again = Limbo.restored(at_start.snapshot(), start.index)
            self._compare_fold(again, readers.fold_of(master, len(master.log)), master, entries[start.index :])
            self.asked["starts"] += 1

    def compare_log(self, master: ModelMaster, fold: LogFold) -> None:
        """The fold of a whole log."""
        entries = [entry_of(index, entry) for index, entry in enumerate(master.log, 1)]
        self._compare_fold(Limbo(), fold, master, entries)

    def _compare_fold(self, limbo: Limbo, fold: LogFold, master: ModelMaster, entries: list[LimboEntry | None]) -> None:
        limbo, effects = self._fold(limbo, master, entries)
        by_name = {name_of(txid): txid for txid in master.places}
        assert {by_name[name] for name in limbo.open} == set(fold.open)
        assert {by_name.get(name) for name in limbo.early} == {
            txid if txid in master.places else None for txid in fold.ahead
        }
        rolled_back = {txid for txid, verdict in fold.decided.items() if verdict is DecisionVerdict.ROLLBACK}
        assert {by_name[name] for name in limbo.rolled_back} == rolled_back
        synchronous = {name_of(txid) for txid in master.places if self._is_synchronous(master, txid)}
        expected = [(index, txid) for index, txid in fold.effects if name_of(txid) in synchronous]
        assert self._without_repeats(effects, master, fold) == expected
        self.asked["effects"] += len(expected)

    @staticmethod
    def _is_synchronous(master: ModelMaster, txid: str) -> bool:
        return master.log[master.places[txid] - 1].transaction.kind is TransactionKind.SYNCHRONOUS

    @staticmethod
    def _without_repeats(effects: list[tuple[int, Txid]], master: ModelMaster, fold: LogFold) -> list[tuple[int, str]]:
        """S11, by the model's table: a key belongs to the first effect with it."""
        found = []
        by_name = {name_of(txid): txid for txid in master.places}
        for index, name in effects:
            txid = by_name[name]
            key = master.log[master.places[txid] - 1].transaction.key
            if key is None or fold.keys[key] == txid:
                found.append((index, txid))
        return found

    @staticmethod
    def _fold(
        limbo: Limbo, master: ModelMaster, entries: list[LimboEntry | None]
    ) -> tuple[Limbo, list[tuple[int, Txid]]]:
        places = {name_of(txid): index for txid, index in master.places.items()}
        effects = [
            (entry.log_index, one.transaction.txid)
            for entry in entries
            if entry is not None
            for one in limbo.apply(entry, lambda name: places.get(name, 0))
        ]
        return limbo, effects


@pytest.mark.parametrize(
    ("options", "seed"),
    [(SMART_5, 1_000_001), (SIMPLE_5, 3_000_000), (WEIGHTS_5, 2_000_019), (DISKS_5, 2_000_224)],
    ids=["smart", "simple", "weights", "disks"],
)
def test_masters_and_model_say_the_same_in_random_runs(
    options: RunOptions, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Comparison(monkeypatch)
    run = RandomRun(seed, options)
    run.run()
    both.compare_log(run.masters[0], run._whole_fold())
    for met in ("quorate", "not quorate", "certain", "effects"):
        assert both.asked[met], both.asked


def test_masters_and_model_say_the_same_where_a_decision_precedes_what_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = Comparison(monkeypatch)
    assert directed_run.run_directed(SMART_5)["decided ahead of the log start"] == 1
    assert both.asked["starts"]
