"""``txlog worker adopt`` and ``rebuild --discard``: what a person decides about a store that is not of this cluster.

The masters make a duty of the decision, and the supervisor or the operator performs it, so the commands need no way to
the store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Annotated, Final

import typer

from txlog.cli.cli_cluster import find_cluster
from txlog.cli.options import ClusterOptions, YesOption, confirm
from txlog.cli.tables import print_answer
from txlog.cli.worker_access import find_worker_by_name
from txlog.client import MasterClient, WorkerStatus
from txlog.model.errors import Refused, TxLogError, Unavailable
from txlog.supervision.duties import DutyKind

POLL_INTERVAL_S: Final = 0.2
_QUESTIONS: Final = {
    DutyKind.ADOPT: "what {name} holds ({at}) comes before the first entry of this cluster's log. Adopt it?",
    DutyKind.DISCARD: "everything that {name} holds ({at}) is deleted. Rebuild it?",
}


def adopt_worker(
    name: Annotated[str, typer.Argument(metavar="WORKER", help="the worker whose store is Refused")],
    force: Annotated[
        bool, typer.Option("--force", help="also where other workers lack what it holds; rebuild them afterwards")
    ] = False,
    wait: Annotated[float, typer.Option(help="seconds until its store must be adopted")] = 120.0,
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Keep what a store of another cluster holds: it comes before the first entry of this cluster's log.

    Other workers that hold the same are adopted in the same way; each of the rest is rebuilt from this one."""
    decide_about_store(DutyKind.ADOPT, name, cluster, yes=yes, force=force, wait_s=wait)


def decide_about_store(
    kind: DutyKind, name: str, cluster: ClusterOptions, *, yes: bool, force: bool = False, wait_s: float = 120.0
) -> None:
    """Ask the person, give the decision to the masters, and wait until the store is of this cluster."""
    began = time.monotonic()
    with ExitStack() as closing:
        _, masters, found = find_worker_by_name(find_cluster(cluster), name, closing)
        seen = found.position
        if seen is None:
            raise Refused(f"{name} is {found.state}, and its position is not known: {found.error or 'look again'}")
        at = f"up to index {seen.index} of the cluster {seen.cluster or 'that it does not name'}"
        confirm(yes, _QUESTIONS[kind].format(name=name, at=at))
        duty = _decide(masters, kind, found, force)
        now = _await_own_store(masters, name, duty, wait_s)
    result = {"worker": name, "decision": kind.value, "from": at, "index": now.position.index if now.position else 0}
    done = "is adopted" if kind is DutyKind.ADOPT else "is rebuilt"
    print_answer(
        cluster.json,
        {**result, "state": now.state, "seconds": round(time.monotonic() - began, 3)},
        f"{name} {done}: it is {now.state}, at index {result['index']}; the log follows",
    )


def _decide(masters: Sequence[MasterClient], kind: DutyKind, worker: WorkerStatus, force: bool) -> str:
    """The id of the duty that the first master which answers makes of the decision."""
    assert worker.position is not None
    last: TxLogError | None = None
    for master in masters:
        try:
            if kind is DutyKind.ADOPT:
                return master.adopt_worker(worker.name, worker.position, force=force)
            return master.discard_worker(worker.name, worker.position)
        except Unavailable as silent:
            last = silent
    raise last or Unavailable("NoMaster", "no master answers; see txlog status")


def _await_own_store(masters: Sequence[MasterClient], name: str, duty: str, wait_s: float) -> WorkerStatus:
    """The worker, once its store is of the masters' cluster and its pipeline works on it."""
    until = time.monotonic() + wait_s
    last = "no master answers"
    while True:
        for master in masters:
            with suppress(TxLogError):
                status = master.status()
                worker = next((each for each in status.workers if each.name == name), None)
                error = next((each.get("error") for each in status.duties if each["id"] == duty), None)
                last = error or (worker.error or worker.state if worker is not None else "not known there")
                at = worker.position if worker is not None else None
                is_own = at is not None and at.cluster == status.cluster_id
                if worker is not None and is_own and worker.state == "Working":
                    return worker
        if time.monotonic() > until:
            raise Unavailable("NotDecided", f"{name} is not of this cluster after {wait_s:g} s: {last}")
        time.sleep(POLL_INTERVAL_S)
