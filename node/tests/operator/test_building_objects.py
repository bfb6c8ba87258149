import json
from collections.abc import Iterator
from typing import Any

import pytest
from golden import AROUND, EXAMPLES, FOLDER, expected

from txlog.config.cluster import TxLogCluster
from txlog.config.manifest import load_manifests
from txlog.config.process import NodeConfig, PipelineConfig
from txlog.operator.build import Around, Object, objects
from txlog.operator.names import SET_MAX, Names, bounded

LONGEST = "a" * 50


def cluster(name: str = "catalogue", **spec: Any) -> TxLogCluster:
    """One data centre of two, with these fields of its spec changed."""
    peers = [
        {"name": "uk", "masters": 2, "address": "uk-{index}.example.net"},
        {"name": "us", "masters": 1, "address": "us.example.net:7301"},
    ]
    return TxLogCluster.model_validate(
        {
            "apiVersion": "txlog.io/v1alpha1",
            "kind": "TxLogCluster",
            "metadata": {"name": name, "namespace": "graphs"},
            "spec": {"dataCenter": "uk", "peers": peers, **spec},
        }
    )


def one(kind: str, name: str, found: list[Object]) -> Object:
    return next(o for o in found if o["kind"] == kind and o["metadata"]["name"].startswith(name))


def pods(found: list[Object]) -> Iterator[Object]:
    for each in found:
        if "template" in each.get("spec", {}):
            yield each["spec"]["template"]


def masters_set(given: TxLogCluster, around: Around = AROUND) -> Object:
    return one("StatefulSet", "catalogue", objects(given, around))


def test_the_golden_files_are_what_is_built() -> None:
    """``python node/tests/operator/golden.py`` writes them anew."""
    wanted = expected()
    assert {file.name for file in FOLDER.iterdir()} == {file.name for file in wanted}
    for file, text in wanted.items():
        assert file.read_text() == text, file.name


def test_a_master_is_told_what_the_manifest_says() -> None:
    found = one("ConfigMap", "catalogue-masters", objects(cluster(), AROUND))
    assert sorted(found["data"]) == ["accepted.json", "uk-1.json", "uk-2.json"]
    told = NodeConfig.model_validate_json(found["data"]["uk-2.json"])
    assert (told.node, told.host, told.port, told.repository) == ("uk-2", "0.0.0.0", 7300, "catalogue")
    assert [(peer.node, peer.url) for peer in told.peers] == [
        ("uk-1", "http://catalogue-1.catalogue-masters.graphs.svc:7300"),
        ("uk-2", "http://catalogue-2.catalogue-masters.graphs.svc:7300"),
        ("us-1", "http://us.example.net:7301"),
    ]
    assert [worker.url for worker in told.workers] == ["http://catalogue-worker-1.catalogue-workers.graphs.svc:7878"]
    assert told.last_seen is None
    seen = NodeConfig.model_validate_json(found["data"]["uk-1.json"]).last_seen
    assert seen is not None
    assert seen.start == 7


def test_the_pipeline_speaks_with_every_master_and_worker_of_its_data_centre() -> None:
    found = one("ConfigMap", "catalogue-pipeline", objects(cluster(workers={"replicas": 2}), AROUND))
    told = PipelineConfig.model_validate_json(found["data"]["pipeline.json"])
    assert [url.partition("//")[2].partition(".")[0] for url in told.masters] == ["catalogue-1", "catalogue-2"]
    assert [worker.name for worker in told.workers] == ["uk-worker-1", "uk-worker-2"]


LIVE: dict[str, Any] = {
    "splitRecovery": "None",
    "maxPeerLag": "10s",
    "noneSplitDelay": "5s",
    "roundTimeout": "3s",
    "idleInterval": "500ms",
    "maxClockSkew": "5s",
    "leaveTimeout": "20s",
}


@pytest.mark.parametrize("key", LIVE)
def test_what_masters_take_live_restarts_nobody(key: str) -> None:
    before, after = cluster(), cluster(**{key: LIVE[key]})
    assert masters_set(before) == masters_set(after)
    assert one("ConfigMap", "catalogue-masters", objects(before, AROUND)) != one(
        "ConfigMap", "catalogue-masters", objects(after, AROUND)
    )


def test_one_more_master_restarts_nobody() -> None:
    more = [
        {"name": "uk", "masters": 3, "address": "uk-{index}.example.net"},
        {"name": "us", "masters": 1, "address": "us.example.net:7301"},
    ]
    before, after = masters_set(cluster())["spec"], masters_set(cluster(peers=more))["spec"]
    assert (before.pop("replicas"), after.pop("replicas")) == (2, 3)
    assert before == after


@pytest.mark.parametrize(
    "change",
    [
        {"log": {"keep": "1d"}},
        {"durability": {"default": "synced"}},
        {"workers": {"replicas": 2}},
        {"image": "other"},
        {"masters": {"resources": {"limits": {"memory": "1Gi"}}}},
        {"peers": [{"name": "uk", "masters": 2, "address": "other-{index}.example.net"}]},
    ],
)
def test_what_a_master_learns_at_its_start_only_changes_its_pods(change: dict[str, Any]) -> None:
    assert masters_set(cluster())["spec"]["template"] != masters_set(cluster(**change))["spec"]["template"]


def test_a_master_that_leaves_runs_until_it_has_left() -> None:
    around = Around("txlog", masters=3)
    found = objects(cluster(), around)
    assert one("StatefulSet", "catalogue", found)["spec"]["replicas"] == 3
    told = NodeConfig.model_validate_json(one("ConfigMap", "catalogue-masters", found)["data"]["uk-3.json"])
    assert [peer.node for peer in told.peers] == ["uk-1", "uk-2", "uk-3", "us-1"]


def test_where_somebody_else_runs_the_stores_there_are_none() -> None:
    found = objects(cluster(workers={"external": [{"url": "http://store:7878/"}]}), AROUND)
    assert not [each for each in found if each["metadata"]["name"].startswith("catalogue-worker")]
    told = NodeConfig.model_validate_json(one("ConfigMap", "catalogue-masters", found)["data"]["uk-1.json"])
    assert [worker.url for worker in told.workers] == ["http://store:7878"]


def test_every_pod_keeps_to_the_restricted_profile() -> None:
    found = [
        pod["spec"]
        for manifest in load_manifests(EXAMPLES / "two-data-centres")
        for pod in pods(objects(manifest.cluster, AROUND))
    ]
    assert len(found) == 6
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for each in pod["containers"]:
            assert each["securityContext"]["readOnlyRootFilesystem"] is True
            assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            mounted = {mount["name"] for mount in each["volumeMounts"]}
            assert "tmp" in mounted


def test_selectors_find_the_pods() -> None:
    found = objects(cluster(), AROUND)
    labels = [pod["metadata"]["labels"] for pod in pods(found)]
    for each in found:
        spec = each.get("spec", {})
        chosen = spec.get("selector") or spec.get("podSelector")
        if chosen:
            wanted = chosen.get("matchLabels", chosen)
            assert sum(wanted.items() <= each.items() for each in labels) == 1, each


def test_names_stay_within_what_kubernetes_takes() -> None:
    names = Names(cluster(LONGEST))
    assert len(names.workers) <= SET_MAX
    assert len(names.masters) <= SET_MAX
    found = objects(cluster(LONGEST, dataCenter="uk"), AROUND)
    assert all(len(each["metadata"]["name"]) <= 63 for each in found)
    other = objects(cluster(LONGEST[:-1] + "b"), AROUND)
    assert not {json.dumps(o["metadata"]["name"]) for o in found} & {json.dumps(o["metadata"]["name"]) for o in other}


def test_a_bounded_name_is_a_name() -> None:
    assert bounded("short") == "short"
    assert len(bounded("x" * 60 + "-" * 3 + "y")) == 63
    assert "--" not in bounded("x" * 50 + "-" * 10 + "y" * 10)
