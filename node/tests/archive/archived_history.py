"""A random log with branches, as an archiver leaves it on a target, and what each place of it holds by plain replay."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

from archiver_runs import folder
from log_pieces import CLUSTER, START

from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.archive.format import FileMeta, encode_file
from txlog.archive.stream import Stream, StreamId
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.backup_writer import BackupRequest, write_backup
from txlog.backup.folder_target import FolderTarget
from txlog.model.entry import CONTROL_KINDS, KIND_CONFIG, KIND_QUADS, KIND_SKIP, KIND_UPDATE, Position
from txlog.model.hashes import chain_hash, content_hash, origin_tag
from txlog.model.ids import Origin, Txid

UK, US = Origin("uk-1", 7), Origin("us-1", (1 << 64) - 2)
FIRST_VIEW, LOSING_VIEW, WINNING_VIEW, LAST_VIEW = (1, 1, "uk-1"), (2, 1, "us-1"), (2, 1, "uk-1"), (3, 1, "uk-1")
COUNTER = (
    "DELETE { GRAPH <urn:g:0> { <urn:counter> <urn:p> ?old } } "
    "INSERT { GRAPH <urn:g:0> { <urn:counter> <urn:p> ?new } } "
    "WHERE { GRAPH <urn:g:0> { <urn:counter> <urn:p> ?old } BIND(?old + 1 AS ?new) }"
)
Quads = frozenset[str]


class Step(NamedTuple):
    """An entry before it has a place. ``milliseconds``: of its stamp."""

    txid: Txid
    milliseconds: int
    kind: int
    payload: bytes
    key: str = ""
    is_noop: bool = False


def quad(number: int) -> str:
    graph = f" <urn:g:{number % 3}>" if number % 4 else ""
    return f'<urn:s:{number}> <urn:p> "{number}"{graph} .'


def counter(value: int) -> str:
    return f'<urn:counter> <urn:p> "{value}"^^<http://www.w3.org/2001/XMLSchema#integer> <urn:g:0> .'


def execute(quads: Quads, entry: ArchivedEntry) -> Quads:
    """What a store holds after an entry, without any code under test."""
    if entry.kind in CONTROL_KINDS or entry.is_noop:
        return quads
    text = entry.payload.decode()
    if entry.kind == KIND_QUADS:
        held = set(quads)
        for line in text.splitlines():
            (held.add if line[0] == "A" else held.discard)(line[2:])
        return frozenset(held)
    if text == COUNTER:
        old = [value for value in range(100) if counter(value) in quads]
        return quads - set(map(counter, old)) | {counter(value + 1) for value in old}
    graph = text.removeprefix("DELETE WHERE { GRAPH ").partition(" ")[0]
    return frozenset(each for each in quads if not each.endswith(f" {graph} ."))


def chain(steps: Sequence[Step], after: Node) -> list[ArchivedEntry]:
    made: list[ArchivedEntry] = []
    value = after.hash
    for at, step in enumerate(steps):
        content, stamp = content_hash(step.kind, step.key, step.payload), step.milliseconds << 16
        value = chain_hash(value, stamp, origin_tag(step.txid.origin), step.txid.seq, content)
        made.append(
            ArchivedEntry(
                after.index + 1 + at,
                value,
                step.txid.origin,
                step.txid.seq,
                stamp,
                0,
                step.kind,
                step.is_noop,
                step.key,
                step.payload,
            )
        )
    return made


class Branch:
    """One timeline: all of its entries, from the first one."""

    def __init__(self, entries: Sequence[ArchivedEntry]) -> None:
        self.entries = list(entries)
        self.skips = {entry.key: entry.index for entry in reversed(entries) if entry.kind == KIND_SKIP}

    @property
    def end(self) -> Node:
        return Node(self.entries[-1].index, self.entries[-1].hash)

    def node(self, index: int) -> Node:
        return Node(index, self.entries[index - 1].hash) if index else START

    def replay(self, index: int, skips_to: int | None = None) -> Quads:
        """``skips_to``: only the skips up to this index have an effect."""
        quads: Quads = frozenset()
        for entry in self.entries[:index]:
            at = self.skips.get(str(entry.txid))
            if at is None or (skips_to is not None and at > skips_to):
                quads = execute(quads, entry)
        return quads


class History:
    """A stream of three timelines: ``final`` goes on behind ``losing`` and ``winning``, which parted at one place."""

    def __init__(self, path: Path, seed: int, *, updates: bool = True, length: int = 12) -> None:
        self.random = random.Random(seed)
        self.updates = updates
        self.target = FolderTarget(folder(path))
        self.stream = Stream(self.target, StreamId(CLUSTER, "uk"))
        self.stream.create(START)
        self._seqs = {UK: 0, US: 0}
        self._at = 1_700_000_000_000
        self._keys: list[str] = []
        common = self._extend([], UK, length)
        losing = self._extend(common, US, length // 2)
        winning = self._extend(common, UK, length // 2)
        merged = self._extend(winning, UK, length // 2, repeats=losing[len(common) :])
        self.losing, self.final, self.common = Branch(losing), Branch(merged), len(common)
        self._ship(common, 0, FIRST_VIEW, [])
        self._ship(losing, len(common), LOSING_VIEW, [FIRST_VIEW])
        self._ship(merged[: len(winning)], len(common), WINNING_VIEW, [FIRST_VIEW])
        self._ship(merged, len(winning), LAST_VIEW, [FIRST_VIEW, LOSING_VIEW, WINNING_VIEW])

    # -- the log

    def _extend(
        self, before: list[ArchivedEntry], origin: Origin, count: int, repeats: Sequence[ArchivedEntry] = ()
    ) -> list[ArchivedEntry]:
        """``repeats``: entries of another branch that are ordered again, under their ids."""
        steps = []
        if self.updates and not before:
            self._seqs[origin] += 1
            payload = f"A {counter(0)}\n".encode()
            steps.append(Step(Txid(origin, self._seqs[origin]), self._tick(), KIND_QUADS, payload))
        steps += [
            Step(each.txid, self._tick(), each.kind, each.payload, each.key, each.is_noop)
            for each in repeats
            if each.kind not in CONTROL_KINDS
        ]
        known = [str(each.txid) for each in before if each.kind not in CONTROL_KINDS] + [str(s.txid) for s in steps]
        for _ in range(count):
            self._seqs[origin] += 1
            step = self._draw(Txid(origin, self._seqs[origin]), known)
            if step.kind not in CONTROL_KINDS:
                known.append(str(step.txid))
            steps.append(step)
        after = Node(before[-1].index, before[-1].hash) if before else START
        return before + chain(steps, after)

    def _draw(self, txid: Txid, known: Sequence[str]) -> Step:
        kind = self.random.choice("qqqqqqqskcn" + "uu" * self.updates)
        if kind == "s" and known:
            return Step(txid, self._tick(), KIND_SKIP, b"it ends stores", self.random.choice(known))
        if kind == "c":
            return Step(txid, self._tick(), KIND_CONFIG, b"why", "some change")
        if kind == "u":
            graph = self.random.randrange(3)
            text = COUNTER if self.random.random() < 0.7 else f"DELETE WHERE {{ GRAPH <urn:g:{graph}> {{ ?s ?p ?o }} }}"
            return Step(txid, self._tick(), KIND_UPDATE, text.encode())
        adds = {quad(self.random.randrange(16)) for _ in range(3)}
        deletes = {quad(self.random.randrange(16)) for _ in range(2)} - adds
        if self.updates and self.random.random() < 0.2:
            adds.add(counter(0))
        payload = "".join([*(f"D {q}\n" for q in sorted(deletes)), *(f"A {q}\n" for q in sorted(adds))]).encode()
        if kind == "n" and self._keys:
            return Step(txid, self._tick(), KIND_QUADS, payload, self.random.choice(self._keys), is_noop=True)
        key = f"key-{txid.seq}" if kind == "k" else ""
        self._keys += [key] if key else []
        return Step(txid, self._tick(), KIND_QUADS, payload, key)

    def _tick(self) -> int:
        self._at += self.random.randrange(1, 50)
        return self._at

    # -- the target

    def _ship(
        self,
        entries: list[ArchivedEntry],
        after: int,
        view: tuple[int, int, str],
        ancestors: Sequence[tuple[int, int, str]],
    ) -> None:
        """Files of random lengths. ``after``: those up to there are on the target already."""
        names = [".".join(map(str, each)) for each in ancestors]
        meta = FileMeta(CLUSTER, "uk", view=view, history=names, software="0.1.0", written=self._at / 1000)
        at = after
        while at < len(entries):
            end = min(len(entries), at + self.random.randrange(1, 5))
            before = entries[at - 1].hash if at else START.hash
            settled = self.common if view in (LOSING_VIEW, WINNING_VIEW) else end
            made = encode_file(entries[at:end], before, meta, settled=settled, writer=1)
            self.stream.create_file(made.name, made.data)
            at = end

    def back_up(self, branch: Branch, index: int) -> BackupManifest:
        """What a worker at that place held then: skips that came later had no effect on it."""
        lines = "".join(f"{each}\n" for each in sorted(branch.replay(index, index))).encode()
        node = branch.node(index)
        request = BackupRequest(CLUSTER.hex(), "uk", part_bytes=200)
        position = Position(1, node.index, node.hash)
        return write_backup(iter([lines]), position, "uk-worker-1", "oxigraph", self.target, request)

    def moments(self, count: int) -> Iterator[tuple[str, Branch, int]]:
        """Random moments with the timeline and the index that they mean."""
        for _ in range(count):
            branch = self.losing if self.random.random() < 0.3 else self.final
            index = self.random.randrange(1, len(branch.entries) + 1)
            entry = branch.entries[index - 1]
            form = self.random.choice(("position", "time", "transaction", "before", "latest"))
            if branch is self.losing and index > self.common:
                form = "position"  # of an abandoned branch only the hash says which one is meant
            if form == "position":
                meant = branch if index > self.common else self.final  # the timeline that goes on says what is skipped
                yield f"position:{index}:{entry.hash.hex()[: self.random.choice((8, 32))]}", meant, index
            elif form == "time":
                yield f"time:{self._written(entry)}", self.final, self._last_of(entry.stamp >> 16)
            elif form == "transaction":
                yield str(entry.txid), self.final, self._place_of(entry.txid)
            elif form == "before":
                yield f"before:{entry.txid}", self.final, self._place_of(entry.txid) - 1
            else:
                yield "latest", self.final, len(self.final.entries)

    def _written(self, entry: ArchivedEntry) -> str:
        """The stamp as people write a time, in one of two zones."""
        seconds, ms = divmod(entry.stamp >> 16, 1000)
        zone = self.random.choice((UTC, timezone(timedelta(hours=1))))
        return datetime.fromtimestamp(seconds, zone).replace(microsecond=ms * 1000).isoformat()

    def _last_of(self, milliseconds: int) -> int:
        return max(each.index for each in self.final.entries if each.stamp >> 16 <= milliseconds)

    def _place_of(self, txid: Txid) -> int:
        return next(each.index for each in self.final.entries if each.txid == txid)
