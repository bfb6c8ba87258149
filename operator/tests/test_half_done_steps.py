"""Orders that were given and are not carried out yet, while something else changes: no step is lost, or taken twice."""

from dataclasses import replace
from typing import Any

import pytest
from observations import NOW, heard, manifest, pod, whole
from test_job_plan import WITH_TARGET, Story, owned_by_cluster
from test_plan import of, planned, replicas, settled
from test_volume_claims import THREE, claims, journals, scaled

from txlog.config.cluster import TxLogCluster
from txlog_operator.actions import ApplyObject, DeleteObject, PatchStatus
from txlog_operator.job_attempts import RETRY_DELAY_MAX_S, format_time, parse_time
from txlog_operator.job_plan import blocked_jobs
from txlog_operator.observation import ClusterObservation
from txlog_operator.observe import observed_master_count
from txlog_operator.specs.jobs import JOB_KEPT_S

# -- masters that leave


def leaving() -> tuple[TxLogCluster, ClusterObservation]:
    """The third master hands over what only it has; the manifest wants two."""
    two = manifest(2)
    seen = whole(two, settled(manifest(3)), configured=THREE, leaving=["uk-3"])
    pods = {**seen.master_pods, "uk-3": pod(two, "uk-3")}
    names = frozenset({"catalogue-1", "catalogue-2", "catalogue-3"})
    return two, claims(two, replace(seen, master_pods=pods, pod_names=names), *journals(3))


def without_set(seen: ClusterObservation) -> ClusterObservation:
    found = {key: each for key, each in seen.objects.items() if key != ("StatefulSet", "catalogue")}
    return replace(seen, objects=found)


def test_a_set_that_is_replaced_keeps_a_master_that_leaves() -> None:
    """Its volumes have grown, so the StatefulSet was deleted, and its pods run on."""
    two, seen = leaving()
    assert replicas(planned(two, without_set(seen))) == [3]
    silent = replace(seen, masters=dict.fromkeys(seen.masters))
    assert replicas(planned(two, without_set(silent))) == [3], "nothing is known, so nothing is stopped"


@pytest.mark.parametrize("count", [0, 2])
def test_a_master_that_leaves_outlives_a_scale_by_hand(count: int) -> None:
    two, seen = leaving()
    pods = replace(seen, pod_names=frozenset({"catalogue-1", "catalogue-2"}), master_pods=whole(two).master_pods)
    assert replicas(planned(two, scaled(pods, "catalogue", count))) == [3], "only it has what it hands over"
    assert replicas(planned(two, without_set(replace(pods, pod_names=frozenset(), master_pods={})))) == [3]


def test_masters_are_looked_for_by_their_pods_while_their_set_is_replaced() -> None:
    two = manifest(2)
    pods = ["catalogue-1", "catalogue-3", "catalogue-20260101", "catalogue-worker-9", "another-4", "catalogue-x"]
    assert observed_master_count(two, None, pods) == 3
    assert observed_master_count(two, None, []) == 2
    assert observed_master_count(two, {"spec": {"replicas": 4}}, pods) == 4
    assert observed_master_count(two, {"spec": {"replicas": 0}}, pods) == 2


def test_a_master_that_has_left_or_has_no_journal_is_not_started() -> None:
    two, seen = leaving()
    gone = replace(seen, masters={node: heard(two, node, configured=THREE, removed=["uk-3"]) for node in seen.masters})
    assert replicas(planned(two, gone)) == [2]
    lost = {key: each for key, each in seen.objects.items() if key[1] != "journal-catalogue-3"}
    pods = whole(two).master_pods
    none = replace(seen, objects=lost, pod_names=frozenset({"catalogue-1", "catalogue-2"}), master_pods=pods)
    assert replicas(planned(two, scaled(none, "catalogue", 2))) == [2]


# -- Jobs that are gone, and Jobs that fail


def test_a_restore_whose_job_is_gone_is_not_carried_out_twice() -> None:
    """Kubernetes removes an ended Job after a day: the operator was paused for longer, and never saw its end."""
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogRestore", "by-hand", worker="uk-worker-1")
    story.turn()
    assert len(story.jobs) == 1
    story.seen = replace(story.seen, objects={})
    actions = story.turn(JOB_KEPT_S + 1)
    assert of(ApplyObject, actions) == []
    (status,) = [each["status"] for each in story.seen.job_resources]
    assert (status["state"], "is gone" in status["message"]) == ("Failed", True)
    assert story.turn(RETRY_DELAY_MAX_S) == []


def test_a_job_that_was_never_made_is_made() -> None:
    """The operator was killed between the status and the Job."""
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogRestore", "by-hand", worker="uk-worker-1")
    story.turn()
    (name,) = story.jobs
    story.seen = replace(story.seen, objects={})
    story.turn(JOB_KEPT_S - 1)
    assert list(story.jobs) == [name]


def test_what_was_retired_goes_before_the_backup_counts_as_done() -> None:
    """An operator that is killed between the two steps repeats both."""
    story = Story(backup=WITH_TARGET)
    for name, retired in (("one", []), ("two", ["b-one"])):
        story.ask("TxLogBackup", name)
        owned_by_cluster(story, name)
        story.turn()
        story.end("Complete", {"name": f"b-{name}", "position": "1.7", "retired": retired})
        actions = story.turn()
    assert [type(each) for each in actions] == [DeleteObject, PatchStatus]


def test_a_release_that_fails_is_tried_again_after_a_pause_and_is_reported() -> None:
    story = Story()
    story.ask("TxLogBackup", "split", duty="backup-1.1.1", why="split")
    story._keep({**story.seen.job_resources[0], "status": {"state": "Done", "backup": "b1", "attempts": 1}})
    story.turn()
    (name,) = story.jobs
    story.end("Failed", {"error": "TargetUnreachable", "message": "no such bucket"})
    job = story.seen.objects["Job", name]
    at = {"type": "Failed", "status": "True", "lastTransitionTime": format_time(story.seen.now)}
    story._keep({**job, "status": {"conditions": [at]}})
    assert story.turn(RETRY_DELAY_MAX_S - 1) == [], "a pod every few seconds, for as long as the target is away"
    ((what, why),) = blocked_jobs(story.cluster, story.seen)
    assert ("release" in what, "no such bucket" in why) == (True, True)
    (removed,) = story.turn(1)
    assert isinstance(removed, DeleteObject)
    story.turn()
    assert list(story.jobs) == [name]
    assert blocked_jobs(story.cluster, story.seen) == []


def test_the_end_of_a_rehearsal_is_recorded_while_the_cluster_goes_to_sleep() -> None:
    archive = {"target": {"s3": {"bucket": "archive"}}}
    awake, asleep = manifest(archive=archive), manifest(archive=archive, hibernated=True)
    meta = {"name": "monday", "namespace": "graphs", "uid": "u2"}
    work: dict[str, Any] = {"kind": "TxLogRehearsal", "metadata": meta, "spec": {"cluster": "catalogue"}}
    world = settled(awake)
    made = of(ApplyObject, planned(awake, replace(whole(awake, world), job_resources=(work,))))
    world.carry_out([each for each in made if each.desired["kind"] == "Job"])
    (job,) = [each for key, each in world.objects.items() if key[0] == "Job" and "monday" in key[1]]
    job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    running = {**work, "status": {"state": "Running", "attempts": 1, "started": format_time(NOW)}}
    seen = replace(whole(asleep, world), job_resources=(running,))
    assert [each.status["state"] for each in of(PatchStatus, planned(asleep, seen))] == ["Done"]


# -- schedules that change


def test_a_schedule_that_was_changed_counts_at_once() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackupSchedule", "often", schedule="0 2 1 1 *")
    story.turn()
    (found,) = story.seen.schedules
    story._keep({**found, "spec": {**found["spec"], "schedule": "0 * * * *"}})
    (step,) = story.turn()
    assert isinstance(step, PatchStatus)
    assert parse_time(step.status["next"]) - NOW <= 3600.0
    assert story.states == {}
    assert story.turn() == []


def often(schedule: str) -> Story:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackupSchedule", "often", schedule=schedule)
    story.turn()
    return story


@pytest.mark.parametrize(("schedule", "look_s"), [("@every 6h", 900.0), ("@every 30s", 3.0)])
def test_an_interval_leads_to_backups(schedule: str, look_s: float) -> None:
    """Each look would move the next one into the future; and two of one minute are two."""
    story = often(schedule)
    every_s = {"@every 6h": 6 * 3600.0, "@every 30s": 30.0}[schedule]
    for _ in range(int(4 * (every_s + look_s) / look_s)):
        story.turn(look_s)
        story.end("Complete", {"name": "b"})
    assert len(story.states) >= 3, story.states
    quiet = [each for each in story.turn(1.0) if isinstance(each, PatchStatus) and each.target["kind"] != "TxLogBackup"]
    assert quiet == [], "between two of them nothing is written"


def test_a_scheduled_backup_that_exists_was_not_passed_over() -> None:
    """The operator ended between the two writes: the TxLogBackup is there, and the schedule does not know of it."""
    story = often("0 * * * *")
    (before,) = story.seen.schedules
    story.turn(3600.0)
    story.seen = replace(story.seen, schedules=(before,))
    (name,) = story.states
    story.turn()
    (after,) = story.seen.schedules
    assert after["status"]["last"] == name
    assert "message" not in after["status"]
    assert list(story.states) == [name]
