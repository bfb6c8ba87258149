"""Two simulated sites with a link each, which drive the shipped decisions (:mod:`txlog.sites`).

Each site is a totally ordered log with an unsettled end, which a rejoin reorders. What is settled is executed in order,
and gives change sets. The links read both logs, decide, read values, and write entries that count only where the record
before them is there. They are killed anywhere, run twice, lose, delay and repeat what they write, and are cut off. They
are taken offline, and learn that late. In some worlds clients write into the graph of the records. In others change
sets are forgotten, and one site takes the state of the other one (:mod:`simulated_transfer`).
"""

from __future__ import annotations

import pickle
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping
from typing import Any

import simulated_transfer as transfers
from simulated_records import (
    FORGERIES,
    KIND,
    LinkWrite,
    LocalWrite,
    LogItem,
    forge_record,
    key_bytes,
    line_of,
    record_lines,
)

from txlog.changesets.change_set import ChangeSet
from txlog.sites.batches import cut_batch
from txlog.sites.decisions import Plan, Value, finish_plan, plan_seal, plan_step
from txlog.sites.keys import key_of
from txlog.sites.link_record import (
    NO_VERSION,
    LinkRecord,
    StepKind,
    ValueAt,
    Version,
    encode_record,
)
from txlog.sites.link_seal import LinkSeal
from txlog.sites.site_book import SiteBook, SiteEntry
from txlog.sites.transfer_steps import is_reset_due, is_torn

STEPS = 500
QUIET_ROUNDS = 30
ROUNDS_MAX = 600
EMPTY: Value = frozenset()
ORDER_ONLY = 1_000_000
"""Stamps of a site without skew begin here."""


class Violation(Exception):
    """The sites are not what they must be."""


class SimulatedSite:
    def __init__(self, world: World, name: str, skew: int) -> None:
        self.world, self.name, self.skew = world, name, skew
        self.log: list[LogItem] = []
        self.settled = 0
        self.is_switched_off = False
        self.events: list[SiteEntry] = []
        self.names: set[bytes] = set()
        self.contents: set[bytes] = set()
        self.last: LinkRecord | None = None
        self.history: dict[bytes, list[tuple[int, Value]]] = {}
        self.local: list[tuple[bytes, Version, Value]] = []
        self.reference_clock = 0
        self.kept = 0
        self.ordered_at = 0
        self.anchor = 0
        self.is_taking = False

    # -- the log

    def append(self, write: LocalWrite | LinkWrite) -> None:
        item = LogItem(write)
        last = self.log[-1].stamp if self.log else 0
        item.stamp = max(last + 1, ORDER_ONLY + self.world.now + self.skew)
        self.log.append(item)

    def rejoin(self, rng: random.Random) -> None:
        tail = self.log[self.settled :]
        rng.shuffle(tail)
        last = self.log[self.settled - 1].stamp if self.settled else 0
        for item in tail:
            last = max(last + 1, ORDER_ONLY)
            item.stamp = last
        self.log[self.settled :] = tail

    # -- what it executed

    def value(self, key: bytes, index: int | None = None) -> Value:
        rows = self.history.get(key, [])
        at = len(rows) if index is None else bisect_right(rows, index, key=lambda row: row[0])
        return rows[at - 1][1] if at else EMPTY

    def execute(self) -> None:
        index = len(self.events) + 1
        item = self.log[index - 1]
        write = item.write
        self.reference_clock = max(self.reference_clock, item.stamp)
        change = (
            self._execute_local(index, write) if isinstance(write, LocalWrite) else self._execute_link(index, write)
        )
        self.events.append(SiteEntry(index, index.to_bytes(16, "big"), item.stamp, change))

    def _execute_local(self, index: int, write: LocalWrite) -> ChangeSet:
        deletes: set[bytes] = set()
        adds: set[bytes] = set()
        for number, how, text in write.operations:
            key, line = key_bytes(number), line_of(number, text)
            before = self.value(key)
            after = {
                "replace": frozenset([line]),
                "add": before | {line},
                "drop": frozenset(sorted(before)[1:]),
                "clear": EMPTY,
            }[how]
            if after != before:
                self.history.setdefault(key, []).append((index, after))
                self.local.append((key, Version(self.reference_clock, self.name, index), after))
            deletes |= before - after
            adds |= after - before
        gone, new = self._execute_forgery(write.forged)
        return ChangeSet(tuple(sorted(deletes | gone)), tuple(sorted(adds | new)))

    def _execute_forgery(self, how: str) -> tuple[set[bytes], set[bytes]]:
        """The lines of records that a client deletes and adds."""
        source = self.other_name
        before = record_lines(source, self.names, self.contents)
        if how == "drop":
            self.names, self.contents = set(), set()
        elif how and self.last is not None:
            self.world.count["forged"] += 1
            rng = self.world.rng
            names, texts = forge_record(self.last, how, f"{rng.getrandbits(64):x}")
            replaced = rng.random() < 0.5
            self.names = names if replaced else self.names | names
            self.contents = texts if replaced else self.contents | texts
        after = record_lines(source, self.names, self.contents)
        return before - after, after - before

    @property
    def other_name(self) -> str:
        return next(name for name in self.world.sites if name != self.name)

    def _execute_link(self, index: int, write: LinkWrite) -> ChangeSet:
        entry, record = write.entry, write.entry.record
        is_there = entry.expected in self.names and len(self.contents) > 0
        takes_effect = not self.names if entry.expected is None else is_there
        if not takes_effect:
            self.world.count["void"] += 1
            return ChangeSet()
        if record.step in (StepKind.BATCH, StepKind.CORRECTION, StepKind.PAGE) and self.world.is_offline(self):
            raise Violation(f"offline: {self.name} takes {record.step} {record.number}")
        name, contents = encode_record(record, write.nonce)
        before = record_lines(record.site, self.names, self.contents)
        self.names = {each for each in self.names if each != entry.expected} | {name}
        self.contents = {contents}
        self.last = record
        after = record_lines(record.site, self.names, self.contents)
        deletes, adds = list(before - after), list(after - before)
        for line in entry.deletes:
            if self._change(index, line, there=False):
                deletes.append(line)
        for line in entry.adds:
            if self._change(index, line, there=True):
                adds.append(line)
        for each in record.keys:
            self.reference_clock = max(self.reference_clock, each.stamp + 1)
            if each.site == self.name and record.step is StepKind.BATCH:
                raise Violation(f"loop: {self.name} receives its own change of {each.key!r}")
        if record.step is StepKind.BATCH:
            self.reference_clock = max(self.reference_clock, record.clock + 1)
            self.world.check_batch(self, record.site, record.to)
        transfers.execute_step(self, index, record, self.log[index - 1].stamp)
        self.world.count[str(record.step)] += 1
        return ChangeSet(tuple(sorted({*deletes} - {*adds})), tuple(sorted({*adds} - {*deletes})))

    def _change(self, index: int, line: bytes, *, there: bool) -> bool:
        key = key_of(line, KIND)
        before = self.value(key)
        after = before | {line} if there else before - {line}
        if after == before:
            return False
        rows = self.history.setdefault(key, [])
        if rows and rows[-1][0] == index:
            rows[-1] = (index, after)
        else:
            rows.append((index, after))
        return True


class SimulatedLink:
    """A link process of a site. ``saved``: both books as its disk holds them."""

    def __init__(self, world: World, site: SimulatedSite, source: SimulatedSite) -> None:
        self.world, self.site, self.source = world, site, source
        self.saved: bytes | None = None  # pickled: a deep copy takes six times as long
        self.is_stuck = False
        self.open()

    def open(self) -> None:
        """Begin with what was saved, or read both logs again."""
        here, there = self.site.name, self.source.name
        self.mine, self.theirs = (
            (SiteBook(here, there, KIND, f"c-{there}"), SiteBook(there, here, KIND, f"c-{here}"))
            if self.saved is None
            else pickle.loads(self.saved)
        )
        if self.saved is None:
            transfers.begin_again(self)
        self.work: Iterator[None] | None = None
        self.seal: LinkSeal | None = None
        self.is_offline = False
        self.best: dict[tuple[str, bytes], Version] = {}
        self.known: dict[str, int] = {}

    def kill(self, rng: random.Random) -> None:
        if rng.random() < 0.2:
            self.saved = None  # its table is lost, too
        self.open()

    def turn(self) -> None:
        rng, faulty = self.world.rng, self.world.is_faulty
        is_cut = faulty and self.world.is_cut
        if not faulty or rng.random() < 0.5:
            self._read_switches(is_cut)
        if self.is_offline:
            return
        is_gone = self.mine.index < self.site.kept or self.theirs.index < self.source.kept
        self.is_stuck = (is_gone or is_torn(self.mine, self.theirs)) and not transfers.await_transfer(self)
        if self.is_stuck:
            return
        self._read(self.mine, self.site, rng.choice([1, 3, 50]) if faulty else 1000)
        if not is_cut:
            self._read(self.theirs, self.source, rng.choice([1, 3, 50]) if faulty else 1000)
        if rng.random() < 0.3 or not faulty:
            self.saved = pickle.dumps((self.mine, self.theirs))
        if is_cut:
            return
        if self.work is None:
            self.work = self._next_work()
        try:
            next(self.work)
        except StopIteration:
            self.work = None

    def _read_switches(self, is_cut: bool) -> None:
        """As :class:`SiteLink` does: a site that is cut off is known from before."""
        sites = [self.site] if is_cut else [self.site, self.source]
        if any(each.is_switched_off for each in sites):
            if self.seal is None:
                self.seal, self.work = LinkSeal(self.site.settled), None
            if not self.is_offline and self.seal.is_closed(self.mine):
                self.is_offline = True
                self.world.count["offline"] += 1
        elif not is_cut:
            self.seal, self.is_offline = None, False

    def _next_work(self) -> Iterator[None]:
        mine = self.mine
        if self.seal is not None:
            return self._work_on_seal()
        if transfers.is_order_pending(self) or (is_reset_due(mine, self.theirs) and not mine.needs):
            return self.write(transfers.plan_anchor(self))
        if mine.is_taking and mine.record is not None and not mine.needs:
            return transfers.take_state(self)
        return iter([None]) if mine.awaits_anchor else self._work()

    def write(self, plan: Plan) -> Generator[None, None, bool]:
        """Compose and submit an entry, and wait for it. Returns whether it is known that it took effect."""
        world, rng = self.world, self.world.rng
        for _ in range(rng.choice([0, 0, 1, 6]) if world.is_faulty else 0):
            yield
        entry = finish_plan(plan, self.site.name, self._values)
        for _ in range(rng.choice([0, 0, 1, 4]) if world.is_faulty else 0):
            yield
        nonce = f"{rng.getrandbits(64):x}"
        world.submit(self.site, LinkWrite(entry, nonce))
        patience = 20 if world.is_faulty else 3
        read = self.mine.touched
        while self.mine.touched == read and patience:
            patience -= 1
            yield
        return self.mine.record == encode_record(plan.record, nonce).name

    def _work_on_seal(self) -> Iterator[None]:
        plan = plan_seal(self.mine)
        if plan is None:
            yield
            return
        self.world.submit(
            self.site, LinkWrite(finish_plan(plan, self.site.name, self._values), f"{self.world.rng.getrandbits(64):x}")
        )
        patience = 20
        while self.mine.record == plan.expected and patience:
            patience -= 1
            yield

    def _read(self, book: SiteBook, site: SimulatedSite, count: int) -> None:
        for event in site.events[book.index : book.index + count]:
            book.apply(event)
            self._check_clean(book)

    def _check_clean(self, book: SiteBook) -> None:
        """At a clean position no key goes back to an older version."""
        known = self.known.get(book.site, 0)
        self.known[book.site] = book.acknowledged
        if book.anchor and known <= book.anchor:
            self.best = {}  # from a transfer on, and with the first import after it, versions begin again
        if book.needs:
            return
        for key in book.rows:
            last = book.last_change(key)
            assert last is not None
            best = self.best.get((book.site, key), NO_VERSION)
            if last.version < best:
                raise Violation(f"regress: {book.site} at {book.index}, {key!r} from {best} to {last.version}")
            self.best[book.site, key] = last.version

    def _work(self) -> Iterator[None]:
        world, rng, mine = self.world, self.world.rng, self.mine
        batch = cut_batch(self.theirs, mine.cursor, rng.choice([1, 3, 100]) if world.is_faulty else 100)
        plan = plan_step(mine, batch, rng.choice([1, 100]) if world.is_faulty else 100)
        if plan is None:
            yield
            return
        world.count["keys"] += len(plan.record.keys)
        world.count["whole"] += len(plan.record.keys) - len(plan.changes)
        world.count["conflicts"] += plan.record.conflicts
        yield from self.write(plan)

    def _values(self, at: ValueAt, keys: Collection[bytes]) -> Mapping[bytes, Value]:
        site = self.world.sites[at.site]
        assert at.at <= len(site.events), "values are read of what is settled"
        return {key: site.value(key, at.at) for key in keys}


class World:
    """One run: random steps, then everything heals, and the sites are compared."""

    def __init__(self, seed: int, steps: int = STEPS) -> None:
        rng = self.rng = random.Random(seed)
        self.now = 0
        self.count: Counter[str] = Counter()
        self.keys = list(range(rng.choice([2, 4, 8])))
        self.is_disjoint = rng.random() < 0.2
        self.sites = {name: SimulatedSite(self, name, rng.choice([0, 0, 5, 60, -60])) for name in ("lon", "nyc")}
        self.owner = {key: rng.choice(["lon", "nyc"]) for key in self.keys}
        self.rates = {name: rng.choice([0.03, 0.08, 0.2]) for name in self.sites}
        lon, nyc = self.sites.values()
        self.links = [SimulatedLink(self, lon, nyc), SimulatedLink(self, nyc, lon)]
        if rng.random() < 0.3:
            self.links.append(SimulatedLink(self, *rng.choice([(lon, nyc), (nyc, lon)])))
        self.mail: list[tuple[str, LinkWrite, float]] = []
        self.has_forgers = rng.random() < 0.3
        self.has_transfers = not self.has_forgers and rng.random() < 0.5
        self.texts = 0
        self.is_faulty, self.is_cut = True, False
        for _ in range(steps):
            self._step()
        self._heal()
        self._check_end()

    def _step(self) -> None:
        rng = self.rng
        self.now += 1
        site = rng.choice(list(self.sites.values()))
        if rng.random() < self.rates[site.name]:
            self._write(site)
        chance = rng.random()
        if chance < 0.3:
            site.settled = min(len(site.log), site.settled + rng.choice([1, 2, 8]))
        elif chance < 0.33:
            site.rejoin(rng)
        elif chance < 0.36:
            rng.choice(self.links).kill(rng)
            self.count["kills"] += 1
        elif chance < 0.37:
            self.is_cut = not self.is_cut
        if rng.random() < (0.02 if site.is_switched_off else 0.008):
            site.is_switched_off = not site.is_switched_off
        if rng.random() < 0.6 and len(site.events) < site.settled:
            site.execute()
        if self.has_transfers and rng.random() < 0.01:
            site.kept = max(site.kept, len(site.events) - rng.choice([0, 3, 20]))
            self.order_transfer(site)
        for letter in [each for each in self.mail if rng.random() < each[2]]:
            self.mail.remove(letter)
            self.sites[letter[0]].append(letter[1])
        for link in self.links:
            if rng.random() < 0.5:
                link.turn()

    def _write(self, site: SimulatedSite) -> None:
        rng = self.rng
        keys = [key for key in self.keys if not self.is_disjoint or self.owner[key] == site.name]
        operations: list[tuple[int, str, bytes]] = []
        for key in rng.sample(keys, min(len(keys), rng.choice([1, 1, 2]))):
            self.texts += 1
            how = rng.choices(["replace", "add", "drop", "clear"], [35, 30, 10, 25])[0]
            operations.append((key, how, b"%d" % self.texts))
        forged = ""
        if self.has_forgers and rng.random() < 0.15:
            forged = rng.choice((*FORGERIES, *["drop"] * 5))
        if operations or forged:
            self.count["writes"] += 1
            site.append(LocalWrite(operations, forged))

    def order_transfer(self, site: SimulatedSite) -> None:
        """A person lets a site take the state of the other one, unless a transfer is under way."""
        other = self.sites[site.other_name]
        if not (other.is_taking or other.ordered_at > other.anchor or site.ordered_at > site.anchor):
            site.ordered_at = site.settled
            self.count["orders"] += 1

    def submit(self, site: SimulatedSite, write: LinkWrite) -> None:
        rng = self.rng
        if not self.is_faulty:
            site.append(write)
            return
        chance = rng.random()
        if chance < 0.6:
            site.append(write)
        elif chance < 0.9:
            self.mail.append((site.name, write, 0.12))
        # A repeated beginning after a client's drop would bring the condition of old batches back.
        is_repeatable = not self.has_forgers or write.entry.expected is not None
        if chance > 0.5 and rng.random() < 0.5 and is_repeatable:
            self.mail.append((site.name, write, rng.choice([0.12, 0.004])))
            self.count["repeats"] += 1

    def is_offline(self, site: SimulatedSite) -> bool:
        """Whether each link process of a site is offline."""
        return all(link.is_offline for link in self.links if link.site is site)

    # -- checks

    def check_batch(self, site: SimulatedSite, source: str, to: int) -> None:
        if not self.is_disjoint:
            return
        for key in (key_bytes(each) for each in self.keys if self.owner[each] == source):
            if site.value(key) != self.sites[source].value(key, to):
                raise Violation(f"torn: {site.name} at {source}:{to}, {key!r}")

    def _heal(self) -> None:
        self.is_faulty = False
        for name, write, _ in self.mail:
            self.sites[name].append(write)
        self.mail = []
        self.links = self.links[:2]
        for site in self.sites.values():
            site.is_switched_off = False
        for site in self.sites.values() if self.has_forgers else ():
            site.append(LocalWrite([], "drop"))  # what an administrator does
        quiet, before = 0, None
        for _ in range(ROUNDS_MAX):
            self.now += 1
            for site in self.sites.values():
                site.settled = len(site.log)
                while len(site.events) < site.settled:
                    site.execute()
            for link in self.links:
                link.turn()
                if link.is_stuck or transfers.is_waiting(link):
                    self.order_transfer(link.site)
            state: Any = [(len(site.log), len(site.events)) for site in self.sites.values()]
            quiet = quiet + 1 if state == before else 0
            before = state
            if quiet > QUIET_ROUNDS:
                return
        raise Violation("loop: the sites do not come to rest")

    def _check_end(self) -> None:
        lon, nyc = self.sites.values()
        for link in self.links:
            if link.theirs.local_entries(link.mine.cursor).number:
                raise Violation(f"lag: {link.site.name} is at rest at {link.mine.cursor}")
        for number in self.keys:
            key = key_bytes(number)
            one, other = lon.value(key), nyc.value(key)
            if one != other:
                raise Violation(f"diverged: {key!r} is {sorted(one)} and {sorted(other)}")
            writes = [(v, value) for site in self.sites.values() for k, v, value in site.local if k == key]
            if writes:
                version, value = max(writes, key=lambda each: each[0])
                if one != value:
                    what = "lost" if value else "resurrected"
                    raise Violation(f"{what}: {key!r} is {sorted(one)}, {version} left {sorted(value)}")
