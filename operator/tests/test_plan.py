from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observations import AROUND, NOW, World, ended, heard, manifest, pod, whole

from txlog.client.responses import WorkerStatus
from txlog.config.cluster import TxLogCluster
from txlog_operator.actions import (
    DISRUPTIVE_ACTIONS,
    AddPeer,
    ApplyObject,
    ChangeMasterSettings,
    DeleteObject,
    PlanAction,
    RemovePeer,
    ReportDown,
    RestartMaster,
)
from txlog_operator.cluster_phase import ClusterPhase, cluster_phase_of
from txlog_operator.drift import matches, with_hash
from txlog_operator.object_names import ObjectNames
from txlog_operator.observation import ClusterObservation, PodStatus
from txlog_operator.plan import make_plan
from txlog_operator.specs import desired_objects, pipeline


def planned(cluster: TxLogCluster, seen: ClusterObservation) -> list[PlanAction]:
    return make_plan(cluster, AROUND, seen, cluster_phase_of(seen))


def of(kind: type[Any], actions: list[PlanAction]) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def settled(cluster: TxLogCluster) -> World:
    """Everything made and nothing left to do."""
    world = World()
    for _ in range(3):
        world.carry_out(planned(cluster, whole(cluster, world)))
    return world


# -- diagnose


@pytest.mark.parametrize(
    ("states", "situation"),
    [
        ([None, None], ClusterPhase.UNKNOWN),
        (["Founding", None], ClusterPhase.FOUNDING),
        (["Joined", "Joined"], ClusterPhase.JOINED),
        (["Joined", None], ClusterPhase.JOINED_UNCERTAIN),
        (["Joined", "Suspected"], ClusterPhase.SUSPECTED),
        (["Suspected", None], ClusterPhase.SUSPECTED),
        (["Isolated", "Suspected"], ClusterPhase.SPLIT),
        (["Rejoining", "Joined"], ClusterPhase.REJOINING),
        (["Joined", "Learning"], ClusterPhase.CATCHING_UP),
        (["Joined", "Damaged"], ClusterPhase.CATCHING_UP),
        (["DiskFull", "Joined"], ClusterPhase.DEGRADED),
        (["Founding", "Isolated"], ClusterPhase.SPLIT),
    ],
)
def test_the_worst_that_somebody_tells_counts(states: list[str | None], situation: ClusterPhase) -> None:
    cluster = manifest()
    nodes = cluster.own_peer.nodes
    masters = {n: heard(cluster, n, s) if s else None for n, s in zip(nodes, states, strict=True)}
    assert cluster_phase_of(ClusterObservation(NOW, masters=masters)) is situation


def test_somebody_who_is_out_is_not_waited_for() -> None:
    assert cluster_phase_of(whole(manifest(), out=["dc0-1"])) is ClusterPhase.INCOMPLETE


# -- objects


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "splitRecovery": st.sampled_from(["Smart", "none", "SIMPLE"]),
        "maxPeerLag": st.sampled_from(["10s", "1m", "60s"]),
        "workers": st.sampled_from([{}, {"replicas": 3}, {"external": [{"url": "http://store:7878"}]}]),
        "log": st.sampled_from([{}, {"keep": "1d"}]),
        "image": st.sampled_from(["a", "b"]),
        "pipeline": st.sampled_from([{}, {"mode": "executors"}, {"mode": "executors", "executors": 3}]),
        "masters": st.sampled_from([{}, {"resources": {"limits": {"memory": "1Gi"}}}]),
    },
)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(0, 2), SPECS, SPECS)
def test_what_was_done_is_not_planned_again(
    masters: int, others: int, first: dict[str, Any], then: dict[str, Any]
) -> None:
    """Also after a change: it converges, and then it is quiet."""
    world = World()
    for spec in (first, then):
        cluster = manifest(masters, others=others, **spec)
        for _ in range(3):
            world.carry_out(planned(cluster, whole(cluster, world)))
        assert planned(cluster, whole(cluster, world)) == []
        assert set(world.objects) == {(o["kind"], o["metadata"]["name"]) for o in desired_objects(cluster, AROUND)}


def test_drift_is_put_right() -> None:
    cluster = manifest()
    world = settled(cluster)
    key = ("Service", "catalogue")
    world.objects[key]["spec"]["ports"][0]["port"] = 80
    (action,) = planned(cluster, whole(cluster, world))
    assert (action.desired["kind"], action.desired["metadata"]["name"]) == key


def test_what_the_api_server_adds_is_no_drift() -> None:
    wanted = with_hash({"kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}], "empty": {}}})
    found = {**wanted, "status": {}, "spec": {"ports": [{"port": 1, "protocol": "TCP"}], "type": "ClusterIP"}}
    assert matches(found, wanted)
    assert not matches({**found, "spec": {"ports": [{"port": 2}]}}, wanted)
    assert not matches({**found, "spec": {"ports": []}}, wanted)
    assert not matches(None, wanted)


def test_a_paused_cluster_is_left_alone() -> None:
    cluster = manifest(paused=True)
    assert planned(cluster, ClusterObservation(NOW, masters={"uk-1": None})) == []


def test_an_object_of_somebody_else_is_left_alone() -> None:
    cluster = manifest()
    world = settled(cluster)
    world.objects["ConfigMap", "theirs"] = {"kind": "ConfigMap", "metadata": {"name": "theirs", "labels": {}}}
    assert planned(cluster, whole(cluster, world)) == []


# -- the pipeline


def test_there_are_never_two_pipelines() -> None:
    before, after = manifest(), manifest(workers={"replicas": 2})
    world = settled(before)
    old, new = pipeline.pipeline_job_name(before, AROUND), pipeline.pipeline_job_name(after, AROUND)
    actions = planned(after, whole(after, world))
    assert [action.name for action in of(DeleteObject, actions) if action.kind == "Job"] == [old]
    assert not [a for a in of(ApplyObject, actions) if a.desired["kind"] == "Job"]
    # It is still ending: nothing follows yet.
    world.carry_out([action for action in actions if not isinstance(action, DeleteObject)])
    world.objects["Job", old]["metadata"]["deletionTimestamp"] = "now"
    assert not [a for a in of(ApplyObject, planned(after, whole(after, world))) if a.desired["kind"] == "Job"]
    del world.objects["Job", old]
    assert [a.desired["metadata"]["name"] for a in of(ApplyObject, planned(after, whole(after, world)))] == [new]


@pytest.mark.parametrize("how", ["Complete", "Failed"])
def test_a_pipeline_that_ended_is_followed_by_another(how: str) -> None:
    cluster = manifest()
    world = settled(cluster)
    key = ("Job", pipeline.pipeline_job_name(cluster, AROUND))
    world.objects[key]["status"] = {"conditions": [{"type": how, "status": "True"}]}
    (action,) = planned(cluster, whole(cluster, world))
    assert (action.kind, action.name) == key
    world.carry_out([action])
    (action,) = planned(cluster, whole(cluster, world))
    assert isinstance(action, ApplyObject)


# -- settings


def test_what_masters_prefer_is_set_while_they_run() -> None:
    cluster = manifest(maxPeerLag="30s", splitRecovery="none")
    seen = whole(cluster, settled(cluster), settings={"maxPeerLag": "1m", "splitRecovery": "Smart"})
    told = of(ChangeMasterSettings, planned(cluster, seen))
    assert [(each.node, dict(each.changes)) for each in told] == [
        (node, {"maxPeerLag": "30s", "splitRecovery": "None"}) for node in ("uk-1", "uk-2")
    ]


@pytest.mark.parametrize("state", ["Suspected", "Isolated", "Rejoining", None])
def test_how_splits_are_recovered_from_is_changed_at_all_or_none(state: str | None) -> None:
    cluster = manifest(maxPeerLag="30s", splitRecovery="None")
    seen = whole(cluster, settled(cluster), settings={"maxPeerLag": "1m", "splitRecovery": "Smart"})
    other = heard(cluster, "uk-2", state, settings={"splitRecovery": "Smart"}) if state else None
    seen = replace(seen, masters={**seen.masters, "uk-2": other})
    changes = [dict(each.changes) for each in of(ChangeMasterSettings, planned(cluster, seen))]
    assert {"maxPeerLag": "30s"} in changes
    assert not [each for each in changes if "splitRecovery" in each]


# -- proofs


def seen_without(cluster: TxLogCluster, start: int, **more: Any) -> ClusterObservation:
    """uk-2's process of that start has ended, and uk-1 and dc0-1 are there to be told."""
    seen = whole(cluster, settled(cluster))
    gone = pod(cluster, "uk-2", ready=False, running=False, terminated_processes=(ended("uk-2", start),))
    listeners = {"uk-1": ("http://uk-1", heard(cluster, "uk-1", **more)), "dc0-1": ("http://dc0", None)}
    masters = {**seen.masters, "uk-2": None}
    return replace(seen, master_pods={**seen.master_pods, "uk-2": gone}, masters=masters, masters_to_notify=listeners)


def test_a_process_that_ended_is_told_to_who_waits_for_it() -> None:
    cluster = manifest()
    assert [(p.node, p.process.start) for p in of(ReportDown, planned(cluster, seen_without(cluster, 1)))] == [
        ("uk-1", 1)
    ]


def test_a_proof_is_not_brought_twice() -> None:
    """It is no member any more, or a later start of it was heard."""
    cluster = manifest()
    assert not of(ReportDown, planned(cluster, seen_without(cluster, 1, members=["uk-1", "dc0-1"])))
    seen = seen_without(cluster, 1)
    url, told = seen.masters_to_notify["uk-1"]
    assert told is not None
    later = replace(told, peers=tuple({**peer, "start": 2} for peer in told.peers))
    assert not of(ReportDown, planned(cluster, replace(seen, masters_to_notify={"uk-1": (url, later)})))


# -- masters come and go


def test_a_master_that_the_manifest_adds_is_named() -> None:
    cluster = manifest(3)
    seen = whole(cluster, settled(cluster), configured=["uk-1", "uk-2", "dc0-1"])
    (new,) = of(AddPeer, planned(cluster, seen))
    assert (new.node, new.address, new.url) == ("uk-3", "http://uk-3.example.net:7300", "http://uk-1:7300")


def grown(configured: list[str], **more: Any) -> tuple[TxLogCluster, ClusterObservation]:
    """Three masters run, and the manifest wants one."""
    three, one = manifest(3), manifest(1)
    world = settled(three)
    seen = whole(three, world, configured=configured, **more)
    return one, seen


def replicas(actions: list[PlanAction]) -> list[int]:
    return [
        a.desired["spec"]["replicas"]
        for a in of(ApplyObject, actions)
        if a.desired["metadata"]["name"] == "catalogue" and a.desired["kind"] == "StatefulSet"
    ]


def test_masters_leave_one_at_a_time_the_last_one_first() -> None:
    cluster, seen = grown(["uk-1", "uk-2", "uk-3", "dc0-1"])
    actions = planned(cluster, seen)
    assert [(out.node, out.url) for out in of(RemovePeer, actions)] == [("uk-3", "http://uk-1:7300")]
    assert replicas(actions) in ([], [3])


def test_a_master_runs_until_the_log_says_that_it_has_left() -> None:
    cluster, seen = grown(["uk-1", "uk-2", "uk-3", "dc0-1"], leaving=["uk-3"])
    assert not of(RemovePeer, planned(cluster, seen))
    assert replicas(planned(cluster, seen)) in ([], [3])
    cluster, seen = grown(["uk-1", "uk-2", "uk-3", "dc0-1"], removed=["uk-3"])
    assert replicas(planned(cluster, seen)) == [2]


def test_nobody_is_stopped_blindly() -> None:
    """No master answers: whether somebody has left is not known."""
    cluster, seen = grown([])
    blind = replace(seen, masters=dict.fromkeys(seen.masters))
    assert replicas(planned(cluster, blind)) in ([], [3])
    assert not of(RemovePeer, planned(cluster, blind))


@pytest.mark.parametrize("more", [{"state": "Suspected"}, {"away": ["dc0-1"]}, {"out": ["dc0-1"]}])
def test_nobody_leaves_while_somebody_is_missed(more: dict[str, Any]) -> None:
    cluster, seen = grown(["uk-1", "uk-2", "uk-3", "dc0-1"], **more)
    assert not of(RemovePeer, planned(cluster, seen))


# -- restarts


def test_masters_are_restarted_one_after_the_other() -> None:
    cluster = manifest(3)
    seen = whole(cluster, settled(cluster))
    old = {node: pod(cluster, node, revision="old") for node in seen.master_pods}
    assert [each.node for each in of(RestartMaster, planned(cluster, replace(seen, master_pods=old)))] == ["uk-3"]
    leaving = {**old, "uk-3": replace(old["uk-3"], terminating=True)}
    assert not of(RestartMaster, planned(cluster, replace(seen, master_pods=leaving)))
    new = {**old, "uk-3": pod(cluster, "uk-3")}
    assert [each.node for each in of(RestartMaster, planned(cluster, replace(seen, master_pods=new)))] == ["uk-2"]
    unready = {**new, "uk-3": pod(cluster, "uk-3", ready=False)}
    assert not of(RestartMaster, planned(cluster, replace(seen, master_pods=unready)))


def test_one_that_was_taken_out_is_not_missed() -> None:
    """A master keeps the link to it."""
    cluster = manifest()
    known = ["uk-1", "uk-2", "uk-9", "dc0-1"]
    seen = whole(cluster, settled(cluster), configured=known, removed=["uk-9"], away=["uk-9"])
    old = {node: pod(cluster, node, revision="old") for node in seen.master_pods}
    assert [each.node for each in of(RestartMaster, planned(cluster, replace(seen, master_pods=old)))] == ["uk-2"]


@pytest.mark.parametrize(
    "more",
    [{"state": "Suspected"}, {"state": "Isolated"}, {"state": "Learning"}, {"away": ["dc0-1"]}, {"out": ["uk-1"]}],
)
def test_nobody_is_restarted_while_somebody_is_missed(more: dict[str, Any]) -> None:
    cluster = manifest()
    seen = whole(cluster, settled(cluster), **more)
    old = {node: pod(cluster, node, revision="old") for node in seen.master_pods}
    assert not of(RestartMaster, planned(cluster, replace(seen, master_pods=old)))


def test_one_that_is_down_with_what_was_before_gets_what_is_new() -> None:
    """Else a wrong image could never be put right."""
    cluster = manifest()
    seen = whole(cluster, settled(cluster), state="Suspected")
    broken = pod(cluster, "uk-2", revision="old", ready=False, running=False, waiting_reason="ImagePullBackOff")
    seen = replace(seen, master_pods={**seen.master_pods, "uk-2": broken}, masters={**seen.masters, "uk-2": None})
    assert [each.node for each in of(RestartMaster, planned(cluster, seen))] == ["uk-2"]


def test_before_the_founding_masters_follow_the_manifest() -> None:
    cluster = manifest(2)
    three = manifest(3)
    world = settled(three)
    seen = whole(three, world, state="Founding", configured=["uk-1", "uk-2", "uk-3", "dc0-1"])
    actions = planned(cluster, seen)
    assert replicas(actions) == [2]
    assert len(of(RestartMaster, actions)) == 1


STATES = st.sampled_from(["Joined", "Suspected", "Isolated", "Rejoining", "Learning", "Founding", None])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(STATES, st.booleans(), st.sampled_from(["old", "new"]), st.booleans()), min_size=3, max_size=3),
    st.integers(1, 3),
)
def test_at_most_one_step_disturbs_and_none_who_works_while_somebody_is_missed(
    masters: list[tuple[str | None, bool, str, bool]], wanted: int
) -> None:
    three = manifest(3)
    cluster = manifest(wanted)
    seen = whole(three, settled(three))
    nodes = three.own_peer.nodes
    each = dict(zip(nodes, masters, strict=True))
    seen = replace(
        seen,
        masters={n: heard(three, n, state) if state else None for n, (state, _, _, _) in each.items()},
        master_pods={
            n: pod(three, n, ready=ready, revision=rev, terminating=gone) for n, (_, ready, rev, gone) in each.items()
        },
    )
    disturbing = of(DISRUPTIVE_ACTIONS, planned(cluster, seen))
    assert len(disturbing) <= 1
    all_well = all(state == "Joined" and ready and not gone for state, ready, _, gone in masters)
    for action in disturbing:
        if isinstance(action, RemovePeer):
            assert all_well
        elif not all_well:
            state, ready, _, _ = each[action.node]
            assert state == "Founding" or (state is None and not ready)


def stalled_store(cluster: TxLogCluster, running: bool, **more: Any) -> ClusterObservation:
    """One store of the cluster's stalls at a transaction."""
    seen = whole(cluster, settled(cluster))
    masters = {
        node: replace(
            master,
            status=msgspec.structs.replace(
                master.status,
                workers=[WorkerStatus("uk-worker-1", state="Unreachable", txid="t", fault="stalled", running=running)],
            ),
        )
        for node, master in seen.reachable_masters.items()
    }
    name = ObjectNames(cluster).worker_pod(1)
    store = PodStatus(name, "uid-of-store", ready=True, running=True)
    return replace(seen, masters=masters, worker_pods={name: replace(store, **more)})


def test_a_store_that_does_not_end_a_request_is_restarted() -> None:
    cluster = manifest()
    (restart,) = of(DeleteObject, planned(cluster, stalled_store(cluster, running=True)))
    assert (restart.kind, restart.name, restart.uid) == ("Pod", ObjectNames(cluster).worker_pod(1), "uid-of-store")


@pytest.mark.parametrize(("running", "more"), [(False, {}), (True, {"ready": False}), (True, {"terminating": True})])
def test_a_store_that_is_over_it_or_restarts_already_is_left_alone(running: bool, more: dict[str, bool]) -> None:
    cluster = manifest()
    assert not of(DeleteObject, planned(cluster, stalled_store(cluster, running, **more)))
