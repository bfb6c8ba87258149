"""Tasks that run until their owner stops. Each has an owner; one that ends before is an error of this program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from txlog.model.errors import Fatal


class PermanentTasks:
    """The tasks of one owner. ``end(error)`` is called with ``TaskEnded`` when one of them ends before :meth:`stop`."""

    def __init__(self, end: Callable[[BaseException], None]) -> None:
        self._end = end
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopped = False

    def start(self, coroutines: Mapping[str, Coroutine[Any, Any, None]]) -> None:
        """Starts tasks, by name."""
        for name, coroutine in coroutines.items():
            task = asyncio.get_running_loop().create_task(coroutine, name=name)
            task.add_done_callback(self._on_done)
            self._tasks.append(task)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if self._is_stopped or task.cancelled():
            return
        error = task.exception() or RuntimeError("it returned")
        self._end(Fatal("TaskEnded", f"{task.get_name()}: {error!r}"))

    def expect_end(self) -> None:
        """From now on a task may end."""
        self._is_stopped = True

    async def stop(self, timeout_s: float) -> None:
        """Cancels all tasks, and waits for them, at most so many seconds."""
        self.expect_end()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
