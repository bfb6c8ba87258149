"""The process that holds a copy and evaluates on it.

The process itself executes what changes the copy. A forked child, which shares the copy's memory, executes what only
reads it. When the child is ended, for its time or its memory, the copy is unchanged, and the process answers the next
request. The process has one thread, so it may fork. The kernel bounds the time (``SIGALRM``, which no handler catches),
so that the limit also holds inside Oxigraph's code, which returns only when it is done. The kernel bounds the memory as
well (``RLIMIT_AS``: an allocation that fails ends the process that made it).
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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import IO, Any, Final, NoReturn

import msgspec
import pyoxigraph as ox

from txlog.evaluation.dataset_copy import DatasetCopy, load_copy
from txlog.evaluation.literal_forms import LiteralForms
from txlog.evaluation.pipe_protocol import (
    ERROR_FLAG,
    OK_FLAG,
    ApplyOperations,
    ChangeRequest,
    DatasetLoaded,
    EvaluateRequest,
    EvaluationFailure,
    EvaluationRequest,
    ExecuteUpdate,
    FingerprintRequest,
    LoadDataset,
    MatchRequest,
    QueryRequest,
    ReadRequest,
    ReplayRequest,
    encode_failure,
    memory_error,
    read_frame,
    timeout_error,
    write_frame,
)
from txlog.evaluation.read_operations import execute_query, match_quads, serialise_quads
from txlog.evaluation.transaction_replay import replay_steps
from txlog.model.errors import TxLogError, WorkerFault
from txlog.workers import ADAPTERS
from txlog.workers.adapter import EMPTY_MARKER, StoreOperation
from txlog.workers.chunk_stream import ChunkStream

OUT_OF_MEMORY_STATUS: Final = 3
"""Exit code of a process that got Python's ``MemoryError``."""
NICE_INCREMENT: Final = 5
"""Nice value: evaluation yields the CPU to the master."""
_PR_SET_PDEATHSIG: Final = 1
_libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
_request_decoder = msgspec.msgpack.Decoder(EvaluationRequest)
_encode: Final = msgspec.msgpack.Encoder().encode


def main(arguments: Sequence[str]) -> None:
    """Answer the requests from standard input on standard output, until the input ends."""
    bytes_max, parent = int(arguments[0]), int(arguments[1])
    _exit_with_parent(parent)
    for limit, most in ((resource.RLIMIT_AS, bytes_max), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(limit)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (least, least))
    os.nice(NICE_INCREMENT)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # where memory is short this process goes, not its master
    sink = os.fdopen(os.dup(1), "wb", 1 << 20)
    os.dup2(2, 1)  # printed text must not mix with the answers
    with contextlib.suppress(BrokenPipeError):
        serve(sys.stdin.buffer, sink)
    os._exit(0)


def _exit_with_parent(parent: int) -> None:
    """On Linux the kernel ends this process with its parent; elsewhere it ends at its next request or its time-out."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answer requests until the end of ``source``."""
    held = LoadedDataset()
    while (frame := read_frame(source)) is not None:
        asked = _request_decoder.decode(frame)
        work = asked.work
        if isinstance(work, ChangeRequest):
            signal.setitimer(signal.ITIMER_REAL, asked.seconds)
            try:
                answer = _run_and_encode(partial(held.apply_change, work, source))
            except MemoryError:
                os._exit(OUT_OF_MEMORY_STATUS)  # the copy is neither what it was nor what it shall be
            signal.setitimer(signal.ITIMER_REAL, 0)
            write_frame(sink, *answer)
        else:
            _run_in_child(held, work, asked.seconds, sink)


class LoadedDataset:
    """The copy of this process."""

    def __init__(self) -> None:
        self.copy = DatasetCopy((), EMPTY_MARKER.position)
        self.source_nquads = b""

    def apply_change(self, work: ChangeRequest, source: IO[bytes]) -> bytes:
        """Execute a change and return the answer. ``source``: the stream with the data of a :class:`LoadDataset`."""
        if isinstance(work, ApplyOperations):
            self.copy.apply_operations(
                [StoreOperation(kind, payload) for kind, payload in work.operations], work.position
            )
            return b""
        if isinstance(work, ExecuteUpdate):
            drawn = int.from_bytes(work.random_bits, "big")
            return self.copy.execute_update(work.update, lambda: drawn, work.bytes_max)
        frames = _data_frames(source)
        self.copy, self.source_nquads = DatasetCopy((), EMPTY_MARKER.position), b""  # never two at once
        try:
            position = self._load(work, io.BufferedReader(ChunkStream(frames), 64 << 10))
        except (SyntaxError, ValueError) as wrong:
            raise WorkerFault(f"its answer cannot be decoded: {str(wrong)[:300]}") from None
        finally:
            deque(frames, maxlen=0)  # the next request is behind all of them
        return _encode(DatasetLoaded(position))

    def _load(self, work: LoadDataset, data: IO[bytes]) -> Any:
        if work.engine:
            predicates = None if work.predicates is None else frozenset(work.predicates)
            self.copy, position = load_copy(ADAPTERS[work.engine], data, predicates)
            return position
        if work.keep_source:
            self.source_nquads = data.read()
        forms = LiteralForms() if work.as_written else None
        self.copy = _copy_from_nquads(self.source_nquads if work.keep_source else data, forms)
        return None

    def read(self, work: ReadRequest) -> bytes:
        """Answer a read request. Only in a forked child, which may discard its copy."""
        if isinstance(work, FingerprintRequest | ReplayRequest) and work.before_changes:
            forms = None if self.copy.forms is None else LiteralForms()
            self.copy = DatasetCopy((), EMPTY_MARKER.position)  # never two at once
            self.copy = _copy_from_nquads(self.source_nquads, forms)
        if isinstance(work, FingerprintRequest):
            return _encode(self.copy.fingerprint(work.predicates))
        if isinstance(work, ReplayRequest):
            return replay_steps(self.copy, work.steps)
        copy = self.copy
        if isinstance(work, EvaluateRequest):
            drawn = int.from_bytes(work.random_bits, "big")
            return _encode(copy.evaluate(work.update, lambda: drawn, work.bytes_max, work.quads_read_max))
        if isinstance(work, QueryRequest):
            return execute_query(copy, work)
        if isinstance(work, MatchRequest):
            found = match_quads(copy, work.terms, work.graphs)
            return copy.decode(serialise_quads(found, work.merged, work.bytes_max))
        return b"%d" % sum(1 for _ in match_quads(copy, (None, None, None), work.graphs))


def _copy_from_nquads(data: bytes | IO[bytes], forms: LiteralForms | None) -> DatasetCopy:
    return DatasetCopy(ox.parse(data, ox.RdfFormat.N_QUADS), EMPTY_MARKER.position, forms=forms)


def _run_and_encode(work: Callable[[], bytes]) -> tuple[bytes, bytes]:
    try:
        return OK_FLAG, work()
    except TxLogError as error:
        return ERROR_FLAG, _encode(encode_failure(error))
    except (RuntimeError, OSError, ValueError, TypeError, LookupError, AssertionError, AttributeError) as error:
        return ERROR_FLAG, _encode(
            EvaluationFailure("WorkerFault", f"the evaluation failed: {type(error).__name__}: {str(error)[:300]}")
        )


def _run_in_child(held: LoadedDataset, work: ReadRequest, seconds: float, sink: IO[bytes]) -> None:
    begun = mmap.mmap(-1, 1)
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        _child_main(held, work, seconds, sink, begun, parent)
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return
    if begun[0]:
        os._exit(1)  # half an answer was sent, so the parent could not find the start of the next one
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
    error = timeout_error() if late else memory_error()
    write_frame(sink, ERROR_FLAG, _encode(encode_failure(error)))


def _child_main(
    held: LoadedDataset, work: ReadRequest, seconds: float, sink: IO[bytes], begun: mmap.mmap, parent: int
) -> NoReturn:
    code = 1
    try:
        _exit_with_parent(parent)
        # A child that runs out of memory prints a traceback: it must not fill the master's log with one per query.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        answer = _run_and_encode(partial(held.read, work))
        signal.setitimer(signal.ITIMER_REAL, 0)
        begun[0] = 1
        write_frame(sink, *answer)
        code = 0
    except MemoryError:
        code = OUT_OF_MEMORY_STATUS
    finally:
        os._exit(code)


def _data_frames(source: IO[bytes]) -> Iterator[bytes]:
    """The frames after a :class:`LoadDataset`."""
    while frame := read_frame(source):
        yield frame
    if frame is None:
        os._exit(0)  # the master is gone
