"""Which named graphs hold something else after a rejoin than a worker that had to go back had shown to clients.

What it held, per graph, is summed up before it goes back (:func:`remember`). When it executes the log again it is held
twice for the moment in which a snapshot opens: where the branch ends that went on (``Smart``: that is what the workers
that stayed had shown), and where everything stands that the rejoin brought together. That is compared
(:func:`compare`). No other time would do: later, clients have written.

None of this may keep a worker from going back. What cannot be told is said.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from txlog.backup.parts import gathered
from txlog.backup.standing import Source, lift, snapshot, system_of
from txlog.backup.sums import differing, write_sums
from txlog.client import MasterClient
from txlog.model.errors import TxLogError, Unavailable

COMPARE_S: Final = 600.0
"""How long the replay may take."""
LOOK_S: Final = 1.0
FIRST: Final = 20
"""Graphs that are named in the answer; the file names all."""
KEPT: Final = 40
"""Files of comparisons that stay."""


class Rejoin(NamedTuple):
    """``view``: the number of the view that brought branches together; ``base``: where the branch ends that went on,
    None when branches were merged (``Simple``); ``brought``: the index at which everything stands that was brought
    together."""

    view: str
    epoch: int
    base: int | None
    brought: int


def last_rejoin(masters: Sequence[MasterClient]) -> Rejoin | None:
    """The latest that a master of the data centre took part in, as far as they answer."""
    found: list[tuple[int, int, Rejoin]] = []
    for master in masters:
        records: list[dict[str, Any]] = []
        with suppress(TxLogError):
            records = master.splits()["records"]
        for record in records:
            view = record.get("view")
            if view is None or not set(record["before"]["silent"]) & set(view["members"]):
                continue
            if view.get("brought") is None:
                continue
            epoch, ballot = (int(part) for part in view["number"].split(".")[:2])
            base = None if view["merged"] else view["base"]
            found.append((epoch, ballot, Rejoin(view["number"], epoch, base, view["brought"])))
    return max(found, default=(0, 0, None), key=lambda one: one[:2])[2]


class Shown:
    """Of one worker that goes back. ``folder``: of its data centre."""

    def __init__(self, folder: Path, source: Source) -> None:
        self._folder = folder
        self._source = source
        self._name = source.name
        self._rejoin: Rejoin | None = None
        self._why = ""

    @property
    def onward(self) -> int | None:
        """The first index at which the worker has to stand still when it has gone back; None: nothing to compare."""
        rejoin = self._rejoin
        return None if rejoin is None else rejoin.brought if rejoin.base is None else min(rejoin.base, rejoin.brought)

    def remember(self) -> None:
        """Before the worker goes back: what it holds. One that is half loaded already was summed up when that began."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            system = system_of(self._source.adapter, self._source.transport)
            if not system.loading:
                self._forget()
                self._sum_up()
            self._rejoin = self._to_compare()
        except (TxLogError, OSError) as wrong:
            self._why = f"what it had shown could not be read: {wrong}"

    def _sum_up(self) -> None:
        with snapshot(self._source) as (marker, chunks):
            graphs = write_sums(gathered(chunks), self._file("shown"))
        at = marker.position
        self._write("shown.json", {"epoch": at.epoch, "index": at.index, "graphs": graphs})

    def _to_compare(self) -> Rejoin | None:
        rejoin = last_rejoin(self._source.masters)
        told = self._read("shown.json")
        if told is None:
            self._why = "what it had shown is not known: it was empty, or broken, when it went back"
        elif rejoin is None or told["epoch"] >= rejoin.epoch:
            self._why = "no rejoin is known that it went back for"
        elif self._is_told(rejoin):
            self._why = f"another worker of this data centre was compared for view {rejoin.view}"
        else:
            return rejoin
        return None

    def abandon(self) -> None:
        """The worker is on the log, so it has gone back; a comparison that broke off may still hold it."""
        if self._read("shown.json") is not None:
            lift(self._source.masters, self._name)
            self._forget()

    def compare(self, index: int) -> dict[str, Any]:
        """When the worker has gone back to ``index`` and is held at :attr:`onward`; that hold is lifted here. What
        came of it: which view ended the split, and for each side how many graphs are not what it had shown, the first
        of them, and the file that names all. ``notTold``: why it cannot be said."""
        rejoin = self._rejoin
        if rejoin is None:
            self._forget()
            return {"notTold": self._why} if self._why else {}
        try:
            return self._compared(rejoin, index)
        except (TxLogError, OSError) as wrong:
            return {"endedBy": rejoin.view, "notTold": str(wrong)}
        finally:
            lift(self._source.masters, self._name)
            self._forget()

    def _compared(self, rejoin: Rejoin, index: int) -> dict[str, Any]:
        until = time.monotonic() + COMPARE_S
        told = self._read("shown.json") or {}
        sides = [(self._name, int(told["index"]), "shown")]
        not_told = None
        if rejoin.base is not None and index <= rejoin.base < rejoin.brought:
            self._stand(rejoin.base, "base", until, rejoin.brought)
            sides.append(("the branch that went on", rejoin.base, "base"))
        elif rejoin.base is not None and index > rejoin.base:
            not_told = f"what the branch that went on had shown at {rejoin.base}: {self._name} begins at {index}"
        self._stand(rejoin.brought, "final", until, None)
        found: dict[str, Any] = {"endedBy": rejoin.view, "comparedAt": rejoin.brought, "sides": []}
        for who, index, kind in sides:
            found["sides"].append(self._side(rejoin, who, index, kind))
        return {**found, "notTold": not_told} if not_told else found

    def _stand(self, index: int, kind: str, until: float, onward: int | None) -> None:
        """The sums of the worker at exactly this index."""
        look = _Interrupted(self._source.masters)
        left = until - time.monotonic()
        with snapshot(self._source, index, left, look, onward) as (_, chunks):
            write_sums(_watched(gathered(chunks), look), self._file(kind))

    def _side(self, rejoin: Rejoin, who: str, index: int, kind: str) -> dict[str, Any]:
        """The file is named by the view, so that it is known whether a data centre has been compared for it."""
        path = self._folder / f"{rejoin.view}-{kind}.graphs.jsonl"
        count, first = 0, list[str]()
        new = path.with_name(path.name + ".new")
        with open(new, "w") as out:
            for graph, shown, final in differing(self._file(kind), self._file("final")):
                out.write(json.dumps({"graph": graph, "quadsShown": shown, "quadsNow": final}) + "\n")
                count += 1
                if len(first) < FIRST:
                    first.append(graph)
        new.replace(path)
        self._retain()
        return {"side": who, "shownAt": index, "graphs": count, "first": first, "file": str(path)}

    def _is_told(self, rejoin: Rejoin) -> bool:
        return (self._folder / f"{rejoin.view}-shown.graphs.jsonl").exists()

    def _retain(self) -> None:
        files = sorted(self._folder.glob("*.graphs.jsonl"), key=lambda path: path.stat().st_mtime)
        for old in files[:-KEPT]:
            old.unlink(missing_ok=True)

    # -- files of this worker

    def _file(self, kind: str) -> Path:
        return self._folder / f"{self._name}.{kind}"

    def _read(self, kind: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._file(kind).read_text())
        except (OSError, ValueError):
            return None
        return found

    def _write(self, kind: str, told: dict[str, Any]) -> None:
        new = self._file(kind + ".new")
        new.write_text(json.dumps(told))
        os.replace(new, self._file(kind))

    def _forget(self) -> None:
        for kind in ("shown.json", "shown", "base", "final"):
            self._file(kind).unlink(missing_ok=True)


class _Interrupted:
    """Asked again and again: a duty that others wait for goes before a comparison."""

    def __init__(self, masters: Sequence[MasterClient]) -> None:
        self._masters = masters
        self._due = 0.0

    def __call__(self, _: str = "") -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + LOOK_S
        duties: list[dict[str, Any]] = []
        for master in self._masters:
            with suppress(TxLogError):
                duties += master.duties()
        if any(duty["kind"] == "backup" for duty in duties):
            raise Unavailable("OtherDuty", "a split needed a backup meanwhile")


def _watched(pieces: Iterator[bytes], look: Callable[[], None]) -> Iterator[bytes]:
    for piece in pieces:
        look()
        yield piece
