"""What a person decided about a refused store outlives the master's process, until it is done."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from master_cluster import Cluster, until
from test_refused_stores import PATH, STORE, duties, report, started

from txlog.server.admin import store_decision_file
from txlog.server.admin.store_decision_file import FILE, KeptDecision, read_decisions, write_decisions

SEEN = {key: STORE[key] for key in ("index", "hash", "cluster")}
OTHER = KeptDecision("discard", 20, "ab" * 16, "0e" * 16, "0c" * 16, 1.5)


def kept(cluster: Cluster) -> dict[str, Any]:
    path = cluster.folder / "uk-1" / FILE
    found: dict[str, Any] = json.loads(path.read_text())["decisions"] if path.exists() else {}
    return found


@pytest.mark.parametrize("kind", ["adopt", "discard"])
async def test_a_kill_between_the_answer_and_the_duty_loses_no_decision(
    clusters: Callable[..., Cluster], kind: str
) -> None:
    workers = [{"name": "w-1", "url": "http://127.0.0.1:9"}]
    cluster = clusters(1, workers=workers)
    cluster.spawn()
    await cluster.ready()
    await report(cluster, STORE, "Ahead")
    told = await cluster.post(0, f"{PATH}/{kind}", None, 202, json=SEEN)
    cluster.kill(0)
    cluster.spawn()
    await cluster.ready()
    assert await duties(cluster) == [], "the store is not seen yet"
    await report(cluster, STORE, "Ahead")
    (duty,) = await duties(cluster)
    assert (duty["id"], duty["kind"], duty["worker"]) == (told["duty"], kind, "w-1")


async def test_a_decision_is_durable_before_it_is_answered(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await started(clusters, 1)
    await report(cluster, STORE, "Ahead")
    done: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def synced(file: int) -> None:
        done.append(("fsync", os.readlink(f"/proc/self/fd/{file}")))
        sync(file)

    def replaced(old: Any, new: Any) -> None:
        done.append(("replace", str(new)))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    await cluster.post(0, f"{PATH}/adopt", None, 202, json=SEEN)
    path = cluster.folder / "uk-1" / FILE
    mine = [step for step in done if step[1] in (f"{path}.new", str(path), str(path.parent))]
    assert mine == [("fsync", f"{path}.new"), ("replace", str(path)), ("fsync", str(path.parent))]


async def test_a_decision_that_cannot_be_kept_is_none(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await started(clusters, 1)
    await report(cluster, STORE, "Ahead")
    with monkeypatch.context() as full:
        full.setattr(store_decision_file, "write_durably", _full)
        told = await cluster.post(0, f"{PATH}/discard", None, 503, json=SEEN)
    assert (told["reason"], "nothing was decided" in told["message"]) == ("NotKept", True)
    assert await duties(cluster) == []


def _full(path: Path, content: bytes) -> None:
    raise OSError(28, "No space left on device")


async def test_a_decision_is_forgotten_once_the_store_has_moved(clusters: Callable[..., Cluster]) -> None:
    """Not while it has no position: it may be half loaded."""
    cluster = await started(clusters, 3)
    status = await cluster.get(0, "/txlog/status")
    for name in ("w-1", "w-2"):
        await report(cluster, STORE, "Ahead", name)
        await cluster.post(0, f"/txlog/workers/{name}/discard", None, 202, json=SEEN)
    assert sorted(kept(cluster)) == ["w-1", "w-2"]
    await report(cluster, None, "Loading", "w-2")
    await report(cluster, {**status["stable"], "cluster": status["clusterId"]}, "Working")
    await until(lambda: sorted(kept(cluster)) == ["w-2"])
    await report(cluster, STORE, "Ahead")
    assert [duty["worker"] for duty in await duties(cluster)] == [], "the same content came back later"
    await report(cluster, STORE, "Ahead", "w-2")
    assert [duty["worker"] for duty in await duties(cluster)] == ["w-2"]


async def test_a_decision_is_forgotten_with_its_worker(clusters: Callable[..., Cluster]) -> None:
    """A later worker of that name may hold the same. A worker that is added after a start keeps its own."""
    cluster = clusters(1, workers=[])
    await cluster.start()
    await cluster.write(0, 'INSERT DATA { <urn:s> <urn:p> "o" }')
    added = {"name": "w-1", "url": "http://127.0.0.1:9", "engine": "oxigraph"}
    await cluster.post(0, "/txlog/workers", None, 200, json=added)
    await report(cluster, STORE, "Ahead")
    told = await cluster.post(0, f"{PATH}/adopt", None, 202, json=SEEN)
    await cluster.stop()
    await cluster.start()
    looks = await looked(cluster)
    await until(lambda: looks() >= 2)
    await cluster.post(0, "/txlog/workers", None, 200, json=added)
    await report(cluster, STORE, "Ahead")
    assert [duty["id"] for duty in await duties(cluster)] == [told["duty"]]
    seen = looks()
    await until(lambda: looks() >= seen + 2)
    async with cluster.session.delete(cluster.url(0, PATH)) as answer:
        assert answer.status == 200
    await until(lambda: not kept(cluster))
    await cluster.post(0, "/txlog/workers", None, 200, json=added)
    await report(cluster, STORE, "Ahead")
    assert await duties(cluster) == []


async def looked(cluster: Cluster) -> Callable[[], int]:
    """How often the master has looked for decisions that are done."""
    decisions, count = cluster.service(0).routes._store_decisions, [0]
    look = decisions._forget_moved

    def counted() -> None:
        count[0] += 1
        look()

    decisions._forget_moved = counted  # type: ignore[method-assign]
    return lambda: count[0]


async def test_a_decision_for_another_cluster_is_none(clusters: Callable[..., Cluster]) -> None:
    """The journal was lost since, and the next cluster has another id."""
    cluster = clusters(1, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}])
    folder = cluster.folder / "uk-1"
    folder.mkdir()
    write_decisions(folder, {"w-1": OTHER})
    await cluster.start()
    await report(cluster, STORE, "Ahead")
    assert await duties(cluster) == []
    await until(lambda: not kept(cluster))
    assert "StoreDecisionForgotten" in cluster.logged(0)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"version": 2, "decisions": {"w-1": {"kind": "burn"}}}', "format 2 is not known here; expected 1"),
        (b'{"version": 1, "decisions": {"w-1": {"kind": "burn"}}}', "Invalid enum value 'burn'"),
        (b'{"version": 1, "deci', "truncated"),
        (b"", "truncated"),
        (b"\xff" * 40, "malformed"),
        (b" " * (store_decision_file.BYTES_MAX + 1), "longer than"),
    ],
)
async def test_a_file_that_cannot_be_read_decides_nothing(
    clusters: Callable[..., Cluster], content: bytes, why: str
) -> None:
    cluster = clusters(1, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}])
    folder = cluster.folder / "uk-1"
    folder.mkdir()
    (folder / FILE).write_bytes(content)
    with pytest.raises(ValueError, match=why):
        read_decisions(folder)
    await cluster.start()
    assert "StoreDecisionsNotRead" in cluster.logged(0)
    await report(cluster, STORE, "Ahead")
    assert await duties(cluster) == []
    await cluster.post(0, f"{PATH}/discard", None, 202, json=SEEN)
    assert [duty["kind"] for duty in await duties(cluster)] == ["discard"], "repeated"


def test_the_format_of_version_1_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(
        '{"version":1,"decisions":{"w-1":{"kind":"discard","index":20,"hash":"' + "ab" * 16 + '","storeCluster":"'
        f'{"0e" * 16}","cluster":"{"0c" * 16}","at":1.5' + "}}}"
    )
    assert read_decisions(tmp_path) == {"w-1": OTHER}
    first = (tmp_path / FILE).read_bytes()
    write_decisions(tmp_path, {"w-1": OTHER})
    assert (tmp_path / FILE).read_bytes() == first
