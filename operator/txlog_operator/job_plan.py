"""Plans backups, restores and other duties: which Job comes next, and the outcome of earlier Jobs. Pure.

:mod:`txlog.supervision.duties` decides which duties are due and when one is repeated. Here they become resources, whose
status records their progress, and Jobs. Resource and attempt name a Job, so none is created twice. One duty and one
other backup of a data centre run at a time. Jobs that are no duties get one attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from pydantic import ValidationError

from txlog.config.backup_resources import JobStatus, ScheduleStatus
from txlog.config.cluster import TxLogCluster
from txlog.config.schedule import parse_schedule
from txlog.supervision.backup_schedule import plan_scheduled_backup
from txlog.supervision.duties import (
    RELEASE_ARGUMENT,
    RETRY_DELAYS_S,
    DutyKind,
    DutyList,
    ListedDuty,
    duties_to_perform,
    kind_of,
    masters_that_list,
    may_release_backups,
)
from txlog.supervision.job_output import failure_message, parse_job_output
from txlog_operator.actions import ApplyObject, DeleteObject, PatchStatus, PlanAction, ReportDutyFailed
from txlog_operator.cluster_phase import ClusterPhase
from txlog_operator.object_names import bounded_name, short_hash
from txlog_operator.observation import ClusterObservation
from txlog_operator.specs import BuildContext, KubeObject, jobs
from txlog_operator.specs.common import build_object

RETRY_DELAY_S: Final = RETRY_DELAYS_S[1]
"""An attempt costs a pod, so the operator waits the longest at once."""
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


def open_duties(seen: ClusterObservation) -> dict[str, ListedDuty]:
    """The duties to perform, by id: what the masters of this data centre list, and restores that must continue."""
    return {duty["id"]: duty for duty in duties_to_perform(list(_lists(seen).values()), _unfinished_restores(seen))}


def _lists(seen: ClusterObservation) -> dict[str, DutyList]:
    """The lists of the masters that answered, by node id."""
    return {
        node: DutyList([dict(duty) for duty in master.duties], master.status.state)
        for node, master in seen.reachable_masters.items()
    }


def _unfinished_restores(seen: ClusterObservation) -> set[str]:
    """Workers whose restore has begun and not ended."""
    return {
        each["spec"]["worker"]
        for each in seen.job_resources
        if _kind_of_work(each) is DutyKind.RESTORE and _is_open(each) and job_status(each).attempts
    }


def _plan_duties(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> Iterator[PlanAction]:
    known = {each["spec"].get("duty") for each in seen.job_resources}
    moving = {each["spec"].get("worker") for each in seen.job_resources if _is_open(each)}
    for name, duty in open_duties(seen).items():
        if name in known or duty["worker"] in moving - {None}:
            continue
        yield ApplyObject(duty_resource(cluster, around, duty))


def duty_resource(cluster: TxLogCluster, around: BuildContext, duty: ListedDuty) -> KubeObject:
    """The TxLogBackup or TxLogRestore of a duty."""
    duty_id, prefix = str(duty["id"]), cluster.metadata.name
    spec: KubeObject = {"cluster": prefix, "duty": duty_id}
    if duty["kind"] == DutyKind.BACKUP:
        epoch = duty_id.removeprefix("backup-").partition(".")[0]
        name = f"{prefix}-{cluster.data_center}-split-{epoch}-{short_hash(duty_id)}"
        return _job_resource(cluster, around, "TxLogBackup", name, {**spec, "why": "split"})
    name = f"{prefix}-{duty['worker']}-{short_hash(duty_id)}"
    return _job_resource(cluster, around, "TxLogRestore", name, {**spec, "worker": duty["worker"]})


def _job_resource(cluster: TxLogCluster, around: BuildContext, kind: str, name: str, spec: KubeObject) -> KubeObject:
    name = bounded_name(name, RESOURCE_NAME_MAX)
    return build_object(cluster, around, cluster.api_version, kind, name, jobs.DUTY_COMPONENT, spec=spec)


def _plan_schedules(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> Iterator[PlanAction]:
    for found in seen.schedules:
        if found["spec"].get("suspend"):
            continue
        try:
            schedule = parse_schedule(found["spec"]["schedule"])
            status = ScheduleStatus.model_validate(found.get("status") or {})
        except (ValueError, ValidationError) as wrong:
            message = f"spec.schedule: expected {wrong}"
            if found.get("status", {}).get("message") != message:
                yield PatchStatus(found, {"message": message})
            continue
        due_at = parse_time(status.next) if status.next is not None else None
        busy = any(each["spec"].get("why") == "schedule" and _is_open(each) for each in seen.job_resources)
        step = plan_scheduled_backup(schedule.next_after, due_at, seen.now, busy=busy)
        if step.next_at == due_at:
            continue
        new_status = {"last": status.last, "next": _format_time(step.next_at)}
        if step.starts and due_at is not None:
            minute = f"{datetime.fromtimestamp(due_at, UTC):%Y%m%d%H%M}"
            name = new_status["last"] = bounded_name(f"{found['metadata']['name']}-{minute}", RESOURCE_NAME_MAX)
            spec = {"cluster": cluster.metadata.name, "why": "schedule"}
            yield ApplyObject(_job_resource(cluster, around, "TxLogBackup", name, spec))
        if step.skipped:
            new_status["message"] = "the one that was due was passed over: the last one still ran"
        yield PatchStatus(found, {key: value for key, value in new_status.items() if value is not None})


# -- progress of jobs


def job_status(work: KubeObject) -> JobStatus:
    """The status of a backup or restore; an empty one when another version wrote it."""
    try:
        return JobStatus.model_validate(work.get("status") or {})
    except ValidationError:
        return JobStatus()


def _is_open(work: KubeObject) -> bool:
    """Whether it waits or runs, or has failed and must be repeated although no master lists it."""
    status = job_status(work)
    return status.state in ("Waiting", "Running") or _must_continue(work, status)


def _must_continue(work: KubeObject, status: JobStatus) -> bool:
    """Whether it is a duty whose failed attempt may have left a worker half loaded. A restore that a user requested is
    not repeated."""
    kind = kind_of(str(work["spec"].get("duty") or ""))
    return status.state == "Failed" and kind is not None and kind.may_leave_partial_state


def _kind_of_work(work: KubeObject) -> DutyKind | None:
    """As what ``python -m txlog.backup.duty`` performs it; None for a backup that is no duty."""
    duty = str(work["spec"].get("duty") or "")
    if work["kind"] == "TxLogRestore":
        return kind_of(duty) or DutyKind.RESTORE
    return DutyKind.BACKUP if duty else None


def _priority(work: KubeObject) -> tuple[int, str]:
    """Duties come in their order of performance, other jobs last."""
    kind = kind_of(str(work["spec"].get("duty") or ""))
    return (kind.rank if kind is not None else len(DutyKind), work["metadata"]["name"])


def _plan_job_resources(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> Iterator[PlanAction]:
    duties = open_duties(seen)
    restored = {duty["worker"] for duty in duties.values() if duty["kind"] == DutyKind.RESTORE}
    busy = {_component_of(each) for key, each in seen.objects.items() if key[0] == "Job" and _is_running(each)}
    wanted = [each for each in seen.job_resources if _is_open(each) or each["spec"].get("duty") in duties]
    for work in sorted(wanted, key=_priority):
        status, kind = job_status(work), _kind_of_work(work)
        component = jobs.DUTY_COMPONENT if kind is not None else jobs.COMPONENT
        attempt, ended = max(1, status.attempts), status.state in ("Done", "Failed")
        if ended:
            is_due = status.finished is None or seen.now - parse_time(status.finished) >= RETRY_DELAY_S
            continues = _must_continue(work, status) and work["spec"]["worker"] in restored
            if component in busy or not is_due or not (work["spec"].get("duty") in duties or continues):
                continue
            attempt += 1
        job = seen.objects.get(("Job", attempt_job_name(work, attempt)))
        if job is not None and not ended:
            yield from _track_job(seen, work, status, job, attempt)
        elif component not in busy:
            busy.add(component)
            yield from _start_job(cluster, around, seen, work, attempt)


def _start_job(
    cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation, work: KubeObject, attempt: int
) -> Iterator[PlanAction]:
    name = attempt_job_name(work, attempt)
    command = job_command(cluster, work)
    if command is None:
        message = "spec.backup of the cluster names no target; set it, and make another TxLogBackup"
        yield _patch_status(work, JobStatus(state="Failed", finished=_format_time(seen.now), message=message))
        return
    yield _patch_status(work, JobStatus(state="Running", job=name, attempts=attempt, started=_format_time(seen.now)))
    yield ApplyObject(jobs.build_job(cluster, around, name, command))


def _track_job(
    seen: ClusterObservation, work: KubeObject, status: JobStatus, job: KubeObject, attempt: int
) -> Iterator[PlanAction]:
    name = job["metadata"]["name"]
    pod = seen.job_pods.get(name)
    output = pod.termination_message if pod is not None else ""
    facts = {"job": name, "attempts": attempt, "started": status.started, "finished": _format_time(seen.now)}
    if _has_condition(job, "Complete"):
        result = parse_job_output(output)
        backup = result.get("name") or result.get("backup")
        position = result.get("position") or (f"index {result['index']}" if "index" in result else None)
        yield _patch_status(
            work, JobStatus(state="Done", backup=backup, position=position, message=output[:1000] or None, **facts)
        )
        for each in seen.job_resources:
            if each["kind"] == "TxLogBackup" and job_status(each).backup in result.get("retired", []):
                meta = each["metadata"]
                yield DeleteObject("TxLogBackup", meta["name"], meta.get("uid"), "its backup was retired")
    elif _has_condition(job, "Failed"):
        message = failure_message(output, "its pod has failed")
        yield _patch_status(work, JobStatus(state="Failed", message=message, **facts))
        duty = str(work["spec"].get("duty") or "")
        for node in masters_that_list(_lists(seen), duty):
            yield ReportDutyFailed(seen.urls[node], duty, message)
    elif status.state != "Running":
        yield _patch_status(
            work, JobStatus(state="Running", job=name, attempts=attempt, started=_format_time(seen.now))
        )


def attempt_job_name(work: KubeObject, attempt: int) -> str:
    """The name of the Job for this attempt (1 for the first)."""
    return f"{bounded_name(work['metadata']['name'], RESOURCE_NAME_MAX)}-{attempt}"


def job_command(cluster: TxLogCluster, work: KubeObject) -> list[str] | None:
    """The command of the Job; None for a backup of a cluster whose manifest names no target."""
    spec, kind = work["spec"], _kind_of_work(work)
    if kind is not None:
        return jobs.duty_command(kind.job_argument(str(spec.get("duty") or ""), spec.get("worker")))
    if cluster.spec.backup is None:
        return None
    meta = work["metadata"]
    return jobs.backup_command(f"{meta['name']}-{meta['uid'][:8]}", spec.get("why", "manual"))


# -- after the rejoin


def _plan_release(
    cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation, situation: ClusterPhase
) -> Iterator[PlanAction]:
    """After the rejoin, split backups fall under the usual retention again."""
    pinned = [
        each
        for each in seen.job_resources
        if each["spec"].get("why") == "split" and job_status(each).state == "Done" and not job_status(each).released
    ]
    is_over = may_release_backups(list(_lists(seen).values()), len(seen.masters))
    if not pinned or situation is not ClusterPhase.JOINED or not is_over:
        return
    name = bounded_name(
        f"{cluster.metadata.name}-release-{short_hash(sorted(each['metadata']['name'] for each in pinned))}"
    )
    job = seen.objects.get(("Job", name))
    if job is None:
        yield ApplyObject(jobs.build_job(cluster, around, name, jobs.duty_command(RELEASE_ARGUMENT)))
    elif _has_condition(job, "Complete"):
        for each in pinned:
            yield _patch_status(each, job_status(each).model_copy(update={"released": True}))
    elif _has_condition(job, "Failed"):
        yield DeleteObject("Job", name, job["metadata"].get("uid"), "it failed; it is tried again")


# -- helpers


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
