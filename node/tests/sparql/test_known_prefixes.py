"""Turtle, TriG and N3 know the prefixes that RDF4J's parsers know."""

from __future__ import annotations

import pytest

from txlog.model.errors import BadInput
from txlog.sparql import prepare_rdf
from txlog.sparql.known_prefixes import KNOWN_PREFIXES

FORMATS = ("text/turtle", "application/trig", "text/n3")


def lines(text: str, media: str) -> bytes:
    return prepare_rdf(text.encode(), media, base=None, contexts=[], draw=lambda: 1).payload


@pytest.mark.parametrize("media", FORMATS)
def test_known_prefixes_need_no_declaration(media: str) -> None:
    found = lines("<urn:s> rdfs:label 'x'^^xsd:token ; dc11:title 'y' .", media)
    assert b"A <urn:s> <http://www.w3.org/2000/01/rdf-schema#label>" in found
    assert b"<http://purl.org/dc/elements/1.1/title>" in found
    assert KNOWN_PREFIXES["dc"] != KNOWN_PREFIXES["dc11"]


@pytest.mark.parametrize("media", FORMATS)
def test_a_declaration_wins(media: str) -> None:
    text = "<urn:s> rdfs:label 'x' .\n@prefix dc: <urn:mine:> . @prefix foaf: <urn:f:> .\n<urn:s> dc:p foaf:q ."
    found = lines(text, media)
    assert b"<urn:mine:p> <urn:f:q>" in found
    assert b"rdf-schema#label" in found


def test_others_are_refused_with_their_place() -> None:
    with pytest.raises(BadInput, match=r"line 1 .*mine: has not been declared"):
        lines("<urn:s> mine:label 'x' .", "text/turtle")
    with pytest.raises(BadInput, match=r"line 3 .*mine: has not been declared"):
        lines("<urn:s> rdfs:label 'x' .\n\n<urn:s> mine:label 'x' .", "text/turtle")
    with pytest.raises(BadInput, match="line 1"):
        lines("<urn:s> rdfs:label 'x' ; mine:label 'x' .", "text/turtle")
