"""A data centre that is put to sleep and woken: pods go, volumes and objects stay."""

from dataclasses import replace

from observations import NOW, World, manifest, whole
from test_plan import of, planned, settled
from test_volume_claims import claims, deleted, journals

from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import ClusterStatus, ConditionType
from txlog_operator.actions import ApplyObject, DeleteObject, PatchStatus, RestartMaster
from txlog_operator.cluster_phase import cluster_phase_of
from txlog_operator.job_attempts import format_time
from txlog_operator.observation import ClusterObservation
from txlog_operator.reconcile_outcome import check_plan
from txlog_operator.specs import KubeObject, jobs
from txlog_operator.specs.common import labels
from txlog_operator.status_writer import make_status

ARCHIVE = {"target": {"s3": {"bucket": "archive"}}}


def empty(cluster: TxLogCluster, world: World) -> ClusterObservation:
    """No pod is there, so no master answers."""
    seen = whole(cluster, world)
    return replace(seen, master_pods={}, pipeline_pods={}, masters=dict.fromkeys(seen.masters), urls={})


def sets(world: World) -> dict[str, int]:
    return {name: each["spec"]["replicas"] for (kind, name), each in world.objects.items() if kind == "StatefulSet"}


def asleep(cluster: TxLogCluster, world: World) -> ClusterObservation:
    """After the plans were carried out."""
    world.carry_out(planned(cluster, whole(cluster, world)))
    seen = empty(cluster, world)
    world.carry_out(planned(cluster, seen))
    return empty(cluster, world)


def planned_status(cluster: TxLogCluster, seen: ClusterObservation) -> ClusterStatus:
    outcome = check_plan([], cluster.spec.paused, [], [])
    return make_status(cluster, 3, seen, cluster_phase_of(seen), [], ClusterStatus(), outcome)


def ready(status: ClusterStatus) -> tuple[str, str]:
    return next((each.status, each.reason) for each in status.conditions if each.type == "Ready")


def test_all_pods_go_and_everything_else_stays() -> None:
    before = manifest(workers={"replicas": 2}, archive=ARCHIVE)
    world = settled(before)
    kept = {key for key in world.objects if key[0] not in ("Job", "Deployment")}
    sleeping = manifest(workers={"replicas": 2}, archive=ARCHIVE, hibernated=True)
    seen = asleep(sleeping, world)
    assert sets(world) == {"catalogue": 0, "catalogue-worker": 0}
    assert {key for key in world.objects if key[0] in ("Job", "Deployment")} == set()
    gone = kept - world.objects.keys()
    assert {kind for kind, _ in gone} <= {"ConfigMap"}, "the configuration of what does not run"
    assert planned(sleeping, seen) == [], "it is at rest"


def test_no_volume_is_deleted_in_its_sleep() -> None:
    world = settled(manifest(workers={"replicas": 2}))
    sleeping = manifest(workers={"replicas": 1}, hibernated=True)
    seen = asleep(sleeping, world)
    full = claims(sleeping, seen, *journals(2), "store-catalogue-worker-1", "store-catalogue-worker-2")
    assert deleted(sleeping, full) == []


def test_waking_brings_back_what_was_there() -> None:
    before = manifest(workers={"replicas": 2}, archive=ARCHIVE)
    world = settled(before)
    shapes = {key: each.get("spec") for key, each in world.objects.items()}
    asleep(manifest(workers={"replicas": 2}, archive=ARCHIVE, hibernated=True), world)
    for _ in range(2):
        world.carry_out(planned(before, empty(before, world)))
    assert {key: each.get("spec") for key, each in world.objects.items()} == shapes


def job(cluster: TxLogCluster, name: str, component: str = jobs.COMPONENT, ended: bool = False) -> KubeObject:
    reported = [{"type": "Complete", "status": "True"}] if ended else []
    meta = {"name": name, "labels": labels(cluster, component), "annotations": {jobs.WORK_ANNOTATION: "none"}}
    return {"kind": "Job", "metadata": meta, "spec": {}, "status": {"conditions": reported}}


def test_a_job_that_runs_is_finished_first() -> None:
    sleeping = manifest(hibernated=True)
    world = settled(manifest())
    for component in (jobs.COMPONENT, jobs.DUTY_COMPONENT):
        world.objects["Job", "monday"] = job(sleeping, "monday", component)
        seen = whole(sleeping, world)
        changed = [each.desired["kind"] for each in of(ApplyObject, planned(sleeping, seen))]
        assert changed == ["ConfigMap"], "it holds the manifest"
        status = planned_status(sleeping, seen)
        assert (status.state, ready(status)) == ("Hibernating", ("False", "Hibernating"))
        assert "the Job monday runs" in next(each.message for each in status.conditions if each.type == "Ready")
    world.objects["Job", "monday"] = job(sleeping, "monday", ended=True)
    assert "catalogue" in [each.desired["metadata"]["name"] for each in of(ApplyObject, planned(sleeping, seen))]


def backup(name: str, state: str | None = None) -> KubeObject:
    meta = {"name": name, "namespace": "graphs", "uid": f"uid-{name}"}
    reported = {"state": state, "attempts": 1, "started": format_time(NOW)} if state else {}
    return {
        "kind": "TxLogBackup",
        "metadata": meta,
        "spec": {"cluster": "catalogue", "why": "manual"},
        "status": reported,
    }


def test_no_job_is_begun_and_the_end_of_one_is_recorded() -> None:
    target = {"target": {"s3": {"bucket": "backups"}}}
    awake, sleeping = manifest(backup=target), manifest(backup=target, hibernated=True)
    new = replace(whole(awake, settled(awake)), job_resources=(backup("monday"),))
    assert "Job" in [each.desired["kind"] for each in of(ApplyObject, planned(awake, new))]
    for seen in (new, replace(empty(sleeping, settled(awake)), job_resources=(backup("monday"),))):
        plan = planned(sleeping, seen)
        assert of(PatchStatus, plan) == []
        assert "Job" not in [each.desired["kind"] for each in of(ApplyObject, plan)]
    world = settled(awake)
    started = next(each for each in of(ApplyObject, planned(awake, new)) if each.desired["kind"] == "Job")
    world.carry_out([started])
    (running,) = [each for key, each in world.objects.items() if key[0] == "Job" and "monday" in key[1]]
    running["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    seen = replace(whole(sleeping, world), job_resources=(backup("monday", "Running"),))
    (reported,) = of(PatchStatus, planned(sleeping, seen))
    assert reported.status["state"] == "Failed"


def test_a_master_that_leaves_has_left_first() -> None:
    sleeping, world = manifest(2, hibernated=True), settled(manifest(3))
    seen = whole(sleeping, world, configured=["uk-1", "uk-2", "uk-3", "dc0-1"], leaving=["uk-3"])
    assert [each for each in planned(sleeping, seen) if isinstance(each, RestartMaster)] == []
    world.carry_out(planned(sleeping, seen))
    assert sets(world)["catalogue"] == 3
    assert planned_status(sleeping, whole(sleeping, world)).state == "Hibernating"


def test_its_status_says_what_it_does() -> None:
    sleeping, world = manifest(hibernated=True), settled(manifest())
    ending = planned_status(sleeping, whole(sleeping, world))
    assert (ending.state, ready(ending), ending.observed_generation) == ("Hibernating", ("False", "Hibernating"), 0)
    status = planned_status(sleeping, asleep(sleeping, world))
    assert (status.state, ready(status), status.observed_generation) == ("Hibernated", ("False", "Hibernated"), 3)
    reported = {each.type: (each.status, each.reason) for each in status.conditions}
    assert list(reported) == [str(kind) for kind in ConditionType]
    assert reported["Available"] == ("False", "Hibernated")
    assert reported["MastersReady"] == reported["HistoryConsistent"] == ("Unknown", "Hibernated")
    assert reported["SpecValid"][0] == reported["Reconciled"][0] == "True"


def test_paused_counts_more() -> None:
    both = manifest(hibernated=True, paused=True)
    assert planned(both, whole(both, settled(manifest()))) == []
    assert planned_status(both, whole(both, settled(manifest()))).state == "Joined"


def test_what_was_deleted_by_hand_is_no_reason_to_start_pods() -> None:
    sleeping, world = manifest(hibernated=True), settled(manifest())
    asleep(sleeping, world)
    world.objects.pop(("StatefulSet", "catalogue"))
    world.carry_out(planned(sleeping, empty(sleeping, world)))
    assert sets(world)["catalogue"] == 0
    assert of(DeleteObject, planned(sleeping, empty(sleeping, world))) == []
