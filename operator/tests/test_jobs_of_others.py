"""Jobs that people make with the labels of the operator's, so that network policies let them through to the masters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from observations import NOW
from test_job_plan import WITH_TARGET, Story

from txlog_operator.actions import DeleteObject
from txlog_operator.job_attempts import START_DEADLINE_S, format_time
from txlog_operator.specs import jobs
from txlog_operator.specs.common import labels, selector

CRON_JOB = {"kind": "CronJob", "name": "nightly", "uid": "c1", "controller": True}


def with_job(story: Story, component: str, **metadata: Any) -> None:
    meta = {"name": "nightly-1", "uid": "j1", "labels": selector(story.cluster, component)}
    meta |= {"creationTimestamp": format_time(NOW - 2 * START_DEADLINE_S), **metadata}
    job = {"kind": "Job", "metadata": meta, "spec": {}, "status": {}}
    story.seen = replace(story.seen, objects={**story.seen.objects, ("Job", "nightly-1"): job})


@pytest.mark.parametrize("component", [jobs.COMPONENT, jobs.DUTY_COMPONENT])
@pytest.mark.parametrize("is_copied", [True, False])
def test_one_that_waits_for_a_node_is_not_removed(component: str, is_copied: bool) -> None:
    """``is_copied``: its labels are all that the operator gives, and its owner is another one."""
    story = Story(backup=WITH_TARGET)
    more = {"labels": labels(story.cluster, component), "ownerReferences": [CRON_JOB]} if is_copied else {}
    with_job(story, component, **more)
    assert [each for each in story.turn() if isinstance(each, DeleteObject)] == []


def test_one_that_runs_for_long_delays_no_backup() -> None:
    story = Story(backup=WITH_TARGET)
    with_job(story, jobs.COMPONENT, ownerReferences=[CRON_JOB])
    story.ask("TxLogBackup", "by-hand")
    story.turn()
    assert story.states == {"by-hand": "Running"}


def test_one_of_the_operator_that_no_resource_tracks_is_removed() -> None:
    story = Story(backup=WITH_TARGET)
    owner = {"kind": "TxLogCluster", "name": "catalogue", "uid": "u1", "controller": True}
    with_job(story, jobs.COMPONENT, labels=labels(story.cluster, jobs.COMPONENT), ownerReferences=[owner])
    (removed,) = [each for each in story.turn() if isinstance(each, DeleteObject)]
    assert removed.name == "nightly-1"
