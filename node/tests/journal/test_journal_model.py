"""The journal against a plain list of what was appended: any mixture of records, reads, syncs, seals, restarts, crashes
and a full disk (rules 8, 15, 28, 29)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from journal_life import Life, told, twin
from journal_pen import BIRTHS, founding, open_journal

from txlog.journal import Journal, MemoryVfs, SimulatedCrash
from txlog.model.errors import JournalFull
from txlog.model.records import (
    CounterCeiling,
    OperatorOverrides,
    Record,
    RecoveredState,
    StableAdvanced,
    TransactionsPersisted,
    ViewLeft,
    ViewPromised,
)

SEGMENT_BYTES = 4096
NODES = st.sampled_from(sorted(BIRTHS))


class Model:
    """The slow, obvious twin."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.durable = 0


def end_at(operations: int) -> Callable[[str, str], None]:
    """The process ends at this operation on the disk."""
    left = iter(range(operations))

    def hook(operation: str, name: str) -> None:
        if next(left, None) is None:
            raise SimulatedCrash

    return hook


class JournalMachine(RuleBasedStateMachine):
    @initialize(segments=st.integers(3, 12), cache=st.sampled_from([0, 2000, 1 << 20]))
    def begin(self, segments: int, cache: int) -> None:
        self.files = MemoryVfs(segments * SEGMENT_BYTES)
        self.cache = cache
        self.model, self.start, self.in_reserve = Model(), 0, 0
        self._follow()
        self.journal, _ = self._open()
        self._append(founding())
        self._follow()
        self._sync()

    def _open(self) -> tuple[Journal, RecoveredState]:
        return open_journal(self.files, segment_bytes=SEGMENT_BYTES, cache_bytes=self.cache)

    def _follow(self) -> None:
        """Whatever is written next continues what there is."""
        self.life = Life(0)
        self.pen = self.life.pen
        self.pen.follow(self.model.records)

    def _append(self, records: list[Record]) -> None:
        """On a full disk the reserve takes a few records, and somebody makes room in time."""
        if not self.journal.has_room_for_work and not isinstance(records[0], TransactionsPersisted):
            self.in_reserve += len(records)  # each of these small segments takes some
            if self.in_reserve > 1:
                self.files.capacity += SEGMENT_BYTES
                self.in_reserve = 0
        self.journal.append(records)
        self.model.records += records

    def _sync(self) -> None:
        self.journal.sync()
        self.model.durable = len(self.model.records)

    @rule(node=NODES, count=st.integers(1, 12))
    def hold(self, node: str, count: int, *, late: bool = False) -> None:
        record = self.pen.held(node, count, late=late)
        try:
            self._append([record])
        except JournalFull:
            self._follow()
            self.files.capacity += SEGMENT_BYTES

    @rule(node=NODES, count=st.integers(1, 12))
    def add(self, node: str, count: int) -> None:
        count = min(count, self.pen.seqs[node] - self.pen.logged[node])
        if count:
            self._append([self.pen.added((node, count))])

    @rule(stamp=st.integers(0, 1 << 63), stable=st.integers(0, 1 << 40))
    def promise(self, stamp: int, stable: int) -> None:
        self._append([CounterCeiling(stamp), StableAdvanced(stable)])

    @rule(node=NODES)
    def hold_late(self, node: str) -> None:
        """Without a stamp, while no view is in force."""
        self.hold(node, 1, late=True)

    @rule(seed=st.integers(0, 1 << 16), installed=st.booleans())
    def change(self, seed: int, installed: bool) -> None:
        """Any view: it cuts the log, goes on otherwise, gives new stamps."""
        self.life.rng.seed(seed)
        self._append([self.life.change()] + ([self.pen.installed()] if installed else []))

    @rule(ballot=st.integers(1, 99), leave=st.booleans())
    def promise_or_leave(self, ballot: int, leave: bool) -> None:
        number = self.pen.number
        self._append([ViewLeft(number, 1, "a") if leave else ViewPromised(number + 1, ballot, "b")])

    @rule(begin=st.lists(NODES, unique=True), without=st.dictionaries(NODES, st.integers(10, 12)))
    def order(self, begin: list[str], without: dict[str, int]) -> None:
        """Of members of the view, and of others that bore their names before."""
        self._append([OperatorOverrides(begin, [(node, birth, self.pen.number) for node, birth in without.items()])])

    @rule()
    def sync(self) -> None:
        self._sync()

    @rule()
    def sync_beside_appends(self) -> None:
        """What is appended while a batch is on its way belongs to the next one."""
        sync = self.journal.begin_sync()
        count = len(self.model.records)
        self._append([CounterCeiling(1)])
        if sync is not None:
            sync.run()
            self._append([CounterCeiling(2)])
            self.journal.end_sync(sync)
            self.model.durable = count

    @rule()
    def idle(self) -> None:
        self.journal.seal()
        prepare = self.journal.begin_preallocation()
        if prepare is not None:
            prepare.run()
            self.journal.end_preallocation(prepare)

    @rule(node=NODES, first=st.integers(1, 40), count=st.integers(1, 30), size=st.integers(1, 400))
    def read(self, node: str, first: int, count: int, size: int) -> None:
        items = self.journal.read(node, BIRTHS[node], first, count, size).items
        assert bool(items) == (first <= self.pen.seqs[node])
        assert items == [self.pen.item(node, seq) for seq in range(first, first + len(items))]
        assert len(items) <= count
        assert sum(len(one.payload) for one in items[:-1]) <= size

    @rule()
    def restart(self) -> None:
        """A clean kill: what was synced, or written without a sync, is there."""
        self.files.kill()
        self._recover()

    @rule(seed=st.integers(0, 1 << 16), written=st.booleans())
    def crash(self, seed: int, written: bool) -> None:
        rng = random.Random(seed)
        sync = self.journal.begin_sync() if written else None
        if sync is not None:
            self.files.hook = end_at(rng.randrange(1, 6))
            with contextlib.suppress(SimulatedCrash):
                sync.run()
                self.model.durable = len(self.model.records)
            self.files.hook = None
        self.files.crash(lambda what, options: rng.randrange(options))
        self._recover()

    def _recover(self) -> None:
        try:
            self.journal, found = self._open()
        except JournalFull:  # each start takes some bytes: of a full disk's reserve, in the end
            assert self.files.free_bytes() < SEGMENT_BYTES
            self.files.capacity += SEGMENT_BYTES
            self.journal, found = self._open()
        if not self.journal.has_room_for_work:
            self.files.capacity += SEGMENT_BYTES
        assert found.damage == []
        counts = range(self.model.durable, len(self.model.records) + 1)
        count = next((n for n in counts if twin(self.model.records[:n]) == told(found)), None)
        assert count is not None, "durable records are lost, or others were invented"
        del self.model.records[count:]
        self.model.durable = count
        self._follow()
        assert found.start > self.start
        self.start = found.start

    @precondition(lambda self: hasattr(self, "journal"))
    @invariant()
    def knows_whether_it_is_dirty(self) -> None:
        assert self.journal.dirty or self.model.durable == len(self.model.records)


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
