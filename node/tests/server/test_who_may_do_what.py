"""Every route of the door, as everybody who may come: what docs/reference/http-api.md says is what is answered."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from master_cluster import TOKEN, UPDATE, Cluster
from people import PASSWORDS, SECRETS, TOKENS, guarded, raw, users_text

from txlog.auth import Role, is_known_route, required_role, secret_hashes, users_file

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "reference" / "http-api.md"
NAMES: Final = {
    "id": "demo",
    "graph": "g",
    "prefix": "p",
    "transaction": "00000000-0000-4000-8000-000000000000",
    "txid": "uk-9.00000000000000aa.1",
    "name": "nobody",
    "node": "uk-9",
    "view": "9.9.uk-9",
    "file": "none.js",
}
ALWAYS: Final = {
    "/txlog/doorbell": "?timeout=0",
    "/txlog/watch": "?until=now",
    "/repositories/{id}": "?query=ASK%20%7B%7D",
}
"""So that nothing waits."""
STRANGERS: Final = {
    "nobody": None,
    "no scheme": "letmein",
    "another scheme": 'Digest username="writer"',
    "half a password": "Basic !!",
    "no colon": "Basic " + base64.b64encode(b"writer").decode(),
    "a wrong password": "Basic " + base64.b64encode(b"admin:wrong-password-1").decode(),
    "an unknown name": "Basic " + base64.b64encode(b"nobody:" + PASSWORDS["admin"].encode()).decode(),
    "somebody else's password": "Basic " + base64.b64encode(b"admin:" + PASSWORDS["reader"].encode()).decode(),
    "a wrong token": "Bearer txlog_wrong-token-1",
    "a token as a password": "Basic " + base64.b64encode(b"admin:" + TOKENS["admin"].encode()).decode(),
    "a hash as a token": "Bearer " + users_text().split("$sha256$")[1].split()[0],
    "another cluster's peer": "Bearer another-clusters-secret",
    "a peer of this cluster": f"Bearer {TOKEN.decode()}",
}


def documented() -> dict[tuple[str, str], str]:
    """Route to role, as the document says."""
    table = DOCUMENT.read_text().split("## What each route needs")[1].split("\n## ")[0]
    found: dict[tuple[str, str], str] = {}
    for role, routes in re.findall(r"^\| (none|peer|reader|writer|admin) \| (.*) \|$", table, re.MULTILINE):
        for methods, path in re.findall(r"`([A-Z|\\]+) (/[^`]*)`", routes):
            for method in methods.replace("\\", "").split("|"):
                assert (method, path) not in found, f"{method} {path} is there twice"
                found[method, path] = role
    return found


def in_the_document(method: str, path: str) -> tuple[str, str]:
    bare = path.removeprefix("/rdf4j-server").replace("/repositories/demo", "/repositories/{id}")
    return method, bare


@pytest.fixture
async def cluster(clusters: Callable[..., Cluster], tmp_path: Path) -> Cluster:
    cluster = guarded(clusters, tmp_path)
    await cluster.start()
    return cluster


async def ask(cluster: Cluster, method: str, path: str, shown: str | None, body: bytes = b"") -> tuple[int, str, str]:
    """Status, what was challenged, body."""
    asked = re.sub(r"\{(\w+)\}", lambda found: NAMES[found[1]], path)
    query = ALWAYS.get(path.replace("/repositories/demo", "/repositories/{id}").removeprefix("/rdf4j-server"), "")
    headers = {} if shown is None else {"Authorization": shown}
    headers |= UPDATE if method in ("POST", "PUT", "PATCH") else {}
    async with cluster.session.request(method, cluster.url(0, asked + query), data=body, headers=headers) as answer:
        return answer.status, answer.headers.get("WWW-Authenticate", ""), (await answer.read()).decode(errors="replace")


async def test_every_route_is_documented_and_no_other(cluster: Cluster) -> None:
    routes = {in_the_document(route.method, route.path) for route in cluster.app(0).router.routes}
    assert routes == set(documented()), routes ^ set(documented())
    for (method, path), role in documented().items():
        assert is_known_route(method, path), f"{method} {path} stands in no list of auth/route_roles.py"
        if role != "peer":
            assert required_role(method, path) == (None if role == "none" else Role[role.upper()]), (method, path)
    assert required_role("POST", "/txlog/something-new") is Role.ADMIN, (
        "what nobody has thought of is an administrator's"
    )


async def test_strangers_get_in_nowhere(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        users_file, "DUMMY_HASH", secret_hashes.DUMMY_HASH._replace(log2_n=1, r=1, p=1)
    )  # hundreds are asked
    for route in cluster.app(0).router.routes:
        role = documented()[in_the_document(route.method, route.path)]
        for who, shown in STRANGERS.items():
            status, challenge, body = await ask(
                cluster, route.method, route.path, shown, b"INSERT DATA { <a:s> <a:p> 1 }"
            )
            if role == "none":
                bundled = not route.path.startswith("/console")  # the console's files are there after `make console`
                assert status == 200 or (status == 404 and not bundled), (route, who)
                continue
            if role == "peer" and who == "a peer of this cluster":
                assert status == 403, (route, who, body)  # its token is right, its name is not
                continue
            assert status == 401, (route, who, status, body)
            assert challenge.startswith("Basic ") or role == "peer", (route, who)
            assert not [secret for secret in SECRETS if secret in body], (route, who)
    assert cluster.service(0).loop.durability.stable.value == 0, "a refused request wrote"
    told = cluster.logs[0].getvalue()
    assert "WrongCredentials" in told
    assert not [secret for secret in (*SECRETS, "letmein", "wrong-password-1", "wrong-token-1") if secret in told]


@pytest.mark.parametrize("who", ["reader", "writer", "admin"])
@pytest.mark.parametrize("how", ["password", "token"])
async def test_everybody_else_gets_in_where_the_document_says(cluster: Cluster, who: str, how: str) -> None:
    basic = base64.b64encode(f"{who}:{PASSWORDS[who]}".encode()).decode()
    shown = f"Basic {basic}" if how == "password" else f"Bearer {TOKENS[who]}"
    order = ["none", "reader", "writer", "admin"]
    for route in cluster.app(0).router.routes:
        role = documented()[in_the_document(route.method, route.path)]
        status, _, body = await ask(cluster, route.method, route.path, shown)
        if role == "peer":
            assert status == 401, (route, body)
        elif order.index(who) >= order.index(role):
            assert status not in (401, 403, 500), (route, status, body)
        else:
            assert status == 403, (route, status, body)
            assert f"needs {role}" in body
        assert not [secret for secret in SECRETS if secret in body], route
    assert not [secret for secret in (*SECRETS, basic) if secret in cluster.logs[0].getvalue()]


async def test_head_is_asked_as_get(cluster: Cluster) -> None:
    for route in cluster.app(0).router.routes:
        role = documented()[in_the_document(route.method, route.path)]
        if route.method == "GET" and role != "none":
            assert (await ask(cluster, "HEAD", route.path, None))[0] == 401, route


@pytest.mark.parametrize(
    "path",
    [
        "/nothing/here",
        "//txlog/settings",
        "/txlog/settings/",
        "/txlog/./settings",
        "/txlog/%73ettings",
        "/health/../txlog/settings",
        "/health/live/",
        "/rdf4j-server/rdf4j-server/repositories/demo",
        "/TXLOG/settings",
        "/txlog/peer/",
    ],
)
async def test_no_way_of_writing_a_path_leads_around_the_guard(cluster: Cluster, path: str) -> None:
    for method in ("GET", "PATCH", "POST", "OPTIONS", "TRACE"):
        status, _ = await raw(cluster, f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        assert status == 401, (method, path)


async def test_a_method_that_is_not_there_is_not_told_to_strangers(cluster: Cluster) -> None:
    assert (await ask(cluster, "PATCH", "/txlog/status", None))[0] == 401
    assert (await ask(cluster, "PATCH", "/txlog/status", f"Bearer {TOKENS['reader']}"))[0] == 405
    assert (await ask(cluster, "GET", "/txlog/nothing", f"Bearer {TOKENS['reader']}"))[0] == 404


async def test_strangers_do_not_learn_which_repositories_exist(cluster: Cluster) -> None:
    for method, path in (("GET", "/repositories/other/size"), ("PUT", "/repositories/other")):
        assert (await ask(cluster, method, path, None))[0] == 401
        assert (await ask(cluster, method, path, f"Bearer {TOKENS['writer']}"))[0] == (404 if method == "GET" else 405)
    assert (await ask(cluster, "PUT", "/repositories/other", f"Bearer {TOKENS['reader']}"))[0] == 403


async def test_without_users_everybody_gets_in(one: Cluster) -> None:
    for route in one.app(0).router.routes:
        if route.path != "/txlog/peer":
            assert (await ask(one, route.method, route.path, "Bearer whatever"))[0] not in (401, 403), route
