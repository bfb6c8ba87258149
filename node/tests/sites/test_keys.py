"""Keys: which quads a conflict between sites is decided for together."""

from __future__ import annotations

import pytest

from txlog.model.quads import decode_quads
from txlog.sites.keys import KeyKind, KeyPattern, crosses_links, is_key, key_of, pattern_of
from txlog.sparql import prepare_rdf

NAMED = b'<urn:s> <urn:p> "a b \\" <urn:no> ."@en <urn:g> .'
PLAIN = b"<urn:s> <urn:p> <urn:o> ."


@pytest.mark.parametrize(
    ("line", "kind", "key", "pattern"),
    [
        (NAMED, KeyKind.PROPERTY, b"<urn:s> <urn:p> <urn:g>", (b"<urn:s>", b"<urn:p>", None, b"<urn:g>")),
        (PLAIN, KeyKind.PROPERTY, b"<urn:s> <urn:p>", (b"<urn:s>", b"<urn:p>", None, b"")),
        (NAMED, KeyKind.SUBJECT, b"<urn:s> <urn:g>", (b"<urn:s>", None, None, b"<urn:g>")),
        (PLAIN, KeyKind.SUBJECT, b"<urn:s>", (b"<urn:s>", None, None, b"")),
        (PLAIN, KeyKind.QUAD, PLAIN, (b"<urn:s>", b"<urn:p>", b"<urn:o>", b"")),
        (NAMED, KeyKind.QUAD, NAMED, (b"<urn:s>", b"<urn:p>", b'"a b \\" <urn:no> ."@en', b"<urn:g>")),
    ],
)
def test_a_key_names_its_quads(line: bytes, kind: KeyKind, key: bytes, pattern: tuple[bytes | None, ...]) -> None:
    assert key_of(line, kind) == key
    assert pattern_of(key, kind) == KeyPattern(*pattern)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (b"", KeyKind.SUBJECT),
        (b"<urn:s>", KeyKind.PROPERTY),
        (b"<urn:s> <urn:p> <urn:g> <urn:x>", KeyKind.PROPERTY),
        (b'<urn:s> "text"', KeyKind.PROPERTY),
        (b"<urn:s> <urn:p>", KeyKind.QUAD),
    ],
)
def test_what_is_no_key_is_refused(key: bytes, kind: KeyKind) -> None:
    with pytest.raises(ValueError, match="is no"):
        pattern_of(key, kind)


def test_graphs_of_txlog_stay_at_their_site() -> None:
    assert crosses_links(NAMED)
    assert crosses_links(PLAIN)
    for graph in (b"urn:txlog:sites", b"urn:txlog:system", b"urn:txlog:system:lon"):
        assert not crosses_links(b"<urn:s> <urn:p> <urn:o> <%s> ." % graph)
        assert not is_key(b"<urn:s> <urn:p> <%s>" % graph, KeyKind.PROPERTY)
    assert is_key(b"<urn:s> <urn:p> <urn:g>", KeyKind.PROPERTY)
    assert not is_key(b"<urn:s>", KeyKind.PROPERTY)


def test_a_graph_that_a_blank_node_names_crosses() -> None:
    upload = b"GRAPH _:g { <urn:s> <urn:p> <urn:o> }"
    body = prepare_rdf(upload, "application/trig", base=None, contexts=[], draw=lambda: 7)
    [(_, line)] = decode_quads(body.payload)
    assert b" <urn:txlog:bnode:" in line
    assert crosses_links(line)
    for other in (b"urn:txlog:sites:of:a:client", b"urn:txlog:other"):
        assert crosses_links(b"<urn:s> <urn:p> <urn:o> <%s> ." % other)
