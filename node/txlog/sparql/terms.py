"""IRIs and strings of SPARQL texts: escapes, resolution, and the names that only TxLog may use."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import pyoxigraph

from txlog.model.errors import BadInput, SystemGraphNamed
from txlog.model.graph_set import SYSTEM_GRAPH_PREFIX
from txlog.sparql.expansion_limit import CACHED_BODIES_MAX
from txlog.sparql.known_prefixes import KNOWN_PREFIXES

SYSTEM_GRAPHS: Final = SYSTEM_GRAPH_PREFIX
"""The prefix of system graphs, such as the marker of a worker; clients may neither name nor see one."""

DEFAULT_PREFIXES: Final = {
    **KNOWN_PREFIXES,
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "sesame": "http://www.openrdf.org/schema/sesame#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "fn": "http://www.w3.org/2005/xpath-functions#",
    "rdf4j": "http://rdf4j.org/schema/rdf4j#",
}
"""Prefixes that RDF4J accepts without PREFIX: its own and the initial context of RDFa 1.1; other stores do not."""

ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*+:")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ECHAR = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
NOT_IN_IRI: Final = re.compile(r'[<>"{}|^`\\\x00-\x20]')
_LOCAL_ESCAPE = re.compile(r"\\(.)")
_QUOTE = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


def _unescape(found: re.Match[str]) -> str:
    if found[3] is not None:
        if found[3] not in _ECHAR:
            raise ValueError(f"\\{found[3]} is no escape of SPARQL")
        return _ECHAR[found[3]]
    code = int(found[1] or found[2], 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"{found[0]} is no character")
    return chr(code)


def iri_text(token: str) -> str:
    """The IRI between the brackets of ``<...>``, escapes decoded. ValueError for a character that no IRI may hold."""
    inside = token[1:-1]
    if "\\" in inside:
        inside = _ESCAPE.sub(_unescape, inside)
        bad = NOT_IN_IRI.search(inside)
        if bad is not None:
            raise ValueError(f"U+{ord(bad[0]):04X} is not allowed in an IRI")
    return inside


def string_text(token: str) -> str:
    """The value of a string token, without quotes and escapes. ValueError for a wrong escape."""
    inside = token[3:-3] if token[:3] in ('"""', "'''") else token[1:-1]
    return _ESCAPE.sub(_unescape, inside) if "\\" in inside else inside


def string_token(value: str) -> str:
    """A string as a SPARQL token, in double quotes, without code point escapes. Some stores decode those before they
    parse, so that ``\\u0022`` would end the string in these stores and not in others."""
    return f'"{value.translate(_QUOTE)}"'


def local_text(local: str) -> str:
    """The local part of a prefixed name without its backslashes."""
    return _LOCAL_ESCAPE.sub(r"\1", local) if "\\" in local else local


def resolve(reference: str, base: str) -> str:
    """RFC 3986 resolution, by the same code as the embedded worker's. ValueError when it gives no IRI."""
    return (_resolve if len(reference) + len(base) <= CACHED_BODIES_MAX else _resolve.__wrapped__)(reference, base)


@lru_cache(maxsize=1024)
def _resolve(reference: str, base: str) -> str:
    try:
        quad = next(iter(pyoxigraph.parse(f"<{reference}> <x:p> <x:o> .", pyoxigraph.RdfFormat.TURTLE, base_iri=base)))
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"<{reference}> with the base <{base}> is no IRI") from error
    assert isinstance(quad, pyoxigraph.Quad), quad
    assert isinstance(quad.subject, pyoxigraph.NamedNode), quad
    return quad.subject.value


def base_iri(base: str | None) -> str | None:
    """A client's ``baseURI``: bare, or as an N-Triples term (so the Java client sends it). BadInput when it is no
    absolute IRI, SystemGraphNamed when it is a system name."""
    if not base:
        return None
    bare = base[1:-1] if base[0] == "<" and base[-1] == ">" else base
    refuse_system(bare)
    if not (_is_absolute_iri if len(bare) <= CACHED_BODIES_MAX else _is_absolute_iri.__wrapped__)(bare):
        raise BadInput(f"baseURI {bare[:200]!r} is no absolute IRI; send one such as http://example.org/")
    return bare


@lru_cache(maxsize=256)
def _is_absolute_iri(text: str) -> bool:
    try:
        pyoxigraph.NamedNode(text)
    except ValueError:
        return False
    return True


def refuse_system(iri: str) -> None:
    """SystemGraphNamed when the name is TxLog's own."""
    if iri.startswith(SYSTEM_GRAPHS):
        raise SystemGraphNamed(
            f"<{iri[:200]}>: names that begin with {SYSTEM_GRAPHS} belong to TxLog; choose another name"
        )
