"""The supervisor's requests to masters: with its own token, and trust in this cluster's authorities.

It adds masters that are new in the manifests to the cluster, since the log defines the members. And it sends the proof
that a master's process is gone to every other master, so that they need not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from txlog.client.repository_calls import RepositoryCalls
from txlog.config.process_config import PeerConfig
from txlog.local.state_folder import StateFolder
from txlog.model.errors import PeerFault, TxLogError
from txlog.supervision.down_proof import GIVE_UP_AFTER_S, LEAVE_GRACE_S, RETRY_DELAYS_S
from txlog.supervision.membership import missing_masters, next_master_to_add, unlisted_masters
from txlog.supervision.retry_delay import next_delay_s

log = logging.getLogger("txlog.local")
T = TypeVar("T")

CHANGE_TIMEOUT_S: Final = 30.0
"""A configuration change waits for its index in the log."""
REGISTER_RETRY_S: Final = 0.5
PROOF_TIMEOUT_S: Final = 2.0
_THREADS: Final = ThreadPoolExecutor(max_workers=32, thread_name_prefix="master-request")
"""Threads of their own: a master that hangs must not keep the supervisor from its files."""


async def request_master(state: StateFolder, url: str, timeout_s: float, ask: Callable[[RepositoryCalls], T]) -> T:
    """The result of ``ask`` for the master at ``url``; a thread performs it. ``state``: of the cluster. ``timeout_s``:
    time-out of an answer. Raises as :class:`~txlog.client.MasterClient` does."""

    def request() -> T:
        tls = state.trust.context() if state.trusted_file.exists() else None
        with RepositoryCalls(url, timeout_s, tls=tls, credentials=state.own_credentials()) as master:
            return ask(master)

    return await asyncio.get_running_loop().run_in_executor(_THREADS, request)


async def register_new_masters(peers: list[PeerConfig], urls: Mapping[str, str], state: StateFolder) -> None:
    """Runs until the log names all ``peers``; ``urls`` by node id. A bootstrap does that by itself. A master that is in
    the log and in no manifest is only logged: its transactions may exist nowhere else. ``state``: of the cluster."""
    while True:
        for url in urls.values():
            try:
                if await request_master(state, url, CHANGE_TIMEOUT_S, lambda m: _register_next(m, peers)):
                    return
            except TxLogError:
                continue  # the master does not answer, or not yet
        await asyncio.sleep(REGISTER_RETRY_S)


def _register_next(master: RepositoryCalls, peers: list[PeerConfig]) -> bool:
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
            in_view = await request_master(state, url, PROOF_TIMEOUT_S, lambda m: m.report_down(node, birth, start))
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
