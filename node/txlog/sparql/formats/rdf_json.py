"""RDF/JSON (``application/rdf+json``): triples as subject → predicate → objects, with RDF4J's ``graphs``.

Source: W3C note "RDF 1.1 JSON Alternate Serialization"; ``graphs`` beside a value is RDF4J's form for contexts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Final

import msgspec
import pyoxigraph as ox

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.sparql.language_tags import tagged_literal, written_tag
from txlog.sparql.skolem_iris import make_blank_node

_STRING: Final = "http://www.w3.org/2001/XMLSchema#string"


class _RdfJsonValue(msgspec.Struct, omit_defaults=True):
    value: str
    type: str
    lang: str | None = None
    datatype: str | None = None
    graphs: list[str | None] | None = None


_decoder = msgspec.json.Decoder(dict[str, dict[str, list[_RdfJsonValue]]])
_encode = msgspec.json.Encoder().encode


def write_rdf_json(quads: Iterable[ox.Quad], out: IO[bytes]) -> None:
    """Write all quads. They are in memory until the end, since a subject may occur only once in the document."""
    by_subject: dict[str, dict[str, dict[object, _RdfJsonValue]]] = {}
    for quad in quads:
        values = by_subject.setdefault(_node_name(quad.subject), {}).setdefault(_node_name(quad.predicate), {})
        value = values.setdefault(quad.object, _to_value(quad.object))
        assert value.graphs is not None
        value.graphs.append(None if isinstance(quad.graph_name, ox.DefaultGraph) else _node_name(quad.graph_name))
    for values in (values for one in by_subject.values() for values in one.values()):
        for value in values.values():
            value.graphs = None if value.graphs == [None] else value.graphs
    plain = {s: {p: list(values.values()) for p, values in one.items()} for s, one in by_subject.items()}
    out.write(_encode(plain) + b"\n")


def _node_name(term: object) -> str:
    if isinstance(term, ox.NamedNode):
        return term.value
    if isinstance(term, ox.BlankNode):
        return str(term)
    raise ValueError(f"{term} has no place in RDF/JSON")


def _to_value(term: object) -> _RdfJsonValue:
    if not isinstance(term, ox.Literal):
        return _RdfJsonValue(_node_name(term), "bnode" if isinstance(term, ox.BlankNode) else "uri", graphs=[])
    if term.language:
        return _RdfJsonValue(term.value, "literal", lang=written_tag(term.language), graphs=[])
    datatype = term.datatype.value
    return _RdfJsonValue(term.value, "literal", datatype=None if datatype == _STRING else datatype, graphs=[])


def read_rdf_json(data: bytes) -> list[ox.Quad]:
    """The statements of a document. Raises SyntaxError with the reason for a malformed one."""
    quads: list[ox.Quad] = []
    try:
        for subject, predicates in _decoder.decode(data).items():
            for predicate, values in predicates.items():
                for one in values:
                    for graph in one.graphs or [None]:
                        name = None if graph is None else _to_node(graph)
                        quads.append(ox.Quad(_to_node(subject), ox.NamedNode(predicate), _to_term(one), name))
    except DECODE_ERRORS as wrong:
        raise SyntaxError(str(wrong)) from None
    return quads


def _to_node(text: str) -> ox.NamedNode | ox.BlankNode:
    return make_blank_node(text[2:]) if text.startswith("_:") else ox.NamedNode(text)


def _to_term(one: _RdfJsonValue) -> ox.NamedNode | ox.BlankNode | ox.Literal:
    if one.type == "literal":
        if one.lang:
            return tagged_literal(one.value, one.lang)
        return ox.Literal(one.value, datatype=ox.NamedNode(one.datatype)) if one.datatype else ox.Literal(one.value)
    if one.type not in ("uri", "bnode"):
        raise ValueError(f"the type {one.type[:40]!r}; there are uri, literal and bnode")
    return _to_node(one.value)
