"""One split of the data centres from its beginning to its end, step by step, as a user would see it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from e2e.cluster.layout import ClusterUnavailable
from e2e.kubernetes.catalogue import READY_S, CatalogueCluster
from e2e.kubernetes.data_center_access import DataCenterAccess, wait_until
from e2e.kubernetes.measurements import MEASUREMENTS
from e2e.kubernetes.sparql_texts import ask_query, insert_update, population_query, population_update

BACKUP_S: Final = 120.0
"""For a backup with the start of its pod, on a busy machine."""
REFUSED: Final = {"Smart": "Simple", "Simple": "none", "None": "smart"}
"""What somebody asks for instead during a split."""


def run_split(catalogue: CatalogueCluster, how: str, name: str) -> Iterator[str]:
    """:func:`split_steps`, after which they have each other again, however it ended."""
    try:
        yield from split_steps(catalogue, how, name)
    finally:
        catalogue.set_partitioned(False)


def split_steps(catalogue: CatalogueCluster, how: str, name: str) -> Iterator[str]:
    """``how``: ``Smart``, ``Simple``, ``None``; ``name``: tells what this one writes from what others do. Gives each
    step's name when it has been reached; what is wrong is an assertion."""
    asked = f"{name} {how}"
    for side in catalogue.sides:
        catalogue.write(side, insert_update(f"{name}-before-in-{side}"), "synced")
    before = {side: len(each.job_resources("txlogbackups", why="split")) for side, each in catalogue.sides.items()}
    yield "whole"

    with MEASUREMENTS.timed(f"{asked}: from the cut until both go on alone"):
        catalogue.set_partitioned(True)
        for side in catalogue.sides:
            catalogue.write(side, insert_update(f"{name}-alone-in-{side}"), "accepted")
        yield "cut"
        if how != "None":
            for side in catalogue.sides:
                _backed_up(catalogue, side, before[side], ("Running", "Done"))
            yield "backing up"
        catalogue.wait_state("Isolated", BACKUP_S)
    yield "apart"

    for number, (side, each) in enumerate(catalogue.sides.items()):
        catalogue.write(side, insert_update(f"{name}-later-in-{side}"), "applied")
        if how != "None":
            catalogue.write(side, population_update(9_000_000 + number), "applied")
            _backed_up(catalogue, side, before[side], ("Done",))
        later = f"{name}-later-in-{side}"
        wait_until(f"{side} reads what it wrote", 30, partial(_reads, each, ask_query(later), later))
        catalogue.wait_condition(side, "HistoryConsistent", "False Apart")
        catalogue.wait_condition(side, "PeersReachable", "False")
        catalogue.wait_condition(side, "Ready", "False")
        _wait_columns(each, "False", "0/1", "Isolated")
        with pytest.raises(ClusterUnavailable, match="splitRecovery"):
            catalogue.patch(side, splitRecovery=REFUSED[how])
    for number, (side, each) in enumerate(catalogue.sides.items() if how != "None" else ()):
        wait_until(f"{side} reads its own", 30, partial(_reads, each, population_query(), str(9_000_000 + number)))
    yield "refused"

    with MEASUREMENTS.timed(f"{asked}: from the healed link until both are Ready and equal"):
        catalogue.set_partitioned(False)
        yield "healed"
        catalogue.wait_state("Joined", READY_S)
        yield "joined"
        catalogue.wait_converged(READY_S)
        for side in catalogue.sides:
            catalogue.wait_condition(side, "HistoryConsistent", "True OneLog")
        catalogue.wait_ready()
    yield "one again"

    for side, each in catalogue.sides.items():
        _wait_columns(each, "True", "1/1", "Joined")
        if how == "None":
            assert len(each.job_resources("txlogbackups", why="split")) == before[side], (
                "nobody goes back, so nobody backs up"
            )
    assert catalogue.digests_equal()
    assert not catalogue.lost_transactions()
    for side in catalogue.sides:
        catalogue.write(side, insert_update(f"{name}-after-in-{side}"), "applied")


def _reads(side: DataCenterAccess, query: str, wanted: str) -> bool:
    """A master that cannot reach a store says 503 for a moment; whoever reads asks again."""
    return side.read(query) == [[wanted]]


def _backed_up(catalogue: CatalogueCluster, side: str, before: int, states: tuple[str, ...]) -> None:
    """Its data centre has one more backup of a split, that far."""

    def looked() -> bool:
        found = catalogue.sides[side].job_resources("txlogbackups", why="split")
        seen = [each.get("status", {}).get("state") for each in found]
        if sum(state in states for state in seen) <= before:
            raise KeyError(f"backups of splits, {before} of them from before: {seen}")
        return True

    wait_until(f"the backup of {side} is {' or '.join(states)}", BACKUP_S, looked)


def _wait_columns(side: DataCenterAccess, ready: str, peers: str, state: str) -> None:
    wanted = {"READY": ready, "PEERS": peers, "STATE": state}

    def looked() -> bool:
        shown = side.columns()
        if not wanted.items() <= shown.items():
            raise KeyError(str(shown))
        return True

    wait_until(f"kubectl get shows {wanted} in {side.name}", 30, looked)
