"""``txlog restore-point create|list``: names of places of the log, for ``txlog restore --to point:NAME``."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from txlog.archive.moment import format_milliseconds
from txlog.archive.restore_plan import find_points
from txlog.archive.stream_reader import StreamReader
from txlog.archive.timeline import Timeline
from txlog.cli.archive_upkeep import ClusterIdOption
from txlog.cli.cli_cluster import CliCluster, find_cluster, request_once
from txlog.cli.moment_commands import find_stream
from txlog.cli.options import ClusterOptions, DataCenterOption, TargetOptions, register
from txlog.cli.tables import format_time, print_answer, print_rows
from txlog.model.errors import Unavailable
from txlog.model.restore_points import check_point_name
from txlog.model.stamp import stamp_ms

app = typer.Typer(no_args_is_help=True, help="Restore points: named places of the log.")
ANSWER_S: Final = 60.0
_PATH: Final = "/txlog/restore-points"


@register(app, "create")
def create_point(
    name: Annotated[str, typer.Argument(help="such as before-the-import; may be given again")],
    *,
    cluster: ClusterOptions,
) -> None:
    """Name this place of the log. Everything that was acknowledged as synced before is before it. It costs every master
    some 200 bytes, for as long as the cluster exists."""
    check_point_name(name)
    found = _ask(find_cluster(cluster), "POST", {"name": name})
    if found["index"] is None:
        text = f"{name} is not stable yet, and may become so; see txlog restore-point list"
        print_answer(cluster.json, found, text, "yellow")
        raise typer.Exit(1)
    text = f"{name} is at index {found['index']}: position:{found['index']}:{found['hash']}"
    print_answer(cluster.json, found, text)


@register(app, "list")
def list_points(
    data_center: DataCenterOption = None,
    cluster_id: ClusterIdOption = None,
    *,
    target: TargetOptions,
    cluster: ClusterOptions,
) -> None:
    """List the restore points of the log, or with --target those that an archive holds; that asks no master."""
    if target.target is not None:
        stream = find_stream(target.open(cluster.state, data_center), data_center, cluster_id)
        rows = read_archived_points(StreamReader(stream))
    else:
        rows = _ask(find_cluster(cluster), "GET", None)["points"]
    print_rows(
        cluster.json,
        rows,
        ["NAME", "TIME", "POSITION"],
        [
            (
                row["name"],
                format_time(row["at"]) if row["at"] else "before the log of this master",
                f"position:{row['index']}:{row['hash']}" if row["hash"] else f"index {row['index']}",
            )
            for row in rows
        ],
        "no restore points",
    )


def read_archived_points(reader: StreamReader) -> list[dict[str, Any]]:
    """Those of every timeline that is current, the oldest first."""

    def read() -> list[dict[str, Any]]:
        found: dict[tuple[int, str], dict[str, Any]] = {}
        for timeline in reader.find_timelines().current:
            for index, name in find_points(timeline):
                row = _describe(reader, timeline, index, name)
                found[index, row["hash"]] = row
        return [found[place] for place in sorted(found)]

    return reader.with_sound_files(read)


def _describe(reader: StreamReader, timeline: Timeline, index: int, name: str) -> dict[str, Any]:
    among = timeline.find_range(index)
    entry = among.find_entry(index, reader.read) if among is not None else None
    assert entry is not None, "its file names it"
    milliseconds = stamp_ms(entry.stamp)
    return {
        "name": name,
        "index": index,
        "hash": entry.hash.hex(),
        "at": milliseconds / 1000,
        "transaction": str(entry.txid),
        "time": format_milliseconds(milliseconds),
    }


def _ask(found: CliCluster, method: str, body: object) -> Any:
    """As of :func:`request_once`. Creating is not repeated at another one: it would be a second point."""
    try:
        return request_once(found, method, _PATH, body, ANSWER_S)
    except Unavailable as error:
        if method == "GET":
            raise
        raise Unavailable(error.reason, f"{error}; it may exist all the same: txlog restore-point list") from error
