"""Large payloads that travel ahead of their posts: in pieces, bounded, named once, and never believed unseen."""

from __future__ import annotations

import asyncio
import errno
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from txlog.journal import Journal, OsVfs
from txlog.journal.vfs import OsFile
from txlog.model.entry import KIND_QUADS, RunItem, TransactionRun
from txlog.model.errors import JournalBroken, PeerFault
from txlog.model.hashes import content_hash
from txlog.model.ids import Txid
from txlog.model.records import TransactionsPersisted
from txlog.runtime import payload_transfer as ahead_module
from txlog.runtime.interactive_load import ACTIVE_REQUESTS_MIN, InteractiveLoad
from txlog.runtime.payload_transfer import (
    BUFFERED_BYTES_MAX,
    CHUNK_BYTES,
    LARGE_PAYLOAD_BYTES,
    TOPIC,
    UNACKED_BYTES_MAX,
    WRITE_BATCH_BYTES,
    PayloadChunk,
    PayloadTransfer,
    TransferAck,
)
from txlog.runtime.payload_writer import PayloadWriter
from txlog.wire import messages as wire

SIZE = 3 * LARGE_PAYLOAD_BYTES + 17


def payload_of(number: int, size: int = SIZE) -> bytes:
    return (b"%08d" % number) * (size // 8) + b"x" * (size % 8)


class Wire:
    """Masters ``a`` and ``b`` and what is between them, delivered one message at a time."""

    def __init__(self, bytes_max: int = 1 << 26) -> None:
        self.queue: deque[tuple[str, str, bytes]] = deque()
        self.a = PayloadTransfer(self._sender("a"), lambda: ["b"], bytes_max)
        self.b = PayloadTransfer(self._sender("b"), lambda: ["a"], bytes_max)
        self.most_under_way = 0

    def _sender(self, me: str):  # type: ignore[no-untyped-def]
        def send(peer: str, message: bytes) -> None:
            self.queue.append((me, peer, message))
            under_way = sum(len(data) for sender, _, data in self.queue if sender == "a")
            self.most_under_way = max(self.most_under_way, under_way)

        return send

    def deliver(self) -> None:
        sender, receiver, message = self.queue.popleft()
        notice = wire.decode(sender, message)
        assert isinstance(notice, wire.Notice)
        {"a": self.a, "b": self.b}[receiver].on_notice(sender, notice.topic, notice.body)

    async def spread(self, payload: bytes, key: str = "") -> bytes:
        content = content_hash(KIND_QUADS, key, payload)
        task = asyncio.ensure_future(self.a.replicate(KIND_QUADS, key, payload, content))
        while not task.done():
            await asyncio.sleep(0)
            if self.queue:
                self.deliver()
        await task
        return content


def run_of(*items: RunItem) -> TransactionRun:
    return TransactionRun("a", 7, 5, list(items))


async def test_a_payload_comes_in_pieces_and_is_named_once() -> None:
    between = Wire()
    payload = payload_of(1)
    content = await between.spread(payload, "k")
    assert between.most_under_way < UNACKED_BYTES_MAX + 2 * CHUNK_BYTES, "room for small messages"
    small = RunItem(90, KIND_QUADS, "", b"small")
    whole = run_of(small, RunItem(91, KIND_QUADS, "k", payload), RunItem(92, KIND_QUADS, "", b"behind"))
    named, count = between.a.substitute("b", [whole])
    assert count == 1
    assert [item.payload for item in named[0].items] == [b"small", content, b"behind"]
    found, contents, size = between.b.restore("a", named)
    assert (found, contents, size) == ([whole], {Txid(whole.origin, 6): content}, len(payload))
    assert between.a.substitute("b", [whole]) == ([whole], 0), "once: what is sent again brings it"
    assert between.b.restore("a", named)[0][0].items == [small], "it is not kept when it has been used"


async def test_what_is_not_here_ends_the_run() -> None:
    between = Wire()
    first, second = payload_of(1), payload_of(2)
    await between.spread(first)
    await between.spread(second)
    runs = [
        run_of(RunItem(1, KIND_QUADS, "", first), RunItem(2, KIND_QUADS, "", b"x")),
        run_of(RunItem(3, KIND_QUADS, "", second)),
    ]
    named, count = between.a.substitute("b", runs)
    assert count == 2
    between.b._received["a"].clear()
    found, contents, size = between.b.restore("a", named)
    assert ([run.items for run in found], contents, size, between.b.missed) == ([[]], {}, 0, 1)


@pytest.mark.parametrize(("kind", "key"), [(KIND_QUADS + 1, "k"), (KIND_QUADS, "other"), (KIND_QUADS, "")])
async def test_a_name_with_another_kind_or_key_names_nothing(kind: int, key: str) -> None:
    between = Wire()
    content = await between.spread(payload_of(1), "k")
    found, contents, _ = between.b.restore("a", [run_of(RunItem(1, -kind, key, content))])
    assert (found[0].items, contents) == ([], {}), "its hash would be a lie"


async def test_bytes_that_are_not_what_their_hash_says_are_refused() -> None:
    between = Wire()
    payload = payload_of(1)
    content = content_hash(KIND_QUADS, "", payload)
    for offset in range(0, SIZE, CHUNK_BYTES):
        data = payload[offset : offset + CHUNK_BYTES]
        data = data[:-1] + b"?" if offset + len(data) == SIZE else data
        body = msgspec.msgpack.encode(PayloadChunk(content, KIND_QUADS, "", SIZE, offset, data))
        if offset + len(data) < SIZE:
            between.b.on_notice("a", TOPIC, body)
            continue
        with pytest.raises(PeerFault, match="are not what their hash says") as refused:
            between.b.on_notice("a", TOPIC, body)
        assert refused.value.reason == "WrongContent"
    assert between.b.restore("a", [run_of(RunItem(1, -KIND_QUADS, "", content))])[0][0].items == []


PIECE = PayloadChunk(bytes(16), KIND_QUADS, "", SIZE, 0, b"x" * 100)


@pytest.mark.parametrize(
    "piece",
    [
        msgspec.structs.replace(PIECE, size=LARGE_PAYLOAD_BYTES - 1),
        msgspec.structs.replace(PIECE, size=1 << 40),
        msgspec.structs.replace(PIECE, content=b"short"),
        msgspec.structs.replace(PIECE, data=b""),
        msgspec.structs.replace(PIECE, data=bytes(SIZE + 1)),
    ],
)
def test_pieces_that_nobody_sends_are_refused_by_name(piece: PayloadChunk) -> None:
    between = Wire()
    with pytest.raises(PeerFault) as refused:
        between.b.on_notice("a", TOPIC, msgspec.msgpack.encode(piece))
    assert refused.value.reason == "Malformed"
    with pytest.raises(PeerFault):
        between.b.on_notice("a", TOPIC, b"\xc1 no messagepack")
    assert not between.queue, "and not answered"


def test_a_piece_without_its_beginning_is_answered_so() -> None:
    between = Wire()
    between.b.on_notice("a", TOPIC, msgspec.msgpack.encode(msgspec.structs.replace(PIECE, offset=100)))
    notice = wire.decode("b", between.queue.popleft()[2])
    assert isinstance(notice, wire.Notice)
    assert msgspec.msgpack.decode(notice.body, type=TransferAck) == TransferAck(PIECE.content, -1)


async def test_a_receiver_that_forgot_the_beginning_gets_it_with_the_post() -> None:
    between = Wire()
    payload = payload_of(1)
    task = asyncio.ensure_future(between.a.replicate(KIND_QUADS, "", payload, content_hash(KIND_QUADS, "", payload)))
    forgot = False
    while not task.done():
        await asyncio.sleep(0)
        if between.queue:
            between.deliver()
        if between.b._incoming.get("a") and not forgot:
            between.b._incoming.clear()
            forgot = True
    assert between.a.substitute("b", [run_of(RunItem(1, KIND_QUADS, "", payload))])[1] == 0


async def test_whoever_confirms_nothing_is_not_waited_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead_module, "ACK_TIMEOUT_S", 0.02)
    between = Wire()
    payload = payload_of(1)
    content = content_hash(KIND_QUADS, "", payload)
    await asyncio.wait_for(between.a.replicate(KIND_QUADS, "", payload, content), 10)
    assert between.queue
    between.queue.clear()
    began = time.monotonic()
    await between.a.replicate(KIND_QUADS, "", payload, content)
    assert not between.queue
    assert time.monotonic() - began < ahead_module.RETRY_UNRESPONSIVE_S
    assert between.a.substitute("b", [run_of(RunItem(1, KIND_QUADS, "", payload))])[1] == 0


async def test_what_is_kept_for_posts_that_never_come_is_bounded() -> None:
    between = Wire()
    size = 9 << 20
    for number in range(BUFFERED_BYTES_MAX // size + 3):
        await between.spread(payload_of(number, size))
    kept = between.b._received["a"].values()
    assert sum(len(one.payload) for one in kept) <= BUFFERED_BYTES_MAX
    assert next(reversed(kept)).payload == payload_of(BUFFERED_BYTES_MAX // size + 2, size), "the oldest went"
    assert len(between.a._payloads_at_peer["b"]) == ahead_module.REPLICATED_PAYLOADS_MAX


# On the disk meanwhile


class Masters(Wire):
    """The same, each with a journal."""

    def __init__(self, folder: Path, segment_bytes: int = 1 << 20) -> None:
        super().__init__()
        self.broken: list[BaseException] = []
        self.ended = asyncio.Event()
        self.files = {node: OsVfs(folder / node) for node in "ab"}
        self.journals = {
            node: Journal.open(files, node=node, draw_birth=lambda: 7, segment_bytes=segment_bytes)[0]
            for node, files in self.files.items()
        }
        self.laying = {node: PayloadWriter(journal, self._broke) for node, journal in self.journals.items()}
        self.a = PayloadTransfer(self._sender("a"), lambda: ["b"], 1 << 26, self.laying["a"])
        self.b = PayloadTransfer(self._sender("b"), lambda: ["a"], 1 << 26, self.laying["b"])

    def _broke(self, error: BaseException) -> None:
        self.broken.append(error)
        self.ended.set()

    def close(self) -> None:
        for node in "ab":
            self.laying[node].close(5)
            self.journals[node].close()


@pytest.fixture
async def masters(tmp_path: Path) -> AsyncIterator[Masters]:
    made = Masters(tmp_path)
    yield made
    made.close()
    assert made.broken == []


def hold(journal: Journal, run: TransactionRun) -> None:
    contents = b"".join(content_hash(item.kind, item.key, item.payload) for item in run.items)
    journal.append(TransactionsPersisted(run, contents))
    journal.sync()


@pytest.mark.parametrize("crowded", [True, False])
async def test_it_rests_for_others_and_for_nobody_else(crowded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead_module, "YIELD_S", 3600.0)
    between, company = Wire(), InteractiveLoad()
    between.a = PayloadTransfer(between._sender("a"), lambda: ["b"], 1 << 26, None, company)
    for _ in range(ACTIVE_REQUESTS_MIN * crowded):
        company.note_entries(1)
    spreading = asyncio.ensure_future(between.spread(payload_of(1)))
    for _ in range(10_000):
        await asyncio.sleep(0)
        if spreading.done():
            break
    assert spreading.done() != crowded
    spreading.cancel()
    await asyncio.gather(spreading, return_exceptions=True)


async def test_when_it_is_spread_it_is_on_every_disk(masters: Masters) -> None:
    payload = payload_of(1)
    await masters.spread(payload, "k")
    for journal in masters.journals.values():
        hold(
            journal,
            TransactionRun("a", 7, 1, [RunItem(1, KIND_QUADS, "", b"small"), RunItem(2, KIND_QUADS, "k", payload)]),
        )
        assert journal.staged_used == 1
        assert journal.read("a", 7, 2, 1, 1).items[0].payload == payload


async def test_the_last_piece_is_confirmed_when_it_is_durable(masters: Masters) -> None:
    payload, content = payload_of(2), content_hash(KIND_QUADS, "", payload_of(2))
    send_all(masters, payload, content)
    told = []
    async with asyncio.timeout(20):
        while TransferAck(content, SIZE) not in told:
            while masters.queue:
                notice = wire.decode("b", masters.queue.popleft()[2])
                assert isinstance(notice, wire.Notice)
                told.append(msgspec.msgpack.decode(notice.body, type=TransferAck))
            await asyncio.sleep(0)
    assert [had.upto for had in told] == [*range(WRITE_BATCH_BYTES, SIZE, WRITE_BATCH_BYTES), SIZE]
    hold(masters.journals["b"], TransactionRun("a", 7, 1, [RunItem(1, KIND_QUADS, "", payload)]))
    assert masters.journals["b"].staged_used == 1


def send_all(masters: Masters, payload: bytes, content: bytes) -> None:
    for offset in range(0, len(payload), CHUNK_BYTES):
        piece = PayloadChunk(content, KIND_QUADS, "", len(payload), offset, payload[offset : offset + CHUNK_BYTES])
        masters.b.on_notice("a", TOPIC, msgspec.msgpack.encode(piece))


async def test_what_is_wrong_leaves_nothing_on_the_disk(
    masters: Masters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    reserve = OsVfs.create_sparse

    def noted(files: OsVfs, name: str, size: int) -> None:
        made.append(name)
        reserve(files, name, size)

    monkeypatch.setattr(OsVfs, "create_sparse", noted)
    with pytest.raises(PeerFault, match="are not what their hash says"):
        send_all(masters, payload_of(3), bytes(16))
    masters.laying["b"].close(20)
    assert len(made) == 1, "it was begun"
    assert not list((tmp_path / "b").glob("making-*"))


async def test_one_that_is_begun_anew_while_it_is_written_is_not_confirmed_twice(masters: Masters) -> None:
    payload, content = payload_of(6), content_hash(KIND_QUADS, "", payload_of(6))
    send_all(masters, payload, content)
    send_all(masters, payload, content)
    masters.laying["b"].close(20)
    for _ in range(200):
        await asyncio.sleep(0)
    hads = [wire.decode("b", message) for _, _, message in masters.queue]
    told = [msgspec.msgpack.decode(had.body, type=TransferAck) for had in hads if isinstance(had, wire.Notice)]
    assert told.count(TransferAck(content, SIZE)) == 1
    assert masters.b._received["a"][content].payload == payload
    assert masters.b._incoming["a"] == {}


async def test_a_full_disk_is_no_error(tmp_path: Path) -> None:
    masters = Masters(tmp_path)
    masters.files["b"]._bytes_max = 0
    payload = payload_of(4)
    content = await masters.spread(payload)
    assert masters.journals["a"]._payload_staging.find_durable(content, SIZE)
    assert not masters.journals["b"]._payload_staging.has_payloads, "it never began"
    assert masters.b._received["a"][content].payload == payload
    masters.close()


async def test_a_disk_that_fails_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    masters = Masters(tmp_path)

    def fail(file: OsFile) -> None:
        raise OSError(errno.EIO, "the disk failed")

    monkeypatch.setattr(OsFile, "fdatasync", fail)
    task = asyncio.ensure_future(masters.laying["a"].write_all(bytes(16), "", payload_of(5, 6 << 20)))
    async with asyncio.timeout(20):
        await masters.ended.wait()
    assert isinstance(masters.broken[0], JournalBroken)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    masters.close()
