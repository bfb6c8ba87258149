"""What ``make rdf4j-differences`` rests on: which answers are the same, and that a list that is not true is a miss."""

from __future__ import annotations

import json

import pyoxigraph as ox
import pytest

from e2e.conformance.rdf4j.binary_tables import read_table
from e2e.conformance.rdf4j.differences import DIFFERENCES_FILE, ServerAnswer, difference, find_unlisted, parse_listed
from e2e.conformance.rdf4j.rdf_formats import binary_document, read_binary, read_rdf_json, read_trix
from e2e.conformance.rdf4j.request_script import STEPS
from e2e.conformance.w3c.result_comparison import JSON


def ok(body: str, media: str = "text/plain") -> ServerAnswer:
    return ServerAnswer(200, media, body.encode())


def bad(body: str, status: int = 400) -> ServerAnswer:
    return ServerAnswer(status, "text/plain", body.encode())


def test_status_type_and_body_are_compared() -> None:
    assert difference(ok("3"), ok("3\n")) == ""
    assert difference(ok("3"), ok("4")) == "body"
    assert difference(ok("3"), bad("3")) == "status 200 / 400"
    assert difference(ServerAnswer(204, "", b""), ServerAnswer(204, "text/plain", b"")) == "", "a type of nothing"
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


_TABLE = (
    b"BRTR\0\0\0\x04\0\0\0\x02\0\0\0\x01a\0\0\0\x01b"
    b"\x04\0\0\0\x05urn:x\0"
    b"\x01\x07\0\0\0\x01v\0\0\0\x02en"
    b"\x09"
    b"\x02\0\0\0\x01\0\0\0\x04urn:\x08\0\0\0\x011\x03\0\0\0\x01\0\0\0\x01t\x06\0\0\0\x01w"
    b"\x7f"
)


def test_a_binary_table_is_read_as_rdf4j_writes_it() -> None:
    found = read_table(_TABLE)
    assert found.variables == {"a", "b"}
    assert [dict(row) for row in found.rows] == [
        {"a": ox.NamedNode("urn:x")},
        {"a": ox.NamedNode("urn:x"), "b": ox.Literal("v", language="en")},
        {},
        {"a": ox.Literal("1", datatype=ox.NamedNode("urn:t")), "b": ox.Literal("w")},
    ]
    for end in range(len(_TABLE)):
        with pytest.raises(ValueError, match=r"cut|no table"):
            read_table(_TABLE[:end])


def test_the_forms_that_only_rdf4j_has_are_read() -> None:
    node = ox.BlankNode("b6e31")
    p, q, f = (ox.NamedNode(f"urn:{letter}") for letter in "pqf")
    wanted = {ox.Quad(node, p, ox.Literal("x\U0001d11e", language="en")), ox.Quad(node, q, node, f)}
    assert set(read_binary(binary_document("n1"))) == wanted
    version_2 = (
        b"BRDF\0\0\0\x02\x05UTF-8\0\x01e\x05urn:e\x02\x02hi\x03\x81\x01\x02\x02n1"
        b"\x01\x06\x81\x01\x01\x05urn:p\x04\x05x\xf0\x9d\x84\x9e\x02en\0\x01\x06\x81\x01\x01\x05urn:q\x06\x81\x01\x01\x05urn:f\x7f"
    )
    assert set(read_binary(version_2)) == wanted
    with pytest.raises(AssertionError, match="cut"):
        list(read_binary(binary_document("n1")[:-1]))
    told = {"_:n1": {"urn:p": [{"type": "literal", "value": "x\U0001d11e", "lang": "en"}],
                     "urn:q": [{"type": "bnode", "value": "_:n1", "graphs": ["urn:f"]}]}}  # fmt: skip
    assert set(read_rdf_json(json.dumps(told).encode())) == wanted
    trix = (
        "<TriX xmlns='http://www.w3.org/2004/03/trix/trix-1/'><graph><triple><id>n1</id><uri>urn:p</uri>"
        "<plainLiteral xml:lang='en'>x\U0001d11e</plainLiteral></triple></graph><graph><uri>urn:f</uri><triple>"
        "<id>n1</id><uri>urn:q</uri><id>n1</id></triple></graph></TriX>"
    )
    assert set(read_trix(trix.encode())) == wanted


def test_of_errors_the_kind_counts_and_not_the_words() -> None:
    assert difference(bad("MALFORMED QUERY: Encountered x"), bad("MALFORMED QUERY: error at 1:2")) == ""
    assert difference(bad("MALFORMED QUERY: x"), bad("MALFORMED DATA: x")) == "error MALFORMED QUERY / MALFORMED DATA"
    assert difference(bad("x", 500), bad("MALFORMED DATA: x")) == "status 500 / 400, error of no kind / MALFORMED DATA"


def test_the_list_is_kept_true() -> None:
    step = STEPS[0]
    same, other = (step, ok("12"), ok("12")), (step, ok("12"), ok("13"))
    assert find_unlisted([same], {}) == []
    assert find_unlisted([other], {step.name: "body"}) == []
    assert "says none" in find_unlisted([other], {})[0]
    assert "no difference" in find_unlisted([same], {step.name: "body"})[0]
    assert find_unlisted([], {"nothing": "body"}) == ["nothing: listed, and no step"]
    with pytest.raises(ValueError, match="says not why"):
        parse_listed("| `x` | body |  |")


def test_the_document_lists_steps_that_there_are() -> None:
    names = [step.name for step in STEPS]
    assert len(set(names)) == len(names)
    assert not parse_listed(DIFFERENCES_FILE.read_text()).keys() - set(names)
    assert f"the same {len(names)} requests" in DIFFERENCES_FILE.read_text()
