"""Prefixes that clients share, as they stand in the log: in the names of entries that workers pass over.

A name says a whole change: ``namespace <unique> set|remove|clear <prefix> <namespace>``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

MARK: Final = "namespace "


class Change(NamedTuple):
    """One change. ``prefix`` is None when all go, ``name`` when this one goes."""

    prefix: str | None
    name: str | None


def change_key(change: Change, unique: str) -> str:
    """The name of an entry that says this change. ``unique`` holds no space."""
    verb = "clear" if change.prefix is None else "remove" if change.name is None else "set"
    return f"{MARK}{unique} {verb} {change.prefix or ''} {change.name or ''}"


def change_of(key: str) -> Change | None:
    """The inverse of :func:`change_key`; None for the name of a transaction."""
    if not key.startswith(MARK):
        return None
    _, _, verb, prefix, name = key.split(" ")
    return Change(None if verb == "clear" else prefix, name if verb == "set" else None)


def fold(keys: Iterable[str]) -> dict[str, str]:
    """Prefix to namespace after these entries, oldest first; others are passed over."""
    table: dict[str, str] = {}
    for key in keys:
        change = change_of(key)
        if change is None:
            continue
        if change.prefix is None:
            table.clear()
        elif change.name is None:
            table.pop(change.prefix, None)
        else:
            table[change.prefix] = change.name
    return table
