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

from txlog.config.process import Limits
from txlog.evaluation.copy import LOOKS_MAX, Effect
from txlog.evaluation.frames import (
    DONE,
    LENGTH,
    RETRY_S,
    Asked,
    Change,
    Evaluate,
    Failure,
    Follow,
    Load,
    Loaded,
    Look,
    SumsOf,
    error_of,
    out_of_memory,
    out_of_time,
)
from txlog.model.entry import Position
from txlog.model.errors import Unavailable
from txlog.native.finder import ROOT
from txlog.server.frontdoor.through import ending
from txlog.sparql import Draw, Evaluated, Sums
from txlog.workers.base import Operation

IDLE_S: Final = 60.0
"""A process that nobody needed for so long ends."""
KEPT_BYTES: Final = 4 << 20
"""Of the data that a process held: with more it is not kept, for what it has taken it does not give back."""
GRACE_S: Final = 5.0
"""Behind the time that a process has for its work. One that has not answered then does not work any more."""
PIECE_BYTES: Final = 64 << 10
_PASSED: Final = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME")
_encode: Final = msgspec.msgpack.Encoder().encode
_loaded: Final = msgspec.msgpack.Decoder(Loaded)
read_sums: Final = msgspec.msgpack.Decoder(Sums).decode
_effect: Final = msgspec.msgpack.Decoder(Effect)
_failure: Final = msgspec.msgpack.Decoder(Failure)


class Evaluator:
    """One process with one copy. Its questions wait for each other."""

    def __init__(self, process: Process, seconds: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._to, self._from = process.stdin, process.stdout
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._killed = False
        self.taken = 0
        """Bytes of data that it was given, of all that it was ever asked."""

    @classmethod
    async def start(cls, limits: Limits) -> Evaluator:
        """:class:`Unavailable` where the system starts no process."""
        # Nothing of the environment that is no business of it: this one reads what strangers send.
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {name: os.environ[name] for name in _PASSED if name in os.environ} | {"PYTHONPATH": path}
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
    def is_there(self) -> bool:
        """Whether it may be asked."""
        return not self._killed and not self.has_ended

    @property
    def is_busy(self) -> bool:
        return self._turn.locked()

    async def load(self, work: Load, data: AsyncIterator[bytes]) -> Position | None:
        """A copy of ``data``, and its place on the log. Whatever goes wrong on the way ends the process."""
        async with self._turn:
            try:
                self._say(_encode(Asked(0, work)))
                async with ending(data):
                    async for piece in data:
                        for at in range(0, len(piece), PIECE_BYTES):
                            self._say(piece[at : at + PIECE_BYTES])
                        self.taken += len(piece)
                        await self._to.drain()
                self._say(b"")
                answer = await self._answer(self._seconds)
            except ConnectionError:
                raise await self._ended() from None
            except BaseException:
                self.kill()
                raise
            return _loaded.decode(_read(answer)).position

    async def ask(self, work: Change | Look, seconds: float | None = None) -> bytes:
        """What it answers. Raises what the work raises, and :class:`Unavailable` when it was ended for its time or its
        memory: the copy is still there if the process is. Whoever leaves before does not end it."""
        asking = asyncio.ensure_future(self._asked(work, min(seconds or self._seconds, self._seconds)))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return _read(await asyncio.shield(asking))

    async def _asked(self, work: Change | Look, seconds: float) -> bytes:
        async with self._turn:
            try:
                if isinstance(work, Follow):
                    self.taken += sum(len(payload) for _, payload in work.operations)
                self._say(_encode(Asked(seconds, work)))
                await self._to.drain()
                return await self._answer(seconds)
            except ConnectionError:
                raise await self._ended() from None

    def _say(self, frame: bytes) -> None:
        self._to.write(LENGTH.pack(len(frame)))
        self._to.write(frame)

    async def _answer(self, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds + GRACE_S):
                (length,) = LENGTH.unpack(await self._from.readexactly(LENGTH.size))
                return await self._from.readexactly(length)
        except asyncio.IncompleteReadError:
            raise await self._ended() from None
        except TimeoutError:
            self.kill()
            raise out_of_time() from None

    async def _ended(self) -> Unavailable:
        """Why the process is gone."""
        self.kill()
        code = await self._process.wait()
        return out_of_time() if code == -signal.SIGALRM else out_of_memory()

    def kill(self) -> None:
        """The process and its fork end now. Nothing when they have."""
        self._killed = True
        if not self.has_ended:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._to.close()

    async def wait(self) -> None:
        """Until it has ended."""
        await self._process.wait()


def _read(answer: bytes) -> bytes:
    if answer[:1] == DONE:
        return answer[1:]
    raise error_of(_failure.decode(answer[1:]))


class Evaluators:
    """All of a master's."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spare: Evaluator | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._all: list[Evaluator] = []
        self._closed = False

    async def take(self) -> Evaluator:
        """One that nobody else has, until it is given back."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.is_there:
            return spare
        if self._closed:
            raise Unavailable("Closing", "this master is stopping; ask another one")
        made = await Evaluator.start(self._limits)
        self._all = [each for each in self._all if not each.has_ended]
        self._all.append(made)
        return made

    def give_back(self, evaluator: Evaluator) -> None:
        """Nobody asks it any more."""
        busy = evaluator.is_busy or not evaluator.is_there or evaluator.taken > KEPT_BYTES
        if busy or self._spare is not None or self._closed:
            evaluator.kill()
            return
        self._spare = evaluator
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_spare)

    def _end_spare(self) -> None:
        if self._spare is not None:
            self._spare.kill()
            self._spare = None

    async def close(self) -> None:
        """All end."""
        self._closed = True
        if self._idle is not None:
            self._idle.cancel()
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

    def shows(self, looks_at: Sequence[str] | None) -> bool:
        """Whether it holds all that such an update looks at."""
        return self.predicates is None or (looks_at is not None and self.predicates.issuperset(looks_at))

    async def follow(self, operations: Sequence[Operation], position: Position) -> None:
        """Carry out what follows in the log, up to ``position``. :class:`Unavailable` when it cannot be, with
        :data:`txlog.evaluation.copy.PART` when it holds too little for that."""
        await self.evaluator.ask(Follow(tuple((each.kind, each.payload) for each in operations), position))
        self.position = position

    async def sums(self, looks_at: tuple[str, ...] | None) -> Sums:
        """Of the quads with these predicates, or of all."""
        return read_sums(await self.evaluator.ask(SumsOf(looks_at)))

    async def evaluate(self, update: Evaluated, draw: Draw, bytes_max: int) -> Effect:
        """As :meth:`txlog.evaluation.copy.Copy.evaluate`."""
        drawn = draw().to_bytes(16, "big")
        return _effect.decode(await self.evaluator.ask(Evaluate(update, drawn, bytes_max, LOOKS_MAX)))
