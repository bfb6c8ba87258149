"""Peers whose names do not resolve yet, or no longer: a pod that is not there, a name server that is cut off."""

from __future__ import annotations

import asyncio
import gc
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from txlog.config.process_config import NodeConfig, PeerConfig
from txlog.server.peers import peer_links as peers
from txlog.server.peers.peer_links import PeerLinks
from txlog.telemetry.event_log import EventLog

NAME = "us-1.masters.invalid"


def config(folder: Path, url: str) -> NodeConfig:
    return NodeConfig(
        node="uk-1",
        data_center="uk",
        repository="r",
        port=7300,
        journal_folder=folder,
        peer_token_file=folder / "token",
        peers=[
            PeerConfig(node="uk-1", data_center="uk", url="http://127.0.0.1:7300"),
            PeerConfig(node="us-1", data_center="us", url=url),
        ],
    )


def test_a_look_up_that_was_given_up_is_heard_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the masters' own loop: others do not leave it unheard."""
    monkeypatch.setattr(peers, "CONNECT_TIMEOUT_S", 0.0001)
    complaints: list[dict[str, Any]] = []

    async def look() -> str:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: complaints.append(what))
        links = PeerLinks(config(tmp_path, f"http://{NAME}:7300"), b"token", EventLog("uk-1"))
        link = links.links["us-1"]
        connecting = asyncio.create_task(links._keep_connected(link))
        async with asyncio.timeout(20):
            while link.last_error is None:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        connecting.cancel()
        for _ in range(8):  # behind all that were given up
            with suppress(socket.gaierror):
                await loop.getaddrinfo(NAME, 7300)
        gc.collect()
        return link.last_error

    assert uvloop.run(look()).startswith("TimeoutError")
    assert not complaints


def test_a_name_that_nobody_knows_is_told_as_such(tmp_path: Path) -> None:
    async def look() -> str:
        links = PeerLinks(config(tmp_path, f"http://{NAME}:7300"), b"token", EventLog("uk-1"))
        link = links.links["us-1"]
        connecting = asyncio.create_task(links._keep_connected(link))
        async with asyncio.timeout(20):
            while link.last_error is None:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        connecting.cancel()
        return link.last_error

    assert "gaierror" in uvloop.run(look())
