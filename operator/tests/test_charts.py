"""The charts: rendered with every flag, read by the API server itself."""

import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from control_plane import ROOT, ControlPlane, helm
from ruamel.yaml import YAML

from txlog.config.crds import DEFINITIONS, custom_resource_definition
from txlog_operator.manifest_validation import read_manifest

pytestmark = pytest.mark.kubernetes

OPERATOR, CLUSTER = ROOT / "charts" / "txlog-operator", ROOT / "charts" / "txlog-cluster"
UK = {
    "spec": {
        "dataCenter": "uk",
        "repository": "catalogue",
        "peers": [
            {"name": "uk", "masters": 2, "address": "txlog-uk-{index}.example.net"},
            {"name": "us", "masters": 1, "address": "txlog-us.example.net"},
        ],
    }
}


def rendered(chart: Path, folder: Path, namespace: str = "graphs", **values: Any) -> list[dict[str, Any]]:
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    text = helm("template", "rel", str(chart), "-n", namespace, "--kube-version=1.34.0", "-f", str(file)).stdout
    return [each for each in YAML(typ="safe").load_all(io.StringIO(text)) if each]


def roles(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those for the namespaces that are looked after."""
    return [each for each in found if each["kind"] == "Role" and not each["metadata"]["name"].endswith("-lease")]


def kinds(found: list[dict[str, Any]]) -> set[str]:
    return {each["kind"] for each in found}


@pytest.mark.parametrize("chart", [OPERATOR, CLUSTER], ids=lambda chart: chart.name)
def test_lint_finds_nothing(chart: Path, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text(json.dumps(UK if chart is CLUSTER else {}))
    helm("lint", "--strict", str(chart), "-f", str(file))


@pytest.mark.parametrize(
    ("chart", "values", "said"),
    [
        (OPERATOR, {"image": {"repo": "typo"}}, "repo"),
        (OPERATOR, {"watchNamespaces": ["Upper"]}, "pattern"),
        (OPERATOR, {"monitorin": {}}, "monitorin"),
        (OPERATOR, {"env": [{"nam": "HTTPS_PROXY"}]}, "env"),
        (CLUSTER, {}, "dataCenter"),
        (CLUSTER, {**UK, "expose": {"type": "Tunnel"}}, "LoadBalancer"),
        (CLUSTER, {**UK, "expose": {"type": "NodePort"}}, "LoadBalancer"),
    ],
)
def test_a_typo_in_the_values_is_refused(chart: Path, values: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    done = helm("template", "r", str(chart), "--kube-version=1.34.0", "-f", str(file), check=False)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize(
    ("flag", "kind"),
    [("podMonitor", "PodMonitor"), ("prometheusRule", "PrometheusRule"), ("dashboard", "ConfigMap")],
)
def test_what_others_must_be_there_for_is_behind_a_flag(flag: str, kind: str, tmp_path: Path) -> None:
    assert kind not in kinds(rendered(OPERATOR, tmp_path))
    assert kind in kinds(rendered(OPERATOR, tmp_path, monitoring={flag: True}))


def test_series_of_a_cluster_keep_its_namespace(tmp_path: Path) -> None:
    """Else Prometheus gives them the namespace of the operator's pod, and alerts name the wrong one."""
    found = rendered(OPERATOR, tmp_path, monitoring={"podMonitor": True}, watchNamespaces=["one", "two"])
    (endpoint,) = next(
        each["spec"]["podMetricsEndpoints"]
        for each in found
        if each["kind"] == "PodMonitor" and each["metadata"]["name"] == "rel"
    )
    assert endpoint["honorLabels"] is True


def test_variables_of_the_operator(tmp_path: Path) -> None:
    secret = {"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": {"secretKeyRef": {"name": "c", "key": "headers"}}}
    given = [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}, secret]
    for env in (given, []):
        (deployment,) = [each for each in rendered(OPERATOR, tmp_path, env=env) if each["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container.get("env", []) == env


def test_every_alert_names_its_runbook(tmp_path: Path) -> None:
    flags = {"prometheusRule": True, "runbooks": "https://wiki.example/alerts"}
    found = rendered(OPERATOR, tmp_path, monitoring=flags)
    (rule,) = [each for each in found if each["kind"] == "PrometheusRule"]
    alerts = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    assert len(alerts) >= 5
    for alert in alerts:
        name = alert["alert"]
        assert alert["annotations"]["runbook_url"] == f"https://wiki.example/alerts/{name}.md"
        assert (ROOT / f"docs/reference/alerts/{name}.md").is_file()


def test_definitions_are_ours_and_outlive_the_release(tmp_path: Path) -> None:
    found = {each["metadata"]["name"]: each for each in rendered(OPERATOR, tmp_path)}
    for definition in DEFINITIONS:
        wanted = custom_resource_definition(definition)
        wanted["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
        assert found[definition.name] == wanted
    assert "CustomResourceDefinition" not in kinds(rendered(OPERATOR, tmp_path, crds={"install": False}))


def test_the_api_server_takes_all_of_it(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    values = {
        "monitoring": {"dashboard": True},
        "extraLabels": {"team": "graphs"},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "mine"}],
        "readSecrets": ["door"],
        "executors": True,
    }
    doors = {"ingress": {"enabled": True, "host": "a.example.net", "className": "x", "tlsSecret": "t"}}
    doors |= {"expose": {"enabled": True, "annotations": {"dns": "uk-{index}"}}, "peerToken": {"value": "shared"}}
    for found in (
        rendered(OPERATOR, tmp_path, namespace, **values),
        rendered(CLUSTER, tmp_path, namespace, **UK, **doors),
    ):
        text = "\n---\n".join(json.dumps(each) for each in found)
        apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
        plane.kubectl(*apply, stdin=text)


def test_each_namespace_gets_its_role_and_no_other(tmp_path: Path) -> None:
    found = rendered(OPERATOR, tmp_path, watchNamespaces=["one", "two"])
    assert [each["metadata"]["namespace"] for each in roles(found)] == ["one", "two"]
    assert not {"ClusterRole", "ClusterRoleBinding"} & kinds(found)
    deployment = next(each for each in found if each["kind"] == "Deployment")
    command = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    assert [word for word in command if word.startswith("--namespace")] == ["--namespace=one", "--namespace=two"]


def test_two_releases_do_not_manage_one_namespace(plane: ControlPlane, namespace: str) -> None:
    """Two operators would act on every cluster there, each with its own image."""
    config = plane.kubeconfig(plane.admin, plane.folder / "helm.kubeconfig")

    def install(release: str, *values: str) -> subprocess.CompletedProcess[str]:
        where = f"{namespace}-{release}"
        plane.kubectl("create", "namespace", where)
        given = ["--set", "crds.install=false", *values]
        return helm(*("install", release, str(OPERATOR), "-n", where, "--kubeconfig", str(config), *given), check=False)

    managed = ("--set", f"watchNamespaces={{{namespace}}}")
    assert install("first", *managed).returncode == 0
    second = install("second", *managed)
    assert second.returncode != 0
    assert "exists and cannot be imported" in second.stderr
    third = install("third")
    assert third.returncode == 0, third.stderr


def test_an_upgrade_as_documented_gets_values_that_the_old_chart_did_not_have(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """With ``--reuse-values``, Helm takes the old chart's defaults as well: a new value is empty, and the operator does
    not start with it."""
    config = plane.kubeconfig(plane.admin, plane.folder / "helm.kubeconfig")
    documented = (ROOT / "docs/upgrade.md").read_text()
    flags = re.findall(r"helm upgrade txlog charts/txlog-operator -n graphs (\S+) --set", documented)
    old = tmp_path / "chart"
    shutil.copytree(OPERATOR, old)
    values = (old / "values.yaml").read_text()
    (old / "values.yaml").write_text(values.replace("ipFamily: IPv4\n", ""))
    common = ("-n", namespace, "--kubeconfig", str(config), "--set", "crds.install=false")
    helm("install", "txlog", str(old), *common, "--set", "replicas=3")
    helm("upgrade", "txlog", str(OPERATOR), *common, *flags, "--set", "image.tag=new")
    shown = plane.kubectl("-n", namespace, "get", "deployment", "txlog", "-o", "json").stdout
    deployment = json.loads(shown)["spec"]
    command = deployment["template"]["spec"]["containers"][0]["command"]
    assert "--ip-family=IPv4" in command
    assert (deployment["replicas"], "--image=txlog:new" in command) == (3, True), "and keeps those of the release"


def test_one_of_two_operators_acts(tmp_path: Path) -> None:
    found = rendered(OPERATOR, tmp_path)
    deployment = next(each for each in found if each["kind"] == "Deployment")["spec"]
    assert deployment["replicas"] == 2
    assert "--lease=rel" in deployment["template"]["spec"]["containers"][0]["command"]
    assert "PodDisruptionBudget" in kinds(found)
    (role,) = [each for each in found if each["kind"] == "Role" and each["metadata"]["name"] == "rel-lease"]
    assert [(each.get("resourceNames"), each["verbs"]) for each in role["rules"]] == [
        (["rel"], ["get", "update"]),
        (None, ["create"]),
    ]
    lone = rendered(OPERATOR, tmp_path, replicas=1)
    assert "PodDisruptionBudget" not in kinds(lone), "a drain would wait for ever"


def test_the_network_of_the_operator_is_closed_but_for_what_looks_at_it(tmp_path: Path) -> None:
    def policy(**values: Any) -> dict[str, Any]:
        (found,) = [each for each in rendered(OPERATOR, tmp_path, **values) if each["kind"] == "NetworkPolicy"]
        spec: dict[str, Any] = found["spec"]
        return spec

    (rule,) = policy()["ingress"]
    assert [each["port"] for each in rule["ports"]] == ["health", "metrics"]
    assert "from" not in rule
    (rule,) = policy(networkPolicy={"from": [{"namespaceSelector": {}}]})["ingress"]
    assert rule["from"] == [{"namespaceSelector": {}}]
    assert "NetworkPolicy" not in kinds(rendered(OPERATOR, tmp_path, networkPolicy={"enabled": False}))


def test_the_operator_leaves_a_lost_node_soon(tmp_path: Path) -> None:
    more = [{"key": "dedicated", "operator": "Exists"}]
    for given, count in (({}, 2), ({"tolerations": more}, 3)):
        found = rendered(OPERATOR, tmp_path, **given)
        pod = next(each for each in found if each["kind"] == "Deployment")["spec"]["template"]["spec"]
        assert len(pod["tolerations"]) == count
        assert [each["tolerationSeconds"] for each in pod["tolerations"][:2]] == [20, 20]


def test_no_rule_reads_secrets_or_is_for_everything(tmp_path: Path) -> None:
    (role,) = roles(rendered(OPERATOR, tmp_path))
    for rule in role["rules"]:
        assert "secrets" not in rule["resources"]
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_who_makes_executors_has_an_account_of_its_own_and_only_where_somebody_says_so(tmp_path: Path) -> None:
    plain = rendered(OPERATOR, tmp_path, watchNamespaces=["one", "two"])
    assert "pipeline" not in json.dumps([each for each in plain if each["kind"] != "CustomResourceDefinition"])
    given = {"watchNamespaces": ["one", "two"], "executors": True, "imagePullSecrets": [{"name": "mine"}]}
    found = [each for each in rendered(OPERATOR, tmp_path, **given) if each["metadata"]["name"] == "rel-pipeline"]
    assert [(each["kind"], each["metadata"]["namespace"]) for each in found if each["kind"] != "RoleBinding"] == [
        (kind, namespace) for kind in ("ServiceAccount", "Role") for namespace in ("one", "two")
    ]
    for binding in (each for each in found if each["kind"] == "RoleBinding"):
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == ("rel-pipeline", binding["metadata"]["namespace"])
        assert binding["roleRef"]["name"] == "rel-pipeline"
    rules = YAML(typ="safe").load((OPERATOR / "executors-role.yaml").read_text())
    assert [each["rules"] for each in roles(found)] == [rules, rules]
    accounts = [each for each in found if each["kind"] == "ServiceAccount"]
    assert [each["imagePullSecrets"] for each in accounts] == [[{"name": "mine"}]] * 2
    deployment = next(each for each in rendered(OPERATOR, tmp_path, **given) if each["kind"] == "Deployment")
    assert "--pipeline-account=rel-pipeline" in deployment["spec"]["template"]["spec"]["containers"][0]["command"]


def test_the_account_of_executors_may_do_what_the_operator_may_not(tmp_path: Path) -> None:
    """Who may make pods reaches all of a namespace: that is not the operator's affair."""
    for each in rendered(OPERATOR, tmp_path, executors=True):
        if each["kind"] == "Role" and each["metadata"]["name"] == "txlog-operator":
            assert not [rule for rule in each["rules"] if "pods" in rule["resources"] and "create" in rule["verbs"]]


def test_secrets_are_read_by_name_and_only_where_somebody_says_so(tmp_path: Path) -> None:
    (role,) = roles(rendered(OPERATOR, tmp_path, readSecrets=["door", "people"]))
    (rule,) = [rule for rule in role["rules"] if "secrets" in rule["resources"]]
    assert rule == {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["door", "people"],
        "verbs": ["get"],
    }


def test_a_data_centre_by_chart_is_one_that_the_operator_takes(tmp_path: Path) -> None:
    found = rendered(CLUSTER, tmp_path, name="catalogue", **UK)
    assert kinds(found) == {"TxLogCluster"}
    cluster, problems = read_manifest(found[0])
    assert problems == []
    assert cluster is not None
    assert cluster.own_peer.nodes == ["uk-1", "uk-2"]


def test_a_token_that_the_manifest_does_not_read_is_refused(tmp_path: Path) -> None:
    spec = {**UK["spec"], "security": {"peerTokenSecretRef": {"name": "ours"}}}
    assert [each["kind"] for each in rendered(CLUSTER, tmp_path, spec=spec)] == ["TxLogCluster"]
    file = tmp_path / "both.json"
    file.write_text(json.dumps({"spec": spec, "peerToken": {"value": "shared"}}))
    done = helm("template", "rel", str(CLUSTER), "--kube-version=1.34.0", "-f", str(file), check=False)
    assert done.returncode != 0
    assert "peerTokenSecretRef does not name" in done.stderr


def test_each_master_of_this_data_centre_gets_a_door(tmp_path: Path) -> None:
    found = rendered(
        CLUSTER, tmp_path, name="catalogue", **UK, expose={"enabled": True, "annotations": {"dns": "uk-{index}"}}
    )
    doors = [each for each in found if each["kind"] == "Service"]
    assert [each["metadata"]["name"] for each in doors] == ["catalogue-uk-1", "catalogue-uk-2"]
    assert [each["metadata"]["annotations"]["dns"] for each in doors] == ["uk-1", "uk-2"]
    assert doors[0]["spec"]["selector"]["apps.kubernetes.io/pod-index"] == "1"
    assert [port["port"] for port in doors[0]["spec"]["ports"]] == [7300]


def test_no_two_data_centres_have_a_door_of_one_name(tmp_path: Path) -> None:
    """Cilium's and other meshes take Services of one name for one Service, and a master would reach itself."""
    names: list[str] = []
    for centre in ("uk", "us"):
        found = rendered(
            CLUSTER, tmp_path, name="c" * 50, spec={**UK["spec"], "dataCenter": centre}, expose={"enabled": True}
        )
        names += [each["metadata"]["name"] for each in found if each["kind"] == "Service"]
    assert len(set(names)) == len(names) == 3
    assert all(len(name) <= 63 for name in names)


def test_doors_of_masters_with_certificates_lead_to_where_masters_meet(tmp_path: Path) -> None:
    spec = {**UK["spec"], "security": {"peerTlsSecretRef": {"name": "among-masters"}}}
    found = rendered(CLUSTER, tmp_path, spec=spec, expose={"enabled": True})
    door = next(each for each in found if each["kind"] == "Service")
    assert [(port["port"], port["targetPort"]) for port in door["spec"]["ports"]] == [(7300, "http"), (7301, "peers")]
