"""Users whose roles are for named repositories, at a master with two of them: every route, and all else is refused."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest
from master_cluster import Cluster, until
from people import OWN, bearer, raw, users_text
from test_repository_config import OLD
from test_several_repositories import LIST, TURTLE, all_open, start_all
from test_who_may_do_what import ALWAYS, NAMES, documented, in_the_document

from txlog.auth import Scope, hash_token, route_scope
from txlog.config.process_config import NodeConfig
from txlog.server.startup_files import BadStart, load_authenticator
from txlog.telemetry.event_log import EventLog

LIMITED: Final = {
    "ann": "reader:stock",
    "bob": "writer:stock",
    "eve": "admin:stock",
    "cat": "writer:demo",
    "dan": "reader,writer:stock",
}
QUAD: Final = b"<urn:s> <urn:p> <urn:o> .\n"
ORDER: Final = ("reader", "writer", "admin")


def token(who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer txlog_token-of-{who}"}


def limited_users() -> str:
    lines = [f"{name} {rights} {hash_token(f'txlog_token-of-{name}')}" for name, rights in LIMITED.items()]
    return "\n".join([users_text(), *lines, ""])


def guarded_further(clusters: Callable[..., Cluster], folder: Path, count: int = 1) -> Cluster:
    (folder / "users").write_text(limited_users())
    (folder / "own-token").write_text(OWN + "\n")
    files = {"users_file": str(folder / "users"), "own_token_file": str(folder / "own-token")}
    return clusters(count, **files, repositories={"create": "anybody"})


async def send(
    cluster: Cluster, who: str, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, str]:
    async with cluster.session.request(
        method, cluster.url(0, path), data=body, headers={**token(who), **headers}
    ) as answer:
        return answer.status, (await answer.read()).decode(errors="replace")


async def make(cluster: Cluster, name: str) -> None:
    async with cluster.session.put(cluster.url(0, f"{LIST}/{name}"), headers=bearer("admin")) as answer:
        assert answer.status == 201, await answer.text()


@pytest.fixture
async def guarded_two(clusters: Callable[..., Cluster], tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = guarded_further(clusters, tmp_path)
    await start_all(cluster)
    await make(cluster, "stock")
    await all_open(cluster)
    yield cluster
    assert cluster.ended == []


def expected(who: str, method: str, path: str, repository: str) -> bool:
    """Whether the user may do what the route of this repository does, as the reference and the rights say."""
    role = documented()[in_the_document(method, path)]
    whole, _, named = LIMITED[who].rpartition(",")
    have = [whole] if whole else []
    label, _, of = named.partition(":")
    scope = route_scope(method, path, repository)
    if scope is Scope.ANY_REPOSITORY or scope == of:
        have.append(label)
    return any(ORDER.index(each) >= ORDER.index(role) for each in have)


@pytest.mark.parametrize("who", list(LIMITED))
@pytest.mark.parametrize("repository", ["demo", "stock"])
async def test_each_route_of_a_repository_is_for_who_has_a_role_there(
    guarded_two: Cluster, who: str, repository: str
) -> None:
    documents = documented()
    for (method, route), role in documents.items():
        if role in ("none", "peer") or not route.startswith(("/repositories/{id}", "/txlog/")):
            continue
        if route == "/txlog/openapi.json" or (method, route) == ("DELETE", "/repositories/{id}"):
            continue
        about = route.replace("/repositories/{id}", f"/repositories/{repository}")
        if route.startswith("/txlog/"):
            about = route.replace("/txlog/", f"{LIST}/{repository}/", 1)
        asked = re.sub(r"\{(\w+)\}", lambda found: NAMES[found[1]], about) + ALWAYS.get(route, "")
        for path in (asked, f"/rdf4j-server{asked}") if route.startswith("/repositories") else (asked,):
            status, body = await send(guarded_two, who, method, path, b"x")
            if expected(who, method, route, repository):
                assert status not in (401, 403, 500), (method, path, status, body)
            else:
                assert (status, f"needs {role}" in body) == (403, True), (method, path, status, body)


async def test_paths_without_a_name_are_about_the_first_repository(guarded_two: Cluster) -> None:
    for who, status in (("cat", 200), ("dan", 200), ("ann", 403), ("eve", 403)):
        assert (await send(guarded_two, who, "GET", "/txlog/status"))[0] == status, who
    assert (await send(guarded_two, "eve", "GET", "/txlog/log"))[0] == 403
    assert (await send(guarded_two, "eve", "GET", f"{LIST}/stock/log"))[0] == 200
    status, body = await send(guarded_two, "cat", "GET", "/metrics")
    assert (status, "needs reader of all repositories" in body) == (403, True), "they are about every repository"
    assert (await send(guarded_two, "dan", "GET", "/metrics"))[0] == 200
    for path in (f"{LIST}/system/status", f"{LIST}/system/log"):
        assert (await send(guarded_two, "eve", "GET", path))[0] == 403


async def test_only_administrators_of_the_cluster_make_and_remove_repositories(guarded_two: Cluster) -> None:
    for who in LIMITED:
        for method in ("PUT", "DELETE"):
            for name in ("stock", "other"):
                assert (await send(guarded_two, who, method, f"{LIST}/{name}"))[0] == 403, (who, method, name)
        assert (await send(guarded_two, who, "DELETE", "/repositories/stock"))[0] == 403
        other = OLD.replace('"stock"', '"other"').encode()
        assert (await send(guarded_two, who, "PUT", "/repositories/other", other, **TURTLE))[0] == 403
    assert (await send(guarded_two, "bob", "PUT", "/repositories/stock", OLD.encode(), **TURTLE))[0] == 409
    found = json.loads((await send(guarded_two, "dan", "GET", LIST))[1])
    assert [each["name"] for each in found["repositories"]] == ["demo", "stock"]


async def test_lists_show_what_a_user_may_read(guarded_two: Cluster) -> None:
    json_rows = {"Accept": "application/sparql-results+json"}
    for who, names, writable in (
        ("ann", ["stock"], ["false"]),
        ("bob", ["stock"], ["true"]),
        ("cat", ["demo"], ["true"]),
        ("dan", ["demo", "stock"], ["false", "true"]),
    ):
        for prefix in ("", "/rdf4j-server"):
            rows = json.loads((await send(guarded_two, who, "GET", f"{prefix}/repositories", **json_rows))[1])
            found = rows["results"]["bindings"]
            assert [row["id"]["value"] for row in found] == names, who
            assert [row["writable"]["value"] for row in found] == writable, who
        told = json.loads((await send(guarded_two, who, "GET", LIST))[1])
        assert [each["name"] for each in told["repositories"]] == names, who
        assert told["nextLog"] == (3 if len(names) == 2 else 0), "a list with gaps proves no removal"
    assert (await send(guarded_two, "ann", "GET", f"{LIST}/stock"))[0] == 200
    for name in ("demo", "none"):
        status, body = await send(guarded_two, "ann", "GET", f"{LIST}/{name}")
        assert (status, f"needs reader of {name}" in body) == (403, True), body
    assert (await send(guarded_two, "ann", "GET", "/protocol"))[0] == 200


async def test_a_name_that_is_not_there_looks_like_one_that_is(guarded_two: Cluster) -> None:
    for path in ("size", "statements"):
        answers = {(await send(guarded_two, "ann", "GET", f"/repositories/{name}/{path}"))[0] for name in ("demo", "x")}
        assert answers == {403}
    assert (await send(guarded_two, "ann", "GET", f"{LIST}/x/duties/stock"))[0] == 403, "the name is not the duty's"
    status, body = await send(guarded_two, "dan", "GET", "/repositories/x/size")
    assert (status, "demo, stock" in body) == (404, True)
    for path in ("/repositories/%2A/size", "/repositories/*/size", "/repositories/stock%2Fx/size"):
        assert (await send(guarded_two, "ann", "GET", path))[0] == 403, path
    assert (await send(guarded_two, "ann", "GET", "/repositories/s%74ock/namespaces"))[0] != 403, "the same name"


def plain(who: str, name: str, method: str = "POST") -> bytes:
    lines = "".join(f"{key}: {value}\r\n" for key, value in token(who).items())
    if method == "GET":
        target = f"/repositories/{name}?query=ASK%20%7B%7D"
        return f"GET {target} HTTP/1.1\r\nHost: x\r\nAccept: text/boolean\r\n{lines}\r\n".encode()
    head = f"POST /repositories/{name}/statements HTTP/1.1\r\nHost: x\r\nContent-Type: application/n-quads\r\n{lines}"
    return f"{head}TxLog-Durability: accepted\r\nContent-Length: {len(QUAD)}\r\n\r\n".encode() + QUAD


async def test_the_fast_path_asks_about_the_repository(guarded_two: Cluster) -> None:
    def stable(number: int) -> int:
        return guarded_two.app(0).logs[number].loop.durability.stable.value

    for who, name in (("bob", "demo"), ("cat", "stock"), ("ann", "stock"), ("dan", "demo")):
        for _ in range(2):
            status, body = await raw(guarded_two, plain(who, name))
            assert (status, f"needs writer of {name}".encode() in body) == (403, True), (who, name)
    assert (await raw(guarded_two, plain("ann", "demo", "GET")))[0] == 403
    assert (await raw(guarded_two, plain("ann", "stock", "GET")))[0] == 503, "no worker, and no refusal"
    assert (stable(0), stable(2)) == (0, 0), "a refused request wrote"
    for who, name, number in (("bob", "stock", 2), ("cat", "demo", 0), ("dan", "stock", 2)):
        before = stable(number)
        assert (await raw(guarded_two, plain(who, name)))[0] in (202, 204)
        await until(lambda number=number, before=before: stable(number) == before + 1)


async def test_one_connection_does_not_lend_a_role_to_the_next_request(guarded_two: Cluster) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", guarded_two.ports[0])

    async def ask(request: bytes) -> int:
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await reader.readexactly(int(line.split(b":")[1]))
        return int(head.split()[1])

    try:
        statuses = [await ask(plain(who, name)) for who in ("bob", "cat") for name in ("stock", "demo") * 2]
    finally:
        writer.close()
    assert [each in (202, 204) for each in statuses] == [True, False, True, False, False, True, False, True]


async def test_rights_that_change_count_for_the_next_request(guarded_two: Cluster, tmp_path: Path) -> None:
    assert (await send(guarded_two, "ann", "GET", f"{LIST}/stock/status"))[0] == 200
    (tmp_path / "users").write_text(limited_users().replace("ann reader:stock", "ann reader:demo"))

    async def is_moved() -> bool:
        statuses = [(await send(guarded_two, "ann", "GET", f"{LIST}/{name}/status"))[0] for name in ("demo", "stock")]
        return statuses == [200, 403]

    await until(is_moved)


async def test_rights_are_by_name_and_outlive_the_repository(guarded_two: Cluster) -> None:
    async with guarded_two.session.delete(guarded_two.url(0, f"{LIST}/stock"), headers=bearer("admin")) as answer:
        assert answer.status == 204
    await until(lambda: 2 not in guarded_two.app(0).logs)

    async def is_gone() -> bool:
        return "unknown repository stock" in (await send(guarded_two, "dan", "GET", "/repositories/stock/size"))[1]

    await until(is_gone)
    assert (await send(guarded_two, "bob", "GET", "/repositories/stock/size"))[0] == 404
    assert (await send(guarded_two, "cat", "GET", "/repositories/stock/size"))[0] == 403
    await make(guarded_two, "stock")
    await all_open(guarded_two, number=3)
    assert (await send(guarded_two, "bob", "GET", f"{LIST}/stock/status"))[0] == 200


async def test_a_master_without_further_repositories_takes_no_such_roles(
    clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    config = guarded_further(clusters, tmp_path).configs[0]
    log = EventLog("uk-1", io.StringIO())
    assert load_authenticator(NodeConfig.model_validate(config), log) is not None
    del config["repositories"]
    with pytest.raises(BadStart, match="is a preview"):
        load_authenticator(NodeConfig.model_validate(config), log)
