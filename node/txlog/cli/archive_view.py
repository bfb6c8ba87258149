"""The streams of the archive, the rehearsals from it, and change sets, as ``txlog status`` shows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from txlog.cli.tables import colour_state, format_time, show_section
from txlog.client.responses import StatusResponse


def print_archive(masters: Sequence[StatusResponse]) -> None:
    """Print one line for each stream; nothing for a cluster without an archive."""
    found = longest_delays(masters, lambda master: (master.archive or {}).get("streams", ()))
    columns = ["ARCHIVE", "STATE", "ARCHIVED", "VERIFIED", "DELAY", "GAPS", "REPORTED", ""]
    show_section(columns, [_row(name, stream) for name, stream in found.items()])


def print_change_sets(masters: Sequence[StatusResponse]) -> None:
    """Print one line for each data centre that makes change sets; nothing in a cluster without any."""
    found = longest_delays(masters, lambda master: master.change_sets or ())
    columns = ["CHANGE SETS", "STATE", "EXECUTED", "BEHIND", "DELAY", "KEPT FROM", "REPORTED", ""]
    show_section(columns, [_change_sets_row(name, each) for name, each in found.items()])


def longest_delays(
    masters: Sequence[StatusResponse], reports_of: Callable[[StatusResponse], Iterable[dict[str, Any]]]
) -> dict[str, dict[str, Any]]:
    """One report for each data centre, by its name. What a master of that data centre measured counts more than what
    others did, and of several the longest delay."""
    found: dict[str, tuple[tuple[bool, float], dict[str, Any]]] = {}
    for master in masters:
        for each in reports_of(master):
            delay_s, name = each["delaySeconds"], each["dataCenter"]
            rank = (name == master.data_center, -1.0 if delay_s is None else delay_s)
            if name not in found or rank > found[name][0]:
                found[name] = (rank, each)
    return {name: report for name, (_, report) in sorted(found.items())}


def _row(name: str, stream: dict[str, Any]) -> tuple[Any, ...]:
    losses = f"; {stream['losses']} losses" if stream["losses"] else ""
    return (
        name,
        colour_state(stream["state"]),
        *(each["index"] if each else "" for each in (stream["archived"], stream["verified"])),
        format_seconds(stream["delaySeconds"]),
        f"{stream['gaps'] or ''}{losses}",
        format_age(stream["reportedAt"]),
        stream["error"],
    )


def _change_sets_row(name: str, found: dict[str, Any]) -> tuple[Any, ...]:
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


def print_rehearsals(masters: Sequence[StatusResponse]) -> None:
    """Print the last rehearsal of each data centre; nothing where none was made or expected. Of several reports the
    newest counts."""
    found: dict[str, dict[str, Any]] = {}
    for master in masters:
        for each in (master.archive or {}).get("rehearsals", ()):
            known = found.get(each["dataCenter"])
            if known is None or _begun_at(each) > _begun_at(known):
                found[each["dataCenter"]] = each
    columns = ["REHEARSED", "STATE", "LAST", "LAST GOOD", "INDEX", "RPO", "RTO WRITES", "RTO READS", ""]
    show_section(columns, [_rehearsal_row(name, each) for name, each in sorted(found.items())])


def rehearsal_row(schedule: dict[str, Any]) -> tuple[object, ...]:
    """A schedule of the supervisor, with the result of its last process."""
    due = format_time(schedule["next"]) if schedule.get("next") else ""
    last = schedule.get("last") or {}
    result = colour_state("Good", "Running") if last.get("ok") else colour_state(last["error"]) if last else ""
    return schedule["dataCenter"], schedule["schedule"] or "by hand", due, result, last.get("message", "")


def _begun_at(rehearsal: dict[str, Any]) -> float:
    return float(rehearsal["last"]["at"]) if rehearsal["last"] else 0.0


def _rehearsal_row(name: str, found: dict[str, Any]) -> tuple[Any, ...]:
    last, now = found["last"], time.time()
    is_late = found["dueAt"] is not None and now > found["dueAt"]
    if last is None:
        return (name, colour_state("TooOld", "Failed") if is_late else "none yet")
    state = colour_state(last["error"], "Failed") if not last["ok"] else colour_state("Good", "Running")
    return (
        name,
        colour_state("TooOld", "Failed") if is_late and last["ok"] else state,
        format_time(last["at"]),
        format_time(found["lastGoodAt"]) if found["lastGoodAt"] else "never",
        last["index"] or "",
        *(format_seconds(last[field]) for field in ("rpoSeconds", "rtoWritesSeconds", "rtoReadsSeconds")),
        last["message"],
    )


def format_seconds(value: float | None) -> str:
    """With one decimal; empty where it is not known."""
    return "" if value is None else f"{value:.1f} s"


def format_age(at: float | None) -> str:
    """How long ago that was, in seconds since 1970; None: never."""
    return "never" if at is None else f"{max(0.0, time.time() - at):.0f} s ago"
