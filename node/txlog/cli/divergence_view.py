"""The workers that do not hold what others hold, and those that were repaired, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from txlog.cli.output import out, show_table
from txlog.client import Divergence, RepairRecord, WorkerStatus

GRAPHS_SHOWN = 3
"""Graphs in a row; ``--json`` has more."""
MANUAL_REPAIR_STATES = ("Undecided", "ByHand", "GivenUp")
"""What nothing becomes of by itself."""


def print_divergence(workers: Mapping[str, Sequence[WorkerStatus]]) -> None:
    """``workers``: by data centre. Nothing is said when none differs, and none was repaired within a day."""
    rows = [
        (
            w.name,
            dc,
            "WRONG" if d.wrong else "undecided",
            _graphs_text(d),
            d.first_index,
            ", ".join(d.right),
            d.why,
            _repair_status(w),
        )
        for dc, of in workers.items()
        for w in of
        if (d := w.divergence) is not None
    ]
    if rows:
        out.print()
        show_table(["DIFFERS", "DATA CENTRE", "IS", "GRAPHS", "SINCE", "RIGHT", "", "REPAIR"], rows)
    if any(w.divergence is not None and _needs_operator(w) for of in workers.values() for w in of):
        out.print("txlog worker repair WORKER copies those graphs only", highlight=False)
    done = [
        (w.name, dc, _copied_text(last), last.source, last.index, _format_time(last.at), w.repair.done)
        for dc, of in workers.items()
        for w in of
        if w.repair is not None and w.repair.done and (last := w.repair.last) is not None
    ]
    if done:
        out.print()
        show_table(["REPAIRED", "DATA CENTRE", "GRAPHS", "FROM", "INDEX", "AT", "TIMES"], done)


def _needs_operator(worker: WorkerStatus) -> bool:
    return worker.repair is None or worker.repair.state in MANUAL_REPAIR_STATES


def _repair_status(worker: WorkerStatus) -> str:
    found = worker.repair
    if found is None:
        return ""
    return f"{found.state}: {found.why}".replace("NAME", worker.name) if found.why else found.state


def _copied_text(last: RepairRecord) -> str:
    more = f" and {last.graph_count - GRAPHS_SHOWN:,} more" if last.graph_count > GRAPHS_SHOWN else ""
    return f"{_graph_names(last.graphs)}{more} (+{last.added:,} -{last.removed:,})"


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _graphs_text(found: Divergence) -> str:
    if found.kind == "refusal":
        return ""
    if found.graph_count is None:
        return "not known which"
    return _graph_names(found.graphs) + (
        f" and {found.graph_count - GRAPHS_SHOWN:,} more" if found.graph_count > GRAPHS_SHOWN else ""
    )


def _graph_names(graphs: Sequence[str]) -> str:
    return ", ".join(f"<{graph}>" if graph else "the default graph" for graph in graphs[:GRAPHS_SHOWN])
