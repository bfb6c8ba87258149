"""``txlog worker add`` and ``remove_worker``: workers come and go while the cluster runs."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import Annotated

import typer

from txlog.backup import (
    RestoreResult,
    RestoreTarget,
    make_chain_check,
    read_cluster_id,
    rebuild_from_backup,
    rebuild_from_worker,
)
from txlog.backup.backup_job import READ_TIMEOUT_S
from txlog.backup.pinned_snapshot import POLL_S
from txlog.cli.backup_commands import (
    CredentialsOption,
    EndpointOption,
    TargetOption,
    find_target,
    format_size,
    masters_of_data_center,
    progress_bars,
)
from txlog.cli.output import DEFAULT_STATE, CliCluster, JsonOption, StateOption, find_cluster, out, show_json
from txlog.cli.worker_restore_commands import find_source_worker, wait_for_store
from txlog.client import MasterClient
from txlog.local.supervisor_client import SupervisorClient
from txlog.model.errors import BadInput, NotFound, TxLogError, Unavailable
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

SUPERVISOR_TIMEOUT_S = 240.0
"""For the supervisor's answer: masters that are away, reads that go on for long."""


def add_to(worker: typer.Typer) -> None:
    worker.command("add")(add_worker)
    worker.command("remove")(remove_worker)


def add_worker(
    name: Annotated[str, typer.Argument(metavar="WORKER", help="name of the new worker, such as uk-worker-2")],
    data_center: Annotated[str | None, typer.Option("--data-center", help="default: from the name")] = None,
    backup: Annotated[str | None, typer.Option("--from", help="fill it from this backup")] = None,
    source: Annotated[str | None, typer.Option("--source", help="fill it from this worker")] = None,
    empty: Annotated[bool, typer.Option("--empty", help="fill it by the log, from its first entry")] = False,
    wait: Annotated[float, typer.Option(help="seconds until its pipeline must use it")] = 120.0,
    target: TargetOption = None,
    endpoint: EndpointOption = None,
    credentials: CredentialsOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Add a worker: a new store, filled from a live worker (which keeps serving) or a backup, then by the log."""
    if sum((backup is not None, source is not None, empty)) > 1:
        raise BadInput("txlog worker add: expected one of --from, --source and --empty")
    cluster = find_cluster(state, None)
    assert cluster.state is not None
    where = data_center or _data_center_of(cluster, name)
    control = SupervisorClient(cluster.state, SUPERVISOR_TIMEOUT_S)
    began = time.monotonic()
    with ExitStack() as closing:
        _, masters = masters_of_data_center(cluster, where, closing)
        url, engine = control.add_worker(name, where)
        try:
            transport = closing.enter_context(HttpTransport(url, READ_TIMEOUT_S))
            into = RestoreTarget(name, ADAPTERS[engine], transport)
            wait_for_store(into)
            told = closing.enter_context(progress_bars(json))
            chain = make_chain_check(masters)
            done: RestoreResult | None = None
            whence = "the log"
            if backup is not None:
                place = find_target(state, target, endpoint, credentials, where)
                made, done = rebuild_from_backup(
                    place, into, (), read_cluster_id(masters), chain, name=backup, on_progress=told
                )
                whence = made.name
            elif not empty and _log_available(masters):
                other = find_source_worker(cluster, name, where, source, closing)
                done = rebuild_from_worker(other, into, (), chain, on_progress=told)
                whence = other.name
            control.serve_worker(name)
        except BaseException:
            with suppress(TxLogError):
                control.remove_worker(name, purge=True)
            raise
        index = _wait_until_registered(masters, name, done.marker.position.index if done else 0, wait)
    _print_added(name, whence, done, index, time.monotonic() - began, json)


def remove_worker(
    name: Annotated[str, typer.Argument(metavar="WORKER", help="name of the worker")],
    purge: Annotated[bool, typer.Option("--purge", help="also delete the files of the store")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Remove a worker: it receives no more reads and transactions, and its process ends after its last read."""
    cluster = find_cluster(state, None)
    assert cluster.state is not None
    where = _data_center_of(cluster, name)
    if purge and not yes:
        typer.confirm(f"everything that {name} of {where} holds goes. Sure?", abort=True)
    began = time.monotonic()
    SupervisorClient(cluster.state, SUPERVISOR_TIMEOUT_S).remove_worker(name, purge=purge)
    told = {"worker": name, "removed": True, "purged": purge, "seconds": round(time.monotonic() - began, 3)}
    if json:
        show_json(told)
    else:
        kept = "" if purge else f"; its files stay in {cluster.state.worker(name)}"
        out.print(f"{name} is taken out{kept}", highlight=False)


def _data_center_of(cluster: CliCluster, name: str) -> str:
    assert cluster.state is not None
    topology = cluster.state.topology()
    known = next((w.data_center for w in topology.workers if w.name == name), None)
    fitting = [dc for dc in topology.data_centers if name.startswith(f"{dc}-")]
    found = known or max(fitting, key=len, default=None)
    if found is None:
        raise NotFound(f"{name} names no data centre; there are {', '.join(topology.data_centers)} (--data-center)")
    return found


def _log_available(masters: list[MasterClient]) -> bool:
    """Whether there is anything that a worker could hold."""
    for master in masters:
        with suppress(TxLogError):
            return master.status().stable.index > 0
    raise Unavailable("NoMaster", "no master of that data centre answers; see txlog status")


def _wait_until_registered(masters: list[MasterClient], name: str, least: int, wait: float) -> int:
    """Until a pipeline has told a master where it stands; that index."""
    until = time.monotonic() + wait
    last = "no master answers"
    while True:
        for master in masters:
            with suppress(TxLogError):
                worker = next((w for w in master.workers() if w.name == name), None)
                last = worker.state if worker is not None else "not known there"
                if worker is None or worker.state != "Working" or worker.position is None:
                    continue
                if worker.position.index >= least:
                    return worker.position.index
        if time.monotonic() > until:
            raise Unavailable("NoPipeline", f"{name} is a worker, but its pipeline has not taken it up: {last}")
        time.sleep(POLL_S)


def _print_added(name: str, whence: str, done: RestoreResult | None, index: int, seconds: float, json: bool) -> None:
    if json:
        told = {"worker": name, "from": whence, "index": index, "seconds": round(seconds, 3)}
        show_json({**told, "quads": done.quads if done else 0, "bytes": done.bytes if done else 0})
        return
    size = f"{done.quads:,} quads ({format_size(done.bytes)}) from {whence}, compared" if done else whence
    out.print(f"{name} is a worker: {size}, then by the log; it stands at {index} ({seconds:.1f} s)", highlight=False)
