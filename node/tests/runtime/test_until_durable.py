"""Whoever gave an order is answered when the sync that takes its record has returned, and not by one before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from test_watermarks_and_loop import Alone

from txlog.model.errors import Unavailable
from txlog.model.records import OperatorOverrides
from txlog.runtime.executor import SyncTask
from txlog.runtime.master_loop import MasterLoop


def say(loop: MasterLoop, node: str) -> None:
    """Any record, as the core says one."""
    loop.executor.core.views.outbox.append(OperatorOverrides([], [(node, 1, 1)]))
    loop.adopt(loop.executor.core.settings)


async def until(there: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not there():  # noqa: ASYNC110 - a few turns
            await asyncio.sleep(0.001)


async def test_an_order_is_taken_when_the_sync_behind_it_has_returned() -> None:
    alone = Alone(3)
    loop, held = alone.loop, list[SyncTask]()
    run, loop._average_sync_s = loop._sync_thread.run, 1.0
    loop._sync_thread.run = held.append  # type: ignore[method-assign]
    await loop.wait_durable()  # nothing was said
    loop.bootstrap(["uk-1"])
    first = asyncio.ensure_future(loop.wait_durable())
    await until(lambda: held)
    say(loop, "uk-2")
    second = asyncio.ensure_future(loop.wait_durable())
    await asyncio.sleep(0)
    assert not first.done()
    run(held.pop())
    async with asyncio.timeout(60):
        await first
    assert not second.done(), "the sync that has returned took nothing of this"
    await until(lambda: held)
    assert not second.done()
    run(held.pop())
    async with asyncio.timeout(60):
        await second
    say(loop, "uk-3")
    third = asyncio.ensure_future(loop.wait_durable())
    await until(lambda: held)
    loop.end(RuntimeError("the disk"))
    with pytest.raises(Unavailable, match="the disk"):
        await third
    with pytest.raises(Unavailable, match="is ending"):
        await loop.wait_durable()
    assert len(alone.ended) == 1
    await loop.close(5.0)
