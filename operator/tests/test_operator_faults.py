"""What goes wrong around the operator: Secrets, webhooks, other operators, containers that others add."""

import asyncio
import itertools
import logging
import threading
from collections.abc import Iterable, Sized
from dataclasses import replace
from typing import Any

import kopf
import pytest
from observations import AROUND, NOW, manifest, whole
from test_job_plan import WITH_TARGET, Story
from test_leadership import TIMING, Clock, Leases
from test_plan import settled
from test_resource_rules import resource

from txlog.config.cluster_status import ClusterStatus
from txlog.config.process_config import LastSeenIncarnation
from txlog_operator.actions import ApplyObject, PlanAction, RemovePeer, RestartMaster
from txlog_operator.cluster_phase import cluster_phase_of
from txlog_operator.cluster_secrets import MasterAccess
from txlog_operator.drift import AppliedObjects, with_hash
from txlog_operator.job_attempts import format_time
from txlog_operator.kube_client import ApiError
from txlog_operator.leadership import LeaderElection, LeadershipLost
from txlog_operator.main import IDLE_MAX_S, Operator, configure, reserve_threads
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.object_cache import ObjectCopy
from txlog_operator.observation import PodStatus
from txlog_operator.observe import parse_pod
from txlog_operator.plan_applier import PlanApplier
from txlog_operator.reconciler import OperatorSettings, Reconciler
from txlog_operator.specs import BuildContext, KubeObject, desired_objects
from txlog_operator.specs.masters import config_map
from txlog_operator.status_reader import read_cluster_status, read_job_status
from txlog_operator.status_writer import last_seen_incarnations, make_status

# -- a manifest that is not valid


class Stored:
    """The objects of one namespace, as an API server answers reads of them."""

    def __init__(self, *found: KubeObject) -> None:
        self.found = {(each["kind"], each["metadata"]["name"]): each for each in found}

    async def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        return self.found.get((kind, name))


@pytest.mark.parametrize(
    "wrong", [{"security": {"users": {"secretRef": {"name": "people"}}}}, {"workers": {"engine": "fuseki"}}]
)
async def test_paused_counts_although_the_rest_of_the_manifest_is_not_valid(wrong: dict[str, Any]) -> None:
    """A Secret is gone, or a field does not act on Kubernetes. Who pauses the operator then means it."""
    accepted = config_map(manifest(), AROUND)
    kube: Any = Stored({**accepted, "kind": "ConfigMap"})
    reconciler = Reconciler(kube, "graphs", "catalogue", OperatorSettings(BuildContext("txlog:1")), OperatorMetrics())
    for paused in (False, True):
        spec: dict[str, Any] = {**wrong, **({"paused": True} if paused else {})}
        found = resource("graphs", **spec)
        cluster, _, problems = await reconciler._read_spec(found)
        assert cluster is not None
        assert (cluster.spec.paused, bool(problems)) == (paused, True)


# -- a status that the API server refuses


class OldDefinitions(Stored):
    """The installed definitions are older than the operator: its statuses are refused."""

    def __init__(self, *found: KubeObject) -> None:
        super().__init__(*found)
        self.applied: list[str] = []

    async def list(self, kind: str, namespace: str, *_: object, **__: object) -> list[KubeObject]:
        return []

    async def get_live(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        return self.found.get((kind, name))

    async def apply(self, wanted: KubeObject, *, force: bool = True) -> KubeObject:
        self.applied.append(wanted["kind"])
        return wanted

    async def replace_status(self, found: KubeObject, status: KubeObject) -> KubeObject:
        raise ApiError(422, "status.conditions[12].type: Unsupported value")

    async def create(self, wanted: KubeObject) -> KubeObject:
        return wanted


async def test_a_refused_status_does_not_keep_the_operator_from_its_work(caplog: pytest.LogCaptureFixture) -> None:
    """A split would wait for a backup that the operator does not begin."""
    found = resource("graphs")
    found["metadata"] |= {"uid": "u1", "generation": 1}
    kube: Any = OldDefinitions(found)
    reconciler = Reconciler(kube, "graphs", "catalogue", OperatorSettings(BuildContext("txlog:1")), OperatorMetrics())
    with pytest.raises(ApiError, match="Unsupported value"):
        await reconciler.reconcile()
    assert {"StatefulSet", "Service", "ConfigMap", "Job"} <= set(kube.applied)
    for _ in range(3):
        await reconciler._report_broken_off(ApiError(422, "status"))
    assert len([each for each in caplog.records if "its status was not taken" in each.message]) == 1


# -- containers that others add


def master_pod(*names: str) -> KubeObject:
    """As a kubelet reports it: it sorts containers by name."""
    identity = '{"node": "uk-1", "birth": "0a", "start": 3}'
    ended = {"terminated": {"exitCode": 137, "message": identity}}
    states = {"master": ({"waiting": {"reason": "CrashLoopBackOff"}}, ended, 4)}
    containers = [
        {"name": name, "state": state, "lastState": last, "restartCount": count}
        for name in sorted(names)
        for state, last, count in [states.get(name, ({"running": {}}, {}, 0))]
    ]
    meta = {"name": "catalogue-1", "uid": "u", "labels": {"app.kubernetes.io/component": "master"}}
    return {"metadata": meta, "status": {"containerStatuses": containers}}


@pytest.mark.parametrize("added", ["istio-proxy", "linkerd-proxy", "vault-agent"])
def test_a_container_that_a_webhook_adds_is_not_taken_for_the_master(added: str) -> None:
    found = parse_pod(master_pod("master", added))
    assert found == parse_pod(master_pod("master"))
    assert [(each.node, each.start) for each in found.terminated_processes] == [("uk-1", 3)]
    assert (found.running, found.waiting_reason, found.restarts) == (False, "CrashLoopBackOff", 4)


# -- two operators


async def test_a_holder_ends_before_its_lease_does_also_when_the_last_request_hangs() -> None:
    """The request begins shortly before the deadline: its own time-out must not begin again there."""
    server: Any = Leases()
    clock, led = Clock(), asyncio.Event()
    one = LeaderElection("graphs", "txlog", "one", TIMING, clock)
    waits: list[float] = []

    async def hanging(kube: Any, most_s: float = TIMING.renew_deadline_s) -> bool:
        waits.append(most_s)
        clock.now += most_s
        return False

    running = asyncio.create_task(one.run(server, led.set))
    await led.wait()
    renewed_at = clock.now
    clock.now += 9.9
    one._try_in_time = hanging  # type: ignore[method-assign]
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(running, 5.0)
    assert clock.now - renewed_at < TIMING.duration_s, waits


# -- an API server that cannot carry a write out


class Refusing:
    """An API server whose webhook is down: it answers every write with this status."""

    def __init__(self, code: int) -> None:
        self.code, self.writes = code, 0

    async def get_live(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        return None

    async def apply(self, wanted: KubeObject, *, force: bool = True) -> KubeObject:
        self.writes += 1
        raise ApiError(self.code, "failed calling webhook")

    async def delete(self, kind: str, namespace: str, name: str, uid: str | None = None) -> None:
        self.writes += 1
        raise ApiError(self.code, "failed calling webhook")


@pytest.mark.parametrize("code", [0, 422, 500, 504])
@pytest.mark.parametrize(
    "action",
    [ApplyObject(with_hash(desired_objects(manifest(), AROUND)[0])), RestartMaster("uk-1", "catalogue-1", "u", "new")],
)
async def test_a_write_that_cannot_succeed_is_not_repeated_every_second(code: int, action: PlanAction) -> None:
    """Each attempt may take the whole time-out of a webhook, and the next steps of the plan wait behind it."""
    clock, server = Clock(), Refusing(code)
    kube: Any = server
    applier = PlanApplier(kube, "graphs", clock)
    for _ in range(60):
        done, failed = await applier.apply_plan([action], MasterAccess())
        assert (done, [each.action for each in failed]) == ([], [action]), "it counts as failed while it waits"
        clock.now += 1.0
    assert server.writes < 10


async def test_what_masters_refuse_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    applier = PlanApplier(Refusing(0), "graphs")  # type: ignore[arg-type]
    action = RemovePeer("http://127.0.0.1:1", "uk-3")
    with caplog.at_level(logging.WARNING, "txlog_operator"):
        for _ in range(5):
            _, failed = await applier.apply_plan([action], MasterAccess())
            assert len(failed) == 1
    assert len(caplog.records) == 1


async def test_a_kind_that_may_not_be_listed_is_asked_for_more_and_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A namespace lacks the operator's Role: twelve kinds, once a second each, for as long as that lasts."""

    class Forbidding:
        async def list_with_version(self, *_: object) -> None:
            raise ApiError(403, "pods is forbidden")

    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 10:
            raise asyncio.CancelledError

    copy = ObjectCopy(Forbidding(), "Pod", "graphs", lambda *_: None, pause)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "txlog_operator"), pytest.raises(asyncio.CancelledError):
        await copy.run()
    assert pauses[0] < 1.0
    assert sum(pauses) > 25.0
    assert len(caplog.records) == 1


def test_a_namespace_that_is_forbidden_does_not_end_the_operator() -> None:
    """kopf ends the process when its delays end, for all namespaces."""
    settings = kopf.OperatorSettings()
    configure(settings)
    delays = settings.networking.error_backoffs
    assert isinstance(delays, Iterable)
    assert not isinstance(delays, Sized), "kopf would take its length for the number of attempts"
    many = list(itertools.islice(delays, 1000))
    assert (len(many), many[0], max(many)) == (1000, 1.0, 30.0)


def test_masters_that_do_not_answer_do_not_stop_other_clusters() -> None:
    answered, count = threading.Event(), 40

    async def ask() -> str:
        reserve_threads(asyncio.get_running_loop())
        silent = [asyncio.create_task(asyncio.to_thread(answered.wait)) for _ in range(count)]
        try:
            return await asyncio.wait_for(asyncio.to_thread(str, "another cluster"), 5.0)
        finally:
            answered.set()
            await asyncio.gather(*silent)

    assert asyncio.run(ask()) == "another cluster"


async def test_a_copy_follows_an_api_server_that_was_restored_from_a_backup() -> None:
    """Resource versions go back. What is kept must not count as newer than what is there."""

    def job(name: str, version: str, uid: str) -> KubeObject:
        meta = {"name": name, "namespace": "graphs", "resourceVersion": version, "uid": uid}
        return {"kind": "Job", "metadata": {**meta, "labels": {"app.kubernetes.io/instance": "catalogue"}}}

    lists = [
        ([job("kept", "90", "a"), job("later", "95", "b")], "100"),
        ([job("kept", "40", "a"), job("earlier", "45", "c")], "50"),
    ]

    class Restored:
        async def list_with_version(self, *_: object) -> tuple[list[KubeObject], str]:
            return lists.pop(0)

    changed: list[str] = []
    copy = ObjectCopy(
        Restored(),  # type: ignore[arg-type]
        "Job",
        "graphs",
        lambda _kind, found, _before: changed.append(found["metadata"]["name"]),
    )
    await copy._list()
    await copy._list()
    found = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in await copy.objects(None)}
    assert found == {"kept": "40", "earlier": "45"}
    assert set(changed) == {"kept", "later", "earlier"}
    copy.put(job("new", "51", "d"))
    assert await copy.get("new") is not None


class Posted:
    """An API server that takes Events."""

    def __init__(self) -> None:
        self.events: list[KubeObject] = []

    async def create(self, wanted: KubeObject) -> KubeObject:
        self.events.append(wanted)
        return wanted


async def test_a_backup_of_a_cluster_that_is_not_there_says_so() -> None:
    """A typing error in its spec: no cluster takes it up, so no status would ever tell."""
    place: Any = object()
    operator, server = Operator(place, OperatorSettings(BuildContext("txlog:1"))), Posted()
    operator._kube = server  # type: ignore[assignment]
    operator._generations["graphs", "catalogue"] = 1

    def backup(cluster: str) -> KubeObject:
        meta = {"name": "monday", "namespace": "graphs", "uid": "u7", "resourceVersion": "5"}
        return {
            "apiVersion": "txlog.io/v1alpha1",
            "kind": "TxLogBackup",
            "metadata": meta,
            "spec": {"cluster": cluster},
        }

    wrong = backup("katalogue")
    operator.on_object_changed("TxLogBackup", backup("catalogue"), None)
    operator.on_object_changed("TxLogBackup", wrong, None)
    operator.on_object_changed("TxLogBackup", wrong, wrong)  # it was changed, or deleted
    operator.on_object_changed("Job", {**wrong, "kind": "Job"}, None)
    await asyncio.gather(*operator._posting)
    (event,) = server.events
    assert (event["reason"], event["involvedObject"]["name"]) == ("NoSuchCluster", "monday")
    assert "no TxLogCluster katalogue" in event["message"]


# -- what a status says


@pytest.mark.parametrize("state", ["Unreachable", ""])
def test_a_store_whose_pod_cannot_start_says_why(state: str) -> None:
    """Its volume is in another zone: masters know only that it does not answer, or have no report of it."""
    cluster = manifest()
    seen = whole(cluster, settled(cluster), worker=state or "Working")
    if not state:
        seen = replace(seen, masters=dict.fromkeys(seen.masters), master_pods={})
    why = "0/3 nodes are available: 3 node(s) had volume node affinity conflict"
    pods = {"catalogue-worker-1": PodStatus("catalogue-worker-1", "u", waiting_reason=why)}
    for shown, text in ((replace(seen, worker_pods=pods), why), (replace(seen, worker_pods={}), "has no pod")):
        status = make_status(cluster, 1, shown, cluster_phase_of(shown), [], ClusterStatus())
        (found,) = [each for each in status.conditions if each.type == "WorkersConsistent"]
        assert found.status != "True"
        assert text in found.message


async def test_a_cluster_whose_deletion_was_not_seen_leaves_no_series() -> None:
    """The watch was broken meanwhile: an alert would fire for the deleted cluster until the operator restarts."""
    metrics, kube = OperatorMetrics(), Stored()
    cluster = manifest()
    seen = whole(cluster)
    metrics.observe_status(
        "graphs", "catalogue", make_status(cluster, 1, seen, cluster_phase_of(seen), [], ClusterStatus())
    )
    labels = {"namespace": "graphs", "name": "catalogue", "type": "Ready", "status": "False"}
    assert metrics.registry.get_sample_value("txlog_cluster_condition", labels) is not None
    reconciler = Reconciler(kube, "graphs", "catalogue", OperatorSettings(BuildContext("txlog:1")), metrics)  # type: ignore[arg-type]
    assert await reconciler.reconcile()
    assert metrics.registry.get_sample_value("txlog_cluster_condition", labels) is None


# -- memory, and probes


def test_what_is_remembered_of_applied_objects_goes_with_them() -> None:
    """Each backup has a resource and a Job of its own name."""
    applied = AppliedObjects()
    for at in range(3):
        job = {"kind": "Job", "metadata": {"name": f"backup-{at}", "resourceVersion": "1"}}
        wanted = with_hash({"kind": "Job", "metadata": {"name": f"backup-{at}"}})
        applied.record(wanted, job)
        assert applied.unchanged({("Job", f"backup-{at}"): job}) != {}
    assert len(applied._made) == len(applied._versions) == 1


async def test_the_first_cluster_of_an_old_operator_is_no_sign_of_hanging() -> None:
    place: Any = object()
    operator = Operator(place, OperatorSettings(BuildContext("txlog:1")))
    operator._kube = place
    operator.metrics.last_reconcile_at -= 10 * IDLE_MAX_S
    operator.on_changed("graphs", "catalogue", 1)
    assert operator.idle_s() < IDLE_MAX_S
    _, task = operator._reconcilers["graphs", "catalogue"]
    task.cancel()
    operator.metrics.last_reconcile_at -= 10 * IDLE_MAX_S
    operator._start_reconciler("graphs", "other")
    assert operator.idle_s() > IDLE_MAX_S, "the others hang"
    operator._reconcilers["graphs", "other"][1].cancel()


# -- a status that another version has written


def test_a_status_with_more_fields_keeps_what_is_known() -> None:
    """Of a newer operator, before it was rolled back: masters still get their last incarnations."""
    node = {"node": "uk-1", "birth": "0a", "start": 3, "state": "Joined", "index": 7}
    found = read_cluster_status(
        {"status": {"nodes": [{**node, "later": 1}], "laterField": {"a": 1}, "recovery": "Smart"}}
    )
    assert last_seen_incarnations(found) == {"uk-1": LastSeenIncarnation(birth=10, start=3)}
    assert found.recovery == "Smart"


@pytest.mark.parametrize(
    ("written", "state"),
    [({"later": {"a": 1}}, "Done"), ({"message": ["a", "list"]}, "Done"), ({"state": "Later"}, "Failed")],
)
def test_a_restore_of_which_another_version_writes_is_not_carried_out_again(
    written: dict[str, Any], state: str
) -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogRestore", "by-hand", worker="uk-worker-1")
    done = {"state": "Done", "attempts": 1, "finished": format_time(NOW), **written}
    story._keep({**story.seen.job_resources[0], "status": done})
    assert read_job_status(story.seen.job_resources[0]).state == state
    assert story.turn(3600.0) == []
