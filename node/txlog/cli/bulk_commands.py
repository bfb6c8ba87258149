"""``txlog bulk load|status|abort``: many quads into all workers, without going through the log."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer
from pyoxigraph import NamedNode
from rich.progress import TaskProgressColumn, TimeElapsedColumn

from txlog.backup import BackupTarget, open_target, read_cluster_id
from txlog.bulk.bulk_errors import NoRoom, NotReady, TooLate
from txlog.bulk.load_files import (
    LoadDecision,
    LoadFolder,
    LoadIntent,
    LoadManifest,
    LoadOutcome,
    LoadSource,
    list_loads,
)
from txlog.bulk.load_run import (
    BulkSite,
    PreparationProgress,
    append_time_left,
    await_loaded,
    check_retention,
    check_sites,
    commit_load,
    forgotten_key,
    give_up,
    prepare_load,
)
from txlog.bulk.load_writer import build_manifest, stage_load, write_parts
from txlog.cli.bulk_sources import SourceProgress, read_source
from txlog.cli.cli_cluster import CliCluster, find_cluster
from txlog.cli.options import ClusterOptions, YesOption, confirm, option_ms, register
from txlog.cli.rdf_chunks import RdfSource, open_source
from txlog.cli.tables import (
    colour_state,
    format_size,
    format_time,
    open_progress,
    print_answer,
    print_line,
    show_json,
    show_table,
    warn,
)
from txlog.client import MasterClient
from txlog.client.bulk_calls import BulkCalls, BulkWorker
from txlog.config.process_config import DutyJobConfig
from txlog.config.units import parse_duration
from txlog.local.state_folder import StateFolder
from txlog.local.store_activity import StoreActivity
from txlog.model.bulk_entry import BulkReference, is_bulk_id
from txlog.model.errors import BadInput, Unavailable
from txlog.sparql.terms import refuse_system

app = typer.Typer(no_args_is_help=True, help="Bulk loads: many quads into all workers, without the log.")
DISK_FACTOR: Final = 3
"""A store's files are so many times the N-Quads, while it takes them in."""
_EXPECTED: Final = ("Working", "Blocked")
"""Workers that should have the load when the command ends. Others load it when they are back."""
SORT_POLL_S: Final = 1.0
SORT_MAX_S: Final = 120.0
SORT_IDLE: Final = 2
"""So many looks in a row at which no store is at work."""


@register(app, "load")
def load_files(
    sources: Annotated[list[str], typer.Argument(metavar="FILE|URL...", help="nt, nq, ttl, trig, n3 or rdf; also .gz")],
    graph: Annotated[str | None, typer.Option(help="IRI of the graph for triples without one")] = None,
    form: Annotated[str | None, typer.Option("--format", help="if the name does not show it: nt, nq, ttl, ...")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="read and check everything, and load nothing")] = False,
    again: Annotated[bool, typer.Option("--again", help="load files that were loaded before")] = False,
    prepare_timeout: Annotated[str, typer.Option(help="until every working store has to hold the load")] = "30m",
    wait: Annotated[str, typer.Option(help="for the stores, once the load is in the log")] = "10m",
    *,
    cluster: ClusterOptions,
) -> None:
    """Load RDF files into every worker at one place of the log, while writes go on. Repeat it to continue after an
    interruption. A load only adds; until it is in the log, nothing has happened."""
    began = time.monotonic()
    prepare_s, wait_s = option_ms("--prepare-timeout", prepare_timeout) / 1000, option_ms("--wait", wait) / 1000
    _check_graph(graph)
    with ExitStack() as closing:
        opened = [closing.enter_context(open_source(name, form)) for name in sources]
        setting = _open_setting(find_cluster(cluster), closing)
        sites = [BulkSite(place.name, place.masters, place.folder("")) for place in setting.places]
        check_sites(sites)
        check_retention(_key_retention(setting))
        if dry_run:
            _show_dry_run(opened, graph, setting, cluster.json)
            return
        wanted = [LoadSource(each.name, each.size, each.digest) for each in opened]
        request = _begin_request(setting, wanted, graph or "", again)
        home = setting.places[0].folder(request.id)
        sites = [BulkSite(place.name, place.masters, place.folder(request.id)) for place in setting.places]
        run = _LoadRun(setting, sites, home, request, cluster.json)
        reference, manifest = run.write_and_stage(opened, graph)
        outcome, workers = run.take_in(reference, manifest, prepare_s, wait_s)
    _show_loaded(request.id, manifest, outcome, workers, time.monotonic() - began, cluster.json)
    if any(worker.index < outcome.index and worker.state in _EXPECTED for _, worker in workers):
        raise typer.Exit(1)


def _check_graph(graph: str | None) -> None:
    if graph is None:
        return
    refuse_system(graph)
    try:
        NamedNode(graph)
    except ValueError:
        raise BadInput(f"--graph {graph[:200]!r} is no absolute IRI; give one such as http://example.org/g") from None


class _Place(NamedTuple):
    """A data centre. ``disks``: the folders of its stores on this machine."""

    name: str
    masters: list[BulkCalls]
    target: BackupTarget
    cluster: str
    disks: list[Path]

    def folder(self, load: str) -> LoadFolder:
        return LoadFolder(self.target, self.cluster, load)


class _Setting(NamedTuple):
    """The cluster, and its data centres; the load is written to the target of the first one."""

    found: CliCluster
    cluster: str
    places: list[_Place]


def _open_setting(found: CliCluster, closing: ExitStack) -> _Setting:
    if found.state is None:
        raise BadInput("bulk loads: expected the state folder of a local cluster (--state), and no --master")
    with MasterClient(found.masters[0]) as first:
        cluster = read_cluster_id([first])
    topology = found.state.topology()
    _refuse_others(found, [each.node for each in topology.masters])
    places = []
    for name, urls in found.data_centers.items():
        masters: list[BulkCalls] = [closing.enter_context(BulkCalls(url)) for url in urls]
        workers = [each.name for each in topology.workers if each.data_center == name and each.managed]
        target = _target_of(found.state, name)
        places.append(_Place(name, masters, target, cluster, [found.state.worker(each) for each in workers]))
    return _Setting(found, cluster, places)


def _refuse_others(found: CliCluster, here: Sequence[str]) -> None:
    """The parts have to be on the target of every data centre, and this command knows those of this machine."""
    configured = found.ask_first(lambda master: master.configuration())["masters"]
    others = sorted(f"{each['node']} ({each['dataCenter']})" for each in configured if each["node"] not in here)
    if others:
        raise NotReady(f"masters that do not run on this machine: {', '.join(others)}; load with txlog load")


def _target_of(state: StateFolder, data_center: str) -> BackupTarget:
    return open_target(DutyJobConfig.model_validate_json(state.duties(data_center).read_bytes()).target)


def _begin_request(setting: _Setting, sources: list[LoadSource], graph: str, again: bool) -> LoadIntent:
    """The load of these files: the one that an interrupted command has left, or a new one."""
    found = _find_request(setting, sources, graph, again)
    if found is not None:
        return found
    made = LoadIntent(secrets.token_hex(16), setting.cluster, sources, graph, time.time())
    setting.places[0].folder(made.id).create_request(made)
    # Another command of the same files may have begun in between. Both see both now, and continue the same one.
    return _find_request(setting, sources, graph, again) or made


def _find_request(setting: _Setting, sources: list[LoadSource], graph: str, again: bool) -> LoadIntent | None:
    """The load of the same files that an interrupted command has left; None where there is none. One that is in the
    log, or may be, comes before one that is not decided: that one would bring the same quads in twice."""
    undecided: LoadIntent | None = None
    committed: list[tuple[LoadIntent, LoadDecision]] = []
    for folder in list_loads(setting.places[0].target, setting.cluster):
        request, decision = folder.read_request(), folder.read_decision()
        if not request.is_same(sources, graph) or (decision is not None and decision.decision == "abort"):
            continue
        outcome = folder.read_outcome()
        if outcome is not None and not again:
            raise BadInput(
                f"these files are in the cluster already: load {request.id}, index {outcome.index}, "
                f"{format_time(outcome.at)}; --again loads them once more"
            )
        if outcome is None and decision is not None:
            committed.append((request, decision))
        elif outcome is None:
            undecided = undecided or request
    for request, decision in committed:
        if append_time_left(decision.at, _key_retention(setting)) > 0:
            return request
        if not again:
            raise forgotten_key(request.id, decision.at, _key_retention(setting))
    return undecided


def _key_retention(setting: _Setting) -> float:
    """Seconds for which the masters know the key of an entry."""
    return parse_duration(setting.found.ask_first(MasterClient.configuration)["keyRetention"]) / 1000


class _LoadRun:
    """One load, from its files to the workers."""

    def __init__(
        self, setting: _Setting, sites: list[BulkSite], home: LoadFolder, request: LoadIntent, quiet: bool
    ) -> None:
        self._setting, self._sites, self._home, self._request = setting, sites, home, request
        self._quiet = quiet

    def write_and_stage(self, opened: Sequence[RdfSource], graph: str | None) -> tuple[BulkReference, LoadManifest]:
        """The parts of the files, on the target of each data centre, each read back."""
        reference = self._home.find_reference()
        if reference is None or not self._has_sound_parts(reference):
            try:
                reference = self._write(opened, graph)
            except BadInput:
                # Another command of the same files may have committed them meanwhile: the parts are of both.
                if self._home.decide("abort", time.time()).decision == "abort":
                    self._home.delete_parts()
                raise
        manifest = self._home.read_manifest(reference)
        _refuse_full_disks(self._setting.places, manifest.plain)
        for site in self._sites:
            with _bar(f"staging at {site.name}", manifest.quads, self._quiet) as update:
                done = 0

                def on_part(part: Any, update: Callable[[int], None] = update) -> None:
                    nonlocal done
                    done += part.quads
                    update(done)

                stage_load(self._home, site.folder, reference, on_part)
        return reference, manifest

    def _has_sound_parts(self, reference: BulkReference) -> bool:
        """A damaged part of an earlier attempt is deleted. The same files give the same parts again."""
        are_sound = [self._home.discard_damaged(part) for part in self._home.read_manifest(reference).parts]
        return all(are_sound)

    def _write(self, opened: Sequence[RdfSource], graph: str | None) -> BulkReference:
        progress = SourceProgress()
        pieces = _read_all(opened, self._request.id, graph, progress, self._quiet)
        parts = write_parts(self._home, pieces, lambda _: None)
        progress.raise_errors()
        if not progress.quads:
            raise BadInput("the files have no quads; nothing was loaded")
        return self._home.write_manifest(build_manifest(self._request, parts))

    def take_in(
        self, reference: BulkReference, manifest: LoadManifest, prepare_s: float, wait_s: float
    ) -> tuple[LoadOutcome, list[tuple[str, BulkWorker]]]:
        """Prepares the workers, decides, appends the entry, and waits for the workers."""
        decision = self._home.read_decision()
        try:
            if decision is None:
                self._prepare(reference, manifest, prepare_s)
            txid = commit_load(self._home, self._sites, reference, _key_retention(self._setting))
        except Unavailable:
            raise  # it may be decided, and its entry may come: the stores hold the load for a while more
        except BaseException:
            give_up(self._sites, reference.id)
            raise
        try:
            outcome = self._find_outcome(txid)
            # Before anything else fails: without it, the same command could continue within keyRetention only.
            self._home.write_outcome(outcome)
            workers = self._await(reference, outcome.index, wait_s)
        finally:
            give_up(self._sites, reference.id)
        return outcome, workers

    def _prepare(self, reference: BulkReference, manifest: LoadManifest, timeout_s: float) -> None:
        with _bar("sending to the stores", manifest.quads, self._quiet) as update:

            def show(made: PreparationProgress) -> None:
                update(made.quads // max(1, made.workers))

            prepare_load(self._sites, reference, timeout_s, show, self._is_decided)
        if not self._is_decided():
            self._await_sorted(reference)

    def _is_decided(self) -> bool:
        """By another command of the same files, or by an abort. A worker that has the load does not hold it again."""
        return self._home.read_decision() is not None

    def _await_sorted(self, reference: BulkReference) -> None:
        """What a store has not sorted when the load is next, its worker waits for. A store that also answers long
        queries is never idle, so this ends after a while."""
        assert self._setting.found.state is not None, "a local cluster"
        running = self._setting.found.state.read("processes.json", {})
        names = [folder.name for place in self._setting.places for folder in place.disks]
        activity = StoreActivity({name: int(running[name]["pid"]) for name in names if name in running})
        until, idle = time.monotonic() + SORT_MAX_S, 0
        with _bar("the stores sort", None, self._quiet):
            while time.monotonic() < until and not self._is_decided():
                idle = 0 if activity.find_busy(SORT_POLL_S) else idle + 1
                prepare_load(self._sites, reference, SORT_MAX_S, lambda _: None, self._is_decided)
                if idle >= SORT_IDLE:
                    return

    def _find_outcome(self, txid: str) -> LoadOutcome:
        found = self._setting.found.ask_first(lambda master: master.transaction(txid))
        if found.position is None:
            raise Unavailable("OutcomeUnknown", f"{txid} has no place in the log now; the same command continues")
        return LoadOutcome(txid, found.position.index, time.time())

    def _await(self, reference: BulkReference, index: int, wait_s: float) -> list[tuple[str, BulkWorker]]:
        with _bar("coming in", None, self._quiet) as update:
            return await_loaded(self._sites, reference, index, wait_s, lambda made: update(made.ready))


def _refuse_full_disks(places: Sequence[_Place], plain: int) -> None:
    """Of stores on one disk the room is needed once for each."""
    needed: dict[int, int] = {}
    free: dict[int, int] = {}
    names: dict[int, list[str]] = {}
    for folder in (folder for place in places for folder in place.disks if folder.exists()):
        device = folder.stat().st_dev
        needed[device] = needed.get(device, 0) + DISK_FACTOR * plain
        free[device] = shutil.disk_usage(folder).free
        names.setdefault(device, []).append(folder.name)
    for device, size in needed.items():
        if size > free[device]:
            raise NoRoom(
                f"{', '.join(names[device])}: {format_size(free[device])} are free, and the load may need "
                f"{format_size(size)}; nothing was loaded: make room, or load fewer files at a time"
            )


def _read_all(
    opened: Sequence[RdfSource], load: str, graph: str | None, progress: SourceProgress, quiet: bool
) -> Iterator[bytes]:
    with _bar("reading", sum(each.size for each in opened), quiet) as update:
        before = 0
        for number, source in enumerate(opened):
            for piece in read_source(source, number, load, graph, progress):
                update(before + progress.offset)
                if piece:
                    yield piece
            before += source.size


@contextmanager
def _bar(text: str, total: int | None, quiet: bool) -> Iterator[Callable[[int], None]]:
    with open_progress(quiet, TaskProgressColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)


def _show_dry_run(opened: Sequence[RdfSource], graph: str | None, setting: _Setting, json: bool) -> None:
    progress = SourceProgress()
    plain = sum(len(piece) for piece in _read_all(opened, "0" * 32, graph, progress, json))
    progress.raise_errors()
    _refuse_full_disks(setting.places, plain)
    targets = {place.name: place.target.location for place in setting.places}
    where = ", ".join(f"{location} ({name})" for name, location in targets.items())
    text = f"{progress.quads:,} quads, {format_size(plain)} of N-Quads, would go to {where}; nothing was loaded"
    print_answer(json, {"quads": progress.quads, "bytes": plain, "targets": targets}, text)


def _show_loaded(
    load: str,
    manifest: LoadManifest,
    outcome: LoadOutcome,
    workers: Sequence[tuple[str, BulkWorker]],
    seconds: float,
    json: bool,
) -> None:
    rows = [
        {"worker": worker.name, "dataCenter": name, "index": worker.index, "loaded": worker.index >= outcome.index}
        for name, worker in workers
    ]
    if json:
        facts = {"id": load, "quads": manifest.quads, "bytes": manifest.plain, "seconds": round(seconds, 3)}
        show_json({**facts, **msgspec.to_builtins(outcome), "workers": rows})
        return
    show_table(
        ["WORKER", "DATA CENTRE", "INDEX", ""],
        [
            (row["worker"], row["dataCenter"], row["index"], "loaded" if row["loaded"] else "later, when it is back")
            for row in rows
        ],
    )
    rate = manifest.quads / max(seconds, 0.001)
    print_line(f"{load}: {manifest.quads:,} quads at index {outcome.index}, {seconds:.1f} s, {rate:,.0f}/s")
    warn("an archive alone cannot rebuild a store across a bulk load: take a backup now, txlog backup create")


@register(app, "status")
def show_status(*, cluster: ClusterOptions) -> None:
    """List the bulk loads on the target of the first data centre, and what their stores hold of them now."""
    with ExitStack() as closing:
        setting = _open_setting(find_cluster(cluster), closing)
        rows = [_describe_load(folder) for folder in list_loads(setting.places[0].target, setting.cluster)]
        rows.sort(key=lambda row: row["createdAt"])
        workers = [
            {"dataCenter": place.name, **msgspec.to_builtins(worker)}
            for place in setting.places
            for worker in place.masters[0].describe().workers
        ]
    if cluster.json:
        show_json({"loads": rows, "workers": workers})
        return
    show_table(
        ["LOAD", "STATE", "QUADS", "INDEX", "BEGUN", "FILES"],
        [
            (
                row["id"],
                colour_state(row["state"]),
                "" if row["quads"] is None else f"{row['quads']:,}",
                row["index"],
                format_time(row["createdAt"]),
                ", ".join(row["files"]),
            )
            for row in rows
        ],
        "no bulk loads",
    )
    for worker in workers:
        bulk = worker["bulk"]
        if bulk is not None and bulk["phase"]:
            print_line(f"{worker['name']}: {bulk['phase'].lower()} {bulk['load']}, {bulk['quads']:,} quads")


def _describe_load(folder: LoadFolder) -> dict[str, Any]:
    request, decision, outcome = folder.read_request(), folder.read_decision(), folder.read_outcome()
    reference = folder.find_reference()
    state = "Writing" if reference is None else "Staged"
    if decision is not None:
        state = "Aborted" if decision.decision == "abort" else "Committed" if outcome is None else "Loaded"
    return {
        "id": request.id,
        "state": state,
        "quads": None if reference is None else reference.quads,
        "index": None if outcome is None else outcome.index,
        "createdAt": request.created_at,
        "files": [each.name for each in request.sources],
        "graph": request.graph,
    }


@register(app, "abort")
def abort_load(
    load: Annotated[str, typer.Argument(metavar="ID", help="as txlog bulk status shows it")],
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Abort a load that was not decided, and delete its parts everywhere. Refused (TooLate) once it is decided."""
    if not is_bulk_id(load):
        raise BadInput(f"{load[:80]!r} is no load; expected 32 hexadecimal digits, see txlog bulk status")
    with ExitStack() as closing:
        setting = _open_setting(find_cluster(cluster), closing)
        home = setting.places[0].folder(load)
        home.read_request()
        confirm(yes or cluster.json, f"abort the load {load}?")
        decision = home.decide("abort", time.time())
        if decision.decision == "commit":
            raise TooLate(
                f"the load {load} cannot be aborted: it was decided at {format_time(decision.at)} that it is in"
            )
        give_up([BulkSite(place.name, place.masters, place.folder(load)) for place in setting.places], load)
        deleted = sum(place.folder(load).delete_parts() for place in setting.places)
    print_answer(cluster.json, {"id": load, "deleted": deleted}, f"{load} is aborted; {deleted} objects were deleted")
