"""Claims that are deleted, and the many more that stay."""

from dataclasses import replace
from typing import Any

import pytest
from observations import manifest, whole
from test_plan import of, planned, replicas, settled

from txlog.config.cluster import TxLogCluster
from txlog_operator.actions import AddPeer, DeleteObject
from txlog_operator.observation import ClusterObservation
from txlog_operator.specs import masters, workers
from txlog_operator.specs.common import selector

THREE = ["uk-1", "uk-2", "uk-3", "dc0-1"]


def claims(cluster: TxLogCluster, seen: ClusterObservation, *names: str, **more: Any) -> ClusterObservation:
    """With these claims there, labelled as their StatefulSet labels them."""
    found = dict(seen.objects)
    for name in names:
        component = masters.COMPONENT if name.startswith(masters.CLAIM) else workers.COMPONENT
        meta = {"name": name, "uid": f"uid-{name}", "labels": selector(cluster, component), **more}
        found["PersistentVolumeClaim", name] = {"kind": "PersistentVolumeClaim", "metadata": meta}
    return replace(seen, objects=found)


def scaled(seen: ClusterObservation, name: str, count: int) -> ClusterObservation:
    """The StatefulSet has so many replicas, whoever did that."""
    found = dict(seen.objects)
    whole_set = found["StatefulSet", name]
    found["StatefulSet", name] = {**whole_set, "spec": {**whole_set["spec"], "replicas": count}}
    return replace(seen, objects=found)


def deleted(cluster: TxLogCluster, seen: ClusterObservation) -> list[str]:
    return [each.name for each in of(DeleteObject, planned(cluster, seen)) if each.kind == "PersistentVolumeClaim"]


def test_the_journal_of_a_master_that_has_left_goes() -> None:
    two = manifest(2)
    seen = claims(two, whole(two, settled(two), configured=THREE, removed=["uk-3"]), *journals(3))
    assert deleted(two, seen) == ["journal-catalogue-3"]
    assert deleted(two, replace(seen, pod_names=frozenset({"catalogue-3"}))) == [], "its pod still ends"
    assert deleted(two, claims(two, seen, "journal-catalogue-3", deletionTimestamp="now")) == []


def journals(count: int) -> list[str]:
    return [f"journal-catalogue-{index}" for index in range(1, count + 1)]


@pytest.mark.parametrize("count", [0, 1])
def test_journals_outlive_a_scale_by_hand(count: int) -> None:
    two = manifest(2)
    seen = claims(two, scaled(whole(two, settled(two)), "catalogue", count), *journals(2))
    assert deleted(two, seen) == []
    blind = replace(seen, masters=dict.fromkeys(seen.masters))
    assert deleted(two, blind) == []


def test_a_paused_operator_deletes_nothing() -> None:
    paused = manifest(2, paused=True)
    seen = claims(paused, whole(paused, settled(manifest(2)), configured=THREE, removed=["uk-3"]), *journals(3))
    assert planned(paused, seen) == []


def test_a_journal_stays_while_the_log_does_not_show_the_departure() -> None:
    two = manifest(2)
    for more in ({}, {"leaving": ["uk-3"]}, {"state": "Suspected", "removed": ["uk-3"]}):
        seen = claims(two, whole(two, settled(two), configured=THREE, **more), *journals(3))
        assert deleted(two, seen) == []


def test_the_claim_of_a_number_that_the_log_never_had_stays() -> None:
    """A cluster was removed, which keeps its volumes, and a smaller one of its name was created: that claim may hold
    all that is left of the former log."""
    two = manifest(2)
    seen = claims(two, whole(two, settled(two), configured=["uk-1", "uk-2", "dc0-1"]), *journals(3))
    assert deleted(two, seen) == []


def test_claims_of_somebody_else_stay() -> None:
    two = manifest(2)
    seen = claims(two, whole(two, settled(two), configured=THREE, removed=["uk-3"]), *journals(3))
    key = ("PersistentVolumeClaim", "journal-catalogue-3")
    found = {**seen.objects, key: {**seen.objects[key], "metadata": {"name": key[1], "labels": {}}}}
    assert deleted(two, replace(seen, objects=found)) == []


def test_a_master_comes_back_only_without_the_journal_of_its_former_life() -> None:
    three = manifest(3)
    world = settled(manifest(2))
    seen = whole(manifest(2), world, configured=THREE, removed=["uk-3"])
    old = claims(three, seen, *journals(3))
    assert replicas(planned(three, old)) in ([], [2])
    assert of(AddPeer, planned(three, old)) == []
    assert deleted(three, old) == ["journal-catalogue-3"]
    going = claims(three, old, "journal-catalogue-3", deletionTimestamp="now")
    assert of(AddPeer, planned(three, going)) == []
    gone = claims(three, seen, *journals(2))
    assert replicas(planned(three, gone)) == [3]
    assert [each.node for each in of(AddPeer, planned(three, gone))] == ["uk-3"]


def test_stores_that_the_manifest_drops_lose_their_claims_and_no_others() -> None:
    two, one = manifest(workers={"replicas": 2}), manifest(workers={"replicas": 1})
    stores = ["store-catalogue-worker-1", "store-catalogue-worker-2"]
    seen = claims(two, scaled(whole(two, settled(two)), "catalogue-worker", 1), *stores)
    assert deleted(two, seen) == [], "somebody scaled it by hand"
    assert deleted(one, seen) == [stores[1]]


def test_no_stateful_set_deletes_claims_by_itself() -> None:
    cluster = manifest()
    for key, each in settled(cluster).objects.items():
        if key[0] == "StatefulSet":
            policy = each["spec"]["persistentVolumeClaimRetentionPolicy"]
            assert policy == {"whenDeleted": "Retain", "whenScaled": "Retain"}
