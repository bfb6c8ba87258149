"""What every store refuses is counted and skipped; what only some refuse is a difference."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from e2e.conformance.determinism.run import DeterminismRun
from e2e.lib.cluster.harness import MasterAnswer, MasterHarness, StoreBlocked
from txlog.apply.outcome import Refusal
from txlog.model.ids import parse_txid
from txlog.workers.digest import Digest

STORES = ("first", "second", "merged")
FAULT = "org.SailException: org.ValueExprEvaluationException: <urn:a> is no number"


class _Cluster:
    """Stores that refuse transactions: ``refusing`` has their names, and the number of the transaction of each."""

    def __init__(self, refusing: dict[str, int]) -> None:
        self.refusing = refusing
        self.skipped: list[str] = []
        self.last = SimpleNamespace(index=1)
        self.stores = {name: SimpleNamespace(digest=lambda: cast(Any, Digest)({}, 0, 0)) for name in STORES}
        self.master = SimpleNamespace(skip=self.skipped.append)
        self.updates: list[str] = []

    def update(self, text: str, path: str = "/statements") -> MasterAnswer:
        self.updates.append(text)
        if not self.skipped:
            self.apply_all("first", "second")
        return MasterAnswer(204, "", None)

    def apply_all(self, *names: str) -> None:
        for name in names:
            if not self.skipped and name in self.refusing:
                number = self.refusing[name]
                txid = parse_txid(f"uk-1.00000000000000aa.{number}")
                raise StoreBlocked("blocked", Refusal(number, txid, 500, FAULT))


def _run(refusing: dict[str, int]) -> tuple[DeterminismRun, _Cluster]:
    cluster = _Cluster(refusing)
    run = DeterminismRun(cast(MasterHarness, cluster), random.Random(1))
    run.update("an update")
    return run, cluster


def test_what_all_refuse_is_skipped_and_counted() -> None:
    run, cluster = _run(dict.fromkeys(STORES, 7))
    assert run.refused_by_all == {"500 ... is no number": 1}
    assert (run.unequal, run.wrong, run.accepted) == ([], [], 0)
    assert cluster.skipped == ["uk-1.00000000000000aa.7"]


@pytest.mark.parametrize("executed", STORES)
def test_what_one_store_executes_is_a_difference(executed: str) -> None:
    run, cluster = _run({name: 7 for name in STORES if name != executed})
    assert not run.refused_by_all
    assert len(run.unequal) == 1
    assert run.unequal[0].startswith(f"{executed} executed what other stores refuse with 500")
    assert cluster.updates[-1] == "DROP ALL"


def test_different_transactions_that_are_refused_end_the_run() -> None:
    with pytest.raises(StoreBlocked, match="different stores"):
        _run({"first": 7, "second": 7, "merged": 3})
