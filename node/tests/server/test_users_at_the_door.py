"""Users at a master: the short way asks too, files change while it runs, passwords cost little, nothing is told."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError

import pytest
from aiohttp import ClientError
from master_cluster import Cluster, until
from people import OWN, PASSWORDS, SECRETS, TOKENS, basic, bearer, guarded, quick_hash, raw, users_text
from SPARQLWrapper import SPARQLWrapper
from SPARQLWrapper.SPARQLExceptions import Unauthorized

from txlog.auth import hash_token
from txlog.auth.authenticator import PASSWORD_CHECKS_MAX
from txlog.auth.users_file import UserDatabase
from txlog.config.process_config import NodeConfig
from txlog.server.disk_full_mode import DiskFullMode
from txlog.server.startup_files import BadStart, load_authenticator
from txlog.telemetry.event_log import EventLog

STATEMENTS = "/repositories/demo/statements"
QUAD = b'<urn:s> <urn:p> "o" .\n'


@pytest.fixture
async def cluster(clusters: Callable[..., Cluster], tmp_path: Path) -> Cluster:
    cluster = guarded(clusters, tmp_path)
    await cluster.start()
    return cluster


def plain(shown: dict[str, str]) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, value in shown.items()]
    head = f"POST {STATEMENTS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/n-quads\r\n{''.join(lines)}"
    return f"{head}Content-Length: {len(QUAD)}\r\n\r\n".encode() + QUAD


def beside(shown: dict[str, str]) -> dict[str, str]:
    """As who comes through a proxy that keeps the other header shows it."""
    return {"TxLog-Authorization": shown["Authorization"]}


async def test_who_comes_through_a_proxy_that_keeps_authorization_shows_it_beside(cluster: Cluster) -> None:
    for shown, expected in (
        (beside(bearer("writer")), 204),
        (beside(basic("writer", PASSWORDS["writer"])), 204),
        (beside(bearer("reader")), 403),
        ({"TxLog-Authorization": "Bearer wrong"}, 401),
        # One that is sent counts alone: what stands beside it lends nobody another role.
        ({**bearer("reader"), **beside(bearer("admin"))}, 403),
        ({"Authorization": "Bearer wrong", **beside(bearer("admin"))}, 401),
    ):
        status, _ = await raw(cluster, plain(shown))
        assert status == expected, shown
    status, _ = await raw(cluster, b"GET /nowhere HTTP/1.1\r\nHost: x\r\nTxLog-Authorization: Bearer wrong\r\n\r\n")
    assert status == 401


class Client:
    """One kept connection of plain writes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def write(self, shown: dict[str, str]) -> int:
        self.writer.write(plain(shown))
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)).lower()
        length = [line for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
        if length:
            await self.reader.readexactly(int(length[0].split(b":")[1]))
        return int(head.split()[1])


async def connect(cluster: Cluster) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", cluster.ports[0]))


def on_the_short_way(cluster: Cluster) -> int:
    direct = cluster.app(0)._fast_path
    assert direct is not None
    return len(direct.connections)


async def test_the_short_way_takes_writers_and_nobody_else(cluster: Cluster) -> None:
    client = await connect(cluster)
    assert [await client.write(bearer("writer")) for _ in range(3)] == [204] * 3
    assert await client.write(bearer("admin")) == 204
    assert on_the_short_way(cluster) == 1
    assert await client.write(bearer("reader")) == 403
    assert on_the_short_way(cluster) == 0
    assert await client.write({}) == 401
    assert await client.write(bearer("writer")) == 204
    for shown in ({}, {"Authorization": "Bearer nobody"}, bearer("reader"), basic("writer", "wrong password")):
        fresh = await connect(cluster)
        assert await fresh.write(shown) == (403 if shown == bearer("reader") else 401)
    assert cluster.service(0).loop.durability.stable.value == 5


async def test_a_head_that_was_right_once_is_asked_again(cluster: Cluster, tmp_path: Path) -> None:
    """What the short way remembers of a head is not who may send it."""
    client = await connect(cluster)
    assert await client.write(bearer("writer")) == 204
    lines = [line for line in users_text().splitlines() if not line.startswith("writer")]
    (tmp_path / "users").write_text("\n".join(lines))

    async def is_refused() -> bool:
        return await (await connect(cluster)).write(bearer("writer")) == 401

    await until(is_refused, 20)
    assert await client.write(bearer("writer")) == 401


async def test_a_password_is_checked_once_and_then_on_the_short_way(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[str] = []
    slow = UserDatabase.authenticate_password

    def counted(self: UserDatabase, name: str, password: bytes) -> object:
        checks.append(name)
        return slow(self, name, password)

    monkeypatch.setattr(UserDatabase, "authenticate_password", counted)
    shown = basic("writer", PASSWORDS["writer"])
    clients = [await connect(cluster) for _ in range(5)]  # held: one that is collected closes its connection
    assert [await client.write(shown) for client in clients] == [204] * 5
    assert checks == ["writer"]
    assert on_the_short_way(cluster) == 4
    many = await asyncio.gather(
        *(cluster.get(0, "/repositories", headers=basic("reader", PASSWORDS["reader"])) for _ in range(40))
    )
    assert len(many) == 40
    assert checks == ["writer", "reader"], "those who ask at once share one check"
    assert [await (await connect(cluster)).write(basic("writer", "no")) for _ in range(2)] == [401] * 2
    assert checks[2:] == ["writer", "writer"], "a wrong one is not remembered"


async def test_too_many_passwords_at_once_are_refused_and_tokens_go_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    go_on = threading.Event()

    def stuck(self: UserDatabase, name: str, password: bytes) -> None:
        go_on.wait(30)

    monkeypatch.setattr(UserDatabase, "authenticate_password", stuck)
    url = cluster.url(0, "/repositories")
    asked = [
        asyncio.ensure_future(cluster.session.get(url, headers=basic("reader", f"guess {at}")))
        for at in range(PASSWORD_CHECKS_MAX)
    ]
    guard = cluster.app(0).router._authenticator
    assert guard is not None
    await until(lambda: len(guard._pending_checks) == PASSWORD_CHECKS_MAX)
    async with cluster.session.get(url, headers=basic("reader", "one guess more")) as answer:
        assert answer.status == 503
        assert answer.headers["TxLog-Error"] == "TooManyLogins"
        assert answer.headers["Retry-After"] == "1"
    await cluster.get(0, "/repositories", headers=bearer("reader"))
    go_on.set()
    assert {(await one).status for one in asked} == {401}


async def test_files_that_change_count_without_a_restart(cluster: Cluster, tmp_path: Path) -> None:
    async def becomes(status: int, shown: dict[str, str], path: str = "/txlog/settings") -> None:
        async def is_so() -> bool:
            async with cluster.session.get(cluster.url(0, path), headers=shown) as answer:
                return answer.status == status

        await until(is_so, 20)

    shown = basic("reader", PASSWORDS["reader"])
    await becomes(200, shown, "/repositories")
    (tmp_path / "users").write_text(
        f"reader reader {quick_hash('another password')}\nnew admin {hash_token('fresh')}\n"
    )
    await becomes(401, shown, "/repositories")  # although it was known
    await becomes(401, bearer("admin"))
    await becomes(200, {"Authorization": "Bearer fresh"})

    (tmp_path / "users").write_text(f"new admin\nsecond-line {TOKENS['admin']} x\n")
    await becomes(200, {"Authorization": "Bearer fresh"})

    async def noticed() -> bool:
        await becomes(200, {"Authorization": "Bearer fresh"})
        return "UsersNotRead" in cluster.logged(0)

    await until(noticed, 20)
    told = [json.loads(line) for line in cluster.logs[0].getvalue().splitlines()]
    wrong = [line for line in told if line["event"] == "UsersNotRead"]
    assert f"{tmp_path / 'users'}:1:" in wrong[0]["message"]
    (tmp_path / "users").unlink()  # gone is wrong, too: nobody is let in instead
    await becomes(200, {"Authorization": "Bearer fresh"})
    await becomes(401, {})

    # As Kubernetes changes a Secret: a link is turned to another folder.
    (tmp_path / "users").symlink_to(tmp_path / "one")
    (tmp_path / "one").write_text(users_text())
    await becomes(200, bearer("admin"))
    (tmp_path / "own-token").write_text("txlog_another\n")
    await becomes(200, {"Authorization": "Bearer txlog_another"})
    await becomes(401, {"Authorization": f"Bearer {OWN}"})
    assert not [secret for secret in SECRETS if secret in cluster.logs[0].getvalue()]


async def test_a_master_that_shall_ask_and_cannot_does_not_start(
    clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = guarded(clusters, tmp_path)
    (tmp_path / "users").write_text(f"admin boss {TOKENS['admin']}\n")
    log = EventLog("uk-1", cluster.logs[0])
    with pytest.raises(BadStart, match=r"users:1: expected reader, writer or admin"):
        load_authenticator(NodeConfig.model_validate(cluster.configs[0]), log)
    os.unlink(tmp_path / "users")
    cluster.spawn(0)
    assert cluster.process(0).wait(30) == 64
    assert f"users_file {tmp_path / 'users'}: No such file" in (tmp_path / "uk-1.log").read_text()
    cluster.processes[0] = None


async def test_a_request_that_no_parser_takes_is_not_repeated_to_anybody(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = TOKENS["admin"]
    caplog.set_level(logging.DEBUG)
    for request in (
        f"GET /txlog/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\x00\r\n\r\n",
        f"GET /txlog/status HTTP/1.1\r\nHost: x\r\nAuthorization Bearer {secret}\r\n\r\n",
        f"GET /txlog/status HTTP/1.1\r\nHost: x\r\n Bearer {secret}\r\n\r\n",
        f"Bearer {secret} HTTP/1.1\r\nHost: x\r\n\r\n",
        f"GET /txlog/status HTTP/9.{secret}\r\nHost: x\r\n\r\n",
        f"POST {STATEMENTS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\nContent-Length: {secret}\r\n\r\n",
    ):
        status, answer = await raw(cluster, request.encode())
        assert status == 400, request
        assert secret not in answer.decode(), request
        assert b"Traceback" not in answer
    assert "NotHttp" in cluster.logged(0)
    out, err = capfd.readouterr()
    assert secret not in "".join((out, err, caplog.text, cluster.logs[0].getvalue()))


async def test_a_master_without_room_asks_as_well(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = guarded(clusters, tmp_path, journal_bytes_max=1)
    config, log, stop = (
        NodeConfig.model_validate(cluster.configs[0]),
        EventLog("uk-1", cluster.logs[0]),
        asyncio.Event(),
    )
    waiting = asyncio.ensure_future(DiskFullMode(config, 1, 1, 0, log, load_authenticator(config, log)).run(stop))
    await cluster_answers(cluster)
    await cluster.get(0, "/txlog/status", 401)
    assert (await cluster.get(0, "/txlog/status", headers=bearer("reader")))["state"] == "DiskFull"
    stop.set()
    assert not await waiting


async def test_a_master_whose_journal_is_damaged_asks_as_well(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = guarded(clusters, tmp_path, 2)
    cluster.spawn()
    await cluster.ready()
    for number in range(20):
        await cluster.write(number % 2, f"INSERT DATA {{ <urn:s:{number}> <urn:p> 1 }}", **bearer("writer"))
    for at in (1, 0):
        cluster.kill(at, signal.SIGTERM)
    segment = min(file for file in (tmp_path / "uk-1").iterdir() if b"urn:s:10" in file.read_bytes())
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b"urn:s:10")] ^= 1
    segment.write_bytes(raw)
    cluster.spawn(0)  # alone, so that it stays damaged
    await cluster_answers(cluster)
    await cluster.get(0, "/txlog/status", 401)
    assert (await cluster.get(0, "/txlog/status", headers=bearer("reader")))["state"] == "Damaged"
    assert (await cluster.get(0, "/txlog/peers", 503, headers=bearer("reader")))["reason"] == "Damaged"
    await cluster.get(0, "/txlog/peers", 401)
    await cluster.get(0, "/txlog/peer", 401, headers={"Authorization": "Bearer another-clusters-secret"})


async def test_an_unchanged_client_writes_with_a_password(cluster: Cluster) -> None:
    def write(name: str, password: str) -> None:
        client = SPARQLWrapper(cluster.url(0, "/repositories/demo"), cluster.url(0, STATEMENTS))
        client.setMethod("POST")
        client.setHTTPAuth("BASIC")
        client.setCredentials(name, password)
        client.setQuery("INSERT DATA { <urn:s> <urn:p> 1 }")
        client.query()

    await asyncio.to_thread(write, "writer", PASSWORDS["writer"])
    assert cluster.service(0).loop.durability.stable.value == 1
    for name, password in (("reader", PASSWORDS["reader"]), ("writer", "no")):
        with pytest.raises((Unauthorized, HTTPError)):
            await asyncio.to_thread(write, name, password)
    assert cluster.service(0).loop.durability.stable.value == 1


async def cluster_answers(cluster: Cluster) -> None:
    async def lives() -> bool:
        try:
            async with cluster.session.get(cluster.url(0, "/health/live")) as answer:
                return answer.status == 200
        except (OSError, ClientError):
            return False

    await until(lives)


async def test_many_lines_over_one_request_are_a_writers(cluster: Cluster) -> None:
    lines = b'{"update":"INSERT DATA { <a:s> <a:p> 1 }"}\n'
    kind = {"Content-Type": "application/x-ndjson"}
    await cluster.post(0, "/txlog/transactions", lines, 401, headers=kind)
    await cluster.post(0, "/txlog/transactions", lines, 403, headers={**kind, **bearer("reader")})
    [told] = await cluster.post(0, "/txlog/transactions", lines, 200, headers={**kind, **bearer("writer")})
    assert told["durability"] == "synced"
