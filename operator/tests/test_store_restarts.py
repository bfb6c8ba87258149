"""Which store is restarted next with what is new, and what it waits for."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from observations import AROUND, World, manifest, whole
from test_plan import of, planned, settled

from txlog.client.responses import JsonMarker, WorkerStatus
from txlog.config.cluster import TxLogCluster
from txlog_operator.actions import DeleteObject, RestartMaster
from txlog_operator.cluster_phase import ClusterPhase, cluster_phase_of
from txlog_operator.object_names import ObjectNames
from txlog_operator.observation import ClusterObservation, PodStatus
from txlog_operator.specs import KubeObject, desired_objects
from txlog_operator.store_restarts import LAG_MAX, outdated_stores, store_restart_blocker

cluster = manifest(workers={"replicas": 3})
STABLE = 5000


def worker(at: int, state: str = "Working", index: int = STABLE, hold: int | None = None) -> WorkerStatus:
    return WorkerStatus(f"uk-worker-{at}", position=JsonMarker(1, index, "00" * 16), state=state, hold=hold)


def store(at: int, **more: Any) -> PodStatus:
    made = PodStatus(f"catalogue-worker-{at}", f"uid-{at}", revision="old", ready=True, running=True)
    return replace(made, **more)


def observed(
    pods: dict[int, PodStatus] | None = None,
    workers: dict[int, WorkerStatus] | None = None,
    jobs: tuple[KubeObject, ...] = (),
    world: World | None = None,
    **each: Any,
) -> ClusterObservation:
    """Three stores that run what was before, and are well but for what is given."""
    seen = whole(cluster, world or settled(cluster), **each)
    reported = [(workers or {}).get(at) or worker(at) for at in (1, 2, 3)]
    masters = {
        node: replace(
            master,
            status=msgspec.structs.replace(
                master.status,
                workers=reported,
                stable=msgspec.structs.replace(master.status.stable, index=STABLE),
            ),
        )
        for node, master in seen.reachable_masters.items()
    }
    found = [(pods or {}).get(at) or store(at) for at in (1, 2, 3)]
    return replace(seen, masters=masters, worker_pods={each.name: each for each in found}, job_resources=jobs)


def restarted(seen: ClusterObservation, of_cluster: TxLogCluster = cluster) -> list[str]:
    return [each.name for each in of(DeleteObject, planned(of_cluster, seen)) if each.kind == "Pod"]


def test_kubernetes_does_not_restart_them_by_itself() -> None:
    (found,) = [
        each
        for each in desired_objects(cluster, AROUND)
        if each["kind"] == "StatefulSet" and each["metadata"]["name"] == ObjectNames(cluster).workers
    ]
    assert found["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_stores_are_restarted_one_after_the_other_the_last_one_first() -> None:
    assert restarted(observed()) == ["catalogue-worker-3"]
    assert restarted(observed({3: store(3, terminating=True)})) == []
    assert restarted(observed({3: store(3, revision="new", ready=False)})) == []
    behind = {3: worker(3, index=STABLE - LAG_MAX - 1)}
    assert restarted(observed({3: store(3, revision="new")}, behind)) == [], "it answers, and has not caught up"
    assert restarted(observed({3: store(3, revision="new")}, {3: worker(3, "Unreachable")})) == []
    close = {3: worker(3, index=STABLE - LAG_MAX)}
    assert restarted(observed({3: store(3, revision="new")}, close)) == ["catalogue-worker-2"]
    done = {at: store(at, revision="new") for at in (1, 2, 3)}
    assert restarted(observed(done)) == []
    assert outdated_stores(cluster, observed(done)) == []


@pytest.mark.parametrize("state", ["Isolated", "Suspected", "Rejoining", "Learning"])
def test_none_is_stopped_while_masters_do_not_agree(state: str) -> None:
    seen = observed(state=state)
    assert restarted(seen) == []
    why = store_restart_blocker(cluster, seen, cluster_phase_of(seen), "uk-worker-3")
    assert why.startswith("the masters are ")


def test_none_is_stopped_where_no_master_answers() -> None:
    seen = observed()
    seen = replace(seen, masters=dict.fromkeys(seen.masters))
    assert restarted(seen) == []


@pytest.mark.parametrize("kind", ["TxLogBackup", "TxLogRestore"])
@pytest.mark.parametrize(("state", "names"), [("Running", []), ("Done", ["catalogue-worker-3"])])
def test_none_is_stopped_while_a_job_reads_or_writes_stores(kind: str, state: str, names: list[str]) -> None:
    job = {
        "kind": kind,
        "metadata": {"name": "j", "namespace": "graphs", "uid": "u"},
        "spec": {"cluster": "catalogue", "worker": "uk-worker-1"},
        "status": {"state": state, "job": "j-1", "attempts": 1},
    }
    seen = observed(jobs=(job,))
    assert [name for name in restarted(seen) if name.startswith("catalogue-worker")] == names
    why = store_restart_blocker(cluster, seen, ClusterPhase.JOINED, "uk-worker-3")
    assert why == (f"{kind} j runs" if not names else "")


def test_one_that_does_not_run_gets_what_is_new_whatever_the_masters_do() -> None:
    pods = {2: store(2, ready=False, running=False, waiting_reason="ImagePullBackOff")}
    assert restarted(observed(pods, state="Isolated")) == ["catalogue-worker-2"]


def test_one_that_serves_nothing_goes_first() -> None:
    for at in (1, 2):
        for report in (worker(at, "Refused"), worker(at, index=0), worker(at, hold=7)):
            assert restarted(observed(workers={at: report})) == [f"catalogue-worker-{at}"]


def test_where_no_store_serves_the_next_one_still_waits_for_the_last_one() -> None:
    idle = {at: worker(at, "Unreachable") for at in (1, 2, 3)}
    assert restarted(observed(workers=idle)) == ["catalogue-worker-3"]
    assert restarted(observed({3: store(3, revision="new", ready=False)}, idle)) == []
    assert restarted(observed({3: store(3, revision="new")}, idle)) == ["catalogue-worker-2"]


def test_the_only_store_is_restarted_too() -> None:
    lone = manifest(workers={"replicas": 1})
    seen = whole(lone, settled(lone))
    seen = replace(seen, worker_pods={"catalogue-worker-1": store(1)})
    assert restarted(seen, lone) == ["catalogue-worker-1"]


def test_what_an_earlier_statefulset_says_does_not_count() -> None:
    world = settled(cluster)
    world.objects["StatefulSet", "catalogue-worker"]["metadata"]["generation"] += 1
    assert restarted(observed(world=world)) == []


def test_no_store_and_no_master_are_restarted_in_one_turn() -> None:
    seen = observed()
    pods = {node: replace(pod, revision="old") for node, pod in seen.master_pods.items()}
    plan = planned(cluster, replace(seen, master_pods=pods))
    assert len(of(RestartMaster, plan)) == 1
    assert [each for each in of(DeleteObject, plan) if each.kind == "Pod"] == []
