"""``make w3c``: the W3C's tests of RDF and SPARQL, 1.0 to 1.2, through a master and straight at its store's engine.

A master (one process, one Oxigraph that carries out its log) and a second Oxigraph that nobody stands before get the
same data, uploads, queries and updates. What each says is judged by the suite. The last line of stdout is JSON:
``{"passed", "failed", "engine_passed", ...}``; ``passed`` and ``failed`` are the master's. A difference that
docs/w3c.md does not list is a miss; so is one that it lists and that is not there.

A master's default graph is the union of all graphs, as RDF4J's is: the suite's queries are asked with
``default-graph-uri=null``, RDF4J's name for the default graph alone.
"""

from __future__ import annotations

import argparse
import http.client
import posixpath
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlencode, urlsplit

import pyoxigraph as ox

from e2e.conformance.w3c.case_kinds import NO_DATA, QueryTest, SyntaxTest, TestDataset, UpdateTest, UploadTest, W3cTest
from e2e.conformance.w3c.dataset_setup import N_QUADS, fill_dataset, to_nquads
from e2e.conformance.w3c.result_comparison import (
    QueryOutcome,
    Statements,
    describe_result,
    is_equal,
    media_of,
    read_answer,
    read_result,
    statements_of,
)
from e2e.conformance.w3c.suite import RDF_FORMATS, W3cSuite, quads_of
from e2e.lib.cluster.harness import TIMEOUT_S, MasterHarness, StoreKind, StoreProcess, start_master_harness
from e2e.lib.report import BenchReport, CannotMeasure, build_table, console, print_table

EXPECTATIONS_FILE: Final = Path(__file__).parents[3] / "docs" / "w3c.md"
STORES: Final = {"worker": StoreKind.DISK}
SHOWN_MAX: Final = 30
ANY_ANSWER: Final = "application/sparql-results+json, application/n-triples;q=0.9"
_MALFORMED: Final = 400
_BASED: Final = (ox.RdfFormat.TURTLE, ox.RdfFormat.TRIG)


class RequestRejected(Exception):
    """An answer that is no success: status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text.strip()}")
        self.status = status


class SystemUnderTest(Protocol):
    """Who is tested. :class:`RequestRejected` says why a query or an update was not carried out."""

    def fill(self, quads: Sequence[ox.Quad]) -> None: ...
    def query(self, text: str, media: str) -> bytes: ...
    def update(self, text: str) -> None: ...
    def contents(self) -> Statements: ...
    def upload(self, body: bytes, form: ox.RdfFormat, base: str) -> Statements: ...


class MasterUnderTest:
    """A master, as its clients see it."""

    def __init__(self, at: MasterHarness) -> None:
        self._door = at

    def fill(self, quads: Sequence[ox.Quad]) -> None:
        fill_dataset(self._door, quads)

    def query(self, text: str, media: str) -> bytes:
        form = urlencode({"query": text} if _names_graphs(text) else {"query": text, "default-graph-uri": "null"})
        return self._get("POST", "", form.encode(), media)

    def update(self, text: str) -> None:
        answer = self._door.update(text)
        if answer.status != 204:
            raise RequestRejected(answer.status, answer.text)

    def contents(self) -> Statements:
        return statements_of(ox.parse(self._get("GET", "/statements", b"", N_QUADS), ox.RdfFormat.N_QUADS))

    def upload(self, body: bytes, form: ox.RdfFormat, base: str) -> Statements:
        path = "/statements?" + urlencode({"baseURI": f"<{base}>"})
        headers = {"Content-Type": form.media_type, "TxLog-Durability": "synced"}
        answer = self._door.request("PUT", path, body, headers)
        if answer.status != 204:
            raise RequestRejected(answer.status, answer.text)
        self._door.apply_all(*STORES)
        return self.contents()

    def _get(self, method: str, path: str, body: bytes, media: str) -> bytes:
        headers = {"Accept": media, "Content-Type": "application/x-www-form-urlencoded"} if body else {"Accept": media}
        answer = self._door.request(method, path, body, headers)
        if answer.status != 200:
            raise RequestRejected(answer.status, answer.text)
        return answer.text.encode()


class EngineUnderTest:
    """The store alone."""

    def __init__(self, url: str) -> None:
        self._http = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)

    def close(self) -> None:
        self._http.close()

    def fill(self, quads: Sequence[ox.Quad]) -> None:
        self._ask("PUT", "/store", to_nquads(quads), {"Content-Type": N_QUADS})

    def query(self, text: str, media: str) -> bytes:
        headers = {"Content-Type": "application/sparql-query", "Accept": media}
        return self._ask("POST", "/query", text.encode(), headers)

    def update(self, text: str) -> None:
        self._ask("POST", "/update", text.encode(), {"Content-Type": "application/sparql-update"})

    def contents(self) -> Statements:
        return statements_of(ox.parse(self._ask("GET", "/store", b"", {"Accept": N_QUADS}), ox.RdfFormat.N_QUADS))

    def upload(self, body: bytes, form: ox.RdfFormat, base: str) -> Statements:
        """The base of a graph's file is the graph's name for this engine. A file of several graphs says its own."""
        if form.supports_datasets:
            based = f"@base <{base}> .\n".encode() + body if form in _BASED else body
            self._ask("PUT", "/store", based, {"Content-Type": form.media_type})
            return self.contents()
        path = "/store?" + urlencode({"graph": base})
        self._ask("PUT", path, body, {"Content-Type": form.media_type})
        triples = self._ask("GET", path, b"", {"Accept": ox.RdfFormat.N_TRIPLES.media_type})
        return statements_of(ox.parse(triples, ox.RdfFormat.N_TRIPLES))

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        self._http.request(method, path, body=body, headers=headers)
        answer = self._http.getresponse()
        data = answer.read()
        if answer.status >= 300:
            raise RequestRejected(answer.status, data.decode("utf-8", "replace"))
        return data


class TestVerdict(NamedTuple):
    """``why``: "" for a test that passed."""

    name: str
    why: str

    @property
    def word(self) -> str:
        return "failed" if self.why else "passed"


class TestRunner:
    """Carries out tests at one of both; data that is still there is not sent again."""

    def __init__(self, suite: W3cSuite, asked: SystemUnderTest) -> None:
        self._suite = suite
        self._asked = asked
        self._holds: TestDataset | None = None

    def verdict(self, test: W3cTest) -> TestVerdict:
        """What the suite says of the answer to one test."""
        before = test.before if isinstance(test, QueryTest | UpdateTest) else NO_DATA
        if self._holds != before and not isinstance(test, UploadTest):
            self._asked.fill(quads_of(self._suite, before))
            self._holds = before
        try:
            return TestVerdict(test.name, self._why_not(test))
        except RequestRejected as refused:
            if isinstance(test, SyntaxTest | UploadTest) and not test.valid and refused.status == _MALFORMED:
                return TestVerdict(test.name, "")
            return TestVerdict(test.name, str(refused)[:300])
        except (SyntaxError, ValueError) as wrong:
            return TestVerdict(test.name, f"an answer that cannot be read: {wrong}"[:300])

    def _why_not(self, test: W3cTest) -> str:
        match test:
            case QueryTest():
                return self._query(test)
            case UpdateTest():
                return self._update(test)
            case SyntaxTest():
                return self._take(test)
            case UploadTest():
                return self._upload(test)

    def _take(self, test: SyntaxTest) -> str:
        if test.is_update:
            self._holds = None
            self._asked.update(test.text)
        else:
            self._asked.query(test.text, ANY_ANSWER)
        return "" if test.valid else "taken, though it is malformed"

    def _upload(self, test: UploadTest) -> str:
        self._holds = None
        form = RDF_FORMATS[posixpath.splitext(test.path)[1]]
        found = self._asked.upload(self._suite.read(test.path), form, test.base)
        if not test.valid:
            return "taken, though it is malformed"
        wanted = statements_of(self._suite.quads(test.result)) if test.result else found
        return "" if is_equal(wanted, found) else _explain_difference(wanted, found)

    def _query(self, test: QueryTest) -> str:
        is_rdf = test.result.endswith((".ttl", ".rdf"))
        triples = self._suite.triples(test.result) if is_rdf else None
        wanted = read_result(self._suite.read(test.result), test.result, triples)
        media = media_of(test.result, wanted)
        found = read_answer(self._asked.query(test.text, media), media)
        return "" if is_equal(wanted, found, lax=test.lax) else _explain_difference(wanted, found)

    def _update(self, test: UpdateTest) -> str:
        self._holds = None
        self._asked.update(test.request)
        wanted, found = statements_of(quads_of(self._suite, test.after)), self._asked.contents()
        return "" if is_equal(wanted, found) else _explain_difference(wanted, found)


def _explain_difference(wanted: QueryOutcome, found: QueryOutcome) -> str:
    return f"{describe_result(found)}; wanted: {describe_result(wanted)}"


def _names_graphs(text: str) -> bool:
    """Whether the query has a dataset of its own, which ``default-graph-uri`` would replace."""
    return "FROM" in text.upper().split()


class ExpectedVerdict(NamedTuple):
    """A line of docs/w3c.md: what master and engine each come to, and why."""

    master: str
    engine: str
    why: str


def parse_listed(text: str) -> dict[str, ExpectedVerdict]:
    """The lines ``| test | master | engine | why |`` of the document. ValueError for one that says nothing."""
    found: dict[str, ExpectedVerdict] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            name = cells[0].strip("`")
            if name in found:
                raise ValueError(f"{name} is listed twice")
            if not {cells[1], cells[2]} <= {"passed", "failed"} or not cells[3]:
                raise ValueError(f"a line that says nothing: {line}")
            found[name] = ExpectedVerdict(*cells[1:])
    return found


def unexplained(
    master: Sequence[TestVerdict], engine: Sequence[TestVerdict], known: dict[str, ExpectedVerdict]
) -> list[str]:
    """What the list does not say, and what it says and is not so. Listed are all tests that not both pass."""
    wrong = []
    seen: set[str] = set()
    for through, straight in zip(master, engine, strict=True):
        seen.add(through.name)
        line = known.get(through.name, ExpectedVerdict("passed", "passed", ""))
        if (through.word, straight.word) != (line.master, line.engine):
            wrong.append(
                f"{through.name}: the master {through.word}, the engine {straight.word}; "
                f"docs/w3c.md says {line.master} and {line.engine}"
                + "".join(f"\n    {who}: {v.why}" for who, v in (("master", through), ("engine", straight)) if v.why)
            )
    return wrong + [f"{name}: listed in docs/w3c.md, and no test of the suite" for name in known.keys() - seen]


def run_both(
    folder: Path,
    suite: W3cSuite,
    tests: Sequence[W3cTest],
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[list[TestVerdict], list[TestVerdict]]:
    """The verdicts on a master and on its store's engine, in the order of ``tests``."""
    with start_master_harness(folder / "door", STORES, tuple(STORES), updates_without_graph="default") as at:
        alone = StoreProcess(StoreKind.DISK, folder / "engine", folder / "engine.log")
        with closing(alone), closing(EngineUnderTest(alone.url)) as engine:
            through, straight = TestRunner(suite, MasterUnderTest(at)), TestRunner(suite, engine)
            verdicts: tuple[list[TestVerdict], list[TestVerdict]] = ([], [])
            for done, test in enumerate(tests, 1):
                verdicts[0].append(through.verdict(test))
                verdicts[1].append(straight.verdict(test))
                progress(done)
            return verdicts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.conformance.w3c.run", description=__doc__)
    parser.add_argument("--only", default="", help="tests whose name contains this; then the list is not complete")
    options = parser.parse_args(arguments)
    report = BenchReport("w3c")
    suite = W3cSuite()
    tests = [test for test in [*suite.tests, *suite.rdf12_tests] if options.only in test.name]
    if not tests:
        parser.error(f"no test's name contains {options.only!r}")
    names = {test.name for test in tests}
    known = {
        name: line
        for name, line in parse_listed(EXPECTATIONS_FILE.read_text()).items()
        if not options.only or name in names
    }
    shown = time.monotonic()

    def progress(done: int) -> None:
        nonlocal shown
        if time.monotonic() > shown + 5:
            shown = time.monotonic()
            console.print(f"{done} of {len(tests)} tests")

    folder = Path(tempfile.mkdtemp(prefix="txlog-w3c-"))
    try:
        master, engine = run_both(folder, suite, tests, progress)
    except CannotMeasure as wrong:
        report.failed("all tests are carried out", str(wrong))
        return report.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [
        (through.name, through.word, straight.word, known[through.name].why if through.name in known else "")
        for through, straight in zip(master, engine, strict=True)
        if through.why or straight.why
    ]
    print_table(build_table("not passed by both", ("test", "master", "engine", "why"), rows))
    wrong_lines = unexplained(master, engine, known)
    for line in wrong_lines[:SHOWN_MAX]:
        print(line)
    report.figure("passed", sum(not verdict.why for verdict in master))
    report.figure("failed", sum(bool(verdict.why) for verdict in master))
    report.figure("engine_passed", sum(not verdict.why for verdict in engine))
    report.equal("unexplained", len(wrong_lines), 0)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
