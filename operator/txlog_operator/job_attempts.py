"""The attempts of a backup, a restore or another duty: their Jobs, the pauses between them, and what is kept. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from txlog.config.backup_resources import JobStatus
from txlog.config.cluster import TxLogCluster
from txlog.supervision.duties import RETRY_DELAYS_S, DutyKind, kind_of
from txlog_operator.actions import DeleteObject
from txlog_operator.object_names import bounded_name, short_hash
from txlog_operator.object_ownership import is_made_by_operator, is_owned
from txlog_operator.observation import ClusterObservation
from txlog_operator.specs import KubeObject, jobs
from txlog_operator.status_reader import read_job_status

RETRY_DELAY_S: Final = RETRY_DELAYS_S[1]
"""Before the second attempt. An attempt costs a pod, so the operator never retries sooner."""
RETRY_DELAY_MAX_S: Final = 600.0
"""The pauses double up to this."""
START_NOTICE_S: Final = 15.0
"""A pod that does not run after so many seconds is reported with its reason."""
START_DEADLINE_S: Final = 300.0
"""A Job whose pod does not run after so many seconds has failed: the next attempt, or another Job, gets its turn."""
FAILED_JOBS_KEPT: Final = 3
HISTORY_KEPT: Final = 10
"""Ended TxLogRestores and TxLogRehearsals, and failed TxLogBackups, that are kept of those which the operator
created."""
SCHEDULED_ATTEMPTS_MAX: Final = 4
RESOURCE_NAME_MAX: Final = 55
"""Longest name of a resource that the operator creates."""
JOB_NAME_MAX: Final = 40
"""Most characters of the resource's name in the name of its Job: kind, hash and attempt follow."""
REHEARSAL: Final = "TxLogRehearsal"
NOT_STARTED: Final = "its pod did not start"
JOB_GONE: Final = "its Job is gone, and what became of it is not known. If it is still needed, create another resource"


def format_time(seconds: float) -> str:
    """``seconds`` since 1970 as an RFC 3339 time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 time in UTC."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


def duty_kind(work: KubeObject) -> DutyKind | None:
    """As what ``python -m txlog.backup.duty`` performs it; None for a rehearsal, and for a backup that is no duty."""
    duty = str(work["spec"].get("duty") or "")
    if work["kind"] == "TxLogRestore":
        return kind_of(duty) or DutyKind.RESTORE
    return DutyKind.BACKUP if duty else None


def job_command(cluster: TxLogCluster, work: KubeObject) -> list[str] | None:
    """The command of the Job; None for a backup of a cluster whose manifest names no target, and for a rehearsal of one
    without an archive."""
    spec, kind = work["spec"], duty_kind(work)
    if work["kind"] == REHEARSAL:
        return jobs.rehearsal_command() if cluster.spec.archive is not None else None
    if kind is not None:
        return jobs.duty_command(kind.job_argument(str(spec.get("duty") or ""), spec.get("worker")))
    if cluster.spec.backup is None:
        return None
    meta = work["metadata"]
    name = f"{meta['name']}-{meta['uid'][:8]}"
    return jobs.backup_command(name, spec.get("why", "manual"), is_incremental=bool(spec.get("incremental")))


# -- Jobs


def work_reference(work: KubeObject) -> str:
    """Which resource a Job is for: kind, name and uid. A resource that was deleted and created again is another one."""
    return f"{work['kind']}/{work['metadata']['name']}/{work['metadata'].get('uid', '')}"


def attempt_job_name(work: KubeObject, attempt: int) -> str:
    """The name of the Job for this attempt (1 for the first)."""
    word, name = work["kind"].removeprefix("TxLog").lower(), bounded_name(work["metadata"]["name"], JOB_NAME_MAX)
    return f"{name}-{word}-{short_hash(work_reference(work))}-{attempt}"


def former_job_name(work: KubeObject, attempt: int) -> str:
    """The name that operators before this format gave to the Job."""
    return f"{bounded_name(work['metadata']['name'], RESOURCE_NAME_MAX)}-{attempt}"


def job_of_attempt(
    cluster: TxLogCluster, seen: ClusterObservation, work: KubeObject, status: JobStatus, attempt: int
) -> KubeObject | None:
    """The Job of this attempt, also under its former name; never a Job of something else with that name."""
    for name in dict.fromkeys((attempt_job_name(work, attempt), status.job or "")):
        job = seen.objects.get(("Job", name))
        if job is not None and _is_job_of(cluster, job, work):
            return job
    return None


def _is_job_of(cluster: TxLogCluster, job: KubeObject, work: KubeObject) -> bool:
    made_for = (job["metadata"].get("annotations") or {}).get(jobs.WORK_ANNOTATION)
    if made_for is not None:
        return bool(made_for == work_reference(work))
    command = job_command(cluster, work)  # by an operator that did not write whose it is
    containers = job["spec"]["template"]["spec"]["containers"]
    return command is not None and containers[0].get("command", [])[: len(command)] == command


def has_condition(job: KubeObject, kind: str) -> bool:
    """Whether a condition of a Job is ``True``."""
    return any(
        each["type"] == kind and each["status"] == "True" for each in job.get("status", {}).get("conditions", [])
    )


def has_ended(job: KubeObject) -> bool:
    """Whether a Job is complete or has failed."""
    return has_condition(job, "Complete") or has_condition(job, "Failed")


def ended_at(job: KubeObject) -> float:
    """When a Job ended, in seconds since 1970; 0 when it does not tell."""
    ends = [each for each in job["status"]["conditions"] if each["type"] in ("Complete", "Failed")]
    return max((parse_time(at) for each in ends if (at := each.get("lastTransitionTime"))), default=0.0)


def is_outcome_unknown(status: JobStatus, now: float) -> bool:
    """Whether the Job of a running attempt, which is not there, may have ended and been removed by Kubernetes. A
    younger one was never created: the operator was killed before that."""
    return (
        status.state == "Running" and status.started is not None and now - parse_time(status.started) > jobs.JOB_KEPT_S
    )


def start_problem(seen: ClusterObservation, job: KubeObject, since: str | None) -> str:
    """Why the Job's pod does not run, after it had time to; empty when it runs or has run. ``since``: when the Job was
    started, as an RFC 3339 time."""
    name = job["metadata"]["name"]
    pod = seen.job_pods.get(name)
    if has_ended(job) or since is None or seen.now - parse_time(since) < START_NOTICE_S:
        return ""
    if pod is not None and (pod.running or pod.ended or pod.terminating or pod.termination_message):
        return ""
    last = seen.job_problems.get(name, "")
    waiting = pod.waiting_reason or "no node has reported it" if pod is not None else "no pod was created for it"
    return f"{waiting}: {last}" if last and last not in waiting else waiting


def is_late(seen: ClusterObservation, since: str) -> bool:
    """Whether a pod should have started long ago."""
    return seen.now - parse_time(since) >= START_DEADLINE_S


def retry_delay_s(attempts: int) -> float:
    """The pause after so many attempts."""
    return min(RETRY_DELAY_MAX_S, RETRY_DELAY_S * 2.0 ** max(0, min(attempts, 10) - 1))


def is_retry_due(status: JobStatus, now: float) -> bool:
    """Whether the pause after the last attempt is over."""
    return status.finished is None or now - parse_time(status.finished) >= retry_delay_s(status.attempts)


def is_scheduled_retry(work: KubeObject, status: JobStatus) -> bool:
    """Whether a scheduled backup has failed and is tried again: it runs while no person watches."""
    scheduled = work["kind"] == "TxLogBackup" and work["spec"].get("why") == "schedule"
    return scheduled and status.state == "Failed" and status.attempts < SCHEDULED_ATTEMPTS_MAX


# -- what is kept


def plan_stuck_jobs(seen: ClusterObservation, tracked: set[str], owner_uid: str | None) -> Iterator[DeleteObject]:
    """Removes the operator's Jobs that cannot start and that no resource tracks: they would keep the turn of all
    others."""
    for (kind, name), job in seen.objects.items():
        component = (job["metadata"].get("labels") or {}).get("app.kubernetes.io/component")
        if kind != "Job" or name in tracked or component not in (jobs.COMPONENT, jobs.DUTY_COMPONENT):
            continue
        if not is_made_by_operator(job, owner_uid):
            continue
        since = job["metadata"].get("creationTimestamp")
        if since is not None and is_late(seen, since) and (problem := start_problem(seen, job, since)):
            yield DeleteObject.of("Job", job, f"its pod does not start: {problem}")


def plan_removed_jobs(cluster: TxLogCluster, seen: ClusterObservation) -> Iterator[DeleteObject]:
    """Removes all but the last failed Jobs of each resource, with their pods."""
    for work in seen.job_resources:
        for attempt in range(1, read_job_status(work).attempts - FAILED_JOBS_KEPT):
            for name in (attempt_job_name(work, attempt), former_job_name(work, attempt)):
                job = seen.objects.get(("Job", name))
                if job is not None and has_condition(job, "Failed") and _is_job_of(cluster, job, work):
                    yield DeleteObject.of("Job", job, "later attempts have followed")


def plan_removed_resources(
    seen: ClusterObservation, owner_uid: str | None, is_needed: set[str]
) -> Iterator[DeleteObject]:
    """Removes the oldest ended TxLogRestores and TxLogRehearsals, and failed TxLogBackups, that the operator created;
    ``is_needed``: names of those that act again. What people created is theirs: a tool that applies it again would
    start it again."""
    ended: dict[str, list[tuple[str, KubeObject]]] = {"TxLogRestore": [], "TxLogBackup": [], REHEARSAL: []}
    for work in seen.job_resources:
        status, meta = read_job_status(work), work["metadata"]
        if owner_uid is None or not is_owned(work, owner_uid) or not meta.get("ownerReferences"):
            continue
        counts = status.state == "Failed" or (
            status.state == "Done" and work["kind"] in ended and work["kind"] != "TxLogBackup"
        )
        if counts and status.finished is not None and meta["name"] not in is_needed:
            ended[work["kind"]].append((status.finished, work))
    for kind, found in ended.items():
        for _, work in _oldest(found):
            yield DeleteObject.of(kind, work, "newer ones are kept")


def _oldest(found: Sequence[tuple[str, KubeObject]]) -> Sequence[tuple[str, KubeObject]]:
    by_age = sorted(found, key=lambda each: (each[0], each[1]["metadata"]["name"]))
    return by_age[: max(0, len(by_age) - HISTORY_KEPT)]
