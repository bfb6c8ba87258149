"""Journals of a cluster with a long life, made and not waited for: thousands of views, replaced disks, a day of keys.

The records are written by hand, the journals by the shipped journal, once in a process for each size. No core takes
part in it: what a core makes of such a journal is what is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple

from txlog.journal import Journal, MemoryVfs
from txlog.model.configuration import Configuration, Master
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, RunItem, Span, TransactionRun
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.ids import Origin, Txid
from txlog.model.records import (
    CounterCeiling,
    KeyTableWritten,
    LogAppended,
    LogStart,
    LogTrimmed,
    Record,
    TransactionsPersisted,
    ViewAccepted,
    ViewInstalled,
)
from txlog.model.stamp import LOGICAL_BITS
from txlog.model.view import NO_VIEW, Member, Number, View, bootstrap_cluster_id
from txlog.protocol.events import ConfiguredMember
from txlog.protocol.log.key_table import FirstUse, KeyTable, key_name
from txlog.wire.protocol_level import PROTOCOL_LEVEL

DAY_MS: Final = 24 * 3600 * 1000
RUN_MS: Final = 20_000
"""Longer than any run: a key that is younger than the retention by less may expire in it."""
SINCE_LAST_MS: Final = 400
"""Between the last entry of a log and the begin of the run."""
_KEYS_IN_A_PART: Final = 1 << 14
_BIRTH_BASE: Final = 0x01D0_0000_0000_0000


class OldCluster(NamedTuple):
    """How old a cluster is when a run begins. ``views``: the epoch of its latest view, of which so many are in the
    journals (``views_kept``). ``all_listed``: that view lists all its ancestors, as views did whose masters knew no
    other way. ``births``: earlier incarnations. ``entries``: transactions in the log, most under a key. ``trimmed``: at
    which part of the log it starts, in percent. ``waiting``: of each master, transactions beyond the log."""

    views: int
    views_kept: int
    all_listed: bool
    births: int
    entries: int
    trimmed: int
    waiting: int


class OldEntry(NamedTuple):
    """A transaction of the old cluster, as its client sent it at ``sent_ms`` (since 1970)."""

    origin: Origin
    seq: int
    item: RunItem
    content: bytes

    @property
    def sent_ms(self) -> int:
        """When it was sent, by a right clock."""
        return self.item.age_stamp >> LOGICAL_BITS

    def persisted(self) -> TransactionsPersisted:
        """The record that stores it."""
        run = TransactionRun(self.origin.node, self.origin.birth, self.seq, [self.item])
        return TransactionsPersisted(run, self.content)


class OldJournals(NamedTuple):
    """``images``: the disks, by node. ``records``: what the journals of all masters come to, without the views before
    the latest; ``trim``: those that trim the log after them; ``waiting``: what each has beyond the log. ``entries``:
    the log. ``origins``: the members, by node."""

    images: dict[str, dict[str, bytes]]
    records: list[Record]
    trim: list[Record]
    waiting: dict[str, list[OldEntry]]
    entries: list[OldEntry]
    origins: dict[str, Origin]


@lru_cache(maxsize=32)
def old_journals(
    age: OldCluster, members: tuple[ConfiguredMember, ...], majority: bool, strategy: str, begin_ms: int, segment: int
) -> OldJournals:
    """The journals of such a cluster, whose last transaction came shortly before ``begin_ms``."""
    return _OldCluster(age, members, majority, strategy, begin_ms).journals(segment)


class _OldCluster:
    """Draws the transactions and builds the records."""

    def __init__(
        self, age: OldCluster, members: tuple[ConfiguredMember, ...], majority: bool, strategy: str, begin_ms: int
    ) -> None:
        self._age = age
        self._rng = Random(f"old {age}")
        self._begin_ms = begin_ms
        self._strategy = strategy
        self._majority = majority
        nodes = [member.node for member in members]
        self._earlier = [Origin(nodes[at % len(nodes)], _BIRTH_BASE + at) for at in range(age.births)]
        self.origins = {node: Origin(node, _BIRTH_BASE + 0xFFFF + at) for at, node in enumerate(nodes)}
        self._members = [Member(m.node, self.origins[m.node].birth, m.weight, m.data_center) for m in members]
        founders = [
            _born(member, next((o.birth for o in self._earlier if o.node == member.node), member.birth))
            for member in self._members
        ]
        self._cluster_id = bootstrap_cluster_id(founders)
        masters = [Master(m.node, m.data_center, m.weight) for m in members]
        self._configuration = Configuration(masters, majority, DAY_MS)
        self._seqs: dict[Origin, int] = {}
        self.entries = list(self._drawn_entries())
        self.hashes = self._chain()

    # The transactions

    def _drawn_entries(self) -> Iterator[OldEntry]:
        """In the order of the log: spread over a bit more than the retention, many near its end. Some repeat a key."""
        count, rng = self._age.entries, self._rng
        ages = sorted((self._drawn_age_ms() for _ in range(count)), reverse=True)
        used: list[tuple[str, int, bytes]] = []
        before = 0
        for at, age_ms in enumerate(ages):
            stamp = max(before + 1, (self._begin_ms - age_ms) << LOGICAL_BITS | rng.randrange(1 << 10))
            before = stamp
            origin = self._drawn_origin(at)
            key, kind, payload = f"old {at}", rng.choice((KIND_UPDATE, KIND_QUADS)), f"o{at}".encode()
            if used and rng.random() < 0.05:
                key, kind, payload = rng.choice(used[-60:] if rng.random() < 0.5 else used[:200])
            elif rng.random() < 0.1:
                key = ""
            if key:
                used.append((key, kind, payload))
            yield self._entry(origin, stamp, kind, key, payload)

    def _drawn_age_ms(self) -> int:
        chance = self._rng.random()
        if chance < 0.25:  # expires in the run, or has just expired
            return DAY_MS + self._rng.randrange(-RUN_MS, RUN_MS)
        if chance < 0.35:
            return SINCE_LAST_MS + self._rng.randrange(RUN_MS)
        return SINCE_LAST_MS + self._rng.randrange(DAY_MS + DAY_MS // 20)

    def _drawn_origin(self, at: int) -> Origin:
        """Earlier incarnations in the order of their births, the members at the end of the log's life."""
        if self._earlier and self._rng.random() < 0.3:
            here = at * len(self._earlier) // self._age.entries
            return self._earlier[here]
        return self._rng.choice(list(self.origins.values()))

    def _entry(self, origin: Origin, stamp: int, kind: int, key: str, payload: bytes) -> OldEntry:
        seq = self._seqs[origin] = self._seqs.get(origin, 0) + 1
        item = RunItem(stamp, kind, key, payload, stamp if key else 0)
        return OldEntry(origin, seq, item, content_hash(kind, key, payload))

    def _chain(self) -> list[bytes]:
        value, hashes = chain_start(self._cluster_id), []
        for one in self.entries:
            value = chain_hash(value, one.item.stamp, origin_tag(one.origin), one.seq, one.content)
            hashes.append(value)
        return hashes

    # The views

    def _number(self, epoch: int) -> Number:
        return (epoch, 1, self._members[0].node)

    def _view(self, epoch: int, base: int) -> View:
        """The view of this epoch, which goes on from so many entries."""
        listed = list(range(1, epoch)) if self._age.all_listed else [1, epoch - 1]
        ancestors = [self._number(one) for one in listed]
        known = dict.fromkeys([*self._earlier, *self.origins.values()], 0)
        for one in self.entries[:base]:
            known[one.origin] = one.seq
        return View(
            epoch,
            1,
            self._members[0].node,
            self._members,
            self._cluster_id,
            base,
            self.hashes[base - 1],
            [(origin.node, origin.birth) for origin in known],
            ancestors,
            self.entries[base - 1].item.stamp,
            self._strategy,
            known_seqs=list(known.values()),
            strategies=[self._strategy] * len(ancestors),
            preferred_strategies=[self._strategy] * len(self._members),
            bootstrap_configuration=self._configuration,
            majority=self._majority,
            majority_before=self._majority,
            lineage_start=NO_VIEW if self._age.all_listed else self._number(epoch - 1),
            level=PROTOCOL_LEVEL,
        )

    def _spans(self, after: int, upto: int) -> list[Span]:
        return [Span(one.origin.node, one.origin.birth, one.seq, 1) for one in self.entries[after:upto]]

    def _hashes(self, after: int, upto: int) -> bytes:
        return b"".join(self.hashes[after:upto])

    # The records

    def _begin(self) -> list[Record]:
        ceiling = max(one.item.stamp for one in self.entries)
        return [*(one.persisted() for one in self.entries), CounterCeiling(ceiling)]

    def _latest_view_alone(self) -> list[Record]:
        length = len(self.entries)
        view = self._view(self._age.views, length)
        accepted = ViewAccepted(view, 0, self._spans(0, length), self._hashes(0, length))
        return [accepted, ViewInstalled(*view.number)]

    def _kept_views(self) -> Iterator[Record]:
        """The journal of a master that was let in so many views ago: it has what came since."""
        length, kept = len(self.entries), self._age.views_kept
        bases = [1 + (length - 1) * (at + 1) // (kept + 1) for at in range(kept)]
        bases.append(length)
        first = self._age.views - kept
        for at, (after, base) in enumerate(pairwise([0, *bases])):
            view, spans = self._view(first + at, base), self._spans(after, base)
            if at and spans:
                yield LogAppended(after + 1, spans, self._hashes(after, base), base)
            yield ViewAccepted(view, *((after + len(spans),) if at else (0, spans, self._hashes(0, base))))
            yield ViewInstalled(*view.number)

    def _trim(self, start: int) -> Iterator[Record]:
        """The log starts behind so many entries; the table of keys is that of the whole log, which is final."""
        if not start:
            return
        table, noops = KeyTable(), []
        for index, one in enumerate(self.entries, 1):
            item = one.item
            if not item.key:
                continue
            counts = next(
                (
                    use
                    for use in table.find(key_name(item.key))
                    if abs(use.stamp - item.age_stamp) <= DAY_MS << LOGICAL_BITS
                ),
                None,
            )
            if counts is None:
                table.add(key_name(item.key), FirstUse(Txid(one.origin, one.seq), item.age_stamp, one.content))
            elif index > start:
                noops.append((index, counts.txid.origin.node, counts.txid.origin.birth, counts.txid.seq))
        snapshot, parts = table.snapshot(), 0
        while not snapshot.is_complete:
            yield KeyTableWritten(parts, snapshot.next_part(_KEYS_IN_A_PART))
            parts += 1
        last = self.entries[start - 1]
        seqs = {one.origin: one.seq for one in self.entries[:start]}
        yield LogTrimmed(
            LogStart(
                start,
                self.hashes[start - 1],
                (last.origin.node, last.origin.birth),
                last.item.stamp,
                [(origin.node, origin.birth, seq) for origin, seq in seqs.items()],
                [],
                [],
                [],
                (0, self._configuration),
                retention=DAY_MS << LOGICAL_BITS,
                keys_index=len(self.entries),
                noops=noops,
                key_parts=parts,
                has_first_stamps=True,
            )
        )

    def _drawn_waiting(self, node: str) -> list[OldEntry]:
        """What only its master has: its post was on the way when all stopped."""
        made, stamp = [], max(one.item.stamp for one in self.entries)
        for at in range(self._age.waiting):
            stamp += 1 + self._rng.randrange(1 << LOGICAL_BITS)
            made.append(self._entry(self.origins[node], stamp, KIND_UPDATE, f"late {node} {at}", f"l{at}".encode()))
        return made

    def journals(self, segment: int) -> OldJournals:
        """Everything."""
        start = len(self.entries) * self._age.trimmed // 100
        begin, trim = self._begin(), list(self._trim(start))
        waiting = {node: self._drawn_waiting(node) for node in self.origins}
        whole = [*begin, *self._kept_views(), *trim]
        images = {
            node: _write(node, origin, [*whole, *_late_records(waiting[node])], segment)
            for node, origin in self.origins.items()
        }
        records = [*begin, *self._latest_view_alone()]
        return OldJournals(images, records, trim, waiting, self.entries, self.origins)


def _born(member: Member, birth: int) -> Member:
    return Member(member.node, birth, member.weight, member.data_center)


def _late_records(waiting: list[OldEntry]) -> list[Record]:
    """A ceiling above their stamps, then they."""
    return [CounterCeiling(waiting[-1].item.stamp), *(one.persisted() for one in waiting)] if waiting else []


def _write(node: str, origin: Origin, records: list[Record], segment: int) -> dict[str, bytes]:
    files = MemoryVfs()
    journal, _ = Journal.open(files, node=node, draw_birth=lambda: origin.birth, segment_bytes=segment)
    for at in range(0, len(records), 256):
        journal.append(records[at : at + 256])
        journal.sync()
    journal.close()
    return files.dump()
