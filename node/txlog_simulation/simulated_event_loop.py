"""The event loop of one simulated process: asyncio's callbacks, timers, futures and tasks on the calendar of the run.

It has no sockets, no threads and no time of its own. What the process calls in a thread happens at a drawn time.
"""

from __future__ import annotations

import asyncio
import math
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

from txlog.runtime.executor import SyncTask
from txlog.runtime.sync_thread import SyncRunner
from txlog_simulation.process_states import PAUSED, UP

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")
_THREAD_MS: Final = (0, 0, 1, 8, 40)
"""How long work in a thread takes."""


class ProcessExit(BaseException):
    """The process has ended itself with this error. Not an ``Exception``: nothing in the product may catch it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class SimulatedEventLoop(asyncio.BaseEventLoop):
    """Of one process; it is closed when the process ends. ``after_call()`` is called behind each callback,
    ``when_idle()`` when no callback is left. ``busy_until_ms``: until then the process's one thread does something that
    took time, and no callback runs."""

    def __init__(self, machine: SimulatedMaster) -> None:
        super().__init__()
        world = machine.world
        self._machine = machine
        self._rng = Random(f"event loop {world.plan.seed} {machine.slot} {machine.incarnation}")
        self._calls: deque[asyncio.Handle] = deque()
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._coroutines: list[Coroutine[Any, Any, Any]] = []
        self._timers: dict[int, object] = {}
        self._is_due = False
        self._spent_us = 0
        self.busy_until_ms = 0
        self.after_call: Callable[[], None] = lambda: None
        self.when_idle: Callable[[], None] = lambda: None

    # Time

    def time(self) -> float:
        """Seconds of this master's monotonic clock."""
        return self._machine.now().mono / 1000

    def timer(self) -> float:
        """Seconds, by which the process measures how long its own work took."""
        return (self._machine.world.now_ms * 1000 + self._spent_us) / 1_000_000

    def spend(self, microseconds: int) -> None:
        """The process's one thread is busy for so long."""
        self._spent_us += microseconds
        now_ms = max(self._machine.world.now_ms, self.busy_until_ms)
        self.busy_until_ms = now_ms + microseconds // 1000

    # What asyncio and the product call

    def call_soon(
        self, callback: Callable[[*_Arguments], object], *args: *_Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """See :class:`asyncio.AbstractEventLoop`. What a process leaves behind may call it when that has ended."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_closed():
            self._calls.append(handle)
            self._wake()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*_Arguments], object], *args: *_Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """See :class:`asyncio.AbstractEventLoop`."""
        if self.is_closed():
            raise RuntimeError("the process has ended")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See :class:`asyncio.AbstractEventLoop`. A timer takes a millisecond at least."""
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        delay_ms = max(1, math.ceil(min(delay, 1e9) * 1000 / self._machine.clock_rate))
        self._timers[id(handle)] = callback  # handles of one moment may be equal
        self.after(delay_ms, self._ring, handle)
        return handle

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Arguments], _Result], *args: *_Arguments
    ) -> asyncio.Future[_Result]:
        """See :class:`asyncio.AbstractEventLoop`: it happens at a drawn time."""
        future: asyncio.Future[_Result] = self.create_future()
        self.after(self._rng.choice(_THREAD_MS), self._run_in_thread, future, func, args)
        return future

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """See :class:`asyncio.AbstractEventLoop`."""
        self._coroutines.append(coro)
        return asyncio.Task(coro, loop=self, **options)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A process that ends leaves futures and tasks behind, which is no error."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Its event stays on the calendar, and does nothing."""
        self._timers.pop(id(handle), None)

    # How it goes on

    @contextmanager
    def running(self) -> Iterator[None]:
        """What is called is called on this loop."""
        outer = _get_running_loop()
        _set_running_loop(self)
        try:
            yield
        finally:
            _set_running_loop(outer)

    def after(self, delay_ms: int, what: Callable[..., None], *args: Any) -> None:
        """Something happens beside the loop later, in this process, if it runs then; a paused one finds it later."""
        world = self._machine.world
        world.schedule(world.now_ms + delay_ms, self._when_running, what, args)

    def _when_running(self, what: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.is_closed():
            return
        if self._machine.state == PAUSED:
            self._held.append((what, args))
        else:
            what(*args)

    def has_timer(self, callback: object) -> bool:
        """Whether a timer is set that calls this."""
        return callback in self._timers.values()

    def resume(self) -> None:
        """The process runs again."""
        held, self._held = self._held, []
        for what, args in held:
            self._when_running(what, args)
        if self._calls:
            self._wake()

    def end(self) -> None:
        """The process is gone, and what waited in it."""
        self._calls.clear()
        self._held.clear()
        self._timers.clear()
        self.close()
        coroutines, self._coroutines = self._coroutines, []
        for coroutine in coroutines:
            coroutine.close()

    def _ring(self, handle: asyncio.TimerHandle) -> None:
        if self._timers.pop(id(handle), None) is not None:
            self._calls.append(handle)
            self._wake()

    def _run_in_thread(self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        with self._machine.guard:
            try:
                result = func(*args)
            except Exception as wrong:  # noqa: BLE001 - of the caller, who looks at the future
                future.set_exception(wrong)
                return
            future.set_result(result)

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            world = self._machine.world
            world.schedule(max(world.now_ms, self.busy_until_ms), self._iterate)

    def _iterate(self) -> None:
        """The callbacks that are ready now; those that they make ready have their turn after it, as in asyncio."""
        self._is_due = False
        world = self._machine.world
        if self.is_closed() or self._machine.state != UP:
            return
        ready, self._calls = self._calls, deque()
        while ready:
            if world.now_ms < self.busy_until_ms:
                self._calls.extendleft(reversed(ready))
                break
            handle = ready.popleft()
            if not handle.cancelled():
                self._run_call(handle)
            if self.is_closed():
                return
        if self._calls:
            self._wake()
        else:
            with self._machine.guard:
                self.when_idle()

    def _run_call(self, handle: Any) -> None:
        with self._machine.guard:
            try:
                with self.running():
                    handle._context.run(handle._callback, *handle._args)
                    self.after_call()
            except ProcessExit as end:
                raise end.error from None


class SimulatedSyncThread(SyncRunner):
    """The thread that syncs, one sync after the other; each is there when its time is over."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[BaseException | None], None],
        timer: Callable[[], float],
    ) -> None:
        super().__init__(loop, done, timer)
        assert isinstance(loop, SimulatedEventLoop)
        self._events = loop
        self._took_us = 0
        self._jobs: deque[Any] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no sync waits or runs."""
        return not self._jobs

    def run(self, sync: SyncTask) -> None:
        """See :class:`SyncRunner`."""
        self._jobs.append(sync)
        if len(self._jobs) == 1:
            self._begin()

    def close(self, timeout_s: float) -> None:
        """See :class:`SyncRunner`."""

    def _begin(self) -> None:
        sync = self._jobs[0]
        sync.in_thread = True
        self._events.after(-(-sync.takes_us // 1000), self._finish)

    def _finish(self) -> None:
        if not self._jobs:
            return
        sync = self._jobs.popleft()
        self._run_sync(sync)
        if not self._events.is_closed():
            self.last_sync_s = sync.takes_us / 1_000_000  # the timer does not move while one event of a run happens
            if self._jobs:
                self._begin()

    def finish(self) -> None:
        """The syncs that wait are done at once and report nothing: the process is being stopped."""
        while self._jobs:
            self._jobs.popleft().run()
