"""Reports that a master's process is gone to every other master, so that they need not wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

import aiohttp

from txlog.local.http_session import open_session as session_of
from txlog.local.state_folder import StateFolder

log = logging.getLogger("txlog.local")

REQUEST_TIMEOUT_S: Final = 2.0
RETRY_DELAYS_S: Final = (0.1, 2.0)
"""Between two attempts: at first, and at most."""
LEAVE_GRACE_S: Final = 1.0
"""A master that exited gracefully has announced its departure itself. The report only helps if it is still in their
view then."""
GIVE_UP_AFTER_S: Final = 600.0
"""After so long without an answer, a master that returns has restarted, and asks for itself."""


async def report_down(
    node: str,
    birth: int,
    start: int,
    others: Mapping[str, str],
    state: StateFolder,
    *,
    left: bool = False,
) -> None:
    """Reports to all ``others`` (node id to URL), until each continues without ``node``, or knows better. ``left``: the
    process exited gracefully. ``state``: of the cluster."""
    if left:
        await asyncio.sleep(LEAVE_GRACE_S)
    async with session_of(state, REQUEST_TIMEOUT_S) as session:
        tellings = (_report_to_master(session, url, node, f"{birth:016x}", start) for url in others.values())
        told = await asyncio.gather(*tellings)
    said = ", ".join(f"{other}: {what}" for other, what in zip(others, told, strict=True))
    log.info("%s start %d is gone; %s", node, start, said or "nobody is there to be told")


async def _report_to_master(session: aiohttp.ClientSession, master: str, node: str, birth: str, start: int) -> str:
    """The outcome at one master."""
    clock = asyncio.get_running_loop().time
    until, pause = clock() + GIVE_UP_AFTER_S, RETRY_DELAYS_S[0]
    last = "not reached"
    while clock() < until:
        try:
            url = f"{master}/txlog/members/{node}/down"
            async with session.post(url, json={"birth": birth, "start": start}) as answer:
                body = await answer.json()
            if answer.status == 200 and not body["inView"]:
                return "let go"
            if 400 <= answer.status < 500:
                return f"refused: {body['message']}"
            last = "still in the view" if answer.status == 200 else f"answered {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError) as wrong:
            last = f"not reached: {wrong!r}"  # it may be down as well: it gets the report when it is back
        await asyncio.sleep(pause)
        pause = min(RETRY_DELAYS_S[1], 2 * pause)
    return last
