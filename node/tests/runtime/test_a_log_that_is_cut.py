"""What the shell shows while a view with another branch is accepted and installed: nothing above the cut in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from test_watermarks_and_loop import Alone, founded, submission

from txlog.config.process_config import NodeConfig, WorkerConfig
from txlog.model.durability import Durability
from txlog.model.entry import Span
from txlog.model.errors import LogAhead, LogDiverged, Unavailable
from txlog.model.hashes import chain_leaf, chain_next
from txlog.model.ids import Txid
from txlog.model.records import ReassignedStamps
from txlog.model.view import View
from txlog.protocol.events import SubmissionAccepted
from txlog.protocol.log.log_state import LogState
from txlog.runtime.master_context import MasterContext
from txlog.runtime.master_loop import MasterLoop
from txlog.runtime.transaction_status import TransactionTracker
from txlog.runtime.worker_registry import WorkerRegistry
from txlog.runtime.worker_state import WorkerMarker
from txlog.server.feed.log_pages import STEP_ENTRIES, LogPageHandler, PageContents
from txlog.telemetry.event_log import EventLog

SHARED, END = 5, 2000


class Split:
    """A master whose view stands apart since index 5, with 2000 entries, and a worker that has executed them all."""

    def __init__(self, alone: Alone) -> None:
        self.loop: MasterLoop = alone.loop
        self.durability = alone.loop.durability
        self.registry = WorkerRegistry("uk", [WorkerConfig(name="w-1", url="http://nowhere")], self.loop)
        alone.registry = self.registry
        self.transactions = TransactionTracker(self.loop, self.registry)

    @property
    def agreement(self) -> LogState:
        agreement = self.loop.status.log_state
        assert agreement is not None
        return agreement

    async def write(self, count: int) -> list[Txid]:
        write = self.loop.write([submission(f"{at}") for at in range(count)], Durability.SYNCED)
        assert await self.durability.wait_for(write.reached, 20)
        return [answer.txid for answer in write.answers if isinstance(answer, SubmissionAccepted)]

    def view(self, base: int, base_hash: bytes, apart_at: int) -> View:
        old = self.agreement.view
        return msgspec.structs.replace(
            old,
            epoch=old.epoch + 1,
            base_index=base,
            base_hash=base_hash,
            ancestors=[*old.ancestors, old.number],
            floor=self.agreement.last_stamp,
            diverged_index=apart_at,
            known_seqs=[self.agreement.own.held],
            strategies=[*old.strategies, old.strategy],
        )

    def accept(
        self, view: View, cut: int, spans: list[Span], stamps: list[int], waiting: list[ReassignedStamps]
    ) -> None:
        """As the core does when its turn comes, with everything that follows from it."""
        views = self.loop.executor.core.views
        assert self.agreement.accept_view(view, cut, spans, stamps, waiting)
        views.accepted, views.installed = view, False
        views.promised = views.highest_seen = view.number
        views.propose_after_ms = 1 << 59

    def look(self) -> None:
        """Whatever comes next: the loop has to see it in this very call."""
        self.loop._step()

    def install(self) -> None:
        self.loop.executor.core.views.mark_installed()
        self.look()

    def report(self, index: int) -> None:
        place = self.durability.position_at(index)
        self.told = {"epoch": place.epoch, "index": index, "hash": place.hash.hex(), "fence": 0}
        self.registry.report("w-1", msgspec.json.encode({"position": self.told, "state": "Working"}))


@pytest.fixture
async def split() -> AsyncIterator[Split]:
    alone = Alone()
    await founded(alone.loop)
    made = Split(alone)
    await made.write(SHARED)
    made.accept(made.view(SHARED, made.agreement.log_index.hash, SHARED), SHARED, [], [], [])
    made.install()
    await made.write(END - SHARED)
    made.report(END)
    assert (
        made.durability.stable.value,
        made.durability.applied.value,
        made.durability.truncation_count,
    ) == (END, END, 0)
    yield made
    assert not alone.ended
    await alone.loop.close(5.0)


def rejoin(split: Split, kept: int = 3) -> None:
    """The branch is cut behind what was shared; of its transactions ``kept`` are in the new base, from the second on
    the others wait with new stamps. One origin cannot change its order, so the first stamp makes the other hash."""
    agreement = split.agreement
    own = agreement.own
    stamps = [stamp + 1 for stamp in own.stamps(SHARED + 1, SHARED + kept)]
    value = agreement.log_index.hash_at(SHARED)
    for seq, stamp in zip(range(SHARED + 1, SHARED + kept + 1), stamps, strict=True):
        value = chain_next(value, chain_leaf(stamp, own.tag, seq, own.content(seq)))
    view = split.view(SHARED + kept, value, -1)
    first = SHARED + kept + 1
    floor = view.floor
    waiting = [
        ReassignedStamps(
            own.origin.node, own.origin.birth, first, [floor + 1 + at for at in range(own.held - first + 1)]
        )
    ]
    spans = [Span(own.origin.node, own.origin.birth, SHARED + 1, kept)]
    split.accept(view, SHARED, spans, stamps, waiting)


async def test_everything_falls_with_the_cut_and_nothing_of_the_base_is_shown_before_its_install(split: Split) -> None:
    loop = split.loop
    old = loop.durability.position_at(END)
    loop.durability.archived.move_to(END)
    rejoin(split)
    split.look()
    assert (
        loop.durability.truncation_count,
        loop.durability.stable.value,
        loop.durability.log_index,
        loop.durability.synced.value,
        loop.durability.quorum_index,
    ) == (1, SHARED, SHARED, SHARED, SHARED)
    assert loop.durability.log_position().index == loop.durability.stable_position().index == SHARED
    assert loop.durability.applied.value == loop.durability.archived.value == SHARED, "that much of it every branch has"
    own = split.agreement.own.origin
    assert loop.durability.index_of(Txid(own, SHARED + 1)) == 0, "in the base, which is not installed"
    outcome = split.transactions.outcome(Txid(own, SHARED + 1))
    assert (outcome.position, outcome.state) == (None, "quorum")
    split.install()
    assert await loop.durability.wait_for(loop.durability.wait_index(loop.durability.stable, END), 20), (
        loop.durability.stable.value,
        loop.executor.core.state,
    )
    assert loop.durability.position_at(END).hash != old.hash
    assert loop.durability.level_of(Txid(own, END)) is Durability.SYNCED
    assert loop.durability.applied.value == 0, "the worker has executed another branch"
    assert split.registry.is_off_chain(split.registry.workers["w-1"])


async def test_marks_that_wait_for_the_disk_speak_of_no_log_that_was_cut(split: Split) -> None:
    loop = split.loop
    executor = loop.executor
    loop._average_sync_s = 1.0
    write = loop.write([submission("x")], Durability.SYNCED)
    split.look()
    assert not executor.idle
    rejoin(split)
    split.look()
    assert loop.durability.stable.value == SHARED
    while not executor.idle:
        assert loop.durability.stable.value == loop.durability.log_index == loop.durability.quorum_index == SHARED
        await asyncio.sleep(0.001)
    assert loop.durability.stable.value == loop.durability.log_index == SHARED
    split.install()
    assert await loop.durability.wait_for(write.reached, 20)
    assert loop.durability.stable.value == loop.durability.quorum_index == END + 1


async def test_a_worker_above_the_new_log_is_known_to_be_off_it(split: Split) -> None:
    """There is no hash to compare: it is the epoch that tells."""
    loop = split.loop
    rejoin(split)
    split.look()
    assert not split.registry.is_off_chain(split.registry.workers["w-1"]), (
        "the view may still have it, for all that is known"
    )
    split.loop.executor.core.views.mark_installed()
    loop.executor.poll(loop._now())
    assert loop.durability.stable.value == SHARED
    assert split.registry.is_off_chain(split.registry.workers["w-1"])
    split.registry.update_watermarks()
    assert loop.durability.applied.value == 0


async def test_who_waits_for_a_worker_is_told_when_it_has_executed_the_transaction_at_its_new_place(
    split: Split,
) -> None:
    loop = split.loop
    txid = Txid(split.agreement.own.origin, END)
    split.report(SHARED)
    task = asyncio.ensure_future(split.transactions.wait_for_level(txid, Durability.APPLIED, 20))
    await asyncio.sleep(0)
    rejoin(split)
    split.look()
    loop.durability.applied.move_to(END)  # whatever anybody believes meanwhile
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    loop.durability.applied.move_to(0)
    split.install()
    assert await loop.durability.wait_for(loop.durability.wait_index(loop.durability.stable, END), 20), (
        loop.durability.stable.value,
        loop.executor.core.state,
    )
    split.report(END)
    assert await task


async def test_a_page_never_mixes_two_views(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = LogPageHandler(site_of(split))
    step: Callable[..., object] = pages._read_step
    looked = 0

    def cut_behind_the_first_step(*asked: object) -> object:
        nonlocal looked
        looked += 1
        found = step(*asked)
        if looked == 1:
            rejoin(split)
            split.look()
        return found

    monkeypatch.setattr(pages, "_read_step", cut_behind_the_first_step)
    monkeypatch.setattr("txlog.server.feed.log_pages.time.monotonic", iter(range(10**6)).__next__)
    with pytest.raises(Unavailable) as rejoining:
        await pages._read_entries(split.agreement, 0, END, 1 << 20, split.durability.truncation_count)
    assert rejoining.value.reason == "Rejoining"
    assert looked == 1
    assert STEP_ENTRIES < END, "else there is no middle"
    with pytest.raises(LogAhead):
        pages._checked_start(split.agreement, SHARED + 1, bytes(16).hex(), PageContents.EXECUTED)


async def test_no_page_for_a_worker_whose_position_is_on_another_branch(split: Split) -> None:
    """It is asked at every page, and compared by hash: the log has an entry there, and goes on behind it."""
    pages = LogPageHandler(site_of(split))
    old = split.durability.position_at(SHARED + 2)
    rejoin(split)
    split.look()
    split.install()
    assert await split.durability.wait_for(split.durability.wait_index(split.durability.stable, END), 20)
    new = split.durability.position_at(SHARED + 2)
    assert (
        pages._checked_start(split.agreement, new.index, new.hash.hex(), PageContents.EXECUTED).hash
        == new.hash
        != old.hash
    )
    with pytest.raises(LogDiverged, match="another branch"):
        pages._checked_start(split.agreement, old.index, old.hash.hex(), PageContents.EXECUTED)
    assert not split.registry.is_on_chain(WorkerMarker(old.epoch, old.index, old.hash.hex(), PageContents.EXECUTED))


def site_of(split: Split) -> MasterContext:
    config = NodeConfig.model_construct(node="uk-1", data_center="uk")
    return MasterContext(config, "demo", split.loop, split.registry, split.transactions, EventLog("uk-1"))
