"""``python -m e2e.scenarios.pitr``: a store is restored to random moments of a real log, and holds what it held then.

Two masters and an archiver are real processes. The masters go apart, both sides write, they join, and an update
deletes everything. A second store executes the same logs entry by entry and notes a digest at each index. Then an
Oxigraph server is restored to moments by time, position and transaction, on all three timelines.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyoxigraph as ox

from e2e.lib.cluster.links import LinkControl, linked_masters
from e2e.lib.cluster.local import run_txlog
from e2e.lib.cluster.masters import REPOSITORY, BenchMasters, stop_processes
from e2e.lib.cluster.stores import empty_oxigraph
from e2e.lib.load.requests import submit_all, write_one
from e2e.lib.report import BenchReport, CannotMeasure, console
from e2e.lib.wait import NotYet, wait_until
from txlog.archive.file_name import Node
from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import MomentRequest, restore_to_moment
from txlog.archive.path import find_paths
from txlog.archive.stream import Stream, find_streams
from txlog.archive.stream_reader import StreamReader
from txlog.backup.backup_writer import BackupRequest, write_backup
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.folder_target import FolderTarget
from txlog.client import MasterClient, WriteRequest
from txlog.model.durability import Durability
from txlog.model.entry import KIND_QUADS, Position
from txlog.model.errors import TxLogError
from txlog.wire.log_page import PageEntry
from txlog.workers import ADAPTERS
from txlog.workers.digest import digest
from txlog.workers.http_transport import HttpTransport

STATE: Final = Path(".txlog-pitr")
TARGETS: Final = 200
WRITES: Final = 24
NODES: Final = (("uk-1", "uk"), ("us-1", "us"))
PATIENCE_S: Final = 180.0
LAG_MS: Final = 5000
FORMS: Final = ("time", "position", "transaction", "before")
BY_COMMAND: Final = 8
"""So many of the targets are restored by the command line, each form twice; the others by the same code here."""


class SteppedLog(NamedTuple):
    """A timeline, with what a store holds after each entry. ``digests``: by index."""

    name: str
    entries: list[PageEntry]
    digests: list[str]
    contents: list[bytes]

    @property
    def end(self) -> Node:
        return Node(self.entries[-1].index, self.entries[-1].hash)


class Target(NamedTuple):
    """What ``--to`` is given, and the place that it means."""

    form: str
    text: str
    log: SteppedLog
    place: int


def step_through(name: str, entries: Sequence[PageEntry]) -> SteppedLog:
    """Executes a log entry by entry."""
    store = ox.Store()
    contents = [b""]
    for entry in entries:
        if not entry.noop and entry.kind == KIND_QUADS:
            for line in entry.payload.split(b"\n"):
                if line:
                    for found in ox.parse(line[2:] + b"\n", ox.RdfFormat.N_QUADS):
                        (store.add if line[:1] == b"A" else store.remove)(found)
        elif not entry.noop and entry.kind < KIND_QUADS:
            store.update(entry.payload.decode())
        contents.append(store.dump(format=ox.RdfFormat.N_QUADS) or b"")
    digests = [f"{digest(iter([each])).total:032x}" for each in contents]
    return SteppedLog(name, list(entries), digests, contents)


def random_writes(chance: random.Random, side: str, count: int) -> Iterator[WriteRequest]:
    """Additions, deletions and updates whose result depends on what is there; some under a repeated key."""
    for number in range(count):
        things = [f"<urn:thing:{chance.randrange(30)}> <urn:p> <urn:value:{chance.randrange(4)}>" for _ in range(3)]
        graph = f"<urn:graph:{chance.randrange(3)}>"
        form = chance.randrange(8)
        if form == 0:
            yield WriteRequest(
                update=f"DELETE {{ GRAPH {graph} {{ ?s <urn:p> ?o }} }} INSERT {{ GRAPH {graph} {{ ?s <urn:q> ?o }} }} "
                f"WHERE {{ GRAPH {graph} {{ ?s <urn:p> ?o }} }}"
            )
        elif form == 1:
            yield WriteRequest(update=f"DELETE WHERE {{ GRAPH {graph} {{ ?s ?p <urn:value:1> }} }}")
        elif form == 2:
            yield WriteRequest(
                quads=f"{things[0]} {graph} .\n<urn:thing:1> <urn:by> <urn:{side}:{number}> {graph} .\n",
                key=f"{side}-{number}",
            )
        else:
            rest = "".join(f"{each} {graph} .\n" for each in things[1:] if each != things[0])
            yield (
                WriteRequest(add=f"{things[0]} {graph} .\n", delete=rest)
                if rest
                else WriteRequest(quads=f"{things[0]} {graph} .\n")
            )


@contextmanager
def archiver(folder: Path, masters: BenchMasters) -> Iterator[None]:
    """One archiver for both sides, so that its stream has both branches."""
    target = folder / "archive"
    target.mkdir()
    config = {"data_center": "uk", "masters": masters.urls, "target": {"folder": str(target)}, "max_delay_ms": 300}
    (folder / "archiver.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "txlog.archive", "--config", str(folder / "archiver.json")]
    with open(folder / "archiver.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        stop_processes([process])


def read_stable_log(url: str) -> list[PageEntry]:
    """A master's log up to its stable index."""
    found: list[PageEntry] = []
    with MasterClient(url, 60.0) as master:
        end = master.status().stable.index
        while len(found) < end:
            found += master.log_page(len(found), upto=end).entries
    return found


def _wait_state(masters: BenchMasters, state: str, *, by_backups: bool = False) -> None:
    """``by_backups``: each side reports the backup for which it waits, as if a worker stood at its stable index."""

    def probe() -> bool:
        found = {}
        for node, url in masters.by_node.items():
            with MasterClient(url, 10.0) as master:
                status = master.status()
                found[node] = status.state
                for duty in master.duties() if by_backups else ():
                    with suppress(TxLogError):
                        master.complete_duty(duty["id"], status.stable.index, status.stable.hash)
        if set(found.values()) != {state}:
            raise NotYet(str(found))
        return True

    wait_until(f"all are {state}", PATIENCE_S, probe, pause_s=0.3)


def _wait_archived(target: FolderTarget, places: Sequence[Node]) -> Stream:
    def probe() -> Stream:
        streams = find_streams(target)
        start = streams[0].read_start() if streams else None
        if start is None:
            raise NotYet("no stream")
        paths = find_paths([each.name for each in streams[0].list_files()], [start])
        missing = [str(place) for place in places if place not in paths.reached]
        if missing:
            raise NotYet(f"not archived: {', '.join(missing)}; heads {paths.heads}")
        return streams[0]

    return wait_until("the archive has each branch", PATIENCE_S, probe, pause_s=0.3)


def _end_of(url: str) -> Node:
    with MasterClient(url, 10.0) as master:
        stable = master.status().stable
    return Node(stable.index, bytes.fromhex(stable.hash))


def write_history(masters: BenchMasters, links: LinkControl, target: FolderTarget, seed: int) -> list[SteppedLog]:
    """Common entries, a split, a rejoin, and an update that deletes everything. The timelines, the final one last."""
    chance = random.Random(seed)
    uk, us = masters.by_node["uk-1"], masters.by_node["us-1"]
    submit_all(uk, random_writes(chance, "uk", WRITES), Durability.SYNCED)
    links.set_faults([{"from": a, "to": b, "cut": True} for a, b in (("uk-1", "us-1"), ("us-1", "uk-1"))])
    _wait_state(masters, "Isolated", by_backups=True)
    for side, url in (("uk-apart", uk), ("us-apart", us)):
        submit_all(url, random_writes(chance, side, WRITES), Durability.SYNCED)
    branches = [read_stable_log(url) for url in (uk, us)]
    _wait_archived(target, [_end_of(url) for url in (uk, us)])
    links.set_faults([])
    _wait_state(masters, "Joined")
    submit_all(us, random_writes(chance, "us", WRITES), Durability.SYNCED)
    write_one(uk, REPOSITORY, "CLEAR ALL", "synced")
    submit_all(uk, random_writes(chance, "uk-later", 3), Durability.SYNCED)
    end = masters.wait_at_rest(PATIENCE_S)
    _wait_archived(target, [_end_of(uk)])
    named = zip(("uk", "us", "final"), (*branches, read_stable_log(uk)), strict=True)
    logs = [step_through(name, entries) for name, entries in named]
    if len(logs[-1].entries) != end:
        raise CannotMeasure(f"the log has {len(logs[-1].entries)} entries, not {end}")
    return logs


def random_targets(chance: random.Random, logs: Sequence[SteppedLog], count: int) -> Iterator[Target]:
    """Abandoned branches are reached by position alone; every other form means the final log."""
    final = logs[-1]
    for number in range(count):
        form = FORMS[number % len(FORMS)]
        log = chance.choice(list(logs)) if form == "position" else final
        entry = chance.choice(log.entries)
        if form == "position":
            yield Target(form, f"position:{entry.index}:{entry.hash.hex()}", log, entry.index)
        elif form == "time":
            milliseconds = entry.stamp >> 16
            seconds, rest = divmod(milliseconds, 1000)
            text = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000).isoformat()
            place = max(each.index for each in log.entries if each.stamp >> 16 <= milliseconds)
            yield Target(form, f"time:{text}", log, place)
        else:
            before = form == "before"
            txid = f"{entry.node}.{entry.birth:016x}.{entry.seq}"
            yield Target(form, f"before:{txid}" if before else txid, log, entry.index - before)


def back_up(target: FolderTarget, stream: Stream, log: SteppedLog, index: int) -> None:
    """A base of what the stepped store held there."""
    node = log.entries[index - 1]
    request = BackupRequest(stream.id.cluster.hex(), "uk")
    position = Position(1, index, node.hash)
    write_backup(iter([log.contents[index]]), position, "stepped", "oxigraph", target, request)


def restore_all(
    target: FolderTarget, stream: Stream, store: str, targets: Sequence[Target], report: BenchReport
) -> None:
    """Restores to each target into the emptied store, and compares what the store gives out with the stepped one."""
    adapter = ADAPTERS["oxigraph"]
    exact, wrong, spent = 0, list[str](), 0.0
    with HttpTransport(store, 120.0) as transport:
        into = RestoreTarget(store, adapter, transport)
        for number, wanted in enumerate(targets):
            if not transport.send(adapter.clear()).ok:
                raise CannotMeasure(f"{store} cannot be emptied")
            began = time.monotonic()
            try:
                if number < BY_COMMAND:
                    words = ("restore", "--to", wanted.text, "--into", store, "--target", target.location, "--json")
                    found = json.loads(run_txlog(*words))["position"]["index"]
                else:
                    request = MomentRequest(parse_moment(wanted.text), target)
                    found = restore_to_moment(StreamReader(stream), request, into).plan.place.index
            except TxLogError as error:
                wrong.append(f"{wanted.text}: {error.name}: {error}")
                continue
            spent += time.monotonic() - began
            with transport.stream(adapter.snapshot()) as answer:
                total = f"{digest(answer.chunks).total:032x}"
            if (found, total) == (wanted.place, wanted.log.digests[wanted.place]):
                exact += 1
            else:
                wrong.append(f"{wanted.text} on {wanted.log.name}: index {found}, not {wanted.place}, digest {total}")
    for each in wrong[:5]:
        console.print(f"[red]{each}[/red]", highlight=False)
    report.equal("targets", len(targets), len(targets))
    report.equal("exact", exact, len(targets))
    report.equal("wrong", len(wrong), 0)
    report.figure("mean_s", spent / max(1, len(targets)), 3)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.pitr", description="a store restored to random moments of a real log"
    )
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--targets", type=int, default=TARGETS)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    folder = options.state.absolute()
    report = BenchReport("make pitr")
    report.figure("seed", seed)
    settings: dict[str, Any] = {
        "max_peer_lag_ms": LAG_MS,
        "none_split_delay_ms": LAG_MS,
        "round_timeout_ms": 1000,
        "idle_interval_ms": 300,
        "start_s": PATIENCE_S,
    }
    with (
        report.part("restores to moments", OSError),
        linked_masters(folder, NODES, **settings) as (masters, links),
        archiver(folder, masters),
    ):
        target = FolderTarget(folder / "archive")
        logs = write_history(masters, links, target, seed)
        stream = find_streams(target)[0]
        chance = random.Random(seed)
        for _ in range(2):
            back_up(target, stream, logs[-1], chance.randrange(1, len(logs[-1].entries)))
        report.figure("timelines", len({log.end for log in logs}))
        report.figure("entries", sum(len(log.entries) for log in logs))
        with empty_oxigraph(folder / "restored") as (store, _):
            restore_all(target, stream, store, list(random_targets(chance, logs, options.targets)), report)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
