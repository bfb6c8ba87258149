"""The processes that evaluate for this master (``txlog.evaluation``), and copies of the data in them.

A query that joins everything with everything takes all the time and memory there is, and nothing in this process could
stop it: so it runs in another one, which the kernel ends. Each copy has a process of its own, so that who asks too much
ends nobody else's. They are started when they are needed; one that has become free is kept for a while.
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
    FingerprintRequest,
    LoadDataset,
    ReadRequest,
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
"""A process that nobody needed for so long ends."""
REUSE_BYTES_MAX: Final = 4 << 20
"""Of the data that a process held: with more it is not kept, for what it has taken it does not give back."""
GRACE_S: Final = 5.0
"""Behind the time that a process has for its work. One that has not answered then does not work any more."""
PIECE_BYTES: Final = 64 << 10
_INHERITED_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME")
_encode: Final = msgspec.msgpack.Encoder().encode
_loaded_decoder: Final = msgspec.msgpack.Decoder(DatasetLoaded)
decode_fingerprint: Final = msgspec.msgpack.Decoder(DataFingerprint).decode
_effect_decoder: Final = msgspec.msgpack.Decoder(UpdateEffect)
_failure_decoder: Final = msgspec.msgpack.Decoder(EvaluationFailure)


class Evaluator:
    """One process with one copy. Its questions wait for each other."""

    def __init__(self, process: Process, seconds: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._killed = False
        self.bytes_received = 0
        """Bytes of data that it was given, of all that it was ever asked."""

    @classmethod
    async def start(cls, limits: Limits) -> Evaluator:
        """:class:`Unavailable` where the system starts no process."""
        # Nothing of the environment that is no business of it: this one reads what strangers send.
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
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    @property
    def is_usable(self) -> bool:
        """Whether it may be asked."""
        return not self._killed and not self.has_ended

    @property
    def is_busy(self) -> bool:
        return self._lock.locked()

    async def load(self, work: LoadDataset, data: AsyncIterator[bytes]) -> Position | None:
        """A copy of ``data``, and its place on the log. Whatever goes wrong on the way ends the process."""
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
        """What it answers. Raises what the work raises, and :class:`Unavailable` when it was ended for its time or its
        memory: the copy is still there if the process is. Whoever leaves before does not end it."""
        asking = asyncio.ensure_future(self._round_trip(work, min(seconds or self._seconds, self._seconds)))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return _unwrap_answer(await asyncio.shield(asking))

    async def _round_trip(self, work: ChangeRequest | ReadRequest, seconds: float) -> bytes:
        async with self._lock:
            try:
                if isinstance(work, ApplyOperations):
                    self.bytes_received += sum(len(payload) for _, payload in work.operations)
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
        """Why the process is gone."""
        self.kill()
        code = await self._process.wait()
        return timeout_error() if code == -signal.SIGALRM else memory_error()

    def kill(self) -> None:
        """The process and its fork end now. Nothing when they have."""
        self._killed = True
        if not self.has_ended:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._stdin.close()

    async def wait(self) -> None:
        """Until it has ended."""
        await self._process.wait()


def _unwrap_answer(answer: bytes) -> bytes:
    if answer[:1] == OK_FLAG:
        return answer[1:]
    raise decode_failure(_failure_decoder.decode(answer[1:]))


class EvaluatorPool:
    """All of a master's."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spare: Evaluator | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._all: list[Evaluator] = []
        self._closed = False

    async def acquire(self) -> Evaluator:
        """One that nobody else has, until it is given back."""
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
        """Nobody asks it any more."""
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
        """All end."""
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for each in self._all:
            each.kill()
        for each in self._all:
            await each.wait()


class RemoteCopy:
    """A copy of the data at one position of the log, in a process: what an update is evaluated on. ``predicates``: of
    the quads that it holds, None for all."""

    def __init__(self, evaluator: Evaluator, position: Position, predicates: frozenset[str] | None) -> None:
        self.evaluator = evaluator
        self.position = position
        self.predicates = predicates

    def covers(self, looks_at: Sequence[str] | None) -> bool:
        """Whether it holds all that such an update looks at."""
        return self.predicates is None or (looks_at is not None and self.predicates.issuperset(looks_at))

    async def apply_operations(self, operations: Sequence[StoreOperation], position: Position) -> None:
        """Carry out what follows in the log, up to ``position``. :class:`Unavailable` when it cannot be, with
        :data:`txlog.evaluation.dataset_copy.PARTIAL_COPY` when it holds too little for that."""
        await self.evaluator.execute(ApplyOperations(tuple((each.kind, each.payload) for each in operations), position))
        self.position = position

    async def fingerprint(self, looks_at: tuple[str, ...] | None) -> DataFingerprint:
        """Of the quads with these predicates, or of all."""
        return decode_fingerprint(await self.evaluator.execute(FingerprintRequest(looks_at)))

    async def evaluate(self, update: EvaluatedUpdate, draw: RandomBits, bytes_max: int) -> UpdateEffect:
        """As :meth:`txlog.evaluation.dataset_copy.DatasetCopy.evaluate`."""
        drawn = draw().to_bytes(16, "big")
        return _effect_decoder.decode(
            await self.evaluator.execute(EvaluateRequest(update, drawn, bytes_max, QUADS_READ_MAX))
        )
