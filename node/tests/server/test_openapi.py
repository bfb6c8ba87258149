"""The API's own document: every route and no other, and what masters really answer is what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest
from master_cluster import Cluster
from test_following_the_log import every_kind

from txlog.http.router import API_HEADER, API_VERSION
from txlog.server.admin.openapi import build_document

NOTHING: Final = "0" * 32


def operation(method: str, path: str) -> dict[str, Any]:
    return dict(build_document()["paths"][path][method.lower()])


def check(value: Any, schema: dict[str, Any]) -> None:
    """``$ref`` as the document has it."""
    whole = {**schema, "components": build_document()["components"]}
    jsonschema_rs.Draft202012Validator(whole).validate(value)


async def asked(
    cluster: Cluster, method: str, path: str, route: str, body: Any = None, status: int = 200, **headers: str
) -> Any:
    """The answer, which the document must allow."""
    data = body if isinstance(body, str | None) else json.dumps(body)
    async with cluster.session.request(method, cluster.url(0, path), data=data, headers=headers) as answer:
        text = (await answer.read()).decode()
        assert answer.status == status, (answer.status, text)
        assert answer.headers[API_HEADER] == API_VERSION
        said = operation(method, route)["responses"]
        found = said.get(str(status), said["default"])["content"]
        assert answer.content_type in found, (answer.content_type, list(found))
        if answer.content_type != "application/json":
            return text
        told = json.loads(text)
        check(told, found["application/json"]["schema"])
        return told


async def test_every_route_is_in_the_document_and_no_other(one: Cluster) -> None:
    routes = {(route.method, route.path) for route in one.app(0).router.routes if route.path.startswith("/txlog/")}
    said = {(method.upper(), path) for path, found in build_document()["paths"].items() for method in found}
    assert routes == said, routes ^ said
    assert len({found["operationId"] for path in build_document()["paths"].values() for found in path.values()}) == len(
        said
    )


def test_the_page_about_the_api_names_every_route_and_no_other() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "http-api.md").read_text()
    section = page.partition("\n## Admin API\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([A-Z]+) (/txlog/[^`]+)`", section))
    assert named == {(method.upper(), path) for path, found in build_document()["paths"].items() for method in found}


async def test_the_document_is_one(one: Cluster) -> None:
    told = await asked(one, "GET", "/txlog/openapi.json", "/txlog/openapi.json")
    assert told == build_document()
    assert told["info"]["version"] == API_VERSION
    assert re.fullmatch(r"3\.1\.\d", told["openapi"])
    for schema in told["components"]["schemas"].values():
        assert jsonschema_rs.meta.is_valid(schema)
    names = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(told)))
    assert names <= set(told["components"]["schemas"])


async def test_answers_are_what_it_says(one: Cluster) -> None:
    await every_kind(one)
    status = await asked(one, "GET", "/txlog/status", "/txlog/status")
    stable = status["stable"]
    page = await asked(one, "GET", "/txlog/log?after=0", "/txlog/log", Accept="application/json")
    for path in ("doorbell", "workers", "duties", "splits", "branch", "branches", "settings", "configuration", "peers"):
        await asked(one, "GET", f"/txlog/{path}{'?timeout=0' * (path == 'doorbell')}", f"/txlog/{path}")
    lines = await asked(one, "GET", "/txlog/watch?from=0&until=now", "/txlog/watch", Accept="application/x-ndjson")
    for line in lines.splitlines():
        check(json.loads(line), {"$ref": "#/components/schemas/FeedEvent"})
    txid = page["entries"][0]["txid"]
    await asked(one, "GET", f"/txlog/transactions/{txid}?wait=1&durability=synced", "/txlog/transactions/{txid}")
    told = await asked(
        one,
        *("POST", "/txlog/transactions", "/txlog/transactions"),
        '{"update": "CLEAR ALL"}\n{"update": "nonsense"}\n',
        **{"TxLog-Durability": "synced"},
    )
    assert [sorted(json.loads(line)) for line in told.splitlines()] == [
        ["durability", "position", "txid"],
        ["error", "message"],
    ]
    worker = {"name": "w-1", "url": "http://127.0.0.1:1"}
    await asked(one, "POST", "/txlog/workers", "/txlog/workers", worker)
    place = {"epoch": 1, "index": stable["index"], "hash": stable["hash"], "fence": 0}
    report = {"position": place, "state": "Working"}
    await asked(one, "POST", "/txlog/workers/w-1", "/txlog/workers/{name}", report)
    await asked(one, "PUT", "/txlog/holds/w-1", "/txlog/holds/{name}", {"index": 3})
    assert (await asked(one, "GET", "/txlog/workers", "/txlog/workers"))["workers"][0]["hold"] == 3
    await asked(one, "DELETE", "/txlog/holds/w-1", "/txlog/holds/{name}")
    await asked(one, "DELETE", "/txlog/workers/w-1?timeout=0", "/txlog/workers/{name}")
    backups = {"backups": [{"name": "b", "index": stable["index"], "hash": stable["hash"]}]}
    await asked(one, "POST", "/txlog/backups", "/txlog/backups", backups)
    await asked(one, "POST", f"/txlog/skip/{txid}", "/txlog/skip/{txid}", {"reason": "a test"})
    await asked(one, "PATCH", "/txlog/settings", "/txlog/settings", {"maxPeerLag": "31s"})
    await asked(one, "PATCH", "/txlog/configuration", "/txlog/configuration", {"keyRetention": "25h"})
    await asked(one, "PATCH", "/txlog/peers/uk-1", "/txlog/peers/{node}", {"weight": 2})


@pytest.mark.parametrize(
    ("method", "path", "route", "body", "status"),
    [
        ("GET", "/txlog/log?after=x", "/txlog/log", None, 400),
        ("GET", "/txlog/watch?from=x", "/txlog/watch", None, 400),
        ("GET", f"/txlog/watch?from=0:{NOTHING}", "/txlog/watch", None, 409),
        ("GET", "/txlog/branches/9.9.uk-9", "/txlog/branches/{view}", None, 404),
        ("GET", "/txlog/transactions/uk-9.00000000000000aa.1", "/txlog/transactions/{txid}", None, 404),
        ("GET", "/txlog/duties/x", "/txlog/duties/{id}", None, 404),
        ("POST", "/txlog/duties/x", "/txlog/duties/{id}", {"state": "failed"}, 404),
        ("POST", "/txlog/duties/x", "/txlog/duties/{id}", {"state": 1}, 400),
        ("POST", "/txlog/views", "/txlog/views", {"without": ["uk-9"]}, 404),
        ("POST", "/txlog/found", "/txlog/found", {"members": ["uk-1"]}, 409),
        ("POST", "/txlog/members/uk-9/down", "/txlog/members/{node}/down", {"birth": "0" * 16, "start": 1}, 404),
        ("DELETE", "/txlog/peers/uk-9", "/txlog/peers/{node}", None, 404),
        ("POST", "/txlog/workers", "/txlog/workers", {"name": "w"}, 400),
    ],
)
async def test_refusals_are_what_it_says(
    one: Cluster, method: str, path: str, route: str, body: Any, status: int
) -> None:
    await asked(one, method, path, route, body, status)


async def test_what_is_no_route_says_the_version_too(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1)
    await cluster.start()
    for method, path, status in (("GET", "/txlog/nothing", 404), ("PUT", "/txlog/status", 405)):
        async with cluster.session.request(method, cluster.url(0, path)) as answer:
            assert (answer.status, answer.headers[API_HEADER]) == (status, API_VERSION)
    async with cluster.session.get(cluster.url(0, "/protocol")) as answer:
        assert API_HEADER not in answer.headers
