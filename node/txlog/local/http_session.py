"""The supervisor's HTTP session for masters: with its own token, and trust in this cluster's authorities."""

from __future__ import annotations

import aiohttp

from txlog.local.state_folder import StateFolder


def open_session(state: StateFolder, seconds: float) -> aiohttp.ClientSession:
    """``seconds``: time-out of a whole answer."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    connector = aiohttp.TCPConnector(ssl=state.trust.cached_context()) if state.trusted_file.exists() else None
    return aiohttp.ClientSession(timeout=timeout, headers=state.own_headers(), connector=connector)
