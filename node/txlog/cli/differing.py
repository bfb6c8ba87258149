"""The workers that do not hold what others hold, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txlog.cli.output import out, show_table
from txlog.client import Divergence, Worker

NAMED = 3
"""Graphs in a row; ``--json`` has more."""


def say_differing(workers: Mapping[str, Sequence[Worker]]) -> None:
    """``workers``: by data centre. Nothing is said when none differs."""
    rows = [
        (w.name, dc, "WRONG" if d.wrong else "undecided", _graphs(d), d.first_index, ", ".join(d.right), d.why)
        for dc, of in workers.items()
        for w in of
        if (d := w.divergence) is not None
    ]
    if not rows:
        return
    out.print()
    show_table(["DIFFERS", "DATA CENTRE", "IS", "GRAPHS", "SINCE", "RIGHT", ""], rows)
    out.print("txlog worker repair WORKER copies those graphs only", highlight=False)


def _graphs(found: Divergence) -> str:
    if found.kind == "refusal":
        return ""
    if found.graph_count is None:
        return "not known which"
    named = ", ".join(f"<{graph}>" if graph else "the default graph" for graph in found.graphs[:NAMED])
    return named + (f" and {found.graph_count - NAMED:,} more" if found.graph_count > NAMED else "")
