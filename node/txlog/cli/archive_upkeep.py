"""``txlog archive compact|retire``: fewer files, and only those that the recovery window needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from txlog.archive.archive_errors import NoArchive
from txlog.archive.compactor import Compactor
from txlog.archive.stream import Stream, StreamId, find_streams
from txlog.archive.window_plan import WindowPlan
from txlog.archive.window_retention import find_window, retire_files
from txlog.cli.options import DataCenterOption, LocalOptions, TargetOptions, option_ms
from txlog.cli.tables import print_rows
from txlog.model.errors import BadInput
from txlog.telemetry.event_log import EventLog

ClusterIdOption = Annotated[
    str | None, typer.Option("--cluster", help="only this cluster: its id in hexadecimal digits")
]
KEEP_MIN_S: Final = 24 * 3600.0
"""As long as idempotency keys count by default: they are archived in the files, too."""


def compact_archives(
    data_center: DataCenterOption = None,
    cluster_id: ClusterIdOption = None,
    *,
    target: TargetOptions,
    local: LocalOptions,
) -> None:
    """Make one file of the small files of five minutes, and delete those whose compacted file is an hour old. Archivers
    do the same. This command is for a target where an archiver may not delete."""
    rows: list[dict[str, Any]] = []
    for stream in find_wanted(target, local, data_center, cluster_id):
        began = time.monotonic()
        done = Compactor(stream, EventLog("archive-compact")).run()
        counts = {name: len(files) for name, files in done._asdict().items()}
        rows.append({**id_to_dict(stream.id), **counts, "seconds": round(time.monotonic() - began, 3)})
    print_rows(
        local.json,
        rows,
        ["DATA CENTRE", "CLUSTER", "MERGED", "WRITTEN", "DELETED", "SECONDS"],
        [(r["dataCenter"], r["cluster"][:8], r["merged"], r["written"], r["deleted"], r["seconds"]) for r in rows],
    )


def retire_archives(
    keep: Annotated[str, typer.Option(help="the recovery window, such as 14d or 36h")],
    data_center: DataCenterOption = None,
    cluster_id: ClusterIdOption = None,
    backups: Annotated[str | None, typer.Option(help="target of the backups, by default that of the archive")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="delete nothing, say what would be deleted")] = False,
    *,
    target: TargetOptions,
    local: LocalOptions,
) -> None:
    """Delete the files that no moment of the recovery window needs. Every moment of the window stays restorable: the
    newest backup from before the window stays needed, and so does every file after it."""
    keep_s = option_ms("--keep", keep) / 1000
    if keep_s < KEEP_MIN_S:
        raise BadInput(f"--keep {keep[:20]}: expected 24h at least")
    place = replace(target, target=backups).open(local.state, data_center) if backups else None
    rows = []
    for stream in find_wanted(target, local, data_center, cluster_id):
        others = place or target.open(local.state, data_center)
        if dry_run:
            plan = find_window(stream, others, keep_s, time.time())
        else:
            plan = retire_files(stream, others, keep_s)
        rows.append(_plan_to_dict(stream, plan))
    print_rows(
        local.json,
        rows,
        ["DATA CENTRE", "CLUSTER", "FROM", "BACKUPS", "TO DELETE" if dry_run else "DELETED", ""],
        [
            (r["dataCenter"], r["cluster"][:8], r["floor"] or "", ", ".join(r["backups"]), r["files"], r["reason"])
            for r in rows
        ],
    )


def find_wanted(
    target: TargetOptions, local: LocalOptions, data_center: str | None, cluster_id: str | None
) -> Sequence[Stream]:
    """The streams that the options name. :class:`NoArchive` when there is none."""
    place = target.open(local.state, data_center)
    found = find_streams(place, data_center, cluster_id)
    if not found:
        raise NoArchive(f"{place.location} holds no such archive; see txlog archive list")
    return found


def id_to_dict(found: StreamId) -> dict[str, Any]:
    """As JSON."""
    return {"dataCenter": found.data_center, "cluster": found.cluster.hex()}


def _plan_to_dict(stream: Stream, plan: WindowPlan) -> dict[str, Any]:
    return {
        **id_to_dict(stream.id),
        "floor": plan.floor,
        "backups": list(plan.bases),
        "files": len(plan.files) + len(plan.branches),
        "reason": plan.reason,
    }
