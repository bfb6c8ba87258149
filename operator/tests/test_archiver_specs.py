"""The archiver of a data centre on Kubernetes."""

import json
from typing import Any

import pytest
from golden import AROUND
from test_specs import cluster, one

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import ArchiverConfig, NodeConfig
from txlog_operator.manifest_validation import unsupported_fields
from txlog_operator.specs import BuildContext, KubeObject, desired_objects
from txlog_operator.specs.common import CONFIG_HASH_ANNOTATION
from txlog_operator.specs.masters import master_config, restart_hash

FOLDER = {"folder": {"path": "/archive", "claimName": "archive"}}
S3 = {"s3": {"bucket": "backups", "secretRef": {"name": "keys"}}}


def deployment(given: TxLogCluster, around: BuildContext = AROUND) -> KubeObject:
    return one("Deployment", "catalogue-archiver", desired_objects(given, around))


def config(given: TxLogCluster) -> ArchiverConfig:
    found = one("ConfigMap", "catalogue-archiver", desired_objects(given, AROUND))
    return ArchiverConfig.model_validate(json.loads(found["data"]["archiver.json"]))


def test_without_an_archive_nothing_is_built_and_masters_are_as_before() -> None:
    given = cluster()
    assert not [each for each in desired_objects(given, AROUND) if "archiver" in each["metadata"]["name"]]
    assert "archive" not in master_config(given, "uk-1", AROUND).model_dump(exclude_defaults=True)


@pytest.mark.parametrize(
    ("spec", "volume"),
    [
        ({"archive": {"target": FOLDER}}, {"persistentVolumeClaim": {"claimName": "archive"}}),
        ({"archive": {"target": S3}}, {"secret": {"secretName": "keys"}}),
        ({"archive": {}, "backup": {"target": S3}}, {"secret": {"secretName": "keys"}}),
    ],
)
def test_it_has_its_target_and_the_masters_of_its_data_centre(spec: dict[str, Any], volume: KubeObject) -> None:
    given = cluster(**spec)
    assert not unsupported_fields(given)
    made = config(given)
    assert made.data_center == "uk"
    assert [url.split("//")[1].split(".")[0] for url in made.masters] == ["catalogue-1", "catalogue-2"]
    pod = deployment(given)["spec"]["template"]["spec"]
    assert any(each.items() >= volume.items() for each in pod["volumes"])
    [container] = pod["containers"]
    assert container["command"][2] == "txlog.archive"
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_masters_expect_it() -> None:
    given = cluster(archive={"target": FOLDER, "maxDelay": "5s", "onFull": "hold"})
    made: NodeConfig = master_config(given, "uk-1", AROUND)
    assert made.archive is not None
    assert (made.archive.max_delay_ms, made.archive.on_full) == (5000, "hold")
    assert restart_hash(given, AROUND) != restart_hash(cluster(), AROUND)


def test_another_configuration_is_another_pod_of_the_same_deployment() -> None:
    slow, quick = (deployment(cluster(archive={"target": FOLDER, "maxDelay": delay})) for delay in ("5s", "1s"))
    assert slow["metadata"]["name"] == quick["metadata"]["name"]
    notes = [each["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH_ANNOTATION] for each in (slow, quick)]
    assert notes[0] != notes[1]
    assert slow["spec"]["strategy"] == {"type": "Recreate"}
    labels = slow["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= slow["spec"]["selector"]["matchLabels"].items()


def test_with_users_it_has_a_token() -> None:
    users = {"users": {"secretRef": {"name": "people"}}}
    pod = deployment(cluster(archive={"target": FOLDER}, security=users))["spec"]["template"]["spec"]
    assert "TXLOG_TOKEN_FILE" in {each["name"] for each in pod["containers"][0]["env"]}


def test_a_folder_without_a_claim_is_refused() -> None:
    given = cluster(archive={"target": {"folder": {"path": "/archive"}}})
    assert unsupported_fields(given) == [
        "spec.archive.target.folder.claimName is missing; expected the PersistentVolumeClaim of that folder"
    ]
