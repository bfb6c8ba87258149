"""The commands of ``kubectl txlog`` for backups and workers. A backup and a restore are resources that the operator
carries out; the others are requests to a master. Needs Python's own library alone, so that the plugin can be one file.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from urllib.parse import quote

from kubectl_txlog.command_line import Argument, Option, Tree, confirm, print_answer
from kubectl_txlog.master_access import MasterProxies, SiteAccess
from kubectl_txlog.options import ChosenCluster, NamedCluster, YesOption
from txlog.model.errors import BadInput, NotFound, Unavailable

POLL_INTERVAL_S: Final = 0.5
JOB_WAIT_S: Final = 3600.0
NAME_PATTERN: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

WorkerArgument = Annotated[str, Argument("name of the worker, such as uk-worker-1", "WORKER")]
JobWaitOption = Annotated[float, Option("seconds until it must be done; 0: do not wait", min=0)]


def backup(
    as_: Annotated[str | None, Option("name of the TxLogBackup; default: from cluster and time", ("--as",))] = None,
    incremental: Annotated[
        bool, Option("what the log has changed since the backup before, where that is possible", ("--incremental",))
    ] = False,
    wait: JobWaitOption = JOB_WAIT_S,
    *,
    on: NamedCluster,
) -> None:
    """Back up the most advanced worker to `spec.backup.target`: makes a TxLogBackup, and waits for its Job."""
    site = _only_site(on.masters())
    chosen = _resource_name(as_, f"{site.name}-manual")
    wanted = {"incremental": True} if incremental else {}
    site.create("txlogbackups", "TxLogBackup", chosen, {"cluster": site.name, **wanted})
    _await_job(site, "txlogbackups", chosen, wait, on.json)


def restore(
    worker: WorkerArgument,
    as_: Annotated[str | None, Option("name of the TxLogRestore; default: from worker and time", ("--as",))] = None,
    wait: JobWaitOption = JOB_WAIT_S,
    yes: YesOption = False,
    *,
    on: ChosenCluster,
) -> None:
    """Rebuild a worker from the newest backup that is on the log: makes a TxLogRestore, and waits for its Job."""
    site, _ = _find_worker(on.masters(), worker)
    confirm(yes, f"everything that {worker} holds goes, and comes again. Restore it?")
    _restore(site, worker, as_, wait, on.json)


def rebuild(
    worker: WorkerArgument,
    wait: JobWaitOption = JOB_WAIT_S,
    yes: YesOption = False,
    *,
    on: ChosenCluster,
) -> None:
    """Rebuild a worker that is in any state.

    A store of another cluster (state Refused) is discarded; the masters choose its new source. Any other worker is
    restored from the newest backup."""
    site, found = _find_worker(on.masters(), worker)
    confirm(yes, f"everything that {worker} holds goes, and comes again. Rebuild it?")
    if found["state"] != "Refused":
        _restore(site, worker, None, wait, on.json)
        return
    _decide_about_store(site, found, "discard", {}, on.json)


def adopt(
    worker: WorkerArgument,
    force: Annotated[bool, Option("also where other workers lack what it holds; rebuild them afterwards")] = False,
    yes: YesOption = False,
    *,
    on: ChosenCluster,
) -> None:
    """Keep what a store of another cluster holds (state Refused): it comes before the first entry of this cluster's
    log.

    Other workers that hold the same are adopted in the same way; each of the rest is rebuilt from this one."""
    site, found = _find_worker(on.masters(), worker)
    confirm(yes, f"what {worker} holds comes before the first entry of this cluster's log. Adopt it?")
    _decide_about_store(site, found, "adopt", {"force": True} if force else {}, on.json)


def _decide_about_store(
    site: SiteAccess, worker: Mapping[str, Any], what: str, more: Mapping[str, Any], json: bool
) -> None:
    """Give the decision about a store that is not of this cluster to the masters, which make a duty of it."""
    name, position = worker["name"], worker.get("position")
    if not position:
        raise Unavailable(
            "NotKnown", f"{name} is {worker['state']}, and its position is not known; see kubectl txlog status"
        )
    body = {**{key: position.get(key) for key in ("index", "hash", "cluster")}, **more}
    duty = MasterProxies([site]).ask_first("POST", f"/txlog/workers/{quote(name)}/{what}", body)["duty"]
    verb = "adopted" if what == "adopt" else "rebuilt"
    print_answer(json, {"worker": name, "duty": duty}, f"{name} is to be {verb}: the operator carries out {duty}")


def skip(
    txid: Annotated[str, Argument("id of the transaction, such as uk-1.00c0ffee00c0ffee.42")],
    yes: YesOption = False,
    *,
    on: ChosenCluster,
) -> None:
    """Make every worker skip a transaction that it refuses. Its entry stays in the log, permanently without effect."""
    access = on.masters()
    confirm(yes, f"{txid} will have no effect on any worker, ever. Skip it?")
    answer = access.ask_first("POST", f"/txlog/skip/{quote(txid)}", {})
    print_answer(on.json, answer, f"{txid} is passed over once that is stable")


def _restore(site: SiteAccess, worker: str, name: str | None, wait_s: float, json: bool) -> None:
    chosen = _resource_name(name, worker)
    site.create("txlogrestores", "TxLogRestore", chosen, {"cluster": site.name, "worker": worker})
    _await_job(site, "txlogrestores", chosen, wait_s, json)


def _await_job(site: SiteAccess, plural: str, name: str, wait_s: float, json: bool) -> None:
    """Until the operator has carried the resource out. Exit code 1 when it failed. An API server that does not answer
    for a moment is asked again: it is restarted now and then, and a restore may take an hour."""
    if wait_s == 0:
        print_answer(
            json, {"name": name, "state": "Waiting"}, f"{plural}/{name} is made; see kubectl get {plural} {name}"
        )
        return
    until = time.monotonic() + wait_s
    while True:
        try:
            status: Mapping[str, Any] = site.read(plural, name).get("status") or {}
        except Unavailable:
            if time.monotonic() > until:
                raise
            time.sleep(POLL_INTERVAL_S)
            continue
        state = status.get("state", "Waiting")
        if state in ("Done", "Failed"):
            break
        if time.monotonic() > until:
            why = status.get("message") or "no operator has begun it" if state == "Waiting" else status.get("message")
            raise Unavailable(
                "NotDone", f"{plural}/{name} is {state} after {wait_s:g} s; it continues. {why or ''}".strip()
            )
        time.sleep(POLL_INTERVAL_S)
    at = f" at position {status['position']}" if status.get("position") else ""
    made = f": {status['backup']}" if status.get("backup") else ""
    why = f": {status['message']}" if status.get("message") and state == "Failed" else ""
    print_answer(json, {"name": name, **status}, f"{plural}/{name} is {state}{made}{at}{why}")
    if state == "Failed":
        sys.exit(1)


def _resource_name(given: str | None, prefix: str) -> str:
    name = given or f"{prefix[:40].rstrip('-')}-{datetime.now(UTC):%Y%m%d%H%M%S}"
    if NAME_PATTERN.fullmatch(name) is None:
        raise BadInput(f"--as {name}: expected at most 63 lower-case letters, digits and hyphens")
    return name


def _only_site(access: MasterProxies) -> SiteAccess:
    if len(access.sites) > 1:
        raise BadInput("--context: expected one, since each data centre makes its own backups")
    return access.sites[0]


def _find_worker(access: MasterProxies, name: str) -> tuple[SiteAccess, Mapping[str, Any]]:
    """The data centre that has the worker, and what its masters report. :class:`NotFound`."""
    known: list[str] = []
    for site in access.sites:
        answer = MasterProxies([site]).ask_first("GET", "/txlog/workers")
        for each in answer["workers"] if isinstance(answer, dict) else answer:
            if each["name"] == name:
                return site, each
            known.append(each["name"])
    raise NotFound(f"no worker is called {name}; there are {', '.join(known) or 'none'}; --context names a data centre")


COMMANDS: Final[Tree] = {"backup": backup, "restore": restore, "rebuild": rebuild, "adopt": adopt, "skip": skip}
