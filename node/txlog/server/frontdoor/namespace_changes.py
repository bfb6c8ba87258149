"""Changes of namespaces as entries of the log: validation and encoding."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from typing import Final

import pyoxigraph

from txlog.model.entry import KIND_SKIP
from txlog.model.errors import BadInput, TooLarge
from txlog.model.hashes import content_hash
from txlog.model.namespaces import NamespaceChange, encode_namespace_change
from txlog.protocol.events import Submission
from txlog.sparql.terms import refuse_system
from txlog.sparql.tokens import PNAME

PREFIX_MAX: Final = 100
NAMESPACE_MAX: Final = 2000
"""Characters of a namespace. Every master keeps prefix and namespace in memory."""
CHANGES_MAX: Final = 1000
"""Changes in one transaction."""
_PREFIX = re.compile(PNAME)


def check_prefix(prefix: str) -> str:
    """The prefix, if it is valid."""
    if len(prefix) > PREFIX_MAX or not _PREFIX.fullmatch(f"{prefix}:"):
        raise BadInput(f"Invalid prefix: {prefix[:PREFIX_MAX]}")
    return prefix


def check_namespace(text: str) -> str:
    """The namespace, if it is valid."""
    refuse_system(text)
    try:
        if len(text) > NAMESPACE_MAX or any(c.isspace() for c in text):
            raise ValueError
        return pyoxigraph.NamedNode(text).value
    except ValueError:
        raise BadInput(
            f"Invalid namespace: {text[:200]}: an absolute IRI of at most {NAMESPACE_MAX} characters"
        ) from None


def build_entry(change: NamespaceChange, key: str = "") -> Submission:
    """The entry for this change. ``key``: the client's idempotency key."""
    name = encode_namespace_change(change, f"key:{key}" if key else secrets.token_hex(12))
    return Submission(KIND_SKIP, name, b"", content_hash(KIND_SKIP, name, b""))


def build_entries(changes: Iterable[NamespaceChange]) -> list[Submission]:
    """The fewest entries with the effect of these changes, checked. TooLarge if there are more than
    :data:`CHANGES_MAX`."""
    cleared = False
    last: dict[str, str | None] = {}
    for prefix, name in changes:
        if prefix is None:
            cleared = True
            last.clear()
            continue
        last[check_prefix(prefix)] = None if name is None else check_namespace(name)
    if len(last) > CHANGES_MAX:
        raise TooLarge(f"a transaction changes at most {CHANGES_MAX} namespaces; send it in parts")
    net = [NamespaceChange(prefix, name) for prefix, name in last.items() if not (cleared and name is None)]
    return [build_entry(change) for change in ([NamespaceChange(None, None)] if cleared else []) + net]
