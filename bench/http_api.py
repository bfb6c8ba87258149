"""``make bench-door``: what the front door costs, with a plain client's eyes.

=============== ===================================================================================================
insert10        an update ``INSERT DATA`` of ten triples: the whole processor time of the master that takes it, user and
                system, from the socket to its durable place in that master's journal and its passing on to the other
                masters, divided by the number of requests. Two ways of writing it: all IRIs in full, and prefixed
                names; the dearer one is the figure. ``nquads10``: the same ten quads in the log's own form, so that
                the difference is what reading SPARQL costs
upload          N-Quads without blank nodes in bodies of 8 MB over two connections: quads a second until the last
                answer, at the levels ``accepted`` and ``synced`` (durable on all three masters)
query           one query of one row, over one connection each, straight to the worker and through the master in turn:
                what the master adds at the median
statements      the same for all statements of a small repository, as RDF4J's client asks for them: the worker gives
                N-Quads, and the master binary RDF
update          an update of 10,000 triples that names no graph, so that all graphs are meant, beside the same with
                ``GRAPH``: from the request to its end in a real Oxigraph, in turn; the ratio of the medians
stream          a result of 1 GB through the master: how far its memory rises above where it was
=============== ===================================================================================================

The first two go to three masters without workers, the others to one master before a real Oxigraph. ``others_pct``: what
the rest of the machine used of a core during the first two; a figure taken beside much of it says little.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from e2e.lib.cluster.harness import TIMEOUT_S, MasterHarness, StoreKind, start_master_harness
from e2e.lib.cluster.masters import REPOSITORY, BenchMasters, three_masters
from e2e.lib.host_metrics import CpuMeter, NotOnDisk, cpu_seconds, disk_of, fsync_rate, peak_mb, reset_peak
from e2e.lib.load.closed_loop import ClosedLoad, RequestTemplate
from e2e.lib.load.requests import N_QUADS, SPARQL_UPDATE, WriteProber
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, median, print_table, quantile

CASES: Final = ("insert10", "upload", "query", "statements", "update", "stream")
RESULTS_JSON: Final = "application/sparql-results+json"
BINARY_RDF: Final = "application/x-binary-rdf"
TRIPLES: Final = 10
CLIENTS: Final = 16
QUADS_IN_BODY: Final = 57_000
"""Of 146 bytes each, as large data sets have them: 8.3 MB."""
CONNECTIONS: Final = 2
STREAM_BYTES: Final = 1_000_000_000
INSERT_US_MAX: Final = 150.0
QUADS_PER_S_MIN: Final = 200_000.0
OVERHEAD_MS_MAX: Final = 1.0
STREAM_MB_MAX: Final = 50.0
UPDATED_TRIPLES: Final = 10_000
UPDATE_ROUNDS: Final = 7
UPDATE_RATIO_MAX: Final = 1.2


class NumberedBodies(RequestTemplate):
    """Requests whose bodies differ in one number, twelve digits wide, wherever ``%012d`` stands in ``body``."""

    def __init__(self, media: str, body: str, level: str) -> None:
        self.batch = 1
        self.next = 0
        self._holes = body.count("%012d")
        self.template = body.encode()
        length = len(self.template % ((0,) * self._holes))
        self.head = (
            f"POST /repositories/{REPOSITORY}/statements HTTP/1.1\r\nHost: bench\r\nContent-Type: {media}\r\n"
            f"TxLog-Durability: {level}\r\nPrefer: wait=30\r\nContent-Length: {length}\r\n\r\n"
        ).encode()

    def next_request(self) -> bytes:
        number = self.next
        self.next = number + 1
        return self.head + self.template % ((number,) * self._holes)


def ten_triple_bodies() -> dict[str, tuple[str, str]]:
    """Media type and body of each way to write ten triples. The values: IRIs, a string, a number, a language."""
    name = "http://example.org/bench/%012d"
    objects = ['"a value of some length, as names and titles have"', f"<{name}/other>", '"Wert"@de']
    full = [
        *(f"<{name}/{n}> <http://example.org/ns#says{n % 4}> {objects[n % 3]}" for n in range(TRIPLES - 1)),
        f'<{name}/9> <http://example.org/ns#count> "42"^^<http://www.w3.org/2001/XMLSchema#integer>',
    ]
    short = [
        *(f"ex:%012d-{n} ns:says{n % 4} {objects[n % 3]}" for n in range(TRIPLES - 1)),
        "ex:%012d-9 ns:count 42",
    ]
    prologue = "PREFIX ex: <http://example.org/bench/>\nPREFIX ns: <http://example.org/ns#>\n"
    return {
        "full IRIs": (SPARQL_UPDATE, "INSERT DATA {\n" + " .\n".join(full) + " .\n}"),
        "prefixed names": (SPARQL_UPDATE, prologue + "INSERT DATA {\n" + " .\n".join(short) + " .\n}"),
        "N-Quads": (N_QUADS, "".join(f"{line} .\n" for line in full)),
    }


class RequestCost(NamedTuple):
    """Microseconds of the master's processor for a request, and requests a second meanwhile."""

    cpu_us: float
    per_s: float


def insert_cost(masters: BenchMasters, media: str, body: str, seconds: float, clients: int = CLIENTS) -> RequestCost:
    """One case of ``insert10``, all clients at the first master. :class:`CannotMeasure` for any wrong answer."""
    node, url = next(iter(masters.by_node.items()))
    pid, used = masters.pids[node], [0.0, 0.0]
    load = ClosedLoad([url], NumberedBodies(media, body, "accepted"), clients)

    def begin() -> None:
        used[0] = cpu_seconds(pid)

    def end() -> None:
        used[1] = cpu_seconds(pid)

    done = load.run(1.0, seconds, begin, end)
    if load.wrong:
        raise CannotMeasure(f"{url} answered {load.wrong[0]}")
    return RequestCost(1e6 * (used[1] - used[0]) / (done.per_s * seconds), done.per_s)


# Uploads


def upload_bodies(count: int) -> Iterator[bytes]:
    """Bodies of :data:`QUADS_IN_BODY` different quads, none of them with a blank node."""
    line = (
        b"<http://example.org/bench/%012d> <http://example.org/ns#says> "
        b'"%012d and a value of some length" <http://example.org/graph/%04d> .\n'
    )
    for body in range(count):
        first = body * QUADS_IN_BODY
        yield b"".join(line % (n, n, n % 100) for n in range(first, first + QUADS_IN_BODY))


def upload_rate(url: str, bodies: Sequence[bytes], level: str) -> float:
    """Quads a second until the last answer."""

    def send(mine: Sequence[bytes]) -> None:
        with closing(WriteProber(url, REPOSITORY, level, TIMEOUT_S, wait_s=60)) as prober:
            for body in mine:
                if prober.write(body) is None:
                    raise CannotMeasure(f"{url}: an upload was not {level} within 60 s")

    began = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(send, [bodies[at::CONNECTIONS] for at in range(CONNECTIONS)]))
    return len(bodies) * QUADS_IN_BODY / (time.perf_counter() - began)


# Reads


class ReadConnection:
    """One connection that sends one read again and again. Each request names another client, so that a master answers
    none from memory."""

    def __init__(self, url: str, target: str, accept: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: {accept}\r\nUser-Agent: ".encode()
        self._number = 0

    def close(self) -> None:
        self._socket.close()

    def read(self) -> tuple[float, bytes]:
        """Seconds, and the body. :class:`CannotMeasure` for another answer than 200."""
        self._number += 1
        request = b"%b%d\r\n\r\n" % (self._request, self._number)
        began = time.perf_counter()
        self._socket.sendall(request)
        answer = http.client.HTTPResponse(self._socket, method="GET")
        answer.begin()
        body = answer.read()
        took = time.perf_counter() - began
        if answer.status != 200:
            raise CannotMeasure(f"a read was answered {answer.status}: {body[:300]!r}")
        return took, body


def query_overhead_ms(at: MasterHarness, rounds: int) -> tuple[float, float]:
    """Medians of the same query, in milliseconds: straight to the worker, and through the master."""
    at.update('INSERT DATA { <urn:bench:s> <urn:bench:p> "one row" }')
    query = "?query=" + quote("SELECT ?o { <urn:bench:s> <urn:bench:p> ?o }", safe="")
    [store] = at.stores.values()
    with (
        closing(ReadConnection(store.url, f"/query{query}", RESULTS_JSON)) as straight,
        closing(ReadConnection(at.url, f"/repositories/{REPOSITORY}{query}", RESULTS_JSON)) as through,
    ):
        if (one := straight.read()[1]) != (other := through.read()[1]):
            raise CannotMeasure(f"the worker says {one[:200]!r}, the master {other[:200]!r}")
        return _medians_ms(straight, through, rounds)


def statements_overhead_ms(at: MasterHarness, rounds: int) -> tuple[float, float]:
    """The same of two statements, which are all that there are."""
    at.update("DROP ALL")
    at.update('INSERT DATA { <urn:bench:s> <urn:bench:p> "one", "two" }')
    [store] = at.stores.values()
    with (
        closing(ReadConnection(store.url, "/store", N_QUADS)) as straight,
        closing(ReadConnection(at.url, f"/repositories/{REPOSITORY}/statements?infer=true", BINARY_RDF)) as through,
    ):
        return _medians_ms(straight, through, rounds)


def _medians_ms(straight: ReadConnection, through: ReadConnection, rounds: int) -> tuple[float, float]:
    """In turn, after a hundred of each."""
    took: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 100):
        one, other = straight.read()[0], through.read()[0]
        if number >= 100:
            took[0].append(one)
            took[1].append(other)
    medians = [quantile(seconds, 0.5) or 0.0 for seconds in took]
    return 1000 * medians[0], 1000 * medians[1]


def update_seconds(at: MasterHarness, rounds: int) -> tuple[float, float]:
    """Medians of an update of the same triples in seconds: without a graph, and with ``GRAPH``. Each one has a
    predicate of its own: an Oxigraph searches a range slowly from which much has just been deleted."""
    graph = "<urn:bench:g>"
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds):
        for named, found in took.items():
            predicate = f"<urn:bench:p{number}-{named}>"
            lines = (f'<urn:bench:s{n}> {predicate} "{n}" {graph} .' for n in range(UPDATED_TRIPLES))
            at.write("POST", "/statements", "\n".join(lines).encode(), N_QUADS)
            old, new = f"?s {predicate} ?o", f'?s {predicate} "x"'
            if named:
                old, new = (f"GRAPH {graph} {{ {triple} }}" for triple in (old, new))
            began = time.perf_counter()
            answer = at.update(f"DELETE {{ {old} }} INSERT {{ {new} }} WHERE {{ {old} }}")
            found.append(time.perf_counter() - began)
            if answer.status != 204:
                raise CannotMeasure(f"the update was answered {answer.status}: {answer.text[:300]}")
    return median(took[False]) or 0.0, median(took[True]) or 0.0


def measure_stream(at: MasterHarness, pid: int, size: int) -> tuple[float, float, int]:
    """A result of at least ``size`` bytes: how many MB the master's memory rose, seconds, bytes."""
    side = 1000
    rows = f"{{ VALUES ?n {{ {' '.join(str(n) for n in range(side))} }} }}"
    width = 240
    value = f'"{"x" * width}"'
    times = -(-size // (side * side * width))
    values = f"VALUES ?k {{ {' '.join(str(n) for n in range(times))} }}"
    query = f"SELECT ?n ?m ?k ?x {{ {rows} {rows.replace('?n', '?m')} {values} BIND({value} AS ?x) }}"
    connection = http.client.HTTPConnection(urlsplit(at.url).netloc, timeout=TIMEOUT_S)
    with closing(connection):
        headers = {"Content-Type": "application/sparql-query", "Accept": "text/csv"}
        before, began = reset_peak(pid), time.perf_counter()
        connection.request("POST", f"/repositories/{REPOSITORY}", body=query.encode(), headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise CannotMeasure(f"the large query was answered {answer.status}: {answer.read()[:300]!r}")
        got = 0
        while piece := answer.read1(1 << 20):
            got += len(piece)
        took = time.perf_counter() - began
    if got < size:
        raise CannotMeasure(f"the large result has {got:,} bytes, not {size:,}")
    return peak_mb(pid) - before, took, got


# All of it


class HttpBenchOptions(NamedTuple):
    only: list[str]
    folder: Path
    rounds: int
    seconds: float
    uploads: int
    queries: int
    stream: int


def measure_writes(options: HttpBenchOptions, report: BenchReport) -> None:
    """``insert10`` and ``upload``, rounds of all in turn; each figure is the median of its rounds."""
    costs: dict[str, list[RequestCost]] = {name: [] for name in ten_triple_bodies()}
    others: list[float] = []
    rates: dict[str, list[float]] = {level: [] for level in ("accepted", "synced")}
    bodies = list(upload_bodies(options.uploads)) if "upload" in options.only else []
    with three_masters(options.folder / "masters", start_s=TIMEOUT_S) as masters:
        meter = CpuMeter({**masters.pids, "generator": os.getpid()})
        for number in range(1, options.rounds + 1):
            console.print(f"writes, round {number} of {options.rounds}")
            meter.begin()
            if "insert10" in options.only:
                for name, (media, body) in ten_triple_bodies().items():
                    costs[name].append(insert_cost(masters, media, body, options.seconds))
            for level, found in rates.items():
                if bodies:
                    found.append(upload_rate(masters.urls[0], bodies, level))
            others.append(meter.shares()["others"])
    report.figure("others_pct", median(others))
    if "insert10" in options.only:
        middle = {name: (median([cost.cpu_us for cost in found]) or 0.0) for name, found in costs.items()}
        rows: list[Sequence[Figure]] = [
            (name, us, median([cost.per_s for cost in costs[name]])) for name, us in middle.items()
        ]
        print_table(build_table("insert10", ("form", "processor, us", "requests/s"), rows))
        report.at_most("insert10_cpu_us", max(middle["full IRIs"], middle["prefixed names"]), INSERT_US_MAX)
        report.figure("insert10_full_iris_cpu_us", middle["full IRIs"])
        report.figure("nquads10_cpu_us", middle["N-Quads"])
    if bodies:
        report.at_least("nquads_per_s", median(rates["accepted"]), QUADS_PER_S_MIN)
        report.figure("nquads_synced_per_s", median(rates["synced"]))


def measure_reads(options: HttpBenchOptions, report: BenchReport) -> None:
    """``query``, ``statements``, ``update`` and ``stream``."""
    with start_master_harness(options.folder / "door", {"worker": StoreKind.DISK}, ("worker",)) as at:
        if "query" in options.only:
            console.print(f"{options.queries} queries, straight and through the master in turn")
            straight, through = query_overhead_ms(at, options.queries)
            report.at_most("proxy_added_p50_ms", through - straight, OVERHEAD_MS_MAX)
            report.figure("worker_p50_ms", straight)
        if "statements" in options.only:
            console.print(f"all statements {options.queries} times, straight and through the master in turn")
            straight, through = statements_overhead_ms(at, options.queries)
            report.at_most("statements_added_p50_ms", through - straight, OVERHEAD_MS_MAX)
            report.figure("statements_ratio", through / straight)
        if "update" in options.only:
            console.print(f"updates of {UPDATED_TRIPLES:,} triples, without a graph and with GRAPH in turn")
            without, named = update_seconds(at, UPDATE_ROUNDS)
            report.at_most("update_without_graph_ratio", without / named, UPDATE_RATIO_MAX)
            report.figure("update_with_graph_ms", 1000 * named)
        if "stream" in options.only:
            console.print(f"a result of {options.stream / 1e9:g} GB")
            grown, took, got = measure_stream(at, at.pid, options.stream)
            report.at_most("stream_1gb_mb", grown, STREAM_MB_MAX)
            report.figure("stream_mb_per_s", got / 1e6 / took)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    report = BenchReport("make bench-door")
    try:
        report.figure("file_system", disk_of(options.folder))
        report.figure("fsync_per_s", fsync_rate(options.folder))
        for wanted, what, measure in (
            (("insert10", "upload"), "writes", measure_writes),
            (("query", "statements", "update", "stream"), "reads", measure_reads),
        ):
            if not set(wanted) & set(options.only):
                continue
            with report.part(what, OSError, http.client.HTTPException):
                measure(options, report)
    except NotOnDisk as refused:
        report.failed("journals on a disk", str(refused))
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)
    return report.end()


def _options(arguments: list[str] | None) -> HttpBenchOptions:
    parser = argparse.ArgumentParser(prog="python -m bench.http_api", description=__doc__)
    parser.add_argument("--only", default=",".join(CASES), help="cases, with commas: " + ", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round of insert10")
    parser.add_argument("--uploads", type=int, default=8, help="bodies in each round of upload")
    parser.add_argument("--queries", type=int, default=3000)
    parser.add_argument("--stream", type=float, default=STREAM_BYTES / 1e9, help="GB of the large result")
    found = parser.parse_args(arguments)
    only = [case.strip() for case in found.only.split(",") if case.strip()]
    if wrong := [case for case in only if case not in CASES]:
        parser.error(f"no case is called {', '.join(wrong)}; there are {', '.join(CASES)}")
    scratch = Path.cwd() / ".txlog-bench"  # not the system's folder for temporary files, which may be in memory
    scratch.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="door-", dir=scratch))
    return HttpBenchOptions(
        only, folder, found.rounds, found.seconds, found.uploads, found.queries, round(found.stream * 1e9)
    )


if __name__ == "__main__":
    sys.exit(main())
