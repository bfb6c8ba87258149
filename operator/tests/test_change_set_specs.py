"""Change sets of a data centre on Kubernetes."""

import json
from dataclasses import replace
from typing import Any

import pytest
from golden import AROUND
from observations import manifest, whole
from test_plan import of, planned, settled
from test_specs import cluster, one

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import ChangeSetsConfig
from txlog_operator.actions import DeleteObject
from txlog_operator.manifest_validation import parse_manifest, unsupported_fields
from txlog_operator.observation import ClusterObservation
from txlog_operator.specs import BuildContext, KubeObject, change_sets, desired_objects
from txlog_operator.specs.common import CHANGE_SETS_PORT, selector
from txlog_operator.specs.masters import master_config, restart_hash
from txlog_operator.volume_growth import requested_sizes

ENABLED = {"changeSets": {"enabled": True, "keep": "6h", "storage": {"size": "30Gi"}}}
CLAIM = "changes-catalogue-changesets-0"


def stateful_set(given: TxLogCluster, around: BuildContext = AROUND) -> KubeObject:
    return one("StatefulSet", "catalogue-changesets", desired_objects(given, around))


def test_without_them_nothing_is_built_and_masters_are_as_before() -> None:
    given = cluster()
    assert not [each for each in desired_objects(given, AROUND) if "changesets" in each["metadata"]["name"]]
    assert "change_sets" not in master_config(given, "uk-1", AROUND).model_dump(exclude_defaults=True)


def test_masters_and_the_process_know_each_other() -> None:
    given = cluster(**ENABLED)
    assert not unsupported_fields(given)
    found = one("ConfigMap", "catalogue-changesets", desired_objects(given, AROUND))
    made = ChangeSetsConfig.model_validate(json.loads(found["data"][change_sets.CONFIG_FILE]))
    assert (made.data_center, made.keep_ms, made.port) == ("uk", 6 * 3_600_000, CHANGE_SETS_PORT)
    assert [url.split("//")[1].split(".")[0] for url in made.masters] == ["catalogue-1", "catalogue-2"]
    master = master_config(given, "uk-1", AROUND)
    assert master.change_sets is not None
    host = "catalogue-changesets-0.catalogue-changesets.graphs.svc"
    assert master.change_sets.url == f"http://{host}:{CHANGE_SETS_PORT}"
    assert made.peer_token_file == master.peer_token_file
    assert restart_hash(given, AROUND) != restart_hash(cluster(), AROUND)


def test_it_has_a_volume_and_the_token_of_the_masters() -> None:
    made = stateful_set(cluster(**ENABLED, security={"peerTokenSecretRef": {"name": "shared"}}))
    [claim] = made["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "30Gi"
    pod = made["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert {"name": "peer-token", "secret": {"secretName": "shared"}} in pod["volumes"]
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]} | {claim["metadata"]["name"]}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["command"][2] == "txlog.capture"
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= made["spec"]["selector"]["matchLabels"].items()


def test_only_masters_reach_it() -> None:
    given = cluster(**ENABLED)
    policy = one("NetworkPolicy", "catalogue-changesets", desired_objects(given, AROUND))
    [rule] = policy["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": selector(given, "master")}}]
    assert rule["ports"] == [{"protocol": "TCP", "port": CHANGE_SETS_PORT}]


def test_another_configuration_is_another_pod_and_a_hibernated_one_keeps_its_volume() -> None:
    short, long = (stateful_set(cluster(changeSets={"enabled": True, "keep": keep})) for keep in ("1h", "2h"))
    notes = [each["spec"]["template"]["metadata"]["annotations"] for each in (short, long)]
    assert notes[0] != notes[1]
    asleep = stateful_set(cluster(**ENABLED), replace(AROUND, hibernated=True))
    assert asleep["spec"]["replicas"] == 0
    assert stateful_set(cluster(**ENABLED))["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    "spec",
    [
        {"workers": {"external": [{"url": "http://x/r", "engine": "rdf4j"}]}},
        {"workers": {"external": [{"url": "http://x/r", "engine": "rdf4j"}]}, "mixedEngines": True},
        {"splitRecovery": "none"},
    ],
)
def test_what_they_cannot_be_made_of_is_refused_by_name(spec: dict[str, Any]) -> None:
    plain = cluster(**spec).model_dump(by_alias=True, exclude_unset=True)
    plain["spec"]["changeSets"] = {"enabled": True}
    found, problems = parse_manifest(plain)
    assert found is None
    assert [each.partition(":")[0] for each in problems] == ["spec.changeSets.enabled"], problems


def test_among_several_engines_one_oxigraph_is_enough() -> None:
    workers = [{"url": "http://x/r", "engine": "rdf4j"}, {"url": "http://y"}]
    assert cluster(workers={"external": workers}, mixedEngines=True, **ENABLED).spec.change_sets.enabled


def with_claim(given: TxLogCluster, seen: ClusterObservation) -> ClusterObservation:
    labels = selector(given, change_sets.COMPONENT)
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "uid": "uid-changes", "labels": labels},
        "spec": {"resources": {"requests": {"storage": "30Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "30Gi"}},
    }
    return replace(seen, objects={**seen.objects, ("PersistentVolumeClaim", CLAIM): claim})


def deleted(given: TxLogCluster, seen: ClusterObservation) -> list[tuple[str, str]]:
    return sorted((each.kind, each.name) for each in of(DeleteObject, planned(given, seen)))


def test_who_wants_them_no_more_loses_the_volume_after_the_pod() -> None:
    wants, plain = manifest(2, **ENABLED), manifest(2)
    running = with_claim(wants, whole(wants, settled(wants)))
    assert deleted(wants, running) == []
    assert requested_sizes(wants, running)[change_sets.COMPONENT] == "30Gi"
    kinds = {kind for kind, name in deleted(plain, running) if "changesets" in name}
    assert kinds == {"ConfigMap", "NetworkPolicy", "Service", "StatefulSet"}
    gone = with_claim(plain, whole(plain, settled(plain)))
    ending = replace(gone, pod_names=gone.pod_names | {"catalogue-changesets-0"})
    assert deleted(plain, ending) == []
    assert deleted(plain, gone) == [("PersistentVolumeClaim", CLAIM)]
