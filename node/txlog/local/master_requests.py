"""The supervisor's requests to masters: with its own token, and trust in this cluster's authorities."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from txlog.client import MasterClient
from txlog.client.repository_calls import RepositoryCalls
from txlog.local.state_folder import StateFolder

C = TypeVar("C", bound=MasterClient)
T = TypeVar("T")

_THREADS: Final = ThreadPoolExecutor(max_workers=32, thread_name_prefix="master-request")
"""Threads of their own: a master that hangs must not keep the supervisor from its files."""


async def request_master(state: StateFolder, url: str, timeout_s: float, ask: Callable[[MasterClient], T]) -> T:
    """The result of ``ask`` for the master at ``url``; a thread performs it. ``state``: of the cluster. ``timeout_s``:
    time-out of an answer. Raises as :class:`MasterClient` does."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREADS, _request, MasterClient, state, url, timeout_s, ask)


async def request_repositories(
    state: StateFolder, url: str, timeout_s: float, ask: Callable[[RepositoryCalls], T]
) -> T:
    """As :func:`request_master`, about the repositories of the cluster."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREADS, _request, RepositoryCalls, state, url, timeout_s, ask)


def _request(client: type[C], state: StateFolder, url: str, timeout_s: float, ask: Callable[[C], T]) -> T:
    tls = state.trust.context() if state.trusted_file.exists() else None
    with client(url, timeout_s, tls=tls, credentials=state.own_credentials()) as master:
        return ask(master)
