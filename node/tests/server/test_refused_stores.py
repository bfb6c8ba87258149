"""A store that is not of this cluster is refused by name, and only a person's decision makes a duty of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from master_cluster import Cluster, until
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import MasterLog, apply_up_to
from txlog.backup.backup_errors import LogIncomplete, StoreRefused
from txlog.backup.duty import adopt_worker, restore_worker
from txlog.client import FailoverClient
from txlog.config.process_config import DutyJobConfig, FolderConfig
from txlog.model.entry import Position
from txlog.model.hashes import content_base
from txlog.pipeline.apply_round import to_worker_position
from txlog.workers.adapter import MarkerPosition
from txlog.workers.marker_names import marker_name

OTHER = "0e" * 16
PATH = "/txlog/workers/w-1"
STORE = {"epoch": 1, "index": 20, "hash": "ab" * 16, "fence": 4, "cluster": OTHER}
"""Where a store of another cluster is."""


async def started(clusters: Callable[..., Cluster], writes: int = 0, **changes: Any) -> Cluster:
    workers = [{"name": name, "url": f"http://127.0.0.1:{9 + at}"} for at, name in enumerate(("w-1", "w-2"))]
    cluster = clusters(1, workers=workers, **changes)
    await cluster.start()
    for at in range(writes):
        await cluster.write(0, f'INSERT DATA {{ <urn:s:{at}> <urn:p> "o" }}')
    return cluster


async def report(cluster: Cluster, position: dict[str, Any] | None, state: str, name: str = "w-1") -> dict[str, Any]:
    """The worker as the API shows it after this report."""
    await cluster.post(0, f"/txlog/workers/{name}", None, 200, json={"position": position, "state": state})
    workers = (await cluster.get(0, "/txlog/status"))["workers"]
    found: dict[str, Any] = next(worker for worker in workers if worker["name"] == name)
    return found


async def duties(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await cluster.get(0, "/txlog/duties"))["duties"]
    return found


@pytest.mark.parametrize("writes", [0, 3, 25], ids=["no log", "above the log", "below its end"])
@pytest.mark.parametrize("state", ["Ahead", "Diverged", "Working", "NeedsRestore"])
async def test_a_store_of_another_cluster_is_refused_and_not_restored(
    clusters: Callable[..., Cluster], writes: int, state: str
) -> None:
    cluster = await started(clusters, writes)
    shown = await report(cluster, STORE, state)
    assert shown["state"] == "Refused"
    assert shown["error"].startswith(f"OtherCluster: it holds the data of the cluster {OTHER} up to index 20")
    assert "txlog worker adopt w-1" in shown["error"]
    assert await duties(cluster) == []
    assert cluster.service(0).loop.durability.applied.value == 0, "it executed nothing of this log"
    readable = cluster.service(0).routes.reads.router.readable_workers()
    assert [candidate.worker.name for candidate in readable] == ["w-2"]


@pytest.mark.parametrize("index", [1, 20])
async def test_a_marker_without_a_cluster_has_to_be_on_the_log(clusters: Callable[..., Cluster], index: int) -> None:
    cluster = await started(clusters, 2)
    stable = (await cluster.get(0, "/txlog/status"))["stable"]
    on_log = {"epoch": stable["epoch"], "index": stable["index"], "hash": stable["hash"]}
    assert (await report(cluster, on_log, "Working"))["state"] == "Working"
    shown = await report(cluster, {"epoch": 1, "index": index, "hash": "cd" * 16}, "Diverged")
    assert (shown["state"], shown["error"].split(":")[0]) == ("Refused", "UnknownPosition")
    assert await duties(cluster) == []


async def test_a_store_of_this_cluster_on_another_branch_is_restored(clusters: Callable[..., Cluster]) -> None:
    cluster = await started(clusters, 2)
    ours = (await cluster.get(0, "/txlog/status"))["clusterId"]
    shown = await report(cluster, {"epoch": 1, "index": 1, "hash": "cd" * 16, "cluster": ours}, "Diverged")
    assert shown["state"] == "Diverged"
    assert [duty["kind"] for duty in await duties(cluster)] == ["restore"]


@pytest.mark.parametrize("kind", ["adopt", "discard"])
async def test_a_persons_decision_is_a_duty_while_the_store_is_there(
    clusters: Callable[..., Cluster], kind: str
) -> None:
    cluster = await started(clusters, 3)
    await report(cluster, STORE, "Ahead")
    seen = {key: STORE[key] for key in ("index", "hash", "cluster")}
    told = await cluster.post(0, f"{PATH}/{kind}", None, 202, json=seen)
    assert told == {"worker": "w-1", "duty": f"{kind}-w-1-20-abababab"}
    (duty,) = await duties(cluster)
    assert (duty["id"], duty["kind"], duty["worker"]) == (told["duty"], kind, "w-1")
    await cluster.post(0, f"/txlog/duties/{duty['id']}", None, 200, json={"state": "failed", "message": "no room"})
    assert (await duties(cluster))[0]["error"] == "no room"
    await report(cluster, {**STORE, "index": 21, "hash": "ac" * 16}, "Ahead")
    assert await duties(cluster) == [], "it was decided about other content"


async def test_decisions_that_are_refused(clusters: Callable[..., Cluster]) -> None:
    cluster = await started(clusters, 2)
    ours = (await cluster.get(0, "/txlog/status"))["clusterId"]
    seen = {key: STORE[key] for key in ("index", "hash", "cluster")}
    await cluster.post(0, f"{PATH}/adopt", None, 409, json=seen)  # nothing is reported yet
    await report(cluster, {**STORE, "cluster": ours}, "Working")
    await cluster.post(0, f"{PATH}/discard", None, 409, json=seen)  # it is of this cluster
    await report(cluster, STORE, "Ahead")
    await cluster.post(0, "/txlog/workers/w-9/adopt", None, 404, json=seen)
    await cluster.post(0, f"{PATH}/adopt", None, 409, json={**seen, "index": 19})
    await cluster.post(0, f"{PATH}/adopt", None, 400, json={"index": "x"})
    await cluster.post(0, f"{PATH}/adopt", None, 400, json={**seen, "sure": True})
    assert await duties(cluster) == []


async def test_other_workers_on_this_log_lack_what_is_adopted(clusters: Callable[..., Cluster]) -> None:
    cluster = await started(clusters, 2)
    status = await cluster.get(0, "/txlog/status")
    stable, seen = status["stable"], {key: STORE[key] for key in ("index", "hash", "cluster")}
    other = {**stable, "cluster": status["clusterId"]}
    await report(cluster, other, "Working", "w-2")
    await report(cluster, STORE, "Ahead")
    await cluster.post(0, f"{PATH}/adopt", None, 409, json=seen)
    base = content_base(bytes.fromhex(OTHER), b"", 20, bytes.fromhex("ab" * 16)).hex()
    await report(cluster, {**other, "base": base}, "Working", "w-2")
    await cluster.post(0, f"{PATH}/adopt", None, 202, json=seen)
    await report(cluster, other, "Working", "w-2")
    await cluster.post(0, f"{PATH}/adopt", None, 202, json={**seen, "force": True})


async def test_a_trimmed_log_cannot_follow_on_adopted_content(clusters: Callable[..., Cluster]) -> None:
    cluster = await started(clusters, segment_bytes=1 << 16, trim_interval_ms=50)
    for at in range(30):
        await cluster.write(0, f'INSERT DATA {{ <urn:s:{at}> <urn:p> "{"x" * 20_000}" }}')
    status = await cluster.get(0, "/txlog/status")
    whole = {**status["stable"], "cluster": status["clusterId"]}
    for name in ("w-1", "w-2"):
        await report(cluster, whole, "Working", name)
    backup = {"name": "b", "index": whole["index"], "hash": whole["hash"]}
    await cluster.post(0, "/txlog/backups", None, 200, json={"backups": [backup]})

    def trimmed() -> bool:
        log = cluster.service(0).loop.status.log_state
        return log is not None and log.log_index.start > 0

    await until(trimmed)
    await report(cluster, STORE, "Ahead")
    seen = {key: STORE[key] for key in ("index", "hash", "cluster")}
    await cluster.post(0, f"{PATH}/adopt", None, 409, json={**seen, "force": True})
    await cluster.post(0, f"{PATH}/discard", None, 202, json=seen)


# The jobs, on a real store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OxigraphProcess]:
    """Twenty quads of another cluster."""
    found = OxigraphProcess(tmp_path / "store")
    found.update("INSERT DATA { " + " ".join(f"<urn:old:{n}> <urn:p> {n} ." for n in range(20)) + " }")
    found.plant(MarkerPosition(Position(1, 20, b"\xab" * 16), 4, (), bytes.fromhex(OTHER)))
    yield found
    found.kill()


async def with_store(clusters: Callable[..., Cluster], store: OxigraphProcess, writes: int = 2) -> Cluster:
    cluster = clusters(1, workers=[{"name": "w-1", "url": store.url}])
    await cluster.start()
    for at in range(writes):
        await cluster.write(0, f'INSERT DATA {{ <urn:new:{at}> <urn:p> "o" }}')
    await report(cluster, STORE, "Ahead")
    return cluster


def job(cluster: Cluster, tmp_path: Path) -> DutyJobConfig:
    (tmp_path / "backups").mkdir(exist_ok=True)
    return DutyJobConfig(data_center="uk", masters=[cluster.url(0)], target=FolderConfig(folder=tmp_path / "backups"))


def follow(cluster: Cluster, store: OxigraphProcess) -> MarkerPosition:
    """What the pipeline does next."""
    with FailoverClient([cluster.url(0)], 5.0) as masters:
        log = MasterLog(masters)
        done = apply_up_to(ADAPTER, store.transport, log, 1 << 40, budget_s=20, cluster=lambda: log.cluster)
    assert (done.state, done.error) == ("Working", None)
    assert done.position is not None
    return done.position


async def test_a_restore_that_nobody_decided_empties_nothing(
    clusters: Callable[..., Cluster], store: OxigraphProcess, tmp_path: Path
) -> None:
    """Also one that a master of an earlier version lists."""
    cluster = await with_store(clusters, store)
    before = store.quads(), store.system()
    with pytest.raises(StoreRefused, match="OtherCluster"):
        await asyncio.to_thread(restore_worker, job(cluster, tmp_path), "w-1")
    for undecided in (adopt_worker, partial(restore_worker, discard=True)):
        assert (await asyncio.to_thread(undecided, job(cluster, tmp_path), "w-1"))["already"] is True
    assert (store.quads(), store.system()) == before


async def test_an_adopted_store_is_brought_back_to_work(
    clusters: Callable[..., Cluster], store: OxigraphProcess, tmp_path: Path
) -> None:
    cluster = await with_store(clusters, store)
    old, seen = store.quads(), {key: STORE[key] for key in ("index", "hash", "cluster")}
    await cluster.post(0, f"{PATH}/adopt", None, 202, json=seen)
    done = await asyncio.to_thread(adopt_worker, job(cluster, tmp_path), "w-1")
    assert (done["way"], done["index"]) == ("adopt", 0)
    assert store.quads() == old
    marker = await asyncio.to_thread(follow, cluster, store)
    assert len(store.quads()) == len(old) + 2
    shown = await report(cluster, msgspec.to_builtins(to_worker_position(marker)), "Working")
    assert (shown["state"], shown["error"], shown["position"]["base"]) == ("Working", None, done["base"])
    assert await duties(cluster) == []
    # It is off the log, and there is no other copy: the log alone would lose what came before it.
    off = {**msgspec.to_builtins(to_worker_position(marker)), "index": 1}
    store.update(f"DROP GRAPH <{marker_name(marker)}>")
    store.plant(marker._replace(position=Position(1, 1, marker.position.hash)))
    await report(cluster, off, "Diverged")
    assert [duty["kind"] for duty in await duties(cluster)] == ["restore"]
    with pytest.raises(LogIncomplete, match="w-1 had content before the first entry"):
        await asyncio.to_thread(restore_worker, job(cluster, tmp_path), "w-1")
    assert len(store.quads()) == len(old) + 2


async def test_a_discarded_store_is_filled_by_the_log(
    clusters: Callable[..., Cluster], store: OxigraphProcess, tmp_path: Path
) -> None:
    cluster = await with_store(clusters, store)
    seen = {key: STORE[key] for key in ("index", "hash", "cluster")}
    await cluster.post(0, f"{PATH}/discard", None, 202, json=seen)
    done = await asyncio.to_thread(partial(restore_worker, discard=True), job(cluster, tmp_path), "w-1")
    assert (done["way"], done["from"]) == ("log", "nothing")
    marker = await asyncio.to_thread(follow, cluster, store)
    assert len(store.quads()) == 2
    shown = await report(cluster, msgspec.to_builtins(to_worker_position(marker)), "Working")
    assert shown["state"] == "Working"
