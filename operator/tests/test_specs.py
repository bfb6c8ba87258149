import json
from collections.abc import Iterator
from typing import Any

import pytest
from golden import AROUND, EXAMPLES, FOLDER, expected
from ruamel.yaml import YAML

from txlog.client.ca_trust import CA_FILE
from txlog.client.credentials import TOKEN_FILE
from txlog.config.cluster import TxLogCluster
from txlog.config.manifest_reader import load_manifests
from txlog.config.process_config import NodeConfig, PipelineConfig
from txlog_operator.manifest_validation import unsupported_fields
from txlog_operator.object_names import STATEFUL_SET_NAME_MAX, ObjectNames, bounded_name
from txlog_operator.specs import BuildContext, KubeObject, desired_objects, jobs
from txlog_operator.specs.common import remote_master_url
from txlog_operator.specs.pipeline import pipeline_config

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


def one(kind: str, name: str, found: list[KubeObject]) -> KubeObject:
    return next(o for o in found if o["kind"] == kind and o["metadata"]["name"].startswith(name))


def pods(found: list[KubeObject]) -> Iterator[KubeObject]:
    for each in found:
        if "template" in each.get("spec", {}):
            yield each["spec"]["template"]


def masters_set(given: TxLogCluster, around: BuildContext = AROUND) -> KubeObject:
    return one("StatefulSet", "catalogue", desired_objects(given, around))


def test_the_golden_files_are_what_is_built() -> None:
    """``python operator/tests/golden.py`` writes them again."""
    wanted = expected()
    assert {file.name for file in FOLDER.iterdir()} == {file.name for file in wanted}
    for file, text in wanted.items():
        assert file.read_text() == text, file.name


def test_a_master_is_told_what_the_manifest_says() -> None:
    found = one("ConfigMap", "catalogue-masters", desired_objects(cluster(), AROUND))
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
    found = one("ConfigMap", "catalogue-pipeline", desired_objects(cluster(workers={"replicas": 2}), AROUND))
    told = PipelineConfig.model_validate_json(found["data"]["pipeline.json"])
    assert [url.partition("//")[2].partition(".")[0] for url in told.masters] == ["catalogue-1", "catalogue-2"]
    assert [worker.name for worker in told.workers] == ["uk-worker-1", "uk-worker-2"]


def test_bounds_of_a_manifest_reach_the_process_that_judges_by_them() -> None:
    told = cluster(limits={"keysMax": 5000, "executionTimeout": "7s", "closedConnections": 9})
    objects = desired_objects(told, AROUND)
    master = NodeConfig.model_validate_json(one("ConfigMap", "catalogue-masters", objects)["data"]["uk-2.json"])
    data = one("ConfigMap", "catalogue-pipeline", objects)["data"]
    pipeline = PipelineConfig.model_validate_json(data["pipeline.json"])
    assert (master.limits.keys_max, pipeline.execution_s, pipeline.closed_connections) == (5000, 7.0, 9)
    only_keys = desired_objects(cluster(limits={"keysMax": 5000}), AROUND)
    assert one("Job", "catalogue-pipeline", only_keys) == one(
        "Job", "catalogue-pipeline", desired_objects(cluster(), AROUND)
    ), "the pipeline has no part in it"


LIVE: dict[str, Any] = {
    "splitRecovery": "None",
    "maxPeerLag": "10s",
    "noneSplitDelay": "5s",
    "roundTimeout": "3s",
    "idleInterval": "500ms",
    "maxClockSkew": "5s",
    "leaveTimeout": "20s",
    "workerRepair": "manual",
}


@pytest.mark.parametrize("key", LIVE)
def test_what_masters_take_live_restarts_nobody(key: str) -> None:
    before, after = cluster(), cluster(**{key: LIVE[key]})
    assert masters_set(before) == masters_set(after)
    assert one("ConfigMap", "catalogue-masters", desired_objects(before, AROUND)) != one(
        "ConfigMap", "catalogue-masters", desired_objects(after, AROUND)
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
        {"security": {"users": {"secretRef": {"name": "people"}}}},
        {"security": {"peerTlsSecretRef": {"name": "among-masters"}}},
        {"masters": {"resources": {"limits": {"memory": "1Gi"}}}},
        {"limits": {"keysMax": 5000}},
        {"peers": [{"name": "uk", "masters": 2, "address": "other-{index}.example.net"}]},
    ],
)
def test_what_a_master_learns_at_its_start_only_changes_its_pods(change: dict[str, Any]) -> None:
    assert masters_set(cluster())["spec"]["template"] != masters_set(cluster(**change))["spec"]["template"]


def test_a_master_that_leaves_runs_until_it_has_left() -> None:
    around = BuildContext("txlog", master_count=3)
    found = desired_objects(cluster(), around)
    assert one("StatefulSet", "catalogue", found)["spec"]["replicas"] == 3
    told = NodeConfig.model_validate_json(one("ConfigMap", "catalogue-masters", found)["data"]["uk-3.json"])
    assert [peer.node for peer in told.peers] == ["uk-1", "uk-2", "uk-3", "us-1"]


SECURED: dict[str, Any] = {
    "tlsSecretRef": {"name": "door"},
    "peerTlsSecretRef": {"name": "among-masters"},
    "users": {"secretRef": {"name": "people"}},
}


def volume(pod: KubeObject, name: str) -> KubeObject:
    return next(each for each in pod["spec"]["volumes"] if each["name"] == name)


def test_a_secured_master_reads_each_secret_in_a_folder_of_its_own() -> None:
    found = desired_objects(cluster(security=SECURED), AROUND)
    template = masters_set(cluster(security=SECURED))["spec"]["template"]
    (master,) = template["spec"]["containers"]
    mounts = {mount["name"]: mount for mount in master["volumeMounts"]}
    told = NodeConfig.model_validate_json(one("ConfigMap", "catalogue-masters", found)["data"]["uk-1.json"])
    for name, secret, folders in (
        ("tls", "door", {told.tls_folder}),
        ("peer-tls", "among-masters", {told.peer_tls_folder}),
        ("users", "people", {told.users_file and told.users_file.parent, told.own_token_file.parent}),  # type: ignore[union-attr]
    ):
        assert volume(template, name)["secret"] == {"secretName": secret}
        assert {str(folder) for folder in folders} == {mounts[name]["mountPath"]}
        assert mounts[name]["readOnly"] is True
        assert "subPath" not in mounts[name], "what is in a part of a Secret is not renewed"
    assert {probe["httpGet"]["scheme"] for key, probe in master.items() if key.endswith("Probe")} == {"HTTPS"}


def test_secured_masters_meet_at_a_port_of_their_own() -> None:
    peers = [
        {"name": "uk", "masters": 2, "address": "uk-{index}.example.net"},
        {"name": "us", "masters": 1, "address": "us.example.net:7309"},
    ]
    found = desired_objects(cluster(security=SECURED, peers=peers), AROUND)
    told = NodeConfig.model_validate_json(one("ConfigMap", "catalogue-masters", found)["data"]["uk-1.json"])
    assert (told.port, told.peer_port) == (7300, 7301)
    assert [peer.url for peer in told.peers] == [
        "http://catalogue-1.catalogue-masters.graphs.svc:7301",
        "http://catalogue-2.catalogue-masters.graphs.svc:7301",
        "http://us.example.net:7309",
    ]
    other = cluster(security=SECURED, peers=[{"name": name, "masters": 1, "address": name} for name in ("uk", "us")])
    config = one("ConfigMap", "catalogue-masters", desired_objects(other, AROUND))
    told = NodeConfig.model_validate_json(config["data"]["uk-1.json"])
    assert told.peers[1].url == "http://us:7301", "where an address names no port"
    hosts, clients = (each for each in found[:3] if each["kind"] == "Service")
    assert [port["port"] for port in hosts["spec"]["ports"]] == [7300, 7301]
    assert [port["port"] for port in clients["spec"]["ports"]] == [7300]
    (rule,) = one("NetworkPolicy", "catalogue-masters", found)["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [7300, 7301]


def test_who_asks_masters_gets_a_token_and_an_authority_and_no_key() -> None:
    given = cluster(security=SECURED)
    found = desired_objects(given, AROUND)
    made = [
        one("Job", "catalogue-pipeline", found),
        jobs.build_job(given, AROUND, "one", jobs.backup_command("b", "manual")),
    ]
    for each in made:
        pod = each["spec"]["template"]
        (container,) = pod["spec"]["containers"]
        env = {variable["name"]: variable["value"] for variable in container["env"]}
        assert (env[TOKEN_FILE], env[CA_FILE]) == ("/etc/txlog-own/own-token", "/etc/txlog-own/ca.crt")
        assert "/etc/txlog-own" in {mount["mountPath"] for mount in container["volumeMounts"]}
        sources = [source["secret"] for source in volume(pod, "own")["projected"]["sources"]]
        assert [(source["name"], [item["key"] for item in source["items"]]) for source in sources] == [
            ("people", ["own-token"]),
            ("door", ["ca.crt"]),
        ]
        # Nothing else of these Secrets is in there.
        assert not [v for v in pod["spec"]["volumes"] if v.get("secret", {}).get("secretName") in ("door", "people")]
    told = PipelineConfig.model_validate_json(one("ConfigMap", "catalogue-pipeline", found)["data"]["pipeline.json"])
    assert told.masters[0] == "https://catalogue-1.catalogue-masters.graphs.svc:7300"


@pytest.mark.parametrize("only", ["peerTlsSecretRef", "users"])
def test_each_of_them_alone_changes_what_it_must(only: str) -> None:
    given = cluster(security={only: SECURED[only]})
    assert unsupported_fields(given) == []
    pod = masters_set(given)["spec"]["template"]
    names = {each["name"] for each in pod["spec"]["volumes"]}
    assert names & {"users", "tls", "peer-tls"} == {{"peerTlsSecretRef": "peer-tls", "users": "users"}[only]}
    (master,) = pod["spec"]["containers"]
    assert "scheme" not in master["readinessProbe"]["httpGet"]
    env = one("Job", "catalogue-pipeline", desired_objects(given, AROUND))["spec"]["template"]["spec"]["containers"][0][
        "env"
    ]
    assert ("TXLOG_TOKEN_FILE" in [each["name"] for each in env]) == (only == "users")
    assert "TXLOG_CA_FILE" not in [each["name"] for each in env]


def test_half_of_tls_is_refused() -> None:
    (said,) = unsupported_fields(cluster(security={"tlsSecretRef": {"name": "door"}}))
    assert said.startswith("spec.security.tlsSecretRef needs peerTlsSecretRef")


def test_masters_of_other_data_centres_are_asked_where_their_doors_are() -> None:
    plain = cluster()
    us = plain.spec.peers[1]
    assert remote_master_url(plain, us, 1) == "http://us.example.net:7301"
    secured = cluster(security=SECURED, peers=[{"name": name, "masters": 1, "address": name} for name in ("uk", "us")])
    assert remote_master_url(secured, secured.spec.peers[1], 1) == "https://us:7300"
    # Where its own port leads to the masters' door, nobody knows where clients go in.
    assert remote_master_url(cluster(security=SECURED), us, 1) is None


def test_where_somebody_else_runs_the_stores_there_are_none() -> None:
    found = desired_objects(cluster(workers={"external": [{"url": "http://store:7878/"}]}), AROUND)
    assert not [each for each in found if each["metadata"]["name"].startswith("catalogue-worker")]
    told = NodeConfig.model_validate_json(one("ConfigMap", "catalogue-masters", found)["data"]["uk-1.json"])
    assert [worker.url for worker in told.workers] == ["http://store:7878"]


def test_every_pod_keeps_to_the_restricted_profile() -> None:
    found = [
        pod["spec"]
        for manifest in load_manifests(EXAMPLES / "two-data-centres")
        for pod in pods(desired_objects(manifest.cluster, AROUND))
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
    found = desired_objects(cluster(), AROUND)
    labels = [pod["metadata"]["labels"] for pod in pods(found)]
    for each in found:
        spec = each.get("spec", {})
        chosen = spec.get("selector") or spec.get("podSelector")
        if chosen and "matchExpressions" not in chosen:  # those of several components are tested with the policies
            wanted = chosen.get("matchLabels", chosen)
            assert sum(wanted.items() <= each.items() for each in labels) == 1, each


def test_names_stay_within_what_kubernetes_takes() -> None:
    names = ObjectNames(cluster(LONGEST))
    assert len(names.workers) <= STATEFUL_SET_NAME_MAX
    assert len(names.masters) <= STATEFUL_SET_NAME_MAX
    found = desired_objects(cluster(LONGEST, dataCenter="uk"), AROUND)
    assert all(len(each["metadata"]["name"]) <= 63 for each in found)
    other = desired_objects(cluster(LONGEST[:-1] + "b"), AROUND)
    assert not {json.dumps(o["metadata"]["name"]) for o in found} & {json.dumps(o["metadata"]["name"]) for o in other}


def test_a_bounded_name_is_a_name() -> None:
    assert bounded_name("short") == "short"
    assert len(bounded_name("x" * 60 + "-" * 3 + "y")) == 63
    assert "--" not in bounded_name("x" * 50 + "-" * 10 + "y" * 10)


APART: dict[str, Any] = {"mode": "executors"}
ACCOUNT = BuildContext("txlog:1", pipeline_account="spark")


def told_of(given: TxLogCluster) -> tuple[PipelineConfig, KubeObject]:
    """What the driver reads: its configuration, and the template of its executors."""
    data = one("ConfigMap", "catalogue-pipeline", desired_objects(given, ACCOUNT))["data"]
    return PipelineConfig.model_validate_json(data["pipeline.json"]), YAML(typ="safe").load(data["executor.yaml"])


def test_a_driver_of_executors_has_an_account_and_knows_which_pod_it_is() -> None:
    pod = one("Job", "catalogue-pipeline", desired_objects(cluster(pipeline=APART), ACCOUNT))["spec"]["template"][
        "spec"
    ]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("spark", True)
    fields = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in driver_env(pod, "valueFrom")}
    assert fields == {"POD_IP": "status.podIP", "POD_NAME": "metadata.name"}
    assert "SPARK_LOCAL_IP" not in [each["name"] for each in driver_env(pod, "value")], "others must reach it"
    alone = one("Job", "catalogue-pipeline", desired_objects(cluster(), ACCOUNT))["spec"]["template"]["spec"]
    assert alone["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in alone


def driver_env(pod: KubeObject, kind: str) -> list[KubeObject]:
    return [each for each in pod["containers"][0]["env"] if kind in each]


def test_executors_are_pods_of_the_same_image_that_nothing_is_given_to() -> None:
    told, template = told_of(cluster(pipeline=APART, image="mine:7"))
    assert told.executors is not None
    assert told.executors.image == "mine:7"
    spec = template["spec"]
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    driver = one("Job", "catalogue-pipeline", desired_objects(cluster(pipeline=APART), ACCOUNT))["spec"]["template"][
        "spec"
    ]
    assert spec["securityContext"] == driver["securityContext"]
    assert container["securityContext"] == driver["containers"][0]["securityContext"]
    assert container["command"] == ["python", "-m", "txlog.pipeline.executor"], "to which Spark adds a word"
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {f"{told.scratch_folder}/local", f"{told.scratch_folder}/turns", "/tmp"}
    assert all(volume["emptyDir"] == {} for volume in spec["volumes"])
    labels = template["metadata"]["labels"]
    assert dict(word.split("=") for word in told.executors.selector.split(",")).items() <= labels.items()
    assert labels["app.kubernetes.io/managed-by"] == "txlog-operator", "so that their coming and going wakes it"


@pytest.mark.parametrize(
    ("pipeline", "workers", "cores"),
    [({}, 1, 2), ({}, 2, 3), ({"executors": 1}, 2, 6), ({"executors": 8}, 1, 2), ({"executorCores": 9}, 1, 9)],
)
def test_executors_have_room_for_all_workers_and_a_batch(pipeline: dict[str, Any], workers: int, cores: int) -> None:
    told, _ = told_of(cluster(pipeline={**APART, **pipeline}, workers={"replicas": workers}))
    assert told.executors is not None
    assert told.executors.cores == cores
    assert told.executors.count * cores >= workers + told.batch_tasks


@pytest.mark.parametrize(("memory", "heap", "rest"), [(None, 576, 960), ("1Gi", 480, 544), ("4Gi", 1536, 2560)])
def test_an_executor_has_the_memory_of_its_pod(memory: str | None, heap: int, rest: int) -> None:
    told, _ = told_of(cluster(pipeline=APART if memory is None else {**APART, "executorMemory": memory}))
    assert told.executors is not None
    assert (told.executors.heap_mb, told.executors.overhead_mb) == (heap, rest)


def test_secured_masters_know_executors_by_what_they_know_the_driver() -> None:
    _, template = told_of(cluster(pipeline=APART, security=SECURED))
    (container,) = template["spec"]["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert (env[TOKEN_FILE], env[CA_FILE]) == ("/etc/txlog-own/own-token", "/etc/txlog-own/ca.crt")
    assert volume(template, "own")["projected"]["sources"]


@pytest.mark.parametrize(
    "change",
    [
        {"pipeline": {**APART, "executors": 3}},
        {"pipeline": {**APART, "executorMemory": "2Gi"}},
        {"pipeline": APART, "security": {"users": {"secretRef": {"name": "people"}}}},
        {"pipeline": {"mode": "local"}},
    ],
)
def test_another_pod_of_any_kind_is_another_job(change: dict[str, Any]) -> None:
    names = {
        one("Job", "catalogue-pipeline", desired_objects(given, ACCOUNT))["metadata"]["name"]
        for given in (cluster(pipeline=APART), cluster(**change))
    }
    assert len(names) == 2


def policy(given: TxLogCluster, name: str) -> KubeObject:
    spec: KubeObject = one("NetworkPolicy", name, desired_objects(given, ACCOUNT))["spec"]
    return spec


def components(peers: list[KubeObject]) -> list[str]:
    return [each["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in peers]


def test_executors_reach_driver_masters_and_stores_and_nobody_else() -> None:
    given = cluster(pipeline=APART)
    (into,) = policy(given, "catalogue-pipeline")["ingress"]
    assert (components(into["from"]), [port["port"] for port in into["ports"]]) == (["executor"], [7078, 7079])
    found = policy(given, "catalogue-executor")
    (into,) = found["ingress"]
    assert (components(into["from"]), [port["port"] for port in into["ports"]]) == (["pipeline", "executor"], [7079])
    ways = [(components(way.get("to", [])), [port["port"] for port in way["ports"]]) for way in found["egress"]]
    assert ways == [
        (["pipeline"], [7078, 7079]),
        (["executor"], [7079]),
        (["master"], [7300]),
        ([], [53, 53]),
        (["worker"], [7878]),
    ]
    assert not [
        each for each in desired_objects(cluster(), ACCOUNT) if each["metadata"]["name"].startswith("catalogue-exec")
    ]


def test_stores_outside_are_reached_by_their_ports() -> None:
    external = [{"url": "http://a"}, {"url": "https://b/x"}, {"url": "http://c:7878"}]
    found = policy(cluster(pipeline=APART, workers={"external": external}), "catalogue-executor")
    assert [port["port"] for port in found["egress"][-1]["ports"]] == [80, 443, 7878]


def test_executors_reach_the_collector_of_traces_by_its_port() -> None:
    telemetry = {"traces": {"endpoint": "http://collector:4318"}}
    given = cluster(pipeline=APART, telemetry=telemetry)
    assert [port["port"] for port in policy(given, "catalogue-executor")["egress"][-1]["ports"]] == [4318]
    told = pipeline_config(given, ACCOUNT).traces
    assert told is not None
    assert (told.endpoint, told.sample_ratio) == ("http://collector:4318", 0.01)
    assert pipeline_config(cluster(pipeline=APART), ACCOUNT).traces is None


def test_names_of_executors_stay_within_what_spark_takes() -> None:
    told = ObjectNames(cluster(LONGEST)).executors
    assert len(f"{told}-01234567") <= 47
