"""What a master evaluates itself has its time and its memory, and takes nothing of the master's."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
from master_cluster import Cluster, until
from test_open_transactions import QUADS, RESULTS, act, begin, count
from worker_driver import Driver, OxigraphProcess, Served

from txlog.config.process_config import Limits
from txlog.evaluation.pipe_protocol import ApplyOperations, CountRequest, LoadDataset, QueryRequest
from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import BadInput, Conflict, Unavailable, WorkerFault
from txlog.server.frontdoor.evaluator_pool import Evaluator, EvaluatorPool

SECONDS = 8.0
"""On a busy machine memory takes some of them to be used up; each test of time waits for all of them."""
LIMITS = {"evaluation_s": SECONDS, "evaluation_bytes": 256 << 20}
LINES = [f'<urn:s{n}> <urn:p> "{n}" .' for n in range(3000)]
JOIN = "?a ?b ?c . ?d ?e ?f . ?g ?h ?i"
ENDLESS = f"SELECT (COUNT(*) AS ?n) {{ {JOIN} }}"
"""It takes time, and hardly any memory."""
HUGE = f"SELECT DISTINCT * {{ {JOIN} }} ORDER BY ?i"
"""All its memory is gone before its time is."""
UPDATE = "application/sparql-update"


@pytest.fixture
async def bounded(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Served]:
    """One master whose evaluations have some seconds and 256 MiB, and a store with 3000 statements."""
    store = OxigraphProcess(tmp_path / "store")
    cluster = clusters(1, workers=[{"name": "w-1", "url": store.url}], durability="applied", limits=LIMITS)
    await cluster.start()
    driver = Driver(cluster.url(0), "w-1", store)
    served = Served(cluster, store, driver)
    await served.send("POST", "/statements", "\n".join(LINES), Content_Type=QUADS)
    yield served
    await asyncio.to_thread(driver.close)
    store.kill()


async def started(**changes: int) -> Evaluator:
    return await Evaluator.start(Limits(**{**LIMITS, **changes}))  # type: ignore[arg-type]


async def lines(*some: str) -> AsyncIterator[bytes]:
    for line in some:
        yield line.encode() + b"\n"


def query(text: str, bytes_max: int = 1 << 20) -> QueryRequest:
    return QueryRequest(text, True, (), (), RESULTS, bytes_max)


def resident() -> int:
    return psutil.Process().memory_info().rss


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def refused(error: pytest.ExceptionInfo[Unavailable]) -> str:
    return error.value.reason


@pytest.mark.parametrize(("text", "reason"), [(ENDLESS, "QueryTimeout"), (HUGE, "QueryTooLarge")])
async def test_who_takes_too_much_is_ended_and_the_copy_stays(text: str, reason: str) -> None:
    seconds = 3 if reason == "QueryTimeout" else 30
    one = await started(evaluation_s=seconds)
    try:
        await one.load(LoadDataset(""), lines(*LINES))
        before, began = resident(), time.monotonic()
        with pytest.raises(Unavailable) as error:
            await one.execute(query(text))
        assert refused(error) == reason
        assert time.monotonic() - began < seconds + 25
        assert resident() - before < 16 << 20, "the master's own memory"
        assert await one.execute(CountRequest(None)) == b"3000"
    finally:
        one.kill()
        await one.wait()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"INSERT {{ <urn:x> <urn:y> 1 }} WHERE {{ {JOIN} FILTER(CONCAT(STR(?a),STR(?e),STR(?i)) = 'x') }}",
            "QueryTimeout",
        ),
        (f"INSERT {{ ?a ?e ?i }} WHERE {{ {JOIN} }}", "QueryTooLarge"),
    ],
)
async def test_a_change_that_takes_too_much_ends_the_process_by_name(text: str, reason: str) -> None:
    """A change is the process's own work: the copy would be neither what it was nor what it shall be."""
    one = await started(evaluation_s=3 if reason == "QueryTimeout" else 30)
    try:
        await one.load(LoadDataset(""), lines(*LINES))
        with pytest.raises(Unavailable) as error:
            await one.execute(ApplyOperations(((KIND_UPDATE, text.encode()),), None))
        assert refused(error) == reason
        assert not one.is_usable
    finally:
        one.kill()
        await one.wait()


async def test_data_that_is_too_much_for_its_memory_is_said() -> None:
    one = await started(evaluation_bytes=192 << 20)
    many = (f'<urn:s{n}> <urn:p{n % 7}> "{"x" * 100}{n}" .' for n in range(1_000_000))
    with pytest.raises(Unavailable) as error:
        await one.load(LoadDataset(""), lines(*many))
    assert refused(error) == "QueryTooLarge"
    await one.wait()


async def test_what_is_wrong_is_said_and_the_next_question_is_answered() -> None:
    one = await started()
    try:
        await one.load(LoadDataset(""), lines(*LINES[:10]))
        for work, error, says in (
            (query("SELECT"), BadInput, "MALFORMED QUERY"),
            (query("CONSTRUCT WHERE { ?s ?p ?o }"), BadInput, "its answer is a graph"),
            (query("SELECT * { ?s ?p ?o }", 100), Conflict, "the answer is larger"),
            (ApplyOperations(((KIND_UPDATE, b"DROP GRAPH <urn:none>"),), None), Conflict, "roll it back"),
            (query("SELECT * {" + "{" * 20000 + "}" * 20000 + "}"), (BadInput, Unavailable), ""),
        ):
            with pytest.raises(error, match=says or None):  # type: ignore[call-overload]
                await one.execute(work)
            assert await one.execute(CountRequest(None)) == b"10"
        with pytest.raises(WorkerFault, match="cannot be decoded"):
            await one.load(LoadDataset(""), lines("<urn:s> <urn:p>", *LINES[:10]))
        await one.load(LoadDataset(""), lines(*LINES[:4]))
        assert await one.execute(CountRequest(None)) == b"4"
    finally:
        one.kill()
        await one.wait()


async def test_who_leaves_does_not_take_the_answer_of_the_next_one() -> None:
    one = await started()
    try:
        await one.load(LoadDataset(""), lines(*LINES))
        asking = [asyncio.ensure_future(one.execute(CountRequest((f"<urn:g{n}>",)))) for n in range(20)]
        leaving = asyncio.ensure_future(one.execute(query(ENDLESS)))
        whole = asyncio.ensure_future(one.execute(CountRequest(None)))
        await asyncio.gather(*asking)
        leaving.cancel()
        assert await whole == b"3000"
    finally:
        one.kill()
        await one.wait()


async def test_one_that_is_free_is_taken_again_and_ends_when_nobody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = EvaluatorPool(Limits(**LIMITS))  # type: ignore[arg-type]
    first = await pool.acquire()
    await first.load(LoadDataset(""), lines(*LINES[:10]))
    pool.release(first)
    again = await pool.acquire()
    assert again is first
    other = await pool.acquire()
    monkeypatch.setattr("txlog.server.frontdoor.evaluator_pool.SPARE_IDLE_S", 0.05)
    pool.release(again)
    pool.release(other)
    await until(lambda: gone(other.pid))
    await until(lambda: gone(again.pid))
    last = await pool.acquire()
    await pool.close()
    assert gone(last.pid)
    with pytest.raises(Unavailable, match="stopping"):
        await pool.acquire()


MASTER = """
import asyncio, sys, uvloop
from txlog.config.process_config import Limits
from txlog.evaluation.pipe_protocol import LoadDataset, QueryRequest
from txlog.server.frontdoor.evaluator_pool import Evaluator
async def lines():
    for n in range(3000):
        yield b"<urn:s%d> <urn:p> <urn:o> ." % n + bytes([10])
async def main():
    one = await Evaluator.start(Limits(evaluation_s=600))
    await one.load(LoadDataset(""), lines())
    print(one.pid, flush=True)
    query = QueryRequest(sys.argv[1], True, (), (), "text/csv", 1 << 20)
    await one.execute(query) if sys.argv[1] else await asyncio.sleep(600)
asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main())
"""


@pytest.mark.parametrize("text", ["", ENDLESS])
async def test_it_ends_with_a_master_that_is_killed(text: str) -> None:
    """Idle, and in the middle of a question that would take ten minutes."""
    master = await asyncio.create_subprocess_exec(sys.executable, "-c", MASTER, text, stdout=asyncio.subprocess.PIPE)
    assert master.stdout is not None
    pid = int(await master.stdout.readline())
    process = psutil.Process(pid)
    await until(lambda: len(process.children()) == bool(text), 20)
    everybody = [pid, *(child.pid for child in process.children())]
    assert len(everybody) == (2 if text else 1)
    master.kill()
    await master.wait()
    await until(lambda: all(map(gone, everybody)), 20)


async def test_what_it_inherits_of_the_master_is_nothing_of_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXLOG_TOKEN_FILE", "/somewhere")
    one = await started()
    try:
        await one.load(LoadDataset(""), lines(*LINES[:1]))
        process = psutil.Process(one.pid)
        assert not [name for name in process.environ() if name.startswith("TXLOG")]
        assert {each.fd for each in process.open_files()} <= {0, 1, 2}
        assert process.net_connections() == []
    finally:
        one.kill()
        await one.wait()


# Through a master


async def test_an_update_that_takes_too_much_is_refused_by_name_and_the_next_one_counts(bounded: Served) -> None:
    cluster = bounded.cluster
    index = cluster.service(0).loop.durability.log_index
    before = resident()
    for where, reason in ((ENDLESS, "QueryTimeout"), (HUGE.replace("*", "?a ?c ?d ?f ?g ?i"), "QueryTooLarge")):
        update = f"INSERT {{ [] <urn:made> 1 }} WHERE {{ {where} }}"
        answer = await cluster.write(0, update, status=503)
        assert answer["TxLog-Error"] == reason, answer
        assert "Retry-After" in answer
    assert resident() - before < 64 << 20
    assert cluster.service(0).loop.durability.log_index == index, "something was logged"
    make = 'INSERT { [] <urn:made> 1 } WHERE { ?s <urn:p> "7" }'
    await cluster.write(0, make, TxLog_Durability="applied")
    assert sum("<urn:made>" in line for line in await bounded.quads()) == 1
    # Not even its copy was lost by it.
    [process] = cluster.app(0).evaluators._all
    assert process.is_usable


async def test_a_process_that_is_killed_is_made_anew(bounded: Served) -> None:
    cluster = bounded.cluster
    make = 'INSERT { [] <urn:made> 1 } WHERE { ?s <urn:p> "7" }'
    url = await begin(cluster)
    await act(cluster, url, "ADD", "<urn:own> <urn:p> <urn:o> .", Content_Type=QUADS)
    fixed = await begin(cluster, query="?isolation-level=SNAPSHOT")
    await act(cluster, fixed, "ADD", "<urn:own> <urn:q> <urn:o> .", Content_Type=QUADS)
    for turn in (1, 2):
        await cluster.write(0, make, TxLog_Durability="applied")
        assert await count(cluster, url) == 3001 + turn
        if turn == 1:
            assert await count(cluster, fixed) == 3002
            assert len(cluster.app(0).evaluators._all) == 3
            for each in cluster.app(0).evaluators._all:
                os.kill(each.pid, signal.SIGKILL)
                await each.wait()
    assert "it asked to see nothing newer" in await act(cluster, fixed, "SIZE", status=409)
    await act(cluster, fixed, "", status=204, method="DELETE")
    await act(cluster, url, "COMMIT")
    assert sum("<urn:made>" in line for line in await bounded.quads()) == 2


async def test_what_a_serialisable_transaction_has_read_goes_with_its_process(bounded: Served) -> None:
    """Nobody can tell any more whether others changed it."""
    cluster = bounded.cluster
    url = await begin(cluster, query="?isolation-level=SERIALIZABLE")
    assert await count(cluster, url) == 3000
    await act(cluster, url, "ADD", "<urn:own> <urn:p> <urn:o> .", Content_Type=QUADS)
    [process] = cluster.app(0).evaluators._all
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    assert "it asked to see nothing newer" in await act(cluster, url, "COMMIT", status=409)
    await act(cluster, url, "ROLLBACK", status=204)
    assert len(await bounded.quads()) == 3000


@pytest.mark.parametrize(("text", "reason"), [(ENDLESS, "QueryTimeout"), (HUGE, "QueryTooLarge")])
async def test_a_query_in_a_transaction_that_takes_too_much_costs_it_nothing(
    bounded: Served, text: str, reason: str
) -> None:
    cluster = bounded.cluster
    url = await begin(cluster, query="?isolation-level=SERIALIZABLE")
    await act(cluster, url, "ADD", "<urn:own> <urn:p> <urn:o> .", Content_Type=QUADS)
    assert await count(cluster, url) == 3001
    await bounded.send("POST", "/statements", "<urn:other> <urn:p> <urn:o> .", Content_Type=QUADS)
    before = resident()
    async with cluster.session.put(
        f"{url}?action=QUERY", data=text, headers={"Content-Type": "application/sparql-query"}
    ) as answer:
        assert answer.status == 503
        assert answer.headers["TxLog-Error"] == reason
        assert "Retry-After" in answer.headers
    assert resident() - before < 64 << 20
    assert await count(cluster, url) == 3001, "it sees something else than before"
    assert await act(cluster, url, "SIZE") == "3001"
    assert "have changed what this one has looked at" in await act(cluster, url, "COMMIT", status=409)


async def test_the_time_that_a_query_asks_for_counts_in_a_transaction(bounded: Served) -> None:
    url = await begin(bounded.cluster)
    await act(bounded.cluster, url, "ADD", "<urn:own> <urn:p> <urn:o> .", Content_Type=QUADS)
    async with bounded.cluster.session.put(
        f"{url}?action=QUERY&timeout=1", data=ENDLESS, headers={"Content-Type": "application/sparql-query"}
    ) as answer:
        assert answer.headers["TxLog-Error"] == "QueryTimeout"
    assert await count(bounded.cluster, url) == 3001


async def test_an_update_in_a_transaction_that_takes_too_much_is_said_where_it_is_read(bounded: Served) -> None:
    cluster = bounded.cluster
    url = await begin(cluster)
    endless = f"INSERT {{ <urn:x> <urn:y> 1 }} WHERE {{ {JOIN} FILTER(CONCAT(STR(?a),STR(?e),STR(?i)) = 'x') }}"
    await act(cluster, url, "UPDATE", endless, 204, Content_Type=UPDATE)
    assert "took longer than it may" in await act(cluster, url, "SIZE", status=503)
    await act(cluster, url, "ROLLBACK", status=204)
    other = await begin(cluster)
    await act(cluster, other, "ADD", "<urn:own> <urn:p> <urn:o> .", Content_Type=QUADS)
    assert await count(cluster, other) == 3001


async def test_a_master_that_stops_ends_them(bounded: Served) -> None:
    url = await begin(bounded.cluster)
    await act(bounded.cluster, url, "ADD", "<urn:own> <urn:p> <urn:o> .", Content_Type=QUADS)
    assert await count(bounded.cluster, url) == 3001
    [process] = bounded.cluster.app(0).evaluators._all
    await bounded.cluster.app(0).stop()
    assert gone(process.pid)
