"""A synchronous transaction has one answer: repeats without a quorum, commits of RDF4J, namespaces, time-outs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from apart import cut
from master_cluster import Cluster, until
from synchronous_cluster import GRAPH, RULES, decides, insert, post, rules

from txlog.model.durability import Durability
from txlog.model.errors import KeyTaken, Unavailable
from txlog.model.synchronous import NO_REQUEST
from txlog.protocol.events import Submission, SubmissionAccepted
from txlog.server.frontdoor import synchronous_door
from txlog.server.frontdoor.synchronous_door import recognise_repeat
from txlog.sparql import prepare_update

SYNCED = {"TxLog_Durability": "synced"}
QUAD = "<urn:s:tx> <urn:p> <urn:o> <{}> .\n"


@pytest.fixture
async def three(clusters: Callable[..., Cluster]) -> Cluster:
    """Three masters with a rule; they go apart only after the time of a test."""
    cluster = clusters(3, durability="synced", max_peer_lag_ms=60_000)
    await cluster.start()
    await rules(cluster, RULES)
    await until(lambda: all(decides(cluster, at) for at in range(3)))
    status, headers = await post(cluster, 2, insert("first"), **SYNCED)
    assert status == 204, headers
    return cluster


async def act(cluster: Cluster, method: str, url: str, **more: Any) -> tuple[int, dict[str, str]]:
    async with cluster.session.request(method, url, **more) as answer:
        return answer.status, {**answer.headers, "body": await answer.text()}


def is_alone(cluster: Cluster) -> bool:
    found = cluster.service(2).loop.status.synchronous_status
    return found is not None and found.present == ["uk-3"]


async def test_a_repeat_of_what_is_pending_is_not_answered_that_nothing_was_logged(three: Cluster) -> None:
    asked = SYNCED | {"Idempotency_Key": "once"}
    heal = cut(three)
    first = await post(three, 2, insert("a"), again=False, Prefer="wait=1", **asked)
    assert (first[0], first[1]["TxLog-Synchronous"]) == (202, "pending"), first
    await until(lambda: is_alone(three))
    status, headers = await post(three, 2, insert("new"), again=False, **SYNCED)
    assert (status, headers["TxLog-Error"]) == (503, "NoQuorum"), headers
    status, headers = await post(three, 2, insert("other-body"), again=False, **asked)
    assert (status, headers.get("TxLog-Error")) == (503, "NoQuorum"), headers
    status, again = await post(three, 2, insert("a"), again=False, Prefer="wait=1", **asked)
    assert (status, again["TxLog-Synchronous"]) == (202, "pending"), again
    assert again["TxLog-Transaction"] == first[1]["TxLog-Transaction"]
    lines = "".join(json.dumps({"update": insert(what), "key": "once"}) + "\n" for what in ("a", "other-body"))
    url = three.url(2, "/txlog/transactions")
    async with three.session.post(url, data=lines, headers={"Prefer": "wait=1"}) as answer:
        repeated, refused = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert (repeated["txid"], repeated["synchronous"]) == (first[1]["TxLog-Transaction"], "pending")
    assert refused["reason"] == "NoQuorum"
    heal()
    status, done = await post(three, 2, insert("a"), **asked)
    assert (status, done["TxLog-Transaction"]) == (204, first[1]["TxLog-Transaction"]), done


async def begun(cluster: Cluster, graph: str = GRAPH) -> str:
    """The URL of an open transaction that has written a graph; without a name, one with a rule."""
    status, headers = await act(cluster, "POST", cluster.url(2, "/repositories/demo/transactions"))
    assert status == 201
    url = headers["Location"]
    added = await act(
        cluster, "PUT", f"{url}?action=ADD", data=QUAD.format(graph), headers={"Content-Type": "application/n-quads"}
    )
    assert added[0] == 200, added
    return url


async def test_a_commit_that_is_refused_as_wrong_may_be_rolled_back(three: Cluster) -> None:
    url = await begun(three)
    status, headers = await act(three, "PUT", f"{url}?action=COMMIT", headers={"TxLog-Synchronous": "false"})
    assert (status, "asks for N/2+1" in headers["body"]) == (400, True), headers
    assert (await act(three, "DELETE", url))[0] == 204, "nothing was handed to the log"


async def test_a_commit_that_is_pending_is_never_answered_as_rolled_back(three: Cluster) -> None:
    url = await begun(three)
    heal = cut(three)
    commit, soon = f"{url}?action=COMMIT", {"Prefer": "wait=1"}
    status, first = await act(three, "PUT", commit, headers=soon)
    assert (status, first["TxLog-Synchronous"]) == (202, "pending"), first
    await until(lambda: is_alone(three))
    status, again = await act(three, "PUT", commit, headers=soon)
    assert (status, again["TxLog-Transaction"]) == (202, first["TxLog-Transaction"]), again
    for more, expected in (("false", 400), ("all", 409)):
        status, wrong = await act(three, "PUT", commit, headers=soon | {"TxLog-Synchronous": more})
        assert status == expected, wrong
        assert (await act(three, "DELETE", url))[0] == 409, "it may still take effect"
    heal()
    status, done = await act(three, "PUT", commit)
    assert (status, done["TxLog-Transaction"]) == (200, first["TxLog-Transaction"]), done


NAMESPACES = (
    "<transaction><setNamespace prefix='ex' name='http://ex.org/'/>"
    "<add><uri>urn:s</uri><uri>urn:p</uri><uri>urn:o</uri><contexts><uri>{}</uri></contexts></add></transaction>"
)


@pytest.mark.parametrize(("graph", "status"), [(GRAPH, 400), ("http://ex.org/other", 204)])
async def test_namespaces_do_not_go_with_a_synchronous_transaction(three: Cluster, graph: str, status: int) -> None:
    """They are entries of their own, which would be in the log where it is refused or rolled back."""
    logs = [three.service(at).loop.durability for at in range(3)]
    await until(lambda: logs[0].log_index == logs[2].log_index)  # the write of the fixture has its COMMIT there
    before = logs[0].log_index
    done = await act(
        three,
        "POST",
        three.url(0, "/repositories/demo/statements"),
        data=NAMESPACES.format(graph),
        headers={"Content-Type": "application/x-rdftransaction"},
    )
    assert done[0] == status, done
    if status == 400:
        assert "a request of their own" in done[1]["body"]
        assert logs[0].log_index == before


async def test_a_pending_write_waits_once_and_leaves_no_waiter(three: Cluster) -> None:
    heal = cut(three)
    began = time.monotonic()
    status, headers = await post(three, 2, insert("a"), again=False, Prefer="wait=2", TxLog_Durability="applied")
    assert (status, headers["TxLog-Synchronous"]) == (202, "pending"), headers
    assert 2 <= time.monotonic() - began < 3.5, "not once for the log and once for the workers"
    await until(lambda: three.service(2).loop.durability.count_txid_waiters() == 0)
    heal()


async def test_a_commit_that_is_repeated_with_other_terms_is_answered_about_the_first(three: Cluster) -> None:
    url = await begun(three)
    heal = cut(three)
    commit, soon = f"{url}?action=COMMIT", {"Prefer": "wait=1"}
    status, first = await act(three, "PUT", commit, headers=soon | {"TxLog-Synchronous": "true; timeout=10s"})
    assert (status, first["TxLog-Synchronous"]) == (202, "pending"), first
    status, again = await act(three, "PUT", commit, headers=soon)
    assert (status, again.get("TxLog-Transaction")) == (202, first["TxLog-Transaction"]), again
    heal()
    status, done = await act(three, "PUT", commit)
    assert (status, done["TxLog-Transaction"]) == (200, first["TxLog-Transaction"]), done


@pytest.mark.parametrize("graph", [GRAPH, "http://ex.org/other"])
async def test_a_commit_that_is_repeated_under_another_key_is_the_same_commit(three: Cluster, graph: str) -> None:
    url = await begun(three, graph)
    heal = cut(three)
    commit = f"{url}?action=COMMIT"
    status, first = await act(three, "PUT", commit, headers={"Prefer": "wait=1", "Idempotency-Key": "one"})
    assert status == 202, first
    heal()
    status, done = await act(three, "PUT", commit, headers={"Idempotency-Key": "another"})
    assert (status, done["TxLog-Transaction"]) == (200, first["TxLog-Transaction"]), "it took effect twice"


async def test_a_key_is_answered_after_its_rule_has_changed(three: Cluster) -> None:
    """The terms of the first try count. They are a part of what the log has, and not of what the client sent."""
    keyed = SYNCED | {"Idempotency_Key": "once"}
    first = await post(three, 1, insert("a"), **keyed)
    assert (first[0], first[1]["TxLog-Synchronous"]) == (204, "committed"), first
    for graphs in ([{**RULES[0], "timeout": "7s"}], []):
        await rules(three, graphs)
        status, again = await post(three, 1, insert("a"), **keyed)
        assert (status, again["TxLog-Transaction"]) == (204, first[1]["TxLog-Transaction"]), again
        assert again["TxLog-Synchronous"] == "committed"
    line = json.dumps({"update": insert("a"), "key": "once"})
    _, told = await act(three, "POST", three.url(0, "/txlog/transactions"), data=line)
    assert json.loads(told["body"])["txid"] == first[1]["TxLog-Transaction"], told
    status, other = await post(three, 1, insert("another-body"), **keyed)
    assert (status, other["TxLog-Error"]) == (409, "KeyTaken"), other
    assert "'once'" in other["body"], "the key is shown as the client sent it"


async def test_a_key_is_answered_after_a_rule_has_come(three: Cluster) -> None:
    keyed, update = SYNCED | {"Idempotency_Key": "once"}, insert("a", "http://ex.org/other")
    first = await post(three, 1, update, **keyed)
    await rules(three, [{"match": "http://ex.org/*"}])
    status, again = await post(three, 1, update, **keyed)
    assert (status, again["TxLog-Transaction"]) == (204, first[1]["TxLog-Transaction"]), again
    assert "TxLog-Synchronous" not in again, "it is an ordinary transaction"
    status, asked = await post(three, 1, update, TxLog_Synchronous="true", **keyed)
    assert (status, asked["TxLog-Error"]) == (409, "KeyTaken"), "the client asks for more than the first one promises"
    assert asked["body"].strip().endswith(first[1]["TxLog-Transaction"]), asked


async def test_a_repeat_that_asks_for_less_is_answered_about_the_first(three: Cluster) -> None:
    """The rules have gone, and each of these asks for no more than the first one promises."""
    first: dict[str, str] = {}
    terms = {"all": ("N-1", "2", "N/2+1; timeout=40s", "false"), "N-1&D; timeout=7s": ("D/2+1; timeout=9s", "N-1")}
    for strong in terms:
        keyed = SYNCED | {"Idempotency_Key": strong.partition(";")[0]}
        status, headers = await post(three, 1, insert("a"), TxLog_Synchronous=strong, **keyed)
        assert (status, headers["TxLog-Synchronous"]) == (204, "committed"), headers
        first[strong] = headers["TxLog-Transaction"]
    await rules(three, [])
    for strong, weaker in terms.items():
        keyed = SYNCED | {"Idempotency_Key": strong.partition(";")[0]}
        for asked in weaker:
            status, again = await post(three, 1, insert("a"), TxLog_Synchronous=asked, **keyed)
            assert (status, again.get("TxLog-Transaction")) == (204, first[strong]), (asked, again)
            assert again["TxLog-Synchronous"] == "committed"
    for more in ("all", "N-1; timeout=2s"):
        status, headers = await post(three, 1, insert("a"), TxLog_Synchronous=more, **keyed)
        assert (status, headers["TxLog-Error"]) == (409, "KeyTaken"), headers


async def test_a_line_that_repeats_a_synchronous_transaction_waits_for_its_quorum(
    clusters: Callable[..., Cluster],
) -> None:
    """This cluster's default is accepted, which promises less. The line itself asks for nothing."""
    cluster = clusters(3, durability="accepted", max_peer_lag_ms=60_000)
    await cluster.start()
    await rules(cluster, RULES)
    await until(lambda: all(decides(cluster, at) for at in range(3)))
    assert (await post(cluster, 2, insert("first"), **SYNCED))[0] == 204
    body, heal = insert("a", "http://ex.org/other"), cut(cluster)
    keyed = {"TxLog_Synchronous": "true", "Idempotency_Key": "once", "Prefer": "wait=1"}
    status, first = await post(cluster, 2, body, again=False, **keyed)
    assert (status, first["TxLog-Synchronous"]) == (202, "pending"), first
    line, url = json.dumps({"update": body, "key": "once"}), cluster.url(2, "/txlog/transactions")
    repeat = asyncio.ensure_future(act(cluster, "POST", url, data=line, headers={"Prefer": "wait=50"}))
    durability = cluster.service(2).loop.durability
    await until(lambda: repeat.done() or durability.count_txid_waiters() > 0)
    heal()
    answered = json.loads((await repeat)[1]["body"])
    assert (answered["txid"], answered["synchronous"]) == (first["TxLog-Transaction"], "committed"), answered


async def test_a_body_whose_hash_begins_alike_is_told_from_the_first(
    three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of keys has the beginning of a hash, the journal the whole transaction."""
    loop, door = three.service(1).loop, three.service(1).routes.writes.synchronous_door
    assert (await post(three, 1, insert("a"), **SYNCED, Idempotency_Key="once"))[0] == 204
    body = prepare_update(insert("a"), base=None, now="", draw=lambda: 0, all_graphs=True)
    first = door.convert(Submission(body.kind, "once", body.payload, b""), NO_REQUEST)
    like = first.content[:-1] + bytes([first.content[-1] ^ 1])
    other = Submission(first.kind, first.key, b"another", like)
    assert await loop.write([first], Durability.SYNCED).reached
    write = loop.write([other], Durability.SYNCED)
    assert await write.reached
    [answer] = write.answers
    assert isinstance(answer, KeyTaken)
    assert "'once'" in str(answer), "the key is shown as the client sent it"
    assert recognise_repeat(loop.status, other, answer).answer is answer, "it is no repeat under other terms"
    refused = Unavailable("NoQuorum", "2 votes are needed")
    assert recognise_repeat(loop.status, other, refused).answer is refused, "nothing of this body was logged"
    repeat = recognise_repeat(loop.status, first, refused).answer
    assert isinstance(repeat, SubmissionAccepted)
    assert (str(repeat.txid), repeat.is_repeat) == (answer.txid, True)
    monkeypatch.setattr(synchronous_door, "_read_first_try", lambda *_: None)  # as after a trim
    repeat = recognise_repeat(loop.status, first, refused).answer
    assert isinstance(repeat, SubmissionAccepted)
    assert str(repeat.txid) == answer.txid
    unlike = Submission(first.kind, first.key, b"another", bytes([first.content[0] ^ 1]) + first.content[1:])
    assert recognise_repeat(loop.status, unlike, refused).answer is refused
