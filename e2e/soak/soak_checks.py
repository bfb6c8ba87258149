"""What the logs and the workers hold against what clients were told. Pure; each check is one scan.

*lost*: acknowledged and in no log. *doubled*: an id, or a name that takes effect, twice in one log, or a counter that
was raised once too often. *foreign*: an entry, or a quad, that no client wrote. ``Simple`` and ``Smart`` may move
what was acknowledged when data centres come together again, but keep the order that one side was told; ``Majority``
never moves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyoxigraph

from e2e.lib.history import ClientOperation, LoggedOperation, check_log, check_order
from e2e.lib.load.write_clients import increment_update, reset_update, transaction_quads
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.quads import decode_quads

_NAME: Final = re.compile(rb"urn:faults:op:([0-9]+-[0-9]+)>")
_COUNTER: Final = re.compile(rb"urn:faults:counter:([0-9]+)>")
WARM_UP: Final = b"DROP SILENT GRAPH <urn:txlog-example:warm>"


class JudgedEntry(NamedTuple):
    """An entry of a log as far as it is judged."""

    log_index: int
    txid: str
    kind: int
    payload: bytes
    noop: str


@dataclass
class SoakVerdict:
    """Each finding begins with the name or the id that it is about."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    """A worker that does not hold what its log leads to."""

    def add(self, other: SoakVerdict) -> None:
        for name, found in vars(other).items():
            getattr(self, name).extend(found)

    @property
    def is_clean(self) -> bool:
        return not any(vars(self).values())


def judge_log(
    history: Sequence[ClientOperation], log: Sequence[JudgedEntry], side_of: Callable[[str], str], *, moves: bool
) -> SoakVerdict:
    """``moves``: a rejoin may move what was acknowledged; then order is judged among transactions of one side.
    ``side_of`` a master: with whom it parted each time."""
    judged = SoakVerdict()
    found: list[LoggedOperation] = []
    ids: set[str] = set()
    for entry in log:
        if entry.txid in ids:
            judged.doubled.append(f"{entry.txid} again at {entry.log_index}")
        ids.add(entry.txid)
        name = transaction_name(entry)
        if name is None:
            judged.foreign.append(f"{entry.txid} at {entry.log_index}: {entry.payload[:120]!r}")
        elif name and not entry.noop:
            found.append(LoggedOperation(entry.log_index, name, entry.txid))
    verdict = check_log(history, found)
    judged.lost += verdict.lost
    judged.doubled += verdict.duplicated
    judged.foreign += verdict.ghosts
    judged.lost += [
        f"{op.name} ({op.level} {op.txid}): that id is not in the log"
        for op in history
        if op.txid and op.txid not in ids
    ]
    if moves:
        sides: dict[str, list[ClientOperation]] = {}
        for operation in history:
            if operation.txid:
                sides.setdefault(side_of(operation.txid.partition(".")[0]), []).append(operation)
        # A repetition on the other side of a split may be the one that counts in the end; it was told to nobody here.
        told = {operation.name: operation.txid for operation in history}
        places = {each.name: each.log_index for each in found if each.txid == told.get(each.name)}
        judged.disordered += [wrong for each in sides.values() for wrong in check_order(each, places)]
    else:
        judged.disordered += verdict.reordered
    return judged


def transaction_name(entry: JudgedEntry) -> str | None:
    """The name of the client's transaction that this is, byte for byte; "" for what sets the soak up; None for what no
    client wrote."""
    named = _NAME.search(entry.payload)
    if named is None:
        counter = _COUNTER.search(entry.payload)
        own = {WARM_UP} | (
            {b"A " + _zero(counter[1].decode()), reset_update(int(counter[1])).encode()} if counter else set()
        )
        return "" if entry.payload.rstrip(b"\n") in own else None
    name = named[1].decode()
    if entry.kind == KIND_QUADS:
        return name if entry.payload == b"A " + transaction_quads(name).encode() else None
    return name if entry.kind == KIND_UPDATE and entry.payload == increment_update(name).encode() else None


def _zero(client: str) -> bytes:
    number = "<http://www.w3.org/2001/XMLSchema#integer>"
    return f'<urn:faults:counter:{client}> <urn:faults:value> "0"^^{number} <urn:faults:graph> .'.encode()


class LogReplay:
    """What a worker must hold after a log: the log executed, one entry after another, in a store of this process."""

    def __init__(self) -> None:
        self._store = pyoxigraph.Store()
        self._adds: list[bytes] = []

    def run(self, log: Iterable[JudgedEntry]) -> None:
        for entry in log:
            if entry.noop:
                continue
            if entry.kind == KIND_QUADS:
                for is_add, line in decode_quads(entry.payload):
                    if is_add:
                        self._adds.append(line)
                    else:
                        self._flush()
                        for quad in pyoxigraph.parse(line, pyoxigraph.RdfFormat.N_QUADS):
                            self._store.remove(quad)
            elif entry.kind == KIND_UPDATE:
                self._flush()
                self._store.update(entry.payload.decode())

    def quads(self) -> set[str]:
        self._flush()
        return {str(quad) for quad in self._store}

    def _flush(self) -> None:
        if self._adds:
            lines, self._adds = b"\n".join(self._adds) + b"\n", []
            self._store.extend(pyoxigraph.parse(lines, pyoxigraph.RdfFormat.N_QUADS))


def parse_dump(dump: bytes) -> set[str]:
    """A worker's N-Quads in the words of :meth:`LogReplay.quads`."""
    return {str(quad) for quad in pyoxigraph.parse(dump, pyoxigraph.RdfFormat.N_QUADS)}


_SUBJECT: Final = re.compile(r"<urn:faults:(op|counter):([0-9-]+)>")


def judge_worker(worker: str, wanted: set[str], held: set[str]) -> SoakVerdict:
    """Quad by quad. A counter that is too high was raised twice; any other quad too many is foreign."""
    judged = SoakVerdict()
    missing, more = wanted - held, held - wanted
    raised = {_counter_of(quad) for quad in missing} - {None}
    for quad in sorted(more):
        counter = _counter_of(quad)
        (judged.doubled if counter in raised and counter else judged.foreign).append(f"{quad} in {worker}")
    judged.differs += [f"{quad} is not in {worker}" for quad in sorted(missing)]
    return judged


def _counter_of(quad: str) -> str | None:
    found = _SUBJECT.search(quad)
    return found[2] if found is not None and found[1] == "counter" else None
