"""Writes changes at run time back to ``cluster.properties``: settings, and masters that come and go. Comments and the
order of lines stay."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from txlog.config.atomic_file import write_durably
from txlog.config.cluster_properties import NODE_NUMBER, NUMBERED_NAME, canonical_name, read_text
from txlog.config.preferences import (
    KEYS,
    PropertyLine,
    format_preferences,
    parse_property_lines,
    property_name,
    validate_preferences,
)
from txlog.model.configuration import Configuration, Master

_WRITE_LOCK: Final = threading.Lock()


def rewrite_lines(path: Path, changes: Callable[[list[PropertyLine]], Mapping[str, str | None]]) -> bool:
    """Applies ``changes`` to the lines, by name: a new value, or None to delete the line. Atomic, and durable on
    return. Returns whether anything changed. ``OSError``, :class:`BadProperties`."""
    with _WRITE_LOCK:
        text = read_text(path)
        wanted = changes(parse_property_lines(text))
        after = _apply_edits(text, wanted)
        if after == text:
            return False
        write_durably(path, after.encode(), stat.S_IMODE(path.stat().st_mode))
        return True


def _apply_edits(text: str, wanted: Mapping[str, str | None]) -> str:
    lines = text.splitlines(keepends=True)
    rest = dict(wanted)
    for line in reversed(parse_property_lines(text)):
        name = canonical_name(line.name)
        if name not in wanted:
            continue
        value = rest.pop(name, None)
        ending = "\r\n" if lines[line.first_line - 1].endswith("\r\n") else "\n"
        lines[line.first_line - 1 : line.last_line] = [f"{line.name}={value}{ending}"] if value is not None else []
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines, *(f"{name}={value}\n" for name, value in rest.items() if value is not None)])


def write_preferences(path: Path, wanted: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """``wanted``: the values in effect, by key; ``defaults``: the values without a line. A line with an equal value
    stays as it is, whatever its spelling. ``OSError``, :class:`BadInput`."""

    def changes(lines: list[PropertyLine]) -> dict[str, str | None]:
        there = {canonical_name(line.name): line.value for line in lines}
        said = {key: there[property_name(key)] for key in KEYS if property_name(key) in there}
        now = format_preferences(validate_preferences(said))
        different = [key for key in KEYS if now[key] != wanted[key]]
        return {property_name(key): None if wanted[key] == defaults[key] else wanted[key] for key in different}

    rewrite_lines(path, changes)


def write_masters(path: Path, node: str, repository: str, now: Configuration) -> bool:
    """Updates the file's peers to those of the log: adds new ones that have an address, deletes removed ones. Returns
    whether anything changed. ``OSError``, :class:`BadProperties`."""

    def changes(lines: list[PropertyLine]) -> dict[str, str | None]:
        there = {canonical_name(line.name): line.value for line in lines}
        numbered = [match for name in there if (match := NUMBERED_NAME.fullmatch(name)) and match[1] == "peer"]
        ids = {int(match[2]): there[match[0]] for match in numbered if match[3] == "id"}
        wanted: dict[str, str | None] = {match[0]: None for match in numbered if ids.get(int(match[2])) in now.removed}
        number = max(ids, default=0)
        for master in now.masters:
            if master.node == node or master.node in ids.values() or not master.urls:
                continue
            number += 1
            wanted |= _peer_lines(f"peer.{number}", master, repository)
        return wanted

    return rewrite_lines(path, changes)


def _peer_lines(name: str, master: Master, repository: str) -> dict[str, str]:
    lines = {f"{name}.id": master.node, f"{name}.url": f"{master.urls[0].rstrip('/')}/repositories/{repository}"}
    own = NODE_NUMBER.match(master.node)
    if own is None or own[1] != master.data_center:
        lines[f"{name}.data-center"] = master.data_center
    if master.weight != 1:
        lines[f"{name}.vote-weight"] = str(master.weight)
    return lines
