"""One backup and what goes with it, as a process of its own: ``python -m txlog.backup --config FILE.json``.

For whoever performs schedules and duties. The last line on standard output is JSON: ``{"name", "position", "quads",
"bytes", "seconds", "retired", "leftovers"}``, or ``{"error", "message"}`` with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from txlog.backup.catalogue import delete, leftovers
from txlog.backup.chain import check_cluster, cluster_of
from txlog.backup.checking import check
from txlog.backup.creating import Order, create
from txlog.backup.faults import Incomplete, NoSuchBackup
from txlog.backup.manifest import Manifest, Retention
from txlog.backup.progress import Told, nobody
from txlog.backup.retention import retain
from txlog.backup.standing import Source, choose
from txlog.backup.target import Target, open_target
from txlog.backup.telling import tell
from txlog.client import MasterClient, Worker
from txlog.config.process import BackupJobConfig
from txlog.model.errors import NotFound, TxLogError, Unavailable
from txlog.workers import ADAPTERS
from txlog.workers.transport import HttpTransport

READ_S = 600.0
"""How long a worker may think between two pieces of its snapshot."""
ANSWER_MAX = 4000
"""Kubernetes keeps so much of a termination message."""


def workers_of(masters: Sequence[MasterClient]) -> list[Worker]:
    """Of the first master that answers."""
    last: TxLogError | None = None
    for master in masters:
        try:
            return master.workers()
        except Unavailable as error:
            last = error
    raise Unavailable("NoMaster", f"no master answers: {last}; see txlog status")


def duties_of(masters: Sequence[MasterClient]) -> list[tuple[MasterClient, dict[str, Any]]]:
    """What each master that answers wants done; the error of the last one when none does."""
    found: list[tuple[MasterClient, dict[str, Any]]] = []
    silent: list[TxLogError] = []
    for master in masters:
        try:
            found += [(master, duty) for duty in master.duties()]
        except TxLogError as fault:
            silent.append(fault)
    if silent and len(silent) == len(masters):
        raise silent[-1]
    return found


def find_worker(masters: Sequence[MasterClient], name: str | None) -> Worker:
    """By its name; without, the one that is farthest."""
    workers = workers_of(masters)
    found = choose(workers) if name is None else next((w for w in workers if w.name == name), None)
    if found is None and name is None:
        raise Unavailable("NoWorker", "no worker of this data centre works and has a position; see txlog status")
    if found is None:
        raise NotFound(f"no worker is called {name}; there are {', '.join(w.name for w in workers) or 'none'}")
    return found


def perform(config: BackupJobConfig, told: Told = nobody) -> tuple[Manifest, list[str], list[str]]:
    """The backup, the names of those that went for it, and those of leftovers that went."""
    target = open_target(config.target)
    made = _done_before(config, target, told)
    with ExitStack() as closing:
        masters = [closing.enter_context(MasterClient(url)) for url in config.masters]
        cluster = cluster_of(masters)
        if made is not None:
            check_cluster(made, cluster)
            return made, [], []
        worker = find_worker(masters, None)
        transport = closing.enter_context(HttpTransport(worker.url, READ_S))
        source = Source(worker.name, ADAPTERS[worker.engine or "oxigraph"], transport, masters)
        retention: Retention = "held" if config.why == "split" else "normal"
        order = Order(
            cluster, config.data_center, config.why, retention, config.name, at=config.at, deadline_s=config.wait_s
        )
        made = create(source, target, order, told)
        # Only now, when one more is there and was read back.
        retired = retain(target, cluster, config.data_center, config.keep, config.keep_days)
        tell(target, masters, cluster, config.data_center)
    return made, retired, leftovers(target)


def _done_before(config: BackupJobConfig, target: Target, told: Told) -> Manifest | None:
    """A duty may be asked for again after a crash: what was done is found sound, what was begun is cleared away."""
    if config.name is None:
        return None
    try:
        return check(target, config.name, told)
    except NoSuchBackup:
        return None
    except Incomplete:
        delete(target, config.name)
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="txlog.backup", description="one backup of a data centre, and its retention")
    parser.add_argument("--config", type=Path, required=True, help="a BackupJobConfig as JSON")
    parser.add_argument("--name", help="done once under that name, however often it is asked for")
    parser.add_argument("--why", choices=["manual", "schedule"], help="in the place of what the configuration says")
    parser.add_argument("--answer", type=Path, help="the last line goes into this file, too")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        config = BackupJobConfig.model_validate_json(options.config.read_bytes())
        changes = {"name": options.name, "why": options.why}
        config = config.model_copy(update={key: value for key, value in changes.items() if value is not None})
        made, retired, left = perform(config)
    except TxLogError as error:
        say({"error": error.name, "message": str(error)}, options.answer)
        return 1
    except KeyboardInterrupt:
        say({"error": "Interrupted", "message": "ended from outside; nothing of it counts"}, options.answer)
        return 130
    say(
        {
            "name": made.name,
            "position": str(made.position),
            "quads": made.quads,
            "bytes": made.stored_bytes,
            "seconds": round(time.monotonic() - began, 3),
            "retired": retired,
            "leftovers": left,
        },
        options.answer,
    )
    return 0


def say(told: dict[str, Any], answer: Path | None = None) -> None:
    """The last line. ``answer``: a container's termination message, which Kubernetes keeps of it."""
    line = json.dumps({"at": round(time.time(), 3), **told})
    print(line, flush=True)
    if answer is not None:
        answer.write_text(line[:ANSWER_MAX] + "\n")
