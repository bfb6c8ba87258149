"""A store in the middle of a load is not read, also where its pipeline did not reach it since. Real stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from master_cluster import Cluster
from oxigraph_process import OxigraphProcess

REPO = "/repositories/demo"
ASK = {"query": "ASK { ?s ?p ?o }"}


@pytest.mark.parametrize("state", ["Loading", "Refused", "Diverged", "NeedsRestore"])
async def test_a_worker_that_cannot_be_reached_is_not_read_where_it_held_no_prefix(
    tmp_path: Path, clusters: Callable[..., Cluster], state: str
) -> None:
    store = OxigraphProcess(tmp_path / "w-1")
    cluster = clusters(1, workers=[{"name": "w-1", "url": store.url}])
    await cluster.start()
    try:

        async def report(state: str) -> int:
            """The status of a read after the pipeline has reported this."""
            await cluster.post(0, "/txlog/workers/w-1", None, 200, json={"position": None, "state": state})
            async with cluster.session.get(
                cluster.url(0, REPO), params=ASK, headers={"Accept": "text/boolean"}
            ) as answer:
                await answer.read()
                return answer.status

        assert await report("Working") == 200
        assert await report("Unreachable") == 200, "what it held last is a prefix of the log"
        assert await report(state) == 503
        assert await report("Unreachable") == 503, "its store answers, perhaps with a part of what is loaded into it"
        assert await report("Working") == 200
    finally:
        store.kill()
