"""Synchronous transactions end to end: three masters, real stores, and what a client is answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from apart import back_up, cut, states
from master_cluster import Cluster, until
from synchronous_cluster import GRAPH, RULES, decides, insert, isolate, post, rules
from worker_driver import Driver, OxigraphProcess, Served

from txlog.cli.split_commands import build_split_report


@pytest.fixture
async def three_with_store(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Served]:
    """Three masters that serve synchronous transactions of the graphs of a rule, and one store."""
    store = OxigraphProcess(tmp_path / "store")
    times = {"max_peer_lag_ms": 4000, "round_timeout_ms": 1200, "idle_interval_ms": 100}
    cluster = clusters(3, workers=[{"name": "w-1", "url": store.url}], durability="applied", **times)
    await cluster.start()
    await rules(cluster, RULES)
    await until(lambda: all(decides(cluster, at) for at in range(3)))
    driver = Driver(cluster.url(0), "w-1", store)
    yield Served(cluster, store, driver)
    await asyncio.to_thread(driver.close)
    store.kill()


async def test_it_is_committed_by_a_quorum_and_executed_at_its_commit(three_with_store: Served) -> None:
    cluster, store = three_with_store.cluster, three_with_store.store
    status, headers = await post(cluster, 0, insert("a"))
    assert status == 204, headers
    assert headers["TxLog-Synchronous"] == "committed"
    assert headers["TxLog-Durability"] == "applied-all"
    assert store.quads() == [f'<urn:s:a> <urn:p> "o" <{GRAPH}> .']
    page = await cluster.get(0, "/txlog/log", headers={"Accept": "application/json"})
    own = next(e for e in page["entries"] if e["kind"] == "synchronous-update" or e["kind"] == "synchronous-quads")
    assert (own["txid"], own["noop"]) == (headers["TxLog-Transaction"], "synchronous")
    index = int(headers["TxLog-Position"].split(":")[1])
    assert index > own["index"], "the position is that of the effect"
    assert page["entries"][index - 1]["txid"] == own["txid"]


async def test_an_ordinary_transaction_of_other_graphs_is_as_before(three_with_store: Served) -> None:
    status, headers = await post(three_with_store.cluster, 1, insert("b", "http://ex.org/other"))
    assert status == 204, headers
    assert "TxLog-Synchronous" not in headers


async def test_levels(three_with_store: Served) -> None:
    cluster = three_with_store.cluster
    for level, expected in (
        ("quorum", 204),
        ("synced", 204),
        ("applied", 204),
        ("applied-all", 204),
        ("accepted", 202),
    ):
        status, headers = await post(cluster, 1, insert(level), TxLog_Durability=level)
        assert status == expected, (level, headers)
        assert headers["TxLog-Synchronous"] == ("pending" if level == "accepted" else "committed")
    txid = headers["TxLog-Transaction"]
    assert headers["Location"] == f"/txlog/transactions/{txid}"

    async def is_applied() -> bool:
        found = await cluster.get(1, f"/txlog/transactions/{txid}")
        return bool(found["durability"] == "applied-all" and found["synchronous"]["state"] == "committed")

    await until(is_applied)


async def test_a_key_repeats_its_transaction(three_with_store: Served) -> None:
    cluster, store = three_with_store.cluster, three_with_store.store
    first = await post(cluster, 0, insert("a"), Idempotency_Key="once")
    again = await post(cluster, 1, insert("a"), Idempotency_Key="once")
    assert (first[0], again[0]) == (204, 204)
    assert first[1]["TxLog-Transaction"] == again[1]["TxLog-Transaction"]
    assert first[1]["TxLog-Position"] == again[1]["TxLog-Position"]
    assert len(store.quads()) == 1


async def test_a_request_asks_for_more(three_with_store: Served) -> None:
    cluster = three_with_store.cluster
    other = insert("x", "http://ex.org/other")
    for text in ("true", "all", "N/2+1; timeout=10s", "3"):
        status, headers = await post(cluster, 0, other, TxLog_Synchronous=text)
        assert (status, headers["TxLog-Synchronous"]) == (204, "committed"), (text, headers)
    url = cluster.url(0, "/repositories/demo/statements?synchronous=all")
    async with cluster.session.post(url, data=other, headers={"Content-Type": "application/sparql-update"}) as answer:
        assert (answer.status, answer.headers["TxLog-Synchronous"]) == (204, "committed")


BAD_REQUESTS = [
    ("maybe", "expected true, false, or a quorum"),
    ("", "expected true, false, or a quorum"),
    ("N/2", "expected true, false, or a quorum"),
    ("all; timeout=10", "timeout: a duration"),
    ("all; timeout=1ms", "100ms to 24h"),
    ("all; within=10s", "perhaps ; timeout=10s"),
    ("false; timeout=10s", "takes no timeout"),
    ("false", "the rule of http://ex.org/accounts/* asks for N/2+1"),
]


async def test_bad_requests(three_with_store: Served) -> None:
    for text, expected in BAD_REQUESTS:
        status, headers = await post(three_with_store.cluster, 0, insert("a"), TxLog_Synchronous=text)
        assert status == 400, text
        assert expected in headers["body"]


async def test_a_timeout_alone_needs_a_synchronous_transaction(three_with_store: Served) -> None:
    cluster = three_with_store.cluster
    status, headers = await post(cluster, 0, insert("a", "http://ex.org/other"), TxLog_Synchronous="; timeout=10s")
    assert (status, "timeout without a synchronous transaction" in headers["body"]) == (400, True)
    status, headers = await post(cluster, 0, insert("a"), TxLog_Synchronous="; timeout=10s")
    assert (status, headers["TxLog-Synchronous"]) == (204, "committed")


async def test_the_minority_of_a_split_refuses_it_and_goes_on_with_others(three_with_store: Served) -> None:
    cluster = three_with_store.cluster
    heal = await isolate(cluster)
    status, headers = await post(cluster, 2, insert("no"), again=False, TxLog_Durability="synced")
    assert (status, headers["TxLog-Error"]) == (503, "NoQuorum"), headers
    assert "nothing was logged" in headers["body"]
    status, headers = await post(cluster, 2, insert("plain", "http://ex.org/other"), TxLog_Durability="synced")
    assert status == 204, headers
    status, headers = await post(cluster, 1, insert("yes"), TxLog_Durability="synced")
    assert (status, headers["TxLog-Synchronous"]) == (204, "committed"), headers
    heal()
    await until(lambda: states(cluster) == {"Joined"})


async def test_what_was_pending_on_the_minority_is_decided_at_the_rejoin(three_with_store: Served) -> None:
    """Nothing but the minority held it, and it was late by then: rolled back, and its key is free again."""
    cluster, store = three_with_store.cluster, three_with_store.store
    heal = cut(cluster)
    asked = {"TxLog_Synchronous": "true; timeout=100ms", "Prefer": "wait=1"}
    (first, plain), (second, known) = await asyncio.gather(
        post(cluster, 2, insert("late"), again=False, Prefer="wait=1", Idempotency_Key="k"),
        post(cluster, 2, insert("later"), again=False, Idempotency_Key="l", **asked),
    )
    assert (first, plain["TxLog-Error"], plain.get("TxLog-Synchronous")) == (504, "Undecided", "pending"), plain
    assert (second, known.get("TxLog-Synchronous")) == (202, "pending"), known

    async def apart() -> bool:
        done = [await back_up(cluster, at) for at in range(3)]
        return all(done) and states(cluster) == {"Isolated"}

    await until(apart)
    waiting = (await cluster.get(2, known["Location"]))["synchronous"]
    assert (waiting["state"], waiting["decision"], waiting["held"]) == ("pending", None, ["uk-3"])
    status, wrote = await post(cluster, 0, insert("elsewhere"))
    assert status == 204, wrote
    heal()
    await until(lambda: states(cluster) == {"Joined"})

    async def state(headers: dict[str, str]) -> str:
        return str((await cluster.get(0, headers["Location"]))["synchronous"]["state"])

    async def decided() -> bool:
        return await state(plain) == "committed" and await state(known) == "rolled-back"

    await until(decided)
    names = [headers["Location"].rpartition("/")[2] for headers in (plain, known)]

    async def reported() -> dict[str, Any] | None:
        (split,) = build_split_report([await cluster.get(at, "/txlog/splits") for at in range(3)], [])
        found: dict[str, Any] = split["synchronous"]
        return found if not found["undecided"] else None

    found = await until(reported)
    assert [[one["txid"] for one in found[word]] for word in ("committed", "rolledBack")] == [[names[0]], [names[1]]]
    (commit,) = found["committed"]
    page = await cluster.get(0, "/txlog/log?keys=1", headers={"Accept": "application/json"})
    decisions = [(await cluster.get(1, headers["Location"]))["synchronous"]["decision"] for headers in (plain, known)]
    entries = {one["txid"]: one for one in page["entries"]}
    assert [entries[one]["key"].split()[:2] for one in decisions] == [["commit", names[0]], ["rollback", names[1]]]
    assert entries[decisions[0]]["index"] == commit["index"]
    status, again = await post(cluster, 2, insert("later"), Idempotency_Key="l", **asked)
    assert (status, again["TxLog-Synchronous"]) == (204, "committed"), again
    assert again["TxLog-Transaction"] != known["TxLog-Transaction"]
    assert [quad.split()[0] for quad in sorted(store.quads())] == ["<urn:s:elsewhere>", "<urn:s:late>", "<urn:s:later>"]


async def test_what_operators_see(three_with_store: Served) -> None:
    cluster = three_with_store.cluster
    shown = await cluster.get(0, "/txlog/synchro")
    assert (shown["quorate"], shown["electorate"]["votes"], shown["electorate"]["here"]) == (True, 3, 3)
    assert all(master["here"] and master["counts"] for master in shown["electorate"]["masters"])
    rule = {"match": RULES[0]["match"], "quorum": "N/2+1", "timeout": "30s", "needs": 2, "asked": None}
    assert shown["graphs"] == [rule | {"here": 3, "reached": True}]
    heal = await isolate(cluster)
    minority = await cluster.get(2, "/txlog/synchro")
    assert (minority["quorate"], minority["graphs"][0]["here"], minority["graphs"][0]["reached"]) == (False, 1, False)
    assert (await cluster.get(0, "/txlog/synchro"))["graphs"][0]["reached"] is True
    status, _ = await post(cluster, 2, insert("no"), again=False)
    assert status == 503
    metrics = await cluster.get(2, "/metrics")
    assert 'txlog_synchro_refused_total{reason="NoQuorum"} 1.0' in metrics
    assert "txlog_view_quorate 0.0" in metrics
    assert 'txlog_synchro_needs{match="http://ex.org/accounts/*"} 2.0' in metrics
    assert 'txlog_synchro_here{match="http://ex.org/accounts/*"} 1.0' in metrics
    heal()
    await until(lambda: states(cluster) == {"Joined"})


def value_of(metrics: str, name: str) -> float:
    return next(float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(f"{name} "))


async def test_metrics_of_decisions(three_with_store: Served) -> None:
    """A commit at once, and one that waits for a quorum of which no member answers."""
    cluster = three_with_store.cluster
    status, headers = await post(cluster, 2, insert("a"), TxLog_Durability="synced")
    assert status == 204, headers
    heal = cut(cluster)
    status, _ = await post(cluster, 2, insert("waits"), again=False, TxLog_Durability="accepted")
    assert status == 202
    waiting = await cluster.get(2, "/metrics")
    assert value_of(waiting, "txlog_synchro_undecided") == 1
    size = value_of(waiting, "txlog_synchro_undecided_bytes")
    assert 50 < size < 200
    assert (await cluster.get(2, "/txlog/synchro"))["queue"]["bytes"] == size
    heal()

    async def metrics_of_all() -> str:
        found = await cluster.get(2, "/metrics")
        return str(found) if value_of(found, "txlog_synchro_commits_total") == 2 else ""

    found = await until(metrics_of_all)
    assert value_of(found, "txlog_synchro_undecided_bytes") == 0
    assert value_of(found, "txlog_synchro_rollbacks_total") == 0
    assert value_of(found, 'txlog_synchro_commit_lag_seconds_bucket{le="+Inf"}') == 2
    assert value_of(found, "txlog_synchro_commit_lag_seconds_count") == 2
    assert 0 < value_of(found, "txlog_synchro_commit_lag_seconds_sum") < 60
    held = value_of(found, 'txlog_synchro_held_seq{node="uk-1"}')
    assert held == value_of(found, 'txlog_synchro_held_seq{node="uk-2"}') >= 2
    assert (await cluster.get(2, "/txlog/synchro"))["queue"]["commitLagSeconds"] > 0


async def test_json_lines(three_with_store: Served) -> None:
    cluster = three_with_store.cluster
    lines: list[dict[str, object]] = [
        {"update": insert("a")},
        {"update": insert("b", "http://ex.org/other")},
        {"update": insert("c", "http://ex.org/other"), "synchronous": "all", "timeout": "10s"},
        {"update": insert("d", "http://ex.org/other"), "synchronous": True},
        {"update": insert("e"), "synchronous": False},
        {"update": insert("f"), "synchronous": "N/2"},
        {"update": insert("g", "http://ex.org/other"), "timeout": "10s"},
        {"update": insert("h"), "timeout": "10s"},
    ]

    async def send(lines: list[dict[str, object]], **headers: str) -> list[dict[str, Any]]:
        """The answers, once others answer in time for each line."""
        body = "".join(json.dumps(line) + "\n" for line in lines)

        async def answered() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = await cluster.post(0, "/txlog/transactions", body, 200, headers=headers)
            return found if all(line.get("error") != "NoQuorum" for line in found) else []

        return await until(answered)

    found = await send(lines)
    assert [line.get("synchronous") for line in found] == [
        "committed",
        None,
        "committed",
        "committed",
        None,
        None,
        None,
        "committed",
    ]
    assert [line.get("error") for line in found] == [None] * 4 + ["BadInput"] * 3 + [None]
    (one,) = await send(
        [{"update": insert("i", "http://ex.org/other"), "timeout": "10s"}], **{"TxLog-Synchronous": "all"}
    )
    assert one["synchronous"] == "committed", "its time-out keeps the quorum that the request names"


async def test_a_transaction_of_rdf4j(three_with_store: Served) -> None:
    """Its commit is pending while the others are silent: it cannot be rolled back, and takes effect once."""
    cluster, store = three_with_store.cluster, three_with_store.store
    setting = "transaction-setting__txlog.synchronous"

    async def act(method: str, url: str, **more: Any) -> tuple[int, dict[str, str]]:
        async with cluster.session.request(method, url, **more) as answer:
            return answer.status, {**answer.headers, "body": await answer.text()}

    begin = cluster.url(0, "/repositories/demo/transactions")
    assert (await act("POST", f"{begin}?{setting}=maybe"))[0] == 400
    status, headers = await act("POST", f"{begin}?{setting}=all")
    assert status == 201
    url, quad = headers["Location"], "<urn:s:tx> <urn:p> <urn:o> <http://ex.org/other> .\n"
    added = await act("PUT", f"{url}?action=ADD", data=quad, headers={"Content-Type": "application/n-quads"})
    assert added[0] == 200
    heal = cut(cluster)
    longer = {"Prefer": "wait=0.3", "TxLog-Synchronous": "; timeout=1m"}  # it keeps the quorum of the beginning
    status, headers = await act("PUT", f"{url}?action=COMMIT", headers=longer)
    assert (status, headers["TxLog-Synchronous"]) == (202, "pending"), headers
    status, headers = await act("DELETE", url)
    assert (status, "cannot be rolled back" in headers["body"]) == (409, True), headers
    heal()
    status, headers = await act("PUT", f"{url}?action=COMMIT")
    assert (status, headers["TxLog-Synchronous"]) == (200, "committed"), headers
    assert store.quads() == ["<urn:s:tx> <urn:p> <urn:o> <http://ex.org/other> ."]


async def test_an_update_that_is_evaluated_once(three_with_store: Served) -> None:
    cluster, store = three_with_store.cluster, three_with_store.store
    update = f"INSERT {{ GRAPH <{GRAPH}> {{ <urn:s:r> <urn:p> ?r }} }} WHERE {{ BIND(STRUUID() AS ?r) }}"
    status, headers = await post(cluster, 0, update)
    assert (status, headers["TxLog-Synchronous"]) == (204, "committed"), headers
    assert len(store.quads()) == 1


async def test_an_update_that_is_evaluated_once_is_answered_as_rolled_back(three_with_store: Served) -> None:
    """Only the minority held it, and it was late at the rejoin."""
    cluster = three_with_store.cluster
    assert (await post(cluster, 2, insert("before")))[0] == 204
    update = (
        f"INSERT {{ GRAPH <{GRAPH}> {{ ?s <urn:id> ?r }} }} "
        f'WHERE {{ GRAPH <{GRAPH}> {{ ?s <urn:p> "o" }} BIND(STRUUID() AS ?r) }}'
    )
    asked = {"TxLog_Synchronous": "true; timeout=100ms", "Prefer": "wait=60"}
    assert (await post(cluster, 2, update, **asked))[0] == 204
    heal = cut(cluster)
    sent = asyncio.create_task(post(cluster, 2, update, again=False, **asked))

    def is_there() -> bool:
        found = cluster.service(2).loop.status.synchronous_status
        return found is not None and len(found.undecided) == 1

    await until(is_there)

    async def apart() -> bool:
        done = [await back_up(cluster, at) for at in range(3)]
        return all(done) and states(cluster) == {"Isolated"}

    await until(apart)
    assert (await post(cluster, 0, insert("elsewhere")))[0] == 204
    heal()
    status, headers = await sent
    assert (status, headers.get("TxLog-Synchronous"), headers.get("TxLog-Error")) == (409, "rolled-back", "RolledBack")


@pytest.mark.parametrize("is_changed", [False, True])
async def test_an_update_that_is_evaluated_once_behind_another_one_of_its_commit(
    three_with_store: Served, is_changed: bool
) -> None:
    """Both are decided by one COMMIT when the others answer again. What precedes it may change what it looked at."""
    cluster, store = three_with_store.cluster, three_with_store.store
    looked = "urn:p" if is_changed else "urn:q"
    update = (
        f"INSERT {{ GRAPH <{GRAPH}> {{ ?s <urn:id> ?r }} }} "
        f'WHERE {{ GRAPH <{GRAPH}> {{ ?s <{looked}> "o" }} BIND(STRUUID() AS ?r) }}'
    )
    status, headers = await post(cluster, 2, insert("before").replace("urn:p", looked))
    assert status == 204, headers
    status, headers = await post(cluster, 2, update)
    assert status == 204, headers
    heal = cut(cluster)
    first = asyncio.create_task(post(cluster, 2, insert("a"), again=False, TxLog_Durability="synced"))

    def undecided() -> int:
        found = cluster.service(2).loop.status.synchronous_status
        return len(found.undecided) if found is not None else 0

    await until(lambda: undecided() == 1)
    second = asyncio.create_task(post(cluster, 2, update, again=False, TxLog_Durability="synced"))
    await until(lambda: undecided() == 2)
    heal()
    for status, headers in (await first, await second):
        assert (status, headers.get("TxLog-Synchronous")) == (204, "committed"), headers
    events = await cluster.get(0, "/txlog/watch?from=0&until=now", headers={"Accept": "application/x-ndjson"})
    assert 2 in [len(event.get("commits", [])) for event in events], "one COMMIT named both"

    def identified() -> list[str]:
        return sorted(quad.split()[0] for quad in store.quads() if "urn:id" in quad)

    # Each run of the update gives an id to each subject that it found; one whose data had changed is run again.
    expected = ["<urn:s:before>"] * 2 + (["<urn:s:a>"] if is_changed else [])
    await until(lambda: identified() == sorted(expected))


async def test_a_decision_is_not_skipped(three_with_store: Served) -> None:
    """Its transactions were answered as committed. A worker that refuses one of them names that one."""
    cluster = three_with_store.cluster
    status, headers = await post(cluster, 0, insert("a"))
    assert status == 204, headers
    txid = headers["TxLog-Transaction"]
    page = await cluster.get(0, "/txlog/log?keys=1", headers={"Accept": "application/json"})
    decision = next(entry for entry in page["entries"] if entry["kind"] == "decision")
    refused = await cluster.post(0, f"/txlog/skip/{decision['txid']}", "", 409)
    assert refused["message"].endswith(f"that workers refuse: {txid}"), refused
    assert (await cluster.post(0, f"/txlog/skip/{txid}", "", 200))["state"] == "skipped"


async def test_a_follower_gets_them_at_their_commit(three_with_store: Served) -> None:
    cluster = three_with_store.cluster
    status, headers = await post(cluster, 0, insert("a"))
    assert status == 204, headers
    txid = headers["TxLog-Transaction"]
    events = await cluster.get(0, "/txlog/watch?from=0&until=now", headers={"Accept": "application/x-ndjson"})
    undecided = [event for event in events if event.get("synchronous") == "undecided"]
    commits = [event for event in events if event.get("commits")]
    assert [event["txid"] for event in undecided] == [txid]
    assert "payload" not in undecided[0]
    assert [[one["txid"] for one in event["commits"]] for event in commits] == [[txid]]
    assert GRAPH in commits[0]["commits"][0]["payload"]
