"""Plans rehearsed recoveries by ``spec.archive.rehearsal``: which TxLogRehearsal comes next. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from txlog.config.cluster import TxLogCluster
from txlog.config.schedule import parse_schedule
from txlog_operator.actions import ApplyObject
from txlog_operator.job_attempts import REHEARSAL, RESOURCE_NAME_MAX, parse_time
from txlog_operator.object_names import ObjectNames, bounded_name
from txlog_operator.observation import ClusterObservation
from txlog_operator.specs import BuildContext, jobs
from txlog_operator.specs.common import build_object
from txlog_operator.status_reader import read_job_status


def plan_rehearsals(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> Iterator[ApplyObject]:
    """The TxLogRehearsal that is due. The time counts from when the last one of the schedule was created, before the
    first one from when the masters were. So no state is kept, and one that was due while no operator ran is made
    once."""
    archive = cluster.spec.archive
    if archive is None or archive.rehearsal is None:
        return
    scheduled = [each for each in seen.job_resources if each["kind"] == REHEARSAL and _is_scheduled(each)]
    if any(read_job_status(each).state in ("Waiting", "Running") for each in scheduled):
        return
    masters = seen.objects.get(("StatefulSet", ObjectNames(cluster).masters))
    created = [each["metadata"].get("creationTimestamp") for each in scheduled or ([masters] if masters else [])]
    known = [parse_time(each) for each in created if each is not None]
    if not known:
        return
    schedule, names = parse_schedule(archive.rehearsal.schedule), {each["metadata"]["name"] for each in scheduled}
    due_at = schedule.next_after(max(known))
    while (name := _name_of(cluster, due_at)) in names:
        # The API server dates in whole seconds, and by its own clock: the one of this time may count as created before.
        due_at = schedule.next_after(due_at)
    if due_at <= seen.now:
        spec = {"cluster": cluster.metadata.name, "why": "schedule"}
        yield ApplyObject(
            build_object(cluster, around, cluster.api_version, REHEARSAL, name, jobs.COMPONENT, spec=spec)
        )


def _name_of(cluster: TxLogCluster, due_at: float) -> str:
    when = f"{datetime.fromtimestamp(due_at, UTC):%Y%m%d%H%M%S}"
    return bounded_name(f"{cluster.metadata.name}-rehearsal-{when}", RESOURCE_NAME_MAX)


def describe_rehearsal(result: Mapping[str, Any]) -> str:
    """A good report, for people."""
    if "graphs" not in result:
        return ""
    times = [f"{name} {result[key]:.1f} s" for name, key in _TIMES if result.get(key) is not None]
    return f"{result['graphs']} graphs compared with {result.get('worker')}, none differs; {', '.join(times)}"


_TIMES = (("RPO", "rpoSeconds"), ("RTO for writes", "rtoWritesSeconds"), ("RTO for reads", "rtoReadsSeconds"))


def _is_scheduled(work: Mapping[str, Any]) -> bool:
    return bool(work["spec"].get("why") == "schedule")
