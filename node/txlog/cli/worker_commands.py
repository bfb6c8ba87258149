"""``txlog worker`` and ``restore``: list, add, rebuild, repair and remove workers; restore one from a backup."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
import typer

from txlog.backup import (
    BackupManifest,
    RepairResult,
    RestoreResult,
    RestoreTarget,
    make_chain_check,
    read_cluster_id,
    read_manifest,
    rebuild_from_backup,
    rebuild_from_worker,
    repair_graphs,
    restore_backup,
)
from txlog.backup.backup_errors import RepairDiffers, TooMuchDiffers
from txlog.backup.graph_repair import known_cells, known_graphs
from txlog.backup.pinned_snapshot import POLL_S
from txlog.backup.restoration import AdoptingLog, adopted_base
from txlog.backup.store_ownership import cluster_id_bytes, first_position, refuse_other_store
from txlog.backup.target import BackupTarget
from txlog.backup.worker_lookup import READ_TIMEOUT_S, open_restore_target, open_source_worker
from txlog.backup.worker_lookup import list_workers as list_known_workers
from txlog.backup.worker_rebuild import out_of_rotation
from txlog.cli.cli_cluster import CliCluster, find_cluster, local_cluster
from txlog.cli.divergence_view import print_comparison, print_divergence
from txlog.cli.moment_commands import run_moment_restore
from txlog.cli.options import ClusterOptions, LocalOptions, MomentOptions, TargetOptions, YesOption, confirm, register
from txlog.cli.repository_scope import RepositoryOption, find_repository
from txlog.cli.store_commands import adopt_worker, decide_about_store
from txlog.cli.tables import (
    colour_state,
    describe_undecided,
    format_size,
    print_answer,
    print_line,
    show_json,
    show_table,
)
from txlog.cli.worker_access import (
    ENGINE_NAMES,
    detect_engine,
    engine_in_use,
    find_source_worker,
    find_worker_by_name,
    has_log_entries,
    progress_bars,
    wait_for_store,
)
from txlog.client import MasterClient
from txlog.config.units import server_of_engine
from txlog.local.state_folder import StateFolder
from txlog.local.supervisor_client import SupervisorClient
from txlog.model.errors import BadInput, NotFound, Refused, TxLogError, Unavailable
from txlog.supervision.duties import DutyKind
from txlog.wire.divergence_report import DivergenceFinding
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport
from txlog.workers.virtuoso import PROCEDURES

app = typer.Typer()
SUPERVISOR_TIMEOUT_S = 240.0
"""For the supervisor's answer: it waits for masters that are down, and for reads that are in progress."""

worker_app = typer.Typer(no_args_is_help=True, help="List, add, rebuild, repair and remove workers.")


@register(worker_app, "list")
def list_workers(
    compared: Annotated[
        bool, typer.Option("--compared", help="show how far the comparison of the workers' contents is")
    ] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """List each worker, as the masters of its data centre report it."""
    masters = find_cluster(cluster)
    found = {dc: masters.ask_first(MasterClient.workers, dc) for dc in masters.data_centers}
    if cluster.json:
        show_json([{"dataCenter": dc, **msgspec.to_builtins(w)} for dc, workers in found.items() for w in workers])
        return
    show_table(
        ["WORKER", "DATA CENTRE", "ENGINE", "STATE", "INDEX", "HELD AT", "URL", "ERROR"],
        [
            (
                w.name,
                dc,
                w.engine,
                colour_state(w.state),
                w.position.index if w.position else "",
                w.hold,
                w.url,
                w.error,
            )
            for dc, workers in found.items()
            for w in workers
        ],
        "no workers",
    )
    if compared:
        print_comparison(found)
    print_divergence(found)


@register(app, "restore")
def run_restore(
    name: Annotated[
        str | None, typer.Argument(metavar="BACKUP", help="name of the backup", show_default="see --to")
    ] = None,
    into: Annotated[str | None, typer.Option(help="a worker's name, or the URL of an empty store")] = None,
    again: Annotated[bool, typer.Option("--again", help="repeat after an interrupted restore")] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="a backup of another cluster: it comes before the first entry of this log")
    ] = False,
    engine: Annotated[str | None, typer.Option(help="of the store at a URL; default: as the store reports")] = None,
    repository: RepositoryOption = None,
    *,
    moment: MomentOptions,
    target: TargetOptions,
    cluster: ClusterOptions,
) -> None:
    """Restore a backup into an empty worker, or a moment of the archived log into an empty store.

    Everything is read and proved before the store is changed."""
    is_url = into is not None and into.startswith(("http://", "https://"))
    if engine is not None and (engine not in ADAPTERS or not is_url):
        raise BadInput(f"--engine {engine}: expected {ENGINE_NAMES}, with the URL of a store")
    if moment.to is not None:
        if name is not None or adopt:
            raise BadInput("txlog restore: expected BACKUP or --to MOMENT, not both, and --adopt with BACKUP alone")
        if repository is not None:
            raise BadInput("txlog restore --to: expected no --repository; the first repository alone has an archive")
        run_moment_restore(moment, into, target, cluster, again=again, engine=engine)
        return
    moment.refuse_without_moment()
    if name is None or into is None:
        raise BadInput("txlog restore: expected BACKUP --into WORKER, or --to MOMENT --into URL")
    found, nested = find_repository(cluster, repository)
    began = time.monotonic()
    with ExitStack() as closing:
        place = target.open(cluster.state, repository=nested)
        progress = closing.enter_context(progress_bars(cluster.json))
        if is_url:
            _, masters = found.open_masters(None, closing)
            transport = closing.enter_context(HttpTransport(into.rstrip("/"), READ_TIMEOUT_S))
            found_engine = detect_engine(transport, engine, partial(_form_of_backup, place, name))
            store = RestoreTarget(into, ADAPTERS[found_engine], transport)
            pause = None
        else:
            _, masters, worker = find_worker_by_name(found, into, closing)
            store = open_restore_target(worker, closing)
            pause = out_of_rotation(store, masters, progress)
        cluster_id, chain = read_cluster_id(masters), make_chain_check(masters)
        done = restore_backup(
            place,
            name,
            store,
            cluster_id,
            chain,
            again=again,
            on_progress=progress,
            beginning=pause,
            adopting=_adopting_log(read_manifest(place, name), into, masters) if adopt else None,
        )
    _print_restored(done, into, name, began, cluster.json)


def _adopting_log(manifest: BackupManifest, into: str, masters: list[MasterClient]) -> AdoptingLog:
    """The log that follows on this backup. :class:`Refused` where other workers executed it without that content."""
    base = adopted_base(manifest).hex()
    found = [
        (each, each.position) for each in list_known_workers(masters) if each.state != "Refused" and each.name != into
    ]
    others = [each.name for each, at in found if at is not None and at.index and at.base != base]
    if others:
        raise Refused(
            f"{', '.join(others)} executed this log without {manifest.name}, and would differ; remove them first"
        )
    return AdoptingLog(cluster_id_bytes(read_cluster_id(masters)), first_position(masters))


@register(worker_app)
def rebuild(
    name: Annotated[str, typer.Argument(metavar="WORKER", help="name of the worker")],
    backup: Annotated[str | None, typer.Option("--from", help="this backup; default: the newest valid one")] = None,
    live: Annotated[bool, typer.Option("--live", help="from another worker, which keeps serving")] = False,
    source: Annotated[str | None, typer.Option(help="with --live: the other worker")] = None,
    wipe: Annotated[bool, typer.Option("--wipe", help="delete the files of a store that does not start")] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="also a store that is not of this cluster (state Refused)")
    ] = False,
    yes: YesOption = False,
    repository: RepositoryOption = None,
    *,
    target: TargetOptions,
    cluster: ClusterOptions,
) -> None:
    """Rebuild a worker, whatever it holds, from the newest valid backup on the log or from a live worker.

    A store of another cluster needs `--discard`. Without a source, TxLog then takes the best one, the log included."""
    if (live and (backup or target.target)) or (source and not live):
        raise BadInput("txlog worker rebuild: expected --from and --target, or --live and --source, not both")
    if discard and not (live or backup or target.target or wipe):
        if repository is not None:
            raise BadInput("txlog worker rebuild --discard --repository: expected --from BACKUP, or --live")
        decide_about_store(DutyKind.DISCARD, name, cluster, yes=yes)
        return
    masters_by_site, nested = find_repository(cluster, repository)
    began = time.monotonic()
    with ExitStack() as closing:
        where, masters, found = find_worker_by_name(masters_by_site, name, closing)
        confirm(yes, f"everything that {name} holds goes, and comes again. Rebuild it?")
        chain = make_chain_check(masters)
        other = find_source_worker(masters_by_site, name, where, source, closing) if live else None
        place = None if live else target.open(cluster.state, where, nested)
        into = open_restore_target(found, closing)
        if wipe:
            _wipe_store(masters_by_site, into)
        elif not discard:
            refuse_other_store(into, read_cluster_id(masters), chain)
        progress = closing.enter_context(progress_bars(cluster.json))
        if other is not None:
            done = rebuild_from_worker(other, into, masters, chain, on_progress=progress)
            origin = other.name
        else:
            assert place is not None
            cluster_id = read_cluster_id(masters)
            made, done = rebuild_from_backup(place, into, masters, cluster_id, chain, name=backup, on_progress=progress)
            origin = made.name
    _print_restored(done, name, origin, began, cluster.json)


def _wipe_store(cluster: CliCluster, into: RestoreTarget) -> None:
    """Stop the store, remove its files, start it, wait until it answers. Only for stores that `txlog up` runs."""
    name, folder = into.name, cluster.state
    topology = folder.topology() if folder else None
    known = [*topology.workers, *topology.repository_workers] if topology else []
    place = next((w for w in known if w.name == name), None)
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


def _print_restored(done: RestoreResult, into: str, origin: str, began: float, json: bool) -> None:
    seconds = time.monotonic() - began
    at = done.marker.position
    if json:
        result: dict[str, Any] = {
            "worker": into,
            "from": origin,
            "position": str(at),
            "fence": done.marker.fence,
            "quads": done.quads,
            "bytes": done.bytes,
            "undecided": list(done.undecided),
            "seconds": round(seconds, 3),
        }
        show_json(result)
        return
    print_line(
        f"{into} is at index {at.index} with {done.quads:,} quads ({format_size(done.bytes)}) from {origin}, "
        f"compared, in {seconds:.1f} s; its pipeline continues from there"
    )
    if done.undecided:
        print_line(describe_undecided(done.undecided))


@register(worker_app, "repair")
def run_repair(
    name: Annotated[str, typer.Argument(metavar="WORKER", help="the worker that is wrong")],
    source: Annotated[
        str | None, typer.Option(help="the worker that is right; required if TxLog cannot decide it")
    ] = None,
    graph: Annotated[list[str] | None, typer.Option(help="only this graph; empty: the default graph")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="compare all graphs, not only those that are known to differ")
    ] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="rebuild it if too much differs for a copy")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Copy the graphs in which a worker differs from a correct one, with both at one position: all graphs or none."""
    scope = RepairScope(source, tuple(graph or ()), everything, rebuild)
    repair_worker(find_cluster(cluster), name, scope, json=cluster.json)


@dataclass(frozen=True)
class RepairScope:
    """``source``: the worker that is right, None: as the masters know it. ``graphs``: only these; none: those that are
    known to differ, or all of them with ``everything``. ``rebuild``: if too much differs for a copy."""

    source: str | None = None
    graphs: tuple[str, ...] = ()
    everything: bool = False
    rebuild: bool = False


def repair_worker(cluster: CliCluster, name: str, scope: RepairScope, *, json: bool) -> None:
    """Repair a worker of a cluster, and print what ``txlog worker repair`` shows."""
    began = time.monotonic()
    with ExitStack() as closing:
        where, masters, found = find_worker_by_name(cluster, name, closing)
        known = found.divergence
        chosen = _find_correct_worker(name, known, scope.source)
        other = find_source_worker(cluster, name, where, chosen, closing)
        into = open_source_worker(found, masters, closing, cluster.open_transport)
        progress = closing.enter_context(progress_bars(json))
        chain = make_chain_check(masters)
        graphs = list(scope.graphs) or (None if scope.everything else known_graphs(known))
        cells = [] if scope.graphs or scope.everything else known_cells(known)
        try:
            done: RepairResult | RestoreResult = repair_graphs(
                other, into, chain, graphs=graphs, cells=cells, on_progress=progress
            )
        except (TooMuchDiffers, RepairDiffers):
            if not scope.rebuild:
                raise
            store = RestoreTarget(name, into.adapter, into.transport)
            done = rebuild_from_worker(other, store, masters, chain, on_progress=progress)
    _print_repair(done, name, other.name, time.monotonic() - began, json)


def _find_correct_worker(name: str, known: DivergenceFinding | None, source: str | None) -> str | None:
    """A worker that is known to be right; None: any that works. :class:`Refused` when TxLog cannot decide it."""
    if known is not None and known.kind == "refusal":
        raise Refused(f"{name}: {known.why}: it cannot come to where they are: txlog worker rebuild {name} --live")
    if source is not None:
        return source
    if known is not None and not known.wrong:
        raise Refused(f"{name}: {known.why}; say which worker is right: --source WORKER (and repair the others)")
    if known is None or not known.right:
        return None
    return known.right[0].partition("/")[2]


def _print_repair(done: RepairResult | RestoreResult, name: str, origin: str, seconds: float, json: bool) -> None:
    at = done.marker.position
    result: dict[str, Any] = {"worker": name, "from": origin, "index": at.index}
    if isinstance(done, RestoreResult):
        result |= {"way": "rebuild", "quads": done.quads}
        text = f"{name} is rebuilt from {origin}: {done.quads:,} quads, at index {at.index}, in {seconds:.1f} s"
    else:
        result |= {"way": "repair", "graphs": done.graphs, "added": done.added, "removed": done.removed}
        text = (
            f"{name}: {len(done.graphs)} graphs copied from {origin} ({done.added:,} quads added, "
            f"{done.removed:,} removed) at index {at.index}, compared, in {seconds:.1f} s"
        )
        if not done.graphs:
            text = f"{name} holds what {origin} holds, at index {at.index}: nothing to copy"
    print_answer(json, {**result, "seconds": round(seconds, 3)}, text)


def _form_of_backup(place: BackupTarget, name: str, engine: str) -> str:
    """The engine that a store at a URL reports, with the form in which the backup has literals."""
    made = read_manifest(place, name).engine
    return made if server_of_engine(made) == engine else engine


@register(worker_app, "add")
def add_worker(
    name: Annotated[str, typer.Argument(metavar="WORKER", help="name of the new worker, such as uk-worker-2")],
    data_center: Annotated[str | None, typer.Option(help="default: from the name")] = None,
    backup: Annotated[str | None, typer.Option("--from", help="fill it from this backup")] = None,
    source: Annotated[str | None, typer.Option(help="fill it from this worker")] = None,
    empty: Annotated[bool, typer.Option("--empty", help="fill it by the log, from its first entry")] = False,
    wait: Annotated[float, typer.Option(help="seconds until its pipeline must use it")] = 120.0,
    *,
    target: TargetOptions,
    local: LocalOptions,
) -> None:
    """Add a worker: a new store, filled from a live worker (which keeps serving) or a backup, then by the log."""
    if sum((backup is not None, source is not None, empty)) > 1:
        raise BadInput("txlog worker add: expected one of --from, --source and --empty")
    cluster = local_cluster(local.state)
    where = data_center or _data_center_of(local.folder, name)
    supervisor = SupervisorClient(local.folder, SUPERVISOR_TIMEOUT_S)
    began = time.monotonic()
    with ExitStack() as closing:
        _, masters = cluster.open_masters(where, closing)
        url, engine = supervisor.add_worker(name, where)
        try:
            transport = closing.enter_context(HttpTransport(url, READ_TIMEOUT_S))
            into = RestoreTarget(name, ADAPTERS[engine_in_use(engine, masters)], transport)
            wait_for_store(into)
            progress = closing.enter_context(progress_bars(local.json))
            chain = make_chain_check(masters)
            done: RestoreResult | None = None
            origin = "the log"
            if backup is not None:
                place, cluster_id = target.open(local.state, where), read_cluster_id(masters)
                made, done = rebuild_from_backup(place, into, (), cluster_id, chain, name=backup, on_progress=progress)
                origin = made.name
            elif not empty and has_log_entries(masters):
                other = find_source_worker(cluster, name, where, source, closing)
                done = rebuild_from_worker(other, into, (), chain, on_progress=progress)
                origin = other.name
            supervisor.serve_worker(name)
        except BaseException:
            with suppress(TxLogError):
                supervisor.remove_worker(name, purge=True)
            raise
        index = _wait_until_registered(masters, name, done.marker.position.index if done else 0, wait)
    _print_added(name, origin, done, index, time.monotonic() - began, local.json)


@register(worker_app, "remove")
def remove_worker(
    name: Annotated[str, typer.Argument(metavar="WORKER", help="name of the worker")],
    purge: Annotated[bool, typer.Option("--purge", help="also delete the files of the store")] = False,
    yes: YesOption = False,
    *,
    local: LocalOptions,
) -> None:
    """Remove a worker: it receives no more reads and transactions, and its process ends after its last read."""
    local_cluster(local.state)
    where = _data_center_of(local.folder, name)
    confirm(yes or not purge, f"everything that {name} of {where} holds goes. Sure?")
    began = time.monotonic()
    SupervisorClient(local.folder, SUPERVISOR_TIMEOUT_S).remove_worker(name, purge=purge)
    result = {"worker": name, "removed": True, "purged": purge, "seconds": round(time.monotonic() - began, 3)}
    kept = "" if purge else f"; its files stay in {local.folder.worker(name)}"
    print_answer(local.json, result, f"{name} is taken out{kept}")


def _data_center_of(folder: StateFolder, name: str) -> str:
    """The data centre of a worker that the topology lists, else the one that its name begins with."""
    topology = folder.topology()
    known = next((w.data_center for w in topology.workers if w.name == name), None)
    fitting = [dc for dc in topology.data_centers if name.startswith(f"{dc}-")]
    found = known or max(fitting, key=len, default=None)
    if found is None:
        raise NotFound(f"{name} names no data centre; there are {', '.join(topology.data_centers)} (--data-center)")
    return found


def _wait_until_registered(masters: list[MasterClient], name: str, least: int, wait: float) -> int:
    """Return the index at which a pipeline reports the worker to a master, once it is at least ``least``."""
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


def _print_added(name: str, origin: str, done: RestoreResult | None, index: int, seconds: float, json: bool) -> None:
    size = {"quads": done.quads if done else 0, "bytes": done.bytes if done else 0}
    result = {"worker": name, "from": origin, "index": index, "seconds": round(seconds, 3), **size}
    content = f"{done.quads:,} quads ({format_size(done.bytes)}) from {origin}, compared" if done else origin
    print_answer(json, result, f"{name} is a worker: {content}, then by the log; it is at {index} ({seconds:.1f} s)")


register(worker_app, "adopt")(adopt_worker)


@app.command("virtuoso-sql")
def virtuoso_sql() -> None:
    """Print the SQL that prepares a Virtuoso as a worker, for `isql-vt HOST:PORT dba PASSWORD`. It is repeatable."""
    typer.echo(PROCEDURES.read_text(), nl=False)
