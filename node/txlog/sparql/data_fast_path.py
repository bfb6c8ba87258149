"""Fast path for the commonest updates: one INSERT DATA or DELETE DATA of plain triples, without a parser."""

from __future__ import annotations

import re
from typing import Final

from txlog.sparql.rdf_upload import PLAIN_IRI, PLAIN_OBJECT, PLAIN_STRING, build_quads_body
from txlog.sparql.terms import DEFAULT_PREFIXES, SYSTEM_GRAPHS
from txlog.sparql.transaction_body import TransactionBody

# Its terms are valid N-Quads without a change.
_S = rb"[ \t\r\n]*+"
_PLAIN_TRIPLE = rb"(%s)%s(%s)%s(%s)%s" % (PLAIN_IRI, _S, PLAIN_IRI, _S, PLAIN_OBJECT, _S)
_PLAIN_TRIPLES = re.compile(_PLAIN_TRIPLE)
_PLAIN_LAST = rb"%s%s%s%s%s%s" % (PLAIN_IRI, _S, PLAIN_IRI, _S, PLAIN_OBJECT, _S)
_PLAIN = re.compile(
    rb"%s(?i:(INSERT)|DELETE)[ \t\r\n]++(?i:DATA)%s\{%s(?:(?i:GRAPH)%s(%s)%s\{%s|)?+"
    % (_S, _S, _S, _S, PLAIN_IRI, _S, _S)
    + rb"((?:%s\.%s|)*+(?:%s|)?+)(?(2)\}%s)\}%s;?%s" % (_PLAIN_LAST, _S, _PLAIN_LAST, _S, _S, _S)
)
# The same with the commonest abbreviations: prefixed names without special characters, integers, and `a`. Full terms
# are built from the groups of each matched triple; a body with anything else is not plain.
_NAME = rb"([A-Za-z][A-Za-z0-9]*+|):([A-Za-z0-9_][A-Za-z0-9_\-]*+)"
_NAME_END = rb"(?=[ \t\r\n}])"
_SHORT_PREFIX = re.compile(rb"%s(?i:PREFIX)[ \t\r\n]++([A-Za-z][A-Za-z0-9]*+|):%s(%s)" % (_S, _S, PLAIN_IRI))
_SHORT_HEAD = re.compile(
    rb"%s(?i:(INSERT)|DELETE)[ \t\r\n]++(?i:DATA)%s\{%s((?i:GRAPH)%s(?:(%s)|%s%s)%s\{%s|)"
    % (_S, _S, _S, _S, PLAIN_IRI, _NAME, _NAME_END, _S, _S)
)
_SHORT_TRIPLE = re.compile(
    rb"(?:(%s)|%s%s)%s(?:(%s)|%s%s|a(?=[ \t\r\n]))%s(?:%s%s|([+\-]?[0-9]++)%s|(%s)\^\^%s%s|(%s))%s(?:\.%s|(?=\}))"
    % (
        *(PLAIN_IRI, _NAME, _NAME_END, _S),
        *(PLAIN_IRI, _NAME, _NAME_END, _S),
        *(_NAME, _NAME_END, _NAME_END, PLAIN_STRING, _NAME, _NAME_END, PLAIN_OBJECT),
        *(_S, _S),
    )
)
_SHORT_END = re.compile(rb"\}%s(\}%s|);?%s\Z" % (_S, _S, _S))
_SHORT_BYTES_MAX: Final = 64 << 10
_SHORT_IRI_MAX: Final = 200
"""Longest IRI of a prefix here: with longer ones the expanded names could become very large."""

_SYSTEM_NAME: Final = SYSTEM_GRAPHS.encode()
_DEFAULT_PREFIXES: Final = {prefix.encode(): b"<" + iri.encode() for prefix, iri in DEFAULT_PREFIXES.items()}
_RDF_TYPE: Final = f"<{DEFAULT_PREFIXES['rdf']}type>".encode()
_UNTYPED: Final = frozenset(
    f"<{DEFAULT_PREFIXES[prefix]}{name}>".encode()
    for prefix, name in (("xsd", "string"), ("rdf", "langString"), ("rdf", "dirLangString"))
)
"""Datatypes whose literals the parser rewrites or refuses."""


def parse_plain_update(text: str) -> TransactionBody | None:
    """The transaction of a plain update; None for a text that has to be parsed, valid or not. ``text`` must be
    encodable as UTF-8."""
    body = text.encode()
    found = _PLAIN.fullmatch(body)
    if found is None:
        return _parse_abbreviated(body)
    if _SYSTEM_NAME in body:
        return None
    end = b" %s ." % found[2] if found[2] else b" ."
    lines = [b"%s %s %s%s" % (*terms, end) for terms in _PLAIN_TRIPLES.findall(found[3])]
    return build_quads_body((), lines) if found[1] else build_quads_body(lines, ())


def _parse_abbreviated(body: bytes) -> TransactionBody | None:
    """The transaction of one INSERT DATA or DELETE DATA of plain triples with the commonest abbreviations."""
    if len(body) > _SHORT_BYTES_MAX:
        return None
    stems, at = dict(_DEFAULT_PREFIXES), 0
    while (found := _SHORT_PREFIX.match(body, at)) is not None:
        stem = found[2][:-1]
        # The prefix with a local name must be an IRI that the parser would not change: the name must not extend a host.
        joins = stem.endswith((b"/", b"#")) or (stem.endswith(b":") and b"//" not in stem)
        if len(stem) > _SHORT_IRI_MAX or b"/." in stem or not joins:
            return None
        stems[found[1]] = stem
        at = found.end()
    head = _SHORT_HEAD.match(body, at)
    if head is None:
        return None
    adds, within, graph, graph_prefix, graph_local = head.groups()
    at, end = head.end(), b" ."
    lines: list[bytes] = []
    try:
        if within:
            end = b" %s ." % (graph if graph is not None else b"%s%s>" % (stems[graph_prefix], graph_local))
        while (found := _SHORT_TRIPLE.match(body, at)) is not None:
            s, s_prefix, s_local, p, p_prefix, p_local, o_prefix, o_local, number, text, t_prefix, t_local, o = (
                found.groups()
            )
            if s is None:
                s = b"%s%s>" % (stems[s_prefix], s_local)
            if p is None:
                p = _RDF_TYPE if p_local is None else b"%s%s>" % (stems[p_prefix], p_local)
            if o is None:
                if o_local is not None:
                    o = b"%s%s>" % (stems[o_prefix], o_local)
                elif number is not None:
                    o = b'"%s"^^<http://www.w3.org/2001/XMLSchema#integer>' % number
                else:
                    kind = b"%s%s>" % (stems[t_prefix], t_local)
                    if kind in _UNTYPED:
                        return None
                    o = b"%s^^%s" % (text, kind)
            lines.append(b"%s %s %s%s" % (s, p, o, end))
            at = found.end()
    except KeyError:
        return None
    tail = _SHORT_END.match(body, at)
    if tail is None or bool(tail[1]) != bool(within):
        return None
    prepared = build_quads_body((), lines) if adds is not None else build_quads_body(lines, ())
    return None if _SYSTEM_NAME in prepared.payload else prepared
