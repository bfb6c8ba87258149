"""Adds a master that is new in the manifests to the cluster: the log defines the members."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from txlog.client import MasterClient
from txlog.config.process_config import PeerConfig
from txlog.local.master_requests import request_master
from txlog.local.state_folder import StateFolder
from txlog.model.errors import TxLogError
from txlog.supervision.membership import missing_masters, next_master_to_add, unlisted_masters

log = logging.getLogger("txlog.local")

REQUEST_TIMEOUT_S: Final = 30.0
"""A configuration change waits for its index in the log."""
RETRY_DELAY_S: Final = 0.5


async def register_new_masters(peers: list[PeerConfig], urls: Mapping[str, str], state: StateFolder) -> None:
    """Runs until the log names all ``peers``; ``urls`` by node id. A bootstrap does that by itself. A master that is in
    the log and in no manifest is only logged: its transactions may exist nowhere else. ``state``: of the cluster."""
    while True:
        for url in urls.values():
            try:
                if await request_master(state, url, REQUEST_TIMEOUT_S, lambda m: _register_next(m, peers)):
                    return
            except TxLogError:
                continue  # the master does not answer, or not yet
        await asyncio.sleep(RETRY_DELAY_S)


def _register_next(master: MasterClient, peers: list[PeerConfig]) -> bool:
    """Adds the next new master, at this master. Returns whether none is missing."""
    configuration, wanted = master.configuration(), {peer.node: peer for peer in peers}
    if not missing_masters(configuration, list(wanted)):
        for node in unlisted_masters(configuration, list(wanted)):
            log.warning(
                "%s is a master of the cluster and in no manifest: put it back and let it bring in what it has "
                "(txlog peer remove %s), or say that it is lost (--lost)",
                *(node, node),
            )
        return True
    new = next_master_to_add(configuration, list(wanted))
    if new is not None:
        master.add_peer(new, wanted[new].data_center, [], wanted[new].weight)
        log.info("%s is named to the cluster", new)
    return False
