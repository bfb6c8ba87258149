"""Formats of our own, against bytes written down from RDF4J's constants, and against themselves."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable

import pyoxigraph as ox
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from txlog.model.errors import BadInput
from txlog.sparql import prepare_rdf
from txlog.sparql.formats.rdf4j_binary import MalformedBinaryRdf, read_rdf, write_rdf, write_table
from txlog.sparql.formats.rdf_json import read_rdf_json, write_rdf_json
from txlog.sparql.formats.trix import read_trix, write_trix

S, P = ox.NamedNode("u:s"), ox.NamedNode("u:p")
INTEGER = ox.NamedNode("http://www.w3.org/2001/XMLSchema#integer")

VERSION_1 = (
    b"BRDF\0\0\0\x01"
    b"\x01"
    b"\x01\0\0\0\x03\0u\0:\0s"
    b"\x01\0\0\0\x03\0u\0:\0p"
    b"\x04\0\0\0\x03\0h\xd8\x34\xdd\x1e\0\0\0\x02\0e\0n"
    b"\0"
    b"\x01"
    b"\x01\0\0\0\x03\0u\0:\0s"
    b"\x01\0\0\0\x03\0u\0:\0p"
    b"\x03\0\0\0\x01\0v"
    b"\x01\0\0\0\x03\0u\0:\0g"
    b"\x7f"
)
QUADS = [
    ox.Quad(S, P, ox.Literal("h\U0001d11e", language="en"), None),
    ox.Quad(S, P, ox.Literal("v"), ox.NamedNode("u:g")),
]
VERSION_2 = (
    b"BRDF\0\0\0\x02\x05UTF-8"
    b"\0\x01e\x03u:e"  # a namespace
    b"\x02\x04hey!"  # a comment
    b"\x03\x81\x01\x01\x03u:s"  # value 129 is <u:s>
    b"\x01\x06\x81\x01\x01\x03u:p\x04\x06h\xf0\x9d\x84\x9ez\x02en\0"
    b"\x7f"
)


def test_binary_rdf_is_what_rdf4j_reads_and_writes() -> None:
    out = io.BytesIO()
    write_rdf(QUADS, out)
    assert out.getvalue() == VERSION_1
    assert list(read_rdf(VERSION_1)) == QUADS
    assert list(read_rdf(VERSION_2)) == [ox.Quad(S, P, ox.Literal("h\U0001d11ez", language="en"), None)]


def test_a_cut_or_broken_document_is_never_half_taken() -> None:
    for whole in (VERSION_1, VERSION_2):
        for end in range(len(whole)):
            with pytest.raises(MalformedBinaryRdf):
                list(read_rdf(whole[:end]))
    for wrong in (b"BRDF\0\0\0\x03\x7f", b"BRDF\0\0\0\x01\x63", b"BRDF\0\0\0\x01\x01\x06\0\0\0\x05", b"x" * 20):
        with pytest.raises(MalformedBinaryRdf):
            list(read_rdf(wrong))


def test_a_binary_table_of_every_kind_of_cell() -> None:
    out = io.BytesIO()
    rows = [(S, ox.Literal("1", datatype=INTEGER)), (None, ox.Literal("ü")), (None, None), (ox.BlankNode("b"), P)]
    write_table(["a", "b"], rows, out)
    assert out.getvalue() == (
        b"BRTR\0\0\0\x04\0\0\0\x02\0\0\0\x01a\0\0\0\x01b"
        b"\x04\0\0\0\x03u:s"
        b"\x08\0\0\0\x011\x04\0\0\0\x28http://www.w3.org/2001/XMLSchema#integer"
        b"\0\x06\0\0\0\x02\xc3\xbc"
        b"\x09"
        b"\x05\0\0\0\x01b\x04\0\0\0\x03u:p"
        b"\x7f"
    )


_text = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff", include_characters="\t\n\r"),
    max_size=20,
)
_iris = st.sampled_from([S, P, ox.NamedNode("http://e.org/ü?a=b&c#d")])
_literals = st.one_of(
    st.builds(ox.Literal, _text),
    st.builds(lambda text: ox.Literal(text, language="en-gb"), _text),
    st.builds(lambda text: ox.Literal(text, datatype=INTEGER), _text),
)
_quads = st.lists(
    st.builds(ox.Quad, _iris, _iris, st.one_of(_iris, _literals), st.one_of(st.none(), _iris)), max_size=8, unique=True
)


@given(_quads)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_written_is_read_again(quads: list[ox.Quad]) -> None:
    pairs: list[tuple[Callable[..., None], Callable[[bytes], Iterable[ox.Quad]]]] = [
        (write_rdf, read_rdf),
        (write_trix, read_trix),
        (write_rdf_json, read_rdf_json),
    ]
    for write, read in pairs:
        out = io.BytesIO()
        write(quads, out)
        found = list(read(out.getvalue()))
        assert set(found) == set(quads)
        assert len(found) == len(quads)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('<!DOCTYPE TriX [<!ENTITY a "b">]><TriX/>', "document type"),
        ('<!DOCTYPE TriX [<!ENTITY a SYSTEM "file:///etc/hostname">]><TriX>&a;</TriX>', "document type"),
        ("<TriX><graph><triple><uri>u:a</uri></triple></graph></TriX>", "a triple of 1 terms"),
        ("<TriX><graph><uri>rel</uri></graph></TriX>", "line 1"),
        ("<TriX><graph><plainLiteral>x</plainLiteral></graph></TriX>", "one name"),
        ("<TriX><graph><uri>u:a</uri><uri>u:b</uri></graph></TriX>", "one name"),
        ("<TriX><wrong/></TriX>", "may not stand here"),
        ("<TriX>text</TriX>", "text may not stand here"),
        ("<TriX><graph><triple><id>a</id><id>b</id><id>c</id></triple></graph></TriX>", "a predicate is an IRI"),
        ("<TriX><graph><triple><typedLiteral>1</typedLiteral></triple></graph></TriX>", "without datatype"),
        ("<TriX>", "no element found"),
    ],
)
def test_trix_that_is_none(body: str, says: str) -> None:
    with pytest.raises(SyntaxError, match=says):
        read_trix(body.encode())


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        '{"u:s":{"u:p":[{"value":"x"}]}}',
        '{"u:s":{"u:p":[{"value":"x","type":"else"}]}}',
        '{"rel":{"u:p":[{"value":"x","type":"literal"}]}}',
        '{"u:s":{"_:p":[{"value":"x","type":"literal"}]}}',
        "{",
    ],
)
def test_rdf_json_that_is_none(body: str) -> None:
    with pytest.raises(SyntaxError):
        read_rdf_json(body.encode())


XML = (
    '<?xml version="1.0"?>\n<!DOCTYPE rdf:RDF [{}]>\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" \
xmlns:e="urn:e:"><rdf:Description rdf:about="&a;s"><e:p>{}</e:p></rdf:Description></rdf:RDF>'
)


def of_xml(entities: str, text: str) -> bytes:
    body = XML.format(entities, text).encode()
    return prepare_rdf(body, "application/rdf+xml", base=None, contexts=[], draw=lambda: 1).payload


def test_entities_of_xml_unfold_only_so_far() -> None:
    assert of_xml('<!ENTITY a "urn:a:">', "&a;x") == b'A <urn:a:s> <urn:e:p> "urn:a:x" .\n'
    with pytest.raises(BadInput, match="made of entities"):
        of_xml('<!ENTITY a "urn:a:"><!ENTITY b "&a;&a;">', "&b;")
    with pytest.raises(BadInput, match="unfold to more"):
        of_xml(f"<!ENTITY a 'urn:{'a' * 10_000}'>", "&a;" * 2_000)
    with pytest.raises(BadInput, match="MALFORMED DATA"):
        of_xml('<!ENTITY a SYSTEM "file:///etc/passwd">', "&a;")


@pytest.mark.parametrize("label", ["b0", "8062b2-98_f", "a b", "é", ""])
def test_a_blank_node_is_called_alike_in_all_of_our_own_forms(label: str) -> None:
    """Where any text may be a name: the label itself, where it is one."""
    code = label.encode("utf-16-be")
    binary = b"BRDF\0\0\0\x01\x01\x02" + (len(code) // 2).to_bytes(4, "big") + code
    binary += b"\x01\0\0\0\x03\0u\0:\0p\x01\0\0\0\x03\0u\0:\0p\0\x7f"
    as_json = {f"_:{label}": {"u:p": [{"type": "uri", "value": "u:p"}]}}
    trix = f"<TriX xmlns='http://www.w3.org/2004/03/trix/trix-1/'><graph><triple><id>{label}</id><uri>u:p</uri>"
    found = {
        *read_rdf(binary),
        *read_rdf_json(json.dumps(as_json).encode()),
        *read_trix(f"{trix}<uri>u:p</uri></triple></graph></TriX>".encode()),
    }
    assert len(found) == 1
    name = f"hex-{label.encode().hex()}" if label in ("a b", "") else label
    assert found.pop().subject == ox.BlankNode(name)
