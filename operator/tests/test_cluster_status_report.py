"""Status, conditions and events: what is said of what was seen."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from observations import NOW, heard, manifest, pod, whole

from txlog.client.responses import ViewStatus
from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import ClusterStatus, ConditionType
from txlog.model.errors import NoQuorumLeft
from txlog_operator.actions import ApplyObject, FailedAction
from txlog_operator.cluster_phase import cluster_phase_of
from txlog_operator.job_attempts import format_time
from txlog_operator.kube_client import ApiError
from txlog_operator.kubernetes_events import transition_events
from txlog_operator.manifest_validation import read_manifest, unsupported_fields
from txlog_operator.object_ownership import ForeignObject
from txlog_operator.observation import ClusterObservation, PodStatus
from txlog_operator.reconcile_outcome import check_before, check_broken_off, check_plan
from txlog_operator.status_reader import read_cluster_status
from txlog_operator.status_writer import last_seen_incarnations, make_status, status_to_json, with_failure


def said(
    cluster: TxLogCluster, seen: ClusterObservation, before: ClusterStatus | None = None, **more: Any
) -> ClusterStatus:
    problems = more.get("problems", [])
    outcome = more.get("outcome", check_plan([], cluster.spec.paused, [], problems))
    return make_status(cluster, 3, seen, cluster_phase_of(seen), problems, before or ClusterStatus(), outcome)


def word(status: ClusterStatus, kind: ConditionType) -> str:
    return next(each.status for each in status.conditions if each.type == kind)


def message(status: ClusterStatus, kind: ConditionType) -> str:
    return next(each.message for each in status.conditions if each.type == kind)


REFUSED = FailedAction(ApplyObject({"kind": "Service", "metadata": {"name": "a"}}), ForeignObject("it is theirs"))


def test_what_could_not_be_done_is_said_and_the_generation_is_not_counted() -> None:
    cluster = manifest()
    status = said(cluster, whole(cluster))
    assert (word(status, ConditionType.READY), status.observed_generation) == ("True", 3)
    failed = said(cluster, whole(cluster), outcome=check_plan([REFUSED] * 5, False, [], []))
    assert (word(failed, ConditionType.READY), failed.observed_generation) == ("False", 0)
    (condition,) = [each for each in failed.conditions if each.type == "Reconciled"]
    assert condition.reason == "ForeignObject"
    assert condition.message.startswith("apply Service a: it is theirs")
    assert condition.message.endswith("and 2 more")
    assert said(cluster, whole(cluster), problems=["spec.x: wrong"]).observed_generation == 0
    assert said(manifest(paused=True), whole(cluster)).observed_generation == 0


def test_a_new_manifest_is_not_ready_before_it_was_carried_out() -> None:
    cluster = manifest()
    status = said(cluster, whole(cluster))
    assert check_before(status, 3).status == "True"
    changed = said(cluster, whole(cluster), status, outcome=check_before(status, 4))
    assert (word(changed, ConditionType.RECONCILED), word(changed, ConditionType.READY)) == ("Unknown", "Unknown")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ApiError(403, "list pods"), "Forbidden"),
        (NoQuorumLeft("without uk-2"), "NoQuorumLeft"),
        (KeyError("a"), "InternalError"),
    ],
)
def test_a_reconcile_that_breaks_off_is_not_ready(error: Exception, reason: str) -> None:
    cluster = manifest()
    status = with_failure(said(cluster, whole(cluster)), check_broken_off(error), 3, NOW)
    assert word(status, ConditionType.READY) == "False"
    assert [each.reason for each in status.conditions if each.type == "Reconciled"] == [reason]
    assert word(status, ConditionType.MASTERS_READY) == "True"
    assert {each.type for each in status.conditions} == set(map(str, ConditionType))


def test_fields_that_others_added_are_said() -> None:
    added = [{"manager": "kubectl-set", "operation": "Update", "fieldsV1": {"f:spec": {}}}]
    ours = [{"manager": "txlog-operator", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]
    of_status = [{"manager": "kcm", "subresource": "status", "fieldsV1": {"f:spec": {}}}]
    mine = {"kind": "StatefulSet", "metadata": {"name": "a", "managedFields": [*ours, *added, *of_status]}}
    assert "StatefulSet a (kubectl-set)" in check_plan([], False, [mine], []).message


def test_when_all_is_well_it_is_ready() -> None:
    cluster = manifest()
    status = said(cluster, whole(cluster))
    assert {each.type: each.status for each in status.conditions} == {
        **dict.fromkeys(map(str, ConditionType), "True"),
        "LastBackupSucceeded": "Unknown",
    }
    assert (status.state, status.masters_ready, status.peers_reachable) == ("Joined", "2/2", "1/1")
    assert (status.lag, status.recovery, status.applied) == ("0s", "Smart", 10)
    assert status.split is None


STATES = st.sampled_from(["Joined", "Suspected", "Isolated", "Rejoining", "Learning", "Founding", "DiskFull", None])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(STATES, st.booleans()), min_size=2, max_size=2), st.booleans())
@example([("Joined", True), (None, True)], False)
@example([(None, True), (None, True)], False)
@example([("Joined", True), ("Isolated", True)], False)
def test_every_condition_is_always_there_and_a_status_is_read_as_it_was_written(
    masters: list[tuple[str | None, bool]], away: bool
) -> None:
    cluster = manifest()
    seen = whole(cluster)
    each = dict(zip(cluster.own_peer.nodes, masters, strict=True))
    gone = ["dc0-1"] if away else []
    seen = replace(
        seen,
        masters={n: heard(cluster, n, s, away=gone) if s else None for n, (s, _) in each.items()},
        master_pods={n: pod(cluster, n, ready=ready) for n, (_, ready) in each.items()},
    )
    status = said(cluster, seen)
    assert [each.type for each in status.conditions] == [str(kind) for kind in ConditionType]
    assert all(each.message and each.reason.isalpha() for each in status.conditions)
    assert read_cluster_status({"status": status_to_json(status)}) == status
    # Said again it is the same: nothing is written twice.
    assert said(cluster, seen, status) == status
    if word(status, ConditionType.READY) == "True":
        assert all(state == "Joined" and ready for state, ready in masters)
        assert not away


@pytest.mark.parametrize(
    ("state", "ready", "worker", "available", "reason"),
    [
        ("Joined", True, "Working", "True", "Serving"),
        ("Isolated", True, "Working", "True", "Serving"),
        ("Joined", True, "Blocked", "True", "Serving"),
        ("Joined", True, "Unknown", "Unknown", "NoReport"),
        ("Joined", True, "Refused", "False", "NoWorker"),
        ("Starting", False, "Working", "False", "NoMaster"),
    ],
)
def test_a_data_centre_is_available_whatever_the_others_do(
    state: str, ready: bool, worker: str, available: str, reason: str
) -> None:
    cluster = manifest()
    away = ["dc0-1"] if state == "Isolated" else []
    seen = whole(cluster)
    seen = replace(
        seen,
        masters={node: heard(cluster, node, state, out=away, away=away, worker=worker) for node in seen.masters},
        master_pods={node: replace(each, ready=ready) for node, each in seen.master_pods.items()},
    )
    status = said(cluster, seen)
    (condition,) = [each for each in status.conditions if each.type == "Available"]
    assert (condition.status, condition.reason) == (available, reason)
    if state == "Isolated":
        assert word(status, ConditionType.READY) == "False", "that is about the other data centre, too"


def test_an_autoscaler_reads_the_pods_of_the_stores_and_their_labels() -> None:
    cluster = manifest(workers={"replicas": 3})
    seen = whole(cluster)
    status = said(cluster, seen)
    assert status.worker_replicas == len(seen.worker_pods)
    assert status.worker_selector is not None
    assert "app.kubernetes.io/component=worker" in status.worker_selector.split(",")
    external = manifest(workers={"external": [{"url": "http://a"}]})
    assert said(external, whole(external)).worker_replicas is None


def test_a_transition_is_when_the_status_changed() -> None:
    cluster = manifest()
    first = said(cluster, whole(cluster))
    later = replace(whole(cluster), now=NOW + 60)
    assert all(each.last_transition_time == format_time(NOW) for each in said(cluster, later, first).conditions)
    away = replace(whole(cluster, away=["dc0-1"]), now=NOW + 60)
    told = said(cluster, away, first)
    moved = {each.type for each in told.conditions if each.last_transition_time == format_time(NOW + 60)}
    assert {"Ready", "PeersReachable"} <= moved
    assert "SpecValid" not in moved


def test_a_split_from_its_beginning_to_its_end() -> None:
    cluster = manifest()
    before = said(cluster, whole(cluster))
    suspected = said(cluster, replace(whole(cluster, state="Suspected", away=["dc0-1"]), now=NOW + 1), before)
    assert suspected.split is not None
    assert (suspected.split.phase, suspected.split.silent, suspected.split.strategy) == (
        "Suspected",
        ["dc0-1"],
        "Smart",
    )
    assert (word(suspected, ConditionType.HISTORY_CONSISTENT), word(suspected, ConditionType.READY)) == (
        "Unknown",
        "False",
    )
    apart = said(cluster, replace(whole(cluster, state="Isolated", out=["dc0-1"]), now=NOW + 2), suspected)
    assert apart.split is not None
    assert (apart.split.phase, apart.split.since) == ("Split", format_time(NOW + 1))
    assert word(apart, ConditionType.HISTORY_CONSISTENT) == "False"
    # Nobody answers: nothing is known, so it is not over.
    blind = replace(whole(cluster), masters=dict.fromkeys(cluster.own_peer.nodes))
    assert said(cluster, blind, apart).split == apart.split
    rejoining = said(cluster, whole(cluster, state="Rejoining"), apart)
    assert rejoining.split is not None
    assert rejoining.split.phase == "Rejoining"
    over = said(cluster, whole(cluster), rejoining)
    assert over.split is None
    assert [each.reason for each in transition_events(rejoining, over) if each.reason.startswith("Split")] == [
        "SplitOver"
    ]
    # A change of the view without a split is none.
    assert said(cluster, whole(cluster, state="Rejoining"), before).split is None


def test_the_last_birth_and_start_of_a_silent_master_are_kept() -> None:
    """Its next start is told of them."""
    cluster = manifest()
    seen = whole(cluster)
    before = said(cluster, replace(seen, masters={**seen.masters, "uk-2": heard(cluster, "uk-2", start=4)}))
    after = said(cluster, replace(seen, masters={**seen.masters, "uk-2": None}), before)
    assert last_seen_incarnations(after)["uk-2"].start == 4
    assert after.nodes[1].state == "Unknown"
    assert after.state == "Unknown"


def test_a_master_that_lost_its_journal_keeps_the_incarnation_that_it_had() -> None:
    """Its next start is told of it, so that it founds no second cluster, however often it starts."""
    cluster = manifest()
    seen = whole(cluster)
    status = said(cluster, replace(seen, masters={**seen.masters, "uk-2": heard(cluster, "uk-2", start=4)}))
    had = last_seen_incarnations(status)["uk-2"]
    for start in (1, 2):
        lost = heard(cluster, "uk-2", state="AwaitingBootstrap", start=start)
        lost = replace(lost, status=msgspec.structs.replace(lost.status, birth="00000000000000ff"))
        status = said(cluster, replace(seen, masters={**seen.masters, "uk-2": lost}), status)
        assert last_seen_incarnations(status)["uk-2"] == had
        assert (status.nodes[1].state, status.state) == ("AwaitingBootstrap", "AwaitingBootstrap")
        assert word(status, ConditionType.HISTORY_CONSISTENT) == "Unknown"
    member = replace(lost, status=msgspec.structs.replace(lost.status, view=ViewStatus(installed=True)))
    status = said(cluster, replace(seen, masters={**seen.masters, "uk-2": member}), status)
    assert last_seen_incarnations(status)["uk-2"].birth == 0xFF


@pytest.mark.parametrize(("silent_s", "word_", "lag"), [(1, "True", "0s"), (30, "True", "30s"), (90, "False", "90s")])
def test_how_far_behind_is_measured_by_what_was_heard(silent_s: int, word_: str, lag: str) -> None:
    cluster = manifest(maxPeerLag="1m")
    status = said(cluster, whole(cluster, heard_at=NOW - silent_s))
    assert (word(status, ConditionType.LAG_WITHIN_LIMIT), status.lag) == (word_, lag)


def test_a_missing_secret_is_named() -> None:
    cluster = manifest(security={"peerTokenSecretRef": {"name": "shared"}})
    seen = whole(cluster)
    waiting = pod(cluster, "uk-1", ready=False, running=False, waiting_reason="ContainerCreating")
    status = said(
        cluster,
        replace(seen, master_pods={**seen.master_pods, "uk-1": waiting}, masters={**seen.masters, "uk-1": None}),
    )
    assert "the Secret shared with the key token" in message(status, ConditionType.MASTERS_READY)


@pytest.mark.parametrize("state", ["Blocked", "Diverged", "NeedsRestore", "Refused", "Unreachable"])
def test_a_worker_that_is_off_is_named(state: str) -> None:
    cluster = manifest()
    status = said(cluster, whole(cluster, worker=state))
    assert word(status, ConditionType.WORKERS_CONSISTENT) == "False"
    assert message(status, ConditionType.WORKERS_CONSISTENT).startswith(f"uk-worker-1 is {state}")


def test_what_is_not_valid_is_said_and_what_was_goes_on() -> None:
    cluster = manifest()
    status = said(cluster, whole(cluster), problems=["spec.a: wrong"])
    assert (word(status, ConditionType.SPEC_VALID), word(status, ConditionType.MASTERS_READY)) == ("False", "True")
    assert message(status, ConditionType.SPEC_VALID) == "spec.a: wrong. What was valid before is kept true"
    assert message(status, ConditionType.READY).startswith("SpecValid: spec.a: wrong")


def executors(running: int, waiting: str = "") -> dict[str, PodStatus]:
    found = [PodStatus(f"e-{number}", f"uid-{number}", running=number < running) for number in range(2)]
    return {each.name: replace(each, waiting_reason="" if each.running else waiting) for each in found}


@pytest.mark.parametrize(("running", "told", "good"), [(2, "2/2", "True"), (1, "1/2", "True"), (0, "0/2", "False")])
def test_executors_are_counted_and_one_is_enough(running: int, told: str, good: str) -> None:
    cluster = manifest(pipeline={"mode": "executors"})
    status = said(cluster, replace(whole(cluster), executor_pods=executors(running, "0/3 nodes have room")))
    assert status.pipeline.executors == told
    assert word(status, ConditionType.PIPELINE_HEALTHY) == word(status, ConditionType.READY) == good
    wanted = f"{running} of 2 executors run" if running else "none of its 2 executors: 0/3 nodes have room"
    assert wanted in message(status, ConditionType.PIPELINE_HEALTHY)


def test_one_process_has_no_executors_to_count() -> None:
    cluster = manifest()
    assert said(cluster, whole(cluster)).pipeline.executors is None


@pytest.mark.parametrize(
    ("account", "pipeline", "field"),
    [
        (None, {}, "spec.pipeline.mode"),
        ("spark", {}, ""),
        ("spark", {"executors": 1, "executorCores": 2}, "spec.pipeline.executorCores"),
        ("spark", {"executors": 1, "executorCores": 3}, ""),
        ("spark", {"executors": 5, "executorCores": 1}, "spec.pipeline.executorCores"),
        ("spark", {"executors": 6, "executorCores": 1}, "spec.pipeline.executorCores"),
        ("spark", {"executors": 6}, ""),
    ],
)
def test_executors_need_an_account_and_room_for_stream_and_batch(
    account: str | None, pipeline: dict[str, Any], field: str
) -> None:
    told = unsupported_fields(manifest(pipeline={"mode": "executors", **pipeline}), account)
    assert [each.partition(":")[0] for each in told] == ([field] if field else [])


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"pipeline": {"mode": "executors"}}, "spec.pipeline.mode"),
        ({"pipeline": {"mode": "executors", "executorMemory": "512Mi"}}, "spec.pipeline.executorMemory"),
        ({"pipeline": {"mode": "executors", "executorCpu": "1Gi"}}, "spec.pipeline.executorCpu"),
        ({"pipeline": {"executorCores": 2}}, "spec.pipeline.executorCores"),
        ({"security": {"tlsSecretRef": {"name": "a"}}}, "spec.security.tlsSecretRef"),
        (
            {"workers": {"external": [{"url": "http://a", "secretRef": {"name": "a"}}]}},
            "spec.workers.external[0].secretRef",
        ),
        ({"backup": {"target": {"folder": {"path": "/b"}}}}, "spec.backup.target.folder.claimName"),
        (
            {"site": "a", "sites": [{"name": "b", "urls": ["http://b:1"]}], "changeSets": {"enabled": True}},
            "spec.sites",
        ),
        ({"repositories": [{"name": "stock"}]}, "spec.repositories"),
        ({"roundTimeout": "1s", "idleInterval": "1s"}, "spec.idleInterval"),
        ({"peers": []}, "spec.peers"),
    ],
)
def test_what_does_not_act_is_refused_by_name(spec: dict[str, Any], field: str) -> None:
    found = manifest().model_dump(mode="json", by_alias=True, exclude_unset=True)
    found["spec"] |= spec
    cluster, problems = read_manifest(found)
    assert cluster is None
    assert [each.partition(" ")[0].rstrip(":") for each in problems] == [field]
