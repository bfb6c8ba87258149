"""A log that a test writes, a clock that it moves, and ways to lose requests."""

from __future__ import annotations

from collections.abc import Collection

from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE, LogEntry, Position
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.ids import Origin, Txid
from txlog.workers.adapter import RequestOutcome, Unreachable, WorkerRequest, WorkerResponse
from txlog.workers.http_transport import HttpTransport

ORIGIN = Origin("uk-1", 7)

COUNT = (
    "DELETE { <urn:counter> <urn:value> ?old } INSERT { <urn:counter> <urn:value> ?new } "
    "WHERE { <urn:counter> <urn:value> ?old BIND(?old + 1 AS ?new) }"
)
"""Wrong when it is carried out twice, or not at all."""


class MemoryLog:
    def __init__(self, cluster: bytes = b"a cluster") -> None:
        self.entries: list[LogEntry] = []
        self.hashes = [chain_start(cluster)]
        self.kept_from = 0
        """Entries up to this index were trimmed."""
        self.asked = 0

    def append(self, kind: int, payload: bytes, noop: str = "") -> LogEntry:
        index = len(self.entries) + 1
        content = content_hash(kind, "", payload)
        self.hashes.append(chain_hash(self.hashes[-1], index << 16, origin_tag(ORIGIN), index, content))
        entry = LogEntry(index, self.hashes[-1], Txid(ORIGIN, index), index << 16, kind, payload, noop)
        self.entries.append(entry)
        return entry

    def update(self, text: str, noop: str = "") -> LogEntry:
        return self.append(KIND_UPDATE, text.encode(), noop)

    def add(self, *quads: str) -> LogEntry:
        return self.append(KIND_QUADS, "".join(f"A {quad}\n" for quad in quads).encode())

    def delete(self, *quads: str) -> LogEntry:
        return self.append(KIND_QUADS, "".join(f"D {quad}\n" for quad in quads).encode())

    def skip(self, txid: Txid) -> LogEntry:
        return self.append(KIND_SKIP, str(txid).encode(), "skip")

    @property
    def end(self) -> int:
        return len(self.entries)

    def position(self, index: int) -> Position:
        return Position(0, index, self.hashes[index])

    def page(self, after: Position | None, upto: int, max_bytes: int, unordered: object = ()) -> list[LogEntry]:
        self.asked += 1
        index = 0 if after is None else after.index
        if index > self.end:
            raise LogAhead(f"index {index} is above {self.end}")
        if index < self.kept_from:
            raise LogNeedsRestore(f"index {index} is below {self.kept_from}")
        if after is not None and after.hash != self.hashes[index]:
            raise LogDiverged(f"another hash at index {index}")
        page: list[LogEntry] = []
        size = 0
        for entry in self.entries[index:upto]:
            size += len(entry.payload)
            if page and size > max_bytes:
                break
            page.append(entry)
        return page


class ManualClock:
    """Time passes only where somebody sleeps, or the test says so."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class LossyTransport:
    """Loses the answer to chosen update requests, counted from 1; those in ``late`` are not even delivered yet.
    ``update_path``: where the store takes updates."""

    def __init__(
        self,
        url: str,
        *,
        answer_lost: Collection[int] = (),
        late: Collection[int] = (),
        update_path: str = "/update",
    ) -> None:
        self._http = HttpTransport(url)
        self.url = url
        self.update_path = update_path
        self.answer_lost, self.late = answer_lost, late
        self.updates = 0
        self.waiting: list[WorkerRequest] = []
        self.sent: list[WorkerRequest] = []

    def send(self, request: WorkerRequest) -> WorkerResponse:
        self.sent.append(request)
        if request.path != self.update_path:
            return self._http.send(request)
        self.updates += 1
        if self.updates in self.late:
            self.waiting.append(request)
            raise Unreachable(self.url, "no answer", RequestOutcome.UNKNOWN)
        answer = self._http.send(request)
        if self.updates in self.answer_lost:
            raise Unreachable(self.url, "no answer", RequestOutcome.UNKNOWN)
        return answer

    def settled(self) -> bool:
        return not self.waiting

    def deliver(self) -> list[int]:
        """What was late arrives at last; the statuses that nobody hears."""
        waiting, self.waiting = self.waiting, []
        return [self._http.send(request).status for request in waiting]
