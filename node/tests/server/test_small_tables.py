"""Tables that a master writes itself, in the form that RDF4J's Java client likes best."""

from __future__ import annotations

import pytest
from aiohttp import web

from txlog.model.errors import NotAcceptable
from txlog.server.frontdoor.tabular_results import table_response

BINARY = "application/x-binary-rdf-results-table"
ROW = [("uri", "urn:a"), ("literal", "é"), ("boolean", "true")]


def test_a_table_in_binary_is_what_rdf4j_writes() -> None:
    answer = table_response(f"text/csv;q=0.8, {BINARY}", ("uri", "id", "readable"), [ROW])
    assert isinstance(answer, web.Response)
    assert answer.content_type == BINARY
    body = answer.body
    assert isinstance(body, bytes)
    # The format's head: its name, version 4, then the columns and their names.
    assert body.startswith(b"BRTR\x00\x00\x00\x04")
    assert b"\x00\x00\x00\x03uri\x00\x00\x00\x02id\x00\x00\x00\x08readable" in body
    assert b"urn:a" in body
    assert "é".encode() in body
    assert b"http://www.w3.org/2001/XMLSchema#boolean" in body
    assert body.endswith(b"\x7f")


def test_a_table_in_no_known_form_is_refused_with_those_there_are() -> None:
    with pytest.raises(NotAcceptable, match=BINARY):
        table_response("image/png", ("uri",), [ROW[:1]])
