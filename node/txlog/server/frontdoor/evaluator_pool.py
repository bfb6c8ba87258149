"""The processes that evaluate for this master (``txlog.evaluation``), each with a copy of the data.

A query that joins everything with everything takes all available time and memory, and no code in this process could
stop it. It therefore runs in another process, which the kernel ends. Each copy has a process of its own, so that a
query that takes too much ends no other client's work. Processes start on demand; an idle one is kept for a while.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from txlog.config.process_config import Limits
from txlog.evaluation.dataset_copy import QUADS_READ_MAX, UpdateEffect
from txlog.evaluation.pipe_protocol import (
    FRAME_LENGTH,
    OK_FLAG,
    RETRY_S,
    ApplyOperations,
    ChangeRequest,
    DatasetLoaded,
    EvaluateRequest,
    EvaluationFailure,
    EvaluationRequest,
    ExecuteUpdate,
    FingerprintRequest,
    LoadDataset,
    ReadRequest,
    ReplayRequest,
    TransactionStep,
    decode_failure,
    memory_error,
    timeout_error,
)
from txlog.model.entry import Position
from txlog.model.errors import Unavailable
from txlog.native.finder import SOURCE_ROOT
from txlog.server.frontdoor.stream_converter import closing_stream
from txlog.sparql import DataFingerprint, EvaluatedUpdate, RandomBits
from txlog.workers.adapter import StoreOperation

SPARE_IDLE_S: Final = 60.0
"""Seconds after which an idle process ends."""
REUSE_BYTES_MAX: Final = 4 << 20
"""Maximum data, in bytes, that a reusable process has held. A process with more is ended, because it does not return
its memory."""
GRACE_S: Final = 5.0
"""Seconds after a process's own time limit; a process without an answer by then no longer works."""
PIECE_BYTES: Final = 64 << 10
_INHERITED_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME")
_encode: Final = msgspec.msgpack.Encoder().encode
_loaded_decoder: Final = msgspec.msgpack.Decoder(DatasetLoaded)
decode_fingerprint: Final = msgspec.msgpack.Decoder(DataFingerprint).decode
_effect_decoder: Final = msgspec.msgpack.Decoder(UpdateEffect)
_failure_decoder: Final = msgspec.msgpack.Decoder(EvaluationFailure)


class Evaluator:
    """One process with one copy. Its requests run one after another."""

    def __init__(self, process: Process, seconds: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._killed = False
        self.bytes_received = 0
        """Bytes of data that the process has received over all its requests."""

    @classmethod
    async def start(cls, limits: Limits) -> Evaluator:
        """Starts a process; :class:`Unavailable` if the system starts none."""
        # The process gets no unneeded environment variable, because it reads input from untrusted clients.
        path = os.pathsep.join(filter(None, (str(SOURCE_ROOT), os.environ.get("PYTHONPATH"))))
        environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ} | {
            "PYTHONPATH": path
        }
        command = (sys.executable, "-P", "-m", "txlog.evaluation", str(limits.evaluation_bytes), str(os.getpid()))
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, env=environment, start_new_session=True, limit=PIECE_BYTES
            )
        except OSError as wrong:
            raise Unavailable("NoEvaluator", f"no process to evaluate in can be started: {wrong}", RETRY_S) from None
        return cls(process, limits.evaluation_s)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.returncode is not None

    @property
    def is_usable(self) -> bool:
        """Whether the process accepts requests."""
        return not self._killed and not self.has_ended

    @property
    def is_busy(self) -> bool:
        """Whether a request is running."""
        return self._lock.locked()

    async def load(self, work: LoadDataset, data: AsyncIterator[bytes]) -> Position | None:
        """Loads a copy of ``data``; returns its position on the log. Any error on the way ends the process."""
        async with self._lock:
            try:
                self._write_frame(_encode(EvaluationRequest(0, work)))
                async with closing_stream(data):
                    async for piece in data:
                        for at in range(0, len(piece), PIECE_BYTES):
                            self._write_frame(piece[at : at + PIECE_BYTES])
                        self.bytes_received += len(piece)
                        await self._stdin.drain()
                self._write_frame(b"")
                answer = await self._read_answer(self._seconds)
            except ConnectionError:
                raise await self._termination_error() from None
            except BaseException:
                self.kill()
                raise
            return _loaded_decoder.decode(_unwrap_answer(answer)).position

    async def execute(self, work: ChangeRequest | ReadRequest, seconds: float | None = None) -> bytes:
        """Executes a request and returns its answer. Raises the errors of the work, and :class:`Unavailable` if the
        process was ended for its time or its memory. The copy still exists if the process does. A caller that is
        cancelled does not end the process."""
        asking = asyncio.ensure_future(self._round_trip(work, min(seconds or self._seconds, self._seconds)))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return _unwrap_answer(await asyncio.shield(asking))

    async def _round_trip(self, work: ChangeRequest | ReadRequest, seconds: float) -> bytes:
        async with self._lock:
            try:
                if isinstance(work, ApplyOperations):
                    self.bytes_received += sum(len(payload) for _, payload in work.operations)
                elif isinstance(work, ExecuteUpdate):
                    self.bytes_received += len(work.update.text)
                self._write_frame(_encode(EvaluationRequest(seconds, work)))
                await self._stdin.drain()
                return await self._read_answer(seconds)
            except ConnectionError:
                raise await self._termination_error() from None

    def _write_frame(self, frame: bytes) -> None:
        self._stdin.write(FRAME_LENGTH.pack(len(frame)))
        self._stdin.write(frame)

    async def _read_answer(self, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds + GRACE_S):
                (length,) = FRAME_LENGTH.unpack(await self._stdout.readexactly(FRAME_LENGTH.size))
                return await self._stdout.readexactly(length)
        except asyncio.IncompleteReadError:
            raise await self._termination_error() from None
        except TimeoutError:
            self.kill()
            raise timeout_error() from None

    async def _termination_error(self) -> Unavailable:
        """The reason why the process has ended."""
        self.kill()
        code = await self._process.wait()
        return timeout_error() if code == -signal.SIGALRM else memory_error()

    def kill(self) -> None:
        """Ends the process and its fork now. Does nothing if they have ended."""
        self._killed = True
        if not self.has_ended:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._stdin.close()

    async def wait(self) -> None:
        """Waits until the process has ended."""
        await self._process.wait()


def _unwrap_answer(answer: bytes) -> bytes:
    if answer[:1] == OK_FLAG:
        return answer[1:]
    raise decode_failure(_failure_decoder.decode(answer[1:]))


class EvaluatorPool:
    """All evaluator processes of a master."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spare: Evaluator | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._all: list[Evaluator] = []
        self._closed = False

    async def acquire(self) -> Evaluator:
        """A process for one caller only, until the caller releases it."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.is_usable:
            return spare
        if self._closed:
            raise Unavailable("Closing", "this master is stopping; ask another one")
        made = await Evaluator.start(self._limits)
        self._all = [each for each in self._all if not each.has_ended]
        self._all.append(made)
        return made

    def release(self, evaluator: Evaluator) -> None:
        """Takes a process back: its caller needs it no more."""
        busy = evaluator.is_busy or not evaluator.is_usable or evaluator.bytes_received > REUSE_BYTES_MAX
        if busy or self._spare is not None or self._closed:
            evaluator.kill()
            return
        self._spare = evaluator
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(SPARE_IDLE_S, self._kill_spare)

    def _kill_spare(self) -> None:
        if self._spare is not None:
            self._spare.kill()
            self._spare = None

    async def close(self) -> None:
        """Ends all processes."""
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for each in self._all:
            each.kill()
        for each in self._all:
            await each.wait()


class RemoteCopy:
    """A copy of the data at one position of the log, in a process; updates are evaluated on it. ``predicates``: those
    of the quads that it has, None for all quads."""

    def __init__(self, evaluator: Evaluator, position: Position, predicates: frozenset[str] | None) -> None:
        self.evaluator = evaluator
        self.position = position
        self.predicates = predicates

    def covers(self, looks_at: Sequence[str] | None) -> bool:
        """Whether the copy has all data that an update with these predicates reads."""
        return self.predicates is None or (looks_at is not None and self.predicates.issuperset(looks_at))

    async def apply_operations(self, operations: Sequence[StoreOperation], position: Position) -> None:
        """Applies the next entries of the log, up to ``position``. :class:`Unavailable` if that fails, with
        :data:`txlog.evaluation.dataset_copy.PARTIAL_COPY` if the copy has too little data for it."""
        await self.evaluator.execute(ApplyOperations(tuple((each.kind, each.payload) for each in operations), position))
        self.position = position

    async def fingerprint(self, looks_at: tuple[str, ...] | None) -> DataFingerprint:
        """The fingerprint of the quads with these predicates, or of all quads."""
        return decode_fingerprint(await self.evaluator.execute(FingerprintRequest(looks_at)))

    async def replay(self, steps: tuple[TransactionStep, ...]) -> bytes:
        """As :func:`txlog.evaluation.transaction_replay.replay_steps`; the copy stays as it is."""
        return await self.evaluator.execute(ReplayRequest(steps))

    async def evaluate(self, update: EvaluatedUpdate, draw: RandomBits, bytes_max: int) -> UpdateEffect:
        """As :meth:`txlog.evaluation.dataset_copy.DatasetCopy.evaluate`."""
        drawn = draw().to_bytes(16, "big")
        return _effect_decoder.decode(
            await self.evaluator.execute(EvaluateRequest(update, drawn, bytes_max, QUADS_READ_MAX))
        )
