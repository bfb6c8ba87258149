"""Change sets of a capture store, against what a real store held before and after each update.

A capture store is embedded here and follows the log of the master. After each update its change set must be exactly
what was removed from the store and what came to it, and the inverse must give the state before the update.
"""

from __future__ import annotations

from typing import Final

import pyoxigraph as ox

from e2e.lib.cluster.harness import MasterHarness
from txlog.apply.log_source import MasterLog
from txlog.changesets import ChangeSet, EntryRefused, apply_change, apply_entry, combine
from txlog.client import MasterClient
from txlog.model.entry import CONTROL_KINDS, Position
from txlog.workers.adapter import StoreOperation

STORE: Final = "first"
"""The store, an Oxigraph, which the capture store is compared with."""
PAGE_BYTES: Final = 4 << 20
SHOWN_LINES: Final = 5


class CaptureCheck:
    """A capture store beside the stores of a harness. ``wrong_sets`` and ``wrong_inverse``: what differed, with the
    update; ``entries``: entries of which the change set was checked."""

    def __init__(self, at: MasterHarness) -> None:
        self._harness = at
        self._client = MasterClient(at.url, 60.0)
        self._log = MasterLog(self._client)
        self._position: Position | None = None
        self._store = ox.Store()
        self._before: frozenset[bytes] = frozenset()
        self.entries = 0
        self.with_several_operations = 0
        self.wrong_sets: list[str] = []
        self.wrong_inverse: list[str] = []

    def close(self) -> None:
        """End its connection to the master."""
        self._client.close()

    def check(self, what: str) -> None:
        """Follow the log to the last write and compare. ``what`` is shown where something differs."""
        target = self._harness.last.index
        if self._position is not None and self._position.index >= target:
            return
        try:
            change = self._follow(target)
            failed = ""
        except EntryRefused as refused:
            change, failed = ChangeSet(), f"refused: {refused}"
        after = frozenset(self._harness.stores[STORE].sorted_quads())
        before, self._before = self._before, after
        if (
            failed
            or (frozenset(change.deletes), frozenset(change.adds)) != (before - after, after - before)
            or self._held() != after
        ):
            self.wrong_sets.append(_describe(what, failed, change, before, after))
            self._reset(after)
            return
        apply_change(self._store, change.inverse())
        if self._held() != before:
            self.wrong_inverse.append(what)
        apply_change(self._store, change)

    def _follow(self, target: int) -> ChangeSet:
        changes: list[ChangeSet] = []
        while self._position is None or self._position.index < target:
            page = self._log.page(self._position, target, PAGE_BYTES)
            if not page:
                break
            for entry in page:
                self._position = Position(0, entry.index, entry.hash)
                if entry.noop or entry.kind in CONTROL_KINDS:
                    continue
                changes.append(self._apply(StoreOperation(entry.kind, entry.payload)))
        return combine(changes)

    def _apply(self, operation: StoreOperation) -> ChangeSet:
        alone: list[bool] = []

        def record(_: ChangeSet, is_whole: bool) -> None:
            alone.append(is_whole)

        change = apply_entry(self._store, operation, record)
        self.entries += 1
        self.with_several_operations += False in alone
        return change

    def _held(self) -> frozenset[bytes]:
        return frozenset(f"{quad} .".encode() for quad in self._store)

    def _reset(self, lines: frozenset[bytes]) -> None:
        self._store = ox.Store()
        self._store.extend(ox.parse(b"\n".join(lines), ox.RdfFormat.N_QUADS))
        self._position = self._harness.last


def _describe(what: str, failed: str, change: ChangeSet, before: frozenset[bytes], after: frozenset[bytes]) -> str:
    """What differs, with a few lines of each kind."""
    lists = {
        "deleted, not listed": (before - after) - set(change.deletes),
        "listed, not deleted": set(change.deletes) - (before - after),
        "added, not listed": (after - before) - set(change.adds),
        "listed, not added": set(change.adds) - (after - before),
    }
    lines = [f"    {name}: {line.decode()}" for name, each in lists.items() for line in sorted(each)[:SHOWN_LINES]]
    return "\n".join([f"the change set is wrong after:\n    {what}", *([f"    {failed}"] if failed else []), *lines])
