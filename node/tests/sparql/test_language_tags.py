"""Language tags that no text of RDF can hold, as RDF4J takes and gives them."""

from __future__ import annotations

import io

import pyoxigraph as ox
import pytest

from txlog.sparql.formats.rdf4j_binary import read_rdf, write_rdf
from txlog.sparql.formats.rdf_json import read_rdf_json, write_rdf_json
from txlog.sparql.formats.trix import read_trix, write_trix
from txlog.sparql.language_tags import (
    ENCODED_PREFIX,
    TAG_CHARS_MAX,
    restore_tags_in_json,
    restore_tags_in_xml,
    tagged_literal,
    written_tag,
)

ODD = ("en_us", "the number four", "a" * 9, "1a", "日本", "a&b<c", "EN_us")


@pytest.mark.parametrize("tag", ODD)
def test_a_tag_comes_back_as_it_was_sent(tag: str) -> None:
    literal = tagged_literal("x", tag)
    assert literal.language is not None
    assert literal.language.startswith(ENCODED_PREFIX)
    assert written_tag(literal.language) == tag
    [again] = ox.parse(f"<x:s> <x:p> {literal} .", ox.RdfFormat.N_TRIPLES)
    assert again.object == literal
    quad = ox.Quad(ox.NamedNode("x:s"), ox.NamedNode("x:p"), literal)
    for write, read in ((write_rdf, read_rdf), (write_rdf_json, read_rdf_json), (write_trix, read_trix)):
        out = io.BytesIO()
        write([quad], out)
        assert ENCODED_PREFIX.encode() not in out.getvalue()
        assert list(read(out.getvalue())) == [quad]


@pytest.mark.parametrize("tag", ["en", "de-ch-1996", "x-private", "i-klingon", "x-txlog", "x-txlog-zz"])
def test_other_tags_stay(tag: str) -> None:
    assert tagged_literal("x", tag).language == tag
    assert written_tag(tag) == tag


@pytest.mark.parametrize("tag", ["", "he--rtl", "_" * (TAG_CHARS_MAX + 1)])
def test_what_is_no_tag_at_all_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        tagged_literal("x", tag)


def test_results_have_the_tag_of_the_client() -> None:
    tag = tagged_literal("x", "en_us").language
    told = f'{{"type":"literal","xml:lang": "{tag}","value":"\\"xml:lang\\":\\"{tag}\\""}}'.encode()
    assert restore_tags_in_json(told).count(b"en_us") == 1
    assert restore_tags_in_xml(f'<literal xml:lang="{tag}">{tag}</literal>'.encode()).count(b"en_us") == 1
