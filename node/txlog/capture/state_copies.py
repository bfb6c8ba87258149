"""Copies of the capture store, from which another site reads its state: the store goes on meanwhile.

A copy is a folder of hard links. It is removed when it was read, and with all others when the process begins.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pyoxigraph as ox

from txlog.changesets import CaptureStore
from txlog.model.errors import LogAhead, Unavailable
from txlog.sites.state_lines import encode_state

COPIES_MAX: Final = 2
"""At a time: each keeps files that the store has given up."""


class StateCopies:
    """Copies below ``folder``, which belongs to them alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._open: set[int] = set()
        shutil.rmtree(folder, ignore_errors=True)

    def read(self, store: CaptureStore, after: int) -> Generator[bytes, None, None]:
        """The state of the store now (:mod:`txlog.sites.state_lines`), in pieces; used by one thread. Raises
        :class:`LogAhead` where the store is before the entry ``after``, and
        :class:`Unavailable` while others are read."""
        if store.end.index < after:
            raise LogAhead(f"the change sets are at index {store.end.index}, and {after} was asked for")
        if len(self._open) >= COPIES_MAX:
            raise Unavailable("StatesBusy", f"{COPIES_MAX} copies of the state are being read already; ask again")
        number = next(self._numbers)
        self._open.add(number)
        folder = self._folder / str(number)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            end = store.copy_at_end(folder)
            yield from encode_state(end.index, end.hash, ox.Store.read_only(str(folder)))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self._open.discard(number)
