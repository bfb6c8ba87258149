"""Plans backups, restores and other duties: which Job comes next, and the outcome of earlier Jobs. Pure.

Each is a resource whose status records its progress. Resource and attempt name its Job, so no Job is created twice. One
duty and one other backup of a data centre run at a time. The operator retries a duty until the masters no longer list
it; other jobs get one attempt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from txlog.config.backup_resources import JobStatus, ScheduleStatus
from txlog.config.cluster import TxLogCluster
from txlog.config.schedule import parse_schedule
from txlog.model.duty import merge_repair_duties, merge_restore_duties
from txlog_operator.actions import ApplyObject, DeleteObject, PatchStatus, PlanAction, ReportDutyFailed
from txlog_operator.cluster_phase import ClusterPhase
from txlog_operator.object_names import bounded_name, short_hash
from txlog_operator.observation import ClusterObservation
from txlog_operator.specs import BuildContext, KubeObject, jobs
from txlog_operator.specs.common import build_object

RETRY_DELAY_S: Final = 15.0
RESOURCE_NAME_MAX: Final = 55
"""Longest name of a resource: its Job appends the attempt."""


def plan_jobs(
    cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation, situation: ClusterPhase
) -> list[PlanAction]:
    """The actions for duties, schedules, backups, restores, and the release of split backups."""
    return [
        *_plan_duties(cluster, around, seen),
        *_plan_schedules(cluster, around, seen),
        *_plan_job_resources(cluster, around, seen),
        *_plan_release(cluster, around, seen, situation),
    ]


# -- open duties and schedules


def open_duties(seen: ClusterObservation) -> dict[str, Mapping[str, Any]]:
    """The open duties by id, as the masters of this data centre list them."""
    answers = [{"duties": list(heard.duties)} for heard in seen.reachable_masters.values()]
    judged = ("restore", "repair")
    found = {duty["id"]: duty for answer in answers for duty in answer["duties"] if duty["kind"] not in judged}
    return found | {
        duty["id"]: duty for duty in (*merge_restore_duties(answers).values(), *merge_repair_duties(answers).values())
    }


def _plan_duties(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> Iterator[PlanAction]:
    known = {each["spec"].get("duty") for each in seen.job_resources}
    moving = {each["spec"].get("worker") for each in seen.job_resources if _is_open(each)}
    for name, duty in open_duties(seen).items():
        if name in known or duty["worker"] in moving - {None}:
            continue
        yield ApplyObject(duty_resource(cluster, around, duty))


def duty_resource(cluster: TxLogCluster, around: BuildContext, duty: Mapping[str, Any]) -> KubeObject:
    """The TxLogBackup or TxLogRestore of a duty."""
    name, api = str(duty["id"]), cluster.api_version
    spec: KubeObject = {"cluster": cluster.metadata.name, "duty": name}
    if duty["kind"] == "backup":
        epoch = name.removeprefix("backup-").partition(".")[0]
        called = f"{cluster.metadata.name}-{cluster.data_center}-split-{epoch}-{short_hash(name)}"
        spec["why"] = "split"
        return build_object(
            cluster, around, api, "TxLogBackup", bounded_name(called, RESOURCE_NAME_MAX), jobs.DUTY_COMPONENT, spec=spec
        )
    spec["worker"] = duty["worker"]
    called = f"{cluster.metadata.name}-{duty['worker']}-{short_hash(name)}"
    return build_object(
        cluster, around, api, "TxLogRestore", bounded_name(called, RESOURCE_NAME_MAX), jobs.DUTY_COMPONENT, spec=spec
    )


def _plan_schedules(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> Iterator[PlanAction]:
    for found in seen.schedules:
        if found["spec"].get("suspend"):
            continue
        try:
            schedule = parse_schedule(found["spec"]["schedule"])
            status = ScheduleStatus.model_validate(found.get("status") or {})
        except (ValueError, ValidationError) as wrong:
            said = f"spec.schedule: expected {wrong}"
            if found.get("status", {}).get("message") != said:
                yield PatchStatus(found, {"message": said})
            continue
        if status.next is None:
            yield PatchStatus(found, {"next": _format_time(schedule.next_after(seen.now))})
            continue
        due = parse_time(status.next)
        if seen.now < due:
            continue
        name = f"{found['metadata']['name']}-{datetime.fromtimestamp(due, UTC):%Y%m%d%H%M}"
        busy = any(each["spec"].get("why") == "schedule" and _is_open(each) for each in seen.job_resources)
        if not busy:
            spec = {"cluster": cluster.metadata.name, "why": "schedule"}
            yield ApplyObject(
                build_object(
                    cluster,
                    around,
                    cluster.api_version,
                    "TxLogBackup",
                    bounded_name(name, RESOURCE_NAME_MAX),
                    jobs.DUTY_COMPONENT,
                    spec=spec,
                )
            )
        told = {
            "last": status.last if busy else bounded_name(name, RESOURCE_NAME_MAX),
            "next": _format_time(schedule.next_after(seen.now)),
        }
        if busy:
            told["message"] = "the one that was due was passed over: the last one still ran"
        yield PatchStatus(found, {key: value for key, value in told.items() if value is not None})


# -- progress of jobs


def job_status(work: KubeObject) -> JobStatus:
    """The status of a backup or restore; an empty one when another version wrote it."""
    try:
        return JobStatus.model_validate(work.get("status") or {})
    except ValidationError:
        return JobStatus()


def _is_open(work: KubeObject) -> bool:
    state = job_status(work).state
    duty = work["spec"].get("duty") or ""
    return state in ("Waiting", "Running") or (state == "Failed" and bool(duty) and not _is_repair(duty))


def _is_repair(duty: str) -> bool:
    """A repair leaves the worker consistent whenever it ends. It is retried only while masters list it."""
    return duty.startswith("repair-")


def _priority(work: KubeObject) -> tuple[int, str]:
    """Split backups come first: a split waits for them."""
    spec = work["spec"]
    return (0 if spec.get("why") == "split" else 1 if spec.get("duty") else 2, work["metadata"]["name"])


def _plan_job_resources(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> Iterator[PlanAction]:
    listed = open_duties(seen)
    busy = {_component_of(each) for key, each in seen.objects.items() if key[0] == "Job" and _is_running(each)}
    wanted = [each for each in seen.job_resources if _is_open(each) or each["spec"].get("duty") in listed]
    for work in sorted(wanted, key=_priority):
        status, duty = job_status(work), work["spec"].get("duty")
        kind = jobs.DUTY_COMPONENT if duty or work["kind"] == "TxLogRestore" else jobs.COMPONENT
        attempt, ended = max(1, status.attempts), status.state in ("Done", "Failed")
        if ended:
            late = seen.now - parse_time(status.finished) >= RETRY_DELAY_S if status.finished else True
            half = _leaves_partial_state(work) and status.state == "Failed" and bool(seen.reachable_masters)
            if kind in busy or not late or not (duty in listed or half):
                continue  # no master lists the duty any more, or no master answers
            attempt += 1
        job = seen.objects.get(("Job", attempt_job_name(work, attempt)))
        if job is not None and not ended:
            yield from _track_job(seen, work, status, job, attempt)
        elif kind not in busy:
            busy.add(kind)
            yield from _start_job(cluster, around, seen, work, attempt)


def _start_job(
    cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation, work: KubeObject, attempt: int
) -> Iterator[PlanAction]:
    name = attempt_job_name(work, attempt)
    command = job_command(cluster, work)
    if command is None:
        said = "spec.backup of the cluster names no target; set it, and make another TxLogBackup"
        yield _patch_status(work, JobStatus(state="Failed", finished=_format_time(seen.now), message=said))
        return
    yield _patch_status(work, JobStatus(state="Running", job=name, attempts=attempt, started=_format_time(seen.now)))
    yield ApplyObject(jobs.build_job(cluster, around, name, command))


def _track_job(
    seen: ClusterObservation, work: KubeObject, status: JobStatus, job: KubeObject, attempt: int
) -> Iterator[PlanAction]:
    name = job["metadata"]["name"]
    pod = seen.job_pods.get(name)
    said = pod.termination_message if pod is not None else ""
    told = parse_job_output(said)
    facts = {"job": name, "attempts": attempt, "started": status.started, "finished": _format_time(seen.now)}
    if _has_condition(job, "Complete"):
        backup = told.get("name") or told.get("backup")
        where = told.get("position") or (f"index {told['index']}" if "index" in told else None)
        yield _patch_status(
            work, JobStatus(state="Done", backup=backup, position=where, message=said[:1000] or None, **facts)
        )
        for each in seen.job_resources:
            if each["kind"] == "TxLogBackup" and job_status(each).backup in told.get("retired", []):
                meta = each["metadata"]
                yield DeleteObject("TxLogBackup", meta["name"], meta.get("uid"), "its backup was retired")
    elif _has_condition(job, "Failed"):
        message = f"{told['error']}: {told['message']}" if "message" in told else said[-500:] or "its pod has failed"
        yield _patch_status(work, JobStatus(state="Failed", message=message, **facts))
        duty = work["spec"].get("duty")
        for node, heard in seen.reachable_masters.items():
            if any(each["id"] == duty for each in heard.duties):
                yield ReportDutyFailed(seen.urls[node], str(duty), message)
    elif status.state != "Running":
        yield _patch_status(
            work, JobStatus(state="Running", job=name, attempts=attempt, started=_format_time(seen.now))
        )


def _leaves_partial_state(work: KubeObject) -> bool:
    return work["kind"] == "TxLogRestore" and not _is_repair(work["spec"].get("duty") or "")


def attempt_job_name(work: KubeObject, attempt: int) -> str:
    """The name of the Job for this attempt (1 for the first)."""
    return f"{bounded_name(work['metadata']['name'], RESOURCE_NAME_MAX)}-{attempt}"


def job_command(cluster: TxLogCluster, work: KubeObject) -> list[str] | None:
    """The command of the Job; None for a backup of a cluster whose manifest names no target."""
    spec, name = work["spec"], work["metadata"]["name"]
    duty = str(spec.get("duty") or "")
    if work["kind"] == "TxLogRestore":
        way = "unorder" if duty.startswith("unorder-") else "repair" if _is_repair(duty) else "restore"
        return jobs.duty_command(f"--{way}={spec['worker']}")
    if duty:
        return jobs.duty_command(f"--backup={duty}")
    if cluster.spec.backup is None:
        return None
    return jobs.backup_command(f"{name}-{work['metadata']['uid'][:8]}", spec.get("why", "manual"))


# -- after the rejoin


def _plan_release(
    cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation, situation: ClusterPhase
) -> Iterator[PlanAction]:
    """After the rejoin, split backups fall under the usual retention again."""
    done = [
        each for each in seen.job_resources if each["spec"].get("why") == "split" and job_status(each).state == "Done"
    ]
    held = [each for each in done if not job_status(each).released]
    if not held or situation is not ClusterPhase.JOINED or open_duties(seen):
        return
    name = bounded_name(
        f"{cluster.metadata.name}-release-{short_hash(sorted(each['metadata']['name'] for each in held))}"
    )
    job = seen.objects.get(("Job", name))
    if job is None:
        yield ApplyObject(jobs.build_job(cluster, around, name, jobs.duty_command("--release")))
    elif _has_condition(job, "Complete"):
        for each in held:
            yield _patch_status(each, job_status(each).model_copy(update={"released": True}))
    elif _has_condition(job, "Failed"):
        yield DeleteObject("Job", name, job["metadata"].get("uid"), "it failed; it is tried again")


# -- helpers


def parse_job_output(said: str) -> dict[str, Any]:
    """The JSON in the last line of a Job's output; empty when the Job ended before it wrote one."""
    lines = said.strip().splitlines()
    try:
        told = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def last_backup(works: Sequence[KubeObject]) -> tuple[str, JobStatus] | None:
    """Name and status of the TxLogBackup that finished last."""
    ended = [(each["metadata"]["name"], job_status(each)) for each in works if each["kind"] == "TxLogBackup"]
    return max((each for each in ended if each[1].finished), key=lambda each: str(each[1].finished), default=None)


def _patch_status(work: KubeObject, status: JobStatus) -> PatchStatus:
    return PatchStatus(work, status.model_dump(mode="json", by_alias=True, exclude_none=True))


def _has_condition(job: KubeObject, kind: str) -> bool:
    return any(
        each["type"] == kind and each["status"] == "True" for each in job.get("status", {}).get("conditions", [])
    )


def _is_running(job: KubeObject) -> bool:
    return not _has_condition(job, "Complete") and not _has_condition(job, "Failed")


def _component_of(job: KubeObject) -> str:
    labels: Mapping[str, str] = job["metadata"].get("labels", {})
    return labels.get("app.kubernetes.io/component", "")


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 time in UTC."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
