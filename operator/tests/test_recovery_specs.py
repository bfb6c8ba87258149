"""``spec.bootstrap.recovery`` on Kubernetes: a container before the first master, and what fills the stores."""

import json
from typing import Any

import pytest
from golden import AROUND
from pydantic import ValidationError
from test_specs import cluster, one

from txlog.config.cluster import TxLogCluster
from txlog.config.recovery_config import RecoveryConfig
from txlog_operator.manifest_validation import unsupported_fields
from txlog_operator.specs import KubeObject, desired_objects
from txlog_operator.specs.masters import restart_hash

FOLDER = {"folder": {"path": "/archive", "claimName": "archive"}}
S3 = {"s3": {"bucket": "backups", "secretRef": {"name": "keys"}}}
LOST = "0123456789abcdef0123456789abcdef"


def recovery(**fields: Any) -> dict[str, Any]:
    return {"bootstrap": {"recovery": {"archive": {"target": FOLDER, "cluster": LOST, "dataCenter": "us"}, **fields}}}


def masters_pod(given: TxLogCluster) -> KubeObject:
    found: KubeObject = one("StatefulSet", "catalogue", desired_objects(given, AROUND))["spec"]["template"]["spec"]
    return found


def filler(given: TxLogCluster) -> KubeObject:
    found = one("Deployment", "catalogue-recovery", desired_objects(given, AROUND))
    pod: KubeObject = found["spec"]["template"]["spec"]
    return pod


def config(given: TxLogCluster) -> RecoveryConfig:
    found = one("ConfigMap", "catalogue-masters", desired_objects(given, AROUND))
    return RecoveryConfig.model_validate(json.loads(found["data"]["recovery.json"]))


def test_without_it_masters_are_as_before() -> None:
    assert "initContainers" not in masters_pod(cluster())
    assert not [each for each in desired_objects(cluster(), AROUND) if "recovery" in each["metadata"]["name"]]
    assert cluster(bootstrap={}) != cluster()
    assert "initContainers" not in masters_pod(cluster(bootstrap={}))


def test_what_the_manifest_adds_to_pods_leaves_the_container_that_founds() -> None:
    """Without it the first master would begin an empty log beside the archive."""
    added = {
        "sidecars": [{"name": "agent", "image": "agent:1"}],
        "env": [{"name": "AWS_REGION", "value": "eu-west-2"}],
        "tolerations": [{"key": "graphs"}],
    }
    plain, given = cluster(**recovery()), cluster(podTemplate=added, **recovery())
    sidecar, first = masters_pod(given)["initContainers"]
    assert sidecar["name"] == "agent", "it may be the way to the archive"
    variable = {"name": "AWS_REGION", "value": "eu-west-2"}
    [without] = masters_pod(plain)["initContainers"]
    assert first == {**without, "env": [*without["env"], variable]}
    assert filler(given)["tolerations"] == added["tolerations"]
    assert variable in filler(given)["containers"][0]["env"]
    no_sidecar = cluster(podTemplate={"env": added["env"]}, **recovery())
    assert masters_pod(no_sidecar)["initContainers"] == [first]


def test_a_container_founds_before_the_master_starts() -> None:
    given = cluster(**recovery(to="position:7:0011223344556677", **{"as": "copy"}))
    assert not unsupported_fields(given)
    pod = masters_pod(given)
    [first] = pod["initContainers"]
    [master] = pod["containers"]
    assert first["command"][2:4] == ["txlog.successor", "found"]
    assert first["command"][4].removeprefix("--master=") == master["command"][3].removeprefix("--config=")
    claimed = {each["name"] for each in pod["volumes"]} | {"journal"}  # the last one by its own claim
    assert {each["name"] for each in first["volumeMounts"]} <= claimed
    assert {each["mountPath"] for each in first["volumeMounts"]} >= {"/archive", "/var/lib/txlog"}
    assert "/archive" not in {each["mountPath"] for each in master["volumeMounts"]}
    assert first["securityContext"] == master["securityContext"]
    made = config(given)
    assert (made.cluster, made.data_center, made.to, made.is_copy) == (LOST, "us", "position:7:0011223344556677", True)


def test_the_stores_are_filled_by_a_pod_of_its_own() -> None:
    pod = filler(cluster(**recovery(backups=S3), security={"users": {"secretRef": {"name": "people"}}}))
    [container] = pod["containers"]
    assert container["command"][2:4] == ["txlog.successor", "fill"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert "TXLOG_TOKEN_FILE" in {each["name"] for each in container["env"]}
    assert any(each.get("secret", {}).get("secretName") == "keys" for each in pod["volumes"])
    assert pod["automountServiceAccountToken"] is False


def test_no_running_master_restarts_for_it() -> None:
    assert restart_hash(cluster(**recovery()), AROUND) == restart_hash(cluster(), AROUND)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"to": "yesterday"}, "to"),
        ({"as": "copy"}, "position:INDEX:HASH"),
        ({"as": "twin"}, "as"),
        ({"archive": {"target": FOLDER, "cluster": "abc"}}, "cluster"),
        ({"archive": {"target": {}}}, "either s3 or folder"),
        ({"supersede": 0}, "supersede"),
        ({"timeline": "x"}, "timeline"),
    ],
)
def test_what_is_wrong_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        cluster(**recovery(**fields))


def test_a_folder_without_a_claim_is_refused() -> None:
    given = cluster(**recovery(archive={"target": {"folder": {"path": "/archive"}}}))
    assert unsupported_fields(given) == [
        "spec.bootstrap.recovery.archive.target.folder.claimName is missing; expected the PersistentVolumeClaim of "
        "that folder"
    ]
