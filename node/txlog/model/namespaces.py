"""Prefixes that clients share, stored in the log as the names of entries that workers skip.

A name contains a whole change: ``namespace <unique> set|remove|clear <prefix> <namespace>``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

KEY_PREFIX: Final = "namespace "


class NamespaceChange(NamedTuple):
    """One change. ``prefix`` is None when all prefixes are removed, ``name`` when this one is."""

    prefix: str | None
    name: str | None


def encode_namespace_change(change: NamespaceChange, unique: str) -> str:
    """The name of an entry that contains this change. ``unique`` has no space."""
    verb = "clear" if change.prefix is None else "remove" if change.name is None else "set"
    return f"{KEY_PREFIX}{unique} {verb} {change.prefix or ''} {change.name or ''}"


def decode_namespace_change(key: str) -> NamespaceChange | None:
    """The inverse of :func:`encode_namespace_change`; None for the name of a transaction."""
    if not key.startswith(KEY_PREFIX):
        return None
    _, _, verb, prefix, name = key.split(" ")
    return NamespaceChange(None if verb == "clear" else prefix, name if verb == "set" else None)


def apply_namespace_changes(keys: Iterable[str]) -> dict[str, str]:
    """Prefix to namespace after these entries, oldest first; other entries are ignored."""
    table: dict[str, str] = {}
    for key in keys:
        change = decode_namespace_change(key)
        if change is None:
            continue
        if change.prefix is None:
            table.clear()
        elif change.name is None:
            table.pop(change.prefix, None)
        else:
            table[change.prefix] = change.name
    return table
