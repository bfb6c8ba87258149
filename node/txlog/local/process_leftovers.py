"""Ends the processes that a killed supervisor has left."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from txlog.local import process_identity
from txlog.local.process_identity import ProcessIdentity
from txlog.local.state_folder import StateFolder

log = logging.getLogger("txlog.local")


async def end_leftovers(state: StateFolder) -> None:
    """Ends them, by process id and start time. The caller holds the lock of the folder. Ports are chosen afterwards:
    one that a leftover holds would count as taken, and its process would get another port."""
    found: dict[str, Any] = state.read("processes.json", {})
    left = [ProcessIdentity.model_validate(mark) for mark in found.values()]
    ended = await asyncio.to_thread(process_identity.terminate_all, left, 10.0) if left else []
    if ended:
        log.warning("ended %d processes that an earlier supervisor had left", len(ended))
