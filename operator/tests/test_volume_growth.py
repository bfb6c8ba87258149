"""Volumes that grow: claims first, then the StatefulSet, and the masters last."""

from dataclasses import replace
from typing import Any

from observations import World, manifest, whole
from test_plan import of, planned, settled

from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import ClusterStatus, VolumeSizes
from txlog_operator.actions import ApplyObject, GrowVolume, PlanAction, ReplaceStatefulSet
from txlog_operator.cluster_phase import cluster_phase_of
from txlog_operator.observation import ClusterObservation
from txlog_operator.reconcile_outcome import check_plan
from txlog_operator.specs import masters, workers
from txlog_operator.specs.common import selector
from txlog_operator.status_writer import make_status
from txlog_operator.volume_growth import growing_volumes, requested_sizes

PENDING = {"type": "FileSystemResizePending", "status": "True", "message": "waits for a pod"}


def sized(journal: str = "20Gi", store: str = "20Gi", **spec: Any) -> TxLogCluster:
    return manifest(masters={"storage": {"size": journal}}, workers={"storage": {"size": store}}, **spec)


def bound(cluster: TxLogCluster, world: World, requested: str, has: str, *reported: dict[str, str]) -> None:
    """Claims of both masters and of the store."""
    for name in ("journal-catalogue-1", "journal-catalogue-2", "store-catalogue-worker-1"):
        component = masters.COMPONENT if name.startswith(masters.CLAIM) else workers.COMPONENT
        world.objects["PersistentVolumeClaim", name] = {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": selector(cluster, component)},
            "spec": {"resources": {"requests": {"storage": requested}}},
            "status": {"phase": "Bound", "capacity": {"storage": has}, "conditions": list(reported)},
        }


def before(requested: str = "20Gi", has: str = "20Gi", *reported: dict[str, str]) -> World:
    world = settled(sized())
    bound(sized(), world, requested, has, *reported)
    return world


def steps(plan: list[PlanAction]) -> list[PlanAction]:
    return [each for each in plan if isinstance(each, GrowVolume | ReplaceStatefulSet)]


def planned_status(cluster: TxLogCluster, seen: ClusterObservation) -> ClusterStatus:
    outcome = check_plan([], False, [], [], growing_volumes(cluster, seen))
    return make_status(cluster, 3, seen, cluster_phase_of(seen), [], ClusterStatus(), outcome)


def test_claims_are_grown_first_and_all_else_stays_as_it_is() -> None:
    larger, world = sized("40Gi"), before()
    plan = planned(larger, whole(larger, world))
    grown = [("journal-catalogue-1", "40Gi"), ("journal-catalogue-2", "40Gi")]
    assert [(each.name, each.size) for each in of(GrowVolume, plan)] == grown
    assert of(ReplaceStatefulSet, plan) == []
    changed = [each.desired for each in of(ApplyObject, plan)]
    assert [each["kind"] for each in changed] == ["ConfigMap"], "it holds the manifest"
    assert '"journal_bytes_max": 21474836480' in changed[0]["data"]["uk-1.json"]


def test_the_set_is_replaced_when_all_volumes_have_grown() -> None:
    larger, world = sized("40Gi"), before("40Gi", "20Gi")
    assert steps(planned(larger, whole(larger, world))) == [], "the storage is at it"
    world.objects["PersistentVolumeClaim", "store-catalogue-worker-1"]["spec"]["resources"] = {
        "requests": {"storage": "20Gi"}
    }
    for reported in ((PENDING,), ()):
        size = "20Gi" if reported else "40Gi"
        bound(larger, world, "40Gi", size, *reported)
        (step,) = steps(planned(larger, whole(larger, world)))
        assert isinstance(step, ReplaceStatefulSet)
        assert (step.name, step.uid) == ("catalogue", "StatefulSet-catalogue")
    # The operator applies nothing to it while it is deleted; then it creates it with the new size.
    going = whole(larger, world)
    world.objects["StatefulSet", "catalogue"]["metadata"]["deletionTimestamp"] = "now"
    plan = planned(larger, going)
    assert steps(plan) == []
    assert "StatefulSet" not in [each.desired["kind"] for each in of(ApplyObject, plan)]
    world.objects.pop(("StatefulSet", "catalogue"))
    world.carry_out(planned(larger, whole(larger, world)))
    template = world.objects["StatefulSet", "catalogue"]["spec"]["volumeClaimTemplates"][0]
    assert template["spec"]["resources"]["requests"]["storage"] == "40Gi"
    assert steps(planned(larger, whole(larger, world))) == []


def test_stores_grow_by_themselves() -> None:
    larger, world = sized("20Gi", "30Gi"), before()
    plan = planned(larger, whole(larger, world))
    assert [each.name for each in of(GrowVolume, plan)] == ["store-catalogue-worker-1"]


def test_a_claim_without_a_volume_does_not_hold_up_the_others() -> None:
    larger, world = sized("40Gi"), before("40Gi", "40Gi")
    lone = world.objects["PersistentVolumeClaim", "journal-catalogue-2"]
    lone["spec"]["resources"]["requests"]["storage"] = "20Gi"
    lone["status"] = {"phase": "Pending"}
    assert [type(each) for each in steps(planned(larger, whole(larger, world)))] == [ReplaceStatefulSet]


def test_claims_of_others_and_sizes_in_other_words_are_left_alone() -> None:
    larger, world = sized("40Gi"), before()
    for name, labels, size in (("1", {}, "20Gi"), ("2", None, "25e9")):
        claim = world.objects["PersistentVolumeClaim", f"journal-catalogue-{name}"]
        claim["metadata"]["labels"] = claim["metadata"]["labels"] if labels is None else labels
        claim["spec"]["resources"]["requests"]["storage"] = size
    assert of(GrowVolume, planned(larger, whole(larger, world))) == []


def test_a_size_that_the_storage_refuses_can_be_taken_back() -> None:
    larger, world = sized("40Gi"), before()
    world.carry_out(planned(larger, whole(larger, world)))
    assert requested_sizes(larger, whole(larger, world)) == {"master": "20Gi", "worker": "20Gi"}
    # Meanwhile everything else is carried out.
    more = sized("40Gi", podTemplate={"labels": {"team": "data"}})
    assert "StatefulSet" in [each.desired["kind"] for each in of(ApplyObject, planned(more, whole(more, world)))]
    assert steps(planned(sized(), whole(sized(), world))) == []


def test_a_template_that_is_larger_than_the_manifest_stays() -> None:
    smaller, world = sized("10Gi"), before()
    plan = planned(smaller, whole(smaller, world))
    assert steps(plan) == []
    assert "StatefulSet" not in [each.desired["kind"] for each in of(ApplyObject, plan)]


def test_the_status_says_what_grows_and_counts_the_generation_afterwards() -> None:
    larger = sized("40Gi")
    status = planned_status(larger, whole(larger, before("40Gi", "20Gi", PENDING)))
    (condition,) = [each for each in status.conditions if each.type == "Reconciled"]
    assert (condition.status, condition.reason, status.observed_generation) == ("Unknown", "VolumesGrow", 0)
    assert "journal-catalogue-1 has 20Gi of 40Gi (waits for a pod)" in condition.message
    assert status.volume_sizes == VolumeSizes(master="20Gi", worker="20Gi")
    world = before("40Gi", "40Gi")
    world.objects.pop(("StatefulSet", "catalogue"))
    world.carry_out(planned(larger, whole(larger, world)))
    grown = planned_status(larger, whole(larger, world))
    assert (grown.observed_generation, grown.volume_sizes.master) == (3, "40Gi")
    assert planned_status(larger, replace(whole(larger, world), objects={})).volume_sizes == VolumeSizes()


def test_the_claim_for_split_backups_grows_when_it_has_a_volume() -> None:
    larger, world = sized("20Gi", "30Gi"), before()
    claim = world.objects["PersistentVolumeClaim", "catalogue-split-backups"]

    def applied() -> list[str]:
        plan = of(ApplyObject, planned(larger, whole(larger, world)))
        claims = [each.desired for each in plan if each.desired["kind"] == "PersistentVolumeClaim"]
        return [each["spec"]["resources"]["requests"]["storage"] for each in claims]

    assert applied() == [], "it waits for its first pod, and cannot change"
    claim["status"] = {"phase": "Bound"}
    assert applied() == ["30Gi"]
    claim["spec"]["resources"]["requests"]["storage"] = "50Gi"
    assert applied() == ["50Gi"], "no claim shrinks: it is applied with the size that it has"


def test_nothing_grows_while_paused() -> None:
    paused = sized("40Gi", paused=True)
    assert planned(paused, whole(paused, before())) == []
