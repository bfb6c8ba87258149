"""Traces of transactions through real masters, read by a collector that speaks OTLP over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from master_cluster import SYNCED, Cluster, until

sys.path.append(str(Path(__file__).parents[1] / "telemetry"))
sys.path.append(str(Path(__file__).parents[1] / "pipeline"))
from otlp_receiver import OtlpReceiver
from store_process import Store

from txlog.config.process_config import PipelineConfig
from txlog.pipeline.worker_applier import WorkerApplier
from txlog.pipeline.worker_lanes import ApplyRequest, LaneSet
from txlog.runtime import transaction_traces
from txlog.telemetry.tracer import CLOSE_TIMEOUT_S, Tracer

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
RECORDED = f"00-{TRACE}-{SPAN}-01"
SERVER, CONSUMER = 2, 5
INSERT = "INSERT DATA {{ <urn:s> <urn:p> <urn:{}> }}"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    found = OtlpReceiver()
    yield found
    found.close()


def traces(receiver: OtlpReceiver, ratio: float) -> dict[str, Any]:
    return {"endpoint": receiver.url, "sample_ratio": ratio}


async def test_a_transaction_of_a_client_with_a_trace(receiver: OtlpReceiver, clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, traces=traces(receiver, 0.0))
    await cluster.start()
    told = await cluster.write(0, INSERT.format("a"), traceparent=RECORDED)  # over the short way
    await cluster.write(0, INSERT.format("b"))
    txid, index = told["TxLog-Transaction"], int(told["TxLog-Position"].split(":")[1])
    await until(lambda: len(receiver.named("replicate")) == 2 and len(receiver.named("sync")) == 3)
    await until(lambda: receiver.named("write"))
    assert {each.trace for each in receiver.spans} == {TRACE}
    assert set(receiver.paths) == {"/v1/traces"}
    (write,) = receiver.named("write")
    assert (write.parent, write.kind, write.node, write.service) == (SPAN, SERVER, "uk-1", "txlog-master")
    assert write.attributes["txlog.transaction"] == txid
    assert write.attributes["txlog.durability"] == "synced"
    own = [each for each in receiver.spans if each.parent == write.span and each.node == "uk-1"]
    assert [each.name for each in sorted(own, key=lambda one: one.ended)][:3] == ["accept", "order", "sync"]
    accept, order, sync = sorted(own, key=lambda one: one.ended)[:3]
    assert write.began == accept.began <= accept.ended == order.began <= order.ended == sync.began
    assert sync.ended <= write.ended, "it was answered when it was synced"
    assert sync.attributes["txlog.index"] == index
    for node in ("uk-2", "uk-3"):
        (replicate,) = [each for each in receiver.named("replicate") if each.node == node]
        assert (replicate.parent, replicate.kind) == (write.span, CONSUMER)
        assert replicate.attributes["txlog.transaction"] == txid
        parts = [each.name for each in receiver.spans if each.parent == replicate.span]
        assert sorted(parts) == ["order", "persist", "sync"]
    for at in range(3):
        figures = await cluster.get(at, "/metrics")
        assert "\ntxlog_traces_recorded_total 1.0\n" in figures
        assert "\ntxlog_traces_failed 0.0\n" in figures
        found = await cluster.get(at, f"/txlog/traces?after={index - 1}&upto={index}")
        (one,) = found["transactions"]
        assert (one["txid"], one["index"], one["traceparent"][:35]) == (txid, index, RECORDED[:35])
    assert (await cluster.get(0, f"/txlog/traces?after={index}&upto={index + 9}"))["transactions"] == []


async def test_workers_that_have_executed_it_end_the_last_stage(
    receiver: OtlpReceiver, clusters: Callable[..., Cluster]
) -> None:
    workers = [{"name": "w1", "url": "http://127.0.0.1:1"}]
    cluster = clusters(1, traces=traces(receiver, 1.0), workers=workers)
    await cluster.start()
    told = await cluster.write(0, INSERT.format("a"))
    epoch, index, value = told["TxLog-Position"].split(":")
    position = {"epoch": int(epoch), "index": int(index), "hash": value}
    report = {"position": position, "state": "Working"}
    await cluster.post(0, "/txlog/workers/w1", json.dumps(report), 200)
    (applied,) = await until(lambda: receiver.named("apply"))
    (write,) = receiver.named("write")
    assert (applied.parent, applied.attributes["txlog.index"]) == (write.span, int(index))
    assert write.parent == "", "by chance, and without a client's trace"


async def test_what_a_lane_executes_is_in_the_same_trace(
    receiver: OtlpReceiver, clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    try:
        workers = [{"name": "w1", "url": store.url}]
        cluster = clusters(2, traces=traces(receiver, 0.0), workers=workers)
        await cluster.start()
        settings = {"data_center": "uk", "masters": [cluster.url(1)], "workers": workers}
        more = {"scratch_folder": tmp_path / "scratch", "traces": traces(receiver, 0.0)}
        lanes = LaneSet(PipelineConfig.model_validate({**settings, **more}), WorkerApplier)
        await cluster.write(0, INSERT.format("before"))
        await asyncio.to_thread(lanes.apply_workers, [ApplyRequest("w1", 1)], 20.0)
        told = await cluster.write(0, INSERT.format("a"), traceparent=RECORDED)
        await asyncio.to_thread(lanes.apply_workers, [ApplyRequest("w1", 2)], 20.0)
        await cluster.write(0, INSERT.format("b"))
        await asyncio.to_thread(lanes.apply_workers, [ApplyRequest("w1", 3)], 20.0)
        (executed,) = await until(lambda: receiver.named("execute"))
        (write,) = receiver.named("write")
    finally:
        store.kill()
    assert (executed.trace, executed.parent, executed.kind) == (TRACE, write.span, CONSUMER)
    assert (executed.service, executed.node) == ("txlog-lanes", "uk-lanes")
    assert executed.attributes == {
        "txlog.worker": "w1",
        "txlog.transaction": told["TxLog-Transaction"],
        "txlog.index": 2,
        "txlog.entries": 1,
    }
    assert write.began < executed.began < executed.ended


@pytest.mark.parametrize("path", ["/repositories/demo/statements?x=1", "/txlog/transactions"])
async def test_the_other_ways_of_a_write(receiver: OtlpReceiver, clusters: Callable[..., Cluster], path: str) -> None:
    cluster = clusters(1, traces=traces(receiver, 0.0))
    await cluster.start()
    update = INSERT.format("a")
    body, status = (json.dumps({"update": update}), 200) if path.startswith("/txlog") else (update, 204)
    await cluster.post(0, path, body, status, headers={**SYNCED, "traceparent": RECORDED})
    (write,) = await until(lambda: receiver.named("write"))
    assert (write.trace, write.parent) == (TRACE, SPAN)


async def test_what_is_not_recorded(receiver: OtlpReceiver, clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, traces=traces(receiver, 1.0))
    await cluster.start()
    await cluster.write(0, INSERT.format("a"), traceparent=f"00-{TRACE}-{SPAN}-00")  # its client records nothing
    await cluster.write(0, INSERT.format("b"), traceparent="00-zz")  # no trace at all: chance decides
    await cluster.write(0, "INSERT DATA { nonsense", status=400)
    await until(lambda: receiver.named("sync"))
    assert len(receiver.named("write")) == 1
    assert not [each for each in receiver.spans if each.trace == TRACE]


async def test_a_refused_transaction(receiver: OtlpReceiver, clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, traces=traces(receiver, 0.0))
    await cluster.start()
    await cluster.write(0, INSERT.format("a"), Idempotency_Key="k")
    await cluster.write(0, INSERT.format("b"), status=409, Idempotency_Key="k", traceparent=RECORDED)
    await cluster.write(0, INSERT.format("a"), Idempotency_Key="k", traceparent=RECORDED)  # a repeat
    await until(lambda: len(receiver.named("write")) == 2)
    refused, repeated = sorted(receiver.named("write"), key=lambda one: one.began)
    assert refused.error == "KeyTaken", "no key and no term leaves the cluster"
    assert repeated.attributes["txlog.repeat"] is True
    assert (repeated.error, len(receiver.named("order"))) == ("", 0), "it was recorded when it was new"


async def test_a_collector_that_is_away_delays_nothing(
    receiver: OtlpReceiver, clusters: Callable[..., Cluster]
) -> None:
    receiver.status = 503
    cluster = clusters(1, traces=traces(receiver, 1.0))
    await cluster.start()
    for number in range(50):
        await cluster.write(0, INSERT.format(number))
    await until(lambda: receiver.paths)
    began = time.monotonic()
    await cluster.stop()
    assert time.monotonic() - began < CLOSE_TIMEOUT_S + 3.0, "nor a stop"


@pytest.mark.parametrize("at", ["start", "is_sampled"])
async def test_an_error_of_traces_ends_them_alone(
    receiver: OtlpReceiver, clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    cluster = clusters(2, traces=traces(receiver, 1.0))
    await cluster.start()
    await cluster.write(0, INSERT.format("a"))
    broken = Tracer.start

    def breaks(*given: Any, **more: Any) -> Any:
        if at == "is_sampled" or given[1] in ("order", "replicate"):  # in a request; in a turn, and in a notice
            raise RuntimeError("it broke")
        return broken(*given, **more)

    monkeypatch.setattr(Tracer, at, breaks)
    for name in ("b", "c"):
        await cluster.write(0, INSERT.format(name), traceparent=RECORDED)
    await cluster.write(1, INSERT.format("d"), traceparent=RECORDED)
    assert [cluster.service(number).loop.end_reason for number in (0, 1)] == [None, None]
    assert cluster.logged(0).count("TracesFailed") == 1
    assert cluster.service(0).loop.durability.observer is None
    assert "\ntxlog_traces_failed 1.0\n" in await cluster.get(0, "/metrics")


async def test_a_followed_transaction_keeps_no_payload(
    receiver: OtlpReceiver, clusters: Callable[..., Cluster]
) -> None:
    cluster = clusters(1, traces=traces(receiver, 1.0))  # without workers it is followed for a minute
    await cluster.start()
    await cluster.write(0, INSERT.format("a"))
    found = cluster.service(0).context.traces
    assert found is not None
    assert [(each.is_own, each.write) for each in found._followed] == [(True, None)]


async def test_without_traces_nothing_is_there(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1)
    await cluster.start()
    app = cluster.service(0)
    assert (app.context.traces, app.loop.durability.observer) == (None, None)
    await cluster.write(0, INSERT.format("a"), traceparent=RECORDED)
    assert await cluster.get(0, "/txlog/traces?after=0&upto=9") == {"transactions": []}
    await cluster.get(0, "/txlog/traces?after=9&upto=0", 400)
    assert "txlog_traces" not in await cluster.get(0, "/metrics")


async def test_no_more_than_a_bound_is_followed(
    receiver: OtlpReceiver, clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_traces, "FOLLOWED_MAX", 3)
    cluster = clusters(1, traces=traces(receiver, 1.0))  # without workers each is followed for a minute
    await cluster.start()
    for number in range(5):
        await cluster.write(0, INSERT.format(number))
    figures = await cluster.get(0, "/metrics")
    assert "\ntxlog_traces_recorded_total 3.0\n" in figures
    assert "\ntxlog_traces_skipped_total 2.0\n" in figures


async def test_notices_that_nobody_would_send(receiver: OtlpReceiver, clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, traces=traces(receiver, 0.0))
    await cluster.start()
    notice = cluster.service(0).routes.on_peer_notice
    for body in (b"", b"[1]", b'[["uk-1.0.1", "00"]]', b'[["uk-1.0000000000000001.1", "x"]]', b"[" * 100_000):
        notice("uk-2", "traces", body)
    assert cluster.service(0).loop.end_reason is None
    assert not cluster.ended
