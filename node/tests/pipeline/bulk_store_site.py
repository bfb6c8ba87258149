"""A data centre with one real store, and a target with a bulk load."""

from __future__ import annotations

import time
from pathlib import Path

from one_store_site import OneStoreSite

from txlog.backup.folder_target import FolderTarget
from txlog.bulk.held_body import HeldBody, in_flight_mark, landed_mark
from txlog.bulk.load_files import LoadFolder, LoadIntent
from txlog.bulk.load_writer import build_manifest, read_quads, write_parts
from txlog.model.bulk_entry import encode_bulk_load
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.pipeline.worker_applier import WorkerApplier
from txlog.pipeline.worker_lanes import ApplyRequest, LaneSet
from txlog.workers import ADAPTERS
from txlog.workers.adapter import LoadMarker, SystemGraphs
from txlog.workers.http_transport import HttpTransport

LOAD = "0123456789abcdef" * 2
OXIGRAPH = ADAPTERS["oxigraph"]


def lines(count: int) -> bytes:
    return b"".join(b"<urn:s:%d> <urn:p> <urn:o:%d> <urn:g> .\n" % (n, n) for n in range(count))


class BulkStoreSite(OneStoreSite):
    """One store, and a target with a load of ``quads`` quads."""

    def __init__(self, folder: Path, quads: int = 2000) -> None:
        self.parts = folder / "parts"
        self.parts.mkdir()
        super().__init__(folder, bulk_target={"folder": str(self.parts)})
        self.folder = LoadFolder(FolderTarget(self.parts), self.log.cluster.hex(), LOAD)
        request = LoadIntent(LOAD, self.log.cluster.hex(), [])
        self.folder.create_request(request)
        parts = write_parts(self.folder, iter([lines(quads)]), lambda _: None)
        self.load = self.folder.write_manifest(build_manifest(request, parts))

    def append_load(self) -> int:
        return self.log.append(encode_bulk_load(self.load), kind=KIND_UPDATE)

    def insert(self, number: int) -> int:
        return self.log.append(b"INSERT DATA { <urn:tx:%d> <urn:p> 1 }" % number, kind=KIND_UPDATE)

    def delete_first(self) -> int:
        return self.log.append(b"D <urn:s:0> <urn:p> <urn:o:0> <urn:g> .\n", kind=KIND_QUADS)

    def ask(self) -> None:
        self.feed.bulk["w1"] = self.load._asdict()

    def loaded(self) -> int:
        return int(self.store.select("SELECT (COUNT(*) AS ?n) { GRAPH <urn:g> { ?s ?p ?o } }")[0])

    def system(self) -> SystemGraphs:
        with HttpTransport(self.store.url) as transport:
            return OXIGRAPH.parse_system_graphs(transport.send(OXIGRAPH.read_system()))

    def phase(self) -> str:
        return str(self.feed.reports[-1][1]["bulk"]["phase"]) if self.feed.reports else ""

    def error(self) -> str:
        return str(self.feed.reports[-1][1]["error"]) if self.feed.reports else ""

    def asks_for_a_restart(self) -> bool:
        return bool(self.feed.reports) and bool(self.feed.reports[-1][1]["running"])

    def new_body(self) -> HeldBody:
        return HeldBody(self.store.url, OXIGRAPH.load(b""), lambda: read_quads(self.folder, self.load))

    def put_in_flight_mark(self) -> LoadMarker:
        """As a lane does that is about to end its body."""
        (before,) = self.system().markers
        mark = in_flight_mark(self.log.at(before.position.index + 1), before)
        with HttpTransport(self.store.url) as transport:
            assert transport.send(OXIGRAPH.apply([], before, mark)).ok
        return mark

    def put_landed_mark(self) -> LoadMarker:
        """As a lane does that ends after an interrupted load, before it has repeated it."""
        mark = self.put_in_flight_mark()
        again = landed_mark(mark)
        with HttpTransport(self.store.url) as transport:
            assert transport.send(OXIGRAPH.apply([], mark, again)).ok
        return again

    def has_asked_for_a_restart(self) -> bool:
        return any(report["running"] for _, report in self.feed.reports)


def lanes(site: OneStoreSite) -> LaneSet:
    return LaneSet(site.config, WorkerApplier)


def drive(site: BulkStoreSite, running: LaneSet, upto: int, seconds: float = 30.0) -> None:
    """As a pipeline does, with a supervisor that restarts a store where a report asks for it."""
    deadline = time.monotonic() + seconds
    restarted = 0
    while site.feed.position("w1") != upto:
        assert time.monotonic() < deadline, (site.feed.reports[-1], site.system())
        running.apply_workers([ApplyRequest("w1", upto)], 0.2)
        if site.asks_for_a_restart() and len(site.feed.reports) > restarted:
            site.store.kill()
            site.store.start()
            restarted = len(site.feed.reports) + 1
