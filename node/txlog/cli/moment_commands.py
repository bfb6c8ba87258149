"""``txlog restore --to``: an empty store is brought to a moment of the log, from a backup and the archive."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final

from txlog.archive.archive_errors import NoArchive
from txlog.archive.executed_entries import find_undecided
from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import (
    MomentRequest,
    MomentRestored,
    engine_with_form,
    plan_restore,
    restore_to_moment,
)
from txlog.archive.restore_plan import EntryFacts, RestorePlan
from txlog.archive.stream import Stream, find_streams
from txlog.archive.stream_reader import StreamReader
from txlog.archive.window_retention import hold_stream
from txlog.backup import BackupTarget, RestoreTarget
from txlog.backup.worker_lookup import READ_TIMEOUT_S, list_workers
from txlog.cli.cli_cluster import CliCluster, find_cluster
from txlog.cli.options import ClusterOptions, MomentOptions, TargetOptions
from txlog.cli.tables import (
    describe_undecided,
    format_size,
    format_time,
    print_line,
    show_json,
    show_table,
    warn,
)
from txlog.cli.worker_access import detect_engine, progress_bars
from txlog.client import WorkerStatus
from txlog.model.errors import BadInput, Refused, TxLogError
from txlog.model.ids import Txid
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

_CLOCKS_APART_S: Final = 60.0
"""Stamp and time of writing that are further apart are pointed out: a clock was wrong, or the archiver was away."""


def run_moment_restore(
    moment: MomentOptions,
    into: str | None,
    target: TargetOptions,
    cluster: ClusterOptions,
    *,
    again: bool,
    engine: str | None,
) -> None:
    """``into``: the URL of an empty store; may be None for a dry run."""
    assert moment.to is not None
    wanted = parse_moment(moment.to)
    if into is None and not moment.dry_run:
        raise BadInput("txlog restore --to: expected --into URL of an empty store, or --dry-run")
    if into is not None and not into.startswith(("http://", "https://")):
        raise BadInput(
            f"--into {into}: expected the URL of an empty store; a worker would go on to the end of the log at once"
        )
    began = time.monotonic()
    with ExitStack() as closing:
        place = target.open(cluster.state, moment.data_center)
        backups = replace(target, target=moment.backups).open(cluster.state) if moment.backups else place
        stream = find_stream(place, moment.data_center, moment.cluster_id)
        if not moment.dry_run:
            closing.enter_context(hold_stream(stream))
        reader = StreamReader(stream)
        request = MomentRequest(wanted, backups, moment.base, moment.timeline)
        with_form = partial(engine_with_form, reader, backups)
        store = _open_store(into.rstrip("/"), engine, with_form, cluster, closing) if into is not None else None
        if moment.dry_run or store is None:
            plan = plan_restore(reader, request, store.adapter.engine if store is not None else None)
            undecided = reader.with_sound_files(lambda: find_undecided(plan, reader.read))
            _show_plan(reader, plan, undecided, cluster.json)
            return
        progress = closing.enter_context(progress_bars(cluster.json))
        done = restore_to_moment(reader, request, store, again=again, on_progress=progress)
    _show_restored(reader, done, store.name, time.monotonic() - began, cluster.json)


def find_stream(place: BackupTarget, data_center: str | None, cluster: str | None) -> Stream:
    """The one archive on a target that fits: of a data centre, and of a cluster by its id in hexadecimal digits.
    :class:`NoArchive` for none, :class:`BadInput` for several."""
    streams = find_streams(place, data_center, cluster)
    if not streams:
        raise NoArchive(f"{place.location} holds no such archive; see txlog archive list")
    if len(streams) > 1:
        names = ", ".join(f"{each.id.data_center} of {each.id.cluster.hex()}" for each in streams)
        raise BadInput(f"{place.location} holds the archives {names}: choose one with --data-center and --cluster")
    return streams[0]


def _open_store(
    url: str, engine: str | None, with_form: Callable[[str], str], cluster: ClusterOptions, closing: ExitStack
) -> RestoreTarget:
    """:class:`Refused` for a worker of a cluster that answers: its pipeline would take it past the moment."""
    try:
        found = find_cluster(cluster)
        known = {worker.url.rstrip("/"): worker.name for dc in found.data_centers for worker in _workers_of(found, dc)}
    except TxLogError:
        known = {}  # a restore needs no master
    if url in known:
        raise Refused(
            f"{url} is the worker {known[url]}, which would go on to the end of the log at once; start an empty store "
            "that belongs to no cluster, and name its URL"
        )
    transport = closing.enter_context(HttpTransport(url, READ_TIMEOUT_S))
    return RestoreTarget(url, ADAPTERS[detect_engine(transport, engine, with_form)], transport)


def _workers_of(found: CliCluster, data_center: str) -> list[WorkerStatus]:
    with ExitStack() as closing:
        return list_workers(found.open_masters(data_center, closing)[1])


def plan_to_dict(reader: StreamReader, plan: RestorePlan, undecided: Sequence[Txid]) -> dict[str, Any]:
    """A plan as JSON. ``undecided``: synchronous transactions that a store at its place does not have."""
    return {
        "cluster": reader.stream.id.cluster.hex(),
        "dataCenter": reader.stream.id.data_center,
        "timeline": {"view": plan.timeline.view_text, "head": str(plan.timeline.head)},
        "position": {"index": plan.place.index, "hash": plan.place.hash.hex(), "epoch": plan.epoch},
        "base": plan.base.name if plan.base is not None else None,
        "after": str(plan.after),
        "entries": plan.entries,
        "files": len(plan.files),
        "bytes": sum(reader.sizes[file.name] for file in plan.files),
        "lastIn": _entry_to_dict(plan.last_in),
        "firstOut": _entry_to_dict(plan.first_out),
        "undecided": [str(txid) for txid in undecided],
    }


def _entry_to_dict(entry: EntryFacts | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    return {
        "index": entry.index,
        "transaction": entry.txid,
        "stamp": entry.milliseconds / 1000,
        "written": entry.written,
    }


def _show_plan(reader: StreamReader, plan: RestorePlan, undecided: Sequence[Txid], as_json: bool) -> None:
    found = plan_to_dict(reader, plan, undecided)
    if as_json:
        show_json(found)
        return
    base = plan.base
    show_table(
        ["STEP", "WHAT", "DETAIL"],
        [
            ("archive", found["dataCenter"], reader.stream.location),
            ("timeline", f"view {plan.timeline.view_text}", f"ends at {plan.timeline.head}"),
            ("base", base.name if base else "none: an empty store", f"{base.quads:,} quads" if base else ""),
            (
                "files",
                f"{len(plan.files):,} ({format_size(found['bytes'])})",
                f"{plan.entries:,} entries after index {plan.after.index}",
            ),
            ("position", f"index {plan.place.index}", plan.place.hash.hex()),
            ("last in", *_describe_entry(plan.last_in)),
            ("first out", *_describe_entry(plan.first_out)),
        ],
    )
    _show_undecided(found["undecided"])
    for entry in (plan.last_in, plan.first_out):
        if entry is not None and abs(entry.milliseconds / 1000 - entry.written) > _CLOCKS_APART_S:
            warn(
                f"{entry.txid} has the stamp {format_time(entry.milliseconds / 1000)}, and was archived at "
                f"{format_time(entry.written)}: a clock was wrong, or the archiver was behind"
            )


def _show_undecided(undecided: Sequence[str]) -> None:
    if undecided:
        print_line(describe_undecided(undecided))


def _describe_entry(entry: EntryFacts | None) -> tuple[str, str]:
    if entry is None:
        return "none", ""
    stamp = f"{format_time(entry.milliseconds / 1000)} + {entry.milliseconds % 1000} ms"
    return entry.txid, f"index {entry.index}, stamp {stamp}, archived {format_time(entry.written)}"


def _show_restored(reader: StreamReader, done: MomentRestored, into: str, seconds: float, as_json: bool) -> None:
    is_compared = done.executed == 0
    if as_json:
        show_json(
            {
                **plan_to_dict(reader, done.plan, done.undecided),
                "store": into,
                "quads": done.quads,
                "digest": done.digest,
                "executed": done.executed,
                "digestComputedHere": is_compared,
                "seconds": round(seconds, 3),
            }
        )
        return
    how = "compared" if is_compared else f"{done.executed:,} transactions executed in order by the store"
    print_line(
        f"{into} is at index {done.plan.place.index} with {done.quads:,} quads, digest {done.digest}, {how}, "
        f"in {seconds:.1f} s"
    )
    _show_undecided([str(txid) for txid in done.undecided])
