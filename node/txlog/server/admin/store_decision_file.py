"""The file in which a master keeps what persons decided about refused stores, next to its journal.

Without it, a master that restarts between the answer and the duty would forget what it has promised. Version 1 is
JSON: ``{"version": 1, "decisions": {WORKER: {...}}}``, with the fields of :class:`KeptDecision`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from txlog.config.atomic_file import write_durably
from txlog.model.decode_errors import DECODE_ERRORS

FILE: Final = "store-decisions.json"
VERSION: Final = 1
BYTES_MAX: Final = 1 << 20


class KeptDecision(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """``kind``: as the duty's. ``index``, ``hash`` and ``store_cluster``: where the person saw the store. ``cluster``:
    the id of this master's cluster, for which the person decided. ``at``: seconds since 1970."""

    kind: Literal["adopt", "discard"]
    index: int
    hash: str
    store_cluster: str
    cluster: str
    at: float


class _Version(msgspec.Struct):
    version: int


class _DecisionFile(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    decisions: dict[str, KeptDecision]


def read_decisions(folder: Path) -> dict[str, KeptDecision]:
    """The decisions by worker; none without a file. ``OSError``, and ``ValueError`` for a file that this program cannot
    read: it is damaged, or has the format of a later version."""
    try:
        with open(folder / FILE, "rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    if len(raw) > BYTES_MAX:
        raise ValueError(f"longer than {BYTES_MAX} bytes")
    try:
        version = msgspec.json.decode(raw, type=_Version).version
        if version != VERSION:
            raise ValueError(f"format {version} is not known here; expected {VERSION}")
        return msgspec.json.decode(raw, type=_DecisionFile).decisions
    except DECODE_ERRORS as wrong:
        raise ValueError(str(wrong)) from None


def write_decisions(folder: Path, decisions: dict[str, KeptDecision]) -> None:
    """Atomic, and durable on return. ``OSError``; the file is as before then."""
    write_durably(folder / FILE, msgspec.json.encode(_DecisionFile(VERSION, decisions)))
