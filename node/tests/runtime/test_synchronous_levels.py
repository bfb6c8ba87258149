"""The shipped loop and journal with synchronous transactions: levels follow the effect, and a restart keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from txlog.journal import Journal
from txlog.journal.memory_vfs import MemoryVfs
from txlog.model.durability import Durability
from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import Unavailable
from txlog.model.hashes import content_hash
from txlog.model.ids import Txid
from txlog.model.synchronous_entry import KIND_SYNCHRONOUS_UPDATE
from txlog.protocol.core import Core
from txlog.protocol.events import ConfiguredMember, ProtocolSettings, Submission, SubmissionAccepted
from txlog.protocol.views.decisions import SynchronousAnswer
from txlog.runtime.executor import Executor
from txlog.runtime.master_listener import MasterListener
from txlog.runtime.master_loop import NEVER_MS, AwaitedWrite, MasterLoop, system_now


class LoneListener(MasterListener):
    def on_ended(self, error: BaseException) -> None:
        raise error


def started(files: MemoryVfs, *, synchronous: bool = True) -> MasterLoop:
    journal, recovered = Journal.open(files, node="uk-1", draw_birth=lambda: 7, segment_bytes=1 << 20)
    members = (ConfiguredMember("uk-1", "uk", 1),)
    core = Core(ProtocolSettings("uk-1", members, synchronous=synchronous), recovered, system_now())
    return MasterLoop(
        Executor(core, journal),
        send=lambda peer, data: None,
        listener=LoneListener(),
        batch_transactions=10,
        requests_in_flight=3,
    )


def submission(text: str, key: str = "") -> Submission:
    payload, key = text.encode(), f"N/2+1 30000 {key}"
    return Submission(KIND_SYNCHRONOUS_UPDATE, key, payload, content_hash(KIND_SYNCHRONOUS_UPDATE, key, payload))


def ordinary(text: str) -> Submission:
    return Submission(KIND_UPDATE, "", text.encode(), content_hash(KIND_UPDATE, "", text.encode()))


def _txid(write: AwaitedWrite) -> Txid:
    answer = write.answers[0]
    assert isinstance(answer, SubmissionAccepted)
    return answer.txid


async def until(there: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not there():  # noqa: ASYNC110 - a few turns
            await asyncio.sleep(0.001)


def is_quorate(loop: MasterLoop) -> bool:
    return loop.status.view is not None and loop.status.view.is_quorate


async def test_levels_follow_the_commit_and_a_restart_keeps_it() -> None:
    files = MemoryVfs()
    loop = started(files)
    await until(lambda: is_quorate(loop))
    write = loop.write([submission("one", "k")], Durability.SYNCED)
    assert await loop.durability.wait_for(write.reached, 30)
    answer = write.answers[0]
    assert isinstance(answer, SubmissionAccepted)
    txid, durability = answer.txid, loop.durability
    assert durability.index_of(txid) == 2
    assert durability.level_of(txid) is Durability.SYNCED
    assert durability.synchronous_answer(txid, Durability.QUORUM) is SynchronousAnswer.COMMITTED
    assert durability.synchronous_answer(txid, Durability.APPLIED) is SynchronousAnswer.PENDING
    durability.applied.move_to(2)
    assert durability.level_of(txid) is Durability.APPLIED
    later = loop.write([ordinary("two")], Durability.SYNCED)
    assert await durability.wait_for(later.reached, 30)
    assert isinstance(later.answers[0], SubmissionAccepted)
    assert durability.synchronous_answer(later.answers[0].txid, Durability.SYNCED) is None
    await loop.close(5.0)
    files.kill()

    again = started(files)
    await until(lambda: is_quorate(again) and again.durability.stable.value)
    assert again.durability.index_of(txid) == 2
    assert again.durability.level_of(txid) is Durability.SYNCED
    repeat = again.write([submission("one", "k")], Durability.SYNCED)
    assert await again.durability.wait_for(repeat.reached, 30)
    assert isinstance(repeat.answers[0], SubmissionAccepted)
    assert repeat.answers[0].is_repeat
    assert repeat.answers[0].txid == txid
    await again.close(5.0)


async def test_a_quorum_of_one_has_the_write_once_its_own_disk_has_it() -> None:
    files = MemoryVfs()
    loop = started(files)
    await until(lambda: is_quorate(loop))
    write = loop.write([submission("one"), submission("two")], Durability.QUORUM)
    assert await loop.durability.wait_for(write.reached, 30)
    files.kill()
    names = [answer.txid for answer in write.answers if isinstance(answer, SubmissionAccepted)]
    assert len(names) == 2
    for txid in names:
        assert loop.durability.synchronous_answer(txid, Durability.QUORUM) is SynchronousAnswer.COMMITTED
    await loop.close(5.0)

    again = started(files)
    await until(lambda: is_quorate(again) and again.durability.stable.value >= 2)
    for txid in names:
        assert again.durability.synchronous_answer(txid, Durability.QUORUM) is SynchronousAnswer.COMMITTED
    await again.close(5.0)


async def test_records_that_nothing_waits_for_share_the_sync_of_the_next_write() -> None:
    loop = started(MemoryVfs())
    await until(lambda: is_quorate(loop) and not loop.executor.journal.dirty)
    syncs = loop.counts.syncs
    write = loop.write([submission("one")], Durability.QUORUM)
    assert await loop.durability.wait_for(write.reached, 30)
    txid, durability = _txid(write), loop.durability

    def is_synced() -> bool:
        assert durability.synchronous_answer(txid, Durability.QUORUM) is SynchronousAnswer.COMMITTED, "it was answered"
        return durability.level_of(txid) is Durability.SYNCED

    await until(is_synced)
    assert loop.counts.syncs == syncs + 2, "the write's own, and one for its COMMIT and for the places of both"
    assert not loop.executor.journal.dirty
    await loop.close(5.0)


async def test_without_synchronous_transactions_no_sync_is_put_off() -> None:
    loop = started(MemoryVfs())
    await until(lambda: is_quorate(loop))
    loop.write([ordinary("one")], Durability.ACCEPTED)

    def is_stable() -> bool:
        assert loop.sync_by_ms == NEVER_MS
        return loop.durability.stable.value > 0

    await until(is_stable)
    await loop.close(5.0)


async def test_where_they_are_not_in_use_nothing_is_logged() -> None:
    loop = started(MemoryVfs(), synchronous=False)
    await until(lambda: loop.status.log_state is not None)
    write = loop.write([submission("one")], Durability.SYNCED)
    assert await loop.durability.wait_for(write.reached, 30)
    refused = write.answers[0]
    assert isinstance(refused, Unavailable)
    assert refused.reason == "NoQuorum"
    log = loop.status.log_state
    assert log is not None
    assert log.last_own_seq == 0
    await loop.close(5.0)
