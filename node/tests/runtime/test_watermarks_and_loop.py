"""The loop against a core and a journal in memory: order of a turn, waiting, giving up, the end."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import Callable

import pytest

from txlog.journal import Journal, MemoryVfs
from txlog.model.durability import Durability
from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import JournalDamaged, PeerFault, Refused, Unavailable
from txlog.model.hashes import content_hash
from txlog.protocol.core import Core
from txlog.protocol.events import ConfiguredMember, ProtocolSettings, Submission, SubmissionAccepted
from txlog.runtime.executor import Executor, SyncTask
from txlog.runtime.master_listener import MasterListener
from txlog.runtime.master_loop import MasterLoop, clock_with_offset, system_now
from txlog.runtime.watermark import Watermark
from txlog.runtime.worker_registry import WorkerRegistry
from txlog.telemetry.event_log import EventLog


def submission(text: str, key: str = "") -> Submission:
    payload = text.encode()
    return Submission(KIND_UPDATE, key, payload, content_hash(KIND_UPDATE, key, payload))


class Alone(MasterListener):
    """One master without peers."""

    def __init__(self, members: int = 1, files: MemoryVfs | None = None, segment_bytes: int = 1 << 20) -> None:
        self.ended: list[BaseException] = []
        self.sent: list[tuple[str, bytes]] = []
        files = files or MemoryVfs()
        journal, recovered = Journal.open(files, node="uk-1", draw_birth=lambda: 7, segment_bytes=segment_bytes)
        names = [ConfiguredMember(f"uk-{at + 1}", "uk", 1) for at in range(members)]
        core = Core(ProtocolSettings("uk-1", tuple(names)), recovered, system_now())
        self.loop = MasterLoop(
            Executor(core, journal),
            send=lambda peer, data: self.sent.append((peer, data)),
            listener=self,
            batch_transactions=10,
            requests_in_flight=3,
        )
        self.registry: WorkerRegistry | None = None

    def on_stable_moved(self) -> None:
        if self.registry is not None:
            self.registry.update_watermarks()

    def on_log_truncated(self) -> None:
        if self.registry is not None:
            self.registry.doorbell.wake_all()

    def on_ended(self, error: BaseException) -> None:
        self.ended.append(error)


@pytest.fixture
async def alone():  # type: ignore[no-untyped-def]
    made = Alone()
    yield made
    await made.loop.close(5.0)


async def founded(loop: MasterLoop) -> None:
    while loop.status.log_state is None:  # noqa: ASYNC110 - founding takes a few turns
        await asyncio.sleep(0.001)


async def test_a_watermark_tells_whoever_it_has_passed_in_order() -> None:
    loop = asyncio.get_running_loop()
    mark = Watermark(5)
    futures = {target: loop.create_future() for target in (3, 9, 7, 8)}
    for target, future in futures.items():
        mark.add_waiter(target, future)
    assert [target for target, future in futures.items() if future.done()] == [3]
    futures[8].cancel()
    mark.move_to(8)
    assert [target for target, future in futures.items() if future.done()] == [3, 7, 8]
    mark.move_to(2)
    late = loop.create_future()
    mark.add_waiter(5, late)
    assert not late.done()
    mark.move_to(9)
    assert late.done()
    assert len(mark) == 0


async def test_a_watermark_forgets_who_gave_up() -> None:
    loop = asyncio.get_running_loop()
    mark = Watermark()
    for _ in range(5000):
        future = loop.create_future()
        mark.add_waiter(10, future)
        future.cancel()
    assert len(mark) < 1100


async def test_writes_of_one_moment_become_one_record(alone: Alone) -> None:
    await founded(alone.loop)
    writes = [alone.loop.write([submission(f"{at}")], Durability.SYNCED) for at in range(8)]
    assert [await alone.loop.durability.wait_for(write.reached, 30) for write in writes] == [True] * 8
    answers = [answer for write in writes for answer in write.answers]
    assert [answer.txid.seq for answer in answers if isinstance(answer, SubmissionAccepted)] == list(range(1, 9))
    assert alone.loop.durability.stable.value == alone.loop.durability.synced.value == 8
    first = alone.loop.executor.journal.read("uk-1", 7, 1, 100, 1 << 20)
    assert [item.payload for item in first.items] == [b"%d" % at for at in range(8)]
    assert not alone.ended


async def test_more_than_a_batch_is_taken_in_several(alone: Alone) -> None:
    await founded(alone.loop)
    writes = [alone.loop.write([submission(f"{at}.{n}") for n in range(4)], Durability.SYNCED) for at in range(6)]
    assert all([await alone.loop.durability.wait_for(write.reached, 30) for write in writes])
    assert alone.loop.durability.synced.value == 24


async def test_time_that_is_over_says_false_and_leaves_nothing_behind(alone: Alone) -> None:
    await founded(alone.loop)
    mark = alone.loop.durability.applied
    future = alone.loop.durability.wait_index(mark, 5)
    assert not await alone.loop.durability.wait_for(future, 0.01)
    task = asyncio.ensure_future(alone.loop.durability.wait_for(alone.loop.durability.wait_index(mark, 6), 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    mark.move_to(10)
    assert len(mark) == 0


async def test_refused_before_it_is_founded() -> None:
    lonely = Alone(members=2)
    write = lonely.loop.write([submission("x"), submission("y")], Durability.SYNCED)
    assert await lonely.loop.durability.wait_for(write.reached, 30)
    assert [answer.reason for answer in write.answers if isinstance(answer, Unavailable)] == ["NotFounded"] * 2
    assert lonely.loop.counts.refused == {"NotFounded": 2}
    assert lonely.sent
    await lonely.loop.close()


async def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_sealed_segments_get_their_indexes_and_old_ones_are_read_again() -> None:
    files = MemoryVfs()
    first = Alone(files=files, segment_bytes=8192)
    await founded(first.loop)
    for at in range(30):
        write = first.loop.write([submission("x" * 1000 + str(at))], Durability.SYNCED)
        assert await first.loop.durability.wait_for(write.reached, 30)
    segments = [name for name in files.list() if name.startswith("segment")]
    await until(lambda: sum(name.startswith("index") for name in files.list()) == len(segments) - 1)
    assert not first.ended
    await first.loop.close(5.0)
    files.kill()

    files.flip_bit(segments[1], files.dump()[segments[1]].index(b"x" * 900), 1)
    second = Alone(files=files, segment_bytes=8192)
    assert not second.ended
    await until(lambda: second.ended)
    assert isinstance(second.ended[0], JournalDamaged)
    assert segments[1].replace("segment", "index") not in files.list()
    await second.loop.close(5.0)


async def test_too_many_requests_are_refused_at_once(alone: Alone) -> None:
    await founded(alone.loop)
    alone.loop.in_flight = 3
    with pytest.raises(Unavailable) as full:
        alone.loop.write([submission("x")], Durability.SYNCED)
    assert full.value.reason == "QueueFull"


async def test_a_repeated_key_is_the_first_transaction(alone: Alone) -> None:
    await founded(alone.loop)
    first = alone.loop.write([submission("x", "k")], Durability.SYNCED)
    await alone.loop.durability.wait_for(first.reached, 30)
    again = alone.loop.write([submission("x", "k"), submission("y", "k")], Durability.SYNCED)
    assert await alone.loop.durability.wait_for(again.reached, 30)
    same, other = again.answers
    assert isinstance(same, SubmissionAccepted)
    assert same.is_repeat
    assert isinstance(first.answers[0], SubmissionAccepted)
    assert same.txid == first.answers[0].txid
    assert isinstance(other, Refused)
    assert alone.loop.durability.level_of(same.txid) is Durability.SYNCED
    assert await alone.loop.durability.wait_txid(same.txid, Durability.SYNCED)


async def test_a_fault_of_a_peer_is_counted_and_ends_nothing(alone: Alone) -> None:
    for data in (b"", b"\x02x", b"\x01\xc1"):
        with pytest.raises(PeerFault):
            alone.loop.receive("uk-2", data)
    assert alone.loop.counts.peer_faults == {("uk-2", "UnknownFormat"): 2, ("uk-2", "Malformed"): 1}
    assert not alone.ended


async def test_a_sync_that_fails_ends_the_process_and_releases_nothing(alone: Alone) -> None:
    await founded(alone.loop)

    class Broken:
        def run(self) -> None:
            raise OSError("the disk is gone")

    real = alone.loop.executor.begin_sync
    alone.loop.executor.begin_sync = lambda: Broken() if real() is not None else None  # type: ignore[method-assign]
    sent = len(alone.sent)
    write = alone.loop.write([submission("x")], Durability.ACCEPTED)
    await until(lambda: alone.ended)
    assert not write.reached.done()
    assert [str(error) for error in alone.ended] == ["the disk is gone"]
    assert alone.loop.durability.accepted.value == 0
    assert len(alone.sent) == sent
    late = alone.loop.write([submission("y")], Durability.ACCEPTED)
    assert await alone.loop.durability.wait_for(late.reached, 30)
    assert isinstance(late.answers[0], Unavailable)


async def test_on_a_slow_disk_what_comes_during_a_sync_shares_the_next_turn(alone: Alone) -> None:
    await founded(alone.loop)
    loop, gate, at_disk, syncs = alone.loop, threading.Event(), threading.Event(), 0
    real = loop.executor.begin_sync

    class Slow:
        def __init__(self, sync: SyncTask) -> None:
            self._sync = sync

        def run(self) -> None:
            at_disk.set()
            assert gate.wait(60)
            self._sync.run()

    def begin_sync() -> SyncTask | None:
        nonlocal syncs
        sync = real()
        if sync is None:
            return None
        syncs += 1
        return Slow(sync)

    loop.executor.begin_sync = begin_sync  # type: ignore[method-assign]
    loop._average_sync_s = 1.0  # as if the last ones had taken so long
    first = loop.write([submission("first")], Durability.ACCEPTED)
    await asyncio.to_thread(at_disk.wait, 30)
    turns = loop.counts.turns
    later = []
    for at in range(8):
        later.append(loop.write([submission(f"{at}")], Durability.SYNCED))
        await asyncio.sleep(0)
    assert (loop.counts.turns, syncs) == (turns, 1), "nothing turns while the disk is at work"
    assert not first.reached.done()
    gate.set()
    assert [await loop.durability.wait_for(write.reached, 30) for write in (first, *later)] == [True] * 9
    assert loop.durability.synced.value == 9
    first_run = loop.executor.journal.read("uk-1", 7, 2, 100, 1 << 20)
    assert [item.payload for item in first_run.items] == [b"%d" % at for at in range(8)], "one record"


async def test_after_an_idle_moment_the_journal_is_sealed(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.runtime.journal_maintenance.IDLE_SEAL_S", 0.01)
    sealed = asyncio.Event()
    monkeypatch.setattr(alone.loop.executor.journal, "seal", sealed.set)
    await founded(alone.loop)
    alone.loop.write([submission("x")], Durability.ACCEPTED)
    await asyncio.wait_for(sealed.wait(), 30)


def test_a_line_for_each_event_and_not_more_than_that() -> None:
    out, time = io.StringIO(), [0.0]
    log = EventLog("uk-1", out, limit_s=10, clock=lambda: time[0])
    log.info("Started", port=1)
    for _ in range(5):
        log.warning_rate_limited("WrongToken", "uk-2", peer="uk-2")
    log.warning_rate_limited("WrongToken", "uk-3")
    time[0] = 11
    log.warning_rate_limited("WrongToken", "uk-2", peer="uk-2")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["event"], line.get("peer"), line.get("suppressed")) for line in lines] == [
        ("Started", None, None),
        ("WrongToken", "uk-2", None),
        ("WrongToken", None, None),
        ("WrongToken", "uk-2", 4),
    ]
    assert all(line["node"] == "uk-1" and line["time"] for line in lines)


@pytest.mark.parametrize("offset_ms", [-3_600_000, 50_000])
def test_a_clock_with_an_offset_is_wrong_by_it_and_measures_time_as_ever(offset_ms: int) -> None:
    before, now, after = system_now(), clock_with_offset(offset_ms)(), system_now()
    assert before.wall <= now.wall - 1000 * offset_ms <= after.wall
    assert before.mono <= now.mono <= after.mono
    assert clock_with_offset(0) is system_now
