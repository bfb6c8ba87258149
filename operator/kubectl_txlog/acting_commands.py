"""The commands of ``kubectl txlog`` that act. A backup and a restore are resources that the operator carries out; the
others are requests to a master. Needs Python's own library alone, so that the plugin can be one file."""

from __future__ import annotations

import json as json_module
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from urllib.parse import quote

from kubectl_txlog.command_line import Argument, Command, Group, Option, Tree, confirm
from kubectl_txlog.master_access import MasterProxies, SiteAccess, find_masters
from kubectl_txlog.options import (
    ClusterOption,
    ConfigOption,
    ContextOption,
    JsonOption,
    NameArgument,
    NamespaceOption,
    YesOption,
)
from txlog.model.errors import BadInput, NotFound, TxLogError, Unavailable

POLL_INTERVAL_S: Final = 0.5
JOB_WAIT_S: Final = 3600.0
NOT_REACHED_EXIT: Final = 4
NAME_PATTERN: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
VOTES_MAX: Final = 1000

NodeArgument = Annotated[str, Argument("node id of the master, such as uk-3")]
WorkerArgument = Annotated[str, Argument("name of the worker, such as uk-worker-1", "WORKER")]
JobWaitOption = Annotated[float, Option("seconds until it must be done; 0: do not wait", min=0)]

# -- backups and workers


def backup(
    name: NameArgument = None,
    as_: Annotated[str | None, Option("name of the TxLogBackup; default: from cluster and time", ("--as",))] = None,
    wait: JobWaitOption = JOB_WAIT_S,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Back up the most advanced worker to `spec.backup.target`: makes a TxLogBackup, and waits for its Job."""
    site = _only_site(find_masters(name, namespace, context, kubeconfig))
    chosen = _resource_name(as_, f"{site.name}-manual")
    site.create("txlogbackups", "TxLogBackup", chosen, {"cluster": site.name})
    _await_job(site, "txlogbackups", chosen, wait, json)


def restore(
    worker: WorkerArgument,
    as_: Annotated[str | None, Option("name of the TxLogRestore; default: from worker and time", ("--as",))] = None,
    wait: JobWaitOption = JOB_WAIT_S,
    yes: YesOption = False,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Rebuild a worker from the newest backup that is on the log: makes a TxLogRestore, and waits for its Job."""
    access = find_masters(cluster, namespace, context, kubeconfig)
    site, _ = _find_worker(access, worker)
    if not yes:
        confirm(f"everything that {worker} holds goes, and comes again. Restore it?")
    _restore(site, worker, as_, wait, json)


def rebuild(
    worker: WorkerArgument,
    wait: JobWaitOption = JOB_WAIT_S,
    yes: YesOption = False,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Rebuild a worker that is in any state.

    A store of another cluster (state Refused) is discarded; the masters choose its new source. Any other worker is
    restored from the newest backup."""
    access = find_masters(cluster, namespace, context, kubeconfig)
    site, found = _find_worker(access, worker)
    if not yes:
        confirm(f"everything that {worker} holds goes, and comes again. Rebuild it?")
    if found["state"] != "Refused":
        _restore(site, worker, None, wait, json)
        return
    position = found.get("position")
    if not position:
        raise Unavailable(
            "NotKnown", f"{worker} is Refused, and its position is not known yet; see kubectl txlog status"
        )
    body = {key: position.get(key) for key in ("index", "hash", "cluster")}
    duty = MasterProxies([site]).ask_first("POST", f"/txlog/workers/{quote(worker)}/discard", body)["duty"]
    _print(json, {"worker": worker, "duty": duty}, f"{worker} is to be rebuilt: the operator carries out {duty}")


def skip(
    txid: Annotated[str, Argument("id of the transaction, such as uk-1.00c0ffee00c0ffee.42")],
    yes: YesOption = False,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Make every worker skip a transaction that it refuses. Its entry stays in the log, permanently without effect."""
    access = find_masters(cluster, namespace, context, kubeconfig)
    if not yes:
        confirm(f"{txid} will have no effect on any worker, ever. Skip it?")
    answer = access.ask_first("POST", f"/txlog/skip/{quote(txid)}", {})
    _print(json, answer, f"{txid} is passed over once that is stable")


def _restore(site: SiteAccess, worker: str, name: str | None, wait_s: float, json: bool) -> None:
    chosen = _resource_name(name, worker)
    site.create("txlogrestores", "TxLogRestore", chosen, {"cluster": site.name, "worker": worker})
    _await_job(site, "txlogrestores", chosen, wait_s, json)


def _await_job(site: SiteAccess, plural: str, name: str, wait_s: float, json: bool) -> None:
    """Until the operator has carried the resource out. Exit code 1 when it failed."""
    if wait_s == 0:
        _print(json, {"name": name, "state": "Waiting"}, f"{plural}/{name} is made; see kubectl get {plural} {name}")
        return
    until = time.monotonic() + wait_s
    while True:
        status: Mapping[str, Any] = site.read(plural, name).get("status") or {}
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
    _print(json, {"name": name, **status}, f"{plural}/{name} is {state}{made}{at}{why}")
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


# -- masters


def _muting(muted: bool, about: str) -> Command:
    def change(
        node: NodeArgument,
        cluster: ClusterOption = None,
        namespace: NamespaceOption = None,
        context: ContextOption = None,
        kubeconfig: ConfigOption = None,
        json: JsonOption = False,
    ) -> None:
        access = find_masters(cluster, namespace, context, kubeconfig)
        answer = access.ask_first("PATCH", _peer_path(node), {"muted": muted})
        _print_configuration(answer, f"{node} is muted" if muted else f"{node} accepts writes again", json)

    change.__doc__ = about
    return change


def weight(
    node: NodeArgument,
    votes: Annotated[int, Argument("the new vote weight", min=0, max=VOTES_MAX)],
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Change the vote weight of a master. The manifest's `voteWeight` must follow, or the operator sets it again."""
    access = find_masters(cluster, namespace, context, kubeconfig)
    answer = access.ask_first("PATCH", _peer_path(node), {"weight": votes})
    _print_configuration(answer, f"{node} has {votes} votes", json)


def remove(
    node: NodeArgument,
    lost: Annotated[bool, Option("the master is lost, with what only it holds", ("--lost",))] = False,
    yes: YesOption = False,
    wait: Annotated[float, Option("seconds until the change must be in effect", min=0)] = 60.0,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Remove a master permanently, such as those of a data centre that is gone. Take it out of `peers` first: a
    data centre that lists a master asks for it again."""
    if not yes:
        what = f"What only {node} had will be missing, now and for ever" if lost else f"{node} leaves for good"
        confirm(f"{what}. Sure?")
    access = find_masters(cluster, namespace, context, kubeconfig)
    found = access.ask_first("DELETE", _peer_path(node) + ("?lost=true" if lost else ""), {})
    until = time.monotonic() + wait
    while node not in found["removed"]:
        if time.monotonic() > until:
            raise Unavailable("Draining", f"{node} has not handed over all that it has after {wait:g} s; it continues")
        time.sleep(POLL_INTERVAL_S)
        found = access.ask_first("GET", "/txlog/configuration")
    _print_configuration(found, f"{node} is taken out", json)


def force_view(
    without: Annotated[list[str], Option("a member that is permanently lost", ("--without",))],
    yes: YesOption = False,
    wait: Annotated[float, Option("seconds until the next view must be installed", min=0)] = 60.0,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Continue without members that are lost, if nothing proves that they ended, or if the rest has no majority.

    Transactions that only they hold are then missing. The masters refuse a member that still answers."""
    site, master = _remaining_master(find_masters(cluster, namespace, context, kubeconfig), without)
    names = ", ".join(without)
    if not yes:
        confirm(
            f"What only {names} had will be missing; a master of them that still runs continues as a branch. Sure?",
        )
    forced = site.ask(master, "POST", "/txlog/views", {"without": without})
    for one in forced["mayMiss"]:
        print(f"{one['node']}: holds up to {one['heardUpTo']}, here up to {one['heldUpTo']}", file=sys.stderr)
    until = time.monotonic() + wait
    while True:
        status = site.ask(master, "GET", "/txlog/status")
        members = {str(each["node"]) for each in status["members"]}
        view = status["view"]
        if view["number"] != forced["view"] and view["installed"] and not members & set(without):
            break
        if time.monotonic() > until:
            held = view.get("holding") or status["state"]
            raise Unavailable("NoView", f"the view is not there after {wait:g} s: {held}")
        time.sleep(POLL_INTERVAL_S)
    result = {**forced, "next": {"number": view["number"], "members": sorted(members)}}
    _print(json, result, f"view {view['number']} continues from {forced['view']}")


def _remaining_master(access: MasterProxies, without: Sequence[str]) -> tuple[SiteAccess, str]:
    silent = []
    for site, master, answer in access.ask_all("/txlog/status"):
        if isinstance(answer, TxLogError):
            silent.append(str(answer))
        elif answer["node"] not in without:
            return site, master
    raise NotFound("; ".join([f"no master but {', '.join(without)} answers", *silent]))


def synchro(
    name: NameArgument = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show whether this side decides about synchronous transactions, and how many are undecided. Exit code 4 where the
    quorum of a rule is not here."""
    found = find_masters(name, namespace, context, kubeconfig).ask_first("GET", "/txlog/synchro")
    queue, word = found["queue"], "decides" if found["quorate"] else "decides nothing"
    lines = [
        f"view {found['view']} {word}; {queue['undecided']} undecided, the oldest for {queue['oldestSeconds']:.1f} s"
    ]
    for rule in found["graphs"]:
        reached = "reached" if rule["reached"] else "NOT reached"
        lines.append(f"{rule['match']}: quorum {rule['quorum']} needs {rule['needs']}, here {rule['here']}, {reached}")
    _print(json, found, "\n".join(lines))
    if not all(rule["reached"] for rule in found["graphs"]):
        sys.exit(NOT_REACHED_EXIT)


def _peer_path(node: str) -> str:
    return f"/txlog/peers/{quote(node)}"


def _print_configuration(found: Mapping[str, Any], done: str, json: bool) -> None:
    lines = [f"{found['pending']} waits for its place in the log; a member may be silent" if found["pending"] else done]
    for each in found["masters"]:
        seen = "in the view" if each["inView"] else "out of the view"
        lines.append(f"{each['node']}: {each['role']}, {each['weight']} votes, {seen}")
    _print(json, found, "\n".join(lines))


def _print(as_json: bool, value: object, text: str) -> None:
    print(json_module.dumps(value, indent=2) if as_json else text)


COMMANDS: Final[Tree] = {
    "backup": backup,
    "restore": restore,
    "rebuild": rebuild,
    "skip": skip,
    "force-view": force_view,
    "synchro": synchro,
    "peer": Group(
        "Remove and mute masters, and change their votes.",
        {
            "mute": _muting(True, "Make a master refuse writes of clients. It takes part in the order as before."),
            "unmute": _muting(False, "Make a muted master accept writes of clients again."),
            "weight": weight,
            "remove": remove,
        },
    ),
}
