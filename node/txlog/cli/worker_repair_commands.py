"""``txlog worker repair``: the graphs in which a worker came apart, copied from one that is right."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Annotated

import typer

from txlog.backup import RepairResult, RestoreResult, SourceWorker, make_chain_check, rebuild_from_worker, repair_graphs
from txlog.backup.backup_errors import RepairDiffers, TooMuchDiffers
from txlog.backup.backup_job import READ_TIMEOUT_S
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.graph_repair import known_graphs
from txlog.cli.backup_commands import progress_bars
from txlog.cli.output import DEFAULT_STATE, JsonOption, MasterOption, StateOption, find_cluster, out, show_json
from txlog.cli.worker_restore_commands import find_source_worker, find_worker
from txlog.client import Divergence
from txlog.model.errors import Refused
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport


def add_to(worker: typer.Typer) -> None:
    worker.command("repair")(run_repair)


def run_repair(
    name: Annotated[str, typer.Argument(metavar="WORKER", help="the worker that is wrong")],
    source: Annotated[
        str | None, typer.Option("--source", help="the worker that is right; required if TxLog cannot decide it")
    ] = None,
    graph: Annotated[
        list[str] | None, typer.Option("--graph", help="only this graph; empty: the default graph")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="compare all graphs, not only those that are known to differ")
    ] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="rebuild it if too much differs for a copy")] = False,
    master: MasterOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Copy the graphs in which a worker differs from a correct one, with both at one position: all graphs or none."""
    cluster = find_cluster(state, master)
    began = time.monotonic()
    with ExitStack() as closing:
        where, masters, found = find_worker(cluster, name, closing)
        known = found.divergence
        chosen = _find_correct_worker(name, known, source)
        other = find_source_worker(cluster, name, where, chosen, closing)
        transport = closing.enter_context(HttpTransport(found.url, READ_TIMEOUT_S))
        into = SourceWorker(name, ADAPTERS[found.engine or "oxigraph"], transport, masters)
        told = closing.enter_context(progress_bars(json))
        chain = make_chain_check(masters)
        graphs = graph if graph else None if everything else known_graphs(known)
        try:
            done: RepairResult | RestoreResult = repair_graphs(other, into, chain, graphs=graphs, on_progress=told)
        except (TooMuchDiffers, RepairDiffers):
            if not rebuild:
                raise
            done = rebuild_from_worker(
                other, RestoreTarget(name, into.adapter, transport), masters, chain, on_progress=told
            )
    _print_result(done, name, other.name, time.monotonic() - began, json)


def _find_correct_worker(name: str, known: Divergence | None, source: str | None) -> str | None:
    """A worker that is known to be right; None: any that works. :class:`Refused` where nobody knows."""
    if known is not None and known.kind == "refusal":
        raise Refused(f"{name}: {known.why}: it cannot come to where they are: txlog worker rebuild {name} --live")
    if source is not None:
        return source
    if known is not None and not known.wrong:
        raise Refused(f"{name}: {known.why}; say which worker is right: --source WORKER (and repair the others)")
    if known is None or not known.right:
        return None
    return known.right[0].partition("/")[2]


def _print_result(done: RepairResult | RestoreResult, name: str, whence: str, seconds: float, json: bool) -> None:
    at = done.marker.position
    if isinstance(done, RestoreResult):
        told = {"worker": name, "from": whence, "way": "rebuild", "index": at.index, "quads": done.quads}
        text = f"{name} is rebuilt from {whence}: {done.quads:,} quads, at index {at.index}, in {seconds:.1f} s"
    else:
        told = {
            "worker": name,
            "from": whence,
            "way": "repair",
            "index": at.index,
            "graphs": done.graphs,
            "added": done.added,
            "removed": done.removed,
        }
        text = (
            f"{name}: {len(done.graphs)} graphs copied from {whence} ({done.added:,} quads added, "
            f"{done.removed:,} removed) at index {at.index}, compared, in {seconds:.1f} s"
        )
        if not done.graphs:
            text = f"{name} holds what {whence} holds, at index {at.index}: nothing to copy"
    if json:
        show_json({**told, "seconds": round(seconds, 3)})
    else:
        out.print(text, highlight=False)
