"""A page of another web site makes a browser send something, to a door that asks nobody who they are."""

from __future__ import annotations

import re

import pytest
from master_cluster import UPDATE, Cluster
from people import raw
from test_who_may_do_what import NAMES

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
INSERT = "INSERT DATA { <urn:s> <urn:p> 1 }"
QUAD = b'<urn:s> <urn:p> "o" .\n'


@pytest.mark.parametrize(
    "told", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
async def test_it_changes_nothing_on_any_route(one: Cluster, told: dict[str, str]) -> None:
    changing = [route for route in one.app(0).router.routes if route.method not in ("GET", "HEAD", "OPTIONS")]
    assert len(changing) > 20
    for route in changing:
        path = re.sub(r"\{(\w+)\}", lambda found: NAMES[found[1]], route.path)
        async with one.session.request(
            route.method, one.url(0, path), data=INSERT, headers={**UPDATE, **told}
        ) as answer:
            assert answer.status == 403, route
            assert "another web site" in await answer.text()
    form = {**FORM, **told}
    async with one.session.post(
        one.url(0, "/repositories/demo/statements"), data={"update": INSERT}, headers=form
    ) as answer:
        assert answer.status == 403
    assert one.service(0).loop.durability.stable.value == 0


async def test_its_own_pages_and_everybody_else_go_on(one: Cluster) -> None:
    url = one.url(0, "/repositories/demo/statements")
    for told in ({}, {"Origin": f"http://127.0.0.1:{one.ports[0]}"}, {"Sec-Fetch-Site": "same-origin"}):
        async with one.session.post(url, data=INSERT, headers={**UPDATE, **told}) as answer:
            assert answer.status == 204, told
    assert one.service(0).loop.durability.stable.value == 3


@pytest.mark.parametrize("told", ["Origin: https://evil.example", "ORIGIN:null", "sec-fetch-site: cross-site"])
async def test_the_short_way_does_not_lead_around_it(one: Cluster, told: str) -> None:
    head = (
        "POST /repositories/demo/statements HTTP/1.1\r\nHost: x\r\nContent-Type: application/n-quads\r\n"
        f"{told}\r\nContent-Length: {len(QUAD)}\r\n\r\n"
    )
    status, _ = await raw(one, head.encode() + QUAD)
    assert status == 403
    assert one.service(0).loop.durability.stable.value == 0
