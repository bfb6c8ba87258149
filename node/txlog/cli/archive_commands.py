"""``txlog archive list|check|compact|retire|rescue``: what a target holds of the log. Only ``rescue`` asks masters."""

from __future__ import annotations

import time
from typing import Any

import typer

from txlog.archive.stream import find_streams
from txlog.archive.stream_check import StreamCheck, StreamSummary, check_stream, summarise_stream
from txlog.backup.progress import BackupProgress
from txlog.cli.archive_upkeep import ClusterIdOption, compact_archives, find_wanted, id_to_dict, retire_archives
from txlog.cli.options import DataCenterOption, LocalOptions, TargetOptions, register
from txlog.cli.rescue_command import rescue_survivor
from txlog.cli.tables import (
    colour_state,
    describe_undecided,
    err,
    format_size,
    format_time,
    print_line,
    print_rows,
    show_json,
    show_table,
)
from txlog.cli.worker_access import progress_bars
from txlog.model.errors import TxLogError

app = typer.Typer(no_args_is_help=True, help="Archives of the log: every stable entry, in files on a target.")


@register(app, "list")
def list_archives(
    data_center: DataCenterOption = None,
    cluster_id: ClusterIdOption = None,
    *,
    target: TargetOptions,
    local: LocalOptions,
) -> None:
    """List the streams of a target: what is archived up to where, and what is missing. It reads no file."""
    place = target.open(local.state, data_center)
    rows: list[dict[str, Any]] = []
    for stream in find_streams(place, data_center, cluster_id):
        try:
            rows.append(_summary_to_dict(summarise_stream(stream)))
        except TxLogError as error:
            rows.append({**id_to_dict(stream.id), "state": error.name, "message": str(error)})
    print_rows(
        local.json,
        rows,
        ["DATA CENTRE", "CLUSTER", "STATE", "FROM", "TO", "FILES", "BYTES", "NEWEST", ""],
        [
            (
                row["dataCenter"],
                row["cluster"][:8],
                colour_state(row["state"], "Running" if row["state"] == "Continuous" else None),
                row.get("start") or "",
                ", ".join(str(head) for head in row.get("heads", [])),
                f"{row['files']:,}" if "files" in row else "",
                format_size(row["bytes"]) if "bytes" in row else "",
                format_time(row["newest"] or None) if "newest" in row else "",
                row.get("message", ""),
            )
            for row in rows
        ],
        "no archive",
    )


@register(app, "check")
def check_archives(
    data_center: DataCenterOption = None,
    cluster_id: ClusterIdOption = None,
    *,
    target: TargetOptions,
    local: LocalOptions,
) -> None:
    """Read every file of the archive and prove it by the chain of the log. Exit code 1 unless the sound files lead from
    the start of each stream to everything that was archived."""
    found = find_wanted(target, local, data_center, cluster_id)
    results: list[dict[str, Any]] = []
    with progress_bars(local.json) as progress:
        for stream in found:
            began = time.monotonic()

            def report(done: int, of: int, name: str = stream.id.data_center) -> None:
                progress(BackupProgress(f"archive of {name}", done, of))

            try:
                result = _check_to_dict(check_stream(stream, report))
            except TxLogError as error:
                result = {**id_to_dict(stream.id), "sound": False, "state": error.name, "message": str(error)}
            results.append({**result, "seconds": round(time.monotonic() - began, 3)})
    if local.json:
        show_json(results)
    else:
        _show_results(results)
    if not all(each["sound"] for each in results):
        raise typer.Exit(1)


register(app, "compact")(compact_archives)
register(app, "retire")(retire_archives)
register(app, "rescue")(rescue_survivor)


def _show_results(results: list[dict[str, Any]]) -> None:
    show_table(
        ["DATA CENTRE", "CLUSTER", "STATE", "TO", "ENTRIES", "FILES", "SECONDS", ""],
        [
            (
                each["dataCenter"],
                each["cluster"][:8],
                colour_state(each["state"], "Running" if each["sound"] else None),
                ", ".join(str(head) for head in each.get("heads", [])),
                f"{each['entries']:,}" if "entries" in each else "",
                f"{each['files']:,}" if "files" in each else "",
                each["seconds"],
                each.get("message", ""),
            )
            for each in results
        ],
    )
    for each in results:
        if each.get("undecided"):
            print_line(f"{each['dataCenter']}: {describe_undecided(each['undecided'])}")
        for fault in each.get("faults", []):
            covered = " (another file holds the same entries)" if fault["covered"] else ""
            err.print(f"{fault['error']}: {fault['message']}{covered}", markup=False, highlight=False, soft_wrap=True)


def _summary_to_dict(found: StreamSummary) -> dict[str, Any]:
    if found.start is None:
        state, message = "NoStart", "stream.json is missing"
    elif found.missing:
        state, message = "FileMissing", f"files before {found.missing[0]} are missing"
    elif found.gaps:
        state, message = "Gap", f"what is before {found.gaps[-1]} was trimmed before it was archived"
    elif found.losses:
        state, message = "ArchiveAhead", "the masters lost entries that are archived"
    else:
        state, message = "Continuous", ""
    return {
        **id_to_dict(found.stream.id),
        "state": state,
        "start": found.start.index if found.start is not None else None,
        "heads": [str(head) for head in found.heads],
        "gaps": [str(node) for node in found.gaps],
        "missing": [str(node) for node in found.missing],
        "losses": len(found.losses),
        "files": found.files,
        "bytes": found.bytes,
        "newest": found.newest,
        "message": message,
    }


def _check_to_dict(found: StreamCheck) -> dict[str, Any]:
    faults = [
        {"file": str(each.name), "error": each.error, "message": each.message, "covered": each.is_covered}
        for each in found.faults
    ]
    result = {
        **_summary_to_dict(found.summary),
        "entries": found.entries,
        "faults": faults,
        "sound": found.is_sound,
        "undecided": [str(txid) for txid in found.undecided],
    }
    if any(not each.is_covered for each in found.faults):
        result["state"] = "FileDamaged"
    return result
