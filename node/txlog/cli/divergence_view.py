"""Tables of the workers that differ from others, of those that were repaired, and of how far their comparison is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txlog.cli.tables import format_time, print_line, show_section
from txlog.client import WorkerStatus
from txlog.model.store_cell import StoreCell
from txlog.wire.divergence_report import CompletedRepair, DivergenceFinding

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
    show_section(["DIFFERS", "DATA CENTRE", "IS", "GRAPHS", "SINCE", "RIGHT", "", "REPAIR"], rows)
    if any(w.divergence is not None and _needs_operator(w) for of in workers.values() for w in of):
        print_line("txlog worker repair WORKER copies those graphs only")
    done = [
        (w.name, dc, _copied_text(last), last.source, last.index, format_time(last.at), w.repair.done)
        for dc, of in workers.items()
        for w in of
        if w.repair is not None and w.repair.done and (last := w.repair.last) is not None
    ]
    show_section(["REPAIRED", "DATA CENTRE", "GRAPHS", "FROM", "INDEX", "AT", "TIMES"], done)


def print_comparison(workers: Mapping[str, Sequence[WorkerStatus]]) -> None:
    """Print how far the comparison of the workers' contents is, where their pipelines report it."""
    rows = [
        (
            w.name,
            dc,
            f"{done.cells:,}",
            f"{done.quads:,}",
            _duration_text(done.oldest_cell_s),
            _duration_text(done.pass_s),
            _duration_text(done.estimate_s),
            done.waiting,
        )
        for dc, of in workers.items()
        for w in of
        if (done := w.comparison) is not None
    ]
    titles = ["COMPARED", "DATA CENTRE", "CELLS", "QUADS", "OLDEST", "LAST PASS", "THIS PASS", "WAITING"]
    show_section(titles, rows)


def _duration_text(seconds: float | None) -> str:
    if seconds is None:
        return "not known"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _needs_operator(worker: WorkerStatus) -> bool:
    return worker.repair is None or worker.repair.state in MANUAL_REPAIR_STATES


def _repair_status(worker: WorkerStatus) -> str:
    found = worker.repair
    if found is None:
        return ""
    return f"{found.state}: {found.why}".replace("NAME", worker.name) if found.why else found.state


def _copied_text(last: CompletedRepair) -> str:
    more = f" and {last.graph_count - GRAPHS_SHOWN:,} more" if last.graph_count > GRAPHS_SHOWN else ""
    return f"{_graph_names(last.graphs)}{more} (+{last.added:,} -{last.removed:,})"


def _graphs_text(found: DivergenceFinding) -> str:
    if found.kind == "refusal":
        return ""
    if found.cells and len(found.cells) <= GRAPHS_SHOWN:
        return ", ".join(_cell_name(cell) for cell in found.cells)
    if found.graph_count is None:
        return "not known which"
    return _graph_names(found.graphs) + (
        f" and {found.graph_count - GRAPHS_SHOWN:,} more" if found.graph_count > GRAPHS_SHOWN else ""
    )


def _graph_names(graphs: Sequence[str]) -> str:
    return ", ".join(f"<{graph}>" if graph else "the default graph" for graph in graphs[:GRAPHS_SHOWN])


def _cell_name(cell: StoreCell) -> str:
    graph = f"<{cell.graph}>" if cell.graph else "the default graph"
    return graph if cell.predicate is None else f"<{cell.predicate}> in {graph}"
