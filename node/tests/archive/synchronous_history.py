"""A random log with synchronous transactions, as an archiver leaves it on a target, and what each place of it holds by
plain replay: the first decision that names a transaction counts, and no code under test is asked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
from archived_history import COUNTER as COUNTER
from archived_history import UK, US, Quads, Step, chain, counter, execute, quad
from archiver_runs import folder
from log_pieces import CLUSTER, START

from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.archive.format import FileMeta, encode_file
from txlog.archive.stream import Stream, StreamId
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.backup_writer import BackupRequest, write_backup
from txlog.backup.folder_target import FolderTarget
from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE, Position
from txlog.model.ids import Origin, Txid
from txlog.model.quorum import MAJORITY
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    KIND_SYNCHRONOUS_QUADS,
    KIND_SYNCHRONOUS_UPDATE,
    SYNCHRONOUS_KINDS,
    DecisionKind,
    SynchronousKey,
    decide,
    decode_decision,
    decode_synchronous_key,
    encode_decision,
    encode_synchronous_key,
)

VIEW = (2, 1, "uk-1")
_ORDINARY = {KIND_SYNCHRONOUS_QUADS: KIND_QUADS, KIND_SYNCHRONOUS_UPDATE: KIND_UPDATE}


def synchronous_key(client_key: str = "") -> str:
    return encode_synchronous_key(SynchronousKey(MAJORITY, 30_000, client_key))


def decision_key(verdict: DecisionKind, names: Sequence[Txid]) -> str:
    return encode_decision(decide(verdict, names))


class PlainFold:
    """``effects``: by index, what takes effect there, in order. ``verdicts``: transaction to what the first decision
    says, and its index. ``repeats``: effects that repeat a client's key."""

    def __init__(self, entries: Sequence[ArchivedEntry]) -> None:
        self.places = {entry.txid: entry for entry in entries if entry.kind in SYNCHRONOUS_KINDS}
        self.verdicts: dict[Txid, tuple[DecisionKind, int]] = {}
        self.effects: dict[int, list[Txid]] = {}
        self.repeats: set[Txid] = set()
        for entry in entries:
            if entry.kind == KIND_DECISION:
                decision = decode_decision(entry.key)
                for txid in decision.names():
                    self.verdicts.setdefault(txid, (decision.verdict, entry.index))
        keys: set[str] = set()
        for at, _, txid in sorted(self._in_order()):
            key = decode_synchronous_key(self.places[txid].key).client_key
            if key and key in keys:
                self.repeats.add(txid)
                continue
            keys.add(key)
            self.effects.setdefault(at, []).append(txid)

    def effect_of(self, txid: Txid) -> int | None:
        verdict, at = self.verdicts.get(txid, (None, 0))
        return max(at, self.places[txid].index) if verdict is DecisionKind.COMMIT else None

    def _in_order(self) -> list[tuple[int, int, Txid]]:
        found = ((self.effect_of(txid), entry.index, txid) for txid, entry in self.places.items())
        return [(at, own, txid) for at, own, txid in found if at is not None]

    def undecided_at(self, index: int) -> list[Txid]:
        """In the order of the log."""
        return [
            txid
            for txid, entry in self.places.items()
            if entry.index <= index and (txid not in self.verdicts or self.verdicts[txid][1] > index)
        ]

    def with_facts(self, entry: ArchivedEntry) -> ArchivedEntry:
        """As an archiver gets it from a master."""
        if entry.kind in SYNCHRONOUS_KINDS and self.verdicts.get(entry.txid, ("", entry.index))[1] < entry.index:
            verdict = self.verdicts[entry.txid][0].value
            return msgspec.structs.replace(entry, verdict=verdict, is_noop=entry.txid in self.repeats)
        if entry.kind == KIND_DECISION and decode_decision(entry.key).verdict is DecisionKind.COMMIT:
            effects = self.effects.get(entry.index, [])
            names = tuple(txid for txid in decode_decision(entry.key).names() if txid not in effects)
            return msgspec.structs.replace(entry, passed_over=names)
        return entry


class SynchronousHistory:
    """``start``: the files begin after this index."""

    def __init__(self, path: Path, entries: Sequence[ArchivedEntry], start: int = 0, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.fold = PlainFold(entries)
        self.entries = [self.fold.with_facts(entry) for entry in entries]
        self.skips = {entry.key: entry.index for entry in reversed(entries) if entry.kind == KIND_SKIP}
        self.target = FolderTarget(folder(path))
        self.stream = Stream(self.target, StreamId(CLUSTER, "uk"))
        self.stream.create(self.node(start))
        at = start
        while at < len(entries):
            end = min(len(entries), at + self.random.randrange(1, 4))
            self.ship(at, end)
            at = end

    def ship(self, after: int, end: int) -> None:
        meta = FileMeta(CLUSTER, "uk", view=VIEW, history=["1.1.uk-1"], software="0.1.0", written=1.0)
        before = self.node(after).hash
        made = encode_file(self.entries[after:end], before, meta, settled=end, writer=1)
        assert self.stream.create_file(made.name, made.data)

    def node(self, index: int) -> Node:
        return Node(index, self.entries[index - 1].hash) if index else START

    def position(self, index: int) -> str:
        return f"position:{index}:{self.node(index).hash.hex()}"

    def replay(self, index: int, skips_to: int | None = None) -> Quads:
        """``skips_to``: only the skips up to this index have an effect."""
        quads: Quads = frozenset()
        for entry in self.entries[:index]:
            if entry.kind == KIND_DECISION or entry.kind in SYNCHRONOUS_KINDS:
                effects = [] if self._is_skipped(entry.txid, skips_to) else self.fold.effects.get(entry.index, [])
                for txid in effects:
                    if not self._is_skipped(txid, skips_to):
                        found = self.fold.places[txid]
                        quads = execute(quads, msgspec.structs.replace(found, kind=_ORDINARY[found.kind]))
            elif not self._is_skipped(entry.txid, skips_to):
                quads = execute(quads, entry)
        return quads

    def undecided(self, index: int) -> list[Txid]:
        return [txid for txid in self.fold.undecided_at(index) if str(txid) not in self.skips]

    def back_up(self, index: int) -> BackupManifest:
        """What a worker at that place held then: skips that came later had no effect on it."""
        lines = "".join(f"{each}\n" for each in sorted(self.replay(index, index))).encode()
        position = Position(1, index, self.node(index).hash)
        return write_backup(
            iter([lines]), position, "uk-worker-1", "oxigraph", self.target, BackupRequest(CLUSTER.hex(), "uk")
        )

    def _is_skipped(self, txid: Txid, skips_to: int | None) -> bool:
        at = self.skips.get(str(txid))
        return at is not None and (skips_to is None or at <= skips_to)


def random_log(seed: int, length: int = 30, *, skips: bool = True) -> list[ArchivedEntry]:
    """Ordinary and synchronous transactions, decisions about some of them: also twice, and before they are there."""
    draw = random.Random(seed)
    seqs = {UK: 0, US: 0}
    steps: list[Step] = []
    known: list[Txid] = []
    promised: list[Txid] = []
    at = 1_700_000_000_000

    def add(kind: int, payload: bytes, key: str = "", origin: Origin = UK) -> Txid:
        nonlocal at
        at += draw.randrange(1, 50)
        seqs[origin] += 1
        txid = Txid(origin, seqs[origin])
        steps.append(Step(txid, at, kind, payload, key))
        return txid

    def payload() -> bytes:
        adds = {quad(draw.randrange(16)) for _ in range(3)}
        deletes = {quad(draw.randrange(16)) for _ in range(2)} - adds
        return "".join([*(f"D {q}\n" for q in sorted(deletes)), *(f"A {q}\n" for q in sorted(adds))]).encode()

    add(KIND_QUADS, f"A {counter(0)}\n".encode())
    while len(steps) < length:
        sort = draw.choice("qusSStddDree" + "k" * skips)
        if sort == "q":
            add(KIND_QUADS, payload())
        elif sort == "u":
            add(KIND_UPDATE, COUNTER.encode())
        elif sort in "sSt":
            origin = draw.choice((UK, US)) if not promised else US
            client_key = f"key-{draw.randrange(6)}" if sort == "t" else ""
            if draw.random() < 0.3:
                txid = add(KIND_SYNCHRONOUS_UPDATE, COUNTER.encode(), synchronous_key(), origin)
            else:
                txid = add(KIND_SYNCHRONOUS_QUADS, payload(), synchronous_key(client_key), origin)
            known.append(txid)
            promised = [each for each in promised if each != txid]
        elif sort == "k" and known:
            add(KIND_SKIP, b"it ends stores", str(draw.choice(known)))
        elif known:
            names = draw.sample(known[-8:], min(len(known[-8:]), draw.randrange(1, 4)))
            if sort == "e" and not promised:
                promised = [Txid(US, seqs[US] + 1)]
                names += promised
            verdict = DecisionKind.ROLLBACK if sort == "r" else DecisionKind.COMMIT
            add(KIND_DECISION, b"", decision_key(verdict, names))
    return chain(steps, START)
