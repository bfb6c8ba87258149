"""Rehearsed recoveries: one by its schedule or by hand, its Job, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from golden import AROUND
from observations import NOW
from test_job_plan import Story
from test_specs import cluster, one

from txlog.config.process_config import RehearsalConfig
from txlog_operator.actions import ApplyObject
from txlog_operator.job_attempts import HISTORY_KEPT, format_time
from txlog_operator.object_names import ObjectNames
from txlog_operator.specs import KubeObject, desired_objects
from txlog_operator.specs.jobs import build_job, rehearsal_command

FOLDER = {"folder": {"path": "/archive", "claimName": "archive"}}
S3 = {"s3": {"bucket": "backups", "secretRef": {"name": "keys"}}}
DAILY = {"target": FOLDER, "rehearsal": {"schedule": "@every 1h"}}
GOOD = {
    "ok": True,
    "index": 62,
    "graphs": 5,
    "worker": "uk-worker-1",
    "rpoSeconds": 0.0,
    "rtoWritesSeconds": 1.5,
    "rtoReadsSeconds": 20.0,
}


def scheduled(founded_s: float, **archive: Any) -> Story:
    """``founded_s``: when the masters were created, in seconds before now."""
    story = Story(archive={**DAILY, **archive})
    masters = {"kind": "StatefulSet", "metadata": {"name": "m", "creationTimestamp": format_time(NOW - founded_s)}}
    story.seen = replace(story.seen, objects={("StatefulSet", ObjectNames(story.cluster).masters): masters})
    return story


def rehearsals(story: Story) -> list[KubeObject]:
    return [each for each in story.seen.job_resources if each["kind"] == "TxLogRehearsal"]


def create(story: Story, after_s: float = 0.0) -> list[str]:
    """The names of those that a turn makes, which the API server dates."""
    made = [a.desired for a in story.turn(after_s) if isinstance(a, ApplyObject) and a.desired["kind"] != "Job"]
    for each in made:
        dated = {**each, "metadata": {**each["metadata"], "creationTimestamp": format_time(story.seen.now)}}
        story._keep(dated)
    return [str(each["metadata"]["name"]) for each in made]


def test_the_first_one_counts_from_the_masters() -> None:
    story = scheduled(3000)
    assert create(story) == []
    (name,) = create(story, 600)
    assert name.startswith("catalogue-rehearsal-20")
    (made,) = rehearsals(story)
    assert made["spec"] == {"cluster": "catalogue", "why": "schedule"}


def test_one_at_a_time_and_one_for_all_that_were_missed() -> None:
    story = scheduled(5 * 3600)
    assert len(create(story)) == 1
    assert create(story, 2 * 3600) == []  # the Job is begun; it runs long
    ((name, job),) = [(name, each) for (kind, name), each in story.seen.objects.items() if kind == "Job"]
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[:3] == ["python", "-m", "txlog.rehearsal"]
    assert "-rehearsal-" in name
    story.end("Complete", GOOD)
    assert create(story) == []
    assert list(story.states.values()) == ["Done"]
    (made,) = rehearsals(story)
    assert (made["status"]["position"], made["status"]["message"]) == (
        "index 62",
        "5 graphs compared with uk-worker-1, none differs; RPO 0.0 s, RTO for writes 1.5 s, RTO for reads 20.0 s",
    )
    assert len(create(story)) == 1
    assert len(rehearsals(story)) == 2


@pytest.mark.parametrize("schedule", ["0 * * * *", "@every 1h"])
def test_an_api_server_whose_clock_is_behind_stops_no_schedule(schedule: str) -> None:
    """It dates the resource before the time at which that was due, so by its date alone the same one is due again."""
    story = scheduled(3600, rehearsal={"schedule": schedule})
    for count in range(1, 4):
        for made in [a.desired for a in story.turn() if isinstance(a, ApplyObject) and a.desired["kind"] != "Job"]:
            dated = format_time(story.seen.now - 1)
            story._keep({**made, "metadata": {**made["metadata"], "creationTimestamp": dated}})
        story.turn()
        story.end("Complete", GOOD)
        story.turn()
        assert list(story.states.values()) == ["Done"] * count
        assert story.turn() == [], "not again at the same time"
        story.turn(3599)
        story.seen = replace(story.seen, now=story.seen.now + 1)


def test_one_that_failed_is_named_and_not_repeated() -> None:
    story = Story(archive=DAILY)
    story.ask("TxLogRehearsal", "by-hand")
    story.turn()
    assert story.states == {"by-hand": "Running"}
    story.end("Failed", {"ok": False, "error": "NoBase", "message": "no backup of the engine oxigraph"})
    story.turn()
    assert story.states == {"by-hand": "Failed"}
    assert rehearsals(story)[0]["status"]["message"] == "NoBase: no backup of the engine oxigraph"
    assert story.turn(10_000) == []


def test_it_waits_for_a_backup_that_runs() -> None:
    story = Story(archive=DAILY, backup={"target": S3})
    story.ask("TxLogBackup", "a-backup")
    story.ask("TxLogRehearsal", "b-rehearsal")
    story.turn()
    assert [command[2] for command in story.jobs.values()] == ["txlog.backup"]
    story.end("Complete", {"name": "a"})
    story.turn()
    story.turn()
    assert [command[2] for command in story.jobs.values()] == ["txlog.backup", "txlog.rehearsal"]


def test_without_an_archive_it_says_so() -> None:
    story = Story()
    story.ask("TxLogRehearsal", "by-hand")
    story.turn()
    assert rehearsals(story)[0]["status"]["message"].startswith("the cluster has no spec.archive")


def test_old_ones_of_the_schedule_are_removed() -> None:
    story = scheduled(3600)
    for _ in range(HISTORY_KEPT + 3):
        create(story)
        create(story)
        story.end("Complete", GOOD)
        create(story)
        assert len(rehearsals(story)) <= HISTORY_KEPT + 1
        story.seen = replace(story.seen, now=story.seen.now + 3600)
    story.ask("TxLogRehearsal", "by-hand")
    story.turn()
    assert "by-hand" in story.states


@pytest.mark.parametrize(
    ("spec", "volumes"),
    [
        ({"archive": {"target": FOLDER}}, {"/archive"}),
        ({"archive": {"target": S3}}, {"/etc/txlog-secrets/keys"}),
        ({"archive": {}, "backup": {"target": S3}}, {"/etc/txlog-secrets/keys"}),
        ({"archive": {"target": FOLDER}, "backup": {"target": S3}}, {"/archive", "/etc/txlog-secrets/keys"}),
    ],
)
def test_its_job_has_both_targets(spec: dict[str, Any], volumes: set[str]) -> None:
    given = cluster(**spec)
    pod = build_job(given, AROUND, "job", rehearsal_command())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert {path for path in mounted if path.startswith(("/archive", "/etc/txlog-secrets", "/backups"))} == volumes
    assert set(mounted.values()) <= {each["name"] for each in pod["volumes"]}
    config = one("ConfigMap", ObjectNames(given).jobs, desired_objects(given, AROUND))["data"]["rehearsal.json"]
    found = RehearsalConfig.model_validate(json.loads(config))
    assert (found.data_center, bool(found.masters)) == ("uk", True)
    assert (found.backups is not None) == ("backup" in spec)


def test_jobs_of_backups_are_as_before() -> None:
    given = cluster(archive={"target": FOLDER})
    pod = build_job(given, AROUND, "job", ["python", "-m", "txlog.backup"])["spec"]["template"]["spec"]
    assert "/archive" not in {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert (
        "rehearsal.json"
        not in one("ConfigMap", ObjectNames(cluster()).jobs, desired_objects(cluster(), AROUND))["data"]
    )
