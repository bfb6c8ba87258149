"""``txlog backup create|list|verify|merge|delete``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from txlog.backup import (
    BackupManifest,
    BackupRequest,
    BackupTarget,
    CatalogueEntry,
    ChainBounds,
    SourceWorker,
    adopt,
    catalogue,
    check_backup,
    delete_backup,
    delete_incomplete_backups,
    initial_position,
    make_chain_check,
    merge_chain,
    read_cluster_id,
    rebuild_from_backup,
    release_backup,
    take_backup,
    take_incremental_or_full,
)
from txlog.backup.backup_chain import order_deletions
from txlog.backup.backup_registration import register_backups
from txlog.backup.bounded_chain import BackupTaken
from txlog.backup.catalogue import COMPLETE, INCOMPLETE_AGE_S
from txlog.backup.worker_lookup import (
    READ_TIMEOUT_S,
    find_worker,
    list_workers,
    open_restore_target,
    open_source_worker,
)
from txlog.cli.cli_cluster import find_cluster
from txlog.cli.options import ClusterOptions, DataCenterOption, LocalOptions, TargetOptions, option_ms, register
from txlog.cli.repository_scope import RepositoryOption, find_repository, nested_name
from txlog.cli.tables import (
    Row,
    colour_state,
    describe_undecided,
    format_size,
    format_time,
    print_answer,
    print_line,
    print_rows,
    show_json,
    warn,
)
from txlog.cli.worker_access import find_worker_by_name, progress_bars
from txlog.model.errors import BadInput, TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

app = typer.Typer(no_args_is_help=True, help="Backups of workers, each at exactly one position of the log.")


@register(app, "create")
def create_backup(
    worker: Annotated[str | None, typer.Option(help="default: the most advanced one")] = None,
    data_center: Annotated[str | None, typer.Option(help="default: that of --worker, else the first one")] = None,
    at: Annotated[int | None, typer.Option(min=1, help="at exactly this index of the log")] = None,
    name: Annotated[str | None, typer.Option(help="default: from position and time")] = None,
    held: Annotated[bool, typer.Option("--held", help="keep the backup until it is released")] = False,
    incremental: Annotated[
        bool, typer.Option("--incremental", help="what the log has changed since the backup before, where possible")
    ] = False,
    wait: Annotated[float, typer.Option(help="seconds until the worker must be at the index")] = 60.0,
    repository: RepositoryOption = None,
    *,
    target: TargetOptions,
    cluster: ClusterOptions,
) -> None:
    """Back up one worker at one position, while it continues. The backup counts only after it was read back."""
    if incremental and at is not None:
        raise BadInput("--incremental: expected no --at; such a backup is at the position of a worker")
    began = time.monotonic()
    with ExitStack() as closing:
        found, nested = find_repository(cluster, repository)
        if worker is None or data_center is not None:
            where, masters = found.open_masters(data_center, closing)
            chosen = find_worker(masters, worker)
        else:
            where, masters, chosen = find_worker_by_name(found, worker, closing)
        place = target.open(cluster.state, where, nested)
        source = open_source_worker(chosen, masters, closing)
        request = BackupRequest(
            read_cluster_id(masters), where, "manual", "held" if held else "normal", name=name, at=at, deadline_s=wait
        )
        progress = closing.enter_context(progress_bars(cluster.json))
        if incremental:
            bounds = ChainBounds(*target.chain_bounds(cluster.state, where))
            taken = take_incremental_or_full(source, place, request, bounds, progress)
        else:
            taken = BackupTaken(take_backup(source, place, request, progress))
        made = taken.manifest
        is_registered = target.is_of_manifest(cluster.state, where)
        if is_registered:
            register_backups(place, masters, made.cluster, where)
    seconds = time.monotonic() - began
    if cluster.json:
        facts = {"target": place.location, "registered": is_registered, "seconds": round(seconds, 3)}
        show_json({**manifest_to_dict(made), **facts, **_taken_to_dict(taken)})
        return
    print_line(_describe_made(made, seconds))
    if taken.merged:
        print_line(f"its chain was merged into the full backup {taken.merged}, without a worker")
    if taken.why_full:
        warn(f"a full backup, since an incremental one is not possible: {taken.why_full}")
    if made.undecided_transactions:
        print_line(describe_undecided(made.undecided_transactions))
    if not is_registered:
        warn("the masters do not know it: they keep the log for the backups on the target of the manifest alone")


def _describe_made(made: BackupManifest, seconds: float) -> str:
    where = f"{made.name}: {made.quads:,} quads of {made.worker} at index {made.place.index}, "
    read_back = f"{len(made.all_parts)} parts, copied and read back in {seconds:.1f} s"
    if made.continues is None:
        return f"{where}{format_size(made.plain_bytes)} in {format_size(made.stored_bytes)}, {read_back}"
    changed = f"{made.continues.added:,} added and {made.continues.deleted:,} deleted"
    return f"{where}{changed} since {made.continues.of}, {format_size(made.stored_bytes)}, {read_back}"


@register(app, "merge")
def merge_backups(
    name: Annotated[str, typer.Argument(metavar="NAME", help="of an incremental backup")],
    as_: Annotated[str | None, typer.Option("--as", help="default: from position and time")] = None,
    data_center: DataCenterOption = None,
    repository: RepositoryOption = None,
    *,
    target: TargetOptions,
    local: LocalOptions,
) -> None:
    """Make a full backup of an incremental one and those that it needs. No worker is read. The old ones stay."""
    began = time.monotonic()
    place = target.open(local.state, data_center, nested_name(local.state, repository))
    with progress_bars(local.json) as progress:
        made = merge_chain(place, name, BackupRequest("", "", "manual", name=as_), progress)
    seconds = time.monotonic() - began
    result = {**manifest_to_dict(made), "merged": name, "seconds": round(seconds, 3)}
    print_answer(local.json, result, _describe_made(made, seconds))


@register(app, "adopt")
def adopt_store(
    url: Annotated[str, typer.Argument(metavar="URL", help="an Oxigraph server that TxLog did not write")],
    restoring: Annotated[
        bool, typer.Option("--restore", help="then restore every worker of every data centre")
    ] = False,
    name: Annotated[str | None, typer.Option(help="default: from position and time")] = None,
    data_center: DataCenterOption = None,
    *,
    target: TargetOptions,
    cluster: ClusterOptions,
) -> None:
    """Start the log with a store's data: a backup at position 0. Only before the first write; stop writing there."""
    found = find_cluster(cluster)
    done: list[str] = []
    with ExitStack() as closing:
        where, masters = found.open_masters(data_center, closing)
        place = target.open(cluster.state, where)
        transport = closing.enter_context(HttpTransport(url, READ_TIMEOUT_S))
        source = SourceWorker(urlsplit(url).netloc, ADAPTERS["oxigraph"], transport)
        own = read_cluster_id(masters)
        progress = closing.enter_context(progress_bars(cluster.json))
        made = adopt(source, place, BackupRequest(own, where, name=name), initial_position(masters), progress)
        for other in found.data_centers if restoring else ():
            _, theirs = found.open_masters(other, closing)
            for worker in list_workers(theirs):
                into = open_restore_target(worker, closing)
                rebuild_from_backup(
                    place, into, theirs, own, make_chain_check(theirs), name=made.name, on_progress=progress
                )
                done.append(worker.name)
    if cluster.json:
        show_json({**manifest_to_dict(made), "target": place.location, "restored": done})
        return
    print_line(f"{made.name}: {made.quads:,} quads of {url} are position 0")
    if done:
        print_line(f"restored into {', '.join(done)}")
    else:
        print_line(f"now, for every worker: txlog worker rebuild NAME --from {made.name}", "dim")


@register(app, "list")
def list_backups(
    data_center: DataCenterOption = None,
    repository: RepositoryOption = None,
    *,
    target: TargetOptions,
    local: LocalOptions,
) -> None:
    """List the backups of a target by position, with incomplete ones and those of other clusters."""
    found = catalogue(target.open(local.state, data_center, nested_name(local.state, repository)))
    print_rows(
        local.json,
        [_entry_to_dict(each) for each in found],
        ["BACKUP", "STATE", "DATA CENTRE", "INDEX", "HASH", "QUADS", "BYTES", "WHY", "TAKEN", ""],
        [_backup_row(each) for each in found],
        "no backups",
    )


def _backup_row(each: CatalogueEntry) -> Row:
    made = each.manifest
    state = colour_state(each.state, "Running" if each.state == COMPLETE else each.state)
    if made is None:
        return each.name, state, "", "", "", "", format_size(each.bytes), "", format_time(each.touched), each.error
    undecided = made.undecided_transactions
    notes = [f"number {made.chain_number} after a full one"] if made.chain_number else []
    notes += ["merged from a chain"] if each.is_merged else []
    notes += [describe_undecided(undecided)] if undecided else []
    return (
        each.name,
        state,
        made.data_center,
        made.place.index,
        made.place.hash[:8],
        f"{made.quads:,}",
        format_size(each.bytes),
        f"{made.why}, held" if each.held else made.why,
        format_time(made.finished),
        each.error or ", ".join(notes),
    )


@register(app, "verify")
def verify_backup(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="of backups", show_default="all complete ones")
    ] = None,
    data_center: DataCenterOption = None,
    repository: RepositoryOption = None,
    *,
    target: TargetOptions,
    local: LocalOptions,
) -> None:
    """Read backups and compare every byte with what was written. Exit code 1 if one differs."""
    place = target.open(local.state, data_center, nested_name(local.state, repository))
    wanted = names or [each.name for each in catalogue(place) if each.manifest is not None]
    results: list[dict[str, Any]] = []
    with progress_bars(local.json) as progress:
        for name in wanted:
            began = time.monotonic()
            try:
                made = check_backup(place, name, progress)
            except TxLogError as fault:
                results.append({"name": name, "sound": False, "error": fault.name, "message": str(fault)})
            else:
                seconds = round(time.monotonic() - began, 3)
                results.append({"name": name, "sound": True, "quads": made.quads, "seconds": seconds})
    print_rows(
        local.json,
        results,
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


@register(app, "delete")
def delete_backups(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="of backups")] = None,
    incomplete: Annotated[bool, typer.Option("--incomplete", help="delete unfinished backups")] = False,
    older: Annotated[str, typer.Option(help="with --incomplete: unchanged for this long")] = "24h",
    release: Annotated[bool, typer.Option("--release", help="also backups that are held")] = False,
    data_center: DataCenterOption = None,
    repository: RepositoryOption = None,
    *,
    target: TargetOptions,
    local: LocalOptions,
) -> None:
    """Delete backups by name, or unfinished ones."""
    if bool(names) == incomplete:
        raise BadInput("txlog backup delete: expected names, or --incomplete")
    place = target.open(local.state, data_center, nested_name(local.state, repository))
    gone = []
    if incomplete:
        gone = delete_incomplete_backups(place, min(option_ms("--older", older) / 1000, INCOMPLETE_AGE_S * 3650))
    for name in _in_order(place, names or ()):
        if release:
            release_backup(place, name)
        delete_backup(place, name)
        gone.append(name)
    print_answer(local.json, {"deleted": gone}, f"deleted: {', '.join(gone) or 'nothing'}")


def _in_order(place: BackupTarget, names: Sequence[str]) -> Sequence[str]:
    """An incremental backup before the one that it continues."""
    if len(names) < 2:
        return names
    return order_deletions({each.name: each.manifest for each in catalogue(place) if each.manifest is not None}, names)


def manifest_to_dict(made: BackupManifest) -> dict[str, Any]:
    """A manifest as JSON, with its size in the target and in plain text."""
    fields: dict[str, Any] = msgspec.to_builtins(made)
    return {**fields, "bytes": made.stored_bytes, "plainBytes": made.plain_bytes}


def _taken_to_dict(taken: BackupTaken) -> dict[str, Any]:
    facts = {"whyFull": taken.why_full, "merged": taken.merged}
    return {name: value for name, value in facts.items() if value}


def _entry_to_dict(each: CatalogueEntry) -> dict[str, Any]:
    return {
        "name": each.name,
        "state": each.state,
        "held": each.held,
        "merged": each.is_merged,
        "bytes": each.bytes,
        "touched": each.touched,
        "error": each.error,
        "manifest": manifest_to_dict(each.manifest) if each.manifest else None,
    }
