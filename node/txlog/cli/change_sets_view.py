"""How far change sets are, as ``txlog status`` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txlog.cli.archive_view import format_age, format_seconds, longest_delays
from txlog.cli.tables import colour_state, out, show_table
from txlog.client.responses import StatusResponse


def print_change_sets(masters: Sequence[StatusResponse]) -> None:
    """Print one line for each data centre that makes change sets; nothing in a cluster without any."""
    found = longest_delays(masters, lambda master: master.change_sets or ())
    if found:
        out.print()
        show_table(
            ["CHANGE SETS", "STATE", "EXECUTED", "BEHIND", "DELAY", "KEPT FROM", "REPORTED", ""],
            [_row(name, each) for name, each in found.items()],
        )


def _row(name: str, found: dict[str, Any]) -> tuple[Any, ...]:
    executed = found["executed"]
    return (
        name,
        colour_state(found["state"]),
        executed["index"] if executed else "",
        found["entriesBehind"],
        format_seconds(found["delaySeconds"]),
        found["keptFrom"],
        format_age(found["reportedAt"]),
        found["error"],
    )
