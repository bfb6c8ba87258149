"""RDF4J's own Java client writes synchronous transactions while its master is cut off, and beside a stopped master."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from e2e.conformance.rdf4j.java_client import ClientSteps, client_steps
from e2e.lib.cluster.backup_reporter import BackupReporter
from e2e.lib.cluster.links import linked_masters
from e2e.lib.cluster.masters import NODES, REPOSITORY, BenchMasters, three_masters, wait_quorate
from e2e.lib.readers import read_log
from e2e.lib.wait import NotYet, wait_until
from e2e.scenarios.synchronous import SETTINGS
from txlog.client import MasterClient
from txlog.config.durability_specs import GraphRuleSpec
from txlog.local.local_errors import CannotRun
from txlog.model.durability import Durability

GRAPH: Final = "http://example.org/accounts"
WAIT_S: Final = 60.0
REFUSED: Final = "QueryInterruptedException"
"""What the client makes of a 503; it drops the text."""


@contextmanager
def java_client(url: str) -> Iterator[ClientSteps]:
    try:
        with client_steps(f"{url}/rdf4j-server", REPOSITORY) as client:
            yield client
    except CannotRun as why:
        pytest.skip(str(why))


def wait_state(url: str, wanted: str) -> None:
    def probe() -> bool:
        with MasterClient(url, 5.0) as master:
            state = str(master.status().state)
        if state != wanted:
            raise NotYet(state)
        return True

    wait_until(f"{url} is {wanted}", WAIT_S, probe)


def effects(url: str, subject: str) -> int:
    return sum(subject.encode() in record.payload for record in read_log(url) if not record.noop)


@pytest.mark.cluster
@pytest.mark.timeout(400)  # the first test of a machine fetches the client's jars
def test_a_commit_in_a_cut_is_answered_in_the_end(tmp_path: Path) -> None:
    settings = {**SETTINGS, "write_timeout_s": 3.0, "durability": Durability.QUORUM}
    rules = [GraphRuleSpec(match=GRAPH)]
    with linked_masters(tmp_path / "masters", NODES, graphs=rules, **settings) as (masters, links):
        url = masters.by_node["us-1"]
        wait_quorate(masters.urls)
        backups = BackupReporter(masters.urls)
        backups.start()
        with java_client(url) as client:
            assert client.run("transaction", "begin") == "done"
            assert client.run("transaction", "add", GRAPH, "urn:s:in-transaction") == "done"
            pairs = [("us-1", other) for other in ("uk-1", "uk-2")]
            links.set_faults(
                [{"from": a, "to": b, "cut": True} for pair in pairs for a, b in (pair, tuple(reversed(pair)))]
            )
            client.send("plain", "add", GRAPH, "urn:s:alone")
            client.send("transaction", "commit")
            assert "its quorum is not known to hold it" in client.outcome("plain", "add")
            assert "HTTP error code 202" in client.outcome("transaction", "commit")
            wait_state(url, "Isolated")
            assert "cannot be rolled back" in client.run("transaction", "rollback")
            assert REFUSED in client.run("plain", "add", GRAPH, "urn:s:refused")
            assert client.run("plain", "add", "http://example.org/notes", "urn:s:note") == "done"
            links.set_faults([])
            wait_state(url, "Joined")
            assert client.run("transaction", "commit") == "done"
        masters.wait_at_rest()
        backups.end()
        for one in masters.urls:
            counts = [effects(one, f"urn:s:{name}") for name in ("in-transaction", "alone", "refused", "note")]
            assert counts == [1, 1, 0, 1]


@pytest.mark.cluster
@pytest.mark.timeout(400)  # the first test of a machine fetches the client's jars
def test_one_of_two_masters_is_stopped(tmp_path: Path) -> None:
    nodes = (("uk-1", "uk"), ("us-1", "us"))
    settings = {**SETTINGS, "write_timeout_s": 3.0, "durability": Durability.SYNCED}
    with three_masters(tmp_path / "masters", nodes=nodes, graphs=[GraphRuleSpec(match=GRAPH)], **settings) as masters:
        wait_quorate(masters.urls)
        stop(masters, "us-1")
        with java_client(masters.by_node["uk-1"]) as client:
            wait_until("ordinary writes go on", WAIT_S, lambda: writes_a_note(client))
            assert REFUSED in client.run("plain", "add", GRAPH, "urn:s:refused")
        assert effects(masters.by_node["uk-1"], "urn:s:refused") == 0


def writes_a_note(client: ClientSteps) -> bool:
    return client.run("plain", "add", "http://example.org/notes", "urn:s:note") == "done"


def stop(masters: BenchMasters, node: str) -> None:
    process = masters.processes[node]
    process.send_signal(signal.SIGTERM)
    process.wait(WAIT_S)
