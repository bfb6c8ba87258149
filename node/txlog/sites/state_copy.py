"""Reads the states of both sites in a thread of its own, while the link goes on reading both logs."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

from txlog.client.site_client import SiteClient
from txlog.model.errors import LogAhead, PeerFault, TxLogError, Unavailable
from txlog.sites.state_lines import decode_head, decode_quads
from txlog.sites.state_spool import StateSpool


class CopiedSite(NamedTuple):
    """Where to read a state. ``cluster``: the id of the cluster. ``after``: an entry that it must contain. ``open()``:
    clients of its masters, which no one else uses."""

    name: str
    cluster: str
    after: int
    open: Callable[[], list[SiteClient]]


class StateCopy:
    """The states of ``here`` and ``there``, read into ``spool``. ``is_done``: both are read and compared, or
    ``error`` says why not. ``at_here``, ``at_there``: the positions. ``keys``: how many differ. ``quads``: read so
    far."""

    def __init__(self, spool: StateSpool, here: CopiedSite, there: CopiedSite) -> None:
        self._spool = spool
        self._here = here
        self._there = there
        self._stopping = threading.Event()
        self.at_here = self.at_there = self.keys = self.quads = 0
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"state-of-{there.name}", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End the thread, and wait for it: the spool is free then."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.at_there = self._read(self._there, is_own=False)
            self.at_here = self._read(self._here, is_own=True)
            self.keys = self._spool.compare()
        except (TxLogError, OSError, sqlite3.Error, MemoryError) as error:
            self.error = error  # the link reports it, and begins another copy

    def _read(self, site: CopiedSite, *, is_own: bool) -> int:
        last: TxLogError | None = None
        clients = site.open()
        try:
            for client in clients:
                lines = client.state_lines(site.cluster, site.after)
                try:
                    return self._read_lines(site.name, lines, is_own=is_own)
                except (Unavailable, LogAhead) as passing:
                    last = passing
        finally:
            for client in clients:
                client.close()
        assert last is not None
        raise last

    def _read_lines(self, name: str, lines: Iterator[bytes], *, is_own: bool) -> int:
        with closing(lines):  # type: ignore[type-var]
            first = next(lines, None)
            if first is None:
                raise PeerFault(name, "Malformed", "a state without a head")
            head = decode_head(name, first)
            for part in decode_quads(name, lines):
                if self._stopping.is_set():
                    raise Unavailable("Closing", "the copy is not needed any more")
                self._spool.add(part, is_own=is_own)
                self.quads += len(part)
        return head.index
