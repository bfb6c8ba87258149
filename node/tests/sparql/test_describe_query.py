"""The parts of a DESCRIBE, and how far it goes."""

from __future__ import annotations

import pytest

from txlog.model.errors import TooLarge
from txlog.sparql.rewrite.describe_query import (
    DescribeQuery,
    Description,
    describe_steps,
    parse_describe,
    read_rows,
    statement_queries,
)

NODE = "<urn:txlog:bnode:kept:{}>"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("DESCRIBE <urn:a>", DescribeQuery("", ("<urn:a>",), "", "")),
        (
            "PREFIX u: <urn:> # x\ndescribe u:a ?x FROM u:g FROM NAMED <urn:h> { ?x ?y u:z }",
            DescribeQuery(
                "PREFIX u: <urn:> # x\n",
                ("u:a",),
                "FROM u:g FROM NAMED <urn:h> ",
                "PREFIX u: <urn:> # x\nSELECT DISTINCT ?x FROM u:g FROM NAMED <urn:h> { ?x ?y u:z }",
            ),
        ),
        ("DESCRIBE * WHERE { ?s ?p ?o } LIMIT 1", ("SELECT * WHERE { ?s ?p ?o } LIMIT 1")),
        ("DESCRIBE ?s { SELECT ?s { ?s ?p ?o } LIMIT 1 }", "SELECT DISTINCT ?s { SELECT ?s { ?s ?p ?o } LIMIT 1 }"),
        ("DESCRIBE <urn:a> { ?s ?p ?o }", "ASK { ?s ?p ?o }"),
        ("DESCRIBE <urn:a> LIMIT 1", "ASK { } LIMIT 1"),
        ("DESCRIBE ?x", "ASK { }"),
        ("SELECT * { ?s ?p ?o }", None),
        ("DESCRIBE", None),
        ("DESCRIBE { ?s ?p ?o }", None),
        ("DESCRIBE <urn:a> FROM ?g", None),
    ],
)
def test_it_has_parts(text: str, wanted: DescribeQuery | str | None) -> None:
    found = parse_describe(text)
    assert (found.solutions if found and isinstance(wanted, str) else found) == wanted


def test_more_nodes_than_allowed_are_refused_before_a_statement_is_read() -> None:
    query = parse_describe("DESCRIBE <urn:a>")
    assert query is not None

    def follow(count: int, nodes_max: int) -> Description:
        steps = describe_steps(query, nodes_max)
        text = next(steps)
        for at in range(count):
            assert f"LIMIT {nodes_max + 1}" in text  # also where most of the rows are known nodes
            text = steps.send([{"out": NODE.format(at)}])
        with pytest.raises(StopIteration) as done:
            steps.send([])
        return done.value.value  # type: ignore[no-any-return]

    assert follow(4, 5) == Description(["<urn:a>", *map(NODE.format, range(4))], ["<urn:a>"])
    with pytest.raises(TooLarge, match="describe fewer"):
        follow(5, 5)
    query = query._replace(solutions="SELECT")
    steps = describe_steps(query, 5)
    next(steps)
    with pytest.raises(TooLarge):
        steps.send([{"x": f"<urn:{at}>"} for at in range(5)])


def test_one_query_reads_a_small_description() -> None:
    query = parse_describe("DESCRIBE <urn:a> FROM <urn:g>")
    assert query is not None
    nodes = [f"<urn:{at}>" for at in range(250)]
    [text] = statement_queries(query, Description(nodes, nodes))
    assert text.count("<urn:249>") == 2
    assert "FROM <urn:g>" in text
    assert len(statement_queries(query, Description([*nodes, "<urn:b>"], nodes))) == 2
    assert statement_queries(query, Description([], [])) == [
        "CONSTRUCT { ?s ?p ?o } FROM <urn:g>WHERE { ?s ?p ?o } LIMIT 0"
    ]


def test_rows_hold_what_a_query_can_name() -> None:
    body = b"""{"results": {"bindings": [{"a": {"type": "uri", "value": "urn:a"}, "b": {"type": "bnode", "value": "b"},
    "c": {"type": "literal", "value": "x\\"", "xml:lang": "en"}, "d": {"type": "uri", "value": "no <iri>"},
    "e": {"type": "typed-literal", "value": "1", "datatype": "http://www.w3.org/2001/XMLSchema#integer"}}]}}"""
    number = '"1"^^<http://www.w3.org/2001/XMLSchema#integer>'
    assert read_rows(body) == [{"a": "<urn:a>", "c": '"x\\""@en', "e": number}]
    assert read_rows(b'{"boolean": true}') == [{}]
    assert read_rows(b'{"boolean": false}') == []
