"""The log as a feed, at real masters: from any place, in three forms, for readers that are slow, late or on the wrong
side of a split."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientResponse, ClientTimeout
from apart import go_apart, insert, states
from master_cluster import DEADLINE_S, Cluster, until
from people import TOKENS, guarded
from typer.testing import CliRunner

from txlog.cli.main import app as commands
from txlog.client import FeedFollower, MasterUnreachable
from txlog.model.errors import LogAhead, LogDiverged, LogGone
from txlog.server.feed import change_feed
from txlog.wire.change_feed import NDJSON_MEDIA_TYPE, RDF_PATCH_MEDIA_TYPE, SSE_MEDIA_TYPE, FeedEvent

NO_TIME: Final = ClientTimeout(total=DEADLINE_S)
MODIFY: Final = "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }"


@contextlib.asynccontextmanager
async def following(
    cluster: Cluster, at: int, query: str = "", form: str = NDJSON_MEDIA_TYPE, **headers: str
) -> AsyncIterator[Any]:
    sent = {"Accept": form, **{name.replace("_", "-"): value for name, value in headers.items()}}
    url = cluster.url(at, f"/txlog/watch?{query}")
    async with cluster.session.get(url, headers=sent, timeout=NO_TIME) as answer:
        if answer.status != 200:
            pytest.fail(f"{answer.status} {await answer.text()}")
        assert answer.headers["Content-Type"] == form
        yield answer


async def event(answer: ClientResponse) -> dict[str, Any] | None:
    """The next of JSON lines; None at the end."""
    while line := await answer.content.readline():
        if line.strip():
            return dict(json.loads(line))
    return None


async def told(cluster: Cluster, at: int, query: str, **headers: str) -> list[dict[str, Any]]:
    """All events of a feed that ends."""
    async with following(cluster, at, query, **headers) as answer:
        return [json.loads(line) for line in (await answer.read()).splitlines() if line]


async def refused(cluster: Cluster, at: int, query: str, **headers: str) -> tuple[int, dict[str, Any]]:
    sent = {"Accept": NDJSON_MEDIA_TYPE, **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with cluster.session.get(cluster.url(at, f"/txlog/watch?{query}"), headers=sent, timeout=NO_TIME) as answer:
        return answer.status, await answer.json()


async def every_kind(cluster: Cluster) -> None:
    """Seven entries: quads, an update, prefixes, and a key that is repeated."""
    await cluster.write(0, insert("a"))
    await cluster.write(0, insert("b"), Idempotency_Key="once")
    await cluster.write(0, MODIFY)
    async with cluster.session.put(cluster.url(0, "/repositories/demo/namespaces/ex"), data="urn:x:") as answer:
        assert answer.status == 204
    await cluster.write(0, "DELETE DATA { <urn:s:a> <urn:q> 'o' }", TxLog_Updates_Without_Graph="default")


async def test_every_place_of_the_log_is_one_to_begin_from(one: Cluster) -> None:
    await every_kind(one)
    whole = await told(one, 0, "from=0&until=now")
    assert [e["event"] for e in whole] == ["position"] + 5 * ["entry"]
    entries = whole[1:]
    assert [e["index"] for e in entries] == [1, 2, 3, 4, 5]
    assert [e["kind"] for e in entries] == ["quads", "quads", "update", "namespace", "quads"]
    assert [e["previous"] for e in entries] == [whole[0]["id"], *(e["id"] for e in entries[:-1])]
    assert entries[0]["payload"] == 'A <urn:s:a> <urn:p> "o" .\n'
    assert "settled" not in entries[0], "nothing here is on the move"
    assert entries[3]["key"].endswith("set ex urn:x:")
    page = await one.get(0, "/txlog/log?after=0", headers={"Accept": "application/json"})
    assert [(e["txid"], e["id"]) for e in entries] == [
        (e["txid"], f"{e['index']}:{e['hash']}") for e in page["entries"]
    ]
    for at, e in enumerate(whole):
        assert await told(one, 0, f"from={e['id']}&until=now") == [{"event": "position", "id": e["id"]}, *entries[at:]]
        assert await told(one, 0, "from=0&until=5", Last_Event_ID=e["id"]) == [
            whole[0] | {"id": e["id"]},
            *entries[at:],
        ]
        assert await told(one, 0, f"from=1:{e['id']}&until=now") == [whole[0] | {"id": e["id"]}, *entries[at:]]
    assert await told(one, 0, "from=0&until=2") == whole[:3]
    assert await told(one, 0, "until=now") == [{"event": "position", "id": entries[-1]["id"]}]


async def test_a_browser_gets_server_sent_events_as_they_happen(one: Cluster) -> None:
    await one.write(0, insert("before"))
    async with following(one, 0, "heartbeat=1", SSE_MEDIA_TYPE) as answer:
        read = answer.content.readline
        assert await read() == b"retry: 1000\n"
        assert (await read()).startswith(b"id: 1:")
        assert await read() == b"\n"
        assert await read() == b": \n", "a sign of life"
        assert await read() == b"\n"
        await one.write(0, insert("after"))
        lines = [await read() for _ in range(4)]
        while lines[0] in (b": \n", b"\n"):
            lines = [*lines[1:], await read()]
        assert lines[0].startswith(b"id: 2:")
        assert lines[1] == b"event: entry\n"
        assert json.loads(lines[2].removeprefix(b"data: "))["payload"] == 'A <urn:s:after> <urn:p> "o" .\n'
        assert lines[3] == b"\n"
    await until(lambda: not one.service(0).routes.change_feed.feeds)


async def test_a_patch_ends_before_an_update_or_has_it_in_a_header(one: Cluster) -> None:
    await every_kind(one)
    async with following(one, 0, "from=0", RDF_PATCH_MEDIA_TYPE) as answer:
        text = (await answer.read()).decode()
    assert text.count("TC .") == 2
    last = text.rstrip("\n").split("\n\n")[-1].split("\n")
    assert last[1].startswith('H not-quads "the entry behind 2:')
    assert last[2:] == ["TX .", "TA ."]
    status, body = await refused(one, 0, "from=2", Accept=RDF_PATCH_MEDIA_TYPE)
    assert (status, body["error"]) == (406, "NotAcceptable")
    assert "updates=header" in body["message"]
    async with following(one, 0, "from=0&until=now&updates=header", RDF_PATCH_MEDIA_TYPE) as answer:
        text = (await answer.read()).decode()
    assert text.count("TC .") == 5
    assert 'H update "DELETE' in text
    assert 'PA "ex" <urn:x:> .' in text
    assert [row for row in text.split("\n") if row[:2] in ("A ", "D ")] == [
        'A <urn:s:a> <urn:p> "o" .',
        'A <urn:s:b> <urn:p> "o" .',
        'D <urn:s:a> <urn:q> "o" .',
    ]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("from=", "from="),
        ("from=yesterday", "from='yesterday'"),
        ("from=-1", "from='-1'"),
        ("from=1:beef", "from='1:beef'"),
        ("until=x", "until=x"),
        ("until=-1", "until=-1"),
        ("level=synced", "level=synced"),
        ("updates=yes", "updates=yes"),
        ("heartbeat=0", "heartbeat=0"),
        ("heartbeat=301", "heartbeat=301"),
        ("heartbeat=1.5", "heartbeat=1.5"),
        ("form=0", "form: no parameter"),
    ],
)
async def test_what_is_no_parameter_is_said(one: Cluster, query: str, says: str) -> None:
    status, body = await refused(one, 0, query)
    assert (status, body["error"]) == (400, "BadInput")
    assert says in body["message"]


async def test_other_refusals_have_their_own_names(one: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "CATCH_UP_WAIT_S", 0.1)
    assert (await refused(one, 0, "", Last_Event_ID="x"))[0] == 400
    assert (await refused(one, 0, "", Accept="text/turtle"))[0] == 406
    assert (await refused(one, 0, "", Accept="text/event-stream;q=x"))[0] == 400
    assert (await refused(one, 0, "", Accept="text/event-stream;q=0, application/json"))[0] == 406
    await one.write(0, insert("a"))
    status, body = await refused(one, 0, "from=5")
    assert (status, body["reason"]) == (409, "Ahead")
    status, body = await refused(one, 0, f"from=1:{'ab' * 16}")
    assert (status, body["reason"]) == (409, "Diverged")
    monkeypatch.setattr(change_feed, "FOLLOWERS_MAX", 1)
    async with following(one, 0):
        status, body = await refused(one, 0, "")
        assert (status, body["reason"]) == (503, "TooManyFollowers")
    await until(lambda: not one.service(0).routes.change_feed.feeds)
    assert await told(one, 0, "until=now"), "the place is free again"
    async with one.session.head(one.url(0, "/txlog/watch")) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, SSE_MEDIA_TYPE)
    for accept, form in (
        ("*/*", SSE_MEDIA_TYPE),
        ("text/*", SSE_MEDIA_TYPE),
        ("application/*", NDJSON_MEDIA_TYPE),
        (f"{RDF_PATCH_MEDIA_TYPE};q=0.5, {NDJSON_MEDIA_TYPE}", NDJSON_MEDIA_TYPE),
    ):
        async with one.session.get(one.url(0, "/txlog/watch?until=now"), headers={"Accept": accept}) as answer:
            assert answer.headers["Content-Type"] == form, accept


async def test_a_slow_reader_costs_a_page_and_misses_nothing(one: Cluster) -> None:
    size, count = 1 << 20, 16
    text = "x" * size
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    reader.setblocking(False)
    running = asyncio.get_running_loop()
    try:
        await running.sock_connect(reader, ("127.0.0.1", one.ports[0]))
        await running.sock_sendall(
            reader,
            f"GET /txlog/watch?from=0&until={count} HTTP/1.1\r\n"
            f"Host: x\r\nAccept: {NDJSON_MEDIA_TYPE}\r\n\r\n".encode(),
        )
        (feed,) = await until(lambda: one.service(0).routes.change_feed.feeds)
        transport = feed._request.transport
        waiting = 0
        for number in range(count):
            await one.write(0, f'INSERT DATA {{ <urn:s:{number}> <urn:p> "{text}" }}')
            waiting = max(waiting, transport.get_write_buffer_size())
        started = time.monotonic()
        assert len(await told(one, 0, f"from=0&until={count}")) == count + 1, "others are not held up"
        assert time.monotonic() - started < DEADLINE_S
        assert feed.index < count - 6, "what the kernel takes, and no more"
        assert 0 < waiting < 3 * size, "an entry comes whole; nothing gathers behind it"
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        pieces = [b""]
        while not (pieces[-1][-16:]).endswith(b"\r\n0\r\n\r\n"):
            pieces.append(await running.sock_recv(reader, 1 << 20))
            assert pieces[-1], "cut"
        body = b"".join(pieces)
    finally:
        reader.close()
    assert body.count(b'"event":"entry"') == count
    for number in range(count):
        assert b"<urn:s:%d> " % number in body


async def test_who_reads_nothing_for_long_is_let_go(one: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "STALL_TIMEOUT_S", 0.2)
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    reader.setblocking(False)
    running = asyncio.get_running_loop()
    try:
        await running.sock_connect(reader, ("127.0.0.1", one.ports[0]))
        await running.sock_sendall(
            reader, f"GET /txlog/watch?from=0 HTTP/1.1\r\nHost: x\r\nAccept: {NDJSON_MEDIA_TYPE}\r\n\r\n".encode()
        )
        await until(lambda: one.service(0).routes.change_feed.feeds)
        text = "x" * (1 << 20)
        for number in range(16):
            await one.write(0, f'INSERT DATA {{ <urn:s:{number}> <urn:p> "{text}" }}')
        await until(lambda: not one.service(0).routes.change_feed.feeds)
    finally:
        reader.close()
    assert "FollowerStalled" in one.logged(0)


async def test_a_place_below_the_cut_is_gone_by_name(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, segment_bytes=1 << 16, trim_interval_ms=50)
    await cluster.start()
    await cluster.write(0, insert("first"))
    first = (await told(cluster, 0, "from=0&until=now"))[-1]["id"]
    text = "x" * 20_000
    for number in range(30):
        await cluster.write(0, f'INSERT DATA {{ <urn:s:{number}> <urn:p> "{text}" }}')
    stable = (await cluster.get(0, "/txlog/status"))["stable"]
    backup = {"backups": [{"name": "nightly", "index": stable["index"], "hash": stable["hash"]}]}
    async with cluster.session.post(cluster.url(0, "/txlog/backups"), json=backup) as answer:
        assert answer.status == 200
    await until(lambda: cluster.service(0).loop.status.log_state.log_index.start > 1)  # type: ignore[union-attr]
    for place in ("0", "1", first):
        status, body = await refused(cluster, 0, f"from={place}")
        assert (status, body["reason"]) == (410, "Gone"), body
        assert "restore a backup" in body["message"]
    with pytest.raises(LogGone):
        await asyncio.to_thread(lambda: list(FeedFollower([cluster.url(0)], first)))
    kept = cluster.service(0).loop.status.log_state.log_index.start  # type: ignore[union-attr]
    assert [e["index"] for e in (await told(cluster, 0, f"from={kept}&until=now"))[1:]] == list(range(kept + 1, 32))


async def test_a_master_that_stops_ends_its_feeds_by_name(one: Cluster) -> None:
    await one.write(0, insert("a"))
    stuck = socket.socket()  # and one that reads nothing keeps nobody
    stuck.setblocking(False)
    await asyncio.get_running_loop().sock_connect(stuck, ("127.0.0.1", one.ports[0]))
    await asyncio.get_running_loop().sock_sendall(stuck, b"GET /txlog/watch?from=0 HTTP/1.1\r\nHost: x\r\n\r\n")
    async with following(one, 0, "from=0") as answer:
        assert [(await event(answer) or {})["event"] for _ in range(2)] == ["position", "entry"]
        stopping = asyncio.ensure_future(one.stop(0))
        last = await event(answer)
        assert last is not None
        assert (last["event"], last["id"].split(":")[0]) == ("closing", "1")
        assert await event(answer) is None, "ended, not cut"
        began = time.monotonic()
        await stopping
        assert time.monotonic() - began < 30
    stuck.close()


async def test_a_follower_needs_who_may_read_the_log(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = guarded(clusters, tmp_path)
    await cluster.start()
    for who, status in (("reader", 403), ("writer", 403)):
        assert (await refused(cluster, 0, "", Authorization=f"Bearer {TOKENS[who]}"))[0] == status
    assert await told(cluster, 0, "until=now", Authorization=f"Bearer {TOKENS['admin']}")


# Splits


async def fold(answer: ClientResponse, shown: list[dict[str, Any]], names: list[str]) -> None:
    """``shown``: the log as a follower that does as it is told has it."""
    while (one := await event(answer)) is not None:
        names.append(one["event"])
        if one["event"] == "rewound":
            assert one["previous"] == shown[-1]["id"]
            del shown[int(one["id"].split(":")[0]) :]
            assert not shown or shown[-1]["id"] == one["id"]
        elif one["event"] == "entry":
            assert not shown or one["previous"] == shown[-1]["id"]
            shown.append(one)


async def test_a_rejoin_is_told_by_name_and_never_to_who_asked_for_what_is_settled(
    clusters: Callable[..., Cluster],
) -> None:
    cluster = clusters(3, max_peer_lag_ms=3000, round_timeout_ms=800, idle_interval_ms=100)
    await cluster.start()
    await until(lambda: states(cluster) == {"Joined"})
    await cluster.write(0, insert("first"))
    views: dict[tuple[int, str], tuple[list[dict[str, Any]], list[str]]] = {}
    async with contextlib.AsyncExitStack() as stack:
        tasks = []
        for at in (0, 2):
            for level in ("stable", "settled"):
                answer = await stack.enter_async_context(following(cluster, at, f"from=0&level={level}"))
                views[at, level] = ([], [])
                tasks.append(asyncio.ensure_future(fold(answer, *views[at, level])))
        heal = await go_apart(cluster)
        for number, at in enumerate((2, 0, 2, 1, 2)):
            await cluster.write(at, insert(f"alone-{number}"))
        before = await told(cluster, 2, "from=0&until=now")
        await until(lambda: len(views[2, "stable"][0]) == len(before) - 1 > 3)
        moving = views[2, "stable"][0][-1]
        assert moving["settled"] is False, "it is said while it may move"
        assert len(views[2, "settled"][0]) < len(before) - 1
        heal()
        await until(lambda: states(cluster) == {"Joined"})
        await until(lambda: {len(shown) for shown, _ in views.values()} == {9})
        log = await told(cluster, 0, "from=0&until=now")
        for shown, _ in views.values():
            assert [e["id"] for e in shown] == [e["id"] for e in log[1:]]
        assert [len([n for n in names if n == "rewound"]) for _, names in views.values()] == [0, 0, 1, 0]

        # Who comes back with a place of the order that was given up.
        again = await told(cluster, 2, f"from={moving['id']}&until=9")
        assert [e["event"] for e in again[:2]] == ["position", "rewound"]
        assert again[1]["previous"] == moving["id"]
        assert [e["id"] for e in again[2:]] == [e["id"] for e in log[int(again[1]["id"].split(":")[0]) + 1 :]]
        status, body = await refused(cluster, 0, f"from={moving['id']}&until=9")
        assert (status, body["reason"]) == (409, "Diverged")
        followed = await asyncio.to_thread(
            lambda: [e.event for e in FeedFollower([cluster.url(0), cluster.url(2)], moving["id"], until=9)]
        )
        assert followed[:2] == ["position", "rewound"], "another master knows"
        with pytest.raises(LogDiverged, match="settled"):
            await asyncio.to_thread(lambda: list(FeedFollower([cluster.url(0), cluster.url(1)], moving["id"], until=9)))
        for task in tasks:
            task.cancel()


# The client and the command


async def test_a_follower_outlives_masters(three: Cluster) -> None:
    await until(lambda: states(three) == {"Joined"})
    seen: list[FeedEvent] = []

    def follow() -> None:
        for one in FeedFollower([three.url(at) for at in range(3)], "0", until=30, heartbeat_s=1):
            seen.append(one)

    following = asyncio.create_task(asyncio.to_thread(follow))
    for number in range(30):
        await three.write(2, insert(number))
        if number == 9:
            await until(lambda: len(seen) > 5)
            await three.stop(0)
        if number == 19:
            await until(lambda: len(seen) > 15)
            await three.stop(1)
    await asyncio.wait_for(following, DEADLINE_S)
    assert [one.event for one in seen] == ["position"] + 30 * ["entry"]
    assert [one.index for one in seen[1:]] == list(range(1, 31))
    assert [one.previous for one in seen[1:]] == [one.id for one in seen[:-1]]
    with pytest.raises(MasterUnreachable):
        await asyncio.to_thread(lambda: list(FeedFollower([three.url(0)], "0")))
    with pytest.raises(LogAhead):
        await asyncio.to_thread(lambda: list(FeedFollower([three.url(2)], "99")))


async def run(*arguments: str) -> tuple[int, str]:
    done = await asyncio.to_thread(CliRunner().invoke, commands, ["watch", *arguments])
    return done.exit_code, done.output if done.exception is None or not done.output else done.output + str(
        done.exception
    )


async def test_the_command_writes_the_three_forms(one: Cluster) -> None:
    await every_kind(one)
    at = ("--master", one.url(0), "--until", "now")
    code, text = await run(*at, "--from", "0", "--format", "json")
    assert code == 0
    events = [json.loads(line) for line in text.splitlines()]
    assert events == await told(one, 0, "from=0&until=now")
    code, text = await run(*at, "--from", events[2]["id"], "--format", "events")
    assert [line for line in text.splitlines() if line.startswith("id: ")] == [f"id: {e['id']}" for e in events[2:]]
    code, text = await run(*at, "--from", "0", "--format", "patch", "--updates", "header")
    assert (code, text.count("TC .")) == (0, 5)
    code, text = await run(*at, "--from", "0", "--format", "patch")
    assert code != 0
    assert text.count("TC .") == 2
    assert "--updates header" in text
    for wrong in (["--until", "x"], ["--from", "x"], ["--until", "-1"]):
        assert (await run("--master", one.url(0), *wrong))[0] != 0
