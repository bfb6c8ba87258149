"""Plain queries on the fast path get the answer of the ordinary path, and everything else is left to that one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from master_cluster import Cluster, until
from people import basic, bearer, guarded
from plain_requests import JSON, PATH, ask_both_paths, assert_left, connection, get, is_fast, post, reads_of
from worker_driver import Driver, OxigraphProcess, Served

from e2e.lib.ports import free_ports
from txlog.client import MasterClient
from txlog.client.credentials import Credentials
from txlog.model.errors import TxLogError
from txlog.runtime.applied_history import READ_LAG_S
from txlog.server.frontdoor.answer_steps import SMALL_BYTES
from txlog.server.frontdoor.plain_queries import FilledRequest, plain_query
from txlog.server.frontdoor.query_request import parse_query_request
from txlog.server.frontdoor.read_router import READ_S, WorkerQuery, query_request
from txlog.server.frontdoor.result_formats import N_TRIPLES
from txlog.server.frontdoor.worker_connections import PAUSE_BYTES
from txlog.sparql.rewrite.query_template import FilledText, split_template
from txlog.workers import ADAPTERS

DATA = (
    'INSERT DATA { <urn:s> <urn:p> 01, "x"@en-US, "a\\rb" . _:b <urn:q> "y,\\"z" . <urn:s> <urn:r> _:b '
    "GRAPH <urn:g> { <urn:s> <urn:p> <urn:in-g> } }"
)
ALL = "SELECT ?s ?p ?o { ?s ?p ?o } ORDER BY ?p STR(?o)"
LONG = (
    'SELECT (CONCAT("%s", STR(?a), STR(?b), STR(?c)) AS ?t) '
    "{ VALUES ?a { 1 2 3 4 5 6 7 8 9 10 } VALUES ?b { 1 2 3 4 5 6 7 8 9 10 } VALUES ?c { 1 2 3 4 5 6 7 8 9 10 } }"
    % ("long" * 100)
)
"""400 kB of results."""


def active(cluster: Cluster) -> int:
    return sum(cluster.service(0).context.registry.reads.active_reads.values())


@pytest.fixture
async def filled(served: Served) -> Served:
    await served.cluster.write(0, DATA, TxLog_Durability="applied")
    return served


SAME = {
    "rows": get(ALL),
    "rows of one subject": get("SELECT ?o { <urn:s> <urn:p> ?o } ORDER BY STR(?o)"),
    "csv": get(ALL, "Accept: text/csv"),
    "tsv": get(ALL, "Accept: text/tab-separated-values"),
    "xml": get(ALL, "Accept: application/sparql-results+xml"),
    "no accept": get(ALL, "User-Agent: x"),
    "accept as parameter": get(ALL, "User-Agent: x", more="&Accept=text/csv"),
    "ask": get("ASK { <urn:s> ?p ?o }"),
    "construct": get("CONSTRUCT WHERE { <urn:s> <urn:r> ?o }", "Accept: application/n-triples"),
    "graph": get("SELECT ?o { GRAPH <urn:g> { <urn:s> ?p ?o } }"),
    "from": get("SELECT ?o FROM <urn:g> { <urn:s> ?p ?o }"),
    "default graph by parameter": get("SELECT ?o { <urn:s> ?p ?o }", more="&default-graph-uri=urn:g"),
    "a binding": get("SELECT ?o { ?s <urn:r> ?o }", more=f"&%24s={quote('<urn:s>')}"),
    "a limit": get(ALL, more="&limit=1"),
    "system graphs are hidden": get("SELECT ?g { GRAPH ?g { ?s ?p ?o } }"),
    "unicode": get('SELECT ("zażółć" AS ?x) {}'),
    "plus and percent": get('SELECT ("a+b%20c" AS ?x) {}'),
    "sparql-query": post(ALL, "application/sparql-query", JSON),
    "form": post(f"query={quote(ALL)}&infer=false", "application/x-www-form-urlencoded; charset=utf-8", JSON),
    "refused by the worker": get("SELECT ?x { ?x <urn:p>+ ?y FILTER(<urn:no-function>(?x) || 1/0) } HAVING"),
    "compressed and small": get(ALL, JSON, "Accept-Encoding: gzip"),
    "compressed": get(LONG, JSON, "Accept-Encoding: gzip, deflate"),
    "a browser of before": get(LONG, JSON, "Accept-Encoding: gzip", "User-Agent: Mozilla/5.0"),
    "long": get(LONG),
    "long csv": get(LONG, "Accept: text/csv"),
    "no UTF-8": get(ALL).replace(b"SELECT", b"%ff"),
}


@pytest.mark.parametrize("request_", SAME.values(), ids=list(SAME))
async def test_both_paths_give_one_answer(filled: Served, request_: bytes) -> None:
    quick, ordinary = await ask_both_paths(filled.cluster, request_)
    assert quick.compared == ordinary.compared
    assert quick.is_whole
    assert ("content-length" in quick.headers) is (len(quick.body) <= SMALL_BYTES and "gzip" not in str(quick.headers))
    assert active(filled.cluster) == 0


LEFT = {
    "time-out": get(ALL, more="&timeout=5"),
    "plan": get(ALL, more="&explain=Optimized"),
    "text/boolean": get("ASK {}", "Accept: text/boolean"),
    "binary rows": get(ALL, "Accept: application/x-binary-rdf-results-table"),
    "turtle": get("CONSTRUCT WHERE { ?s ?p ?o }", "Accept: text/turtle"),
    "triple terms": get("SELECT ?x { ?x ?p <<( <urn:s> <urn:p> ?o )>> }"),
    "no query": b"GET /repositories/demo HTTP/1.1\r\nHost: x\r\n\r\n",
    "an update": post("update=CLEAR+ALL", "application/x-www-form-urlencoded"),
    "another media type": post(ALL, "text/plain"),
    "a page's query": get(ALL, JSON, "Origin: http://elsewhere.example"),
    "another repository": get(ALL).replace(b"/demo?", b"/other?"),
    "credentials of a proxy": get(ALL, JSON, "TxLog-Authorization: Bearer x"),
    "min position without end": get(ALL, JSON, "TxLog-Min-Position: 1:2"),
}


@pytest.mark.parametrize("request_", LEFT.values(), ids=list(LEFT))
async def test_what_is_not_plain_is_left_to_the_ordinary_path(filled: Served, request_: bytes) -> None:
    await assert_left(filled.cluster, request_)


async def test_a_read_after_a_write_waits_on_the_ordinary_path_only(filled: Served) -> None:
    """A position that is reached is no reason to leave the fast path; a hash that the log does not have is refused."""
    told = await filled.cluster.write(0, "INSERT DATA { <urn:new> <urn:p> 1 }", TxLog_Durability="applied")
    position = told["TxLog-Position"]
    async with connection(filled.cluster) as client:
        found = await client.ask(get("ASK { <urn:new> ?p ?o }", JSON, f"TxLog-Min-Position: {position}"))
        assert b"true" in found.body
        assert is_fast(filled.cluster, client)
        epoch, index, digest = position.split(":")
        moved = f"{epoch}:{index}:{digest[::-1]}"
        assert (await client.ask(get(ALL, JSON, f"TxLog-Min-Position: {moved}"))).status == 409
    await asyncio.to_thread(filled.driver.pause)
    told = await filled.cluster.write(0, "INSERT DATA { <urn:later> <urn:p> 1 }", TxLog_Durability="synced")
    async with connection(filled.cluster) as client:
        client.writer.write(get("ASK { <urn:later> ?p ?o }", JSON, f"TxLog-Min-Position: {told['TxLog-Position']}"))
        await until(lambda: not is_fast(filled.cluster, client))
        filled.driver.resume()
        assert b"true" in (await client.answer()).body


async def test_a_client_that_has_seen_more_waits_and_stays_on_the_fast_path(gated: Gated) -> None:
    """Each worker may have shown a write that the other one is not known to have executed: a read waits for either."""
    registry = gated.cluster.service(0).context.registry
    async with connection(gated.cluster) as client:
        assert (await client.ask(get(ALL))).status == 200
        for driver in gated.drivers:
            await asyncio.to_thread(driver.pause)
        told = await gated.cluster.write(0, "INSERT DATA { <urn:t> <urn:p> 1 }", TxLog_Durability="synced")
        end = int(told["TxLog-Position"].split(":")[1])
        address = client.writer.get_extra_info("sockname")[0]
        for name in ("w-1", "w-2"):
            reads_of(gated.cluster)._choice.monotonic_reads.record(address, name, end - 1, end)
        client.writer.write(get("ASK { <urn:t> ?p ?o }"))
        await until(lambda: any(len(mark) for mark in registry.reads.worker_watermarks.values()))
        assert active(gated.cluster) == 0
        for driver in gated.drivers:
            driver.resume()
        assert b"true" in (await client.answer()).body
        assert is_fast(gated.cluster, client)


async def test_queries_and_writes_of_one_connection_are_answered_in_order(filled: Served) -> None:
    write = b"<urn:pipelined> <urn:p> <urn:o> .\n"
    head = f"POST {PATH}/statements HTTP/1.1\r\nHost: x\r\nContent-Type: application/n-quads\r\n"
    async with connection(filled.cluster) as client:
        client.writer.write(
            get("ASK { <urn:s> ?p ?o }")
            + f"{head}TxLog-Durability: synced\r\nContent-Length: {len(write)}\r\n\r\n".encode()
            + write
            + get(LONG)
            + get("ASK { <urn:nothing> ?p ?o }")
        )
        answers = [await client.answer() for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 204, 200, 200]
        assert b"true" in answers[0].body
        assert b"false" in answers[3].body
        assert is_fast(filled.cluster, client)
    assert active(filled.cluster) == 0


async def test_many_queries_share_the_connections_to_their_worker(filled: Served) -> None:
    async def ask_again_and_again() -> None:
        async with connection(filled.cluster) as client:
            for number in range(20):
                told = await client.ask(get(f"SELECT (<urn:n:{number}> AS ?x) {{}}"))
                assert f'"urn:n:{number}"'.encode() in told.body

    await asyncio.gather(*(ask_again_and_again() for _ in range(16)))
    assert 1 <= sum(map(len, reads_of(filled.cluster).connections._open.values())) <= 16
    assert active(filled.cluster) == 0


class Gate:
    """What stands before a worker: it passes bytes on, cuts a connection behind so many bytes of an answer, and closes
    connections that are idle."""

    def __init__(self, port: int, store: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.port, self.store = port, urlsplit(store)
        self.cut_after: int | None = None
        self.holds_after: int | None = None
        self.holds = False
        self.passed = 0
        self.lost = 0
        self.held = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner = await asyncio.open_connection(self.store.hostname, self.store.port)
        self.writers.append(writer)

        async def pass_requests() -> None:
            while data := await reader.read(1 << 16):
                inner.write(data)
            self.lost += 1
            writer.transport.abort()
            inner.transport.abort()

        async def pass_answers() -> None:
            while data := await inner_reader.read(1 << 14):
                while self.holds:  # noqa: ASYNC110 - the test's own gate
                    await asyncio.sleep(0.005)
                self.passed += len(data)
                if self.holds_after is not None:
                    writer.write(data[: self.holds_after])
                    self.held += 1
                    continue
                writer.write(data[: self.cut_after])
                if self.cut_after is not None:
                    self.cut_after -= len(data)
                    if self.cut_after <= 0:
                        self.cut_after = None
                        writer.transport.abort()
                        return
                await writer.drain()

        with_errors = await asyncio.gather(pass_requests(), pass_answers(), return_exceptions=True)
        assert all(one is None or isinstance(one, OSError) for one in with_errors), with_errors

    def close_idle(self) -> None:
        writers, self.writers = self.writers, []
        for writer in writers:
            writer.transport.abort()

    async def close(self) -> None:
        self.server.close()
        self.close_idle()


class Gated:
    def __init__(self, cluster: Cluster, gates: list[Gate], drivers: list[Driver]) -> None:
        self.cluster, self.gates, self.drivers = cluster, gates, drivers


@pytest.fixture
async def gated(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Gated]:
    """A master, and two stores behind gates."""
    stores = [OxigraphProcess(tmp_path / f"store-{at}") for at in (1, 2)]
    gates = [Gate(port, store.url) for port, store in zip(free_ports(2), stores, strict=True)]
    for gate in gates:
        await gate.start()
    cluster = clusters(1, workers=[{"name": f"w-{at}", "url": gate.url} for at, gate in enumerate(gates, 1)])
    await cluster.start()
    drivers = [Driver(cluster.url(0), f"w-{at}", store) for at, store in enumerate(stores, 1)]
    await cluster.write(0, DATA, TxLog_Durability="applied-all", Prefer="wait=30")
    yield Gated(cluster, gates, drivers)
    for driver in drivers:
        await asyncio.to_thread(driver.close)
    for gate in gates:
        await gate.close()
    for store in stores:
        store.kill()


async def test_a_worker_that_closed_idle_connections_is_asked_again(gated: Gated) -> None:
    history = gated.cluster.service(0).context.registry.reads.applied_history
    clock = history.clock
    history.clock = lambda: clock() + READ_LAG_S  # the log grows no longer: both workers are asked
    async with connection(gated.cluster) as client:
        for _ in range(3):
            names = {(await client.ask(get(ALL))).headers["txlog-worker"] for _ in range(2)}
            assert names == {"w-1", "w-2"}
            for gate in gated.gates:
                gate.close_idle()
        assert is_fast(gated.cluster, client)


async def test_another_worker_answers_for_one_that_breaks_off_before_anything_was_sent(gated: Gated) -> None:
    async with connection(gated.cluster) as client:
        whole = (await client.ask(get(ALL))).body
        for gate in gated.gates:
            gate.cut_after = 100  # inside the head, or behind it
        answers = [await client.ask(get(ALL)) for _ in range(4)]
        assert [one.status for one in answers if one.status != 200] in ([], [503])
        assert {one.body for one in answers if one.status == 200} == {whole}
        assert is_fast(gated.cluster, client)
    assert active(gated.cluster) == 0


async def test_a_worker_that_breaks_off_in_a_long_answer_breaks_it_off(gated: Gated) -> None:
    async with connection(gated.cluster) as client:
        for gate in gated.gates:
            gate.cut_after = 2 * SMALL_BYTES
        assert not (await client.ask(get(LONG))).is_whole
    async with connection(gated.cluster) as client:
        for gate in gated.gates:
            gate.cut_after = None
        assert (await client.ask(get(LONG))).is_whole
    assert active(gated.cluster) == 0


@pytest.mark.parametrize("query", [ALL, "no SPARQL"])
async def test_a_worker_that_stops_in_its_head_or_in_a_refusal_is_given_up(gated: Gated, query: str) -> None:
    async with connection(gated.cluster) as client:
        wanted = await client.ask(get(query))
        for gate in gated.gates:
            gate.holds_after = 20 if query == ALL else -1  # the last byte of the refusal does not come
        client.writer.write(get(query))
        await until(lambda: sum(gate.held for gate in gated.gates) == 1)
        for gate in gated.gates:
            gate.holds_after = None
        (here,) = gated.cluster.app(0)._fast_path.connections
        here.check_timeout(time.monotonic() + READ_S, 3600.0)
        told = await client.answer()
        assert (told.status, told.body) == (wanted.status, wanted.body)
    assert active(gated.cluster) == 0


async def test_no_worker_at_all_is_said(gated: Gated) -> None:
    async with connection(gated.cluster) as client:
        assert (await client.ask(get(ALL))).status == 200
        for gate in gated.gates:
            await gate.close()
        told = await client.ask(get(ALL))
        assert (told.status, told.headers["txlog-error"], told.headers["retry-after"]) == (503, "NoWorker", "1")
    assert active(gated.cluster) == 0


async def test_a_client_that_leaves_stops_its_query(gated: Gated) -> None:
    for gate in gated.gates:
        gate.holds = True
    async with connection(gated.cluster) as client:
        client.writer.write(get(ALL))
        await until(lambda: active(gated.cluster) == 1)
    await until(lambda: active(gated.cluster) == 0)
    await until(lambda: sum(gate.lost for gate in gated.gates) == 1)
    for gate in gated.gates:
        gate.holds = False


async def test_a_client_that_reads_nothing_holds_little_memory(gated: Gated) -> None:
    """The worker is read no faster than the client reads."""
    rows = "VALUES ?d { 1 2 3 4 5 6 7 8 9 10 } VALUES ?e { 1 2 3 4 5 6 7 8 9 10 }"
    huge = LONG.replace("VALUES ?a", f"{rows} VALUES ?a")  # 40 MB
    async with connection(gated.cluster) as client:
        client.writer.write(get(huge))
        await until(lambda: has_paused(gated.cluster))
        passed = sum(gate.passed for gate in gated.gates)
        assert passed < 20_000_000
        assert (await client.answer()).is_whole
    assert sum(gate.passed for gate in gated.gates) > 40_000_000


def has_paused(cluster: Cluster) -> bool:
    """Whether a connection to a worker has stopped reading, with so much of its answer waiting."""
    connections = reads_of(cluster).connections._open.values()
    return any(one._is_paused and one.size > PAUSE_BYTES for some in connections for one in some)


@pytest.mark.parametrize("headers", [{}, bearer("reader"), basic("reader", "wrong"), {"Authorization": "Bearer x"}])
async def test_only_known_readers_are_answered(
    tmp_path: Path, clusters: Callable[..., Cluster], headers: dict[str, str]
) -> None:
    store = OxigraphProcess(tmp_path / "store")
    cluster = guarded(clusters, tmp_path, workers=[{"name": "w-1", "url": store.url}], durability="applied")
    await cluster.start()
    credentials = Credentials(tmp_path / "own-token")
    driver = Driver(cluster.url(0), "w-1", store, lambda url: MasterClient(url, 5, credentials=credentials))
    try:
        sent = [f"{name}: {value}" for name, value in headers.items()]
        is_known = headers == bearer("reader")
        await cluster.write(0, DATA, TxLog_Durability="applied", **bearer("writer"))
        async with connection(cluster) as client:
            told = await client.ask(get(ALL, JSON, *sent))
            assert (told.status, is_fast(cluster, client)) == ((200, True) if is_known else (401, False))
    finally:
        await asyncio.to_thread(driver.close)
        store.kill()


# Templates

NAMES = st.sampled_from(
    ["urn:a", "http://x.example/b", "https://y.example/c#d", "urn:x-arq:UnionGraph", "urn:txlog:e", "f"]
)
SPECIAL = "http://www.w3.org/2001/XMLSchema#integer"
QUERIES = st.sampled_from(
    [
        "SELECT * {{ <{0}> <{1}> ?o }}",
        "SELECT * FROM <{0}> FROM NAMED <{1}> {{ ?s ?p ?o }}",
        "ASK {{ GRAPH <{0}> {{ ?s a <{1}> }} FILTER(isBlank(?s) && ?s != <{0}>) }}",
        'SELECT ?x {{ VALUES ?x {{ <{0}> <{1}> <{0}> "<{1}>" }} }}',
        "SELECT ?x {{ ?x <{0}>/<{1}>* ?y FILTER(?x<{2}&&?y>3) }}",
        'CONSTRUCT {{ <{0}> ?p "01"^^<http://www.w3.org/2001/XMLSchema#integer> }} {{ ?s ?p <{1}> }}',
        "PREFIX p: <{0}> SELECT * {{ p:x <{1}> ?o }}",
        "BASE <{0}> SELECT * {{ <x> <{1}> ?o }}",
        "SELECT * {{ ?s ?p <{0}> }} # <{1}>",
        'SELECT * {{ ?s <{0}> "\\u003c{1}>" }}',
        "DESCRIBE <{0}> <{1}>",
        "SELECT * {{ SERVICE <{0}> {{ ?s ?p ?o }} }}",
    ]
)


@given(query=QUERIES, names=st.tuples(NAMES, NAMES, NAMES), graphs=st.lists(NAMES, max_size=1))
def test_a_filled_template_is_what_the_query_itself_becomes(
    query: str, names: tuple[str, str, str], graphs: list[str]
) -> None:
    text = query.format(*names)
    given_ = tuple(("default-graph-uri", graph) for graph in graphs)
    try:
        wanted = parse_query_request(given_, text, "*/*", star=False)
    except TxLogError:
        assert plain_query(given_, text, "*/*") is None
        return
    if wanted.converted_format and not (wanted.form == "CONSTRUCT" and wanted.converted_format == N_TRIPLES):
        assert plain_query(given_, text, "*/*") is None
        return
    found = plain_query(given_, text, "*/*")
    assert found is not None
    assert isinstance(found.build, WorkerQuery)
    filled = FilledText(found.build.text.encode()).fill(found.iris).decode()
    assert filled == wanted.text
    assert found.build[2:] == (wanted.union, wanted.default, wanted.named)


@pytest.mark.parametrize("engine", ADAPTERS)
def test_a_worker_of_any_engine_is_asked_what_the_query_itself_becomes(engine: str) -> None:
    """Also in a form, where the IRIs are encoded."""
    text = "SELECT ?o { <urn:s?a=b&c%20d+e> <urn:p> ?o ; <http://x.example/é#1> <urn:s?a=b&c%20d+e> }"
    found = plain_query((), text, "*/*")
    assert found is not None
    assert isinstance(found.build, WorkerQuery)
    assert len(found.iris) == 3
    url = "http://127.0.0.1:1/store"
    wanted = FilledRequest(url, query_request(engine, found.build._replace(text=text))).encode(())
    assert FilledRequest(url, query_request(engine, found.build)).encode(found.iris) == wanted


def test_queries_that_differ_in_ordinary_iris_share_a_template() -> None:
    first, second = (plain_query((), f"SELECT * {{ <urn:s:{at}> <urn:p> <urn:s:{at}> }}", "*/*") for at in (1, 2))
    assert first is not None
    assert second is not None
    assert first.build == second.build
    assert (first.iris, second.iris) == ((b"<urn:s:1>", b"<urn:p>"), (b"<urn:s:2>", b"<urn:p>"))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * { <s> <urn:txlog:p> ?o }",
        f"SELECT * {{ ?s ?p 1 FILTER(<{SPECIAL}>(?s) = 1) }}",
        "PREFIX p: <urn:p> SELECT * { <urn:s> p:x ?o }",
        "SELECT * { ?s ?p ?o } #<urn:p>",
        'SELECT * { ?s ?p "\\t", <urn:p> }',
        "SELECT * { <urn:placeholder-5f0c1b9e2a7d4e63:0> ?p <urn:o> }",
        "SELECT * { VALUES ?x {" + "".join(f"<urn:x:{at}>" for at in range(17)) + "} }",
    ],
)
def test_what_is_no_ordinary_name_stays_in_the_query(text: str) -> None:
    assert split_template(text) == (text, ())
