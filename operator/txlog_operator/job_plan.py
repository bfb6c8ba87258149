"""Plans backups, restores and other duties: which Job comes next, and the outcome of earlier Jobs. Pure.

:mod:`txlog.supervision.duties` decides which duties are due and when one is repeated. Here they become resources, whose
status records their progress, and Jobs. Resource and attempt name a Job, so none is created twice. One duty and one
other backup of a data centre run at a time. Jobs that are no duties get one attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from txlog.config.backup_resources import JobStatus, ScheduleStatus
from txlog.config.cluster import TxLogCluster
from txlog.config.schedule import Schedule, parse_schedule
from txlog.supervision.backup_schedule import plan_scheduled_backup
from txlog.supervision.duties import (
    RELEASE_ARGUMENT,
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
from txlog_operator.job_attempts import (
    JOB_GONE,
    NOT_STARTED,
    REHEARSAL,
    RESOURCE_NAME_MAX,
    RETRY_DELAY_MAX_S,
    attempt_job_name,
    duty_kind,
    ended_at,
    format_time,
    has_condition,
    has_ended,
    is_late,
    is_outcome_unknown,
    is_retry_due,
    is_scheduled_retry,
    job_command,
    job_of_attempt,
    parse_time,
    plan_removed_jobs,
    plan_removed_resources,
    plan_stuck_jobs,
    start_problem,
    work_reference,
)
from txlog_operator.object_names import bounded_name, short_hash
from txlog_operator.object_ownership import is_made_by_operator, is_owned
from txlog_operator.observation import ClusterObservation
from txlog_operator.rehearsal_plan import describe_rehearsal, plan_rehearsals
from txlog_operator.specs import BuildContext, KubeObject, jobs
from txlog_operator.specs.common import build_object
from txlog_operator.status_reader import read_job_status

MESSAGE_MAX: Final = 1000
RETIRED: Final = "the target has it no more: newer backups have replaced it (spec.backup.keep)"


def plan_jobs(
    cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation, situation: ClusterPhase
) -> list[PlanAction]:
    """The actions for duties, schedules, backups, restores, and the release of split backups."""
    return [
        *_plan_duties(cluster, around, seen),
        *_plan_schedules(cluster, around, seen),
        *plan_rehearsals(cluster, around, seen),
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
        if duty_kind(each) is DutyKind.RESTORE and _is_open(each) and read_job_status(each).attempts
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


def _scheduled_name(found: KubeObject, schedule: Schedule, due_at: float) -> str:
    """The name of the TxLogBackup that a schedule makes for this time. Cron names minutes, an interval may be shorter
    than one."""
    when = f"{datetime.fromtimestamp(due_at, UTC):{'%Y%m%d%H%M%S' if schedule.is_interval else '%Y%m%d%H%M'}}"
    return bounded_name(f"{found['metadata']['name']}-{when}", RESOURCE_NAME_MAX)


def _plan_schedules(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> Iterator[PlanAction]:
    names = {each["metadata"]["name"] for each in seen.job_resources if each["kind"] == "TxLogBackup"}
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
        name = _scheduled_name(found, schedule, due_at) if due_at is not None else None
        # An operator that was killed before it wrote the status has created this very one.
        is_made = name in names
        busy = not is_made and any(
            each["spec"].get("why") == "schedule" and _is_open(each) for each in seen.job_resources
        )
        step = plan_scheduled_backup(schedule.next_after, due_at, seen.now, busy=busy, is_interval=schedule.is_interval)
        if step.next_at == due_at:
            continue
        new_status = {"last": name if step.starts else status.last, "next": format_time(step.next_at)}
        made: ApplyObject | None = None
        if step.starts and name is not None and not is_made:
            spec: KubeObject = {"cluster": cluster.metadata.name, "why": "schedule"}
            if found["spec"].get("incremental"):
                spec["incremental"] = True
            made = ApplyObject(_job_resource(cluster, around, "TxLogBackup", name, spec))
            yield made
        if step.skipped:
            new_status["message"] = "the one that was due was passed over: the last one still ran"
        # A backup that the API server refused is due until it exists.
        known = {key: value for key, value in new_status.items() if value is not None}
        yield PatchStatus(found, known, only_after=made)


# -- progress of jobs


def _is_open(work: KubeObject) -> bool:
    """Whether it waits or runs, or has failed and must be repeated although no master lists it."""
    status = read_job_status(work)
    return status.state in ("Waiting", "Running") or _must_continue(work, status)


def _must_continue(work: KubeObject, status: JobStatus) -> bool:
    """Whether it is a duty whose failed attempt may have left a worker half loaded. A restore that a user requested is
    not repeated."""
    kind = kind_of(str(work["spec"].get("duty") or ""))
    return status.state == "Failed" and kind is not None and kind.may_leave_partial_state


def _priority(work: KubeObject) -> tuple[int, str]:
    """Duties come in their order of performance, other jobs last."""
    kind = kind_of(str(work["spec"].get("duty") or ""))
    return (kind.rank if kind is not None else len(DutyKind), work["metadata"]["name"])


def _plan_job_resources(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> Iterator[PlanAction]:
    duties = open_duties(seen)
    restored = {duty["worker"] for duty in duties.values() if duty["kind"] == DutyKind.RESTORE}
    running = {
        key[1]: _component_of(each)
        for key, each in seen.objects.items()
        if key[0] == "Job" and not has_ended(each) and is_made_by_operator(each, around.owner_uid)
    }
    given_up, tracked = set[str](), set[str]()
    wanted = [each for each in seen.job_resources if _acts(each, duties)]
    for work in sorted(wanted, key=_priority):
        status, component = read_job_status(work), _component_of_work(work)
        attempt, ended = max(1, status.attempts), status.state in ("Done", "Failed")
        job = None if ended else job_of_attempt(cluster, seen, work, status, attempt)
        if job is not None:
            tracked.add(job["metadata"]["name"])
            actions = list(_track_job(around, seen, work, status, job, attempt))
            given_up |= {each.name for each in actions if isinstance(each, DeleteObject) and each.kind == "Job"}
            yield from actions
            continue
        if is_outcome_unknown(status, seen.now):
            facts = {"job": status.job, "attempts": attempt, "started": status.started}
            yield from _fail(seen, work, JOB_GONE, {**facts, "finished": format_time(seen.now)})
            continue
        busy = {each for name, each in running.items() if name not in given_up}
        if ended:
            continues = _must_continue(work, status) and work["spec"]["worker"] in restored
            again = work["spec"].get("duty") in duties or continues or is_scheduled_retry(work, status)
            if not is_retry_due(status, seen.now) or not again:
                continue
            attempt += 1
        if component not in busy:
            running[f"new/{work['metadata']['name']}"] = component
            yield from _start_job(cluster, around, seen, work, attempt)
    yield from plan_stuck_jobs(seen, tracked, around.owner_uid)
    yield from plan_removed_jobs(cluster, seen)
    needed = {each["metadata"]["name"] for each in wanted}
    yield from plan_removed_resources(seen, around.owner_uid, needed)


def _acts(work: KubeObject, duties: Mapping[str, ListedDuty]) -> bool:
    return _is_open(work) or work["spec"].get("duty") in duties or is_scheduled_retry(work, read_job_status(work))


def _component_of_work(work: KubeObject) -> str:
    return jobs.DUTY_COMPONENT if duty_kind(work) is not None else jobs.COMPONENT


def _start_job(
    cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation, work: KubeObject, attempt: int
) -> Iterator[PlanAction]:
    name = attempt_job_name(work, attempt)
    command = job_command(cluster, work)
    if command is None:
        message = "spec.backup of the cluster names no target; set it, and make another TxLogBackup"
        if work["kind"] == REHEARSAL:
            message = "the cluster has no spec.archive; set it, and make another TxLogRehearsal"
        yield _patch_status(work, JobStatus(state="Failed", finished=format_time(seen.now), message=message))
        return
    started = JobStatus(state="Running", job=name, attempts=attempt, started=format_time(seen.now))
    record = _patch_status(work, started)
    yield record
    yield ApplyObject(jobs.build_job(cluster, around, name, command, work_reference(work)), recorded=record)


def _track_job(
    around: BuildContext, seen: ClusterObservation, work: KubeObject, status: JobStatus, job: KubeObject, attempt: int
) -> Iterator[PlanAction]:
    name = job["metadata"]["name"]
    pod = seen.job_pods.get(name)
    output = pod.termination_message if pod is not None else ""
    facts = {"job": name, "attempts": attempt, "started": status.started, "finished": format_time(seen.now)}
    problem = start_problem(seen, job, status.started)
    if has_condition(job, "Complete"):
        result = parse_job_output(output)
        # First: an operator that is killed in between does both again, and leaves no record of what is gone.
        yield from _plan_retired(around, seen, result.get("retired", []))
        yield from _complete(work, result, output, facts)
    elif has_condition(job, "Failed"):
        yield from _fail(seen, work, failure_message(output, "its pod has failed"), facts)
    elif status.started is not None and problem and is_late(seen, status.started):
        yield DeleteObject.of("Job", job, f"its pod does not start: {problem}")
        yield from _fail(seen, work, f"{NOT_STARTED}: {problem}"[:MESSAGE_MAX], facts)
    elif status.state != "Running" or (problem and status.message != _waits(problem)):
        message = _waits(problem) if problem else None
        started = status.started or format_time(seen.now)
        yield _patch_status(
            work, JobStatus(state="Running", job=name, attempts=attempt, started=started, message=message)
        )


def _waits(problem: str) -> str:
    return f"its pod waits: {problem}"[:MESSAGE_MAX]


def _plan_retired(around: BuildContext, seen: ClusterObservation, retired: Sequence[str]) -> Iterator[PlanAction]:
    """The records of backups that the target no longer has. What people created stays, and says so: a tool that
    applies it again would make another backup."""
    for each in seen.job_resources:
        status, meta = read_job_status(each), each["metadata"]
        if each["kind"] != "TxLogBackup" or status.backup not in retired:
            continue
        if meta.get("ownerReferences") and is_owned(each, around.owner_uid):
            yield DeleteObject.of("TxLogBackup", each, "its backup was retired")
        elif status.message != RETIRED:
            yield _patch_status(each, status.model_copy(update={"message": RETIRED}))


def _complete(
    work: KubeObject, result: Mapping[str, Any], output: str, facts: Mapping[str, Any]
) -> Iterator[PlanAction]:
    backup = result.get("name") or result.get("backup")
    position = result.get("position") or (f"index {result['index']}" if "index" in result else None)
    message = describe_rehearsal(result) if work["kind"] == REHEARSAL else output[:1000]
    yield _patch_status(
        work, JobStatus(state="Done", backup=backup, position=position, message=message or None, **facts)
    )


def _fail(seen: ClusterObservation, work: KubeObject, message: str, facts: Mapping[str, Any]) -> Iterator[PlanAction]:
    yield _patch_status(work, JobStatus(state="Failed", message=message, **facts))
    duty = str(work["spec"].get("duty") or "")
    for node in masters_that_list(_lists(seen), duty):
        yield ReportDutyFailed(seen.urls[node], duty, message)


def blocked_jobs(cluster: TxLogCluster, seen: ClusterObservation) -> list[tuple[str, str]]:
    """What cannot start or failed and is tried again, and why; also between two attempts."""
    duties, found = open_duties(seen), []
    for work in seen.job_resources:
        status, name = read_job_status(work), f"{work['kind']} {work['metadata']['name']}"
        job = job_of_attempt(cluster, seen, work, status, max(1, status.attempts))
        if not _acts(work, duties):
            continue
        if status.state == "Running" and job is not None and (problem := start_problem(seen, job, status.started)):
            found.append((name, problem))
        elif status.state == "Failed" and (status.message or "").startswith(NOT_STARTED):
            found.append((name, str(status.message)))
    return [*found, *_failed_release(cluster, seen)]


# -- after the rejoin


def _plan_release(
    cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation, situation: ClusterPhase
) -> Iterator[PlanAction]:
    """After the rejoin, split backups fall under the usual retention again."""
    pinned = _pinned_backups(seen)
    is_over = may_release_backups(list(_lists(seen).values()), len(seen.masters))
    if not pinned or situation is not ClusterPhase.JOINED or not is_over:
        return
    name = _release_job_name(cluster, pinned)
    job = seen.objects.get(("Job", name))
    if job is None:
        yield ApplyObject(jobs.build_job(cluster, around, name, jobs.duty_command(RELEASE_ARGUMENT)))
    elif has_condition(job, "Complete"):
        for each in pinned:
            yield _patch_status(each, read_job_status(each).model_copy(update={"released": True}))
    elif has_condition(job, "Failed") and seen.now - ended_at(job) >= RETRY_DELAY_MAX_S:
        yield DeleteObject.of("Job", job, "it failed; it is tried again")


def _pinned_backups(seen: ClusterObservation) -> list[KubeObject]:
    """The backups of splits that retention does not count yet."""
    return [
        each
        for each in seen.job_resources
        if each["spec"].get("why") == "split"
        and read_job_status(each).state == "Done"
        and not read_job_status(each).released
    ]


def _release_job_name(cluster: TxLogCluster, pinned: Sequence[KubeObject]) -> str:
    names = sorted(each["metadata"]["name"] for each in pinned)
    return bounded_name(f"{cluster.metadata.name}-release-{short_hash(names)}")


def _failed_release(cluster: TxLogCluster, seen: ClusterObservation) -> Iterator[tuple[str, str]]:
    name = _release_job_name(cluster, _pinned_backups(seen))
    job, pod = seen.objects.get(("Job", name)), seen.job_pods.get(name)
    if job is not None and has_condition(job, "Failed"):
        why = failure_message(pod.termination_message if pod is not None else "", "its pod has failed")
        yield "the release of the backups of splits", why


# -- helpers


def last_backup(works: Sequence[KubeObject]) -> tuple[str, JobStatus] | None:
    """Name and status of the TxLogBackup that finished last."""
    ended = [(each["metadata"]["name"], read_job_status(each)) for each in works if each["kind"] == "TxLogBackup"]
    return max((each for each in ended if each[1].finished), key=lambda each: str(each[1].finished), default=None)


def _patch_status(work: KubeObject, status: JobStatus) -> PatchStatus:
    return PatchStatus(work, status.model_dump(mode="json", by_alias=True, exclude_none=True))


def _component_of(job: KubeObject) -> str:
    labels: Mapping[str, str] = job["metadata"].get("labels", {})
    return labels.get("app.kubernetes.io/component", "")
