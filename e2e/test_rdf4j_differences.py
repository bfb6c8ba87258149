"""What ``make rdf4j-differences`` rests on: which answers are the same, and that a list that is not true is a miss."""

from __future__ import annotations

import io

import pyoxigraph as ox
import pytest

from e2e.rdf4j.differences import LISTED, Said, difference, listed, unlisted
from e2e.rdf4j.script import STEPS
from e2e.rdf4j.tables import read_table
from e2e.w3c.results import JSON
from txlog.sparql.binary import write_table


def ok(body: str, media: str = "text/plain") -> Said:
    return Said(200, media, body.encode())


def bad(body: str, status: int = 400) -> Said:
    return Said(status, "text/plain", body.encode())


def test_status_type_and_body_are_compared() -> None:
    assert difference(ok("3"), ok("3\n")) == ""
    assert difference(ok("3"), ok("4")) == "body"
    assert difference(ok("3"), bad("3")) == "status 200 / 400"
    assert difference(Said(204, "", b""), Said(204, "text/plain", b"")) == "", "a type of nothing"
    rows = '{"head":{"vars":["a"]},"results":{"bindings":[%s]}}'
    row = '{"a":{"type":"uri","value":"urn:%s"}}'
    one, two = row % "x", row % "y"
    assert difference(ok(rows % f"{one},{two}", JSON), ok(rows % f"{two},{one}", JSON)) == ""
    assert difference(ok(rows % one, JSON), ok(rows % two, JSON)) == "body"
    assert difference(ok("a\r\nurn:x\r\n", "text/csv"), ok(rows % one, JSON)) == f"type text/csv / {JSON}, body"


def test_graphs_are_compared_by_what_they_say() -> None:
    turtle = ok("@prefix e: <urn:> . e:a e:b [ e:c 1 ] .", "text/turtle")
    other = ok("<urn:a> <urn:b> _:x . _:x <urn:c> 1 .", "text/turtle")
    assert difference(turtle, other) == ""
    assert difference(turtle, ok("<urn:a> <urn:b> _:x . _:y <urn:c> 1 .", "text/turtle")) == "body"


def test_a_binary_table_says_what_the_same_in_json_says() -> None:
    cell, name, one = ox.Literal("v", language="en"), ox.NamedNode("urn:x"), ox.Literal("1")
    rows: list[list[object]] = [[name, None], [name, cell], [None, None], [one, cell]]
    out = io.BytesIO()
    write_table(["a", "b"], rows, out)
    found = read_table(out.getvalue())
    assert found.variables == {"a", "b"}
    assert [dict(row) for row in found.rows] == [
        {"a": name},
        {"a": name, "b": cell},
        {},
        {"a": one, "b": cell},
    ]
    for end in range(len(out.getvalue())):
        with pytest.raises(ValueError, match=r"cut|no table"):
            read_table(out.getvalue()[:end])


def test_of_errors_the_kind_counts_and_not_the_words() -> None:
    assert difference(bad("MALFORMED QUERY: Encountered x"), bad("MALFORMED QUERY: error at 1:2")) == ""
    assert difference(bad("MALFORMED QUERY: x"), bad("MALFORMED DATA: x")) == "error MALFORMED QUERY / MALFORMED DATA"
    assert difference(bad("x", 500), bad("MALFORMED DATA: x")) == "status 500 / 400, error of no kind / MALFORMED DATA"


def test_the_list_is_kept_true() -> None:
    step = STEPS[0]
    same, other = (step, ok("12"), ok("12")), (step, ok("12"), ok("13"))
    assert unlisted([same], {}) == []
    assert unlisted([other], {step.name: "body"}) == []
    assert "says none" in unlisted([other], {})[0]
    assert "no difference" in unlisted([same], {step.name: "body"})[0]
    assert unlisted([], {"nothing": "body"}) == ["nothing: listed, and no step"]
    with pytest.raises(ValueError, match="says not why"):
        listed("| `x` | body |  |")


def test_the_document_lists_steps_that_there_are() -> None:
    names = [step.name for step in STEPS]
    assert len(set(names)) == len(names)
    assert not listed(LISTED.read_text()).keys() - set(names)
    assert f"the same {len(names)} requests" in LISTED.read_text()
