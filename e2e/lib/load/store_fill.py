"""The same large database in every store of a cluster, without the log, before the first transaction."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from e2e.lib.cluster.local import LocalCluster
from e2e.lib.report import CannotMeasure, console
from txlog.backup.dataset_load import RestoreTarget, load_batches, start_load
from txlog.backup.progress import no_progress
from txlog.local.state_folder import WorkerLocation
from txlog.model.entry import Position
from txlog.model.hashes import NO_HASH
from txlog.workers import ADAPTERS
from txlog.workers.adapter import MarkerPosition
from txlog.workers.http_transport import HttpTransport

PIECE: Final = 10_000
INITIAL_POSITION: Final = MarkerPosition(Position(0, 0, NO_HASH), 0)
PATIENCE_S: Final = 1800.0


def graph_iri(number: int) -> str:
    """The IRI of a graph of the database."""
    return f"https://txlog.example/graph/{number}"


def database_line(number: int, graphs: int, value: str = "") -> str:
    """The N-Quads line of this quad. ``value`` makes another one of the same subject."""
    text = f'"what is said of thing number {number}{value}"'
    return (
        f"<https://txlog.example/thing/{number}> <https://txlog.example/says> {text} <{graph_iri(number % graphs)}> ."
    )


def fill_stores(cluster: LocalCluster, quads: int, graphs: int) -> None:
    """The same database into every store, at position 0, in the way that an adopted one is restored: the log begins
    after it."""
    with ThreadPoolExecutor() as pool:
        for name in pool.map(lambda place: _fill_store(place, quads, graphs), cluster.topology.workers):
            console.print(f"{quads:,} quads are in {name}", highlight=False)


def _fill_store(place: WorkerLocation, quads: int, graphs: int) -> str:
    adapter = ADAPTERS[place.engine]
    with HttpTransport(place.url, PATIENCE_S) as transport:
        into = RestoreTarget(place.name, adapter, transport)
        loading = start_load(into, INITIAL_POSITION.position, emptying=False)
        load_batches(into, loading, _generate_database(quads, graphs), quads, no_progress)
        answer = transport.send(adapter.end_loading(loading, INITIAL_POSITION))
        if not answer.ok:
            raise CannotMeasure(f"filling {place.name}: {answer.status} {answer.text}")
    return place.name


def _generate_database(quads: int, graphs: int) -> Iterator[bytes]:
    for first in range(0, quads, PIECE):
        rows = range(first, min(quads, first + PIECE))
        yield "".join(database_line(number, graphs) + "\n" for number in rows).encode()
