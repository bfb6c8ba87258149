"""A long request delays no other one, nor the messages between masters: the event loop stays free while it is read."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from urllib.parse import urlencode

import pytest
from master_cluster import Cluster

from txlog.server.frontdoor.off_loop import FORM_FIELDS_MAX, OFF_LOOP_SPARQL

STATEMENTS, REPOSITORY, LINES = "/repositories/demo/statements", "/repositories/demo", "/txlog/transactions"
UPDATE, QUERY, FORM = "application/sparql-update", "application/sparql-query", "application/x-www-form-urlencoded"
SHARE_MAX = 1 / 2
"""Of the time of a request, so long at most nothing else is served. If the loop does the work, it is nearly all."""
TRIES = 3
"""Another process may have the processor at the wrong moment. A loop that does the work fails each time."""


def quads(count: int) -> str:
    return "".join(f'<urn:s:{at}> <urn:p> "o{at}" .\n' for at in range(count))


DATA = f"INSERT DATA {{ {quads(60_000)} }}"
DELETES = ";".join(f"DELETE WHERE {{<urn:s:{at}> <urn:p> ?o}}" for at in range(6_000))
VALUES = "SELECT * { VALUES ?a { " + " ".join(f"<urn:s:{at}>" for at in range(60_000)) + " } ?a ?b ?c }"


async def longest_turn(longest: list[float]) -> None:
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.002)
        longest[0] = max(longest[0], time.monotonic() - began)


async def share_of_loop(cluster: Cluster, path: str, media: str, body: bytes) -> tuple[int, float]:
    """The status, and the longest turn of the loop as a share of the whole request."""
    longest = [0.0]
    watching = asyncio.ensure_future(longest_turn(longest))
    began = time.monotonic()
    async with cluster.session.post(cluster.url(0, path), data=body, headers={"Content-Type": media}) as answer:
        await answer.read()
    taken = time.monotonic() - began
    await asyncio.sleep(0.01)  # the watcher measures the last turn, too
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    return answer.status, longest[0] / taken


@pytest.mark.parametrize(
    ("path", "media", "body", "status"),
    [
        (STATEMENTS, UPDATE, DELETES, 204),
        (STATEMENTS, FORM, urlencode({"update": DATA}), 204),
        (LINES, "application/x-ndjson", json.dumps({"update": DELETES}), 200),
        (LINES, "application/x-ndjson", "".join(json.dumps({"update": DELETES[:3000]}) + "\n" for _ in range(80)), 200),
        (REPOSITORY, QUERY, VALUES, 503),  # there is no worker
        (REPOSITORY, FORM, urlencode({"query": VALUES}), 503),
        (STATEMENTS, FORM, f"update=CLEAR+ALL&$a=%22{'%5Cn' * (1 << 19)}%22", 204),
    ],
    ids=["update", "form", "line", "many lines", "query", "form with a query", "form with a value"],
)
async def test_a_long_request_leaves_the_loop_to_others(
    one: Cluster, path: str, media: str, body: str, status: int
) -> None:
    share = 1.0
    for _ in range(TRIES):
        if share >= SHARE_MAX:
            found, share = await share_of_loop(one, path, media, body.encode())
            assert found == status
    assert share < SHARE_MAX, f"{share:.0%} of its time nothing else was served"


async def test_a_long_update_of_a_low_level_leaves_the_fast_path(one: Cluster) -> None:
    """It recognises requests on the loop."""
    body = DELETES.encode()[: 60 << 10].rpartition(b";")[0]
    assert OFF_LOOP_SPARQL < len(body) < 64 << 10
    _, share = await share_of_loop(one, STATEMENTS, UPDATE, body)
    assert share < SHARE_MAX


@pytest.mark.parametrize(("path", "first"), [(STATEMENTS, "update=CLEAR+ALL"), (REPOSITORY, "query=ASK{}")])
async def test_a_form_has_no_more_fields_than_a_master_can_hold(one: Cluster, path: str, first: str) -> None:
    body = first + "&a" * FORM_FIELDS_MAX
    async with one.session.post(one.url(0, path), data=body, headers={"Content-Type": FORM}) as answer:
        assert (answer.status, "fields" in await answer.text()) == (400, True)
    assert one.service(0).loop.durability.log_index == 0, "nothing was logged"


async def test_a_form_accepts_no_more_than_a_header_can(one: Cluster) -> None:
    """Each media type is looked for in those that a master has."""
    body = f"query=ASK{{}}&Accept={',' * (1 << 20)}"
    async with one.session.post(one.url(0, REPOSITORY), data=body, headers={"Content-Type": FORM}) as answer:
        assert (answer.status, "Accept: at most" in await answer.text()) == (400, True)


async def test_long_queries_keep_no_update_waiting(one: Cluster) -> None:
    """A reader must not be able to stop the writers."""
    queries = [asyncio.ensure_future(share_of_loop(one, REPOSITORY, QUERY, VALUES.encode())) for _ in range(7)]
    await asyncio.wait(queries, return_when=asyncio.FIRST_COMPLETED)  # the others are being read, or wait for that
    status, _ = await share_of_loop(one, STATEMENTS, UPDATE, f"INSERT DATA {{ {quads(600)} }}".encode())
    assert (status, sum(query.done() for query in queries) < 4) == (204, True), "the update waited for queries"
    assert {status for status, _ in await asyncio.gather(*queries)} == {503}
