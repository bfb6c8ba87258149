"""Everything that TxLog writes for Kubernetes against the schemas of its kind, by kubeconform: the definitions, the
examples, the charts with their flags, and the objects that the operator makes."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from control_plane import ROOT
from golden import FOLDER as GOLDEN
from manifest_schemas import write_schemas
from observations import manifest
from ruamel.yaml import YAML
from test_charts import CLUSTER, OPERATOR, UK, rendered
from test_platform_specs import ACCOUNT, EVERYTHING

from e2e.cluster.linters import build_linter
from txlog_operator.specs import KubeObject, desired_objects, executors, jobs, pipeline

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]
FLAGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one": {"replicas": 1, "platformIds": True, "networkPolicy": {"enabled": False}},
    "all": {
        "monitoring": {"dashboard": True, "podMonitor": True, "prometheusRule": True},
        "watchNamespaces": ["one", "two"],
        "readSecrets": ["door"],
        "executors": True,
        "ipFamily": "IPv6",
        "imagePullSecrets": [{"name": "mine"}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "nodeSelector": {"a": "b"},
        "priorityClassName": "high",
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "extraLabels": {"team": "graphs"},
    },
}
DOORS: dict[str, Any] = {
    "ingress": {"enabled": True, "host": "a.example.net", "className": "x", "tlsSecret": "t"},
    "expose": {"enabled": True, "annotations": {"dns": "uk-{index}"}},
    "peerToken": {"value": "shared"},
}


class Kubeconform:
    def __init__(self, program: Path, location: str) -> None:
        self._program, self._location = program, location

    def check(self, folder: Path, objects: Iterable[KubeObject]) -> list[dict[str, Any]]:
        """What it says of each object. All of them are checked, or it fails."""
        count = 0
        for count, each in enumerate(objects, 1):
            (folder / f"object-{count}.json").write_text(json.dumps(each))
        command = [str(self._program), "-strict", "-verbose", "-output=json", "-schema-location", self._location]
        files = [str(folder / f"object-{number}.json") for number in range(1, count + 1)]
        done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=120, check=False)
        assert done.stdout, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)["resources"]
        assert len(found) == count > 0
        return found

    def findings(self, folder: Path, objects: Iterable[KubeObject]) -> list[str]:
        found = self.check(folder, objects)
        return [f"{each['kind']} {each['name']}: {each['msg']}" for each in found if each["status"] != "statusValid"]


@pytest.fixture(scope="module")
def kubeconform(tmp_path_factory: pytest.TempPathFactory) -> Kubeconform:
    return Kubeconform(build_linter("kubeconform"), write_schemas(tmp_path_factory.mktemp("schemas")))


def documents(*files: Path) -> list[KubeObject]:
    return [each for file in files for each in YAML(typ="safe").load_all(file.read_text()) if each]


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_the_chart_of_the_operator(kubeconform: Kubeconform, tmp_path: Path, flags: str) -> None:
    assert kubeconform.findings(tmp_path, rendered(OPERATOR, tmp_path, **FLAGS[flags])) == []


@pytest.mark.parametrize("doors", [{}, DOORS], ids=["plain", "doors"])
def test_the_chart_of_a_data_centre(kubeconform: Kubeconform, tmp_path: Path, doors: dict[str, Any]) -> None:
    assert kubeconform.findings(tmp_path, rendered(CLUSTER, tmp_path, **UK, **doors)) == []


def test_definitions_and_examples(kubeconform: Kubeconform, tmp_path: Path) -> None:
    files = sorted([*(ROOT / "crds").glob("*.yaml"), *(ROOT / "examples").rglob("*.yaml")])
    assert len(files) >= 11
    assert kubeconform.findings(tmp_path, documents(*files)) == []


def test_objects_of_the_examples(kubeconform: Kubeconform, tmp_path: Path) -> None:
    found = documents(*sorted(GOLDEN.glob("*.yaml")))
    assert len(found) > 50
    assert kubeconform.findings(tmp_path, found) == []


@pytest.mark.parametrize("mode", ["local", "executors"])
def test_objects_of_a_cluster_with_everything(kubeconform: Kubeconform, tmp_path: Path, mode: str) -> None:
    cluster = manifest(pipeline={"mode": mode}, **EVERYTHING)
    found = desired_objects(cluster, ACCOUNT)
    for command in (jobs.backup_command("a", "manual"), jobs.duty_command("--release")):
        found.append(jobs.build_job(cluster, ACCOUNT, "a", command))
    if executors.executor_count(cluster):
        template = executors.pod_template(cluster, ACCOUNT, pipeline.SCRATCH_FOLDER)
        template["metadata"]["name"] = "executor"  # Spark gives it
        found.append({"apiVersion": "v1", "kind": "Pod", **template})
    assert kubeconform.findings(tmp_path, found) == []


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("Deployment", {"spec": {"replicas": "two"}}, "got string, want"),
        ("Deployment", {"spec": {"strateegy": {}}}, "additional properties 'strateegy' not allowed"),
        ("Service", {"spec": {"ports": [{"port": 1, "targetPort": {}}]}}, "got object, want"),
        ("NetworkPolicy", {"spec": {"ingress": [{"port": []}]}}, "additional properties 'port' not allowed"),
        ("TxLogCluster", {"spec": {"maxPeerLag": "60"}}, "does not match pattern"),
        ("TxLogCluster", {"spec": {"masterz": {}}}, "additional properties 'masterz' not allowed"),
        ("PodMonitor", {"spec": {"podMetricsEndpoints": [{"intervall": "1s"}]}}, "'intervall' not allowed"),
        ("PrometheusRule", {"spec": {"groups": [{"rules": []}]}}, "missing property 'name'"),
        ("Other", {"apiVersion": "txlog.io/v1alpha1"}, "could not find schema"),
    ],
)
def test_what_is_wrong_is_found(
    kubeconform: Kubeconform, tmp_path: Path, kind: str, change: dict[str, Any], said: str
) -> None:
    given = [*rendered(OPERATOR, tmp_path, **FLAGS["all"]), *rendered(CLUSTER, tmp_path, **UK, **DOORS)]
    found = next((each for each in given if each["kind"] == kind), {"kind": kind, "metadata": {"name": "a"}})
    assert found.get("spec") is None or kubeconform.findings(tmp_path, [found]) == []
    spec = {"spec": {**found.get("spec", {}), **change.get("spec", {})}}
    (wrong,) = kubeconform.findings(tmp_path, [{**found, **change, **spec}])
    assert said in wrong
