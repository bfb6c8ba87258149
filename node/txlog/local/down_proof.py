"""Sends the proof that a master's process is gone to every other master, so that they need not wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from txlog.local.master_requests import request_master
from txlog.local.state_folder import StateFolder
from txlog.model.errors import PeerFault, TxLogError
from txlog.supervision.down_proof import GIVE_UP_AFTER_S, LEAVE_GRACE_S, RETRY_DELAYS_S
from txlog.supervision.retry_delay import next_delay_s

log = logging.getLogger("txlog.local")

REQUEST_TIMEOUT_S: Final = 2.0


async def report_down(
    node: str,
    birth: int,
    start: int,
    others: Mapping[str, str],
    state: StateFolder,
    *,
    left: bool = False,
) -> None:
    """Reports to all ``others`` (node id to URL), until each continues without ``node`` or refuses the report.
    ``left``: the process exited gracefully. ``state``: of the cluster."""
    if left:
        await asyncio.sleep(LEAVE_GRACE_S)
    reports = (_report_to_master(state, url, node, f"{birth:016x}", start) for url in others.values())
    outcomes = zip(others, await asyncio.gather(*reports), strict=True)
    summary = ", ".join(f"{other}: {outcome}" for other, outcome in outcomes)
    log.info("%s start %d is gone; %s", node, start, summary or "there is no other master")


async def _report_to_master(state: StateFolder, url: str, node: str, birth: str, start: int) -> str:
    """The outcome at one master."""
    clock = asyncio.get_running_loop().time
    until, delay = clock() + GIVE_UP_AFTER_S, 0.0
    last = "not reached"
    while clock() < until:
        try:
            in_view = await request_master(state, url, REQUEST_TIMEOUT_S, lambda m: m.report_down(node, birth, start))
            if not in_view:
                return "let go"
            last = "still in the view"
        except (TxLogError, KeyError, TypeError) as wrong:
            if isinstance(wrong, TxLogError) and 400 <= wrong.status < 500 and not isinstance(wrong, PeerFault):
                return f"refused: {wrong}"
            last = f"not reached: {wrong!r}"  # it may be down as well: it gets the report when it is back
        delay = next_delay_s(delay, RETRY_DELAYS_S)
        await asyncio.sleep(delay)
    return last
