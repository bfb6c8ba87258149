"""``txlog verify``: do all workers of all data centres hold the same, at one position?

Writes continue meanwhile. The masters pause every worker at one index through their pipelines. The command opens a
snapshot of each worker at that index and ends its pause at once. Then it compares digests of the snapshots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import ClassVar, Final

from txlog.apply import Digest, digest
from txlog.backup.pinned_snapshot import pause_worker, read_system_graphs, resume_worker
from txlog.backup.worker_lookup import TransportFactory
from txlog.client import MasterClient, WorkerStatus
from txlog.client.first_answer import ask_in_turn
from txlog.model.errors import Refused, TxLogError, Unavailable
from txlog.workers import ADAPTERS
from txlog.workers.adapter import MarkerPosition, fingerprint_family
from txlog.workers.digest import stream_statements
from txlog.workers.http_transport import HttpTransport

POLL_INTERVAL_S: Final = 0.05
MASTER_TIMEOUT_S: Final = 10.0
WORKER_TIMEOUT_S: Final = 30.0
"""From a worker's URL, as the masters report it, and the seconds that each request may wait."""
SNAPSHOT_TIMEOUT_S: Final = 600.0


class NotHeld(Refused):
    """A worker did not reach the index in time. The message names the worker and the reason."""

    status = 503
    reason: ClassVar[str] = "NotHeld"


@dataclass
class PausedWorker:
    """A worker, and the masters of its data centre."""

    data_center: str
    worker: WorkerStatus
    masters: list[MasterClient]
    open_transport: TransportFactory
    digest: Digest | None = None
    position: MarkerPosition | None = None
    differences: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ContentComparison:
    """The result for ``workers`` at ``index``. ``equal``: their digests agree, within engines whose digests compare."""

    index: int
    workers: list[PausedWorker]
    equal: bool


def compare_contents(
    data_centers: dict[str, Sequence[str]],
    deadline_s: float = 60.0,
    on_progress: Callable[[str], None] = lambda _: None,
    *,
    open_client: Callable[[str, float], MasterClient] = MasterClient,
    open_transport: TransportFactory = HttpTransport,
) -> ContentComparison:
    """Compare the contents of all workers at one index. ``data_centers``: name to the URLs of its masters.
    ``on_progress`` receives a line of text for each step. ``open_client`` and ``open_transport`` open connections to
    masters and workers.

    :class:`NotHeld`, a master's or worker's own error, or :class:`Refused` when there is nothing to compare."""
    with ExitStack() as closing:
        masters = {
            name: [closing.enter_context(open_client(url, MASTER_TIMEOUT_S)) for url in urls]
            for name, urls in data_centers.items()
        }
        held = [
            PausedWorker(name, worker, group, open_transport)
            for name, group in masters.items()
            for worker in ask_in_turn(group, MasterClient.workers, f"no master of {name} answers")
        ]
        if not held:
            raise Refused("the masters know no worker; see txlog worker list")
        try:
            until = time.monotonic() + deadline_s
            index = _pause_all(held, masters, until, on_progress)
            streams = [_open_snapshot(each, index, until, closing) for each in held]
        finally:
            for each in held:
                resume_worker(each.masters, each.worker.name)
        on_progress(f"reading {len(held)} workers at index {index}")
        with ThreadPoolExecutor(len(held)) as pool:
            for each, found in zip(held, pool.map(digest, streams), strict=True):
                each.digest = found
    return ContentComparison(index, held, _compare_digests(held))


def _stable_index(masters: dict[str, list[MasterClient]]) -> int:
    indexes = []
    for name, group in masters.items():
        found = []
        for master in group:
            with suppress(TxLogError):
                found.append(master.status().stable.index)
        if not found:
            raise Unavailable("NoMaster", f"no master of {name} answers")
        indexes.append(max(found))
    return max(indexes)


def _pause_all(
    held: list[PausedWorker], masters: dict[str, list[MasterClient]], until: float, on_progress: Callable[[str], None]
) -> int:
    """Pause all workers at one index, and return it. A worker may pass the index before its pipeline receives the
    request. Then the next attempt is at the index that it has reached, which no paused worker passes."""
    index = _stable_index(masters)
    while True:
        on_progress(f"holding {len(held)} workers at index {index}")
        for each in held:
            pause_worker(each.masters, each.worker.name, index)
        passed = _wait_for_index(held, index, until)
        if passed <= index:
            return index
        index = passed


def _read_position(each: PausedWorker) -> MarkerPosition | None:
    """The marker in the worker itself; the masters' knowledge of it may be older."""
    adapter = ADAPTERS[each.worker.engine or "oxigraph"]
    with each.open_transport(each.worker.url, WORKER_TIMEOUT_S) as transport:
        markers = read_system_graphs(adapter, transport).markers
    return markers[0] if len(markers) == 1 else None


def _wait_for_index(held: list[PausedWorker], index: int, until: float) -> int:
    """Return the highest index seen, once every worker is at ``index`` or one has passed it."""
    while True:
        highest = 0
        late = None
        for each in held:
            each.position = _read_position(each)
            at = each.position.position.index if each.position else 0
            highest = max(highest, at)
            if at != index:
                late = f"{each.worker.name} is at {at}"
        if late is None or highest > index:
            return highest
        if time.monotonic() > until:
            raise NotHeld(f"not every worker came to index {index} in time: {late}; see txlog worker list")
        time.sleep(POLL_INTERVAL_S)


def _open_snapshot(each: PausedWorker, index: int, until: float, closing: ExitStack) -> Iterator[bytes]:
    """A snapshot taken while the worker was paused at ``index``; ends the pause."""
    adapter = ADAPTERS[each.worker.engine or "oxigraph"]
    transport = closing.enter_context(each.open_transport(each.worker.url, SNAPSHOT_TIMEOUT_S))
    chunks = closing.enter_context(stream_statements(adapter, transport))
    after = _read_position(each)
    if after is None or each.position is None or after.position.index != index:
        raise NotHeld(f"{each.worker.name} moved on from index {index} although it was held; try again")
    each.position = after
    resume_worker(each.masters, each.worker.name)
    return chunks


def _compare_digests(held: list[PausedWorker]) -> bool:
    first: dict[str, Digest] = {}
    equal = len({each.position.position.hash for each in held if each.position}) <= 1
    for each in held:
        assert each.digest is not None
        reference = first.setdefault(fingerprint_family(each.worker.engine), each.digest)
        each.differences = each.digest.differs_from(reference)
        equal = equal and not each.differences
    return equal
