"""How deep a document nests is bounded before its parser sees it."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress

import pytest

from txlog.model.errors import BadInput
from txlog.sparql import hide_system_graphs, prepare_rdf, prepare_update
from txlog.sparql.nesting_limit import (
    JSON_DEPTH_MAX,
    TRIPLE_TERM_DEPTH_MAX,
    XML_DEPTH_MAX,
    check_json_nesting,
    check_triple_term_nesting,
    check_xml_nesting,
)

RDF = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="urn:e:">%s</rdf:RDF>'


def _json(depth: int) -> bytes:
    return ('{"@id":"urn:a","urn:b":' * depth + "1" + "}" * depth).encode()


def _xml(depth: int) -> bytes:
    return (RDF % ("<e:A><e:p>" * depth + "</e:p></e:A>" * depth)).encode()


def _prepare(body: bytes, media_type: str) -> int:
    return prepare_rdf(body, media_type, base="urn:base:", contexts=[], draw=lambda: 1).change_count


def test_json_ld_nests_up_to_its_bound() -> None:
    assert _prepare(_json(JSON_DEPTH_MAX), "application/ld+json") > 0
    with pytest.raises(BadInput, match="MALFORMED DATA: line 1: more than 64 objects and arrays inside one another"):
        _prepare(_json(JSON_DEPTH_MAX + 1), "application/ld+json")
    with pytest.raises(BadInput, match="line 3: more than 64"):
        check_json_nesting(b"\n\n" + b"[" * 65)


def test_rdf_xml_nests_up_to_its_bound() -> None:
    assert _prepare(_xml(XML_DEPTH_MAX // 2 - 1), "application/rdf+xml") > 0
    with pytest.raises(BadInput, match="more than 128 elements inside one another"):
        _prepare(_xml(XML_DEPTH_MAX // 2), "application/rdf+xml")


@pytest.mark.parametrize("media_type", ["text/turtle", "application/trig", "application/n-triples", "text/n3"])
def test_nested_triple_terms_are_refused_by_name(media_type: str) -> None:
    term = "<<( <urn:a> <urn:p> " * 20_000 + "<urn:o>" + " )>>" * 20_000
    with pytest.raises(BadInput, match="more than 16 triples"):
        _prepare(f"<urn:a> <urn:p> {term} .".encode(), media_type)


@pytest.mark.parametrize(
    "text", ["INSERT DATA { <urn:a> <urn:p> %s }", "DELETE WHERE { ?s ?p %s }", "ASK { ?s ?p %s }"]
)
def test_nested_triple_terms_of_sparql_are_refused_by_name(text: str) -> None:
    """Some thousand of them overflowed the stack of the parser, in this process or in a store."""

    def prepare(depth: int) -> None:
        made = text % ("<<( <urn:a> <urn:p> " * depth + "1" + " )>>" * depth)
        if text.startswith("ASK"):
            hide_system_graphs(made)
        else:
            prepare_update(made, base=None, now="2026-01-01T00:00:00Z", draw=lambda: 1)

    prepare(TRIPLE_TERM_DEPTH_MAX)
    for depth in (TRIPLE_TERM_DEPTH_MAX + 1, 20_000):
        with pytest.raises(BadInput, match=r"MALFORMED QUERY: error at 1:[0-9]+: more than 16 triples"):
            prepare(depth)


def test_the_body_that_ended_a_master() -> None:
    """84 kB of it overflowed the parser's stack after ten seconds: so another process reads it here."""
    code = (
        "import sys; from txlog.sparql import prepare_rdf; from txlog.model.errors import BadInput\n"
        "try: prepare_rdf(sys.stdin.buffer.read(), 'application/ld+json', base=None, contexts=[], draw=lambda: 1)\n"
        "except BadInput as refused: print(refused.status, refused)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=_json(3500), capture_output=True, timeout=60, check=True)
    assert done.stdout.startswith(b"400 MALFORMED DATA: line 1: more than 64 objects and arrays")


def test_brackets_inside_text_do_not_count() -> None:
    check_json_nesting(b'{"a": "' + b"[{" * 500 + b'\\"' + b"[" * 500 + b'", "b": [1, {}]}')
    check_json_nesting(b"[" + b"[[]]," * 500 + b"1]")
    check_xml_nesting(b"<a><!-- " + b"<b>" * 500 + b" --><![CDATA[" + b"<b>" * 500 + b"]]></a>")
    check_xml_nesting(b"<a>" + b"<b c=\"/>\" d='<e>'/><f></f>" * 500 + b"</a>")
    check_triple_term_nesting(b'<urn:a> <urn:p> "' + b"<<( " * 500 + b'" .')
    check_triple_term_nesting(b"# " + b"<<( " * 500 + b"\n")


@pytest.mark.parametrize(
    "piece", [b'"', b'"\\', b"[", b"<", b"<!--", b"<![CDATA[", b"<a b='", b'<a b="', b"<?", b"<<(", b"'''"]
)
def test_the_scans_take_linear_time(piece: bytes) -> None:
    body = piece * (1_000_000 // len(piece))
    started = time.process_time()
    for check in (check_json_nesting, check_xml_nesting, check_triple_term_nesting):
        with suppress(BadInput):
            check(body)
    assert time.process_time() - started < 10
