"""Looks at workers, told to masters: compared across data centres, shown in status, workers, metrics and the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from master_cluster import Cluster, until

from txlog.model.graph_digests import GRAPHS_MAX, build_cell_digests, build_graph_digests
from txlog.model.store_cell import StoreCell

PLACE = "ab" * 16


@pytest.fixture
async def watched(clusters: Callable[..., Cluster]) -> Cluster:
    """A master with one worker that nobody asks anything."""
    cluster = clusters(1, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}])
    await cluster.start()
    return cluster


def look(b: int, index: int = 0, **more: Any) -> dict[str, Any]:
    made = build_graph_digests("counts", index, PLACE, 0, {"urn:a": (10, None), "urn:b": (b, None)})
    return {
        "kind": made.kind,
        "index": made.index,
        "hash": made.hash,
        "fence": made.fence,
        "quads": made.quads,
        "fingerprint": made.fingerprint,
        "graphs": made.graphs,
        **more,
    }


async def test_what_a_worker_held_before_at_the_same_marker_is_remembered_and_shown(watched: Cluster) -> None:
    path = "/txlog/workers/w-1/look"
    assert await watched.post(0, path, None, 200, json=look(20)) == {"divergence": None}
    found = (await watched.post(0, path, None, 200, json=look(19)))["divergence"]
    assert (found["wrong"], found["graphs"], found["graphCount"], found["right"]) == (True, ["urn:b"], 1, [])
    for asked in ("/txlog/status", "/txlog/workers", "/txlog/doorbell?timeout=0"):
        (worker,) = (await watched.get(0, asked))["workers"]
        assert worker["divergence"] == found
    async with watched.session.get(watched.url(0, "/metrics")) as answer:
        text = await answer.text()
    assert 'txlog_worker_differs{data_center="uk",worker="w-1",wrong="true"} 1.0' in text
    assert "WorkerDiffers" in watched.logged(0)
    assert (await watched.post(0, path, None, 200, json=look(20, fence=1)))["divergence"] is None
    assert "WorkerEqualAgain" in watched.logged(0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "guess"},
        {"index": "one"},
        {"graphs": {f"urn:{n}": "1" for n in range(GRAPHS_MAX + 1)}},
        {"fingerprint": None},
        {"kind": "cells", "cell": "urn:g"},
    ],
)
async def test_a_look_that_is_none_is_refused(watched: Cluster, wrong: dict[str, Any]) -> None:
    await watched.post(0, "/txlog/workers/w-1/look", None, 400, json=look(20, **wrong))
    await watched.post(0, "/txlog/workers/w-9/look", None, 404, json=look(20))


async def test_a_hold_for_a_look_stands_beside_the_other_and_ends_by_itself(
    watched: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def held() -> int | None:
        return (await watched.get(0, "/txlog/workers"))["workers"][0]["hold"]

    async def put(index: int, why: str, status: int = 200) -> None:
        async with watched.session.put(watched.url(0, f"/txlog/holds/w-1{why}"), json={"index": index}) as answer:
            assert answer.status == status

    await put(7, "")
    await put(5, "?for=look")
    await put(5, "?for=fun", 400)
    assert await held() == 5
    async with watched.session.delete(watched.url(0, "/txlog/holds/w-1?for=look")) as answer:
        assert (await answer.json())["hold"] == 7
    monkeypatch.setattr("txlog.server.feed.worker_reports.DIGEST_PAUSE_S", 0.05)
    await put(3, "?for=look")

    async def ended() -> bool:
        return await held() == 7

    await until(ended)


async def test_data_centres_are_compared_and_each_master_comes_to_the_same(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3)
    for at, config in enumerate(cluster.configs):
        name = ("uk", "us", "de")[at]
        config["data_center"] = name
        config["workers"] = [{"name": f"{name}-w", "url": "http://127.0.0.1:9"}]
        for peer, where in zip(config["peers"], ("uk", "us", "de"), strict=True):
            peer["data_center"] = where
    await cluster.start()
    for at, count in ((0, 20), (1, 19), (2, 20)):
        name = ("uk", "us", "de")[at]
        await cluster.post(at, f"/txlog/workers/{name}-w/look", None, 200, json=look(count))

    async def found(at: int) -> dict[str, Any]:
        told = await cluster.get(at, "/txlog/workers")
        mine = [*told["workers"], *(w for workers in told["elsewhere"].values() for w in workers)]
        return {w["name"]: w["divergence"] for w in mine if w["divergence"] is not None}

    for at in range(3):

        async def decided(at: int = at) -> bool:
            told = await found(at)
            return list(told) == ["us-w"] and told["us-w"]["wrong"]

        await until(decided)
        told = (await found(at))["us-w"]
        assert (told["graphs"], told["right"]) == (["urn:b"], ["de/de-w", "uk/uk-w"])


def cell_look(quads: int, predicate: str = "urn:p", **more: Any) -> dict[str, Any]:
    made = build_cell_digests(StoreCell("urn:g", predicate), 0, PLACE, 0, quads, quads, **more)
    return msgspec.to_builtins(made)  # type: ignore[no-any-return]


async def test_a_difference_is_named_by_cell(watched: Cluster) -> None:
    path = "/txlog/workers/w-1/look"
    for predicate in ("urn:p", "urn:q", "urn:r"):
        assert await watched.post(0, path, None, 200, json=cell_look(20, predicate)) == {"divergence": None}
    for predicate in ("urn:p", "urn:q"):
        await watched.post(0, path, None, 200, json=cell_look(21, predicate))
    (worker,) = (await watched.get(0, "/txlog/workers"))["workers"]
    found = worker["divergence"]
    assert (found["kind"], found["wrong"], found["graphs"], found["graphCount"]) == ("cells", True, ["urn:g"], 1)
    assert found["cells"] == [["urn:g", "urn:p"], ["urn:g", "urn:q"]]
    found = (await watched.post(0, path, None, 200, json=cell_look(20, "urn:q")))["divergence"]
    assert found["cells"] == [["urn:g", "urn:p"]]
    found = (await watched.post(0, path, None, 200, json=cell_look(22, "urn:r", more=True)))["divergence"]
    assert found["graphCount"] is None, "a repair looks at all graphs"


async def test_how_far_a_comparison_is_is_shown(watched: Cluster) -> None:
    path = "/txlog/workers/w-1/comparison"
    report = {"cells": 7, "quads": 100, "waiting": 2, "passS": 40.0, "estimateS": 50.0, "oldestCellS": 30.0}
    await watched.post(0, path, None, 200, json=report)
    for asked in ("/txlog/status", "/txlog/workers"):
        (worker,) = (await watched.get(0, asked))["workers"]
        shown = worker["comparison"]
        assert 30.0 <= shown["oldestCellS"] < 60.0
        assert {**shown, "oldestCellS": 30.0} == report
    async with watched.session.get(watched.url(0, "/metrics")) as answer:
        text = await answer.text()
    assert 'txlog_worker_compare_pass_seconds{worker="w-1"} 50.0' in text
    assert 'txlog_worker_compare_waiting{worker="w-1"} 2.0' in text
    assert 'txlog_worker_compare_oldest_seconds{worker="w-1"} 3' in text
    await watched.post(0, path, None, 400, json={**report, "cells": "many"})
    await watched.post(0, "/txlog/workers/w-9/comparison", None, 404, json=report)


async def test_masters_of_a_data_centre_share_how_far_a_comparison_is(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}])
    await cluster.start()
    report = {"cells": 7, "quads": 100, "waiting": 2, "passS": 40.0, "estimateS": 50.0, "oldestCellS": 30.0}
    await cluster.post(0, "/txlog/workers/w-1/comparison", None, 200, json=report)
    await cluster.post(0, "/txlog/workers/w-1/look", None, 200, json=look(20))

    async def known() -> bool:
        (worker,) = (await cluster.get(1, "/txlog/workers"))["workers"]
        return worker["comparison"] is not None and worker["comparison"]["cells"] == 7

    await until(known)
