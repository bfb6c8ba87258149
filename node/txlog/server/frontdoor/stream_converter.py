"""A converter that reads and writes files, in a thread, between two streams of the loop. It collects nothing."""

from __future__ import annotations

import asyncio
import io
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from enum import Enum
from typing import IO, TYPE_CHECKING, Final

from txlog.workers.chunk_stream import ChunkStream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

StreamConverter = Callable[[IO[bytes], IO[bytes]], None]
"""Reads the first file to its end and writes the second."""

THREADS: Final = 8
"""Concurrent conversions of each stage; the next one waits."""
PIECE_BYTES: Final = 64 << 10
PIECES_BUFFERED_MAX: Final = 4


class Stage(Enum):
    """Which conversion of one answer it is. Each stage has threads of its own: a last conversion waits for its first
    one, which could otherwise wait for the threads of last ones."""

    PREPARE = "prepare"
    LAST = "convert"


_pools: Final = {stage: ThreadPoolExecutor(THREADS, stage.value) for stage in Stage}


@asynccontextmanager
async def closing_stream(pieces: AsyncIterator[bytes]) -> AsyncIterator[None]:
    """Closes a stream when its reader stops, so that the converter's thread ends now and not at garbage collection."""
    try:
        yield
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


async def convert_stream(
    pieces: AsyncIterator[bytes], convert: StreamConverter, stage: Stage = Stage.LAST
) -> AsyncIterator[bytes]:
    """The output of ``convert`` for ``pieces``. Its errors, and those of ``pieces``, are raised after the output so
    far."""
    loop = asyncio.get_running_loop()
    made: asyncio.Queue[bytes | None] = asyncio.Queue(PIECES_BUFFERED_MAX)
    gone = False

    async def following() -> bytes:
        if gone:
            raise ConnectionResetError("the reader has left")
        async for piece in pieces:
            if piece:
                return piece
        return b""

    async def put(piece: bytes) -> None:
        if gone:
            raise ConnectionResetError("the reader has left")
        await made.put(piece)

    def work() -> None:
        arriving = iter(lambda: asyncio.run_coroutine_threadsafe(following(), loop).result(), b"")
        source = io.BufferedReader(ChunkStream(arriving))
        raw = _BlockingSink(lambda p: asyncio.run_coroutine_threadsafe(put(p), loop).result())
        sink = io.BufferedWriter(raw, PIECE_BYTES)
        try:
            convert(source, sink)
            sink.flush()
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # parsers must end in their own thread
            raise
        finally:
            # The rest of the buffer is flushed when it is collected, maybe by the loop itself: it must not wait.
            raw.discards = True

    working = loop.run_in_executor(_pools[stage], work)
    working.add_done_callback(lambda _: loop.create_task(made.put(None)))
    try:
        while (piece := await made.get()) is not None:
            yield piece
        await working
    finally:
        gone = True
        while not working.done():  # it notices at its next piece
            while not made.empty():
                made.get_nowait()
            await asyncio.wait((working,), timeout=0.02)
        while not made.empty():
            made.get_nowait()
        if not working.cancelled():
            working.exception()


class _BlockingSink(io.RawIOBase):
    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put
        self.discards = False

    def writable(self) -> bool:
        return True

    def write(self, piece: ReadableBuffer, /) -> int:
        data = bytes(piece)
        if data and not self.discards:
            self._put(data)
        return len(data)
