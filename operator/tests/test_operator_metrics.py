"""What the operator tells of itself."""

from pathlib import Path

import kopf
from observations import manifest, whole
from prometheus_client import generate_latest
from test_kube_client import find_endpoint

from txlog.config.cluster_status import ClusterStatus
from txlog_operator.cluster_phase import cluster_phase_of
from txlog_operator.main import Operator, build_registry
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.reconciler import OperatorSettings
from txlog_operator.specs import BuildContext
from txlog_operator.status_writer import make_status


def test_of_a_deleted_cluster_no_series_stays() -> None:
    cluster, metrics = manifest(), OperatorMetrics()
    seen = whole(cluster)
    status = make_status(cluster, 1, seen, cluster_phase_of(seen), [], ClusterStatus(applied=7))
    metrics.observe_status("graphs", "catalogue", status)
    metrics.observe_reconcile("graphs", "catalogue", 0.1, "done")
    assert b'name="catalogue"' in generate_latest(metrics.registry)
    metrics.forget("graphs", "catalogue")
    assert b'name="catalogue"' not in generate_latest(metrics.registry)


def test_turns_that_fail_since_the_start_have_a_time_that_an_alert_can_measure_from() -> None:
    """``TxLogOperatorStill`` looks at this series: without it, a cluster that never did well raises no alert."""
    metrics, cluster = OperatorMetrics(), {"namespace": "graphs", "name": "catalogue"}
    series = "txlog_operator_reconcile_last_success_timestamp_seconds"
    metrics.observe_reconcile("graphs", "catalogue", 0.1, "failed")
    first = metrics.registry.get_sample_value(series, cluster)
    assert first is not None
    assert first > 0
    metrics.observe_reconcile("graphs", "catalogue", 0.1, "failed")
    assert metrics.registry.get_sample_value(series, cluster) == first
    metrics.observe_reconcile("graphs", "catalogue", 0.1, "done")
    assert (metrics.registry.get_sample_value(series, cluster) or 0) > first
    metrics.forget("graphs", "catalogue")
    assert metrics.registry.get_sample_value(series, cluster) is None


def test_refused_requests_are_counted() -> None:
    metrics = OperatorMetrics()
    for code in (200, 403, 403, 0):
        metrics.observe_request("GET", code)
    assert metrics.registry.get_sample_value("txlog_operator_forbidden_total") == 2
    labels = {"method": "GET", "code": "0"}
    assert metrics.registry.get_sample_value("txlog_operator_requests_total", labels) == 1


async def test_a_probe_that_fails_is_not_repeated(tmp_path: Path) -> None:
    """A repeated one would keep every later probe waiting, also when all is well again."""
    place = await find_endpoint(KUBECONFIG, tmp_path)
    registry = build_registry(Operator(place, OperatorSettings(BuildContext("txlog:1"))), place)
    probes = [each for each in registry._activities.get_all_handlers() if each.id == "still"]
    assert [each.errors for each in probes] == [kopf.ErrorsMode.PERMANENT]


KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "c",
}
