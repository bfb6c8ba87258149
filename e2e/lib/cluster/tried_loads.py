"""Bulk loads of a running cluster, one after the other: their files, what stores and logs hold of each, and a reader
that watches that no store shows a part of one."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from e2e.lib.cluster.local import LocalCluster, run_txlog
from e2e.lib.load.requests import write_one
from e2e.lib.report import CannotMeasure
from txlog.backup import open_target, read_cluster_id
from txlog.bulk.load_files import LoadFolder, list_loads
from txlog.client import MasterClient
from txlog.config.process_config import DutyJobConfig
from txlog.model.bulk_entry import decode_bulk_load
from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.adapter import SystemGraphs
from txlog.workers.http_transport import HttpTransport

SAMPLES: Final = 8
DELETED: Final = 3
"""Quads of a load that a client deletes as soon as its entry is in the log: a load that lands late brings them back."""
READ_PAUSE_S: Final = 0.1
READ_TIMEOUT_S: Final = 3.0


class TriedLoad:
    """A load of ``quads`` quads into a graph of its own."""

    def __init__(self, cluster: LocalCluster, folder: Path, number: int, quads: int) -> None:
        self.cluster, self.number, self.quads = cluster, number, quads
        self.graph = f"urn:bulk:{number}"
        self.file = folder / f"round-{number}.nq"
        self.is_deleted = False
        self._begin = max(end for end, _ in cluster.stable_ends().values())
        with open(self.file, "w") as lines:
            for at in range(quads):
                lines.write(f'<{self._subject(at)}> <urn:p> "value {at} of round {number}" <{self.graph}> .\n')

    def _subject(self, at: int) -> str:
        return f"urn:bulk:{self.number}:{at}"

    @property
    def sample_query(self) -> str:
        """Counts some of the quads that are not deleted."""
        wanted = range(self.quads - 1, 0, -max(1, self.quads // SAMPLES))
        names = " ".join(f"<{self._subject(at)}>" for at in list(wanted)[:SAMPLES])
        return f"SELECT (COUNT(*) AS ?n) {{ VALUES ?s {{ {names} }} GRAPH <{self.graph}> {{ ?s <urn:p> ?o }} }}"

    # -- the target

    def folder_at(self, data_center: str) -> LoadFolder:
        """This load on the target of a data centre. :class:`CannotMeasure` where it was not begun there."""
        config = DutyJobConfig.model_validate_json(self.cluster.state.duties(data_center).read_bytes())
        target = open_target(config.target)
        with ExitStack() as closing:
            masters = [closing.enter_context(MasterClient(url, 10.0)) for url in self.cluster.masters]
            cluster = read_cluster_id(masters)
        for found in list_loads(target, cluster):
            if [each.name for each in found.read_request().sources] == [str(self.file)]:
                return found
        raise CannotMeasure(f"the target of {data_center} has no load of {self.file.name}")

    def part_at(self, data_center: str) -> Path:
        """The file of its first part there."""
        found = self.folder_at(data_center)
        folder = Path(found.target.location) / found.key("")
        return sorted(folder.glob("*.nq.zst"))[0]

    # -- the log

    def entries(self) -> list[str]:
        """The entries of bulk loads since the round began, as the first master that answers has them: why each takes
        no effect; empty where it does."""
        last: TxLogError | None = None
        for url in self.cluster.masters:
            try:
                return list(self._read_entries(url))
            except TxLogError as error:
                last = error
        raise CannotMeasure(f"no master gives its log: {last}")

    def _read_entries(self, url: str) -> Iterator[str]:
        after = self._begin
        with MasterClient(url, 30.0) as master:
            while entries := master.log_page(after).log_entries():
                after = entries[-1].index
                for entry in entries:
                    if entry.kind == KIND_UPDATE and decode_bulk_load(entry.payload) is not None:
                        yield entry.noop

    # -- clients

    def delete_some(self, masters: Sequence[str]) -> None:
        """A client's transaction behind the load, at the first of these masters that answers."""
        names = [self._subject(at) for at in range(DELETED)]
        rows = " ".join(f'<{name}> <urn:p> "value {at} of round {self.number}" .' for at, name in enumerate(names))
        self._write(masters, f"DELETE DATA {{ GRAPH <{self.graph}> {{ {rows} }} }}")
        self.is_deleted = True

    def drop(self) -> None:
        """The stores stay small, and are compared as a whole at the end."""
        self._write(self.cluster.masters, f"DROP SILENT GRAPH <{self.graph}>")
        self.file.unlink()

    def _write(self, masters: Sequence[str], update: str) -> None:
        last: Exception | None = None
        for url in masters:
            try:
                write_one(url, self.cluster.repository, update, "synced")
            except (TxLogError, CannotMeasure) as error:
                last = error
            else:
                return
        raise CannotMeasure(f"no master takes a write: {last}")

    # -- what must be so

    def count_in(self, worker: str) -> int:
        """Quads of this load in a store."""
        text = f"SELECT (COUNT(*) AS ?n) {{ GRAPH <{self.graph}> {{ ?s ?p ?o }} }}"
        return int(self.cluster.query_worker(worker, text)[0][0])

    def find_traces(self) -> list[str]:
        """Before the decision: what log or stores have of the load."""
        found = [f"the log has the entry ({noop or 'in force'})" for noop in self.entries()]
        for worker in self.cluster.topology.workers:
            count = self.count_in(worker.name)
            found += [f"{worker.name} has {count:,} quads"] if count else []
        return found

    def find_faults(self) -> list[str]:
        """After everything has come to rest: what is not as one load leaves it."""
        found: list[str] = []
        in_force = self.entries().count("")
        if in_force != 1:
            found.append(f"the entry is {in_force} times in force")
        wanted = self.quads - (DELETED if self.is_deleted else 0)
        for worker in self.cluster.topology.workers:
            count = self.count_in(worker.name)
            if count != wanted:
                found.append(f"{worker.name} has {count:,} of {wanted:,} quads")
            marks = read_system(self.cluster, worker.name).loading
            found += [f"{worker.name} has a mark: {marks}"] if marks else []
        states = [each["state"] for each in self._status() if each["files"] == [str(self.file)]]
        if Counter(states)["Loaded"] != 1 or set(states) - {"Loaded", "Aborted"}:
            found.append(f"txlog bulk status: {states}")
        return found

    def _status(self) -> list[dict[str, Any]]:
        text = run_txlog("bulk", "status", "--json", "--state", self.cluster.state.root)
        found: list[dict[str, Any]] = json.loads(text)["loads"]
        return found


def read_system(cluster: LocalCluster, worker: str, timeout_s: float = 10.0) -> SystemGraphs:
    """Markers and marks in a store, asked of the store itself."""
    place = next(each for each in cluster.topology.workers if each.name == worker)
    adapter = ADAPTERS[place.engine]
    with HttpTransport(place.url, timeout_s) as transport:
        return adapter.parse_system_graphs(transport.send(adapter.read_system()))


class PartialReads:
    """Reads the stores themselves, and through masters, all the while. ``partial``: answers with a part of a load."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self._round: TriedLoad | None = None
        self.reads = 0
        self.partial: list[str] = []

    def watch(self, found: TriedLoad) -> None:
        """From now on this load is looked for."""
        self._round = found

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="partial-reads")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _run(self) -> None:
        while not self._over.wait(READ_PAUSE_S):
            watched = self._round
            if watched is None:
                continue
            for worker in self._cluster.topology.workers:
                self._read(watched, worker.name, worker.name)
            for node, url in self._cluster.nodes.items():
                self._read(watched, node, url)

    def _read(self, watched: TriedLoad, name: str, place: str) -> None:
        ask = self._cluster.query if place.startswith("http") else self._cluster.query_worker
        try:
            count = int(ask(place, watched.sample_query, READ_TIMEOUT_S)[0][0])
        except TxLogError:
            return  # it is killed, stopped, or has no worker that may be read: another rule than this one
        self.reads += 1
        if count not in (0, SAMPLES):
            self.partial.append(f"{name} shows {count} of {SAMPLES} of round {watched.number}")
