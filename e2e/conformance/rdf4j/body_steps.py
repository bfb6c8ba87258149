"""Steps of the request script about bodies: compressed, packed, and what XML and the null context mean."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from typing import Final, NamedTuple
from urllib.parse import quote

LINE: Final = b"<urn:body> <urn:p> <urn:%s> .\n"


class BodyStep(NamedTuple):
    """As :class:`~e2e.conformance.rdf4j.request_script.RequestStep`, with media type and coding of the body."""

    name: str
    method: str
    path: str
    media: str = ""
    body: bytes = b""
    coding: str = ""


def _archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, body in files.items():
            made.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED)
    return out.getvalue()


_TURTLE: Final = "text/turtle"
_QUADS: Final = "application/n-quads"
_RDF_XML: Final = "application/rdf+xml"
_NAMES: Final = b'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="urn:e:"'
_NO_LANGUAGE: Final = (
    b'<rdf:RDF %s xml:lang="en"><rdf:Description rdf:about="urn:a"><e:p xml:lang="">none</e:p><e:q>en</e:q>'
    b"</rdf:Description></rdf:RDF>" % _NAMES
)
_RELATIVE_BASE: Final = (
    b'<rdf:RDF %s xml:base=""><rdf:Description rdf:about="foo" xml:base="sub/"><e:p rdf:resource=""/>'
    b"</rdf:Description></rdf:RDF>" % _NAMES
)
_LATIN: Final = (
    f'<?xml version="1.0" encoding="ISO-8859-1"?><rdf:RDF {_NAMES.decode()}><rdf:Description rdf:about="urn:a">'
    "<e:latin>\u00e9\r\n&#13;</e:latin></rdf:Description></rdf:RDF>"
).encode("latin-1")
_LATIN_NAME: Final = quote("<urn:e:latin>")
_SELECT: Final = quote("SELECT ?o { ?s <urn:e:latin> ?o }")
_RESULTS: Final = quote("application/sparql-results+xml")
_XML: Final = quote("application/rdf+xml")
_BASE: Final = quote("<http://doc.example/d/f>")
_GRAPH: Final = "@/rdf-graphs/service?graph=urn:z"
_ALL: Final = b"<http://www.openrdf.org/schema/sesame#wildcard> "
_NIL: Final = b"<http://rdf4j.org/schema/rdf4j#nil> ."

BODY_STEPS: Final = (
    BodyStep("a body in gzip", "POST", "@/statements", _TURTLE, gzip.compress(LINE % b"1", mtime=0), "gzip"),
    BodyStep("a body in deflate", "POST", "@/statements", _TURTLE, zlib.compress(LINE % b"2"), "deflate"),
    BodyStep("gzip by its bytes", "POST", "@/statements", _TURTLE, gzip.compress(LINE % b"3", mtime=0)),
    BodyStep(
        "an archive", "POST", "@/statements", _TURTLE,
        _archive({"folder/a.nt": LINE % b"4", "b.trig": b"<urn:g> { " + LINE % b"5" + b"}", "c": LINE % b"6"}),
    ),
    BodyStep("after packed bodies", "GET", "@/statements"),
    BodyStep("an archive in a graph", "PUT", _GRAPH, _TURTLE, _archive({"a.nt": LINE % b"7"})),
    BodyStep("the graph of an archive", "GET", _GRAPH),
    BodyStep("OPTIONS of statements", "OPTIONS", "@/statements"),
    BodyStep("OPTIONS of the protocol", "OPTIONS", "/protocol"),
    BodyStep("HEAD of the size", "HEAD", "@/size"),
    BodyStep("a query plan", "GET", "@?query=ASK%20%7B%7D&explain=Optimized&Accept=application/sparql-results%2Bjson"),
    BodyStep("RDF/XML without language", "PUT", "@/statements", _RDF_XML, _NO_LANGUAGE),
    BodyStep("RDF/XML with relative bases", "POST", f"@/statements?baseURI={_BASE}", _RDF_XML, _RELATIVE_BASE),
    BodyStep("RDF/XML in Latin-1", "POST", "@/statements", _RDF_XML, _LATIN),
    BodyStep("after RDF/XML", "GET", "@/statements"),
    BodyStep("a carriage return in XML", "GET", f"@?query={_SELECT}&Accept={_RESULTS}"),
    BodyStep("a carriage return in RDF/XML", "GET", f"@/statements?pred={_LATIN_NAME}&Accept={_XML}"),
    BodyStep("two contexts", "PUT", "@/statements", _QUADS, LINE % b"8" + b"<urn:body> <urn:p> <urn:9> <urn:g> .\n"),
    BodyStep("begin with the null context", "POST", "@/transactions"),
    BodyStep("remove from the null context", "PUT", "@tx?action=DELETE", _QUADS, _ALL * 3 + _NIL),
    BodyStep("add to the null context", "PUT", "@tx?action=ADD", _QUADS, b"<urn:body> <urn:p> <urn:10> " + _NIL),
    BodyStep("COMMIT of the null context", "PUT", "@tx?action=COMMIT"),
    BodyStep("after the null context", "GET", "@/statements"),
)  # fmt: skip
