"""The forms in which RDF and tuple results go out, and who writes each: a worker, or this master from what it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO, Final, NamedTuple, TypeVar

import pyoxigraph as ox

from txlog.server.frontdoor.through import Convert
from txlog.sparql.binary import write_rdf, write_table
from txlog.sparql.blank import hexed, label_of
from txlog.sparql.rdfjson import write_rdf_json
from txlog.sparql.trix import write_trix

T = TypeVar("T")
Write = Callable[[Iterable[ox.Quad], IO[bytes]], None]


class Form(NamedTuple):
    """``quads``: it can say in which graph a statement stands. ``write``: how this master makes it."""

    media: str
    extension: str
    quads: bool
    write: Write


def _by_oxigraph(form: ox.RdfFormat, *, quads: bool) -> Write:
    def write(statements: Iterable[ox.Quad], out: IO[bytes]) -> None:
        ox.serialize(statements if quads else (one.triple for one in statements), out, format=form)

    return write


def _write_xml(statements: Iterable[ox.Quad], out: IO[bytes]) -> None:
    """A label is an XML name there, which begins with no digit."""
    named = (ox.Triple(_xml_name(one.subject), one.predicate, _xml_name(one.object)) for one in statements)
    ox.serialize(named, out, format=ox.RdfFormat.RDF_XML)


def _xml_name(term: T) -> T | ox.BlankNode:
    if isinstance(term, ox.BlankNode) and term.value[0].isdecimal():
        return ox.BlankNode(hexed(term.value))
    return term


def _form(media: str, extension: str, form: ox.RdfFormat, *, quads: bool = False) -> Form:
    return Form(media, extension, quads, _by_oxigraph(form, quads=quads))


N_QUADS: Final = "application/n-quads"
N_TRIPLES: Final = "application/n-triples"
BINARY: Final = "application/x-binary-rdf"
BINARY_TABLE: Final = "application/x-binary-rdf-results-table"
RESULTS_JSON: Final = "application/sparql-results+json"
BOOLEAN: Final = "text/boolean"

FORMS: Final = {
    form.media: form
    for form in (
        _form(N_QUADS, "nq", ox.RdfFormat.N_QUADS, quads=True),
        _form("application/trig", "trig", ox.RdfFormat.TRIG, quads=True),
        _form("text/turtle", "ttl", ox.RdfFormat.TURTLE),
        _form(N_TRIPLES, "nt", ox.RdfFormat.N_TRIPLES),
        Form("application/rdf+xml", "rdf", False, _write_xml),
        _form("text/n3", "n3", ox.RdfFormat.N3),
        _form("application/ld+json", "jsonld", ox.RdfFormat.JSON_LD, quads=True),
        Form("application/trix", "xml", True, write_trix),
        Form("application/rdf+json", "rj", True, write_rdf_json),
        Form(BINARY, "brf", True, write_rdf),
    )
}
ALIASES: Final = {
    "text/x-nquads": N_QUADS,
    "text/nquads": N_QUADS,
    "application/x-trig": "application/trig",
    "text/plain": N_TRIPLES,
    "application/x-turtle": "text/turtle",
    "text/rdf+n3": "text/n3",
    "application/xml": "application/rdf+xml",
    "text/xml": "application/rdf+xml",
    "application/json": "application/rdf+json",
}
LIKED: Final = ("text/turtle", *FORMS)
"""Of triples; the first is for a client that takes anything."""
TABLES: Final = (RESULTS_JSON, "application/sparql-results+xml", "text/csv", "text/tab-separated-values")
TABLE_ALIASES: Final = {
    "application/json": RESULTS_JSON,
    "application/xml": "application/sparql-results+xml",
    "text/xml": "application/sparql-results+xml",
}


def converter(form: Form, graph: str = "") -> Convert:
    """From N-Triples or N-Quads to this form. ``graph`` (``<iri>``): where the statements of triples stand."""
    label = label_of(graph[1:-1])
    name = None if not graph else ox.NamedNode(graph[1:-1]) if label is None else ox.BlankNode(label)

    def placed(quads: Iterable[ox.Quad]) -> Iterator[ox.Quad]:
        for quad in quads:
            yield ox.Quad(quad.subject, quad.predicate, quad.object, name)

    def convert(source: IO[bytes], sink: IO[bytes]) -> None:
        quads: Iterable[ox.Quad] = ox.parse(source, ox.RdfFormat.N_QUADS)
        form.write(quads if name is None else placed(quads), sink)

    return convert


def to_binary_table(source: IO[bytes], sink: IO[bytes]) -> None:
    """From SPARQL results in JSON."""
    results = ox.parse_query_results(source, ox.QueryResultsFormat.JSON)
    assert isinstance(results, ox.QuerySolutions), "a worker answered SELECT with something else"
    names = [variable.value for variable in results.variables]
    write_table(names, ([row[name] for name in names] for row in results), sink)
