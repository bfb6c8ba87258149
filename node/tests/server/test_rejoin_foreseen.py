"""``txlog rejoin --dry-run`` on real masters that do not hear each other, against what their rejoin then does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from apart import go_apart, insert, states
from master_cluster import Cluster, until

from txlog.cli.cli_cluster import CliCluster
from txlog.cli.rejoin_commands import forecast
from txlog.cli.split_commands import build_split_report
from txlog.model.errors import TxLogError


async def told(cluster: Cluster) -> dict[str, Any]:
    urls = [cluster.url(at) for at in range(3)]
    return await asyncio.to_thread(forecast, CliCluster({"uk": urls}, None))


@pytest.mark.parametrize("strategy", ["Smart", "Simple"])
async def test_what_is_foreseen_is_what_happens(clusters: Callable[..., Cluster], strategy: str) -> None:
    cluster = clusters(3, max_peer_lag_ms=5000, round_timeout_ms=1500, idle_interval_ms=100, split_recovery=strategy)
    await cluster.start()
    await until(lambda: states(cluster) == {"Joined"})
    await cluster.write(0, insert("first"))
    quiet = await told(cluster)
    assert (quiet["winner"], quiet["moved"], quiet["notHeard"]) == (None, 0, [])
    heal = await go_apart(cluster)
    for number, at in enumerate((2, 0, 2, 1, 2, 0)):
        await cluster.write(at, insert(f"alone-{number}"))

    foreseen = await told(cluster)
    assert foreseen["winner"] == ["uk-1", "uk-2"], "two votes to one"
    assert foreseen["splitRecovery"] == strategy
    assert foreseen["way"].startswith("merged") == (strategy == "Simple")
    assert [branch["weight"] for branch in foreseen["branches"]] == [2, 1]
    assert foreseen["moved"] > 0

    heal()
    await until(lambda: states(cluster) == {"Joined"})
    seen = [await cluster.get(at, "/txlog/splits") for at in range(3)]
    (split,) = build_split_report(seen, [])
    assert split["strategy"] == strategy
    happened = {branch["view"]: (branch["end"], branch["moved"]) for branch in split["branches"]}
    expected = {branch["view"]: (branch["end"], branch["moved"]) for branch in foreseen["branches"]}
    assert (expected, foreseen["moved"]) == (happened, split["moved"])


async def test_a_branch_is_asked_for_within_its_log(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1)
    await cluster.start()
    await cluster.write(0, insert(1))
    end = await cluster.get(0, "/txlog/branch")
    assert (end["end"], end["view"]["members"], end["configured"]) == (1, ["uk-1"], [{"node": "uk-1", "weight": 1}])
    assert (await cluster.get(0, "/txlog/branch?at=1"))["hash"] == end["hash"]
    assert (await cluster.get(0, "/txlog/branch?at=0"))["hash"] != end["hash"]
    assert "ends at 1" in (await cluster.get(0, "/txlog/branch?at=2", 404))["message"]
    for wrong in ("x", "-1", "1e3", "9" * 30):
        assert (await cluster.get(0, f"/txlog/branch?at={wrong}", 400))["error"] == "BadInput"
    report = await cluster.get(0, "/txlog/view-report")
    assert report["checkpoints"][0] == f"1:{end['hash']}"
    birth = (await cluster.get(0, "/txlog/status"))["birth"]
    assert report["seqs"] == [f"uk-1.{birth}.1"]
    assert (await cluster.get(0, "/txlog/view-report?checkpoints="))["seqs"] == [], "from the first entry on"
    for wrong in ("x", "1:", "-1:" + end["hash"], "1:xyz", end["hash"]):
        assert (await cluster.get(0, f"/txlog/view-report?checkpoints={wrong}", 400))["error"] == "BadInput"
    await cluster.stop(0)
    with pytest.raises(TxLogError, match="no master answers"):
        await asyncio.to_thread(forecast, CliCluster({"uk": [cluster.url(0)]}, None))
