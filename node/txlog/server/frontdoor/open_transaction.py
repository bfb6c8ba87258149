"""One open transaction of RDF4J: what it has written and read so far."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from txlog.model.entry import KIND_QUADS
from txlog.model.quads import decode_quads
from txlog.server.frontdoor.read_set import ReadSet
from txlog.server.frontdoor.transaction_view import TransactionView
from txlog.sparql import TransactionBody
from txlog.workers.canonical_literals import canonical_lines, lines_with_lower_tags

_SNAPSHOT_LEVELS: Final = ("SNAPSHOT", "SERIALIZABLE")
"""These levels read one copy from their first read on. RDF4J's SNAPSHOT_READ needs a snapshot for each read only, which
a worker gives."""


class OpenTransaction:
    """``changes``: its writes, of ``size_bytes`` bytes. ``committing``: the commit was submitted and its outcome is not
    known yet, so only a commit under the same ``commit_key`` is allowed. ``read_set``: what it has read, for
    SERIALIZABLE only. ``net_lines``: the first ``netted_count`` changes as quads that are added or removed; None if
    quads cannot express them. ``as_written``: stores hold literals as they were sent."""

    def __init__(self, name: str, level: str, *, as_written: bool = False) -> None:
        self.name = name
        self.reads_snapshot = level in _SNAPSHOT_LEVELS
        self.read_set: ReadSet | None = ReadSet(as_written=as_written) if level == "SERIALIZABLE" else None
        self.changes: list[TransactionBody] = []
        self.size_bytes = 0
        self.last_used = time.monotonic()
        self.lock = asyncio.Lock()
        self.view: TransactionView | None = None
        self.net_lines: dict[bytes, bool] | None = {}
        self.netted_count = 0
        self.committing = False
        self.commit_key = ""
        self.synchronous: str | None = None
        """What its beginning asked for in ``transaction-setting__txlog.synchronous``."""
        self._as_written = as_written

    def update_net_lines(self) -> None:
        """Updates ``net_lines`` with the latest writes."""
        for part in self.changes[self.netted_count :]:
            self.netted_count += 1
            if part.kind != KIND_QUADS:
                self.net_lines = None  # from now on only a copy has the result
            if self.net_lines is not None:
                payload = (lines_with_lower_tags if self._as_written else canonical_lines)(part.payload)
                self.net_lines.update((line, adds) for adds, line in decode_quads(payload))
