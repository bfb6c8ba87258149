"""What a platform asks of every pod: requests for its resources, and a policy for its network."""

from collections.abc import Iterator
from typing import Any

import pytest
from observations import manifest

from txlog.config.cluster import TxLogCluster
from txlog_operator.specs import BuildContext, KubeObject, desired_objects, executors, jobs, pipeline

ACCOUNT = BuildContext("txlog:1", owner_uid="u1", pipeline_account="txlog-pipeline")
TARGET = {"s3": {"bucket": "backups", "secretRef": {"name": "s3"}}}
EVERYTHING: dict[str, Any] = {
    "backup": {"target": TARGET},
    "archive": {"target": TARGET},
    "bootstrap": {"recovery": {"archive": {"target": TARGET}}},
    "changeSets": {"enabled": True},
}
COMPONENTS = {"master", "worker", "pipeline", "backup", "duty", "archiver", "recovery", "changesets"}


def templates(cluster: TxLogCluster, around: BuildContext = ACCOUNT) -> Iterator[KubeObject]:
    """Of all pods that the operator or Spark makes for a cluster."""
    made = desired_objects(cluster, around)
    for command in (jobs.backup_command("a", "manual"), jobs.duty_command("--release")):
        made.append(jobs.build_job(cluster, around, "a", command))
    for each in made:
        if "template" in each.get("spec", {}):
            yield each["spec"]["template"]
    if executors.executor_count(cluster):
        yield executors.pod_template(cluster, around, pipeline.SCRATCH_FOLDER)


@pytest.mark.parametrize("mode", ["local", "executors"])
def test_every_pod_requests_what_it_needs(mode: str) -> None:
    seen = set()
    for template in templates(manifest(pipeline={"mode": mode}, **EVERYTHING)):
        component = template["metadata"]["labels"]["app.kubernetes.io/component"]
        seen.add(component)
        if component == executors.COMPONENT:
            continue  # Spark writes its requests, as the configuration of the pipeline says
        for container in [*template["spec"]["containers"], *template["spec"].get("initContainers", [])]:
            requests = container["resources"]["requests"]
            assert set(requests) == {"cpu", "memory", "ephemeral-storage"}, component
    assert seen == COMPONENTS | ({"executor"} if mode == "executors" else set())


def test_what_the_manifest_says_of_a_resource_counts_alone() -> None:
    given = {"limits": {"memory": "128Mi"}, "requests": {"cpu": 2}}
    cluster = manifest(masters={"resources": given})
    template = next(each for each in templates(cluster) if each["metadata"]["labels"]["txlog.io/data-center"] == "uk")
    resources = template["spec"]["containers"][0]["resources"]
    # Kubernetes requests the limit where there is no request; a larger default would make the pod invalid.
    assert resources == {"requests": {"ephemeral-storage": "64Mi", "cpu": "2"}, "limits": {"memory": "128Mi"}}


def selects(policy: KubeObject, labels: dict[str, str]) -> bool:
    pods = policy["spec"]["podSelector"]
    among = all(labels.get(each["key"]) in each["values"] for each in pods.get("matchExpressions", []))
    return among and pods["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("mode", ["local", "executors"])
def test_every_pod_has_a_policy_and_only_some_accept_connections(mode: str) -> None:
    cluster = manifest(pipeline={"mode": mode}, **EVERYTHING)
    policies = [each for each in desired_objects(cluster, ACCOUNT) if each["kind"] == "NetworkPolicy"]
    open_ones = set()
    for template in templates(cluster):
        labels = template["metadata"]["labels"]
        mine = [each for each in policies if selects(each, labels)]
        assert mine, labels
        assert all("Ingress" in each["spec"]["policyTypes"] for each in mine)
        if any(each["spec"].get("ingress") for each in mine):
            open_ones.add(labels["app.kubernetes.io/component"])
    assert open_ones == {"master", "worker", "changesets"} | (
        {"pipeline", "executor"} if mode == "executors" else set()
    )
    other = manifest(name="other")
    assert not any(selects(each, labels["metadata"]["labels"]) for each in policies for labels in templates(other))
