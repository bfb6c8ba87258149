"""Inputs that are well formed but for one thing or two, so that what lies behind a parser is reached."""

from __future__ import annotations

import base64
import io
import random
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import pyoxigraph as ox

from txlog.sparql.formats.rdf4j_binary import write_rdf

_IRIS: Final = ("urn:s", "urn:p", "urn:é", "http://x/y#z", "x:", "urn:txlog:system", "urn:txlog:bnode:7:1")
_TEXTS: Final = ("", "x", "é\U0001f600", "a\tb\n", "01", "1.50", '"', "x" * 300)
_TYPES: Final = ("http://www.w3.org/2001/XMLSchema#integer", "http://www.w3.org/2001/XMLSchema#string", "urn:t")
_UPDATES: Final = (
    "INSERT { ?x ?y ?z } WHERE { ?x ?y ?z }",
    "INSERT DATA { <urn:s> <urn:p> _:b }",
    "DELETE WHERE { ?x <urn:p> ?z }",
    "CLEAR ALL",
    "",
)


def _literal(chance: random.Random) -> ox.Literal:
    text = chance.choice(_TEXTS)
    kind = chance.randrange(3)
    if kind == 0:
        return ox.Literal(text)
    return (
        ox.Literal(text, language="en") if kind == 1 else ox.Literal(text, datatype=ox.NamedNode(chance.choice(_TYPES)))
    )


def _quad(chance: random.Random) -> ox.Quad:
    node = ox.NamedNode(chance.choice(_IRIS)) if chance.random() < 0.8 else ox.BlankNode("b")
    value = chance.choice((_literal(chance), ox.NamedNode(chance.choice(_IRIS)), ox.BlankNode("c")))
    graph = ox.NamedNode("urn:g") if chance.random() < 0.4 else ox.DefaultGraph()
    return ox.Quad(node, ox.NamedNode(chance.choice(_IRIS)), value, graph)


def binary_rdf(chance: random.Random) -> bytes:
    """Records of ``write_rdf``: some left out, said twice, or with another kind of record or value."""
    records: list[bytes] = []
    for _ in range(chance.randrange(1, 8)):
        out = io.BytesIO()
        write_rdf([_quad(chance)], out)
        records.append(out.getvalue()[8:-1])
    for _ in range(chance.choice((0, 1, 1, 2))):
        at = chance.randrange(len(records))
        match chance.randrange(5):
            case 0:
                records[at] = b"\x02" + _wide(chance.choice(_TEXTS)) if chance.random() < 0.5 else b""
            case 1:
                records[at] = b"\x00" + _wide("a") + _wide(chance.choice(_IRIS))
            case 2:
                number = chance.choice((0, 1, 7, -1, (1 << 31) - 1)).to_bytes(4, "big", signed=True)
                records.insert(at, b"\x03" + number + b"\x01" + _wide(chance.choice(_IRIS)))
                records.append(b"\x01" + (b"\x06" + number) * 3 + b"\x00")
            case 3:
                records.insert(at, records[at])
            case _:
                changed = bytearray(records[at] or b"\x01")
                changed[chance.randrange(len(changed))] = chance.choice((0, 1, 2, 3, 4, 5, 6, 7, 127, 255))
                records[at] = bytes(changed)
    return b"BRDF\0\0\0\x01" + b"".join(records) + (b"\x7f" if chance.random() < 0.95 else b"")


def _wide(text: str) -> bytes:
    data = text.encode("utf-16-be")
    return (len(data) // 2).to_bytes(4, "big") + data


def _term(chance: random.Random) -> str:
    kind = chance.choice(("uri", "uri", "uri", "literal", "literal", "bnode", "null"))
    text = {"uri": chance.choice(_IRIS), "bnode": "b1", "null": ""}.get(kind, chance.choice(_TEXTS))
    attributes = ""
    if chance.random() < 0.1:
        text, attributes = base64.b64encode(text.encode()).decode(), " encoding='base64'"
    if kind == "literal" and chance.random() < 0.5:
        attributes += chance.choice((" xml:lang='en'", f" datatype={quoteattr(chance.choice(_TYPES))}"))
    return f"<{kind}{attributes}>{escape(text)}</{kind}>"


def _contexts(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return ""
    inside = "".join(
        chance.choice(("<null/>", "<uri>urn:g</uri>", "<uri>urn:h</uri>")) for _ in range(chance.randrange(3))
    )
    return f"<contexts>{inside}</contexts>"


def _sparql(chance: random.Random) -> str:
    parts = [f"<updateString>{escape(chance.choice(_UPDATES))}</updateString>"]
    if chance.random() < 0.4:
        name = chance.choice(("defaultGraphs", "namedGraphs", "defaultRemoveGraphs", "defaultInsertGraph"))
        parts.append(f"<dataset><{name}><graph>{chance.choice(('urn:g', '', 'no iri'))}</graph></{name}></dataset>")
    if chance.random() < 0.4:
        parts.append("<bindings><binding_uri name='x'>urn:v</binding_uri></bindings>")
    chance.shuffle(parts)
    return f"<sparql>{''.join(parts)}</sparql>"


def rdf_transaction(chance: random.Random) -> bytes:
    """A tree of the right elements, now and then with one of them elsewhere, or too few."""
    made: list[str] = []
    for _ in range(chance.randrange(5)):
        name = chance.choice(("add", "add", "remove", "clear", "sparql", "setNamespace"))
        terms = "".join(_term(chance) for _ in range(3 if chance.random() < 0.95 else 2))
        if name == "add" and chance.random() < 0.8:
            value = chance.choice(("<uri>urn:o</uri>", f"<literal>{escape(chance.choice(_TEXTS))}</literal>"))
            terms = f"<uri>urn:s</uri><uri>urn:p</uri>{value}"
        inside = {"clear": _contexts(chance), "sparql": _sparql(chance)}.get(name, terms + _contexts(chance))
        made.append(_sparql(chance) if name == "sparql" else f"<{name}>{inside}</{name}>")
    top = "transaction" if chance.random() < 0.97 else "add"
    return f"<?xml version='1.0'?><{top}>{''.join(made)}</{top}>".encode()


def head(chance: random.Random) -> bytes:
    """The head of a write: headers that are known, each with a value that it may have, in any order."""
    pools = {
        "Content-Type": ("application/sparql-update", "text/turtle; charset=utf-8", "", "a;b=\t"),
        "TxLog-Durability": ("synced", "accepted", " synced ", "applied", "SYNCED"),
        "Prefer": ("respond-async, wait=30", "wait=5", 'wait="9"', "wait=4", "handling=strict"),
        "Idempotency-Key": ("k1", '"k"', " k ", "x" * 200, "é"),
        "Authorization": ("Basic YTpi", "Bearer x", ""),
        "Connection": ("keep-alive", "Keep-Alive", "close"),
        "User-Agent": ("x", ""),
    }
    lines = [f"Host: {chance.choice(('x', 'x:1', ''))}", f"Content-Length: {chance.choice((0, 5, 12, '05', 65536))}"]
    lines += [
        f"{name}:{chance.choice(('', ' ', chr(9)))}{chance.choice(pools[name])}"
        for name in chance.sample(list(pools), chance.randrange(5))
    ]
    chance.shuffle(lines)
    if chance.random() < 0.1:
        lines.append(
            chance.choice(("Expect: 100-continue", "host: y", "Transfer-Encoding: chunked", "X : y", " folded"))
        )
    lines = [line.lower() if chance.random() < 0.2 else line for line in lines]
    return "\r\n".join(["POST /repositories/r/statements HTTP/1.1", *lines]).encode("latin-1", "replace")


def frames(chance: random.Random) -> bytes:
    """Frames of any length, one after another, the last perhaps cut."""
    made = b""
    for _ in range(chance.randrange(1, 6)):
        body = chance.randbytes(chance.choice((0, 1, 3, 100, 5000)))
        told = len(body) if chance.random() < 0.95 else chance.choice((0, 1 << 31, (1 << 32) - 1, len(body) + 1))
        made += told.to_bytes(4, "big") + body
    return made[: chance.randrange(len(made) + 1)] if chance.random() < 0.2 else made
