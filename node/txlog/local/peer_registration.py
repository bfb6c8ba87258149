"""A master that is new in the manifests is named to the others: who is in the cluster is what its log says."""

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
"""A change waits for its place in the log."""
RETRY_DELAY_S: Final = 0.5


async def register_new_masters(peers: list[PeerConfig], urls: Mapping[str, str], state: StateFolder) -> None:
    """Until the log names all ``peers``; ``urls`` by node id. A founding does that by itself. Who is in the log
    and in no manifest any more is only said: what it has may be nowhere else. ``state``: of the
    cluster that is asked."""
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
    """None while it does not answer, or not yet."""
    try:
        async with session.request(how, url, json=body) as answer:
            told: dict[str, Any] = await answer.json()
            return told if answer.status < 300 else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return None
