"""Messages of further logs between masters: in envelopes, in turn, to who reads them, and to the log that they name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from master_cluster import Cluster, until
from test_master_links import as_peer, frame

from txlog.config.process_config import NodeConfig, PeerConfig
from txlog.server.log_service import LogService, LogStorage, open_journal
from txlog.server.peers.envelope_router import DropReason, EnvelopeLinks, EnvelopeRouter
from txlog.server.peers.frame_connection import FrameConnection, parse_link_level
from txlog.server.peers.peer_link import FURTHER_QUEUE_MESSAGES_MAX, PeerLink
from txlog.wire import messages
from txlog.wire.envelope import LEVEL_ENVELOPES, wrap

STOCK = 2
FURTHER: dict[str, Any] = {"repositories": {}}
QUADS = {"Content-Type": "application/n-quads", "TxLog-Durability": "synced"}
JSON = {"Accept": "application/json"}
NOTICE = messages.encode(messages.Notice("nothing", b""))


def add_stock(cluster: Cluster, at: int, number: int = STOCK) -> LogService:
    """A second log, with its own folder, in the process of this master."""
    process, given = cluster.app(at), cluster.configs[at]
    folder = cluster.folder / "logs" / f"{given['node']}-{number}"
    config = NodeConfig.model_validate({**given, "repository": "stock", "journal_folder": str(folder)})
    links = EnvelopeLinks(number, process.links)
    log = process.add_log(number, "stock", config, LogStorage(*open_journal(config)), links)
    router = process.envelopes
    assert router is not None
    router.open_log(number, log.loop)
    log.start_tasks()
    log.settle_literals()
    return log


async def write(cluster: Cluster, at: int, name: str, number: int, **headers: str) -> int:
    body = f"<urn:{name}> <urn:{cluster.nodes[at]}> <urn:{number}> ."
    async with cluster.session.post(
        cluster.url(at, f"/repositories/{name}/statements"), data=body, headers={**QUADS, **headers}
    ) as answer:
        return answer.status


async def log_of(cluster: Cluster, at: int, name: str) -> list[tuple[str, str]]:
    page = await cluster.get(at, f"/txlog/repositories/{name}/log?after=0", headers=JSON)
    return [(entry["hash"], entry["payload"]) for entry in page["entries"]]


def dropped(cluster: Cluster, at: int) -> dict[tuple[int, DropReason], int]:
    router = cluster.app(at).envelopes
    assert router is not None
    return router.dropped


async def test_two_logs_are_written_at_three_masters_and_are_equal(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, **FURTHER)
    await cluster.start()
    logs = [add_stock(cluster, at) for at in range(3)]
    await until(lambda: all(log.context.is_ready for log in logs))
    wrote = await asyncio.gather(
        *(write(cluster, number % 3, name, number) for number in range(30) for name in ("demo", "stock"))
    )
    assert wrote == [204] * 60
    for name in ("demo", "stock"):
        found = [await log_of(cluster, at, name) for at in range(3)]
        assert len(found[0]) == 30
        assert found[1] == found[0]
        assert found[2] == found[0]
        assert all(f"urn:{name}" in payload for _, payload in found[0])
    peers = (await cluster.get(0, "/txlog/peers"))["peers"]
    assert [peer["furtherLogs"] for peer in peers] == [{"read": True, "droppedOlderProgram": 0}] * 2
    assert [peer["faults"] for peer in peers] == [0, 0]


async def test_a_master_that_reads_no_envelopes_gets_none(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, **FURTHER)
    del cluster.configs[2]["repositories"]  # it connects as a program that knows no further logs
    await cluster.start()
    logs = [add_stock(cluster, at) for at in range(2)]
    link = cluster.app(0).links.links["uk-3"]
    await until(lambda: link.dropped_older >= 3)
    assert not link.reads_envelopes
    assert "uk-3" not in EnvelopeLinks(STOCK, cluster.app(0).links).connected_peers()
    assert await write(cluster, 2, "demo", 1) == 204
    assert await write(cluster, 0, "demo", 2) == 204
    peers = (await cluster.get(2, "/txlog/peers"))["peers"]
    assert [(peer["faults"], "furtherLogs" in peer) for peer in peers] == [(0, False)] * 2
    assert logs[0].loop.counts.received_messages > 0, "the other one reads them"


async def test_a_message_goes_to_the_log_that_its_envelope_names(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, **FURTHER)
    await cluster.start()
    log = add_stock(cluster, 0)
    _, writer = await as_peer(cluster, 0, "uk-2")
    received = log.loop.counts.received_messages
    for number in (STOCK, 7, 7, (1 << 32) - 1):
        writer.write(frame(wrap(number, NOTICE)))
    await until(lambda: dropped(cluster, 0).get(((1 << 32) - 1, DropReason.UNKNOWN_LOG)))
    assert dropped(cluster, 0)[7, DropReason.UNKNOWN_LOG] == 2
    assert log.loop.counts.received_messages == received + 1
    writer.write(frame(wrap(STOCK, wrap(STOCK, NOTICE))) + frame(wrap(STOCK, b"\x07")))
    link = cluster.app(0).links.links["uk-2"]
    await until(lambda: link.faults >= 2)
    assert "UnknownFormat" in (link.last_fault or "")
    assert {"Malformed", "UnknownFormat"} <= set(cluster.logged(0))
    assert log.loop.counts.peer_faults == {("uk-2", "UnknownFormat"): 1}, "the log counts what it refuses"
    router = cluster.app(0).envelopes
    assert router is not None
    router.close_log(STOCK, DropReason.REMOVED_LOG)
    writer.write(frame(wrap(STOCK, NOTICE)))
    await until(lambda: dropped(cluster, 0).get((STOCK, DropReason.REMOVED_LOG)) == 1)
    assert await write(cluster, 0, "demo", 1) == 204
    writer.close()


async def test_a_post_under_another_number_is_refused_by_its_cluster(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, **FURTHER)
    await cluster.start()
    logs = {number: [add_stock(cluster, at, number) for at in range(2)] for number in (STOCK,)}
    await until(lambda: all(log.context.is_ready for log in logs[STOCK]))
    sent: list[bytes] = []
    link = cluster.app(1).links.links["uk-1"]
    send = link.send

    def keep(data: bytes) -> None:
        sent.append(data)
        send(data)

    link.send = keep  # type: ignore[method-assign]
    assert await write(cluster, 1, "demo", 1) == 204
    posts = [data for data in sent if isinstance(messages.decode("uk-2", data), messages.Post)]
    before = logs[STOCK][0].loop.durability.stable.value
    link.send_in_envelope(STOCK, posts[0])
    await until(lambda: logs[STOCK][0].loop.counts.peer_faults.get(("uk-2", "OtherCluster")) == 1)
    assert logs[STOCK][0].loop.durability.stable.value == before


class Reader:
    """A connection of a link to a listener of its own, which reads every frame."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    async def connect(self, level: int) -> FrameConnection:
        loop = asyncio.get_running_loop()

        def new_connection() -> FrameConnection:
            return FrameConnection(self.frames.append, lambda: None, loop.create_future(), 1 << 20)

        server = await loop.create_server(new_connection, "127.0.0.1", 0)
        _, mine = await loop.create_connection(new_connection, *server.sockets[0].getsockname())
        mine.link_level = level
        return mine


def new_link() -> PeerLink:
    return PeerLink(
        PeerConfig(node="uk-2", data_center="uk", url="http://x"), lambda link, fault: None, EnvelopeRouter()
    )


async def test_logs_send_in_turn_what_waited() -> None:
    link, reader = new_link(), Reader()
    for number in range(5):
        link.send(b"\x01first %d" % number)
    for number in range(3):
        link.send_in_envelope(2, b"\x01second %d" % number)
    link.send_in_envelope(3, b"\x01third 0")
    link.outgoing = await reader.connect(LEVEL_ENVELOPES)
    assert link.queued[0] == 9
    link.flush()
    await until(lambda: len(reader.frames) == 9)
    logs = [one[5:].decode() if one[0] == 2 else one.decode() for one in reader.frames]
    wanted = ["first 0", "second 0", "third 0", "first 1", "second 1", "first 2", "second 2", "first 3", "first 4"]
    assert [one[1:] for one in logs] == wanted
    assert link.queued == (0, 0)
    link.send_in_envelope(3, b"\x01third 1")
    link.send(b"\x01first 5")
    await until(lambda: len(reader.frames) == 11)
    assert reader.frames[-1] == b"\x01first 5"


async def test_each_further_log_keeps_a_bounded_queue() -> None:
    link, reader = new_link(), Reader()
    connection = await reader.connect(LEVEL_ENVELOPES)
    link.outgoing, connection.is_paused = connection, True
    link.send(b"\x01first")
    for number in range(FURTHER_QUEUE_MESSAGES_MAX + 5):
        link.send_in_envelope(2, b"\x01%d" % number)
    link.send_in_envelope(3, b"\x01third")
    assert link.queued[0] == 1 + FURTHER_QUEUE_MESSAGES_MAX + 1
    assert link.dropped == 5, "the oldest of that log, and none of another"
    connection.is_paused = False
    link.flush()
    await until(lambda: len(reader.frames) == 1 + FURTHER_QUEUE_MESSAGES_MAX + 1)
    assert [one[5:] for one in reader.frames[1:3]] == [b"\x015", b"\x01third"]


async def test_the_bytes_of_a_further_log_that_wait_are_bounded() -> None:
    link = new_link()
    for _ in range(3):
        link.send_in_envelope(2, b"\x01" + bytes(3 << 20))
    link.send(b"\x01first")
    assert (link.queued[0], link.dropped) == (3, 1)
    link.send_in_envelope(3, b"\x01" + bytes(9 << 20))
    assert (link.queued[0], link.dropped) == (4, 1), "one message always fits"


async def test_what_waited_for_a_peer_that_came_back_older_is_dropped() -> None:
    link, reader = new_link(), Reader()
    link.send_in_envelope(2, b"\x01second")
    link.send(b"\x01first")
    link.outgoing = await reader.connect(0)
    link.flush()
    await until(lambda: reader.frames)
    assert reader.frames == [b"\x01first"]
    assert link.dropped_older == 1


@pytest.mark.parametrize(
    ("text", "level"), [("1", 1), (" 12 ", 12), ("", 0), ("-1", 0), ("one", 0), ("12345", 0), ("\u0661", 0)]
)
def test_a_level_that_is_no_number_is_none(text: str, level: int) -> None:
    assert parse_link_level(text) == level
