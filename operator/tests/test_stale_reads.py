"""What was read is not what is there any more: no order of a former manifest, or of another one, is carried out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from observations import AROUND, heard, manifest, whole
from test_job_plan import Story
from test_operator_faults import OldDefinitions, Stored
from test_plan import settled
from test_quorum_rules import NEW, OLD, cluster_with, seen_with
from test_resource_rules import resource

from txlog.config.cluster_status import ClusterStatus
from txlog_operator.actions import ApplyObject, PatchStatus
from txlog_operator.cluster_phase import ClusterPhase
from txlog_operator.cluster_secrets import MasterAccess
from txlog_operator.kube_client import ApiError
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.object_cache import CachedKubeClient, ObjectCopy
from txlog_operator.plan import pending_changes
from txlog_operator.plan_applier import PlanApplier
from txlog_operator.quorum_rules import CHANGING, carried_rules
from txlog_operator.reconcile_outcome import check_plan
from txlog_operator.reconciler import OperatorSettings, ReconcileInterval, Reconciler
from txlog_operator.specs import BuildContext, KubeObject
from txlog_operator.specs.masters import config_map
from txlog_operator.status_writer import make_status

QUICK = OperatorSettings(BuildContext("txlog:1"), interval=ReconcileInterval(0.01, 0.01, 0.001))


def keeper(kube: object) -> Reconciler:
    found: Any = kube
    return Reconciler(found, "graphs", "catalogue", QUICK, OperatorMetrics())


def created(**spec: Any) -> KubeObject:
    found = resource("graphs", **spec)
    found["metadata"] |= {"uid": "u1", "generation": 1, "resourceVersion": "7"}
    return found


# -- a manifest that changes in the middle of a reconcile


class Changed(OldDefinitions):
    """The copy of the operator is late: it has a manifest that has been changed, or removed, since."""

    def __init__(self, *found: KubeObject) -> None:
        super().__init__(*found)
        self.refreshed: list[str] = []

    async def replace_status(self, found: KubeObject, status: KubeObject) -> KubeObject:
        raise ApiError(409, "the object has been modified; please apply your changes to the latest version")

    async def refresh(self, kind: str, namespace: str, name: str) -> None:
        self.refreshed.append(f"{kind} {namespace}/{name}")


async def test_nothing_is_done_by_a_manifest_that_has_changed_meanwhile() -> None:
    kube = Changed(created())
    reconciler = keeper(kube)
    assert await reconciler.reconcile() is False
    assert kube.applied == []
    assert kube.refreshed == ["TxLogCluster graphs/catalogue"], "the next reconcile must not read the same again"
    assert reconciler._wake_event.is_set()


async def test_the_copy_is_read_again_after_a_conflict() -> None:
    """The watch lost its connection, which shows after more than a minute."""

    def at(version: str, name: str = "catalogue") -> KubeObject:
        return {"kind": "TxLogCluster", "metadata": {"name": name, "namespace": "graphs", "resourceVersion": version}}

    place: Any = None
    client = CachedKubeClient.__new__(CachedKubeClient)
    copy = ObjectCopy(place, "TxLogCluster", "graphs", lambda *_: None)
    for name in ("catalogue", "gone"):
        copy.put(at("7", name))
    copy._answered.set()
    client._copies = {("TxLogCluster", "graphs"): (copy, place)}
    there = {"catalogue": at("9")}

    async def get_live(kind: str, namespace: str, name: str) -> KubeObject | None:
        return there.get(name)

    client.get_live = get_live  # type: ignore[method-assign]
    for name in ("catalogue", "gone"):
        await client.refresh("TxLogCluster", "graphs", name)
    await client.refresh("TxLogBackup", "graphs", "of a kind without a copy")
    assert await copy.get("catalogue") == at("9")
    assert await copy.get("gone") is None


async def test_a_watch_that_ends_at_once_is_not_begun_again_without_a_pause() -> None:
    """A proxy before the API server lets no stream through: thousands of requests a second."""

    class Ending:
        watches = 0

        async def list_with_version(self, *_: object) -> tuple[list[KubeObject], str]:
            return [], "7"

        async def watch(self, *_: object) -> AsyncIterator[tuple[str, KubeObject]]:
            self.watches += 1
            assert self.watches < 100
            for each in ():
                yield each

    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    server: Any = Ending()
    with pytest.raises(asyncio.CancelledError):
        await ObjectCopy(server, "Pod", "graphs", lambda *_: None, pause).run()
    assert server.watches == 3
    assert min(pauses) >= 1.0


# -- the last valid manifest


@pytest.mark.parametrize(("namespace", "name"), [("other", "catalogue"), ("graphs", "other")])
async def test_the_last_valid_manifest_of_another_cluster_does_not_count(namespace: str, name: str) -> None:
    """A backup tool restored the namespace under another name, and the Secrets follow later. The operator would observe
    the first cluster, change the settings of its masters, and take out those that this manifest does not have."""
    first = manifest(name=name)
    first = first.model_copy(update={"metadata": first.metadata.model_copy(update={"namespace": namespace})})
    kept = config_map(first, AROUND)
    kept["metadata"]["name"] = "catalogue-masters"
    found = created(workers={"engine": "fuseki"})
    cluster, _, problems = await keeper(Stored({**kept, "kind": "ConfigMap"}))._read_spec(found)
    assert cluster is None
    assert problems


# -- a bug


async def test_a_failing_report_does_not_end_the_reconciler() -> None:
    class Broken:
        reads = 0

        async def get(self, *_: str) -> None:
            self.reads += 1
            raise ValueError("a bug")

        async def get_live(self, *_: str) -> None:
            raise RuntimeError("another one")

    kube = Broken()
    reconciler = keeper(kube)
    task = asyncio.create_task(reconciler.run())
    async with asyncio.timeout(30.0):
        while kube.reads < 3 and not task.done():  # noqa: ASYNC110 - the reconciler raises no event
            await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


# -- a restore that a person takes back


class Answers:
    """An API server that refuses statuses with this code."""

    def __init__(self, code: int) -> None:
        self.code, self.made = code, list[str]()

    async def get_live(self, *_: str) -> None:
        return None

    async def apply(self, wanted: KubeObject, *, force: bool = True) -> KubeObject:
        self.made.append(wanted["kind"])
        return wanted

    async def replace_status(self, found: KubeObject, status: KubeObject) -> KubeObject:
        if self.code >= 400:
            raise ApiError(self.code, "not written")
        return found


@pytest.mark.parametrize(("code", "made"), [(404, []), (409, []), (422, ["Job"]), (200, ["Job"])])
async def test_no_job_is_made_for_a_restore_that_was_deleted(code: int, made: list[str]) -> None:
    """The copy of the operator still has it. Where older definitions refuse the status, a Job is made: a split would
    wait for its backup."""
    story = Story()
    story.ask("TxLogRestore", "again", worker="uk-worker-1")
    actions = story.turn()
    assert [type(each) for each in actions] == [PatchStatus, ApplyObject]
    kube = Answers(code)
    applier = PlanApplier(kube, "graphs")  # type: ignore[arg-type]
    await applier.apply_plan(actions, MasterAccess())
    assert kube.made == made


# -- what is not in effect yet


def test_a_recovery_strategy_that_waits_is_not_carried_out() -> None:
    cluster = manifest(splitRecovery="Simple")
    seen = whole(cluster, settled(cluster))
    assert pending_changes(cluster, seen, None) == []
    first = {**seen.masters, "uk-1": heard(cluster, "uk-1", settings={"splitRecovery": "Smart"})}
    late = replace(seen, masters=first)
    (text,) = pending_changes(cluster, late, None)
    assert text.startswith("spec.splitRecovery")
    check = check_plan([], False, [], [], (), [text])
    assert (check.status, check.reason) == ("Unknown", "ChangesPending")
    before = ClusterStatus(observed_generation=1)
    status = make_status(cluster, 2, late, ClusterPhase.CATCHING_UP, [], before, check)
    assert status.observed_generation == 1, "kubectl wait and GitOps tools would take it for done"


def test_rules_that_are_on_their_way_are_not_carried_out() -> None:
    old, new = cluster_with(OLD), cluster_with(NEW)
    carried = carried_rules(old, seen_with(old, OLD), None)
    for digest in (carried, CHANGING):
        assert pending_changes(new, seen_with(new, OLD, "Suspected"), digest)
    assert pending_changes(new, seen_with(new, NEW), CHANGING) == []
    assert pending_changes(old, seen_with(old, NEW), carried) == [], "what another data centre has changed"
    assert pending_changes(new, seen_with(new, OLD), None) == []
