"""RDF/XML as XML allows it: languages taken away, relative bases, encodings, line ends."""

from __future__ import annotations

import pytest

from txlog.model.errors import BadInput, TooLarge, Unsupported
from txlog.sparql import prepare_rdf
from txlog.sparql.formats.rdf_xml_source import rewrite_rdf_xml

NAMES = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="urn:e:"'
BASE = "http://doc.example/d/f"
FOO = '<rdf:Description rdf:about="foo"><e:p rdf:resource=""/></rdf:Description>'
LITERAL = "http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral"


def quads(body: str | bytes, base: str | None = BASE, media: str = "application/rdf+xml") -> str:
    body = body.encode() if isinstance(body, str) else body
    payload = prepare_rdf(body, media, base=base, contexts=[], draw=lambda: 1).payload.decode()
    return payload.replace("A ", "", 1) if payload.count("\n") == 1 else payload


def document(attributes: str, content: str) -> str:
    return f"<rdf:RDF {NAMES} {attributes}>{content}</rdf:RDF>"


def statement(text: str) -> str:
    return document("", f'<rdf:Description rdf:about="urn:a"><e:p>{text}</e:p></rdf:Description>')


def test_an_empty_language_takes_the_language_away() -> None:
    described = '<rdf:Description rdf:about="urn:a"><e:p xml:lang="">none</e:p></rdf:Description>'
    assert quads(document('xml:lang="en"', described)) == '<urn:a> <urn:e:p> "none" .\n'
    inherited = "<rdf:Description rdf:about='urn:a' xml:lang = ''><e:p>none</e:p></rdf:Description>"
    assert quads(document('xml:lang="en"', inherited)) == '<urn:a> <urn:e:p> "none" .\n'
    again = '<rdf:Description rdf:about="urn:a" xml:lang=""><e:p xml:lang="fr">un</e:p></rdf:Description>'
    assert quads(document('xml:lang="en"', again)) == '<urn:a> <urn:e:p> "un"@fr .\n'


def test_text_that_looks_like_an_empty_language_stays() -> None:
    text = '<e:p>xml:lang=""</e:p><e:q rdf:parseType="Literal"><b xml:lang="" xml:base="c">x</b></e:q>'
    found = quads(document('xml:lang="en"', f'<rdf:Description rdf:about="urn:a">{text}</rdf:Description>'))
    assert '<urn:a> <urn:e:p> "xml:lang=\\"\\""@en .' in found
    assert '"<b xml:lang=\\"\\" xml:base=\\"c\\"' in found


@pytest.mark.parametrize(
    ("bases", "subject", "value"),
    [
        ('xml:base=""', "http://doc.example/d/foo", "http://doc.example/d/f"),
        ('xml:base="sub/"', "http://doc.example/d/sub/foo", "http://doc.example/d/sub/"),
        ('xml:base="//other"', "http://other/foo", "http://other"),
        ("xml:base='?a=1&amp;b=2'", "http://doc.example/d/foo", "http://doc.example/d/f?a=1&b=2"),
        ('xml:base="http://x/y"', "http://x/foo", "http://x/y"),
    ],
)
def test_a_relative_base_is_resolved(bases: str, subject: str, value: str) -> None:
    assert quads(document(bases, FOO)) == f"<{subject}> <urn:e:p> <{value}> .\n"


def test_bases_are_resolved_against_the_one_around_them() -> None:
    inner = FOO.replace("rdf:about", 'xml:base="c/" rdf:about')
    after = FOO.replace("foo", "bar")
    found = quads(document('xml:base="b/"', f'<rdf:Description xml:base="x"/>{inner}{after}'))
    assert "<http://doc.example/d/b/c/foo> <urn:e:p> <http://doc.example/d/b/c/>" in found
    assert "<http://doc.example/d/b/bar> <urn:e:p> <http://doc.example/d/b/>" in found


def test_without_a_base_a_relative_one_is_refused() -> None:
    with pytest.raises(BadInput, match="send baseURI"):
        quads(document('xml:base=""', FOO), base=None)


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "iso-8859-15", "windows-1252", "UTF-16"])
def test_the_declared_encoding_is_read(encoding: str) -> None:
    body = f'<?xml version="1.0" encoding="{encoding}"?>{statement("é")}'.encode(encoding)
    assert quads(body) == '<urn:a> <urn:e:p> "é" .\n'


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_recognised(encoding: str) -> None:
    assert quads(statement("é").encode(encoding)) == '<urn:a> <urn:e:p> "é" .\n'


def test_a_parameter_says_more_than_the_declaration() -> None:
    body = f'<?xml version="1.0" encoding="ISO-8859-1"?>{statement("é")}'
    assert quads(body, media="application/rdf+xml; charset=utf-8") == '<urn:a> <urn:e:p> "é" .\n'
    latin = body.encode("latin-1")
    assert quads(latin, media="application/rdf+xml; charset=iso-8859-1") == '<urn:a> <urn:e:p> "é" .\n'


@pytest.mark.parametrize("encoding", ["EBCDIC-CP-US", "utf-7", "rot13", "unicode_escape", "iso-8859-99"])
def test_another_encoding_is_refused_by_name(encoding: str) -> None:
    with pytest.raises(Unsupported, match=encoding):
        quads(f'<?xml version="1.0" encoding="{encoding}"?>{statement("a")}')


def test_bytes_outside_the_declared_encoding_are_refused() -> None:
    with pytest.raises(BadInput, match="is not us-ascii"):
        quads(f'<?xml version="1.0" encoding="us-ascii"?>{statement("é")}')
    with pytest.raises(BadInput, match="is not utf-16"):
        quads(b"\xff\xfe<")


def test_line_ends_are_line_feeds_and_references_stay() -> None:
    assert quads(statement("a\r\nb\rc&#13;d")) == '<urn:a> <urn:e:p> "a\\nb\\nc\\rd" .\n'


def test_bases_cannot_flood_the_memory() -> None:
    long = f'xml:base="http://x/{"y" * 100_000}"'
    with pytest.raises(TooLarge):
        quads(document(long, '<rdf:Description rdf:about="a" xml:base=""/>' * 1000))
    with pytest.raises(BadInput, match="elements"):
        rewrite_rdf_xml(b'<a xml:base="b/">' * 100_000, BASE)


def test_a_document_without_them_is_not_touched() -> None:
    body = statement("x").encode()
    assert rewrite_rdf_xml(body, None) == (body, b"")


def test_a_remote_context_is_refused_in_our_words() -> None:
    with pytest.raises(BadInput, match="context by address is not fetched"):
        quads('{"@context": "http://example.org/c", "@id": "urn:a"}', media="application/ld+json")
