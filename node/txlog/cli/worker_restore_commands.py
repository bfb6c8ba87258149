"""``txlog restore`` and ``txlog worker rebuild``: workers from backups, and from each other."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from txlog.backup import (
    RestoreResult,
    RestoreTarget,
    SourceWorker,
    make_chain_check,
    read_cluster_id,
    rebuild_from_backup,
    rebuild_from_worker,
    restore_backup,
)
from txlog.backup.backup_errors import OtherEngine
from txlog.backup.backup_job import READ_TIMEOUT_S, list_workers
from txlog.backup.pinned_snapshot import POLL_S, choose_most_advanced, read_system_graphs
from txlog.backup.worker_rebuild import out_of_rotation
from txlog.cli.backup_commands import (
    CredentialsOption,
    EndpointOption,
    TargetOption,
    find_target,
    format_size,
    masters_of_data_center,
    progress_bars,
)
from txlog.cli.output import (
    DEFAULT_STATE,
    CliCluster,
    JsonOption,
    MasterOption,
    StateOption,
    find_cluster,
    out,
    show_json,
)
from txlog.client import MasterClient, WorkerStatus
from txlog.local.supervisor_client import SupervisorClient
from txlog.model.errors import BadInput, NotFound
from txlog.workers import ADAPTERS
from txlog.workers.adapter import Unreachable
from txlog.workers.engine_detection import detect
from txlog.workers.http_transport import HttpTransport

_ENGINE_NAMES = " or ".join((", ".join(list(ADAPTERS)[:-1]), list(ADAPTERS)[-1]))
STORE_START_TIMEOUT_S = 60.0
"""How long a store may take to start."""


def add_to(app: typer.Typer, worker: typer.Typer) -> None:
    app.command("restore")(run_restore)
    worker.command("rebuild")(rebuild)


def run_restore(
    name: Annotated[str, typer.Argument(metavar="BACKUP", help="name of the backup")],
    into: Annotated[str, typer.Option("--into", help="a worker's name, or the URL of an empty store")],
    again: Annotated[bool, typer.Option("--again", help="repeat after an interrupted restore")] = False,
    engine: Annotated[
        str | None, typer.Option("--engine", help="of the store at a URL; default: as the store reports")
    ] = None,
    target: TargetOption = None,
    endpoint: EndpointOption = None,
    credentials: CredentialsOption = None,
    master: MasterOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Restore a backup into an empty worker. The whole backup is read before the worker is changed."""
    is_url = into.startswith(("http://", "https://"))
    if engine is not None and (engine not in ADAPTERS or not is_url):
        raise BadInput(f"--engine {engine}: expected {_ENGINE_NAMES}, with the URL of a store")
    cluster = find_cluster(state, master)
    began = time.monotonic()
    with ExitStack() as closing:
        place = find_target(state, target, endpoint, credentials)
        known: WorkerStatus | None = None
        if is_url:
            _, masters = masters_of_data_center(cluster, None, closing)
        else:
            _, masters, known = find_worker(cluster, into, closing)
        transport = closing.enter_context(HttpTransport(known.url if known else into.rstrip("/"), READ_TIMEOUT_S))
        there = RestoreTarget(
            into, ADAPTERS[known.engine or "oxigraph" if known else _detect_engine(transport, engine)], transport
        )
        told = closing.enter_context(progress_bars(json))
        out_of_duty = out_of_rotation(there, masters, told) if known else None
        chain = make_chain_check(masters)
        done = restore_backup(
            place, name, there, read_cluster_id(masters), chain, again=again, on_progress=told, beginning=out_of_duty
        )
    _print_result(done, into, name, began, json)


def _detect_engine(transport: HttpTransport, said: str | None) -> str:
    """Of a store that no master knows. :class:`OtherEngine` where it is another one than was said; :class:`BadInput`
    where neither it nor anybody says."""
    found = detect(transport)
    if said is not None and found not in (None, said):
        raise OtherEngine(f"{transport.url} is {found}, not {said}")
    engine = said or found
    if engine is None:
        raise BadInput(
            f"{transport.url} does not say which engine it is; expected a store's URL, or --engine {_ENGINE_NAMES}"
        )
    return engine


def rebuild(
    name: Annotated[str, typer.Argument(metavar="WORKER", help="name of the worker")],
    backup: Annotated[str | None, typer.Option("--from", help="this backup; default: the newest valid one")] = None,
    live: Annotated[bool, typer.Option("--live", help="from another worker, which keeps serving")] = False,
    source: Annotated[str | None, typer.Option("--source", help="with --live: the other worker")] = None,
    wipe: Annotated[bool, typer.Option("--wipe", help="delete the files of a store that does not start")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    target: TargetOption = None,
    endpoint: EndpointOption = None,
    credentials: CredentialsOption = None,
    master: MasterOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Rebuild a worker, whatever it holds, from the newest valid backup on the log or from a live worker."""
    if (live and (backup or target)) or (source and not live):
        raise BadInput("txlog worker rebuild: expected --from and --target, or --live and --source, not both")
    cluster = find_cluster(state, master)
    began = time.monotonic()
    with ExitStack() as closing:
        where, masters, found = find_worker(cluster, name, closing)
        if not yes:
            typer.confirm(f"everything that {name} holds goes, and comes again. Rebuild it?", abort=True)
        chain = make_chain_check(masters)
        other = find_source_worker(cluster, name, where, source, closing) if live else None
        place = None if live else find_target(state, target, endpoint, credentials, where)
        transport = closing.enter_context(HttpTransport(found.url, READ_TIMEOUT_S))
        into = RestoreTarget(name, ADAPTERS[found.engine or "oxigraph"], transport)
        if wipe:
            _wipe_store(cluster, into)
        told = closing.enter_context(progress_bars(json))
        if other is not None:
            done = rebuild_from_worker(other, into, masters, chain, on_progress=told)
            whence = other.name
        else:
            assert place is not None
            made, done = rebuild_from_backup(
                place, into, masters, read_cluster_id(masters), chain, name=backup, on_progress=told
            )
            whence = made.name
    _print_result(done, name, whence, began, json)


def find_worker(cluster: CliCluster, name: str, closing: ExitStack) -> tuple[str, list[MasterClient], WorkerStatus]:
    """The worker, its data centre, and that data centre's masters."""
    known: list[str] = []
    for data_center in cluster.data_centers:
        where, masters = masters_of_data_center(cluster, data_center, closing)
        workers = list_workers(masters)
        known += [worker.name for worker in workers]
        for worker in workers:
            if worker.name == name:
                return where, masters, worker
    raise NotFound(f"no worker is called {name}; there are {', '.join(known) or 'none'}")


def find_source_worker(
    cluster: CliCluster, name: str, home: str, source: str | None, closing: ExitStack
) -> SourceWorker:
    """Another worker that can be copied: of the data centre ``home`` rather than of another. ``source``: this one."""
    groups: list[tuple[list[MasterClient], list[WorkerStatus]]] = []
    for data_center in sorted(cluster.data_centers, key=lambda each: each != home):
        masters = masters_of_data_center(cluster, data_center, closing)[1]
        groups.append((masters, [w for w in list_workers(masters) if w.name != name]))
    for masters, workers in groups:
        found = choose_most_advanced([w for w in workers if source in (None, w.name)])
        if found is not None:
            transport = closing.enter_context(HttpTransport(found.url, READ_TIMEOUT_S))
            return SourceWorker(found.name, ADAPTERS[found.engine or "oxigraph"], transport, masters)
    raise NotFound(f"{source or 'no other worker'} works and has a position; see txlog status")


def _wipe_store(cluster: CliCluster, into: RestoreTarget) -> None:
    """Stop the store, remove its files, start it, wait until it answers. Only for stores that `txlog up` runs."""
    name, folder = into.name, cluster.state
    place = next((w for w in folder.topology().workers if w.name == name), None) if folder else None
    if folder is None or place is None or not place.managed:
        raise BadInput(f"--wipe: {name} is not run by `txlog up` here; empty its store yourself")
    control = SupervisorClient(folder)
    control.stop(name)
    try:
        shutil.rmtree(folder.worker(name), ignore_errors=True)
        folder.worker(name).mkdir(parents=True, exist_ok=True)
    finally:
        control.start(name)
    wait_for_store(into)


def wait_for_store(into: RestoreTarget) -> None:
    """Until a store that was just started answers; :class:`Unreachable` after :data:`STORE_START_TIMEOUT_S`."""
    until = time.monotonic() + STORE_START_TIMEOUT_S
    while True:
        try:
            read_system_graphs(into.adapter, into.transport)
            return
        except Unreachable:
            if time.monotonic() > until:
                raise
            time.sleep(POLL_S)


def _print_result(done: RestoreResult, into: str, whence: str, began: float, json: bool) -> None:
    seconds = time.monotonic() - began
    at = done.marker.position
    if json:
        told: dict[str, Any] = {"worker": into, "from": whence, "position": str(at), "fence": done.marker.fence}
        show_json({**told, "quads": done.quads, "bytes": done.bytes, "seconds": round(seconds, 3)})
        return
    out.print(
        f"{into} stands at index {at.index} with {done.quads:,} quads ({format_size(done.bytes)}) from {whence}, "
        f"compared, in {seconds:.1f} s; its pipeline goes on from there",
        highlight=False,
    )
