"""What a client is answered that repeats a write under its key, at a master that did not accept it first."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable

from master_cluster import Cluster, until

from txlog.model.ids import parse_txid
from txlog.runtime.executor import SyncTask

BODY = 'INSERT DATA { <urn:s:1> <urn:p> "o" }'
OTHER = BODY.replace("urn:s:1", "urn:s:2")


def holds(cluster: Cluster, at: int, txid: str) -> bool:
    """In memory; whether also on the disk is another question."""
    agreement = cluster.service(at).loop.status.log_state
    assert agreement is not None
    wanted = parse_txid(txid)
    return wanted.origin in agreement.by_origin and agreement.by_origin[wanted.origin].held >= wanted.seq


async def alone_with_a_backup(cluster: Cluster, at: int) -> bool:
    """Does the duty of the split backup, as if a worker were at the stable index, until the master continues alone."""
    for duty in (await cluster.get(at, "/txlog/duties"))["duties"]:
        stable = (await cluster.get(at, "/txlog/status"))["stable"]
        done = {"state": "done", "index": stable["index"], "hash": stable["hash"]}
        async with cluster.session.post(cluster.url(at, f"/txlog/duties/{duty['id']}"), json=done) as answer:
            assert answer.status in (200, 404)
    return cluster.service(at).loop.status.state == "Isolated"


async def test_quorum_is_answered_for_the_masters_that_have_this_very_transaction(
    clusters: Callable[..., Cluster],
) -> None:
    cluster = clusters(3, max_peer_lag_ms=3000, round_timeout_ms=600, idle_interval_ms=100)
    await cluster.start()
    await cluster.crash(1)
    first = await cluster.write(0, BODY, TxLog_Durability="accepted", Idempotency_Key="k")
    txid = first["TxLog-Transaction"]
    again = await cluster.write(2, BODY, TxLog_Durability="quorum", Idempotency_Key="k")
    assert (again["TxLog-Transaction"], again["TxLog-Durability"]) == (txid, "quorum"), "two of three report it"
    await cluster.crash(0)
    await until(lambda: alone_with_a_backup(cluster, 2))
    again = await cluster.write(2, BODY, TxLog_Durability="synced", Idempotency_Key="k")
    assert (again["TxLog-Transaction"], again["TxLog-Durability"]) == (txid, "synced"), "on every member of its view"
    asked = {"TxLog_Durability": "quorum", "Idempotency_Key": "k", "Prefer": "wait=0.2"}
    again = await cluster.write(2, BODY, 202, **asked)
    assert (again["Location"], again["TxLog-Durability"]) == (f"/txlog/transactions/{txid}", "synced")
    waiting = asyncio.ensure_future(cluster.get(2, f"/txlog/transactions/{txid}?wait=50&durability=quorum"))
    await cluster.write(2, BODY, 202, **asked)
    assert not waiting.done()
    await cluster.start(0, 1, ready=False)
    assert (await waiting)["durability"] == "synced"
    view = cluster.service(2).loop.status.view
    assert view is not None
    assert len(view.members) >= 2, "all members of a view have its base"
    again = await cluster.write(2, BODY, TxLog_Durability="quorum", Idempotency_Key="k")
    assert again["TxLog-Durability"] == "synced"


class Gate:
    """While it is entered, it lets the syncs of one master pass one by one, on its sync thread."""

    def __init__(self, cluster: Cluster, at: int) -> None:
        self.loop = cluster.service(at).loop
        self.arrived = 0
        self.may_pass = threading.Semaphore(0)
        self._begin = self.loop.executor.begin_sync

    def __enter__(self) -> Gate:
        self.loop.executor.begin_sync = self._begin_sync  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.executor.begin_sync = self._begin  # type: ignore[method-assign]
        self.may_pass.release(1000)

    def _begin_sync(self) -> SyncTask | None:
        self.loop._average_sync_s = 1.0  # as if the last ones had taken so long
        sync = self._begin()
        return None if sync is None else HeldSync(self, sync)


class HeldSync:
    def __init__(self, gate: Gate, sync: SyncTask) -> None:
        self._gate, self._sync = gate, sync

    def run(self) -> None:
        self._gate.arrived += 1
        assert self._gate.may_pass.acquire(timeout=30)
        self._sync.run()


async def test_accepted_is_answered_when_the_master_that_answers_has_it_on_its_disk(
    clusters: Callable[..., Cluster],
) -> None:
    cluster = clusters(3, round_timeout_ms=20_000)
    await cluster.start()
    with Gate(cluster, 1) as gate:
        other = asyncio.ensure_future(cluster.write(1, OTHER, TxLog_Durability="accepted"))
        await until(lambda: gate.arrived == 1)
        first = await cluster.write(0, BODY, TxLog_Durability="accepted", Idempotency_Key="k")
        txid = first["TxLog-Transaction"]
        await until(lambda: holds(cluster, 1, txid))
        again = asyncio.ensure_future(cluster.write(1, BODY, TxLog_Durability="accepted", Idempotency_Key="k"))
        await until(lambda: gate.loop._writes)
        gate.may_pass.release()
        await until(lambda: gate.arrived == 2)
        await cluster.get(1, f"/txlog/transactions/{txid}", 404)
        assert not again.done(), "the sync that names it is under way"
    assert (await again)["TxLog-Transaction"] == txid
    assert (await cluster.get(1, f"/txlog/transactions/{txid}"))["durability"]
    await other


async def test_a_batch_that_ends_with_a_repeat_waits_for_its_new_lines(one: Cluster) -> None:
    await one.write(0, BODY, Idempotency_Key="k")
    body = "".join(json.dumps({"update": update, "key": key}) + "\n" for update, key in ((OTHER, "new"), (BODY, "k")))
    asked = {"TxLog-Durability": "accepted"}
    with Gate(one, 0) as gate:
        lines = asyncio.ensure_future(one.post(0, "/txlog/transactions", body, 200, headers=asked))
        await until(lambda: gate.arrived == 1)
        await one.get(0, "/txlog/status")
        assert not lines.done()
    assert all(line["durability"] for line in await lines)
