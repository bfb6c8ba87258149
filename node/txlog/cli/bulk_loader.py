"""``txlog load``: chunks of a file over all masters at once, each exactly once.

Every chunk has an Idempotency-Key made of the file's hash and its number. So a chunk with an unknown outcome is sent
again to any master, and the same command continues a load that was interrupted.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import ClassVar, Final

from txlog.cli.rdf_chunks import RdfChunk, RdfSource, read_chunks
from txlog.client import MasterClient, MasterUnreachable, WriteRequest
from txlog.model.durability import Durability
from txlog.model.errors import BadInput, Refused, TxLogError, Unavailable

CHUNKS_PER_REQUEST: Final = 16
"""Chunks in one request: enough for the master to make one run of them, few enough to be sent again."""
RETRY_DELAY_S: Final = 0.5


@dataclass
class LoadProgress:
    """What is done. ``offset`` is in bytes of the file; ``resent`` counts chunks that were sent again."""

    transactions: int = 0
    quads: int = 0
    offset: int = 0
    resent: int = 0
    by_master: dict[str, int] = field(default_factory=dict)


class LoadStopped(Refused):
    """No master took anything for too long. What was loaded stays."""

    status = 503
    reason: ClassVar[str] = "NoMaster"


class BulkLoader:
    """One file over several masters. ``patience_s``: how long without any progress before it gives up."""

    def __init__(
        self,
        masters: Sequence[str],
        *,
        quads: int = 1000,
        durability: Durability = Durability.SYNCED,
        graph: str | None = None,
        patience_s: float = 60.0,
        connect: Callable[[str], MasterClient] = MasterClient,
    ) -> None:
        assert masters, "at least one master"
        self._masters = masters
        self._quads = quads
        self._durability = durability
        self._graph = graph
        self._patience_s = patience_s
        self._connect = connect
        self._lock = threading.Lock()

    def load(self, source: RdfSource, on_progress: Callable[[LoadProgress], None] = lambda _: None) -> LoadProgress:
        """Returns when every chunk has reached its durability. ``on_progress`` runs in this thread.

        :class:`BadInput` for what is not RDF (what was loaded before it stays), :class:`LoadStopped`, or a master's
        own refusal."""
        self._source = source
        self._progress = LoadProgress(by_master=dict.fromkeys(self._masters, 0))
        self._last_progress_at = time.monotonic()
        self._failure: BaseException | None = None
        self._stop_event = threading.Event()
        self._last_error = ""
        self._group_queue: queue.SimpleQueue[list[RdfChunk]] = queue.SimpleQueue()
        self._slots = threading.Semaphore(2 * len(self._masters))
        self._groups_in_flight = 0
        self._all_read = False
        reader = threading.Thread(target=self._read_groups, name="txlog-load-read", daemon=True)
        senders = [
            threading.Thread(target=self._send_loop, args=(url,), name=url, daemon=True) for url in self._masters
        ]
        for thread in (reader, *senders):
            thread.start()
        try:
            while not self._stop_event.wait(0.1):
                on_progress(self._progress)
                if time.monotonic() - self._last_progress_at > self._patience_s:
                    raise LoadStopped(
                        f"no master took anything for {self._patience_s:g} s ({self._last_error or 'no answer'}); "
                        "the same command continues where this one stopped"
                    )
        finally:
            self._stop_event.set()
        if self._failure is not None:
            raise self._failure
        on_progress(self._progress)
        return self._progress

    def idempotency_key(self, source: RdfSource, chunk: RdfChunk) -> str:
        """The Idempotency-Key: other chunk sizes or another graph are other transactions."""
        graph = "." + blake2b(self._graph.encode(), digest_size=8).hexdigest() if self._graph else ""
        return f"load.{source.digest}.{self._quads}.{chunk.number}{graph}"

    # -- threads

    def _read_groups(self) -> None:
        try:
            for group in _group_chunks(read_chunks(self._source, self._quads, self._graph)):
                while not self._slots.acquire(timeout=0.2):
                    if self._stop_event.is_set():
                        return
                with self._lock:
                    self._groups_in_flight += 1
                self._group_queue.put(group)
        except Exception as error:  # noqa: BLE001 - raised to the caller of load()
            self._fail(error)
        with self._lock:
            self._all_read = True
            self._end_when_done()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
        self._stop_event.set()

    def _end_when_done(self) -> None:
        if self._all_read and self._groups_in_flight == 0:
            self._stop_event.set()

    def _send_loop(self, url: str) -> None:
        client = self._connect(url)
        while not self._stop_event.is_set():
            try:
                group = self._group_queue.get(timeout=0.1)
            except queue.Empty:
                continue
            left, pause = self._send_group(client, url, group)
            if left:
                self._group_queue.put(left)  # another master may be quicker than this one's recovery
                self._stop_event.wait(pause)
            else:
                self._slots.release()
                with self._lock:
                    self._groups_in_flight -= 1
                    self._end_when_done()
        client.close()

    def _send_group(self, client: MasterClient, url: str, group: list[RdfChunk]) -> tuple[list[RdfChunk], float]:
        """Send a group; what is left of it, and how long to let this master be."""
        left = list(group)
        writes = [WriteRequest(quads=chunk.text, key=self.idempotency_key(self._source, chunk)) for chunk in group]
        try:
            for chunk, written in zip(group, client.submit(writes, self._durability), strict=False):
                if written.error in ("Unavailable", "JournalFull"):
                    self._last_error = f"{url}: {written.message}"
                    continue
                if written.error:
                    where = f"{self._source.name}:{chunk.line}" if chunk.line else self._source.name
                    self._fail(BadInput(f"chunk {chunk.number} ({where} and after): {written.message}"))
                    return [], 0.0
                left.remove(chunk)
                self._chunk_done(url, chunk)
        except (MasterUnreachable, Unavailable) as error:
            self._last_error = str(error)
        except TxLogError as error:
            self._fail(error)
            return [], 0.0
        if left:
            with self._lock:
                self._progress.resent += len(left)
        return left, RETRY_DELAY_S

    def _chunk_done(self, url: str, chunk: RdfChunk) -> None:
        with self._lock:
            progress = self._progress
            progress.transactions += 1
            progress.quads += chunk.quads
            progress.offset = max(progress.offset, chunk.offset)
            progress.by_master[url] += 1
            self._last_progress_at = time.monotonic()


def _group_chunks(chunks: Iterator[RdfChunk]) -> Iterator[list[RdfChunk]]:
    group: list[RdfChunk] = []
    size = 0
    for chunk in chunks:
        group.append(chunk)
        size += len(chunk.text)
        if len(group) >= CHUNKS_PER_REQUEST or size >= 4 << 20:
            yield group
            group, size = [], 0
    if group:
        yield group
