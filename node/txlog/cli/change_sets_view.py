"""How far change sets are, as ``txlog status`` shows it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from txlog.cli.tables import colour_state, out, show_table
from txlog.client.responses import StatusResponse


def print_change_sets(masters: Sequence[StatusResponse]) -> None:
    """Print one line for each data centre that makes change sets; nothing in a cluster without any. What a master of
    that data centre measured counts more than what others did, and of several the longest delay."""
    found: dict[str, tuple[tuple[bool, float], dict[str, Any]]] = {}
    for master in masters:
        for each in master.change_sets or ():
            delay_s, name = each["delaySeconds"], each["dataCenter"]
            rank = (name == master.data_center, -1.0 if delay_s is None else delay_s)
            if name not in found or rank > found[name][0]:
                found[name] = (rank, each)
    if found:
        out.print()
        show_table(
            ["CHANGE SETS", "STATE", "EXECUTED", "BEHIND", "DELAY", "KEPT FROM", "REPORTED", ""],
            [_row(name, each) for name, (_, each) in sorted(found.items())],
        )


def _row(name: str, found: dict[str, Any]) -> tuple[Any, ...]:
    delay_s, reported_at, executed = found["delaySeconds"], found["reportedAt"], found["executed"]
    return (
        name,
        colour_state(found["state"]),
        executed["index"] if executed else "",
        found["entriesBehind"],
        "" if delay_s is None else f"{delay_s:.1f} s",
        found["keptFrom"],
        "never" if reported_at is None else f"{max(0.0, time.time() - reported_at):.0f} s ago",
        found["error"],
    )
