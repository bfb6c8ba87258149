"""The formats of RDF and tuple results, and their writer: a worker, or this master from the worker's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Final, NamedTuple, TypeVar, cast

import pyoxigraph as ox

from txlog.http.router import Request
from txlog.model.errors import NotAcceptable
from txlog.server.frontdoor.stream_converter import StreamConverter
from txlog.server.frontdoor.tabular_results import accept_header, negotiate_media_type
from txlog.server.frontdoor.xml_text import CarriageReturnSink
from txlog.sparql.formats.rdf4j_binary import write_rdf, write_table
from txlog.sparql.formats.rdf_json import write_rdf_json
from txlog.sparql.formats.trix import write_trix
from txlog.sparql.formats.turtle_star import write_trig_star, write_turtle_star
from txlog.sparql.skolem_iris import encode_label, iri_to_label
from txlog.sparql.triple_terms import with_triple_iris

T = TypeVar("T")
QuadWriter = Callable[[Iterable[ox.Quad], IO[bytes]], None]


class ResultFormat(NamedTuple):
    """``has_graphs``: the format can express the graph of a statement. ``write``: this master's writer for it."""

    media_type: str
    extension: str
    has_graphs: bool
    write: QuadWriter


def _oxigraph_writer(form: ox.RdfFormat, *, quads: bool) -> QuadWriter:
    def write(statements: Iterable[ox.Quad], out: IO[bytes]) -> None:
        ox.serialize(statements if quads else (one.triple for one in statements), out, format=form)

    return write


def _write_xml(statements: Iterable[ox.Quad], out: IO[bytes]) -> None:
    """A label is an XML name in this format, so it must not begin with a digit."""
    named = (ox.Triple(_xml_name(one.subject), one.predicate, _xml_name(one.object)) for one in statements)
    ox.serialize(named, cast("IO[bytes]", CarriageReturnSink(out)), format=ox.RdfFormat.RDF_XML)


def _xml_name(term: T) -> T | ox.BlankNode:
    if isinstance(term, ox.BlankNode) and term.value[0].isdecimal():
        return ox.BlankNode(encode_label(term.value))
    return term


def _oxigraph_format(media: str, extension: str, form: ox.RdfFormat, *, quads: bool = False) -> ResultFormat:
    return ResultFormat(media, extension, quads, _oxigraph_writer(form, quads=quads))


def _without_triple_terms(form: ResultFormat) -> ResultFormat:
    """A format in which RDF4J's IRI of a triple stands for a triple term."""
    return form._replace(write=lambda quads, out: form.write(with_triple_iris(quads), out))


N_QUADS: Final = "application/n-quads"
N_TRIPLES: Final = "application/n-triples"
BINARY: Final = "application/x-binary-rdf"
BINARY_TABLE: Final = "application/x-binary-rdf-results-table"
RESULTS_JSON: Final = "application/sparql-results+json"
BOOLEAN: Final = "text/boolean"

RDF_FORMATS: Final = {
    form.media_type: form
    for form in (
        _oxigraph_format(N_QUADS, "nq", ox.RdfFormat.N_QUADS, quads=True),
        _oxigraph_format("application/trig", "trig", ox.RdfFormat.TRIG, quads=True),
        _oxigraph_format("text/turtle", "ttl", ox.RdfFormat.TURTLE),
        _oxigraph_format(N_TRIPLES, "nt", ox.RdfFormat.N_TRIPLES),
        ResultFormat("application/rdf+xml", "rdf", False, _write_xml),
        _without_triple_terms(_oxigraph_format("text/n3", "n3", ox.RdfFormat.N3)),
        _without_triple_terms(_oxigraph_format("application/ld+json", "jsonld", ox.RdfFormat.JSON_LD, quads=True)),
        _without_triple_terms(ResultFormat("application/trix", "xml", True, write_trix)),
        _without_triple_terms(ResultFormat("application/rdf+json", "rj", True, write_rdf_json)),
        ResultFormat(BINARY, "brf", True, write_rdf),
        ResultFormat("text/x-turtlestar", "ttls", False, write_turtle_star),
        ResultFormat("application/x-trigstar", "trigs", True, write_trig_star),
    )
}
RDF_ALIASES: Final = {
    "text/x-nquads": N_QUADS,
    "text/nquads": N_QUADS,
    "application/x-trig": "application/trig",
    "text/plain": N_TRIPLES,
    "application/x-turtle": "text/turtle",
    "application/x-turtlestar": "text/x-turtlestar",
    "text/rdf+n3": "text/n3",
    "application/xml": "application/rdf+xml",
    "text/xml": "application/rdf+xml",
    "application/json": "application/rdf+json",
}
PREFERRED_FORMATS: Final = ("text/turtle", *RDF_FORMATS)
"""Formats of triples; the first is for a client that accepts anything."""
TABULAR_MEDIA_TYPES: Final = (RESULTS_JSON, "application/sparql-results+xml", "text/csv", "text/tab-separated-values")
TABULAR_ALIASES: Final = {
    "application/json": RESULTS_JSON,
    "application/xml": "application/sparql-results+xml",
    "text/xml": "application/sparql-results+xml",
}


def standard_accept(accept: str) -> str:
    """An Accept header with the standard formats of results in place of RDF4J's for RDF-star: these hold triple terms,
    and RDF4J's readers read them there."""
    return accept.replace("x-sparqlstar-results+json", "sparql-results+json").replace(
        "x-sparqlstar-results+xml", "sparql-results+xml"
    )


def converter(form: ResultFormat, graph: str = "") -> StreamConverter:
    """A converter from N-Triples or N-Quads to this format. ``graph`` (``<iri>``): the graph of the statements of
    N-Triples."""
    label = iri_to_label(graph[1:-1])
    name = None if not graph else ox.NamedNode(graph[1:-1]) if label is None else ox.BlankNode(label)

    def placed(quads: Iterable[ox.Quad]) -> Iterator[ox.Quad]:
        for quad in quads:
            yield ox.Quad(quad.subject, quad.predicate, quad.object, name)

    def convert(source: IO[bytes], sink: IO[bytes]) -> None:
        quads: Iterable[ox.Quad] = ox.parse(source, ox.RdfFormat.N_QUADS)
        form.write(quads if name is None else placed(quads), sink)

    return convert


def convert_to_binary_table(source: IO[bytes], sink: IO[bytes]) -> None:
    """Converts SPARQL results in JSON to RDF4J's binary format."""
    results = ox.parse_query_results(source, ox.QueryResultsFormat.JSON)
    assert isinstance(results, ox.QuerySolutions), "a worker answered SELECT with something else"
    names = [variable.value for variable in results.variables]
    write_table(names, ([row[name] for name in names] for row in results), sink)


def negotiate_format(request: Request, offered: Sequence[str]) -> ResultFormat:
    """The format that the client prefers; :class:`NotAcceptable` lists the available ones."""
    return find_format(accept_header(request), offered)


def find_format(accept: str, offered: Sequence[str]) -> ResultFormat:
    """The same for what a client accepts."""
    media = negotiate_media_type(accept, offered, RDF_ALIASES)
    if media is None:
        raise NotAcceptable(f"Accept: {accept[:100]}; there are {', '.join(RDF_FORMATS)}")
    return RDF_FORMATS[media]
