"""Heads that are found by what they share with another one are what they are by themselves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.server.frontdoor.fast_path import FastPath, FastPathLog
from txlog.server.frontdoor.plain_queries import PlainReadHead

PATH = b"/repositories/demo"
IRIS = st.sampled_from(
    [
        *(
            "urn:a",
            "urn:b",
            "http://x.example/b",
            "https://y.example/c#d",
            "http://x.example/?q=1",
            "urn:x-arq:Default",
        ),
        *("http://www.w3.org/2001/XMLSchema#int", "urn:txlog:e", "urn:%C5%BC", "f", "http://x.example/a%20b"),
    ]
)
TEXTS = st.sampled_from(
    [
        "SELECT * {{ <{0}> <{1}> ?o }}",
        "SELECT * {{ <{0}> <{1}> <{0}> }}",
        "SELECT * FROM <{0}> {{ ?s ?p <{1}> FILTER(?s<3&&?o>4) }}",
        "PREFIX p: <{0}> SELECT * {{ p:x <{1}> ?o }}",
        "SELECT * {{ <<{0}> <{1}> ?o }}",
        "ASK {{ ?s ?p '%3Curn:c%3E', <{0}>, '+<{1}>' }}",
    ]
)
TAILS = st.sampled_from(["", "&infer=true", "&%24s=%3Curn%3Aa%3E", "&default-graph-uri=urn%3Aa"])
HEADERS = st.sampled_from(["", "\r\nReferer: /x?q=%3Curn%3Aa%3E", "\r\nAuthorization: Bearer %3Curn:a%3E"])


def fast_path() -> FastPath:
    found = FastPath(60.0, asyncio.Protocol)
    found._read_logs = {PATH: cast(FastPathLog, SimpleNamespace(name="demo"))}
    return found


def head(text: str, iris: tuple[str, str], tail: str, headers: str) -> bytes:
    query = quote(text.format(*iris), safe="/:")
    return f"GET {PATH.decode()}?query={query}{tail} HTTP/1.1\r\nHost: x{headers}".encode()


def content(found: tuple[object, FastPathLog] | None) -> object:
    if found is None:
        return None
    read = found[0]
    assert isinstance(read, PlainReadHead)
    return read.read, read.accept, read.authorization, read.min_position, read.coding, read.content_length


@given(
    text=TEXTS,
    tail=TAILS,
    headers=HEADERS,
    first=st.tuples(IRIS, IRIS),
    others=st.lists(st.tuples(IRIS, IRIS), min_size=1, max_size=6),
)
def test_a_head_is_the_same_after_others(
    text: str, tail: str, headers: str, first: tuple[str, str], others: list[tuple[str, str]]
) -> None:
    knowing = fast_path()
    for iris in (first, *others):
        asked = head(text, iris, tail, headers)
        assert content(knowing.parse_head(asked)) == content(fast_path().parse_head(asked))


def test_heads_that_differ_in_ordinary_iris_are_recognised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    knowing, parsed = fast_path(), []
    for at in range(4):
        asked = head(
            "SELECT * { <{0}> <{1}> ?o }".replace("{ ", "{{ ").replace(" }", " }}"), (f"urn:{at}", "urn:p"), "", ""
        )
        parsed.append(content(knowing.parse_head(asked)))
    assert len(knowing._templates) == 1
    assert len({str(each) for each in parsed}) == 4


def test_an_iri_in_another_parameter_belongs_to_no_template() -> None:
    """Its value is a part of what was recognised."""
    knowing = fast_path()
    text = "SELECT * {{ ?s <{0}> ?o }}"
    for name in ("a", "b"):
        asked = head(text, (f"urn:{name}", ""), f"&%24s=%3Curn%3A{name}%3E", "")
        assert content(knowing.parse_head(asked)) == content(fast_path().parse_head(asked))
    assert not knowing._templates


def test_credentials_belong_to_what_heads_share() -> None:
    knowing = fast_path()
    for token in ("%3Curn:a%3E", "%3Curn:b%3E"):
        found = knowing.parse_head(
            head("SELECT * {{ ?s <{0}> ?o }}", ("urn:a", ""), "", f"\r\nAuthorization: Bearer {token}")
        )
        assert found is not None
        assert isinstance(found[0], PlainReadHead)
        assert found[0].authorization == f"Bearer {token}"
