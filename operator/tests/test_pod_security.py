"""Pods on platforms that restrict them: the Pod Security Standard, and OpenShift's ``restricted-v2``."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from control_plane import ROOT, ControlPlane
from observations import manifest
from test_charts import rendered
from test_platform_specs import ACCOUNT, EVERYTHING, templates

from txlog.config.cluster import TxLogCluster
from txlog_operator.specs import BuildContext, KubeObject

PLATFORM = replace(ACCOUNT, platform_ids=True)
IDS = {"runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy", "supplementalGroups"}
VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
"""All of them are in the list of ``restricted-v2``."""


def cluster(mode: str) -> TxLogCluster:
    security = {
        "tlsSecretRef": {"name": "a"},
        "peerTlsSecretRef": {"name": "b"},
        "users": {"secretRef": {"name": "people"}},
    }
    return manifest(pipeline={"mode": mode}, security=security, **EVERYTHING)


def contexts(pod: KubeObject) -> list[KubeObject]:
    return [each.get("securityContext", {}) for each in [*pod["containers"], *pod.get("initContainers", [])]]


@pytest.mark.parametrize("mode", ["local", "executors"])
@pytest.mark.parametrize("around", [ACCOUNT, PLATFORM])
def test_pods_ask_for_no_privilege(mode: str, around: BuildContext) -> None:
    found = [each["spec"] for each in templates(cluster(mode), around)]
    assert len(found) == (9 if mode == "executors" else 8)
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert {kind for volume in pod["volumes"] for kind in volume.keys() - {"name"}} <= VOLUMES
        for context in contexts(pod):
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True
            assert "privileged" not in context


@pytest.mark.parametrize("mode", ["local", "executors"])
def test_where_the_platform_chooses_users_no_pod_names_one(mode: str) -> None:
    for template in templates(cluster(mode), PLATFORM):
        pod = template["spec"]
        assert not IDS & pod["securityContext"].keys()
        assert not any(IDS & context.keys() for context in contexts(pod))
    ours = next(iter(templates(cluster(mode), ACCOUNT)))["spec"]["securityContext"]
    assert (ours["runAsUser"], ours["fsGroup"]) == (1000, 1000)


@pytest.mark.kubernetes
def test_the_chart_of_the_operator_names_none_either(tmp_path: Path) -> None:
    def operator(**values: Any) -> KubeObject:
        found = rendered(ROOT / "charts" / "txlog-operator", tmp_path, **values)
        pod: KubeObject = next(each for each in found if each["kind"] == "Deployment")["spec"]["template"]["spec"]
        return pod

    assert operator()["securityContext"]["runAsUser"] == 1000
    pod = operator(platformIds=True)
    assert not IDS & pod["securityContext"].keys()
    assert "--platform-ids" in pod["containers"][0]["command"]


@pytest.mark.kubernetes
@pytest.mark.parametrize("mode", ["local", "executors"])
def test_the_standard_restricted_admits_every_pod(
    plane: ControlPlane, namespace: str, tmp_path: Path, mode: str
) -> None:
    plane.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    plane.kubectl("-n", namespace, "create", "serviceaccount", "txlog-pipeline")
    operator = rendered(ROOT / "charts" / "txlog-operator", tmp_path, namespace)
    pods = [next(each for each in operator if each["kind"] == "Deployment")["spec"]["template"]]
    for around in (ACCOUNT, PLATFORM):
        pods += templates(cluster(mode), around)
    for at, template in enumerate(pods):
        spec = {**template["spec"], "restartPolicy": template["spec"].get("restartPolicy", "Always")}
        spec.pop("serviceAccountName", None)
        volumes = [
            {"name": claim, "emptyDir": {}}
            for claim in ("journal", "store", "changes")
            if any(mount["name"] == claim for each in spec["containers"] for mount in each.get("volumeMounts", []))
        ]
        spec["volumes"] = [*spec["volumes"], *volumes]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{at}", "namespace": namespace}, "spec": spec}
        done = plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod), check=False)
        assert done.returncode == 0, done.stderr
    bad = {"containers": [{"name": "a", "image": "a"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad", "namespace": namespace}, "spec": bad}
    refused = plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod), check=False)
    assert "violates PodSecurity" in refused.stderr
