"""The typed client against masters that are killed while they have a write in hand: it takes effect once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable

import pytest
from master_cluster import Cluster, until
from worker_driver import Served

from txlog.client import FailoverClient, MasterClient, RetryPolicy, WriteResult
from txlog.model import errors
from txlog.model.durability import Durability

PATIENCE = RetryPolicy(60, 60.0)


@pytest.fixture
async def spawned(clusters: Callable[..., Cluster]) -> Cluster:
    cluster = clusters(3, write_timeout_s=30.0, split_recovery="None")  # nobody makes backups here
    cluster.spawn()
    await cluster.ready()
    return cluster


def effects(url: str) -> list[bytes]:
    """What every worker executes of this log: the payloads of its entries that count."""
    with MasterClient(url, 10) as master:
        after, found = 0, []
        while entries := master.log_page(after).entries:
            found += [entry.payload for entry in entries if not entry.noop]
            after = entries[-1].index
        return found


async def everywhere(cluster: Cluster, *at: int) -> list[list[bytes]]:
    """The same of all of them, once they are equally far."""

    async def far() -> list[int]:
        told = [await cluster.get(one, "/txlog/status") for one in at]
        waiting = sum(one["queue"]["transactions"] for one in told)
        places = {one["stable"]["index"] for one in told}
        return [1] if len(places) == 1 and not waiting else []

    await until(far)
    return [await asyncio.to_thread(effects, cluster.url(one)) for one in at]


def in_order(cluster: Cluster, *at: int) -> FailoverClient:
    return FailoverClient([cluster.url(one) for one in at], 5.0, patience=PATIENCE)


async def test_a_master_killed_in_the_middle_of_a_write(spawned: Cluster) -> None:
    update = 'INSERT DATA { <urn:s> <urn:p> "in the middle" }'
    for at in (1, 2):  # they hear nothing, so the first one can accept it, and never order it
        os.kill(spawned.process(at).pid, signal.SIGSTOP)
    with in_order(spawned, 0, 1, 2) as masters:
        writing = asyncio.create_task(
            asyncio.to_thread(masters.update, update, durability=Durability.SYNCED, wait_s=30)
        )

        async def has_it() -> bool:
            return bool((await spawned.get(0, "/txlog/status"))["queue"]["transactions"])

        await until(has_it)
        assert not writing.done()
        spawned.kill(0)
        for at in (1, 2):
            os.kill(spawned.process(at).pid, signal.SIGCONT)
        told = await writing
    assert told.durability in ("synced", "applied")
    assert told.position is not None
    spawned.spawn(0)  # it comes back with what it had accepted
    await spawned.ready(0)
    for found in await everywhere(spawned, 0, 1, 2):
        assert sum(b"in the middle" in payload for payload in found) == 1


async def test_masters_are_killed_while_somebody_writes(spawned: Cluster) -> None:
    done: dict[int, WriteResult] = {}
    ended = threading.Event()

    def write() -> None:
        with in_order(spawned, 0, 1, 2) as masters:
            number = 0
            while not ended.is_set():
                if number % 2:
                    done[number] = masters.update(f'INSERT DATA {{ <urn:s> <urn:p> "n{number}." }}')
                else:  # blank nodes are drawn by the master that takes it: the body is another one each time
                    done[number] = masters.upload(f'_:b <urn:p> "n{number}." .'.encode(), "text/turtle")
                number += 1

    writing = asyncio.create_task(asyncio.to_thread(write))
    for at in (0, 1):
        so_far = len(done)
        await until(lambda so_far=so_far: len(done) > so_far + 20 or writing.done())
        spawned.kill(at)
        so_far = len(done)
        await until(lambda so_far=so_far: len(done) > so_far + 20 or writing.done())
        spawned.spawn(at)
        await spawned.ready(at)
    ended.set()
    await writing
    assert len({told.txid for told in done.values()}) == len(done)
    for found in await everywhere(spawned, 0, 1, 2):
        text = b"\n".join(found)
        counted = Counter({number: text.count(b'"n%d."' % number) for number in done})
        assert set(counted.values()) == {1}, counted.most_common(3)


async def test_a_body_that_is_another_one_each_time(three: Cluster) -> None:
    """The key finds the first; ``NOW()`` and the names of blank nodes were drawn anew."""
    update = "INSERT DATA { <urn:s> <urn:p> [] }"
    first = await three.write(0, update, Idempotency_Key="k-1")
    again = await three.write(1, update, 409, Idempotency_Key="k-1")
    assert again["TxLog-Error"] == "KeyTaken"
    assert again["body"].strip().endswith(first["TxLog-Transaction"])


async def test_a_key_with_what_can_have_none(one: Cluster) -> None:
    told = await one.write(
        0, "INSERT { ?s <urn:q> ?u } WHERE { ?s <urn:p> ?o BIND(UUID() AS ?u) }", 400, Idempotency_Key="k"
    )
    assert told["TxLog-Error"] == "KeyNotTaken"


async def test_wrong_input_is_said_at_once(one: Cluster) -> None:
    def wrong() -> None:
        with in_order(one, 0) as masters:
            with pytest.raises(errors.BadInput, match="MALFORMED QUERY"):
                masters.update("nonsense")
            with pytest.raises(errors.BadInput, match="MALFORMED DATA"):
                masters.upload(b"nonsense", "text/turtle")
            with pytest.raises(errors.Unsupported):
                masters.upload(b"x", "image/png")
            with pytest.raises(errors.BadInput, match="Idempotency-Key"):
                masters.update("INSERT DATA { <urn:s> <urn:p> 1 }", key="with spaces")
            with pytest.raises(errors.Unavailable):
                masters.query("ASK {}", wait_s=0.1)  # there is no worker

    await asyncio.to_thread(wrong)


async def test_what_was_written_is_read_at_another_master(served: Served) -> None:
    def both() -> None:
        with in_order(served.cluster, 0, 1) as masters, in_order(served.cluster, 1) as others:
            written = masters.update('INSERT DATA { <urn:a> <urn:b> "c" }', durability=Durability.SYNCED)
            masters.upload(b'<urn:a> <urn:d> "e" .', "text/turtle", graphs=["urn:graph"], key="import-17")
            found = others.query("SELECT ?o { <urn:a> <urn:b> ?o }", at_least=written.position)
            assert (found.rows, found.worker) == ([{"o": "c"}], "w-1")
            in_graph = others.query("SELECT ?o { GRAPH <urn:graph> { ?s ?p ?o } }", accept="text/csv")
            assert in_graph.body.split() == [b"o", b"e"]

    await asyncio.to_thread(both)
