"""Graphs that need a quorum, over two data centres: what waits at a split, and a quorum that is patched meanwhile."""

from __future__ import annotations

from typing import Any, Final

import pytest

from e2e.kubernetes.catalogue import READY_S, CatalogueCluster
from e2e.kubernetes.data_center_access import NAME, wait_until
from e2e.kubernetes.split_scenario import BACKUP_S
from txlog.client import MasterClient, WriteResult
from txlog.client.master_client import SPARQL_UPDATE
from txlog.model.durability import Durability
from txlog.model.errors import Unavailable

pytestmark = pytest.mark.timeout(900)

GRAPH: Final = "http://ex.org/accounts/1"
WAIT_S: Final = 3.0


def rule(quorum: str) -> dict[str, Any]:
    return {"graphs": [{"match": "http://ex.org/accounts/*", "quorum": quorum, "timeout": "0"}]}


def insert(what: str, graph: str = GRAPH) -> str:
    return f'INSERT DATA {{ GRAPH <{graph}> {{ <urn:e2e:{what}> <urn:e2e:says> "{what}" }} }}'


def ask(what: str) -> str:
    return f"SELECT ?s {{ GRAPH ?g {{ <urn:e2e:{what}> <urn:e2e:says> ?s }} }}"


def write(catalogue: CatalogueCluster, side: str, update: str, level: Durability = Durability.QUORUM) -> WriteResult:
    """At the data centre's first master."""
    with MasterClient(catalogue.sides[side].master(1), 30.0) as master:
        return master.write(NAME, update.encode(), SPARQL_UPDATE, durability=level, wait_s=WAIT_S)


def wait_rules(catalogue: CatalogueCluster, side: str, quorum: str) -> None:
    """Until the log of this data centre has the rule."""

    def looked() -> bool:
        with MasterClient(catalogue.sides[side].master(1), 5.0) as master:
            rows = master.synchro()["graphs"]
        if [row["quorum"] for row in rows] != [quorum]:
            raise KeyError(str(rows))
        return True

    wait_until(f"{side} needs {quorum}", 60, looked)


def wait_reads(catalogue: CatalogueCluster, side: str, what: str, found: bool) -> None:
    wanted = [[what]] if found else []
    wait_until(f"{side} reads {what}", 60, lambda: catalogue.sides[side].read(ask(what)) == wanted)


def test_a_quorum_is_patched_while_transactions_wait(catalogue: CatalogueCluster) -> None:
    for side in catalogue.sides:
        catalogue.patch(side, splitRecovery="Smart", durability=rule("N/2+1"))
    catalogue.wait_recovery("Smart")
    for side in catalogue.sides:
        wait_rules(catalogue, side, "N/2+1")
        catalogue.wait_condition(side, "SynchronousQuorum", "True Reached")
        assert write(catalogue, side, insert(f"whole-{side}"), Durability.SYNCED).synchronous == "committed"
    try:
        catalogue.set_partitioned(True)
        waiting = write(catalogue, "us", insert("waits"))
        assert waiting.synchronous == "pending"
        catalogue.wait_state("Isolated", BACKUP_S)
        catalogue.wait_condition("us", "SynchronousQuorum", "False NotQuorate")
        with pytest.raises(Unavailable, match="nothing was logged"):
            write(catalogue, "us", insert("refused"))
        catalogue.write("us", insert("ordinary", "http://ex.org/notes"), "applied")
        wait_until("uk decides", 60, lambda: write(catalogue, "uk", insert("goes-on")).synchronous == "committed")

        for side in catalogue.sides:
            catalogue.patch(side, durability=rule("N-1"))
            catalogue.wait_condition(side, "Reconciled", "Unknown ChangesPending")  # rules change where all are (S14)
            wait_rules(catalogue, side, "N/2+1")
        assert write(catalogue, "uk", insert("patched")).synchronous == "committed"
        wait_reads(catalogue, "us", "waits", found=False)
    finally:
        catalogue.set_partitioned(False)
    catalogue.wait_state("Joined", READY_S)
    catalogue.wait_converged(READY_S)
    for side in catalogue.sides:
        wait_rules(catalogue, side, "N-1")
        catalogue.wait_condition(side, "SynchronousQuorum", "True Reached")
        for what in ("waits", "ordinary", "goes-on", "patched"):
            wait_reads(catalogue, side, what, found=True)
        assert catalogue.sides[side].read(ask("refused")) == []
        with MasterClient(catalogue.sides[side].master(1), 30.0) as master:
            answered = master.transaction(str(waiting.txid)).synchronous
        assert answered is not None
        assert answered["state"] == "committed"
    assert catalogue.digests_equal()
    assert not catalogue.lost_transactions()
