"""Uploads and lines become quads."""

from __future__ import annotations

import re
from itertools import chain, product
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import RdfFormat, parse, serialize

from txlog.model.entry import KIND_QUADS
from txlog.model.errors import BadInput, SystemGraphNamed, TxLogError, Unsupported
from txlog.model.quads import decode_quads, split_graph
from txlog.sparql import TransactionBody, prepare_lines, prepare_rdf, rdf_upload, update_normaliser
from txlog.sparql.data_fast_path import parse_plain_update
from txlog.sparql.rdf_upload import (
    _CANONICAL_QUADS,
    _CANONICAL_TRIPLES,
    LARGE_BODY_BYTES,
    PLAIN_STRING,
    YIELD_CHUNK_BYTES,
    _parse_large_plain,
)

STEM = "<urn:txlog:bnode:000000000000000000000000000000ff:"


def upload(body: str | bytes, media_type: str = "text/turtle", base: str | None = None, *contexts: str) -> str:
    raw = body.encode() if isinstance(body, str) else body
    prepared = prepare_rdf(raw, media_type, base=base, contexts=list(contexts), draw=lambda: 0xFF)
    assert prepared.kind == KIND_QUADS
    lines = list(decode_quads(prepared.payload))
    assert prepared.change_count == len(lines)
    for _, line in lines:
        split_graph(line)
    return prepared.payload.decode()


@pytest.mark.parametrize(
    ("media_type", "body", "payload"),
    [
        ("application/n-quads", "<a:s> <a:p> <a:o> .", "A <a:s> <a:p> <a:o> .\n"),
        ("text/x-nquads", '<a:s> <a:p> "x" <a:g> .\n', 'A <a:s> <a:p> "x" <a:g> .\n'),
        ("application/n-quads", "<a:s> <a:p> <a:o> .\n<a:s> <a:p> <a:o> .\n", "A <a:s> <a:p> <a:o> .\n"),
        ("application/n-quads", "", ""),
        ("application/n-quads", "\n# c\n<a:s>\t<a:p> 'x'", None),
        ("application/n-quads", '<a:s>\t<a:p> "\\u0041\\u000A"@EN . # c', 'A <a:s> <a:p> "A\\n"@en .\n'),
        ("application/n-triples", '<a:s> <a:p> "é" .', 'A <a:s> <a:p> "é" .\n'),
        ("text/plain; charset=utf-8", '<a:s> <a:p> "é" .', 'A <a:s> <a:p> "é" .\n'),
        ("TEXT/Turtle;charset=UTF-8", "@prefix e: <e:> . e:s a e:o .",
         "A <e:s> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <e:o> .\n"),
        ("application/x-turtle", "\ufeff<a:s> <a:p> <a:o> .", "A <a:s> <a:p> <a:o> .\n"),
        ("application/trig", "<a:g> { <a:s> <a:p> <a:o> }", "A <a:s> <a:p> <a:o> <a:g> .\n"),
        ("application/x-trig", "{ <a:s> <a:p> <a:o> } GRAPH _:g { <a:s> <a:p> _:g }",
         f"A <a:s> <a:p> <a:o> .\nA <a:s> <a:p> {STEM}0> {STEM}0> .\n"),
        ("application/n-quads", '_:a <a:p> _:b .\n_:b <a:p> "_:a" .\n<a:_:x> <a:p> _:a .',
         f'A {STEM}0> <a:p> {STEM}1> .\nA {STEM}1> <a:p> "_:a" .\nA <a:_:x> <a:p> {STEM}0> .\n'),
    ],
)  # fmt: skip
def test_every_format(media_type: str, body: str, payload: str | None) -> None:
    if payload is None:
        with pytest.raises(BadInput):
            upload(body, media_type)
    else:
        assert upload(body, media_type) == payload


def test_other_charsets_are_read_where_they_are_known() -> None:
    assert upload('<a:s> <a:p> "é" .'.encode("latin-1"), "text/plain; charset=ISO-8859-1") == 'A <a:s> <a:p> "é" .\n'


def test_contexts_override_the_bodys_graphs() -> None:
    body = "<a:s> <a:p> 'x' . GRAPH <a:g> { <a:s> <a:p> 'x', 'y <z> .' }"
    assert upload(body, "application/trig", None, "<a:c>", "null").splitlines() == [
        'A <a:s> <a:p> "x" <a:c> .',
        'A <a:s> <a:p> "x" .',
        'A <a:s> <a:p> "y <z> ." <a:c> .',
        'A <a:s> <a:p> "y <z> ." .',
    ]


def test_relative_iris_are_resolved() -> None:
    assert (
        upload("<s> <#p> <../o> .", "text/turtle", "http://x/y/z")
        == "A <http://x/y/s> <http://x/y/z#p> <http://x/o> .\n"
    )
    assert upload("<s> <a:p> <> .", "text/turtle", "<http://x/y>") == "A <http://x/s> <a:p> <http://x/y> .\n"


@pytest.mark.parametrize(
    ("body", "media_type", "base", "contexts", "error", "why"),
    [
        ("", "application/json", None, [], Unsupported, "application/n-quads"),
        ("", "", None, [], Unsupported, "no Content-Type"),
        ("", "text/turtle; charset=utf-16", None, [], Unsupported, "send UTF-8"),
        (b"\xff", "text/turtle", None, [], BadInput, "MALFORMED DATA"),
        (b'<a:s> <a:p> "\xe9" .', "application/n-quads", None, [], BadInput, "MALFORMED DATA"),
        (b"\xff", "text/turtle; charset=us-ascii", None, [], BadInput, "byte 0 is not ascii"),
        ("<a:s> <a:p>\n<a:o", "text/turtle", None, [], BadInput, "line 2"),
        ("<a:s> <a:p> <a:o> .\n<a:s> <a:p> x", "application/n-quads", None, [], BadInput, "line 2 column 13"),
        ("<s> <a:p> <a:o> .", "text/turtle", None, [], BadInput, "send baseURI"),
        ("<s> <a:p> <a:o> .", "application/n-quads", "http://x/", [], BadInput, "send baseURI, or write it in full"),
        ("<a:s> <a:p> <a:o> <a:g> .", "application/n-triples", None, [], BadInput, "MALFORMED DATA"),
        ("<<( <a:s> <a:p> 1 )>> <a:p> 1 .", "text/turtle", None, [], BadInput, "triple of RDF-star as a subject"),
        ("<< <a:s> <a:p> 1 >> <a:p> 1 .", "text/x-turtlestar", None, [], BadInput, "triple of RDF-star as a subject"),
        ("<a:s> <a:p> 1 {| <a:p> 1 |} .", "application/x-trigstar", None, [], BadInput, "RDF-star as a subject"),
        (b"<a:s> <a:p> << <a:s> <a:p> '\xe9' >> .", "text/x-turtlestar", None, [], BadInput, "is not UTF-8"),
        ("", "text/turtle", "rel", [], BadInput, "baseURI 'rel'"),
        ("", "text/turtle", None, ["a:g"], BadInput, "neither an N-Triples IRI"),
        ("", "text/turtle", None, ["<rel>"], BadInput, "no absolute IRI"),
        ("", "text/turtle", None, ["_:b"], BadInput, "neither an N-Triples IRI"),
        ("", "text/turtle", None, ["<urn:txlog:system:1>"], SystemGraphNamed, "choose another name"),
        ("", "text/turtle", "urn:txlog:system:", [], SystemGraphNamed, "choose another name"),
        ("<a:s> <a:p> <a:o> <urn:txlog:system> .", "text/x-nquads", None, [], SystemGraphNamed, "urn:txlog:system"),
        ("<a:s> <a:p> <urn:txlog:system:1> .", "text/plain", None, [], SystemGraphNamed, "urn:txlog:system:1"),
        ("<urn:txlog:\\u0073ystem> <a:p> 1 .", "text/turtle", None, [], SystemGraphNamed, "urn:txlog:system"),
        ("@prefix u: <urn:txlog:> . u:system <a:p> 1 .", "text/turtle", None, [], SystemGraphNamed, "urn:txlog:system"),
        ("<./txlog:system> <a:p> 1 .", "text/turtle", "urn:x", [], SystemGraphNamed, "urn:txlog:system"),
        ("<a:s> <a:p> 'x'^^<urn:txlog:system> .", "text/turtle", None, [], SystemGraphNamed, "urn:txlog:system"),
    ],
)
def test_bad_uploads(
    body: str | bytes, media_type: str, base: str | None, contexts: list[str], error: type[TxLogError], why: str
) -> None:
    with pytest.raises(error) as refused:
        upload(body, media_type, base, *contexts)
    assert type(refused.value) is error
    assert why in str(refused.value)


def test_our_name_inside_a_string_is_data() -> None:
    assert upload('<a:s> <a:p> "<urn:txlog:system> <<( \\"" .', "text/plain")


def test_deep_bodies_do_not_end_the_process() -> None:
    assert upload("<a:s> <a:p> " + "[<a:p> " * 20000 + "1" + "]" * 20000 + " .").count("\n") == 20001


def lines(adds: str, deletes: str = "") -> str:
    return prepare_lines(adds, deletes, draw=lambda: 0xFF).payload.decode()


def test_lines_are_netted_with_deletes_first() -> None:
    assert lines("<a:s> <a:p> <a:o> .\n<a:s> <a:p> <a:q> .", "<a:s> <a:p> <a:o> .\n<a:s> <a:p> <a:r> .\n") == (
        "D <a:s> <a:p> <a:r> .\nA <a:s> <a:p> <a:o> .\nA <a:s> <a:p> <a:q> .\n"
    )
    assert lines("_:b <a:p> _:b <a:g> .") == f"A {STEM}0> <a:p> {STEM}0> <a:g> .\n"
    assert lines("", '<a:s> <a:p> "_:b" .') == 'D <a:s> <a:p> "_:b" .\n'
    assert prepare_lines(b"", draw=lambda: 1).payload == b""


@pytest.mark.parametrize(
    ("adds", "deletes", "error", "why"),
    [
        ("<a:s> <a:p>", "", BadInput, "MALFORMED DATA"),
        ("", "<a:s> <a:p>", BadInput, "MALFORMED DATA"),
        ("", "_:b <a:p> _: .", BadInput, "MALFORMED DATA"),
        ("<s> <a:p> <a:o> .", "", BadInput, "relative"),
        ('<a:s> <a:p> "\ud800" .', "", BadInput, "half a surrogate pair at character 13"),
        ("<a:s> <a:p> <a:o> <urn:txlog:system:1> .", "", SystemGraphNamed, "system"),
        ("", "<a:s> <a:p> <a:o> <urn:txlog:system:1> .", SystemGraphNamed, "system"),
    ],
)
def test_bad_lines(adds: str, deletes: str, error: type[TxLogError], why: str) -> None:
    with pytest.raises(error, match=why) as refused:
        prepare_lines(adds, deletes, draw=lambda: 1)
    assert type(refused.value) is error


CHARS = st.sampled_from("aZ09-._~:/?#[]@!$&'()*+,;=%\\ \"<>{}|^`é€😀\x85\ue000\ufeff\ufffe\n\t")
IRIS = st.one_of(
    st.sampled_from(
        ["<a:s>", "<http://a/b>", "<http://a:80/b?c#d>", "<http://>", "<http:///x>", "<urn:x:y>", "<rel>", "_:b"]
    ),
    st.builds("<{}{}>".format, st.sampled_from(["http://a", "http://", "a:", "http:", ""]), st.text(CHARS, max_size=8)),
)
TAILS = st.sampled_from(
    ["", "@en", "@EN", "@en-gb", "@en-GB", "@toolonglanguage", "@a", "^^<a:t>",
     "^^<http://www.w3.org/2001/XMLSchema#string>",
     "^^<http://www.w3.org/2001/XMLSchema#int>",
     "^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#langString>", "@en--ltr"]
)  # fmt: skip
INSIDES = st.lists(st.one_of(CHARS, st.sampled_from(["\\n", "\\\\", "\\u0041", "\x7f", "\0"])), max_size=8).map("".join)
STRINGS = st.builds('"{}"{}'.format, INSIDES, TAILS)
QUADS = st.builds(
    "{} {} {}{} .{}".format, IRIS, IRIS, st.one_of(IRIS, STRINGS), st.one_of(st.just(""), IRIS.map(" ".__add__)),
    st.sampled_from(["\n", "\n", "", "\r\n", " # c\n"]),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(QUADS, min_size=1, max_size=3).map("".join))
def test_what_is_taken_without_the_parser_is_what_the_parser_would_give(body: str) -> None:
    raw = body.encode()
    for form, canonical in ((RdfFormat.N_QUADS, _CANONICAL_QUADS), (RdfFormat.N_TRIPLES, _CANONICAL_TRIPLES)):
        if canonical.fullmatch(raw):
            given = serialize(parse(raw, form), format=RdfFormat.N_QUADS)
            assert given is not None
            assert given.rstrip(b"\n") == raw.rstrip(b"\n")


PLAIN_LITERAL = re.compile(PLAIN_STRING)


def plain_characters() -> str:
    """Every character of the first two planes, and some of the others, that a literal of a plain line may hold as it
    stands."""
    codes = chain(range(0xD800), range(0xE000, 0x20000), range(0x20000, 0x110000, 0x101))
    return "".join(one for one in map(chr, codes) if PLAIN_LITERAL.fullmatch(f'"{one}"'.encode()))


def test_no_character_that_is_taken_without_the_parser_would_be_written_otherwise_by_it() -> None:
    plain = plain_characters()
    assert set("aß€ñЖ中한ﬁ\u00a0\ufeff😀") <= set(plain)
    assert not set('"\\\n\r\t\0\x7f\x85\ue000\ufffd\ufffe\uffff\U0001fffe\U00020000\U0010ffff') & set(plain)
    line = f'<a:s> <a:p> "{plain}" .\n'.encode()
    assert _CANONICAL_QUADS.fullmatch(line)
    assert serialize(parse(line, RdfFormat.N_QUADS), format=RdfFormat.N_QUADS) == line
    text = f'INSERT DATA {{ <a:s> <a:p> "{plain}" }}'
    short = parse_plain_update(text)
    assert short is not None
    assert short == update_normaliser._UpdateNormaliser(text, None, "", lambda: 1).normalise()


def test_bytes_that_are_no_utf_8_are_never_taken_without_the_parser() -> None:
    ends = (b"", *(bytes([one]) for one in (0x20, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)))
    taken = 0
    for first, second in product(range(0x80, 0x100), range(0x100)):
        for third, fourth in product(ends, (b"", b"\x80", b"\xbf")):
            raw = b'"%c%c%b%b"' % (first, second, third, fourth)
            if PLAIN_LITERAL.fullmatch(raw):
                raw.decode()
                taken += 1
    assert taken > 10_000


@settings(max_examples=200, deadline=None)
@given(st.lists(QUADS, max_size=6).map("".join), st.integers(1, 120))
def test_a_body_is_judged_alike_in_one_piece_and_in_many(body: str, piece: int) -> None:
    raw = body.encode()
    with patch.object(rdf_upload, "_CHUNK_BYTES", piece):
        for canonical in (_CANONICAL_QUADS, _CANONICAL_TRIPLES):
            assert rdf_upload._is_canonical(raw, canonical) == (canonical.fullmatch(raw) is not None)


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_large_body_is_taken_whole_and_a_mistake_in_its_last_line_is_found_there(end: str) -> None:
    lines = [f'<http://a/{n}> <http://a/p> "{n} größer" <http://a/g> .' for n in range(20_000)]
    good, bad = "\n".join(lines) + end, "\n".join([*lines, '<http://a/s> <p> "o" .']) + end
    assert rdf_upload._is_canonical(good.encode(), _CANONICAL_QUADS)
    made = prepare_rdf(good.encode(), "application/n-quads", base=None, contexts=[], draw=lambda: 1)
    assert made.payload == "".join(f"A {line}\n" for line in lines).encode()
    with pytest.raises(BadInput, match="line 20001"):
        prepare_rdf(bad.encode(), "application/n-quads", base=None, contexts=[], draw=lambda: 1)


def long_body(more: bytes = b"", at: int = 9000) -> bytes:
    """Above the size that is looked at in pieces; ``more`` stands somewhere in it."""
    lines = [
        b'<http://a.example/s%d> <http://a.example/p> "%d _:b <<( \\" x"@en <urn:g%d> .\n' % (n, n, n % 7)
        for n in range(9999)
    ]
    return b"".join([*lines[:at], more, *lines[at:]])


def outcome(body: bytes, media_type: str, *contexts: str) -> object:
    try:
        return prepare_rdf(body, media_type, base=None, contexts=list(contexts), draw=lambda: 0xFF)
    except TxLogError as refused:
        return f"{type(refused).__name__}: {refused}"


@pytest.mark.parametrize(
    ("more", "short"),
    [
        (b"", True),
        (b"<a:s> <a:p> <a:o> .\n", True),
        (b"<a:s>  <a:p> <a:o> .\n", False),
        (b"_:x <a:p> <a:o> .\n", False),
        (b"<a:s> <a:p> <a:o> <urn:txlog:system> .\n", False),
        (b"<http://a.example/s0> <http://a.example/p> <a:o> .\n" * 2, False),
        (b"\n# a comment\n", False),
        (b"<a:s> <a:p> .\n", False),
        (b"<a:s> <a:p> <<( <a:s> <a:p> <a:o> )>> .\n", False),
        (b'<a:s> <a:p> "\xff" .\n', False),
        (b'<a:s> <a:p> "%s" .\n' % (b"x" * (3 * YIELD_CHUNK_BYTES)), True),
    ],
)
@pytest.mark.parametrize("at", [0, 5000, 9999])
def test_a_long_body_in_pieces_is_what_it_is_as_a_whole(
    more: bytes, short: bool, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (long_body(more, at), long_body(more, at)[:-1]):
        assert len(body) > LARGE_BODY_BYTES
        assert (_parse_large_plain(body, "application/n-quads") is not None) == short
        in_pieces = outcome(body, "application/n-quads")
        with monkeypatch.context() as patched:
            patched.setattr("txlog.sparql.rdf_upload.LARGE_BODY_BYTES", 1 << 30)
            assert in_pieces == outcome(body, "application/n-quads")


def test_a_long_body_of_another_form_or_for_a_graph_is_read_as_a_whole() -> None:
    body = long_body()
    assert _parse_large_plain(body, "text/turtle") is None
    assert _parse_large_plain(body, "application/trix; charset=utf-8") is None
    assert _parse_large_plain(body, "application/n-triples") is None, "it has graphs"
    triples = body.replace(b" <urn:g", b" . # <urn:g")
    assert _parse_large_plain(triples, "application/n-triples") is None
    plain = b"".join(b"<a:s%d> <a:p> <a:o> .\n" % n for n in range(15_000))
    assert _parse_large_plain(plain, "application/n-triples; charset=utf-8") == outcome(plain, "application/n-quads")
    inside = outcome(plain, "application/n-triples", "<urn:g>")
    assert isinstance(inside, TransactionBody)
    assert inside.payload.startswith(b"A <a:s0> <a:p> <a:o> <urn:g> .\n")
