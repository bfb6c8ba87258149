"""``txlog load``: chunks of a file over all masters at once, each exactly once.

Every chunk has an Idempotency-Key made of the file's hash and its number. So a chunk whose fate is unknown is sent
again, to whichever master answers, and a load that was interrupted is taken up by the same command.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from txlog.cli.reading import Chunk, Source, read_chunks
from txlog.client import MasterClient, MasterUnreachable, WriteRequest
from txlog.model.durability import Durability
from txlog.model.errors import BadInput, TxLogError, Unavailable

GROUP: Final = 16
"""Chunks in one request: enough for the door to make one run of them, few enough to be sent again."""
RETRY_S: Final = 0.5


@dataclass
class Progress:
    """What is done. ``offset`` is in bytes of the file; ``repeats`` counts chunks that were sent again."""

    transactions: int = 0
    quads: int = 0
    offset: int = 0
    repeats: int = 0
    by_master: dict[str, int] = field(default_factory=dict)


class LoadStopped(Unavailable):
    """No master took anything for too long. What was loaded stays."""

    def __init__(self, message: str) -> None:
        super().__init__("NoMaster", message)


class Loader:
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

    def load(self, source: Source, told: Callable[[Progress], None] = lambda _: None) -> Progress:
        """Returns when every chunk has reached its durability. ``told`` hears of progress, in this thread.

        :class:`BadInput` for what is not RDF (what was loaded before it stays), :class:`LoadStopped`, or a master's
        own refusal."""
        self._source = source
        self._progress = Progress(by_master=dict.fromkeys(self._masters, 0))
        self._last = time.monotonic()
        self._failure: BaseException | None = None
        self._over = threading.Event()
        self._why = ""
        self._waiting: queue.SimpleQueue[list[Chunk]] = queue.SimpleQueue()
        self._room = threading.Semaphore(2 * len(self._masters))
        self._open = 0
        self._all_read = False
        reader = threading.Thread(target=self._read, name="txlog-load-read", daemon=True)
        senders = [threading.Thread(target=self._send, args=(url,), name=url, daemon=True) for url in self._masters]
        for thread in (reader, *senders):
            thread.start()
        try:
            while not self._over.wait(0.1):
                told(self._progress)
                if time.monotonic() - self._last > self._patience_s:
                    raise LoadStopped(
                        f"no master took anything for {self._patience_s:g} s ({self._why or 'no answer'}); "
                        "the same command goes on where this one stopped"
                    )
        finally:
            self._over.set()
        if self._failure is not None:
            raise self._failure
        told(self._progress)
        return self._progress

    def key_of(self, source: Source, chunk: Chunk) -> str:
        """The Idempotency-Key: other chunk sizes or another graph are other transactions."""
        graph = "." + blake2b(self._graph.encode(), digest_size=8).hexdigest() if self._graph else ""
        return f"load.{source.digest}.{self._quads}.{chunk.number}{graph}"

    # -- threads

    def _read(self) -> None:
        try:
            for group in _groups(read_chunks(self._source, self._quads, self._graph)):
                while not self._room.acquire(timeout=0.2):
                    if self._over.is_set():
                        return
                with self._lock:
                    self._open += 1
                self._waiting.put(group)
        except Exception as error:  # noqa: BLE001 - raised to the caller of load()
            self._fail(error)
        with self._lock:
            self._all_read = True
            self._end_when_done()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
        self._over.set()

    def _end_when_done(self) -> None:
        if self._all_read and self._open == 0:
            self._over.set()

    def _send(self, url: str) -> None:
        client = self._connect(url)
        while not self._over.is_set():
            try:
                group = self._waiting.get(timeout=0.1)
            except queue.Empty:
                continue
            left, pause = self._try(client, url, group)
            if left:
                self._waiting.put(left)  # another master may be quicker than this one's recovery
                self._over.wait(pause)
            else:
                self._room.release()
                with self._lock:
                    self._open -= 1
                    self._end_when_done()
        client.close()

    def _try(self, client: MasterClient, url: str, group: list[Chunk]) -> tuple[list[Chunk], float]:
        """Send a group; what is left of it, and how long to let this master be."""
        left = list(group)
        writes = [WriteRequest(quads=chunk.text, key=self.key_of(self._source, chunk)) for chunk in group]
        try:
            for chunk, written in zip(group, client.submit(writes, self._durability), strict=False):
                if written.error in ("Unavailable", "JournalFull"):
                    self._why = f"{url}: {written.message}"
                    continue
                if written.error:
                    where = f"{self._source.name}:{chunk.line}" if chunk.line else self._source.name
                    self._fail(BadInput(f"chunk {chunk.number} ({where} and after): {written.message}"))
                    return [], 0.0
                left.remove(chunk)
                self._done(url, chunk)
        except (MasterUnreachable, Unavailable) as error:
            self._why = str(error)
        except TxLogError as error:
            self._fail(error)
            return [], 0.0
        if left:
            with self._lock:
                self._progress.repeats += len(left)
        return left, RETRY_S

    def _done(self, url: str, chunk: Chunk) -> None:
        with self._lock:
            progress = self._progress
            progress.transactions += 1
            progress.quads += chunk.quads
            progress.offset = max(progress.offset, chunk.offset)
            progress.by_master[url] += 1
            self._last = time.monotonic()


def _groups(chunks: Iterator[Chunk]) -> Iterator[list[Chunk]]:
    group: list[Chunk] = []
    size = 0
    for chunk in chunks:
        group.append(chunk)
        size += len(chunk.text)
        if len(group) >= GROUP or size >= 4 << 20:
            yield group
            group, size = [], 0
    if group:
        yield group
