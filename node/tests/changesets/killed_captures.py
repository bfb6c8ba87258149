"""``python killed_captures.py FOLDER``: kill -9 of a capture store at each step between a record and the store.

A process executes entries, and kills itself at its n-th step: in the middle of and after each write and application,
and before each cut, rename and copy. Another process opens what is left, compares it and goes on to the end. This
program only forks them, and opens no store itself: a fork has none of the threads that a store needs.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from txlog_simulation import mutant_table, source_patches
from txlog_simulation.mutant import MUTANT_VARIABLE

if MUTANT_VARIABLE in os.environ:
    edits = next(each.edits for each in mutant_table.MUTANTS if each.name == os.environ[MUTANT_VARIABLE])
    source_patches.install_edits(edits)

import pyoxigraph as ox
from random_entries import execute_as_worker, held, random_entries

from txlog.changesets import capture_store, operations
from txlog.changesets.capture_store import CaptureStore, LogStep
from txlog.changesets.change_record import CapturedEntry
from txlog.changesets.change_set import ChangeSet
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, Position
from txlog.workers.adapter import StoreOperation

START = Position(0, 0, b"h" * 16)
QUADS_MAX = 6
"""More is a large change."""
DEADLINE_S = 30
UNDO_FROM, UNDO_TO = 9, 7
Quads = Mapping[bytes, ox.Quad] | None

ENTRIES = [
    *list(random_entries(3, 1))[:4],
    StoreOperation(KIND_QUADS, b"".join(b"A <x:b> <x:p> <x:%d> .\n" % at for at in range(4))),
    # Large, in its second operation: the first one is recorded before that is known.
    StoreOperation(
        KIND_UPDATE,
        b"DELETE { <x:b> <x:p> <x:1> } WHERE { };\n"
        b"INSERT { ?s <x:q> ?o . ?s <x:r> ?o . ?o <x:t> ?s } WHERE { ?s <x:p> ?o }",
    ),
    StoreOperation(
        KIND_UPDATE,
        b"DELETE { ?s <x:q> ?o } INSERT { ?s <x:u> ?o } WHERE { ?s <x:q> ?o . FILTER (?o = <x:2>) };\n"
        b"INSERT { ?s <x:v> ?o } WHERE { ?s <x:u> ?o }",
    ),
    StoreOperation(KIND_QUADS, b"D <x:b> <x:p> <x:3> .\nA <x:c> <x:p> <x:3> .\n"),
    StoreOperation(KIND_UPDATE, b"DELETE WHERE { <x:c> ?p ?o }; INSERT DATA { <x:d> <x:p> 1 }"),
    StoreOperation(KIND_QUADS, b"A <x:e> <x:p> <x:3> .\n"),
    StoreOperation(KIND_QUADS, b"".join(b"A <x:f> <x:p> <x:%d> .\n" % at for at in range(8))),
]


def _steps(after: int, count: int) -> list[LogStep]:
    chosen = list(enumerate(ENTRIES, 1))[after : after + count]
    return [
        LogStep(CapturedEntry(index, index.to_bytes(16, "big"), f"m.1.{index}", 0, each.kind), each.payload)
        for index, each in chosen
    ]


def _open(folder: Path) -> CaptureStore:
    return CaptureStore(folder, START, clock_ms=lambda: 0, quads_max=QUADS_MAX)


def _execute(store: CaptureStore, folder: Path) -> None:
    """To the end, with one way back on the way; the store is closed then."""
    undone = folder.parent / "undone"
    while store.end.index < len(ENTRIES):
        if store.end.index == UNDO_FROM and not undone.exists():
            store.undo_to(UNDO_TO)
            undone.touch()
        store.apply(_steps(store.end.index, 2 if store.end.index < UNDO_FROM - 1 else 1))
    store.close()


class Reference(NamedTuple):
    """What there is after each entry, of a store that nothing interrupts. ``large``: the entries whose change is not
    kept."""

    held: list[frozenset[bytes]]
    chains: dict[int, bytes]
    large: list[int]

    def check(self, store: CaptureStore) -> None:
        assert held(store.quads) == self.held[store.end.index], store.end.index
        for record in store.entries(store.begin.index):
            assert record.chain == self.chains[record.entry.index]


def _write_reference(folder: Path) -> None:
    """The data is that of a worker."""
    store, worker = _open(folder), ox.Store()
    contents, chains = [frozenset[bytes]()], {0: store.end.chain}
    for at, entry in enumerate(ENTRIES):
        store.apply(_steps(at, 1))
        execute_as_worker(worker, entry)
        contents.append(held(worker))
        chains[at + 1] = store.end.chain
        assert held(store.quads) == contents[-1], at + 1
    large = [each.entry.index for each in store.entries(0) if each.large_graphs]
    (folder.parent / "reference").write_bytes(pickle.dumps((contents, chains, large)))
    store.close()


class KillSwitch:
    """Kills this process at its n-th step."""

    def __init__(self, number: int) -> None:
        self.left = number

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **more: Any) -> Any:
            self.step()
            return call(*arguments, **more)

        return stepped

    def torn(self, write: Callable[..., int]) -> Callable[..., int]:
        """Each record in two parts."""
        is_torn = False

        def stepped(handle: int, data: bytes, offset: int) -> int:
            nonlocal is_torn
            is_torn = not is_torn
            written = write(handle, bytes(data)[: len(data) // 2 + 1] if is_torn else data, offset)
            self.step()
            return written

        return stepped

    def halved(self, apply: Callable[[ox.Store, ChangeSet, Quads], None]) -> Callable[..., None]:
        def stepped(store: ox.Store, change: ChangeSet, quads: Quads = None) -> None:
            apply(store, ChangeSet(change.deletes[: len(change.deletes) // 2 + 1]), quads)
            self.step()
            apply(store, ChangeSet(change.deletes, change.adds[: len(change.adds) // 2]), quads)
            self.step()
            apply(store, change, quads)
            self.step()

        return stepped

    def install(self) -> None:
        applied = self.halved(operations.apply_change)
        capture_store.apply_change = operations.apply_change = applied  # type: ignore[attr-defined, assignment]
        os.pwrite = self.torn(os.pwrite)  # type: ignore[assignment]
        for name in ("ftruncate", "replace"):
            setattr(os, name, self.around(getattr(os, name)))
        for name in ("rmtree", "copytree"):
            setattr(shutil, name, self.around(getattr(shutil, name)))


def _in_a_process(work: Callable[[], None]) -> int:
    """The signal that ended it, 0 where it ended by itself. An error of it ends this program."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(DEADLINE_S)
        code = 1
        try:
            work()
            code = 0
        finally:
            if code:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(1)
    how = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if how not in (0, signal.SIGKILL):
        raise SystemExit(f"ended by signal {how}")
    return how


def _kill_and_go_on(folder: Path, number: int, reference: Reference) -> bool:
    """Whether a process was killed at its step of this number, and not over before."""
    store_folder = folder / "store"
    folder.mkdir()

    def killed() -> None:
        KillSwitch(number).install()
        _execute(_open(store_folder), store_folder)

    def goes_on() -> None:
        store = _open(store_folder)
        reference.check(store)
        _execute(store, store_folder)
        store = _open(store_folder)
        reference.check(store)
        assert store.end.index == len(ENTRIES)
        store.close()

    how = _in_a_process(killed)
    _in_a_process(goes_on)
    shutil.rmtree(folder)
    return how == signal.SIGKILL


def main(folder: Path) -> None:
    """Prints ``{"kills", "large"}``: at how many steps a process was killed, and which entries are large."""
    _in_a_process(lambda: _write_reference(folder / "whole"))
    reference = Reference(*pickle.loads((folder / "reference").read_bytes()))
    kills = 0
    while _kill_and_go_on(folder / str(kills), kills + 1, reference):
        kills += 1
    print(json.dumps({"kills": kills, "large": reference.large}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
