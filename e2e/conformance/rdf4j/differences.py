"""``make rdf4j-differences``: the same requests to a master and to a real RDF4J server.

Compared are status, media type, which of ``ETag`` and ``Last-Modified`` there are, and body: results and graphs by what
they say (blank nodes up to their names), text as it is, errors by what kind they say they are (``MALFORMED QUERY``).
What docs/rdf4j-differences.md does not list is a miss; so is what it lists and is not so. The last line of stdout is
JSON: ``{"steps", "equal", "different", ...}``.
"""

from __future__ import annotations

import argparse
import http.client
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import pyoxigraph as ox

from e2e.conformance.rdf4j.binary_tables import read_table
from e2e.conformance.rdf4j.rdf4j_process import PATH, rdf4j_server
from e2e.conformance.rdf4j.rdf_formats import read_binary, read_rdf_json, read_trix
from e2e.conformance.rdf4j.request_script import BINARY, BINARY_TABLE, STEPS, RequestStep
from e2e.conformance.w3c.result_comparison import (
    CSV,
    JSON,
    TSV,
    XML,
    QueryOutcome,
    describe_result,
    is_equal,
    read_answer,
    statements_of,
)
from e2e.lib.cluster.harness import TIMEOUT_S, MasterHarness, StoreKind, start_master_harness
from e2e.lib.cluster.masters import REPOSITORY
from e2e.lib.report import BenchReport, CannotMeasure, build_table, print_table
from txlog.local.local_errors import CannotRun

DIFFERENCES_FILE: Final = Path(__file__).parents[3] / "docs" / "rdf4j-differences.md"
_RDF: Final = {
    "application/n-quads": ox.RdfFormat.N_QUADS,
    "text/x-nquads": ox.RdfFormat.N_QUADS,
    "application/n-triples": ox.RdfFormat.N_TRIPLES,
    "text/turtle": ox.RdfFormat.TURTLE,
    "application/trig": ox.RdfFormat.TRIG,
    "application/x-trig": ox.RdfFormat.TRIG,
    "application/rdf+xml": ox.RdfFormat.RDF_XML,
    "text/n3": ox.RdfFormat.N3,
    "application/ld+json": ox.RdfFormat.JSON_LD,
}
_OWN: Final[dict[str, Callable[[bytes], Iterable[ox.Quad]]]] = {
    "application/trix": read_trix,
    "application/rdf+json": read_rdf_json,
    BINARY: read_binary,
}
VALIDATORS: Final = ("ETag", "Last-Modified")
_KIND: Final = re.compile(r"[A-Z]{3,}(?: [A-Z]{2,})+(?=:)")


class ServerAnswer(NamedTuple):
    """An answer. ``kind``: of an error, in the words of the protocol, "" when it says none. ``validators``: which
    headers it has for a conditional request."""

    status: int
    media: str
    body: bytes
    validators: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        found = _KIND.match(self.body.decode("utf-8", "replace"))
        return found[0] if found else ""

    def parse_body(self) -> QueryOutcome | str:
        """What the body says."""
        if self.media in (JSON, XML, CSV, TSV):
            return read_answer(self.body, self.media)
        if self.media in _RDF:
            return statements_of(ox.parse(self.body, _RDF[self.media], base_iri="urn:base:"))
        if self.media in _OWN:
            return statements_of(_OWN[self.media](self.body))
        if self.media == BINARY_TABLE:
            return read_table(self.body)
        return self.body.decode("utf-8", "replace").strip()

    def describe(self) -> str:
        """For people."""
        found = self.body[:300].decode("utf-8", "replace") if self.status >= 400 else self.parse_body()
        return found if isinstance(found, str) else describe_result(found)


class ComparedServer:
    """One of both; keeps the open transaction's path. ``at``: the master's door, whose store carries out each write."""

    def __init__(self, where: str, at: MasterHarness | None = None) -> None:
        self._at = at
        self._where = where
        self._http = http.client.HTTPConnection(where, timeout=TIMEOUT_S)
        self._transaction = "/nothing"

    def close(self) -> None:
        self._http.close()

    def send(self, step: RequestStep) -> ServerAnswer:
        """One step of the script."""
        if step.path.startswith("@tx"):
            path = self._transaction + step.path.removeprefix("@tx")
        else:
            path = PATH + step.path.replace("@", f"/repositories/{REPOSITORY}", 1)
        body = step.body.encode() if isinstance(step.body, str) else step.body
        self._http.request(step.method, path, body=body, headers=dict(step.headers))
        answer = self._http.getresponse()
        # Each server names itself by its own address.
        data = answer.read().replace(self._where.encode(), b"server")
        if answer.status == 201 and (place := answer.headers["Location"]):
            self._transaction = urlsplit(place).path
        if self._at is not None and self._at.note_position(answer.headers["TxLog-Position"]):
            self._at.apply_all(*self._at.synchronous_stores)
        media = (answer.headers["Content-Type"] or "").partition(";")[0].strip().lower()
        validators = tuple(name for name in VALIDATORS if name in answer.headers)
        return ServerAnswer(answer.status, media, data, validators)


def difference(rdf4j: ServerAnswer, master: ServerAnswer) -> str:
    """In which of status, type and body they differ, RDF4J's first; "" when in none."""
    told = []
    if rdf4j.status != master.status:
        told.append(f"status {rdf4j.status} / {master.status}")
    if rdf4j.media != master.media and (rdf4j.body or master.body):
        told.append(f"type {rdf4j.media or 'none'} / {master.media or 'none'}")
    if rdf4j.validators != master.validators:
        told.append(f"headers {' '.join(rdf4j.validators) or 'none'} / {' '.join(master.validators) or 'none'}")
    if rdf4j.status >= 400 and master.status >= 400:
        if rdf4j.kind != master.kind:
            told.append(f"error {rdf4j.kind or 'of no kind'} / {master.kind or 'of no kind'}")
    elif rdf4j.status == master.status:
        one, other = rdf4j.parse_body(), master.parse_body()
        alike = one == other if isinstance(one, str) or isinstance(other, str) else is_equal(one, other)
        if not alike:
            told.append("body")
    return ", ".join(told)


def parse_listed(text: str) -> dict[str, str]:
    """The lines ``| step | difference | why |`` of the document. ValueError for one that gives no reason."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            name = cells[0].strip("`")
            if name in found or not cells[2]:
                raise ValueError(f"a line that is there twice, or says not why: {line}")
            found[name] = cells[1]
    return found


@contextmanager
def compared_servers(
    folder: Path, store: StoreKind = StoreKind.DISK
) -> Iterator[tuple[ComparedServer, ComparedServer]]:
    """A real RDF4J server and a master with one worker of this kind; both are empty."""
    with (
        rdf4j_server(folder / "rdf4j") as where,
        start_master_harness(folder / "door", {"worker": store}, ("worker",), durability="synced") as at,
        closing(ComparedServer(where)) as rdf4j,
        closing(ComparedServer(urlsplit(at.url).netloc, at)) as master,
    ):
        at.update("DROP ALL")  # a master answers no read before its store has executed a transaction
        yield rdf4j, master


def run(folder: Path, steps: Sequence[RequestStep] = STEPS) -> list[tuple[RequestStep, ServerAnswer, ServerAnswer]]:
    """Each step with both answers, RDF4J's first."""
    with compared_servers(folder) as (rdf4j, master):
        return [(step, rdf4j.send(step), master.send(step)) for step in steps]


def find_unlisted(
    answers: Sequence[tuple[RequestStep, ServerAnswer, ServerAnswer]], known: dict[str, str]
) -> list[str]:
    """What the list does not say, and what it says and is not so."""
    wrong = []
    for step, rdf4j, master in answers:
        found, wanted = difference(rdf4j, master), known.get(step.name, "")
        if found != wanted:
            wrong.append(
                f"{step.name}: {found or 'no difference'}; docs/rdf4j-differences.md says {wanted or 'none'}\n"
                f"    RDF4J  {rdf4j.status} {rdf4j.media}: {rdf4j.describe()[:400]}\n"
                f"    master {master.status} {master.media}: {master.describe()[:400]}"
            )
    names = {step.name for step, _, _ in answers}
    return wrong + [f"{name}: listed, and no step" for name in known.keys() - names]


def main(arguments: list[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m e2e.conformance.rdf4j.differences", description=__doc__).parse_args(
        arguments
    )
    report = BenchReport("rdf4j-differences")
    folder = Path(tempfile.mkdtemp(prefix="txlog-rdf4j-"))
    try:
        answers = run(folder)
        wrong = find_unlisted(answers, parse_listed(DIFFERENCES_FILE.read_text()))
    except (CannotRun, CannotMeasure, OSError, http.client.HTTPException) as why:
        report.failed("all steps are sent", str(why))
        return report.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    different = [(step.name, difference(rdf4j, master)) for step, rdf4j, master in answers]
    print_table(build_table("RDF4J / master", ("step", "difference"), [line for line in different if line[1]]))
    for line in wrong:
        print(line)
    report.figure("steps", len(answers))
    report.figure("equal", sum(not line[1] for line in different))
    report.figure("different", sum(bool(line[1]) for line in different))
    report.equal("unlisted", len(wrong), 0)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
