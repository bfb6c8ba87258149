"""Small SPARQL results that the master writes itself: repositories, contexts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import pyoxigraph

from txlog.http.router import Request, Response, bytes_response
from txlog.model.errors import NotAcceptable
from txlog.sparql.formats.rdf4j_binary import write_table

_JSON = "application/sparql-results+json"
_XML = "application/sparql-results+xml"
_CSV = "text/csv"
_TSV = "text/tab-separated-values"
_BINARY = "application/x-binary-rdf-results-table"
"""RDF4J's own format, which its Java client prefers."""

CACHED_ACCEPTS_MAX: Final = 256
"""Choices of a format that are kept: a program always accepts the same ones, and names a dozen."""
CACHED_ACCEPT_CHARS: Final = 1024

Cell = tuple[str, str]
"""``("uri" | "bnode" | "literal" | "boolean", text)``; the text of a blank node is its label."""


def accept_header(request: Request) -> str:
    """What a client accepts: the parameter ``Accept`` overrides the header, as in RDF4J."""
    given = request.query.get("Accept") if "Accept=" in request.raw_path else None
    accept = given or ", ".join(request.headers.getall("Accept", []))
    return accept or "*/*"


def negotiate_media_type(accept: str, offered: Sequence[str], aliases: Mapping[str, str]) -> str | None:
    """The media type that a client prefers among those offered; None if it accepts none of them.

    Of equal weights the first that it names, as RDF4J's clients expect.
    """
    if len(accept) > CACHED_ACCEPT_CHARS:
        return _negotiate(accept, tuple(offered), aliases)
    return _negotiate_cached(accept, tuple(offered), tuple(aliases.items()))


@lru_cache(CACHED_ACCEPTS_MAX)
def _negotiate_cached(accept: str, offered: tuple[str, ...], aliases: tuple[tuple[str, str], ...]) -> str | None:
    return _negotiate(accept, offered, dict(aliases))


def _negotiate(accept: str, offered: tuple[str, ...], aliases: Mapping[str, str]) -> str | None:
    if not accept.strip():
        return offered[0]
    best: tuple[float, str] | None = None
    for part in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        name = aliases.get(name, name)
        if name == "*/*":
            name = offered[0]
        elif name.endswith("/*"):
            name = next((o for o in offered if o.startswith(name[:-1])), name)
        if name in offered and weight > 0 and (best is None or weight > best[0]):
            best = (weight, name)
    return best[1] if best is not None else None


_ALIASES = {"application/json": _JSON, "application/xml": _XML, "text/xml": _XML}


def table_response(accept: str, names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Response:
    """A tuple result in the format that the client prefers. :class:`NotAcceptable` lists the available formats."""
    form = negotiate_media_type(accept, tuple(_ENCODERS), _ALIASES)
    if form is None:
        raise NotAcceptable(f"Accept: {accept[:100]}; there are {', '.join(_ENCODERS)}")
    return bytes_response(_ENCODERS[form](names, rows), form)


_BOOLEAN = "http://www.w3.org/2001/XMLSchema#boolean"


def _encode_json(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> bytes:
    bindings = [
        {
            name: {"type": "literal", "datatype": _BOOLEAN, "value": text}
            if kind == "boolean"
            else {"type": kind, "value": text}
            for name, (kind, text) in zip(names, row, strict=True)
        }
        for row in rows
    ]
    return json.dumps({"head": {"vars": list(names)}, "results": {"bindings": bindings}}).encode()


def _encode_xml(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> bytes:
    out = ['<?xml version="1.0" encoding="UTF-8"?>\n<sparql xmlns="http://www.w3.org/2005/sparql-results#"><head>']
    out += [f"<variable name={quoteattr(name)}/>" for name in names]
    out.append("</head><results>")
    for row in rows:
        out.append("<result>")
        for name, (kind, text) in zip(names, row, strict=True):
            if kind in ("uri", "bnode"):
                value = f"<{kind}>{escape(text)}</{kind}>"
            else:
                typed = f" datatype={quoteattr(_BOOLEAN)}" if kind == "boolean" else ""
                value = f"<literal{typed}>{escape(text)}</literal>"
            out.append(f"<binding name={quoteattr(name)}>{value}</binding>")
        out.append("</result>")
    out.append("</results></sparql>\n")
    return "".join(out).encode()


def _encode_csv(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(names)
    writer.writerows([f"_:{text}" if kind == "bnode" else text for kind, text in row] for row in rows)
    return out.getvalue().encode()


def _encode_tsv(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> bytes:
    lines = ["\t".join(f"?{name}" for name in names)]
    lines += ["\t".join(_tsv_cell(kind, text) for kind, text in row) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _tsv_cell(kind: str, text: str) -> str:
    if kind in ("uri", "bnode"):
        return f"<{text}>" if kind == "uri" else f"_:{text}"
    return text if kind == "boolean" else json.dumps(text)


def _encode_binary(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> bytes:
    out = io.BytesIO()
    write_table(names, ([_to_oxigraph_term(kind, text) for kind, text in row] for row in rows), out)
    return out.getvalue()


def _to_oxigraph_term(kind: str, text: str) -> pyoxigraph.NamedNode | pyoxigraph.BlankNode | pyoxigraph.Literal:
    if kind in ("uri", "bnode"):
        return pyoxigraph.NamedNode(text) if kind == "uri" else pyoxigraph.BlankNode(text)
    return pyoxigraph.Literal(text, datatype=pyoxigraph.NamedNode(_BOOLEAN) if kind == "boolean" else None)


_ENCODERS: Final = {
    _JSON: _encode_json,
    _XML: _encode_xml,
    _CSV: _encode_csv,
    _TSV: _encode_tsv,
    _BINARY: _encode_binary,
}
"""By media type, the one that a client without a wish gets first."""
