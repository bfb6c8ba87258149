"""The streams of the archive, as ``txlog status`` shows them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from txlog.cli.tables import colour_state, out, show_table
from txlog.client.responses import StatusResponse


def print_archive(masters: Sequence[StatusResponse]) -> None:
    """Print one line for each stream; nothing for a cluster without an archive. What a master of the stream's own data
    centre measured counts more than what others did, and of several the longest delay."""
    found: dict[str, tuple[tuple[bool, float], dict[str, Any]]] = {}
    for master in masters:
        for stream in (master.archive or {}).get("streams", ()):
            delay_s = stream["delaySeconds"]
            rank = (stream["dataCenter"] == master.data_center, -1.0 if delay_s is None else delay_s)
            name = stream["dataCenter"]
            if name not in found or rank > found[name][0]:
                found[name] = (rank, stream)
    if not found:
        return
    out.print()
    show_table(
        ["ARCHIVE", "STATE", "ARCHIVED", "VERIFIED", "DELAY", "GAPS", "REPORTED", ""],
        [_row(name, stream) for name, (_, stream) in sorted(found.items())],
    )


def _row(name: str, stream: dict[str, Any]) -> tuple[Any, ...]:
    delay_s, reported_at = stream["delaySeconds"], stream["reportedAt"]
    losses = f"; {stream['losses']} losses" if stream["losses"] else ""
    return (
        name,
        colour_state(stream["state"]),
        *(each["index"] if each else "" for each in (stream["archived"], stream["verified"])),
        "" if delay_s is None else f"{delay_s:.1f} s",
        f"{stream['gaps'] or ''}{losses}",
        "never" if reported_at is None else f"{max(0.0, time.time() - reported_at):.0f} s ago",
        stream["error"],
    )
