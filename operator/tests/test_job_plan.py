"""Backups, restores and other duties: what is made for them, and what is said of them."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from observations import AROUND, NOW, heard, manifest, whole

from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import ClusterStatus
from txlog_operator.actions import ApplyObject, DeleteObject, PatchStatus, PlanAction, ReportDutyFailed
from txlog_operator.cluster_phase import cluster_phase_of
from txlog_operator.job_attempts import (
    FAILED_JOBS_KEPT,
    HISTORY_KEPT,
    RETRY_DELAY_MAX_S,
    RETRY_DELAY_S,
    SCHEDULED_ATTEMPTS_MAX,
    START_DEADLINE_S,
    format_time,
    parse_time,
)
from txlog_operator.job_plan import RETIRED, last_backup, plan_jobs
from txlog_operator.observation import ClusterObservation, PodStatus
from txlog_operator.specs import KubeObject, jobs
from txlog_operator.status_writer import make_status

BACKUP = {"id": "backup-3.1.2", "kind": "backup", "why": "split", "worker": None}
RESTORE = {"id": "restore-uk-worker-1-7-abc", "kind": "restore", "why": "off", "worker": "uk-worker-1", "lacks": False}
UNORDER = {"id": "unorder-uk-worker-1-7-abc", "kind": "unorder", "why": "off", "worker": "uk-worker-1"}
REPAIR = {"id": "repair-uk-worker-1-4", "kind": "repair", "why": "changed", "worker": "uk-worker-1"}
WITH_TARGET = {"target": {"s3": {"bucket": "backups", "secretRef": {"name": "s3"}}}}


class Story:
    """Turn after turn: what is planned is carried out, and the Jobs end as the test says."""

    def __init__(self, **spec: Any) -> None:
        self.cluster: TxLogCluster = manifest(**spec)
        self.seen: ClusterObservation = whole(self.cluster)

    def told(self, *duties: dict[str, Any], state: str = "Joined") -> None:
        """As masters list them from now on."""
        masters = {n: replace(heard(self.cluster, n, state), duties=duties) for n in self.cluster.own_peer.nodes}
        self.seen = replace(self.seen, masters=masters)

    def ask(self, kind: str, name: str, **spec: Any) -> None:
        """As somebody asks for it by hand."""
        self._keep({"kind": kind, "metadata": {"name": name}, "spec": {"cluster": "catalogue", **spec}})

    def turn(self, after_s: float = 0.0) -> list[PlanAction]:
        self.seen = replace(self.seen, now=self.seen.now + after_s)
        actions = plan_jobs(self.cluster, AROUND, self.seen, cluster_phase_of(self.seen))
        for action in actions:
            if isinstance(action, ApplyObject):
                self._keep(dict(action.desired))
            elif isinstance(action, PatchStatus):
                self._keep({**action.target, "status": action.status})
            elif isinstance(action, DeleteObject):
                works = tuple(w for w in self.seen.job_resources if w["metadata"]["name"] != action.name)
                objects = {key: each for key, each in self.seen.objects.items() if key != (action.kind, action.name)}
                self.seen = replace(self.seen, job_resources=works, objects=objects)
        return actions

    def _keep(self, found: KubeObject) -> None:
        name = found["metadata"]["name"]
        found["metadata"] = {"uid": f"uid-{name}", **found["metadata"]}
        if found["kind"] == "Job":
            self.seen = replace(self.seen, objects={**self.seen.objects, ("Job", name): found})
        elif found["kind"] == "TxLogBackupSchedule":
            self.seen = replace(self.seen, schedules=(found,))
        else:
            rest = [each for each in self.seen.job_resources if each["metadata"]["name"] != name]
            self.seen = replace(self.seen, job_resources=(*rest, found))

    def end(self, how: str, said: dict[str, Any]) -> None:
        """Every Job that runs ends so."""
        for (kind, name), job in list(self.seen.objects.items()):
            if kind == "Job" and "status" not in job:
                self._keep({**job, "status": {"conditions": [{"type": how, "status": "True"}]}})
                pods = {**self.seen.job_pods, name: PodStatus(name, name, termination_message=json.dumps(said))}
                self.seen = replace(self.seen, job_pods=pods)

    @property
    def jobs(self) -> dict[str, Sequence[str]]:
        """Their commands, by name."""
        found = {name: job["spec"]["template"]["spec"]["containers"][0] for (_, name), job in self.seen.objects.items()}
        return {name: each["command"] for name, each in found.items()}

    @property
    def states(self) -> dict[str, str]:
        return {each["metadata"]["name"]: each.get("status", {}).get("state", "") for each in self.seen.job_resources}


def owned_by_cluster(story: Story, name: str) -> None:
    """As the operator creates it."""
    (found,) = [each for each in story.seen.job_resources if each["metadata"]["name"] == name]
    owner = {"kind": "TxLogCluster", "name": "catalogue", "uid": "u1", "controller": True}
    story._keep({**found, "metadata": {**found["metadata"], "ownerReferences": [owner]}})


def test_a_split_gets_its_backup() -> None:
    story = Story()
    story.told(BACKUP, state="Suspected")
    (made,) = story.turn()
    assert isinstance(made, ApplyObject)
    name = made.desired["metadata"]["name"]
    assert made.desired["spec"] == {"cluster": "catalogue", "duty": "backup-3.1.2", "why": "split"}
    assert name.startswith("catalogue-uk-split-3-")
    story.turn()
    ((job, command),) = story.jobs.items()
    assert job.startswith(name)
    assert job.endswith("-1")
    assert "-backup-" in job
    assert "--backup=backup-3.1.2" in command
    assert story.states == {name: "Running"}
    assert story.turn() == []
    story.end("Complete", {"backup": "b1", "index": 7})
    story.told(state="Isolated")
    story.turn()
    assert story.states == {name: "Done"}
    assert story.turn(100) == []


def test_a_split_waits_for_its_backup_so_that_waits_for_nothing_else() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackup", "a-by-hand")
    story.told(RESTORE, BACKUP, state="Suspected")
    story.turn()
    assert [command[2] for command in story.jobs.values()] == ["txlog.backup"]
    story.turn()
    (duty,) = [command for command in story.jobs.values() if command[2] == "txlog.backup.duty"]
    assert "--backup=backup-3.1.2" in duty


def test_a_duty_that_failed_is_told_to_the_masters_and_tried_again_while_they_list_it() -> None:
    story = Story()
    story.told(BACKUP, state="Suspected")
    story.turn()
    story.turn()
    story.end("Failed", {"error": "NoWorker", "message": "no worker works"})
    reports = [each for each in story.turn() if isinstance(each, ReportDutyFailed)]
    assert [(each.duty, each.message) for each in reports] == [("backup-3.1.2", "NoWorker: no worker works")] * 2
    assert story.turn(RETRY_DELAY_S / 2) == []
    story.turn(RETRY_DELAY_S)
    assert [name[-2:] for name in story.jobs] == ["-1", "-2"]
    story.end("Failed", {"error": "NoWorker", "message": "no worker works"})
    story.turn()
    story.told(state="Joined")  # the link was healed: nobody wants it any more
    assert [each for each in story.turn(RETRY_DELAY_S + 1) if isinstance(each, ApplyObject)] == []


def test_one_that_was_done_is_done_again_when_a_master_still_asks() -> None:
    """Another master of the data centre came to ask later."""
    story = Story()
    story.told(BACKUP, state="Suspected")
    for _ in range(2):
        story.turn()
    story.end("Complete", {"backup": "b1", "index": 7})
    story.turn()
    assert story.turn(RETRY_DELAY_S / 2) == []
    story.turn(RETRY_DELAY_S)
    assert [name[-2:] for name in story.jobs] == ["-1", "-2"]


def test_a_worker_that_was_left_half_loaded_is_gone_on_with() -> None:
    """It stands nowhere, so its masters list nothing."""
    story = Story()
    story.told(RESTORE)
    for _ in range(2):
        story.turn()
    story.told()
    story.end("Failed", {"error": "Unreachable", "message": "the store went away"})
    story.turn()
    story.turn(RETRY_DELAY_S + 1)
    assert [name[-2:] for name in story.jobs] == ["-1", "-2"]
    assert all("--restore=uk-worker-1" in command for command in story.jobs.values())


def test_a_worker_is_moved_by_one_at_a_time() -> None:
    story = Story()
    story.told(RESTORE)
    story.turn()
    story.told({**RESTORE, "id": "restore-uk-worker-1-9-def"})
    assert not [each for each in story.turn() if isinstance(each, ApplyObject) and each.desired["kind"] != "Job"]


def test_what_one_master_lacks_only_another_may_know() -> None:
    story = Story()
    masters = {n: heard(story.cluster, n) for n in story.cluster.own_peer.nodes}
    masters["uk-1"] = replace(masters["uk-1"], duties=({**RESTORE, "lacks": True},))
    story.seen = replace(story.seen, masters=masters)
    assert story.turn() == []


def test_a_worker_is_set_on_the_log_as_it_is() -> None:
    story = Story()
    story.told(UNORDER)
    for _ in range(2):
        story.turn()
    assert any("--unorder=uk-worker-1" in command for command in story.jobs.values())


@pytest.mark.parametrize("kind", ["adopt", "discard"])
def test_what_a_person_decided_about_a_store_is_carried_out(kind: str) -> None:
    story = Story()
    story.told({"id": f"{kind}-uk-worker-1-20-abcdef01", "kind": kind, "why": "decided", "worker": "uk-worker-1"})
    for _ in range(2):
        story.turn()
    assert any(f"--{kind}=uk-worker-1" in command for command in story.jobs.values())


def test_a_worker_that_differs_is_repaired_and_one_that_could_not_be_only_while_masters_ask() -> None:
    story = Story()
    story.told(REPAIR)
    for _ in range(2):
        story.turn()
    (command,) = story.jobs.values()
    assert "--repair=uk-worker-1" in command
    story.end("Failed", {"error": "TooMuchDiffers", "message": "rebuild it"})
    reports = [each for each in story.turn() if isinstance(each, ReportDutyFailed)]
    assert {each.message for each in reports} == {"TooMuchDiffers: rebuild it"}
    story.told()
    assert story.turn(RETRY_DELAY_S + 1) == [], "it is whole: nothing was left half done"
    story.told(RESTORE)  # and it stands in the way of nothing else
    story.turn()
    story.turn()
    assert any("--restore=uk-worker-1" in each for each in story.jobs.values())


def test_a_worker_is_repaired_when_every_master_says_so_and_nothing_else_is_to_be_done() -> None:
    story = Story()
    masters = {n: heard(story.cluster, n) for n in story.cluster.own_peer.nodes}
    masters["uk-1"] = replace(masters["uk-1"], duties=(REPAIR,))
    story.seen = replace(story.seen, masters=masters)
    assert story.turn() == []
    story.told(REPAIR, {**RESTORE, "id": "restore-uk-worker-2", "worker": "uk-worker-2"})
    (made,) = [each for each in story.turn() if isinstance(each, ApplyObject)]
    assert made.desired["spec"]["duty"] == "restore-uk-worker-2"


def test_the_same_turn_again_makes_nothing_twice() -> None:
    """Killed before its status was written, or before its Job was made."""
    story = Story()
    story.told(BACKUP, state="Suspected")
    story.turn()
    before = story.seen
    first = story.turn()
    story.seen = before
    assert [str(each) for each in story.turn()] == [str(each) for each in first]


# -- attempts


def test_a_duty_that_fails_on_is_tried_ever_later_and_leaves_few_jobs() -> None:
    story = Story()
    story.told(BACKUP, state="Suspected")
    made = []
    for _ in range(4 * 60 * 8):  # eight hours
        for action in story.turn(15):
            if isinstance(action, ApplyObject) and action.desired["kind"] == "Job":
                made.append(story.seen.now)
        story.end("Failed", {"error": "NoWorker", "message": "no worker works"})
    assert len(made) < 60
    assert max(later - earlier for earlier, later in itertools.pairwise(made)) <= RETRY_DELAY_MAX_S + 30
    assert len(story.jobs) <= FAILED_JOBS_KEPT + 2


def test_a_job_that_cannot_start_says_why_and_lets_others_come() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackup", "a-stuck")
    story.ask("TxLogBackup", "b-waits")
    story.turn()
    (job,) = story.jobs
    story.seen = replace(story.seen, job_problems={job: "must specify requests.cpu"})
    assert story.turn(5) == []
    story.turn(30)
    by_name = {each["metadata"]["name"]: each for each in story.seen.job_resources}
    assert "must specify requests.cpu" in by_name["a-stuck"]["status"]["message"]
    assert jobs_condition(story)[0] == "False"
    assert "must specify requests.cpu" in jobs_condition(story)[1]
    assert story.turn(10) == []
    story.turn(START_DEADLINE_S)
    assert story.states == {"a-stuck": "Failed", "b-waits": "Running"}
    assert job not in story.jobs


def test_a_split_backup_that_cannot_start_is_told_to_the_masters_and_tried_again() -> None:
    story = Story()
    story.told(BACKUP, state="Suspected")
    for _ in range(2):
        story.turn()
    (job,) = story.jobs
    waiting = PodStatus("p", "p", waiting_reason="0/3 nodes are available: volume node affinity conflict")
    story.seen = replace(story.seen, job_pods={job: waiting})
    reports = [each for each in story.turn(START_DEADLINE_S) if isinstance(each, ReportDutyFailed)]
    assert len(reports) == 2
    assert "volume node affinity conflict" in reports[0].message
    assert jobs_condition(story)[0] == "False", "also between two attempts"
    story.turn(RETRY_DELAY_S)
    (again,) = story.jobs
    assert again != job
    story.seen = replace(story.seen, job_pods={again: PodStatus("q", "q", running=True)})
    assert story.turn(2 * START_DEADLINE_S) == [], "one that runs has all the time that it needs"
    assert jobs_condition(story)[0] == "True"


def jobs_condition(story: Story) -> tuple[str, str]:
    status = make_status(story.cluster, 1, story.seen, cluster_phase_of(story.seen), [], ClusterStatus())
    return next((each.status, each.message) for each in status.conditions if each.type == "JobsHealthy")


def test_a_job_that_nobody_tracks_does_not_keep_the_turn() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackup", "one")
    story.turn()
    ((key, job),) = story.seen.objects.items()
    made = {**job, "metadata": {**job["metadata"], "creationTimestamp": format_time(story.seen.now)}}
    story.seen = replace(story.seen, objects={key: made}, job_resources=())
    story.ask("TxLogBackup", "two")
    assert story.turn(START_DEADLINE_S / 2) == []
    story.turn(START_DEADLINE_S)
    story.turn()
    assert len(story.jobs) == 1
    assert story.states == {"two": "Running"}


def test_a_backup_and_a_restore_of_one_name_are_two() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackup", "monday")
    story.turn()
    story.end("Complete", {"name": "b", "position": "1.7"})
    story.turn()
    (backup,) = story.seen.job_resources
    story.ask("TxLogRestore", "monday", worker="uk-worker-1")
    story.seen = replace(story.seen, job_resources=(*story.seen.job_resources, backup))
    story.turn()
    assert len(story.jobs) == 2
    restore = next(each for each in story.seen.job_resources if each["kind"] == "TxLogRestore")
    assert restore["status"]["state"] == "Running"
    assert any("--restore=uk-worker-1" in command for command in story.jobs.values())


def test_a_resource_that_is_created_again_is_another_one() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackup", "monday")
    story.turn()
    story.end("Complete", {"name": "b", "position": "1.7"})
    story.turn()
    story._keep({"kind": "TxLogBackup", "metadata": {"name": "monday", "uid": "new"}, "spec": {"cluster": "catalogue"}})
    story.turn()
    assert len(story.jobs) == 2
    assert story.states == {"monday": "Running"}


def as_of_yesterday(story: Story, command: list[str]) -> KubeObject:
    """The Job as an operator made it that did not write whose it is."""
    (job,) = story.seen.objects.values()
    meta = {"name": "monday-1", "labels": job["metadata"]["labels"]}
    containers = [{"command": [*command, "--answer=/dev/termination-log"]}]
    old = {"kind": "Job", "metadata": meta, "spec": {"template": {"spec": {"containers": containers}}}}
    works = tuple({**each, "status": {**each["status"], "job": "monday-1"}} for each in story.seen.job_resources)
    story.seen = replace(story.seen, objects={("Job", "monday-1"): old}, job_resources=works)
    return old


@pytest.mark.parametrize(("same", "state"), [(True, "Done"), (False, "Running")])
def test_a_job_of_yesterdays_name_counts_if_it_does_what_was_asked(same: bool, state: str) -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogRestore", "monday", worker="uk-worker-1")
    story.turn()
    (command,) = story.jobs.values()
    as_of_yesterday(story, list(command)[:-1] if same else ["python", "-m", "txlog.backup", "--name=monday"])
    story.end("Complete", {"index": 7})
    story.turn()
    assert story.states == {"monday": state}
    assert len(story.jobs) == (1 if same else 2)


def test_old_restores_of_the_operator_go_and_those_of_people_stay() -> None:
    story = Story()
    owner = [{"uid": "u1", "controller": True}]
    for at in range(HISTORY_KEPT + 5):
        for name, owners in ((f"ours-{at:02}", owner), (f"theirs-{at:02}", [])):
            meta = {"name": name, "ownerReferences": owners}
            status = {"state": "Done", "finished": f"2026-01-01T00:00:{at:02}Z"}
            spec = {"cluster": "catalogue", "worker": "uk-worker-1"}
            story._keep({"kind": "TxLogRestore", "metadata": meta, "spec": spec, "status": status})
    story.turn()
    assert sorted(name for name in story.states if name < "t") == [f"ours-{at:02}" for at in range(5, HISTORY_KEPT + 5)]
    assert len([name for name in story.states if name > "t"]) == HISTORY_KEPT + 5


# -- by hand and by schedule


def test_a_scheduled_backup_that_failed_is_tried_again() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackupSchedule", "nightly", schedule="0 2 * * *")
    (said,) = story.turn()
    story.turn(parse_time(said.status["next"]) - NOW + 5)  # type: ignore[union-attr]
    for _ in range(60):
        story.turn(60)
        story.end("Failed", {"error": "TargetUnreachable", "message": "no such bucket"})
    assert len(story.jobs) == SCHEDULED_ATTEMPTS_MAX


def test_a_schedule_moves_on_only_behind_its_backup() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackupSchedule", "nightly", schedule="0 2 * * *")
    (said,) = story.turn()
    actions = story.turn(parse_time(said.status["next"]) - NOW + 5)  # type: ignore[union-attr]
    (moved,) = [each for each in actions if isinstance(each, PatchStatus)]
    assert isinstance(actions[0], ApplyObject)
    assert moved.only_after == actions[0]


def test_a_backup_that_was_due_while_no_operator_ran_is_made_late_and_once() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackupSchedule", "nightly", schedule="0 2 * * *")
    story.turn()
    story.turn(10 * 24 * 3600)
    assert len(story.states) == 1
    assert [each for each in story.turn() if isinstance(each, ApplyObject) and each.desired["kind"] != "Job"] == []


def test_a_backup_by_hand_is_tried_once_and_says_what_came_of_it() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackup", "before-the-move")
    story.turn()
    (command,) = story.jobs.values()
    assert "--why=manual" in command
    assert any(word.startswith("--name=before-the-move-") for word in command)
    story.end("Failed", {"error": "TargetUnreachable", "message": "no such bucket"})
    story.turn()
    assert story.states == {"before-the-move": "Failed"}
    assert story.turn(1000) == []
    condition = next(
        each
        for each in make_status(
            story.cluster, 1, story.seen, cluster_phase_of(story.seen), [], ClusterStatus()
        ).conditions
        if each.type == "LastBackupSucceeded"
    )
    assert (condition.status, condition.message) == ("False", "before-the-move: TargetUnreachable: no such bucket")


def test_a_backup_without_a_target_says_what_is_missing() -> None:
    story = Story()
    story.ask("TxLogBackup", "one")
    (said,) = story.turn()
    assert isinstance(said, PatchStatus)
    assert "names no target" in said.status["message"]
    assert story.jobs == {}


def test_a_schedule_makes_backups_named_by_their_minute() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackupSchedule", "nightly", schedule="0 2 * * *")
    (said,) = story.turn()
    due = parse_time(said.status["next"])  # type: ignore[union-attr]
    assert due > NOW
    assert story.turn() == []
    story.turn(due - NOW + 5)
    (name,) = story.states
    assert name.startswith("nightly-20")
    assert story.seen.job_resources[0]["spec"]["why"] == "schedule"
    story.turn()
    story.turn(24 * 3600)  # the next is due, and this one still runs
    assert len(story.states) == 1
    assert "passed over" in story.seen.schedules[0]["status"]["message"]
    story.end("Complete", {"name": "b1", "position": "1.7", "retired": []})
    story.turn()
    assert last_backup(story.seen.job_resources) is not None


@pytest.mark.parametrize("is_own", [True, False])
def test_what_was_retired_at_the_target_goes_here_too(is_own: bool) -> None:
    """What a person created stays, and says so: a tool that applies it again would make another backup."""
    story = Story(backup=WITH_TARGET)
    for name, retired in (("one", []), ("two", ["b-one"])):
        story.ask("TxLogBackup", name)
        if is_own:
            owned_by_cluster(story, name)
        story.turn()
        story.end("Complete", {"name": f"b-{name}", "position": "1.7", "retired": retired})
        story.turn()
    assert story.states == ({"two": "Done"} if is_own else {"one": "Done", "two": "Done"})
    messages = {each["metadata"]["name"]: each["status"].get("message", "") for each in story.seen.job_resources}
    assert messages.get("one", RETIRED) == RETIRED
    assert messages["two"] != RETIRED
    assert story.turn() == []


def test_an_incremental_schedule_makes_incremental_backups() -> None:
    story = Story(backup={**WITH_TARGET, "schedule": "0 2 * * *", "incremental": True, "chain": 3})
    (made,) = jobs.backup_schedules(story.cluster, AROUND)
    assert made["spec"] == {"cluster": "catalogue", "schedule": "0 2 * * *", "incremental": True}
    story.ask("TxLogBackupSchedule", "nightly", **made["spec"])
    (said,) = story.turn()
    story.turn(parse_time(said.status["next"]) - NOW + 5)  # type: ignore[union-attr]
    assert story.seen.job_resources[0]["spec"]["incremental"] is True
    story.turn()
    (command,) = story.jobs.values()
    assert "--kind=incremental" in command
    config = json.loads(jobs.config_map(story.cluster, AROUND)["data"][jobs.BACKUP_CONFIG_FILE])
    assert config["chain"] == 3
    assert "incremental" not in config, "each TxLogBackup says it for itself"


def test_a_backup_by_hand_is_a_full_one_unless_it_says_otherwise() -> None:
    story = Story(backup={**WITH_TARGET, "incremental": True})
    story.ask("TxLogBackup", "whole")
    story.turn()
    (command,) = story.jobs.values()
    assert not [each for each in command if each.startswith("--kind")]


def test_a_wrong_schedule_is_said_once() -> None:
    story = Story(backup=WITH_TARGET)
    story.ask("TxLogBackupSchedule", "nightly", schedule="0 25 * * *")
    (said,) = story.turn()
    assert isinstance(said, PatchStatus)
    assert "spec.schedule: expected" in said.status["message"]
    assert story.turn() == []


# -- afterwards


def test_when_all_are_together_again_the_backups_of_splits_are_let_go() -> None:
    story = Story()
    story.told(BACKUP, state="Suspected")
    for _ in range(2):
        story.turn()
    story.end("Complete", {"backup": "b1", "index": 7})
    story.told(state="Isolated")
    story.turn()
    story.turn()
    assert len(story.jobs) == 1
    story.told(state="Joined")
    story.turn()
    release = next(name for name in story.jobs if "-release-" in name)
    assert "--release" in story.jobs[release]
    story.end("Complete", {"released": ["b1"]})
    story.turn()
    assert story.seen.job_resources[0]["status"]["released"] is True
    assert story.turn() == []


@pytest.mark.parametrize(
    ("backup", "volume", "where"),
    [
        (None, {"claimName": "catalogue-split-backups"}, "/backups"),
        ({"target": {"folder": {"path": "/var/b", "claimName": "mine"}}}, {"claimName": "mine"}, "/var/b"),
        (WITH_TARGET, None, "/etc/txlog-secrets/s3"),
    ],
)
def test_a_job_finds_its_target(backup: dict[str, Any] | None, volume: dict[str, str] | None, where: str) -> None:
    story = Story(**({"backup": backup} if backup else {}))
    story.told(BACKUP, state="Suspected")
    for _ in range(2):
        story.turn()
    (job,) = story.seen.objects.values()
    pod = job["spec"]["template"]["spec"]
    assert where in [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    claims = [each["persistentVolumeClaim"] for each in pod["volumes"] if "persistentVolumeClaim" in each]
    assert claims == ([volume] if volume else [])
    assert pod["restartPolicy"] == "Never"
    assert job["spec"]["backoffLimit"] == 0
