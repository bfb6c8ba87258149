"""The process that holds a copy and evaluates on it.

What changes the copy is done by the process itself. What only looks is done by a fork of it, which shares the copy's
memory: when that one is ended, for its time or its memory, the copy is as it was, and the next question is answered.
The process has one thread, so it may fork. Time is kept by the kernel (``SIGALRM``, which nobody catches), so that it
counts in the middle of Oxigraph's code, which gives control back when it is done and not before; so is memory
(``RLIMIT_AS``: an allocation that fails ends whoever wanted it).
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import mmap
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

import msgspec
import pyoxigraph as ox

from txlog.evaluation.copy import Copy, copied
from txlog.evaluation.frames import (
    DONE,
    FAILED,
    Asked,
    Change,
    Evaluate,
    Failure,
    Follow,
    Load,
    Loaded,
    Look,
    Matching,
    Query,
    SumsOf,
    failure_of,
    out_of_memory,
    out_of_time,
    read_frame,
    write_frame,
)
from txlog.evaluation.looking import answered, matching, written
from txlog.model.errors import TxLogError, WorkerFault
from txlog.workers import ADAPTERS
from txlog.workers.base import NOTHING, Operation

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

NO_MEMORY: Final = 3
"""Exit code of whoever met Python's ``MemoryError``."""
NICER: Final = 5
"""Whoever evaluates gives way to the master beside it."""
_PR_SET_PDEATHSIG: Final = 1
_libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
_asked = msgspec.msgpack.Decoder(Asked)
_encode: Final = msgspec.msgpack.Encoder().encode


def main(arguments: Sequence[str]) -> None:
    """Answer on standard output what is asked on standard input, to its end."""
    bytes_max, parent = int(arguments[0]), int(arguments[1])
    _die_with(parent)
    for limit, most in ((resource.RLIMIT_AS, bytes_max), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(limit)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (least, least))
    os.nice(NICER)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # where memory is short this process goes, not its master
    sink = os.fdopen(os.dup(1), "wb", 1 << 20)
    os.dup2(2, 1)  # what somebody prints is no answer
    with contextlib.suppress(BrokenPipeError):
        serve(sys.stdin.buffer, sink)
    os._exit(0)


def _die_with(parent: int) -> None:
    """On Linux the kernel ends this process with that one; elsewhere it ends at its next question, or at its time."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Until the end of ``source``."""
    held = Held()
    while (frame := read_frame(source)) is not None:
        asked = _asked.decode(frame)
        work = asked.work
        if isinstance(work, Load | Follow):
            signal.setitimer(signal.ITIMER_REAL, asked.seconds)
            try:
                answer = _told(partial(held.change, work, source))
            except MemoryError:
                os._exit(NO_MEMORY)  # the copy is neither what it was nor what it shall be
            signal.setitimer(signal.ITIMER_REAL, 0)
            write_frame(sink, *answer)
        else:
            _in_a_fork(held, work, asked.seconds, sink)


class Held:
    """The copy of this process."""

    def __init__(self) -> None:
        self.copy = Copy((), NOTHING.position)
        self.before = b""

    def change(self, work: Change, source: IO[bytes]) -> bytes:
        """``source``: where the data of a :class:`Load` comes from."""
        if isinstance(work, Follow):
            self.copy.follow([Operation(kind, payload) for kind, payload in work.operations], work.position)
            return b""
        data = _Data(source)
        self.copy, self.before = Copy((), NOTHING.position), b""  # never two at once
        try:
            position = self._loaded(work, io.BufferedReader(data, 64 << 10))
        except (SyntaxError, ValueError) as wrong:
            raise WorkerFault(f"it answered what nobody can read: {str(wrong)[:300]}") from None
        finally:
            data.drain()
        return _encode(Loaded(position))

    def _loaded(self, work: Load, data: IO[bytes]) -> Any:
        if work.engine:
            predicates = None if work.predicates is None else frozenset(work.predicates)
            self.copy, position = copied(ADAPTERS[work.engine], data, predicates)
            return position
        if work.keep:
            self.before = data.read()
        self.copy = _of_nquads(self.before if work.keep else data)
        return None

    def look(self, work: Look) -> bytes:
        """Only in a fork, which may do away with what it holds."""
        if isinstance(work, SumsOf):
            if work.before:
                self.copy = Copy((), NOTHING.position)  # never two at once
                self.copy = _of_nquads(self.before)
            return _encode(self.copy.sums(work.looks_at))
        copy, store = self.copy, self.copy.store
        if isinstance(work, Evaluate):
            drawn = int.from_bytes(work.drawn, "big")
            return _encode(copy.evaluate(work.update, lambda: drawn, work.bytes_max, work.looks_max))
        if isinstance(work, Query):
            return answered(store, work)
        if isinstance(work, Matching):
            return written(matching(store, work.terms, work.graphs), work.merged, work.bytes_max)
        return b"%d" % sum(1 for _ in matching(store, (None, None, None), work.graphs))


def _of_nquads(data: bytes | IO[bytes]) -> Copy:
    return Copy(ox.parse(data, ox.RdfFormat.N_QUADS), NOTHING.position)


def _told(work: Callable[[], bytes]) -> tuple[bytes, bytes]:
    try:
        return DONE, work()
    except TxLogError as error:
        return FAILED, _encode(failure_of(error))
    except (RuntimeError, OSError, ValueError, TypeError, LookupError, AssertionError, AttributeError) as error:
        return FAILED, _encode(
            Failure("WorkerFault", f"the evaluation failed: {type(error).__name__}: {str(error)[:300]}")
        )


def _in_a_fork(held: Held, work: Look, seconds: float, sink: IO[bytes]) -> None:
    begun = mmap.mmap(-1, 1)
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        _fork(held, work, seconds, sink, begun, parent)
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return
    if begun[0]:
        os._exit(1)  # half an answer is out: nobody would know where the next one begins
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
    error = out_of_time() if late else out_of_memory()
    write_frame(sink, FAILED, _encode(failure_of(error)))


def _fork(held: Held, work: Look, seconds: float, sink: IO[bytes], begun: mmap.mmap, parent: int) -> NoReturn:
    code = 1
    try:
        _die_with(parent)
        # Whoever runs out of memory says so with all that it was doing: not for the master's log, for each such query.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        answer = _told(partial(held.look, work))
        signal.setitimer(signal.ITIMER_REAL, 0)
        begun[0] = 1
        write_frame(sink, *answer)
        code = 0
    except MemoryError:
        code = NO_MEMORY
    finally:
        os._exit(code)


class _Data(io.RawIOBase):
    """The frames behind a :class:`Load`, as one stream."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._rest = memoryview(b"")
        self._over = False

    def readable(self) -> bool:
        return True

    def _next(self) -> bytes:
        frame = b"" if self._over else read_frame(self._source)
        if frame is None:
            os._exit(0)  # the master is gone
        self._over = not frame
        return frame

    def readinto(self, into: WriteableBuffer, /) -> int:
        if not self._rest:
            self._rest = memoryview(self._next())
        view = memoryview(into).cast("B")
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def drain(self) -> None:
        while not self._over:
            self._next()
