"""What masters and workers hold, read as a client reads it: the material of :mod:`e2e.lib.checks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from e2e.lib.cluster.local import LocalCluster
from e2e.lib.history import COUNTER_PREFIX, GRAPH, OPERATION_PREFIX, LogRecord
from e2e.lib.load.closed_loop import AcknowledgedSample
from txlog.client import MasterClient
from txlog.model.durability import Durability
from txlog.model.entry import LogEntry
from txlog.model.entry_effects import find_effects
from txlog.model.synchronous_entry import KIND_DECISION


def read_log(url: str) -> list[LogRecord]:
    """A master's whole log, from its first entry to its last. Of a COMMIT, each transaction that takes effect there."""
    found: list[LogRecord] = []
    with MasterClient(url, 60.0) as master:
        while entries := master.log_page(found[-1].log_index if found else 0).log_entries():
            found += [record for entry in entries for record in records_of(entry)]
    return found


def records_of(entry: LogEntry) -> list[LogRecord]:
    """One, but for a COMMIT at which several transactions take effect."""
    if entry.kind != KIND_DECISION or entry.noop:
        return [LogRecord(entry.index, str(entry.txid), entry.kind, entry.payload, entry.noop)]
    return [LogRecord(entry.index, str(one.txid), one.kind, one.payload, "") for one in find_effects(entry)]


def read_worker(cluster: LocalCluster, name: str) -> tuple[list[str], dict[str, int]]:
    """Names of the clients' transactions and values of their counters in a store, asked of the store itself."""
    rows = cluster.query_worker(name, f"SELECT ?s {{ GRAPH <{GRAPH}> {{ ?s <urn:faults:by> ?client }} }}")
    names = [row[0].removeprefix(OPERATION_PREFIX) for row in rows]
    rows = cluster.query_worker(name, f"SELECT ?s ?v {{ GRAPH <{GRAPH}> {{ ?s <urn:faults:value> ?v }} }}")
    counters: dict[str, int] = {}
    for subject, value in rows:
        client = subject.removeprefix(COUNTER_PREFIX)
        # Two values of one counter would be two executions side by side: they must not pass for one of them.
        counters[client] = -1 if client in counters else int(value)
    return names, {client: value for client, value in counters.items() if value}


class ReadBack(NamedTuple):
    """``checked`` samples were looked up in every log; ``missing`` names what was not as acknowledged."""

    checked: int
    missing: list[str]


def read_back(masters: Sequence[str], samples: Sequence[AcknowledgedSample], timeout_s: float = 60.0) -> ReadBack:
    """Every sample in the log of every master: asked by its name for its position, and read there."""
    missing: list[str] = []
    for url in masters:
        with MasterClient(url, timeout_s) as master:
            for sample in samples:
                at = master.transaction(sample.txid, 30.0, Durability.SYNCED).position
                if at is None:
                    missing.append(f"{url} gives {sample.txid} no position")
                    continue
                page = master.log_page(at.index - 1, upto=at.index)
                found = [entry for entry in page.entries if str(entry.txid) == sample.txid]
                if not found or b"/%012d>" % sample.number not in found[0].payload:
                    missing.append(f"{url} has something else at {at.index} than {sample.txid}")
    return ReadBack(len(samples), missing)


def same_log(masters: Sequence[str]) -> tuple[bool, list[int]]:
    """Whether the logs of all masters are one (the hashes agree at the shortest one's end), and their lengths."""
    ends = []
    for url in masters:
        with MasterClient(url) as master:
            ends.append(master.status().stable)
    shortest = min(ends, key=lambda end: end.index)
    agree = True
    for url in masters:
        with MasterClient(url, 30.0) as master:
            page = master.log_page(shortest.index - 1, upto=shortest.index)
            agree = agree and bool(page.entries) and page.entries[0].hash.hex() == shortest.hash
    return agree, [end.index for end in ends]
