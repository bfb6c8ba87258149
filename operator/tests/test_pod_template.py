"""What a manifest adds to pods: where it goes, what it cannot replace, and that nothing is restarted without it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from golden import AROUND
from pydantic import ValidationError
from ruamel.yaml import YAML
from test_specs import cluster, one, pods

from txlog.config.cluster import TxLogCluster
from txlog.config.pod_template import PodTemplate
from txlog_operator.specs import KubeObject, desired_objects, jobs
from txlog_operator.specs.common import labels
from txlog_operator.specs.pipeline import pipeline_job_name

ADDED: dict[str, Any] = {
    "labels": {"team": "data"},
    "annotations": {"scrape": "yes"},
    "env": [{"name": "AWS_REGION", "value": "eu-west-2"}, {"name": "HOME", "value": "/elsewhere"}],
    "nodeSelector": {"pool": "graphs"},
    "tolerations": [{"key": "graphs", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "priorityClassName": "high",
    "serviceAccountName": "graphs-s3",
    "imagePullSecrets": [{"name": "registry"}],
    "sidecars": [{"name": "agent", "image": "agent:1", "volumeMounts": [{"name": "x-agent", "mountPath": "/a"}]}],
    "volumes": [{"name": "x-agent", "emptyDir": {}}],
}
ARCHIVE = {"target": {"folder": {"path": "/archive", "claimName": "archive"}}}


def all_pods(given: TxLogCluster) -> list[KubeObject]:
    """Of every workload, with a Job of each kind and the executors."""
    found = desired_objects(given, AROUND)
    made = [
        jobs.build_job(given, AROUND, "a", command) for command in (jobs.backup_command("a", "b"), jobs.duty_command())
    ]
    pipeline = one("ConfigMap", "catalogue-pipeline", found)["data"]
    executors = [YAML(typ="safe").load(pipeline["executor.yaml"])] if "executor.yaml" in pipeline else []
    return [*pods(found), *pods(made), *executors]


@pytest.mark.parametrize("mode", ["local", "executors"])
def test_every_pod_gets_what_the_manifest_adds(mode: str) -> None:
    given = cluster(podTemplate=ADDED, pipeline={"mode": mode}, archive=ARCHIVE)
    found = all_pods(given)
    assert len(found) == (7 if mode == "executors" else 6), "masters, workers, pipeline, archiver, two Jobs, executors"
    for pod in found:
        spec, own = pod["spec"], pod["metadata"]["labels"]
        component = own["app.kubernetes.io/component"]
        assert own == {"team": "data", **labels(given, component)}
        assert pod["metadata"]["annotations"]["scrape"] == "yes"
        assert spec["tolerations"] == ADDED["tolerations"]
        assert spec["nodeSelector"] == {"pool": "graphs"}
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        assert spec["priorityClassName"] == "high"
        (spread,) = spec["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == component
        (sidecar,) = spec["initContainers"]
        assert sidecar["restartPolicy"] == "Always", "beside the container of a Job it would keep the Job from ending"
        assert sidecar["securityContext"]["readOnlyRootFilesystem"] is True
        assert ADDED["volumes"][0] in spec["volumes"]
        (container,) = spec["containers"]
        env = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert env["AWS_REGION"] == "eu-west-2"
        assert len(env) == len(container["env"]), "no variable twice"
        if component not in ("master", "worker"):
            assert env["HOME"] == "/tmp", "what TxLog sets stays"
        is_driver = component == "pipeline" and mode == "executors"
        assert spec["serviceAccountName"] == (AROUND.pipeline_account if is_driver else "graphs-s3")
        assert spec["automountServiceAccountToken"] is is_driver


def test_a_component_has_additions_of_its_own_which_count_first() -> None:
    given = cluster(
        podTemplate={
            "labels": {"team": "data", "tier": "all"},
            "tolerations": [{"key": "a"}],
            "env": [{"name": "A", "value": "1"}],
        },
        masters={
            "podTemplate": {
                "labels": {"tier": "log"},
                "tolerations": [{"key": "b"}],
                "env": [{"name": "A", "value": "2"}],
            }
        },
    )
    found = desired_objects(given, AROUND)
    masters = one("StatefulSet", "catalogue", found)["spec"]["template"]
    workers = one("StatefulSet", "catalogue-worker", found)["spec"]["template"]
    assert (masters["metadata"]["labels"]["tier"], workers["metadata"]["labels"]["tier"]) == ("log", "all")
    assert masters["metadata"]["labels"]["team"] == "data"
    assert [each["key"] for each in masters["spec"]["tolerations"]] == ["a", "b"]
    assert [each["key"] for each in workers["spec"]["tolerations"]] == ["a"]
    assert [each for each in masters["spec"]["containers"][0]["env"] if each["name"] == "A"] == [
        {"name": "A", "value": "2"}
    ]


def test_without_additions_every_object_is_as_before() -> None:
    plain, empty = cluster(archive=ARCHIVE), cluster(archive=ARCHIVE, podTemplate={}, masters={"podTemplate": {}})
    one_, other = desired_objects(plain, AROUND), desired_objects(empty, AROUND)
    for each in (*one_, *other):
        each.get("data", {}).pop("accepted.json", None)
    assert json.dumps(one_) == json.dumps(other)


def test_a_change_makes_another_pipeline_job_since_a_job_never_changes() -> None:
    names = {
        pipeline_job_name(cluster(**spec), AROUND)
        for spec in ({}, {"podTemplate": {"labels": {"a": "b"}}}, {"pipeline": {"podTemplate": {"labels": {"a": "c"}}}})
    }
    assert len(names) == 3
    assert pipeline_job_name(cluster(masters={"podTemplate": {"labels": {"a": "b"}}}), AROUND) in names


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"labels": {"app.kubernetes.io/name": "mine"}}, "names without the prefixes"),
        ({"annotations": {"txlog.io/config": "0"}}, "names without the prefixes"),
        ({"env": [{"name": "A"}]}, "either value or valueFrom"),
        ({"env": [{"name": "A", "value": "1", "valueFrom": {}}]}, "either value or valueFrom"),
        ({"env": [{"name": "TXLOG_INDEX", "value": "9"}]}, "another name"),
        ({"sidecars": [{"image": "a"}]}, "a container with a name and an image"),
        ({"volumes": [{"name": "config", "emptyDir": {}}]}, "a volume whose name begins with x-"),
        ({"toleration": []}, "toleration"),
    ],
)
def test_what_cannot_be_added_is_refused(template: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        PodTemplate.model_validate(template)
