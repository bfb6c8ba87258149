"""A store that is restored to a random moment holds what a plain replay gives, on each timeline of a split."""

from __future__ import annotations

from pathlib import Path

import pytest
from archived_history import History
from oxigraph_process import ADAPTER, OxigraphProcess
from restored_store import restore
from restored_store import store as store

from txlog.workers.digest import digest_worker

TARGETS = 10


@pytest.mark.parametrize("seed", range(20))
def test_random_moments_are_a_plain_replay(store: OxigraphProcess, tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "target", seed, updates=bool(seed % 4))
    draw = history.random
    backups = [
        history.back_up(branch, draw.randrange(1, len(branch.entries) + 1))
        for branch in (history.final, history.final, history.losing)
    ]
    if seed % 2:
        backups.append(history.back_up(history.final, 0))
    for moment, branch, index in history.moments(TARGETS):
        done = restore(history, store, moment)
        node = branch.node(index)
        assert (done.plan.place, done.marker.position.hash) == (node, node.hash), moment
        assert store.quads() == sorted(branch.replay(index)), (moment, index, done.plan.base)
        assert store.system().markers == (done.marker,)
        assert store.system().claims == frozenset()
        assert f"{digest_worker(ADAPTER, store.transport).total:032x}" == done.digest
