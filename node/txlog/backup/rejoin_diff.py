"""Finds the named graphs that differ after a rejoin from what a restored worker had served to clients.

Its content is digested by graph before the restore (:func:`record_before_restore`). When it executes the log again, it
is paused at two indexes while a snapshot opens. The first is the end of the surviving branch (``Smart``), which is what
the other workers had served. The second is the end of the merged log. The digests are compared there (:func:`compare`).
Later indexes would include new writes of clients.

No error here may prevent the restore; the result names what could not be compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from txlog.backup.digest_file import differing_graphs, write_digests
from txlog.backup.part_codec import coalesce, tee
from txlog.backup.pinned_snapshot import SourceWorker, open_snapshot, read_system_graphs, resume_worker
from txlog.client import MasterClient
from txlog.config.atomic_file import write_atomically
from txlog.model.errors import TxLogError, Unavailable

COMPARE_TIMEOUT_S: Final = 600.0
"""Time-out of the replay."""
DUTY_POLL_S: Final = 1.0
GRAPHS_NAMED_MAX: Final = 20
"""Graphs in the answer; the file names all."""
FILES_KEPT: Final = 40
"""Comparison files that are kept."""


class RejoinView(NamedTuple):
    """``view``: number of the view that merged branches. ``surviving_index``: end of the surviving branch, None when
    branches were merged (``Simple``). ``merged_index``: the index up to which all merged entries are stored."""

    view: str
    epoch: int
    surviving_index: int | None
    merged_index: int


def find_last_rejoin(masters: Sequence[MasterClient]) -> RejoinView | None:
    """The latest rejoin in which a reachable master of the data centre took part."""
    found: list[tuple[int, int, RejoinView]] = []
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
            found.append((epoch, ballot, RejoinView(view["number"], epoch, base, view["brought"])))
    return max(found, default=(0, 0, None), key=lambda one: one[:2])[2]


class RejoinDiff:
    """The comparison of one worker that is restored. ``folder``: that of its data centre."""

    def __init__(self, folder: Path, source: SourceWorker) -> None:
        self._folder = folder
        self._source = source
        self._name = source.name
        self._rejoin: RejoinView | None = None
        self._skip_reason = ""

    @property
    def resume_limit(self) -> int | None:
        """The first index at which the worker must pause after the restore; None when there is nothing to compare."""
        rejoin = self._rejoin
        return (
            None
            if rejoin is None
            else rejoin.merged_index
            if rejoin.surviving_index is None
            else min(rejoin.surviving_index, rejoin.merged_index)
        )

    def record_before_restore(self) -> None:
        """Digests the worker's content before the restore. A half loaded worker was digested when its load began."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            system = read_system_graphs(self._source.adapter, self._source.transport)
            if not system.loading:
                self._delete_files()
                self._write_digests()
            self._rejoin = self._rejoin_to_compare()
        except (TxLogError, OSError) as wrong:
            self._skip_reason = f"what it had shown could not be read: {wrong}"

    def _write_digests(self) -> None:
        with open_snapshot(self._source) as (marker, chunks):
            graphs = write_digests(coalesce(chunks), self._path("shown"))
        at = marker.position
        self._write_json("shown.json", {"epoch": at.epoch, "index": at.index, "graphs": graphs})

    def _rejoin_to_compare(self) -> RejoinView | None:
        rejoin = find_last_rejoin(self._source.masters)
        shown = self._read_json("shown.json")
        if shown is None:
            self._skip_reason = "what it had shown is not known: it was empty, or broken, when it went back"
        elif rejoin is None or shown["epoch"] >= rejoin.epoch:
            self._skip_reason = "no rejoin is known that it went back for"
        elif self._is_reported(rejoin):
            self._skip_reason = f"another worker of this data centre was compared for view {rejoin.view}"
        else:
            return rejoin
        return None

    def abandon(self) -> None:
        """Ends the comparison: the worker is on the log already. An interrupted comparison may still pause it."""
        if self._read_json("shown.json") is not None:
            resume_worker(self._source.masters, self._name)
            self._delete_files()

    def compare(self, index: int) -> dict[str, Any]:
        """Called when the worker was restored to ``index`` and is paused at :attr:`resume_limit`; lifts that pause.
        Returns the view that ended the split. For each side it adds the number of differing graphs, the first of them,
        and the file with all. ``notTold``: why there is no result."""
        rejoin = self._rejoin
        if rejoin is None:
            self._delete_files()
            return {"notTold": self._skip_reason} if self._skip_reason else {}
        try:
            return self._compare_sides(rejoin, index)
        except (TxLogError, OSError) as wrong:
            return {"endedBy": rejoin.view, "notTold": str(wrong)}
        finally:
            resume_worker(self._source.masters, self._name)
            self._delete_files()

    def _compare_sides(self, rejoin: RejoinView, index: int) -> dict[str, Any]:
        until = time.monotonic() + COMPARE_TIMEOUT_S
        shown = self._read_json("shown.json") or {}
        sides = [(self._name, int(shown["index"]), "shown")]
        skip_reason = None
        if rejoin.surviving_index is not None and index <= rejoin.surviving_index < rejoin.merged_index:
            self._write_digests_at(rejoin.surviving_index, "base", until, rejoin.merged_index)
            sides.append(("the branch that went on", rejoin.surviving_index, "base"))
        elif rejoin.surviving_index is not None and index > rejoin.surviving_index:
            skip_reason = (
                f"what the branch that went on had shown at {rejoin.surviving_index}: {self._name} begins at {index}"
            )
        self._write_digests_at(rejoin.merged_index, "final", until, None)
        found: dict[str, Any] = {"endedBy": rejoin.view, "comparedAt": rejoin.merged_index, "sides": []}
        for side, index, kind in sides:
            found["sides"].append(self._compare_side(rejoin, side, index, kind))
        return {**found, "notTold": skip_reason} if skip_reason else found

    def _write_digests_at(self, index: int, kind: str, until: float, onward: int | None) -> None:
        """Writes the digests of the worker at exactly this index."""
        look = _PreemptionCheck(self._source.masters)
        left = until - time.monotonic()
        with open_snapshot(self._source, index, left, look, onward) as (_, chunks):
            write_digests(tee(coalesce(chunks), look), self._path(kind))

    def _compare_side(self, rejoin: RejoinView, side: str, index: int, kind: str) -> dict[str, Any]:
        """The file's name contains the view, which shows whether a data centre was compared for it."""
        path = self._folder / f"{rejoin.view}-{kind}.graphs.jsonl"
        count, first = 0, list[str]()
        new = path.with_name(path.name + ".new")
        with open(new, "w") as out:
            for graph, shown, final in differing_graphs(self._path(kind), self._path("final")):
                out.write(json.dumps({"graph": graph, "quadsShown": shown, "quadsNow": final}) + "\n")
                count += 1
                if len(first) < GRAPHS_NAMED_MAX:
                    first.append(graph)
        new.replace(path)
        self._delete_old_files()
        return {"side": side, "shownAt": index, "graphs": count, "first": first, "file": str(path)}

    def _is_reported(self, rejoin: RejoinView) -> bool:
        return (self._folder / f"{rejoin.view}-shown.graphs.jsonl").exists()

    def _delete_old_files(self) -> None:
        files = sorted(self._folder.glob("*.graphs.jsonl"), key=lambda path: path.stat().st_mtime)
        for old in files[:-FILES_KEPT]:
            old.unlink(missing_ok=True)

    # -- files of this worker

    def _path(self, kind: str) -> Path:
        return self._folder / f"{self._name}.{kind}"

    def _read_json(self, kind: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._path(kind).read_text())
        except (OSError, ValueError):
            return None
        return found

    def _write_json(self, kind: str, content: dict[str, Any]) -> None:
        write_atomically(self._path(kind), json.dumps(content).encode())

    def _delete_files(self) -> None:
        for kind in ("shown.json", "shown", "base", "final"):
            self._path(kind).unlink(missing_ok=True)


class _PreemptionCheck:
    """Polls for duties that others wait for: they take precedence over a comparison."""

    def __init__(self, masters: Sequence[MasterClient]) -> None:
        self._masters = masters
        self._next_check_at = 0.0

    def __call__(self, _: object) -> None:
        if time.monotonic() < self._next_check_at:
            return
        self._next_check_at = time.monotonic() + DUTY_POLL_S
        duties: list[dict[str, Any]] = []
        for master in self._masters:
            with suppress(TxLogError):
                duties += master.duties()
        if any(duty["kind"] == "backup" for duty in duties):
            raise Unavailable("OtherDuty", "a split needed a backup meanwhile")
