"""The short way of plain data gives what the parser gives, or nothing."""

from __future__ import annotations

import random

import pytest

from txlog.model.errors import TxLogError
from txlog.sparql import TransactionBody, prepare_rdf, prepare_update, rdf_upload
from txlog.sparql import update_normaliser as room
from txlog.sparql.data_fast_path import parse_plain_update

NOW = "2026-01-02T03:04:05Z"
PREFIXES = (
    *("PREFIX ex: <http://example.org/a#>\n", "prefix ex:<urn:x:>", "PREFIX : <http://example.org/>\n"),
    *("PREFIX ex: <relative>\n", "PREFIX ex: <http://example.org/../b/>\n", "PREFIX s: <urn:txlog:sys>\n"),
    *("PREFIX u: <http://example.org/a b>\n", "BASE <http://example.org/>\n", "# ex:a\n", "PREFIX ex: <urn:é:>\n"),
)
TERMS = (
    *("ex:a", ":b", "ex:b-c", "ex:1", "ex:a.b", "ex:%20", "ex:", "xsd:date", "unknown:x", "_:b", "<urn:s>", "<r>", "a"),
    *('"text ex:a "', "'ex:a'", "'\"'", '"""ex:a"""', '""', '"a\\"b ex:c "', '"x"@en', '"5"^^xsd:int', '"5"^^ex:t'),
    *('"5"^^xsd:string', "1", "-2", "+03", "1.5", "1e0", "true", "tem:graph", "s:tem", '"\\u0041"', "ex:a\\-b"),
    *('"ü ex:a € 😀"', '"é\\n"@fr', '"\x85"', '"\ue000"', "ex:é", "<urn:é>", '"é"@É'),
)
GAPS = (" ", " ", " ", "\n", " # ex:a\n", "")


def prepared(text: str) -> TransactionBody | str:
    try:
        return prepare_update(text, base=None, now=NOW, draw=lambda: 7)
    except TxLogError as refused:
        return f"{type(refused).__name__}: {refused}"


def slowly(text: str) -> TransactionBody | str:
    """By the parser alone."""
    try:
        return room._UpdateNormaliser(text, None, NOW, lambda: 7).normalise()
    except TxLogError as refused:
        return f"{type(refused).__name__}: {refused}"


def request(chance: random.Random) -> str:
    prologue = "".join(chance.choices(PREFIXES, weights=(20, 6, 6, 1, 1, 1, 1, 1, 1, 1), k=chance.randrange(3)))
    usual = chance.random() < 0.7
    terms, gaps = (TERMS[:4] + TERMS[10:11], GAPS[:1]) if usual else (TERMS, GAPS)
    objects = (*terms, "1", '"text ex:a "', '"größer ex:a "', '"x"@en', '"5"^^xsd:int') if usual else TERMS
    triples = [
        chance.choice(gaps).join((chance.choice(terms), chance.choice(terms), chance.choice(objects), "."))
        for _ in range(chance.randrange(4))
    ]
    body = f"{chance.choice(('{', '{ '))}{chance.choice(gaps).join(triples)} }}"
    if chance.random() < 0.3:
        body = f"{{ GRAPH {chance.choice(terms)} {body} }}"
    return f"{prologue}{chance.choice(('INSERT', 'delete'))} DATA {body}{chance.choice(('', ' ;'))}"


def test_random_data_is_the_same_by_the_short_way_and_by_the_parser() -> None:
    chance, short = random.Random(5), 0
    for _ in range(6000):
        text = request(chance)
        assert prepared(text) == slowly(text), text
        short += parse_plain_update(text) is not None
    assert short > 1500, "the short way is taken"


@pytest.mark.parametrize(
    "text",
    [
        "PREFIX s: <urn:txlog:sys> INSERT DATA { s:tem <urn:p> <urn:o> }",
        "PREFIX s: <urn:txlog:system:> INSERT DATA { s:a <urn:p> <urn:o> }",
        "INSERT DATA { unknown:a <urn:p> <urn:o> }",
        "PREFIX ex: <urn:e:> INSERT DATA { 1 ex:a ex:b }",
        "PREFIX ex: <urn:e:> INSERT DATA { ex:a 1 ex:b }",
    ],
)
def test_what_is_wrong_is_refused_all_the_same(text: str) -> None:
    assert parse_plain_update(text) is None
    assert isinstance(prepared(text), str)


@pytest.mark.parametrize(
    "text",
    [
        "PREFIX h: <http://h> INSERT DATA { h:a <urn:p> <urn:o> }",
        "PREFIX h: <http://h:8> INSERT DATA { h:0 <urn:p> h:0a }",
        "PREFIX h: <http://> INSERT DATA { h:a <urn:p> <urn:o> }",
        "PREFIX x: <http://www.w3.org/2001/XMLSchema#> INSERT DATA { <urn:s> <urn:p> 'a'^^x:string }",
        'PREFIX x: <http://www.w3.org/2001/XMLSchema#> INSERT DATA { <urn:s> <urn:p> "a"^^x:string }',
    ],
)
def test_a_name_that_makes_another_kind_of_iri_is_the_parsers(text: str) -> None:
    assert parse_plain_update(text) is None
    assert prepared(text) == slowly(text)


def test_short_names_never_come_to_a_flood() -> None:
    long = "PREFIX ex: <http://example.org/" + "x" * 4000 + "> INSERT DATA {" + " ex:a ex:b ex:c ." * 100 + " }"
    assert parse_plain_update(long) is None
    assert isinstance(prepared(long), TransactionBody)
    assert parse_plain_update("PREFIX ex: <urn:e:> INSERT DATA {" + " ex:a ex:b ex:c ." * 5000 + " }") is None


SHORT = """PREFIX ex: <http://example.org/>
PREFIX ns: <http://example.org/ns#>
INSERT DATA {
 ex:a ns:says "größer, 5 €" . ex:b a <http://example.org/c> . ex:c ns:count 42 . ex:d ns:of "x"@de .
}"""
FULL = 'DELETE DATA { GRAPH <urn:g> { <urn:a> <urn:p> "größer, 5 €" . <urn:a> <urn:q> "b" } }'
QUADS = """<http://example.org/a> <http://example.org/ns#says> "größer, 5 €" <http://example.org/g> .
<http://example.org/a> <http://example.org/ns#of> "x\\ny"^^<http://example.org/t> .
"""


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("update", SHORT),
        ("update", FULL),
        ("application/n-quads", QUADS),
        ("application/n-quads", QUADS * 3000),
    ],
)
def test_the_usual_is_read_without_the_parser(media: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parser(*_: object, **__: object) -> None:
        raise AssertionError("the parser was asked: it costs several times as much")

    monkeypatch.setattr(room, "_UpdateNormaliser", parser)
    monkeypatch.setattr(rdf_upload, "parse", parser)
    if media == "update":
        assert prepare_update(body, base=None, now=NOW, draw=lambda: 7).change_count > 1
    else:
        assert prepare_rdf(body.encode(), media, base=None, contexts=[], draw=lambda: 7).change_count == 2
