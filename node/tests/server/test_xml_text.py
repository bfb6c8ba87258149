"""Carriage returns in XML results, however they are cut into pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from txlog.server.frontdoor.xml_text import keep_carriage_returns, keep_carriage_returns_in_stream

XML = "application/sparql-results+xml; charset=utf-8"
TEXT = b'<?xml?>\r\n<results>\r\n<result><literal xml:lang="a">1\r\n\r2</literal>\r\n</result><uri>x</uri>\r</results>'
WANTED = TEXT.replace(b"1\r\n\r2", b"1&#13;\n&#13;2")


async def cut(text: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(text), size):
        yield text[at : at + size]


def test_only_those_of_literals_are_written_as_references() -> None:
    assert keep_carriage_returns(XML, TEXT) == WANTED
    assert keep_carriage_returns("text/csv", TEXT) == TEXT


@pytest.mark.parametrize("size", range(1, len(TEXT) + 1))
async def test_pieces_of_any_size_give_the_same(size: int) -> None:
    pieces = [piece async for piece in keep_carriage_returns_in_stream(XML, cut(TEXT, size))]
    assert b"".join(pieces) == WANTED


async def test_a_result_that_breaks_off_inside_a_tag_is_passed_on_whole() -> None:
    pieces = [piece async for piece in keep_carriage_returns_in_stream(XML, cut(TEXT[:30], 7))]
    assert b"".join(pieces) == TEXT[:30]
