"""Adds a master that is new in the manifests to the cluster: the log defines the members."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from txlog.config.process_config import PeerConfig
from txlog.local.http_session import open_session as session_of
from txlog.local.state_folder import StateFolder

log = logging.getLogger("txlog.local")

REQUEST_TIMEOUT_S: Final = 30.0
"""A configuration change waits for its index in the log."""
RETRY_DELAY_S: Final = 0.5


async def register_new_masters(peers: list[PeerConfig], urls: Mapping[str, str], state: StateFolder) -> None:
    """Runs until the log names all ``peers``; ``urls`` by node id. A bootstrap does that by itself. A master that is in
    the log and in no manifest is only logged: its transactions may exist nowhere else. ``state``: of the cluster."""
    async with session_of(state, REQUEST_TIMEOUT_S) as session:
        while True:
            for url in urls.values():
                now = await _request(session, "GET", f"{url}/txlog/configuration", None)
                if now is None:
                    continue
                known = [*(str(m["node"]) for m in now["masters"]), *now["removed"]]
                new = next((peer for peer in peers if peer.node not in known), None)
                if new is None:
                    listed = [peer.node for peer in peers]
                    _log_unlisted([node for node in known if node not in listed and node not in now["removed"]])
                    return
                body = {"node": new.node, "dataCenter": new.data_center, "weight": new.weight}
                if await _request(session, "POST", f"{url}/txlog/peers", body) is not None:
                    log.info("%s is named to the cluster", new.node)
            await asyncio.sleep(RETRY_DELAY_S)


def _log_unlisted(nodes: list[str]) -> None:
    for node in nodes:
        log.warning(
            "%s is a master of the cluster and in no manifest: put it back and let it bring in what it has "
            "(txlog peer remove %s), or say that it is lost (--lost)",
            *(node, node),
        )


async def _request(session: aiohttp.ClientSession, how: str, url: str, body: object) -> dict[str, Any] | None:
    """None while the master does not answer, or not yet."""
    try:
        async with session.request(how, url, json=body) as answer:
            told: dict[str, Any] = await answer.json()
            return told if answer.status < 300 else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return None
