"""``txlog backup create|list|verify|delete``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from txlog.backup import (
    BackupManifest,
    BackupRequest,
    BackupTarget,
    CatalogueEntry,
    ProgressCallback,
    RestoreTarget,
    SourceWorker,
    adopt,
    catalogue,
    check_backup,
    initial_position,
    make_chain_check,
    open_target,
    read_cluster_id,
    rebuild_from_backup,
    take_backup,
)
from txlog.backup import delete_backup as delete_backup
from txlog.backup import delete_incomplete_backups as delete_leftovers
from txlog.backup import release_backup as release_backup
from txlog.backup.backup_job import READ_TIMEOUT_S, find_worker, list_workers
from txlog.backup.catalogue import COMPLETE, INCOMPLETE_AGE_S
from txlog.backup.progress import BackupProgress as Step
from txlog.cli.output import (
    DEFAULT_STATE,
    CliCluster,
    JsonOption,
    MasterOption,
    StateOption,
    colour_state,
    err,
    find_cluster,
    out,
    show_json,
    show_table,
)
from txlog.client import MasterClient
from txlog.config.process_config import BackupJobConfig, FolderConfig, S3Config, TargetConfig
from txlog.config.units import parse_duration
from txlog.local.state_folder import StateFolder
from txlog.model.errors import BadInput, TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

app = typer.Typer(no_args_is_help=True, help="Backups of workers, each at exactly one position of the log.")

TargetOption = Annotated[
    str | None,
    typer.Option("--target", help="FOLDER or s3://BUCKET/PREFIX. Default: the manifest's", show_default=False),
]
EndpointOption = Annotated[str | None, typer.Option("--endpoint", help="URL of an S3-compatible object store")]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        "--credentials", help="folder with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; default: the environment"
    ),
]
DataCenterOption = Annotated[str | None, typer.Option("--data-center", help="of the worker; default: the first one")]


# -- shared with restoring


def find_target(
    state: Path, target: str | None, endpoint: str | None, credentials: Path | None, data_center: str | None = None
) -> BackupTarget:
    """What the options name; without, what the manifest of the data centre (the first that has one) says."""
    if target is not None:
        return open_target(_target_config(target, endpoint, credentials))
    folder = StateFolder(state)
    names = [data_center] if data_center else folder.topology().data_centers if folder.exists else []
    for name in names:
        path = folder.backup(name)
        if path.is_file():
            return open_target(BackupJobConfig.model_validate_json(path.read_bytes()).target)
    raise BadInput("no target: the manifest has no spec.backup; name one with --target FOLDER or s3://BUCKET/PREFIX")


def _target_config(text: str, endpoint: str | None, credentials: Path | None) -> TargetConfig:
    if text.startswith("s3://"):
        parts = urlsplit(text)
        if not parts.netloc:
            raise BadInput(f"--target {text}: expected s3://BUCKET or s3://BUCKET/PREFIX")
        prefix = parts.path.strip("/")
        return S3Config(bucket=parts.netloc, prefix=prefix, endpoint=endpoint, credentials_folder=credentials)
    if "://" in text:
        raise BadInput(f"--target {text}: expected a folder or s3://BUCKET/PREFIX")
    return FolderConfig(folder=Path(text))


def masters_of_data_center(
    cluster: CliCluster, data_center: str | None, closing: ExitStack
) -> tuple[str, list[MasterClient]]:
    """The data centre's name (the first unless given) and its masters."""
    name = data_center or next(iter(cluster.data_centers))
    if name not in cluster.data_centers:
        raise BadInput(f"--data-center {name}: there are {', '.join(cluster.data_centers)}")
    return name, [closing.enter_context(MasterClient(url)) for url in cluster.data_centers[name]]


@contextmanager
def progress_bars(quiet: bool) -> Iterator[ProgressCallback]:
    """A bar for each phase, on a terminal."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("quads"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=quiet or not err.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def told(step: Step) -> None:
            if step.phase not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[step.phase] = bar.add_task(step.phase, total=step.total)
            said = f"{step.phase}: {step.detail}" if step.detail else step.phase
            bar.update(tasks[step.phase], completed=step.done, total=step.total, description=said)

        yield told


def format_size(size: int) -> str:
    """Bytes for people."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


# -- the commands


@app.command("create")
def create_backup(
    target: TargetOption = None,
    worker: Annotated[str | None, typer.Option(help="default: the most advanced one")] = None,
    data_center: DataCenterOption = None,
    at: Annotated[int | None, typer.Option(min=1, help="at exactly this index of the log")] = None,
    name: Annotated[str | None, typer.Option(help="default: from position and time")] = None,
    held: Annotated[bool, typer.Option("--held", help="keep the backup until it is released")] = False,
    wait: Annotated[float, typer.Option(help="seconds until the worker must be at the index")] = 60.0,
    endpoint: EndpointOption = None,
    credentials: CredentialsOption = None,
    master: MasterOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Back up one worker at one position, while it continues. The backup counts only after it was read back."""
    cluster = find_cluster(state, master)
    began = time.monotonic()
    with ExitStack() as closing:
        where, masters = masters_of_data_center(cluster, data_center, closing)
        place = find_target(state, target, endpoint, credentials, where)
        found = find_worker(masters, worker)
        transport = closing.enter_context(HttpTransport(found.url, READ_TIMEOUT_S))
        source = SourceWorker(found.name, ADAPTERS[found.engine or "oxigraph"], transport, masters)
        order = BackupRequest(
            read_cluster_id(masters), where, "manual", "held" if held else "normal", name=name, at=at, deadline_s=wait
        )
        told = closing.enter_context(progress_bars(json))
        made = take_backup(source, place, order, told)
    seconds = time.monotonic() - began
    if json:
        show_json({**manifest_to_dict(made), "target": place.location, "seconds": round(seconds, 3)})
        return
    out.print(
        f"{made.name}: {made.quads:,} quads of {made.worker} at index {made.place.index}, "
        f"{format_size(made.plain_bytes)} in {format_size(made.stored_bytes)}, {len(made.parts)} parts, "
        f"copied and read back in {seconds:.1f} s",
        highlight=False,
    )


@app.command("adopt")
def adopt_store(
    url: Annotated[str, typer.Argument(metavar="URL", help="an Oxigraph server that TxLog did not write")],
    restoring: Annotated[
        bool, typer.Option("--restore", help="then restore every worker of every data centre")
    ] = False,
    name: Annotated[str | None, typer.Option(help="default: from position and time")] = None,
    target: TargetOption = None,
    data_center: DataCenterOption = None,
    endpoint: EndpointOption = None,
    credentials: CredentialsOption = None,
    master: MasterOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Start the log with a store's data: a backup at position 0. Only before the first write; stop writing there."""
    cluster = find_cluster(state, master)
    done: list[str] = []
    with ExitStack() as closing:
        where, masters = masters_of_data_center(cluster, data_center, closing)
        place = find_target(state, target, endpoint, credentials, where)
        transport = closing.enter_context(HttpTransport(url, READ_TIMEOUT_S))
        source = SourceWorker(urlsplit(url).netloc, ADAPTERS["oxigraph"], transport)
        own = read_cluster_id(masters)
        told = closing.enter_context(progress_bars(json))
        made = adopt(source, place, BackupRequest(own, where, name=name), initial_position(masters), told)
        for other in cluster.data_centers if restoring else ():
            _, theirs = masters_of_data_center(cluster, other, closing)
            for worker in list_workers(theirs):
                there = closing.enter_context(HttpTransport(worker.url, READ_TIMEOUT_S))
                into = RestoreTarget(worker.name, ADAPTERS[worker.engine or "oxigraph"], there)
                rebuild_from_backup(
                    place, into, theirs, own, make_chain_check(theirs), name=made.name, on_progress=told
                )
                done.append(worker.name)
    if json:
        show_json({**manifest_to_dict(made), "target": place.location, "restored": done})
        return
    out.print(f"{made.name}: {made.quads:,} quads of {url} are position 0", highlight=False)
    if done:
        out.print(f"restored into {', '.join(done)}", highlight=False)
    else:
        out.print(f"now, for every worker: txlog worker rebuild NAME --from {made.name}", style="dim", highlight=False)


@app.command("list")
def list_backups(
    target: TargetOption = None,
    data_center: DataCenterOption = None,
    endpoint: EndpointOption = None,
    credentials: CredentialsOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """List the backups of a target by position, with incomplete ones and those of other clusters."""
    found = catalogue(find_target(state, target, endpoint, credentials, data_center))
    if json:
        show_json([_entry_to_dict(each) for each in found])
        return
    show_table(
        ["BACKUP", "STATE", "DATA CENTRE", "INDEX", "HASH", "QUADS", "BYTES", "WHY", "TAKEN", ""],
        [_backup_row(each) for each in found],
        "no backups",
    )


def _backup_row(each: CatalogueEntry) -> Sequence[object]:
    made = each.manifest
    state = colour_state("Running" if each.state == COMPLETE else each.state)
    state.plain = each.state
    if made is None:
        return each.name, state, "", "", "", "", format_size(each.bytes), "", _format_time(each.touched), each.error
    return (
        each.name,
        state,
        made.data_center,
        made.place.index,
        made.place.hash[:8],
        f"{made.quads:,}",
        format_size(each.bytes),
        f"{made.why}, held" if each.held else made.why,
        _format_time(made.finished),
        each.error,
    )


def _format_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))


@app.command("verify")
def verify_backup(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="of backups", show_default="all complete ones")
    ] = None,
    target: TargetOption = None,
    data_center: DataCenterOption = None,
    endpoint: EndpointOption = None,
    credentials: CredentialsOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Read backups and compare every byte with what was written. Exit code 1 if one differs."""
    place = find_target(state, target, endpoint, credentials, data_center)
    wanted = names or [each.name for each in catalogue(place) if each.manifest is not None]
    results: list[dict[str, Any]] = []
    with progress_bars(json) as told:
        for name in wanted:
            began = time.monotonic()
            try:
                made = check_backup(place, name, told)
            except TxLogError as fault:
                results.append({"name": name, "sound": False, "error": fault.name, "message": str(fault)})
            else:
                seconds = round(time.monotonic() - began, 3)
                results.append({"name": name, "sound": True, "quads": made.quads, "seconds": seconds})
    if json:
        show_json(results)
    else:
        show_table(
            ["BACKUP", "", "QUADS", "SECONDS", ""],
            [
                (
                    each["name"],
                    colour_state("equal") if each["sound"] else colour_state(each["error"]),
                    f"{each['quads']:,}" if each["sound"] else "",
                    each.get("seconds", ""),
                    each.get("message", ""),
                )
                for each in results
            ],
            "no backups",
        )
    if not all(each["sound"] for each in results):
        raise typer.Exit(1)


@app.command("delete")
def delete_backups(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="of backups", show_default=False)] = None,
    incomplete: Annotated[bool, typer.Option("--incomplete", help="delete unfinished backups")] = False,
    older: Annotated[str, typer.Option(help="with --incomplete: unchanged for this long")] = "24h",
    release: Annotated[bool, typer.Option("--release", help="also backups that are held")] = False,
    target: TargetOption = None,
    data_center: DataCenterOption = None,
    endpoint: EndpointOption = None,
    credentials: CredentialsOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Delete backups by name, or unfinished ones."""
    if bool(names) == incomplete:
        raise BadInput("txlog backup delete: expected names, or --incomplete")
    place = find_target(state, target, endpoint, credentials, data_center)
    gone = []
    if incomplete:
        try:
            seconds = parse_duration(older) / 1000
        except ValueError as wrong:
            raise BadInput(f"--older {older}: expected {wrong}") from None
        gone = delete_leftovers(place, min(seconds, INCOMPLETE_AGE_S * 3650))
    for name in names or ():
        if release:
            release_backup(place, name)
        delete_backup(place, name)
        gone.append(name)
    if json:
        show_json({"deleted": gone})
    else:
        out.print(f"deleted: {', '.join(gone) or 'nothing'}", highlight=False)


def manifest_to_dict(made: BackupManifest) -> dict[str, Any]:
    """For machines."""
    told: dict[str, Any] = msgspec.to_builtins(made)
    return {**told, "bytes": made.stored_bytes, "plainBytes": made.plain_bytes}


def _entry_to_dict(each: CatalogueEntry) -> dict[str, Any]:
    return {
        "name": each.name,
        "state": each.state,
        "held": each.held,
        "bytes": each.bytes,
        "touched": each.touched,
        "error": each.error,
        "manifest": manifest_to_dict(each.manifest) if each.manifest else None,
    }
