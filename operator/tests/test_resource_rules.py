"""What the API server itself refuses, in words that say what to do."""

import copy
import json
from typing import Any

import pytest
from control_plane import ControlPlane

from txlog.config.change_set_policy import NEEDS_ONE_ORDER, NEEDS_OXIGRAPH
from txlog.config.worker_specs import MIXED_ENGINES_REQUIRED, VIRTUOSO_NOT_MIXED, VIRTUOSO_REFUSES_EFFECTS

pytestmark = pytest.mark.kubernetes

PEERS = [
    {"name": "uk", "masters": 2, "address": "uk-{index}.example.net"},
    {"name": "us", "masters": 1, "address": "us.example.net"},
]
VIRTUOSO = {"url": "http://a", "engine": "virtuoso"}
TWO_ENGINES = [{"url": "http://a"}, {"url": "http://b", "engine": "fuseki"}]


def resource(namespace: str, name: str = "catalogue", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "txlog.io/v1alpha1",
        "kind": "TxLogCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"dataCenter": "uk", "peers": PEERS, **spec},
    }


def applied(plane: ControlPlane, wanted: dict[str, Any]) -> str:
    """What the API server says against it; empty when it took it."""
    done = plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(wanted), check=False
    )
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"dataCenter": "fr"}, "dataCenter: one of the peers, this one included"),
        ({"dataCenter": "UK"}, "spec.dataCenter"),
        ({"peers": []}, "should have at least 1 items"),
        ({"peers": [*PEERS, PEERS[0]]}, "duplicate entries"),
        ({"peers": [{"name": "uk", "masters": 2, "address": "uk.example.net"}]}, "{index} in it"),
        ({"peers": [{"name": "uk", "masters": 0, "address": "uk"}]}, "greater than or equal to 1"),
        ({"peers": [{"name": name, "masters": 33, "address": name + "{index}"} for name in ("uk", "us")]}, "most 64"),
        ({"peers": [{"name": "uk", "masters": 1, "address": "uk", "voteWeight": 0}]}, "a voteWeight above 0"),
        ({"peers": [{"name": "uk", "masters": 1}]}, "spec.peers[0].address: Required"),
        ({"splitMode": "Majority", "peers": [PEERS[1] | {"name": "uk"}]}, "less than half of all votes"),
        ({"splitMode": "Half"}, 'supported values: "Continue", "Majority"'),
        ({"splitRecovery": "Clever"}, "(none|simple|smart)"),
        ({"changeSets": {"enabled": True}, "workers": {"external": TWO_ENGINES[1:]}}, NEEDS_OXIGRAPH),
        ({"changeSets": {"enabled": True}, "workers": {"engine": "fuseki"}}, NEEDS_OXIGRAPH),
        ({"changeSets": {"enabled": True}, "splitRecovery": "none"}, NEEDS_ONE_ORDER),
        ({"changeSets": {"enabled": True, "keep": "soon"}}, "spec.changeSets.keep"),
        ({"maxPeerLag": "60"}, "spec.maxPeerLag"),
        ({"durability": {"default": "maybe"}}, "spec.durability.default"),
        ({"workers": {"replicas": 2, "external": [{"url": "http://a"}]}}, "either external or replicas"),
        ({"workers": {"external": [{"url": "ftp://a"}]}}, "spec.workers.external[0].url"),
        ({"pipeline": {"mode": "local", "executors": 2}}, "no executors with mode: local"),
        ({"pipeline": {"executorMemory": "2Gi"}}, "no executorMemory with mode: local"),
        ({"pipeline": {"mode": "executors", "executors": 0}}, "greater than or equal to 1"),
        ({"pipeline": {"mode": "executors", "executorCpu": "many"}}, "spec.pipeline.executorCpu"),
        ({"backup": {"target": {}}}, "either s3 or folder"),
        ({"workers": {"external": TWO_ENGINES}}, f"mixedEngines: {MIXED_ENGINES_REQUIRED}"),
        ({"workers": {"external": [VIRTUOSO]}, "mixedEngines": True}, f"mixedEngines: {VIRTUOSO_NOT_MIXED}"),
        ({"workers": {"engine": "virtuoso"}, "mixedEngines": True}, f"mixedEngines: {VIRTUOSO_NOT_MIXED}"),
        ({"workers": {"external": [VIRTUOSO]}}, f"nonDeterministicUpdates: {VIRTUOSO_REFUSES_EFFECTS}"),
        ({"workers": {"engine": "virtuoso"}}, f"nonDeterministicUpdates: {VIRTUOSO_REFUSES_EFFECTS}"),
        ({"workers": {"engine": "rdf4j-as-written"}, "mixedEngines": True}, f"mixedEngines: {VIRTUOSO_NOT_MIXED}"),
        ({"security": {"tlsSecretRef": {"name": "a"}}}, "tlsSecretRef needs peerTlsSecretRef"),
        ({"repositry": "x"}, "repositry"),
        ({"podTemplate": {"labels": {"app.kubernetes.io/name": "a"}}}, "labels: names without the prefixes"),
        ({"masters": {"podTemplate": {"annotations": {"txlog.io/a": "a"}}}}, "annotations: names without the prefixes"),
        ({"pipeline": {"podTemplate": {"env": [{"name": "A"}]}}}, "either value or valueFrom"),
        ({"podTemplate": {"env": [{"name": "TXLOG_A", "value": "a"}]}}, "name: another name"),
        ({"workers": {"external": [{"url": "http://a"}], "podTemplate": {}}}, "either external or replicas"),
    ],
)  # fmt: skip
def test_what_is_not_valid_is_refused_with_the_reason(
    plane: ControlPlane, namespace: str, spec: dict[str, Any], said: str
) -> None:
    assert said in applied(plane, resource(namespace, **spec))


@pytest.mark.parametrize(
    "spec",
    [
        {"workers": {"external": TWO_ENGINES}, "mixedEngines": True},
        {"workers": {"replicas": 2}, "mixedEngines": True},
        {"workers": {"external": [VIRTUOSO]}, "nonDeterministicUpdates": "refuse"},
        {"workers": {"engine": "rdf4j-as-written"}},
        {"workers": {"external": [{"url": "http://a", "engine": "rdf4j"}]}},
        {"workers": {"external": TWO_ENGINES}, "mixedEngines": True, "changeSets": {"enabled": True}},
    ],
)
def test_engines_that_fit_together_are_taken(plane: ControlPlane, namespace: str, spec: dict[str, Any]) -> None:
    assert applied(plane, resource(namespace, **spec)) == ""


def test_names_leave_room_for_those_of_pods(plane: ControlPlane, namespace: str) -> None:
    assert "at most 50" in applied(plane, resource(namespace, "a" * 51))
    assert applied(plane, resource(namespace, "a" * 50)) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dataCenter": "us"}, "dataCenter cannot be changed"),
        ({"repository": "other"}, "repository cannot be changed"),
        ({"masters": {"storage": {"size": "1Gi"}}}, "at least the size of the volumes, which do not shrink"),
        ({"masters": {"storage": {"storageClassName": "fast"}}}, "storage class of masters that exist cannot be"),
    ],
)
def test_what_was_founded_with_stays(plane: ControlPlane, namespace: str, change: dict[str, Any], said: str) -> None:
    before = resource(namespace, repository="catalogue")
    assert applied(plane, before) == ""
    after = copy.deepcopy(before)
    after["spec"] |= change
    assert said in applied(plane, after)


def test_volumes_grow_and_go_back_only_to_what_they_have(plane: ControlPlane, namespace: str) -> None:
    def want(part: str, size: str | int) -> str:
        return applied(plane, resource(namespace, **{part: {"storage": {"size": size}}}))

    patch = ("-n", namespace, "patch", "txl", "catalogue", "--type=merge", "--subresource=status", "-p")
    for part, component in (("masters", "master"), ("workers", "worker")):
        assert want(part, "20Gi") == ""
        assert want(part, "40Gi") == ""
        assert "which do not shrink" in want(part, "20Gi")
        assert "which do not shrink" in want(part, 20 << 30)
        # The storage refused to grow, or has not done so yet.
        plane.kubectl(*patch, json.dumps({"status": {"volumeSizes": {component: "30Gi"}}}))
        assert "which do not shrink" in want(part, "20Gi")
        assert want(part, "30Gi") == ""
        plane.kubectl("-n", namespace, "delete", "txl", "catalogue")


def test_the_number_of_masters_stays_in_hibernation(plane: ControlPlane, namespace: str) -> None:
    two, three = ([{"name": "uk", "masters": count, "address": "uk-{index}.example.net"}, OTHER] for count in (2, 3))
    assert applied(plane, resource(namespace, peers=two)) == ""
    assert applied(plane, resource(namespace, peers=two, hibernated=True)) == ""
    for hibernated in (True, False):
        assert "while they are hibernated" in applied(plane, resource(namespace, peers=three, hibernated=hibernated))
    assert applied(plane, resource(namespace, peers=two, hibernated=False)) == ""
    assert applied(plane, resource(namespace, peers=three)) == ""


OTHER = {"name": "us", "masters": 1, "address": "us.example.net"}
PEER_TLS = {"peerTlsSecretRef": {"name": "a"}}
USERS = {"users": {"secretRef": {"name": "a"}}}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, PEER_TLS, "cannot come or go while masters run"),
        (PEER_TLS, {}, "cannot come or go while masters run"),
        (PEER_TLS, {**PEER_TLS, "tlsSecretRef": {"name": "b"}}, "cannot come or go while masters run"),
        (USERS, {}, "users cannot be taken away while masters run"),
        (PEER_TLS, {"peerTlsSecretRef": {"name": "other"}}, ""),
        ({}, USERS, ""),
    ],
)
def test_what_masters_understand_each_other_by_does_not_come_or_go(
    plane: ControlPlane, namespace: str, before: dict[str, Any], after: dict[str, Any], said: str
) -> None:
    assert applied(plane, resource(namespace, security=before)) == ""
    found = applied(plane, resource(namespace, security=after))
    assert said in found
    assert bool(found) == bool(said)


def test_defaults_are_filled_in(plane: ControlPlane, namespace: str) -> None:
    assert applied(plane, resource(namespace)) == ""
    told = plane.kubectl("-n", namespace, "get", "txl", "catalogue", "-o", "json").stdout
    spec = json.loads(told)["spec"]
    assert (spec["splitRecovery"], spec["maxPeerLag"]) == ("Smart", "1m")
    assert spec["peers"] == PEERS, "lists stay as they were written"
    assert spec["masters"]["storage"]["size"] == "20Gi"
    assert spec["workers"] == {}


def test_split_recovery_is_not_changed_during_a_split(plane: ControlPlane, namespace: str) -> None:
    assert applied(plane, resource(namespace, splitRecovery="smart")) == ""
    split = {"phase": "Suspected", "since": "2026-01-01T00:00:00Z"}
    patch = ("-n", namespace, "patch", "txl", "catalogue", "--type=merge")
    plane.kubectl(*patch, "--subresource=status", "-p", json.dumps({"status": {"split": split}}))
    told = plane.kubectl(*patch, "-p", '{"spec":{"splitRecovery":"None"}}', check=False)
    assert "splitRecovery cannot be changed during a split" in told.stderr
    # Another way to write the same, and everything else, may be.
    plane.kubectl(*patch, "-p", '{"spec":{"splitRecovery":"SMART","maxPeerLag":"10s"}}')
    plane.kubectl(*patch, "--subresource=status", "-p", '{"status":{"split":null}}')
    plane.kubectl(*patch, "-p", '{"spec":{"splitRecovery":"NONE"}}')


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("TxLogBackup", {"cluster": "catalogue"}), ("TxLogRestore", {"cluster": "catalogue", "worker": "uk-worker-1"})],
)
def test_what_a_backup_or_a_restore_is_to_do_stays(
    plane: ControlPlane, namespace: str, kind: str, spec: dict[str, Any]
) -> None:
    wanted = {**resource(namespace, "one"), "kind": kind, "spec": spec}
    assert applied(plane, wanted) == ""
    assert "spec cannot be changed" in applied(plane, {**wanted, "spec": {**spec, "cluster": "other"}})


def test_columns_answer_whether_it_is_all_right(plane: ControlPlane, namespace: str) -> None:
    assert applied(plane, resource(namespace)) == ""
    told = plane.kubectl("-n", namespace, "get", "txl").stdout.splitlines()[0].split()
    assert told == ["NAME", "READY", "MASTERS", "PEERS", "STATE", "LAG", "RECOVERY", "APPLIED", "AGE"]


def test_the_number_of_stores_is_scaled_by_kubectl(plane: ControlPlane, namespace: str) -> None:
    assert applied(plane, resource(namespace, workers={"replicas": 2})) == ""
    scale = ("-n", namespace, "scale", "txlogcluster/catalogue", "--replicas=3")
    plane.kubectl(*scale)
    found = plane.kubectl("-n", namespace, "get", "txlogcluster/catalogue", "-o", "jsonpath={.spec.workers.replicas}")
    assert found.stdout == "3"
    raw = f"/apis/txlog.io/v1alpha1/namespaces/{namespace}/txlogclusters/catalogue/scale"
    assert json.loads(plane.kubectl("get", "--raw", raw).stdout)["spec"]["replicas"] == 3
    refused = plane.kubectl(*scale[:-1], "--replicas=0", check=False)
    assert "greater than or equal to 1" in refused.stderr

    external = resource(namespace, "external", workers={"external": [{"url": "http://a"}]})
    assert applied(plane, external) == ""
    refused = plane.kubectl("-n", namespace, "scale", "txlogcluster/external", "--replicas=3", check=False)
    assert refused.returncode, "these stores are not TxLog's"


def test_what_a_manifest_adds_to_pods_is_kept_as_it_is(plane: ControlPlane, namespace: str) -> None:
    added = {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "tolerations": [{"key": "graphs", "operator": "Exists", "tolerationSeconds": 5}],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "sidecars": [{"name": "agent", "image": "agent:1"}],
    }
    assert applied(plane, resource(namespace, podTemplate=added)) == ""
    found = plane.kubectl("-n", namespace, "get", "txlogcluster/catalogue", "-o", "json").stdout
    kept = json.loads(found)["spec"]["podTemplate"]
    assert {name: kept[name] for name in added} == added
