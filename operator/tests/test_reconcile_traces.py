"""Traces of reconciles: off without a word in the manifest, sent by OTLP with it."""

import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from control_plane import ControlPlane
from test_reconciler import QUICK, turns
from test_resource_rules import applied, resource

sys.path.append(str(Path(__file__).parents[2] / "node/tests/telemetry"))
from otlp_receiver import OtlpReceiver

from txlog.config.telemetry_spec import TracesSpec
from txlog_operator.kube_client import KubeClient
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.reconcile_traces import ReconcileTrace, ReconcileTraces
from txlog_operator.reconciler import Reconciler

DEADLINE_S = 20.0


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    found = OtlpReceiver()
    yield found
    found.close()


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    found = KubeClient(plane.place)
    yield found
    await found.close()


def eventually(what: Callable[[], object]) -> None:
    until = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < until, f"not within {DEADLINE_S} s"
        time.sleep(0.05)


def reconcile_with(traces: TracesSpec | None) -> ReconcileTrace:
    trace = ReconcileTrace()
    trace.traces = traces
    with trace.step("observe"):
        pass
    with suppress(ValueError), trace.step("apply") as applying:
        applying.attributes["actions"] = "apply Service catalogue"
        raise ValueError("it broke")
    return trace


def test_steps_are_parts_of_the_reconcile(receiver: OtlpReceiver) -> None:
    traces = ReconcileTraces("operator-1")
    traces.record("graphs", "catalogue", reconcile_with(TracesSpec(endpoint=receiver.url, sample_ratio=1.0)))
    traces.close()
    (whole,) = receiver.named("reconcile")
    assert (whole.parent, whole.service, whole.node, whole.error) == (
        "",
        "txlog-operator",
        "operator-1",
        "ValueError: it broke",
    )
    assert whole.attributes == {"txlog.namespace": "graphs", "txlog.cluster": "catalogue"}
    parts = [each for each in receiver.spans if each.parent == whole.span]
    assert [(each.name, each.error) for each in parts] == [("observe", ""), ("apply", "ValueError: it broke")]
    assert parts[1].attributes == {"txlog.actions": "apply Service catalogue"}
    assert whole.began <= parts[0].began <= parts[0].ended <= parts[1].ended <= whole.ended


def test_without_a_manifest_that_has_traces_nothing_is_sent(receiver: OtlpReceiver) -> None:
    traces = ReconcileTraces("operator-1")
    traces.record("graphs", "catalogue", reconcile_with(None))
    traces.record("graphs", "catalogue", reconcile_with(TracesSpec(endpoint=receiver.url, sample_ratio=0.0)))
    traces.close()
    assert receiver.paths == []


def test_a_cluster_that_is_gone_sends_what_waits_and_no_more(receiver: OtlpReceiver) -> None:
    spec = TracesSpec(endpoint=receiver.url, sample_ratio=1.0)
    traces = ReconcileTraces("operator-1")
    for name in ("a", "b"):
        traces.record("graphs", name, reconcile_with(spec))
    traces.forget("graphs", "a")
    traces.record("graphs", "b", reconcile_with(spec))
    traces.forget("graphs", "b")
    traces.forget("graphs", "unknown")
    eventually(lambda: len(receiver.named("reconcile")) == 3)


@pytest.mark.kubernetes
async def test_a_reconcile_against_an_api_server(
    receiver: OtlpReceiver, plane: ControlPlane, kube: KubeClient, namespace: str
) -> None:
    traces, told = ReconcileTraces("operator-1"), {"endpoint": receiver.url, "sampleRatio": 1}
    keeper = Reconciler(kube, namespace, "catalogue", QUICK, OperatorMetrics(), traces=traces)
    assert applied(plane, resource(namespace)) == ""
    await turns(keeper, 1)
    assert applied(plane, resource(namespace, telemetry={"traces": told})) == ""
    await turns(keeper, 1)
    traces.close()
    whole, *_ = receiver.named("reconcile")
    assert whole.attributes["txlog.namespace"] == namespace
    assert whole.attributes["txlog.phase"] == "Unseen"
    parts = [each.name for each in receiver.spans if each.parent == whole.span]
    assert sorted(parts) == ["apply", "observe", "plan", "read", "report", "status"]
    wrong = applied(plane, resource(namespace, telemetry={"traces": {"endpoint": "collector:4318"}}))
    assert "telemetry.traces.endpoint" in wrong
