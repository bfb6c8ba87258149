"""Tables of the workers that differ from others, and of those that were repaired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txlog.cli.tables import format_time, out, print_line, show_table
from txlog.client import Divergence, RepairRecord, WorkerStatus

GRAPHS_SHOWN = 3
"""Graphs in a row; ``--json`` has more."""
MANUAL_REPAIR_STATES = ("Undecided", "ByHand", "Manual", "GivenUp", "RepairSuspended")
"""Repair states that need an operator, and the names that the next release gives to two of them."""


def print_divergence(workers: Mapping[str, Sequence[WorkerStatus]]) -> None:
    """Print the workers that differ and those that were repaired within a day, if there are any. ``workers``: by data
    centre."""
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
        print_line("txlog worker repair WORKER copies those graphs only")
    done = [
        (w.name, dc, _copied_text(last), last.source, last.index, format_time(last.at), w.repair.done)
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
