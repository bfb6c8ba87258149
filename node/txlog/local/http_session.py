"""How the supervisor asks masters: with its own token, believing those whom this cluster's authorities name."""

from __future__ import annotations

import aiohttp

from txlog.local.state_folder import StateFolder


def open_session(state: StateFolder, seconds: float) -> aiohttp.ClientSession:
    """``seconds``: for a whole answer."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    connector = aiohttp.TCPConnector(ssl=state.trust.cached_context()) if state.trusted_file.exists() else None
    return aiohttp.ClientSession(timeout=timeout, headers=state.own_headers(), connector=connector)
