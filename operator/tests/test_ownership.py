"""Whose an object is, and what of it is put right."""

from typing import Any

import pytest
from observations import AROUND, manifest, whole
from test_plan import of, planned, settled

from txlog.config.cluster import TxLogCluster
from txlog_operator.actions import ApplyObject, DeleteObject, FailedAction
from txlog_operator.drift import AppliedObjects, with_hash
from txlog_operator.kube_client import ApiError
from txlog_operator.object_ownership import foreign_owner, refusal
from txlog_operator.plan_applier import RefusedActions, failed_in_kubernetes
from txlog_operator.specs import KubeObject, desired_objects


def service(cluster: TxLogCluster) -> KubeObject:
    return next(each for each in desired_objects(cluster, AROUND) if each["kind"] == "Service")


LABELS = service(manifest())["metadata"]["labels"]


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"ownerReferences": [{"uid": "u1"}]}, ""),
        ({"labels": LABELS}, ""),
        ({"labels": {**LABELS, "more": "a"}}, ""),
        ({}, "no label"),
        ({"labels": {"app.kubernetes.io/instance": "catalogue"}}, "no label"),
        ({"labels": LABELS, "ownerReferences": [{"uid": "u0", "controller": True, "kind": "TxLogCluster"}]}, "uid u0"),
        ({"ownerReferences": [{"uid": "r", "controller": True, "kind": "Shop", "name": "b"}]}, "belongs to Shop b"),
    ],
)
def test_whose_it_is(meta: dict[str, Any], said: str) -> None:
    wanted = service(manifest())
    found = {"metadata": {"name": wanted["metadata"]["name"], **meta}}
    assert said in foreign_owner(found, wanted)
    assert bool(said) == bool(foreign_owner(found, wanted))
    refused = refusal(found, wanted)
    assert (refused is None) == (not said)
    assert refused is None or "Service catalogue-masters exists, and is not the operator's" in str(refused)


def test_an_object_with_our_labels_and_another_controller_is_not_deleted() -> None:
    cluster = manifest()
    world = settled(cluster)
    mine = world.objects["Service", "catalogue"]
    for owner, count in (("u1", 1), ("other", 0)):
        meta = {**mine["metadata"], "name": "extra", "ownerReferences": [{"uid": owner, "controller": True}]}
        world.objects["Service", "extra"] = {**mine, "metadata": meta}
        assert len(of(DeleteObject, planned(cluster, whole(cluster, world)))) == count


def test_what_a_webhook_makes_of_an_apply_is_applied_once() -> None:
    wanted = with_hash({**service(manifest()), "spec": {"cpu": "0.5"}})
    meta = {**wanted["metadata"], "uid": "a", "resourceVersion": "1"}
    made = {**wanted, "metadata": meta, "spec": {"cpu": "500m"}}
    applied = AppliedObjects()
    key = ("Service", wanted["metadata"]["name"])
    assert applied.unchanged({key: made}) == {}
    applied.record(wanted, made)
    assert list(applied.unchanged({key: made})) == [key]
    later = {**made, "status": {"ready": 1}, "metadata": {**meta, "resourceVersion": "2"}}
    assert list(applied.unchanged({key: later})) == [key]
    changed = {**made, "spec": {"cpu": "2"}, "metadata": {**meta, "resourceVersion": "3"}}
    assert applied.unchanged({key: changed}) == {}


def test_a_refused_object_is_tried_again_ever_later() -> None:
    now = [0.0]
    refused = RefusedActions(lambda: now[0])
    action = ApplyObject({"kind": "Service", "metadata": {"name": "a"}, "spec": {"port": 1}})
    failed = FailedAction(action, ApiError(422, "no"))
    tried = 0
    for _ in range(600):
        if refused.waiting(action) is None:
            tried += 1
            refused.record(failed)
        now[0] += 1
    assert 10 <= tried <= 20
    assert refused.waiting(ApplyObject({**action.desired, "spec": {"port": 2}})) is None, "another one is tried at once"
    refused.keep([action], [])
    assert refused.waiting(action) is None


def test_what_another_writer_was_faster_with_is_no_failure() -> None:
    action = ApplyObject({"kind": "Service", "metadata": {"name": "a"}})
    failed = [FailedAction(action, ApiError(code, "no")) for code in (409, 422)]
    assert failed_in_kubernetes(failed) == failed[1:]
