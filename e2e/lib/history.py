"""What clients sent and were answered, what a log holds of it, and the texts that their transactions consist of. Pure.

A time-out, a broken connection, an answer that never came: *unknown*, never *failed*; such a transaction may be
there once or not at all. Each transaction has a name that is in its data and nowhere else, ``CLIENT-NUMBER``. Some
raise a counter by one with a pattern update: a store holds a quad once however often it is inserted, but a counter
shows what was executed twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from txlog.model.entry import KIND_QUADS, KIND_UPDATE

GRAPH: Final = "urn:faults:graph"
OPERATION_PREFIX: Final = "urn:faults:op:"
COUNTER_PREFIX: Final = "urn:faults:counter:"
WARM_UP: Final = "DROP SILENT GRAPH <urn:txlog-example:warm>"
"""What a cluster executes before a load, so that all that starts slowly has started."""
_NAME: Final = re.compile(rb"urn:faults:op:([a-z0-9-]+)>")
_COUNTER: Final = re.compile(rb"urn:faults:counter:([0-9]+)>")


class WriteOutcome(Enum):
    ACKNOWLEDGED = "acknowledged"
    """Promised: it is there exactly once, for ever."""
    UNKNOWN = "unknown"
    REFUSED = "refused"
    """Every attempt was answered with an error that promises that nothing happened: it is not there."""


class ClientOperation(NamedTuple):
    """A client's transaction, however often it was sent. ``started_at`` and ``ended_at`` are times of one clock: first
    attempt sent, last answer. ``level`` is what was promised."""

    name: str
    started_at: float
    ended_at: float
    outcome: WriteOutcome
    level: str = ""
    txid: str = ""


class LogRecord(NamedTuple):
    """An entry of a log as far as it is checked. ``noop``: why it takes no effect; empty when it does."""

    log_index: int
    txid: str
    kind: int
    payload: bytes
    noop: str


class LoggedOperation(NamedTuple):
    """A client's transaction that takes effect in a log."""

    log_index: int
    name: str
    txid: str


def logged_operations(log: Iterable[LogRecord]) -> list[LoggedOperation]:
    """The clients' transactions that take effect, in order; a repeated key's entry is a no-op and not among them."""
    return [
        LoggedOperation(record.log_index, name[1].decode(), record.txid)
        for record in log
        if not record.noop and (name := _NAME.search(record.payload)) is not None
    ]


def counter_raises(log: Iterable[LogRecord]) -> Counter[str]:
    """How often each client's counter is raised by the log."""
    return Counter(
        name[1].decode().partition("-")[0]
        for record in log
        if not record.noop and _COUNTER.search(record.payload) and (name := _NAME.search(record.payload)) is not None
    )


def effects_by_txid(log: Iterable[LogRecord]) -> Counter[str]:
    """How often each txid takes effect; 0 for one that never does."""
    counts: Counter[str] = Counter()
    for record in log:
        counts[record.txid] += not record.noop
    return counts


# -- texts


def transaction_quads(name: str) -> str:
    """The one quad of a transaction of that name, as N-Quads."""
    return f'<{OPERATION_PREFIX}{name}> <urn:faults:by> "{name.partition("-")[0]}" <{GRAPH}> .\n'


def increment_update(name: str) -> str:
    """The update that raises its client's counter by one."""
    client = name.partition("-")[0]
    counter = f"<{COUNTER_PREFIX}{client}> <urn:faults:value>"
    return (
        f"DELETE {{ GRAPH <{GRAPH}> {{ {counter} ?old }} }} "
        f"INSERT {{ GRAPH <{GRAPH}> {{ {counter} ?new . <{OPERATION_PREFIX}{name}> <urn:faults:by> {client} }} }} "
        f"WHERE {{ GRAPH <{GRAPH}> {{ {counter} ?old BIND(?old + 1 AS ?new) }} }}"
    )


def reset_update(client: int) -> str:
    """The update that puts a client's counter at 0."""
    return f"INSERT DATA {{ GRAPH <{GRAPH}> {{ <{COUNTER_PREFIX}{client}> <urn:faults:value> 0 }} }}"


def transaction_name(record: LogRecord) -> str | None:
    """The name of the client's transaction that this is, byte for byte; "" for what sets a load up; None for what no
    client wrote."""
    named = _NAME.search(record.payload)
    if named is None:
        counter = _COUNTER.search(record.payload)
        own = {WARM_UP.encode()} | (
            {b"A " + _zero(counter[1].decode()), reset_update(int(counter[1])).encode()} if counter else set()
        )
        return "" if record.payload.rstrip(b"\n") in own else None
    name = named[1].decode()
    if record.kind == KIND_QUADS:
        return name if record.payload == b"A " + transaction_quads(name).encode() else None
    return name if record.kind == KIND_UPDATE and record.payload == increment_update(name).encode() else None


def _zero(client: str) -> bytes:
    number = "<http://www.w3.org/2001/XMLSchema#integer>"
    return f'<{COUNTER_PREFIX}{client}> <urn:faults:value> "0"^^{number} <{GRAPH}> .'.encode()
