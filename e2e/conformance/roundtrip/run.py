"""``make roundtrip``: what is written is what is read, or the answer names the engine that rewrites it.

Odd literals, IRIs and labels (``values.py``) go through the door of a real master in every format of RDF and as a
SPARQL update, into real stores, and come back in every format and result format. Byte for byte, one of three holds:

kept      what was sent
named     the canonical form of what was sent, and ``TxLog-Literals`` of the answer names that form. With an engine that
          writes values in its own form, that form, and the header names the engine. On workers that hold literals as
          they were sent (``rdf4j-as-written``) only language tags in lower case are named
refused   the request is answered by 400 with a reason, and nothing is stored

Everything else is ``changed`` and a miss. The last line of stdout is JSON: ``{"values", "formats", "engines", "kept",
"named", "refused", "changed"}``. ``named`` and ``refused``: how many of the values, in any format.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

import pyoxigraph as ox

from e2e.conformance.rdf4j.binary_tables import read_table
from e2e.conformance.rdf4j.rdf_formats import read_binary, read_rdf_json, read_trix
from e2e.conformance.roundtrip.documents import WITHOUT_TRIPLE_TERMS, WRITERS, triple_of_iri, with_triple_iri
from e2e.conformance.roundtrip.values import LANGUAGES, odd_terms
from e2e.lib.cluster.harness import MasterHarness, StoreKind, start_master_harness
from e2e.lib.report import BenchReport, CannotMeasure, build_table, console, print_table
from txlog.config.units import AS_WRITTEN, STANDALONE_ENGINES
from txlog.workers.canonical_literals import canonical_lines, canonical_literal

Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple
Reader = Callable[[str, bytes], Iterable[tuple[int, str]]]
ENGINES: Final[Mapping[str, Mapping[str, StoreKind]]] = {
    "oxigraph": {"store": StoreKind.DISK},
    "fuseki": {"store": StoreKind.FUSEKI},
    "rdf4j": {"store": StoreKind.RDF4J},
    AS_WRITTEN: {"store": StoreKind.AS_WRITTEN},
    "virtuoso": {"store": StoreKind.VIRTUOSO},
    "mixed": {"store": StoreKind.DISK, "fuseki": StoreKind.FUSEKI, "rdf4j": StoreKind.RDF4J},
}
"""Of each cluster; reads of the mixed one are answered by any of its stores."""
SPARQL: Final = "application/sparql-update"
N_QUADS: Final = "application/n-quads"
_OXIGRAPH: Final = {
    N_QUADS: ox.RdfFormat.N_QUADS,
    "application/n-triples": ox.RdfFormat.N_TRIPLES,
    "text/turtle": ox.RdfFormat.TURTLE,
    "application/trig": ox.RdfFormat.TRIG,
    "text/n3": ox.RdfFormat.N3,
    "application/rdf+xml": ox.RdfFormat.RDF_XML,
    "application/ld+json": ox.RdfFormat.JSON_LD,
}
_READERS: Final[Mapping[str, Callable[[bytes], Iterable[ox.Quad]]]] = {
    "application/trix": read_trix,
    "application/rdf+json": read_rdf_json,
    "application/x-binary-rdf": read_binary,
}
UPLOADS: Final = (*_OXIGRAPH, *WRITERS, SPARQL)
JSON_TABLE: Final = "application/sparql-results+json"
TSV: Final = "text/tab-separated-values"
BINARY_TABLE: Final = "application/x-binary-rdf-results-table"
TABLES: Final = (JSON_TABLE, "application/sparql-results+xml", TSV, BINARY_TABLE)
_DOUBLE: Final = re.compile(r'"([0-9.eE+-]+)"(\^\^<http://www\.w3\.org/2001/XMLSchema#(?:double|float)>)')
_RESULTS: Final = "{http://www.w3.org/2005/sparql-results#}"
_LANGUAGE: Final = "{http://www.w3.org/XML/1998/namespace}lang"
_HEXADECIMAL_LABELS: Final = ("application/trix", "application/rdf+json", "application/x-binary-rdf", BINARY_TABLE)
_NO_TSV: Final = ("rdf4j", AS_WRITTEN, "virtuoso")
"""Their TSV does not tell strings from IRIs (docs/reference/engines.md)."""
_PREDICATE: Final = "urn:roundtrip:value"
_SELECT: Final = f"SELECT ?s ?o {{ ?s <{_PREDICATE}> ?o }}"
SIX_DIGITS: Final = 1e-5
SHOWN_MAX: Final = 60


class Answer(NamedTuple):
    """``form``: the header ``TxLog-Literals``."""

    status: int
    body: bytes
    form: str


class RoundTrip:
    """One cluster; ``terms``: by the number that its subject has."""

    def __init__(self, at: MasterHarness, engine: str, terms: Sequence[Term]) -> None:
        self._master, self._engine, self._terms = at, engine, terms
        self.kept: dict[str, int] = {}
        self.named: dict[str, set[int]] = {}
        self.refused: dict[str, dict[int, str]] = {}
        self.changed: dict[str, list[str]] = {}
        self._sent = frozenset(range(len(terms)))

    def run(self, uploads: Iterable[str]) -> None:
        """Everything in each format; then read in all of them."""
        for media in uploads:
            self._request("DELETE", "/statements")
            self.kept[media], self.named[media], self.refused[media] = 0, set(), {}
            # A label in an update is a new node, in RDF4J, too.
            sent = [(n, term) for n, term in enumerate(self._terms) if media != SPARQL or n_triples(term)[0] != "_"]
            self._sent = frozenset(number for number, _ in sent)
            self._write(media, sent)
            self._master.apply_all(*self._master.stores)
            self._read(media, N_QUADS)
            if media not in (SPARQL, N_QUADS):
                self._read(media, media)
            for table in TABLES:
                if not (table == TSV and self._engine in (*_NO_TSV, "mixed")):
                    self._read_table(media, table)

    def _request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        sent = {"TxLog-Durability": "synced", **{name.replace("_", "-"): value for name, value in headers.items()}}
        status, found, text = self._master.exchange(method, path, body, sent)
        return Answer(status, text, found.get("TxLog-Literals", ""))

    def _write(self, media: str, numbered: list[tuple[int, Term]]) -> None:
        """What is refused is halved until the value is found that is the reason."""
        if not numbered:
            return
        body = write_document(media, numbered)
        answer = self._request("POST", "/statements?preserveNodeId=true", body, Content_Type=media)
        if answer.status == 204:
            return
        if answer.status != 400:
            raise CannotMeasure(f"{media}: {answer.status} {answer.body[:300]!r}")
        if len(numbered) == 1:
            self.refused[media][numbered[0][0]] = answer.body.decode("utf-8", "replace")[:200]
            return
        half = len(numbered) // 2
        self._write(media, numbered[:half])
        self._write(media, numbered[half:])

    def _read(self, sent_as: str, accept: str) -> None:
        answer = self._request("GET", "/statements", Accept=accept)
        if answer.status != 200:
            self.changed.setdefault(f"{self._engine}: {answer.status} {answer.body[:200]!r}", []).append(accept)
            return
        self._judge(sent_as, accept, read_document, answer)

    def _read_table(self, sent_as: str, accept: str) -> None:
        answer = self._request("GET", f"?query={quote(_SELECT)}", Accept=accept)
        if answer.status != 200:
            self.changed.setdefault(f"{self._engine}: {answer.status} {answer.body[:200]!r}", []).append(accept)
            return
        self._judge(sent_as, accept, read_results, answer)

    def _judge(self, sent_as: str, accept: str, read: Reader, answer: Answer) -> None:
        try:
            found = dict(read(accept, answer.body))
        except (ValueError, SyntaxError, AssertionError, LookupError) as wrong:
            self.changed.setdefault(f"{self._engine}: {wrong}", []).append(f"{sent_as} to {accept}")
            return
        self.compare(sent_as, accept, found, answer.form)

    def compare(self, sent_as: str, accept: str, found: Mapping[int, str], form: str) -> None:
        """What came back of what was sent; ``form``: the header ``TxLog-Literals`` of the answer."""
        for number, term in enumerate(self._terms):
            if number not in self._sent:
                continue
            if number in self.refused.get(sent_as, ()):
                if number in found:
                    self.changed.setdefault(f"{self._engine}: refused and stored: {term}", []).append(sent_as)
                continue
            sent, back = n_triples(term), found.get(number, "nothing")
            if _same_text(sent, back):
                self.kept[sent_as] = self.kept.get(sent_as, 0) + 1
            elif _is_named(sent, back, form):
                self.named.setdefault(sent_as, set()).add(number)
            else:
                what = f"{self._engine}: {sent[:80]!r} is {back[:80]!r} (form {form or 'not named'})"
                self.changed.setdefault(what, []).append(f"{sent_as} to {accept}")


def _same_text(sent: str, back: str) -> bool:
    """A label has several spellings, where a format cannot hold it."""
    if sent.startswith("_:") and back.startswith("_:"):
        return _label(sent) == _label(back)
    return sent == back


def _label(term: str) -> str:
    digits = term.removeprefix("_:hex-")
    try:
        return bytes.fromhex(digits).decode() if digits != term else term[2:]
    except ValueError:
        return term[2:]


def _is_named(sent: str, back: str, form: str) -> bool:
    if form and sent.startswith("<<(") and back.startswith("<<("):
        return canonical_lines(sent.encode()) == canonical_lines(back.encode())
    if not form or not sent.startswith('"') or not back.startswith('"'):
        return False
    if form == AS_WRITTEN:  # RDF4J keeps the first spelling of a tag that it meets, so these are in lower case
        text, at, tag = sent.rpartition('"@')
        return bool(at) and back == f"{text}{at}{tag.lower()}"
    expected = _canonical(sent)
    return back == expected or (form != "oxigraph" and _own_form(form, _canonical(back), expected))


def _own_form(form: str, back: str, expected: str) -> bool:
    """Whether ``back`` is ``expected`` as the engine writes it (docs/reference/engines.md)."""
    if back == expected or form != "virtuoso":
        return back == expected
    if back.replace("<urn:txlog:shape:", "<") == expected or back.encode("latin-1", "replace") == expected.encode():
        return True
    ours, theirs = _DOUBLE.match(back), _DOUBLE.match(expected)
    if ours is None or theirs is None or ours[2] != theirs[2]:
        return False
    return abs(float(ours[1]) - float(theirs[1])) <= SIX_DIGITS * abs(float(theirs[1]))


def _canonical(literal: str) -> str:
    return canonical_literal(literal.encode()).decode()


def n_triples(term: Term) -> str:
    """The term as it is sent; pyoxigraph's own literals have their language in lower case."""
    text = f"<<( {term} )>>" if isinstance(term, ox.Triple) else str(term)
    if isinstance(term, ox.Literal) and term.language:
        return text[: len(text) - len(term.language)] + LANGUAGES.get(term.language, term.language)
    return text


def write_document(media: str, numbered: Sequence[tuple[int, Term]]) -> bytes:
    """A document that gives each value to the subject of its number."""
    if media == SPARQL:
        lines = [f"<urn:roundtrip:{n}> <{_PREDICATE}> {n_triples(term)} ." for n, term in numbered]
        return f"INSERT DATA {{ {' '.join(lines)} }}".encode()
    if media in WRITERS:
        return WRITERS[media]([(f"urn:roundtrip:{n}", _PREDICATE, term) for n, term in numbered])
    if media in WITHOUT_TRIPLE_TERMS:
        numbered = [(n, with_triple_iri(term)) for n, term in numbered]
    quads = [ox.Quad(ox.NamedNode(f"urn:roundtrip:{n}"), ox.NamedNode(_PREDICATE), term) for n, term in numbered]
    out = io.BytesIO()
    form = _OXIGRAPH[media]
    ox.serialize(quads if form.supports_datasets else (quad.triple for quad in quads), out, format=form)
    body = out.getvalue()
    if form == ox.RdfFormat.RDF_XML:
        body = body.replace(b"\r", b"&#13;")  # a reader of XML takes it for a line feed otherwise
    for lower, tag in LANGUAGES.items():
        for before in ('"', "@"):
            body = body.replace(f"{before}{lower}".encode(), f"{before}{tag}".encode())
    return body


def read_document(media: str, body: bytes) -> Iterator[tuple[int, str]]:
    """Each value, by the number of its subject. The lines of N-Quads and N-Triples are taken as they are."""
    if media in (N_QUADS, "application/n-triples"):
        for line in body.decode().split("\n"):
            if line:
                subject, _, value = re.split(r"[ \t]", line, maxsplit=2)
                yield int(subject.rpartition(":")[2][:-1]), _without_escapes(value[:-2])
        return
    quads = _READERS[media](body) if media in _READERS else ox.parse(body, _OXIGRAPH[media])
    for quad in quads:
        yield int(str(quad.subject).rpartition(":")[2][:-1]), _text(media, quad.object)


def _without_escapes(text: str) -> str:
    """A term of a line as pyoxigraph spells it; only the spelling of characters differs."""
    text = text.strip()
    if text.startswith("_:") or (text.isascii() and "\\u" not in text.lower() and text.isprintable()):
        return text
    [quad] = ox.parse(f"<x:s> <x:p> {text} .", ox.RdfFormat.N_TRIPLES)
    return n_triples(quad.object)


def read_results(media: str, body: bytes) -> Iterator[tuple[int, str]]:
    """The same of results."""
    if media == JSON_TABLE:
        for row in json.loads(body)["results"]["bindings"]:
            yield int(row["s"]["value"].rpartition(":")[2]), _from_json(row["o"])
        return
    if media == TSV:
        for line in body.decode().split("\n")[1:]:
            subject, tab, value = line.rstrip("\r").partition("\t")
            if tab:
                yield int(subject.rpartition(":")[2][:-1]), _from_tsv(value)
        return
    if media == BINARY_TABLE:
        for row in read_table(body).rows:
            cells = dict(row)
            yield int(str(cells["s"]).rpartition(":")[2][:-1]), _text(media, cells["o"])
        return
    for result in ElementTree.fromstring(body).iter(f"{_RESULTS}result"):
        values = {binding.get("name", ""): binding[0] for binding in result}
        yield int((values["s"].text or "").rpartition(":")[2]), _from_xml(values["o"])


def _from_xml(value: ElementTree.Element) -> str:
    if value.tag == f"{_RESULTS}triple":
        return f"<<( {' '.join(_from_xml(part[0]) for part in value)} )>>"
    said = {"type": value.tag.removeprefix(_RESULTS), "value": value.text or ""}
    said |= {"xml:lang": value.attrib[_LANGUAGE]} if _LANGUAGE in value.attrib else {}
    return _from_json(said | ({"datatype": value.attrib["datatype"]} if "datatype" in value.attrib else {}))


def _from_tsv(text: str) -> str:
    """Numbers and booleans stand there as in Turtle."""
    if text.startswith(("<", "_:")) and not text.startswith("<<"):
        return text
    form = ox.RdfFormat.N_TRIPLES if text.startswith('"') else ox.RdfFormat.TURTLE
    [quad] = ox.parse(f"<x:s> <x:p> {text} .", form)
    return n_triples(quad.object)


def _text(media: str, term: object) -> str:
    """The term that a reader has found, in N-Triples. Where any text may be a label, readers give it in hexadecimal."""
    if isinstance(term, ox.BlankNode) and media in _HEXADECIMAL_LABELS:
        return f"_:{bytes.fromhex(term.value[1:]).decode()}"
    if media in WITHOUT_TRIPLE_TERMS and isinstance(term, ox.NamedNode):
        return triple_of_iri(term.value) or str(term)
    return f"<<( {term} )>>" if isinstance(term, ox.Triple) else str(term)


def _from_json(value: Mapping[str, Any]) -> str:
    text = value["value"]
    if value["type"] == "triple":
        return f"<<( {' '.join(_from_json(text[part]) for part in ('subject', 'predicate', 'object'))} )>>"
    if value["type"] == "uri":
        return f"<{text}>"
    if value["type"] == "bnode":
        return f"_:{text}"
    plain = str(ox.Literal(text))
    if "xml:lang" in value:
        return f"{plain}@{value['xml:lang']}"
    return str(ox.Literal(text, datatype=ox.NamedNode(value["datatype"]))) if "datatype" in value else plain


def run_engine(name: str, terms: Sequence[Term], uploads: Iterable[str], folder: Path) -> RoundTrip:
    """All formats at a cluster of this engine."""
    settings: dict[str, Any] = {"mixed_engines": True} if name == "mixed" else {}
    if name in STANDALONE_ENGINES:
        settings["non_deterministic_updates"] = "refuse"
    stores = ENGINES[name]
    with start_master_harness(folder, stores, tuple(stores), **settings) as at:
        trip = RoundTrip(at, name, terms)
        trip.run(uploads)
    return trip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.conformance.roundtrip.run", description=__doc__)
    parser.add_argument("--engines", default=",".join(ENGINES), help="of the clusters, with commas")
    options = parser.parse_args(arguments)
    report = BenchReport("round trip")
    terms = list(dict.fromkeys(odd_terms()))
    trips: dict[str, RoundTrip] = {}
    folder = Path(tempfile.mkdtemp(prefix="txlog-roundtrip-"))
    try:
        for name in options.engines.split(","):
            with report.part(name, OSError, TimeoutError):
                console.print(f"{name} ...")
                trips[name] = run_engine(name, terms, UPLOADS, folder / name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [
        (name, media, trip.kept[media], len(trip.named[media]), len(trip.refused[media]))
        for name, trip in trips.items()
        for media in trip.kept
    ]
    print_table(build_table("values", ("engine", "sent as", "answers kept", "values named", "values refused"), rows))
    reasons = {
        f"{n_triples(terms[number])[:70]!r}: {why[:120]}"
        for trip in trips.values()
        for found in trip.refused.values()
        for number, why in found.items()
    }
    for text in sorted(reasons)[:SHOWN_MAX]:
        print("refused:", text)
    changed = {what: ways for trip in trips.values() for what, ways in trip.changed.items()}
    for what, ways in list(changed.items())[:SHOWN_MAX]:
        print(f"changed: {what}: {len(ways)} ways, first {ways[0]}")
    report.at_least("values", len(terms), 200)
    report.equal("formats", len({media for trip in trips.values() for media in trip.kept}), len(UPLOADS))
    report.equal("engines", len(trips), len(options.engines.split(",")))
    report.figure("kept", sum(sum(trip.kept.values()) for trip in trips.values()))
    report.figure("named", len(set[int]().union(*(n for trip in trips.values() for n in trip.named.values()))))
    report.figure(
        "refused", len({number for trip in trips.values() for all_ in trip.refused.values() for number in all_})
    )
    report.equal("changed", len(changed), 0)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
