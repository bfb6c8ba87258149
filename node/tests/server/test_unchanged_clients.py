"""Clients that know nothing of TxLog, against a master and a store (``make test-clients``: against a whole cluster)."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from worker_driver import Served

from e2e.conformance.foreign_clients import ALL_CLIENTS, CLIENTS, ClientUnavailable


@pytest.mark.parametrize("name", CLIENTS)
async def test_an_unchanged_client_works(served: Served, name: str) -> None:
    try:
        await asyncio.to_thread(CLIENTS[name], served.cluster.url(0), "demo")
    except ClientUnavailable as why:
        pytest.skip(str(why))
    left = [line for line in await served.quads() if "urn:" in line]
    assert left == []


async def test_graphdb_s_javascript_client_works(served: Served) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    try:
        await asyncio.to_thread(ALL_CLIENTS["graphdb.js"], served.cluster.url(0), "demo")
    except ClientUnavailable as why:
        pytest.skip(str(why))
    assert [line for line in await served.quads() if "urn:" in line] == []
