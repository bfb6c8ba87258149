"""Backups, restores and other duties: which Job is made next, and what became of those that were. Pure.

Each is a resource whose status says how far it is; its Job is named by resource and attempt: none is made twice.
One duty and one other backup of a data centre run at a time. A duty is tried until the masters no longer list it; other
work once.
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
from txlog.operator.actions import Action, Apply, Remove, Report, Say
from txlog.operator.build import Around, Object, jobs
from txlog.operator.build.common import made
from txlog.operator.diagnose import Situation
from txlog.operator.names import bounded, digest
from txlog.operator.observation import Observation

RETRY_S: Final = 15.0
NAME_MAX: Final = 55
"""Of a resource: its Job appends the attempt."""


def plan_work(cluster: TxLogCluster, around: Around, seen: Observation, situation: Situation) -> list[Action]:
    return [
        *_of_duties(cluster, around, seen),
        *_of_schedules(cluster, around, seen),
        *_of_works(cluster, around, seen),
        *_released(cluster, around, seen, situation),
    ]


# -- what there is to do


def duties(seen: Observation) -> dict[str, Mapping[str, Any]]:
    """By id, as the masters of this data centre list them."""
    answers = [{"duties": list(heard.duties)} for heard in seen.heard.values()]
    judged = ("restore", "repair")
    found = {duty["id"]: duty for answer in answers for duty in answer["duties"] if duty["kind"] not in judged}
    return found | {
        duty["id"]: duty for duty in (*merge_restore_duties(answers).values(), *merge_repair_duties(answers).values())
    }


def _of_duties(cluster: TxLogCluster, around: Around, seen: Observation) -> Iterator[Action]:
    known = {each["spec"].get("duty") for each in seen.works}
    moving = {each["spec"].get("worker") for each in seen.works if _is_open(each)}
    for name, duty in duties(seen).items():
        if name in known or duty["worker"] in moving - {None}:
            continue
        yield Apply(duty_resource(cluster, around, duty))


def duty_resource(cluster: TxLogCluster, around: Around, duty: Mapping[str, Any]) -> Object:
    """The TxLogBackup or TxLogRestore of a duty."""
    name, api = str(duty["id"]), cluster.api_version
    spec: Object = {"cluster": cluster.metadata.name, "duty": name}
    if duty["kind"] == "backup":
        epoch = name.removeprefix("backup-").partition(".")[0]
        called = f"{cluster.metadata.name}-{cluster.data_center}-split-{epoch}-{digest(name)}"
        spec["why"] = "split"
        return made(cluster, around, api, "TxLogBackup", bounded(called, NAME_MAX), jobs.DUTY, spec=spec)
    spec["worker"] = duty["worker"]
    called = f"{cluster.metadata.name}-{duty['worker']}-{digest(name)}"
    return made(cluster, around, api, "TxLogRestore", bounded(called, NAME_MAX), jobs.DUTY, spec=spec)


def _of_schedules(cluster: TxLogCluster, around: Around, seen: Observation) -> Iterator[Action]:
    for found in seen.schedules:
        if found["spec"].get("suspend"):
            continue
        try:
            schedule = parse_schedule(found["spec"]["schedule"])
            status = ScheduleStatus.model_validate(found.get("status") or {})
        except (ValueError, ValidationError) as wrong:
            said = f"spec.schedule: expected {wrong}"
            if found.get("status", {}).get("message") != said:
                yield Say(found, {"message": said})
            continue
        if status.next is None:
            yield Say(found, {"next": _time(schedule.next_after(seen.now))})
            continue
        due = seconds_of(status.next)
        if seen.now < due:
            continue
        name = f"{found['metadata']['name']}-{datetime.fromtimestamp(due, UTC):%Y%m%d%H%M}"
        busy = any(each["spec"].get("why") == "schedule" and _is_open(each) for each in seen.works)
        if not busy:
            spec = {"cluster": cluster.metadata.name, "why": "schedule"}
            yield Apply(
                made(cluster, around, cluster.api_version, "TxLogBackup", bounded(name, NAME_MAX), jobs.DUTY, spec=spec)
            )
        told = {"last": status.last if busy else bounded(name, NAME_MAX), "next": _time(schedule.next_after(seen.now))}
        if busy:
            told["message"] = "the one that was due was passed over: the last one still ran"
        yield Say(found, {key: value for key, value in told.items() if value is not None})


# -- how far it is


def status_of(work: Object) -> JobStatus:
    try:
        return JobStatus.model_validate(work.get("status") or {})
    except ValidationError:
        return JobStatus()


def _is_open(work: Object) -> bool:
    state = status_of(work).state
    duty = work["spec"].get("duty") or ""
    return state in ("Waiting", "Running") or (state == "Failed" and bool(duty) and not _is_repair(duty))


def _is_repair(duty: str) -> bool:
    """It leaves the worker whole whenever it ends, and only what masters list still is to be done."""
    return duty.startswith("repair-")


def _order(work: Object) -> tuple[int, str]:
    """A split waits for its backup."""
    spec = work["spec"]
    return (0 if spec.get("why") == "split" else 1 if spec.get("duty") else 2, work["metadata"]["name"])


def _of_works(cluster: TxLogCluster, around: Around, seen: Observation) -> Iterator[Action]:
    listed = duties(seen)
    busy = {_component(each) for key, each in seen.objects.items() if key[0] == "Job" and _runs(each)}
    wanted = [each for each in seen.works if _is_open(each) or each["spec"].get("duty") in listed]
    for work in sorted(wanted, key=_order):
        status, duty = status_of(work), work["spec"].get("duty")
        kind = jobs.DUTY if duty or work["kind"] == "TxLogRestore" else jobs.COMPONENT
        attempt, ended = max(1, status.attempts), status.state in ("Done", "Failed")
        if ended:
            late = seen.now - seconds_of(status.finished) >= RETRY_S if status.finished else True
            half = _leaves_half(work) and status.state == "Failed" and bool(seen.heard)
            if kind in busy or not late or not (duty in listed or half):
                continue  # nobody wants it any more, or nobody can tell
            attempt += 1
        job = seen.objects.get(("Job", job_name(work, attempt)))
        if job is not None and not ended:
            yield from _followed(seen, work, status, job, attempt)
        elif kind not in busy:
            busy.add(kind)
            yield from _begun(cluster, around, seen, work, attempt)


def _begun(cluster: TxLogCluster, around: Around, seen: Observation, work: Object, attempt: int) -> Iterator[Action]:
    name = job_name(work, attempt)
    command = command_of(cluster, work)
    if command is None:
        said = "spec.backup of the cluster names no target; set it, and make another TxLogBackup"
        yield _say(work, JobStatus(state="Failed", finished=_time(seen.now), message=said))
        return
    yield _say(work, JobStatus(state="Running", job=name, attempts=attempt, started=_time(seen.now)))
    yield Apply(jobs.job(cluster, around, name, command))


def _followed(seen: Observation, work: Object, status: JobStatus, job: Object, attempt: int) -> Iterator[Action]:
    name = job["metadata"]["name"]
    pod = seen.jobs.get(name)
    said = pod.said if pod is not None else ""
    told = answer_in(said)
    facts = {"job": name, "attempts": attempt, "started": status.started, "finished": _time(seen.now)}
    if _has(job, "Complete"):
        backup = told.get("name") or told.get("backup")
        where = told.get("position") or (f"index {told['index']}" if "index" in told else None)
        yield _say(work, JobStatus(state="Done", backup=backup, position=where, message=said[:1000] or None, **facts))
        for each in seen.works:
            if each["kind"] == "TxLogBackup" and status_of(each).backup in told.get("retired", []):
                meta = each["metadata"]
                yield Remove("TxLogBackup", meta["name"], meta.get("uid"), "its backup was retired")
    elif _has(job, "Failed"):
        message = f"{told['error']}: {told['message']}" if "message" in told else said[-500:] or "its pod has failed"
        yield _say(work, JobStatus(state="Failed", message=message, **facts))
        duty = work["spec"].get("duty")
        for node, heard in seen.heard.items():
            if any(each["id"] == duty for each in heard.duties):
                yield Report(seen.urls[node], str(duty), message)
    elif status.state != "Running":
        yield _say(work, JobStatus(state="Running", job=name, attempts=attempt, started=_time(seen.now)))


def _leaves_half(work: Object) -> bool:
    return work["kind"] == "TxLogRestore" and not _is_repair(work["spec"].get("duty") or "")


def job_name(work: Object, attempt: int) -> str:
    return f"{bounded(work['metadata']['name'], NAME_MAX)}-{attempt}"


def command_of(cluster: TxLogCluster, work: Object) -> list[str] | None:
    """None for a backup of a cluster that names no place for it."""
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


# -- when all are together again


def _released(cluster: TxLogCluster, around: Around, seen: Observation, situation: Situation) -> Iterator[Action]:
    """The backups of splits are like any other from then on."""
    done = [each for each in seen.works if each["spec"].get("why") == "split" and status_of(each).state == "Done"]
    held = [each for each in done if not status_of(each).released]
    if not held or situation is not Situation.JOINED or duties(seen):
        return
    name = bounded(f"{cluster.metadata.name}-release-{digest(sorted(each['metadata']['name'] for each in held))}")
    job = seen.objects.get(("Job", name))
    if job is None:
        yield Apply(jobs.job(cluster, around, name, jobs.duty_command("--release")))
    elif _has(job, "Complete"):
        for each in held:
            yield _say(each, status_of(each).model_copy(update={"released": True}))
    elif _has(job, "Failed"):
        yield Remove("Job", name, job["metadata"].get("uid"), "it failed; it is tried again")


# -- small things


def answer_in(said: str) -> dict[str, Any]:
    """What a Job answered; nothing when it did not get so far."""
    lines = said.strip().splitlines()
    try:
        told = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def last_backup(works: Sequence[Object]) -> tuple[str, JobStatus] | None:
    """The TxLogBackup that ended last, and its status."""
    ended = [(each["metadata"]["name"], status_of(each)) for each in works if each["kind"] == "TxLogBackup"]
    return max((each for each in ended if each[1].finished), key=lambda each: str(each[1].finished), default=None)


def _say(work: Object, status: JobStatus) -> Say:
    return Say(work, status.model_dump(mode="json", by_alias=True, exclude_none=True))


def _has(job: Object, kind: str) -> bool:
    return any(
        each["type"] == kind and each["status"] == "True" for each in job.get("status", {}).get("conditions", [])
    )


def _runs(job: Object) -> bool:
    return not _has(job, "Complete") and not _has(job, "Failed")


def _component(job: Object) -> str:
    labels: Mapping[str, str] = job["metadata"].get("labels", {})
    return labels.get("app.kubernetes.io/component", "")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
