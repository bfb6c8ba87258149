"""The commands of ``kubectl txlog`` for masters, views and the log: requests to a master. Needs Python's own library
alone, so that the plugin can be one file."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote

from kubectl_txlog.command_line import Argument, Command, Group, Option, Tree, confirm, print_answer
from kubectl_txlog.master_access import MasterProxies, SiteAccess
from kubectl_txlog.options import ChosenCluster, NamedCluster, YesOption
from txlog.model.errors import NotFound, Refused, TxLogError, Unavailable

POLL_INTERVAL_S: Final = 0.5
VIEW_WAIT_S: Final = 60.0
NOT_REACHED_EXIT: Final = 4
VOTES_MAX: Final = 1000
AWAITING_BOOTSTRAP: Final = "AwaitingBootstrap"

NodeArgument = Annotated[str, Argument("node id of the master, such as uk-3")]
ViewWaitOption = Annotated[float, Option("seconds until the next view must be installed", min=0)]


def _muting(muted: bool, about: str) -> Command:
    def change(
        node: NodeArgument,
        *,
        on: ChosenCluster,
    ) -> None:
        answer = on.masters().ask_first("PATCH", _peer_path(node), {"muted": muted})
        _print_configuration(answer, f"{node} is muted" if muted else f"{node} accepts writes again", on.json)

    change.__doc__ = about
    return change


def weight(
    node: NodeArgument,
    votes: Annotated[int, Argument("the new vote weight", min=0, max=VOTES_MAX)],
    *,
    on: ChosenCluster,
) -> None:
    """Change the vote weight of a master. The manifest's `voteWeight` must follow, or the operator sets it again."""
    answer = on.masters().ask_first("PATCH", _peer_path(node), {"weight": votes})
    _print_configuration(answer, f"{node} has {votes} votes", on.json)


def remove(
    node: NodeArgument,
    lost: Annotated[bool, Option("the master is lost, with what only it holds", ("--lost",))] = False,
    yes: YesOption = False,
    wait: Annotated[float, Option("seconds until the change must be in effect", min=0)] = 60.0,
    *,
    on: ChosenCluster,
) -> None:
    """Remove a master permanently, such as those of a data centre that is gone. Take it out of `peers` first: a
    data centre that lists a master asks for it again."""
    what = f"What only {node} had will be missing, now and for ever" if lost else f"{node} leaves for good"
    confirm(yes, f"{what}. Sure?")
    access = on.masters()
    found = access.ask_first("DELETE", _peer_path(node) + ("?lost=true" if lost else ""), {})
    until = time.monotonic() + wait
    while node not in found["removed"]:
        if time.monotonic() > until:
            raise Unavailable("Draining", f"{node} has not handed over all that it has after {wait:g} s; it continues")
        time.sleep(POLL_INTERVAL_S)
        found = access.ask_first("GET", "/txlog/configuration")
    _print_configuration(found, f"{node} is taken out", on.json)


def force_view(
    without: Annotated[list[str], Option("a member that is permanently lost", ("--without",))],
    yes: YesOption = False,
    wait: ViewWaitOption = VIEW_WAIT_S,
    *,
    on: ChosenCluster,
) -> None:
    """Continue without members that are lost, if nothing proves that they ended, or if the rest has no majority.

    Transactions that only they hold are then missing. The masters refuse a member that still answers."""
    site, master = _remaining_master(on.masters(), without)
    names = ", ".join(without)
    confirm(
        yes, f"What only {names} had will be missing; a master of them that still runs continues as a branch. Sure?"
    )
    forced = site.ask(master, "POST", "/txlog/views", {"without": without})
    for one in forced["mayMiss"]:
        print(f"{one['node']}: holds up to {one['heardUpTo']}, here up to {one['heldUpTo']}", file=sys.stderr)
    after = _await_view(site, master, forced["view"], without, wait)
    print_answer(on.json, {**forced, "next": after}, f"view {after['number']} continues from {forced['view']}")


def _await_view(
    site: SiteAccess, master: str, left: str | None, without: Sequence[str], wait_s: float
) -> dict[str, Any]:
    """The view that follows ``left`` and excludes the members ``without``, as soon as it is installed."""
    until = time.monotonic() + wait_s
    while True:
        status = site.ask(master, "GET", "/txlog/status")
        members = {str(each["node"]) for each in status["members"]}
        view = status["view"]
        if view["number"] != left and view["installed"] and not members & set(without):
            return {"number": view["number"], "members": sorted(members)}
        if time.monotonic() > until:
            held = view.get("holding") or status["state"]
            raise Unavailable("NoView", f"the view is not there after {wait_s:g} s: {held}")
        time.sleep(POLL_INTERVAL_S)


def _remaining_master(access: MasterProxies, without: Sequence[str]) -> tuple[SiteAccess, str]:
    silent = []
    for site, master, answer in access.ask_all("/txlog/status"):
        if isinstance(answer, TxLogError):
            silent.append(str(answer))
        elif answer["node"] not in without:
            return site, master
    raise NotFound("; ".join([f"no master but {', '.join(without)} answers", *silent]))


def bootstrap(
    member: Annotated[list[str], Option("a master of the first view", ("--member",))],
    forget: Annotated[bool, Option("also if a master lost the journal of an earlier cluster")] = False,
    yes: YesOption = False,
    wait: ViewWaitOption = VIEW_WAIT_S,
    *,
    on: ChosenCluster,
) -> None:
    """Bootstrap the cluster without waiting for every configured master. The others join when they start.

    Never repeat it with other masters: that makes two clusters, and each refuses the other. Where a master lost its
    journal (`AwaitingBootstrap`), the next cluster begins with an empty log. The command shows what is forgotten, and
    needs `--forget`. The stores stay as they are: see `kubectl txlog adopt`."""
    access = on.masters()
    answers = [each for each in access.ask_all("/txlog/status") if not isinstance(each[2], TxLogError)]
    lost = _forgotten([status for _, _, status in answers], member)
    for line in lost:
        print(line, file=sys.stderr)
    if lost and not forget:
        raise Refused("a log would be forgotten; bring a journal back, or say --forget")
    confirm(yes, f"This bootstraps the cluster with {', '.join(member)}. It cannot be undone. Continue?")
    refused: TxLogError | None = None
    for site, master in [(site, master) for site, master, status in answers if status["node"] in member]:
        try:
            site.ask(master, "POST", "/txlog/found", {"members": member, **({"forget": True} if forget else {})})
            view = _await_view(site, master, None, [], wait)
        except TxLogError as why:
            refused = refused if isinstance(why, Unavailable) else why
            continue
        print_answer(on.json, view, f"bootstrapped: {', '.join(view['members'])}")
        return
    raise refused or NotFound(f"none of {', '.join(member)} answers")


def _forgotten(answers: Sequence[Mapping[str, Any]], members: Sequence[str]) -> list[str]:
    """What is known of a log that a bootstrap with these members forgets; empty when none of them lost a journal."""
    lost = [each for each in answers if each["node"] in members and each["state"] == AWAITING_BOOTSTRAP]
    if not lost:
        return []
    places = {worker["name"]: worker.get("position") for each in answers for worker in each["workers"]}
    at = [
        f"{name} holds the data up to index {place['index']} of the cluster {place.get('cluster') or 'without a name'}"
        for name, place in sorted(places.items())
        if place
    ]
    held = [f"{each['node']}: {each['view'].get('holding') or each['state']}" for each in lost]
    return [*held, *(at or ["no worker has reported a position yet"])]


def synchro(on: NamedCluster) -> None:
    """Show whether this side decides about synchronous transactions, and how many are undecided. Exit code 4 where the
    quorum of a rule is not here."""
    found = on.masters().ask_first("GET", "/txlog/synchro")
    queue, word = found["queue"], "decides" if found["quorate"] else "decides nothing"
    lines = [
        f"view {found['view']} {word}; {queue['undecided']} undecided, the oldest for {queue['oldestSeconds']:.1f} s"
    ]
    for rule in found["graphs"]:
        reached = "reached" if rule["reached"] else "NOT reached"
        lines.append(f"{rule['match']}: quorum {rule['quorum']} needs {rule['needs']}, here {rule['here']}, {reached}")
    print_answer(on.json, found, "\n".join(lines))
    if not all(rule["reached"] for rule in found["graphs"]):
        sys.exit(NOT_REACHED_EXIT)


def adopt_votes(
    lost: Annotated[list[str], Argument("a master that is lost for good", "NODE")],
    yes: YesOption = False,
    wait: Annotated[float, Option("seconds until a view must decide again", min=0)] = VIEW_WAIT_S,
    *,
    on: ChosenCluster,
) -> None:
    """Give up the votes of masters that are lost for good, so that the rest decides about synchronous transactions.

    Name every lost master. Never name one that still has its disk: both sides would decide, and each for itself. The
    masters refuse one that answers. The order is in memory: repeat it if the master restarts before its next view."""
    site, master = _remaining_master(on.masters(), lost)
    names = ", ".join(lost)
    confirm(
        yes,
        f"What only {names} had committed is lost. If one of them still has its disk and runs again, two sides may"
        " decide differently. Sure?",
    )
    left = site.ask(master, "POST", "/txlog/synchro/adopt", {"without": lost})["view"]
    until = time.monotonic() + wait
    while not (found := site.ask(master, "GET", "/txlog/synchro"))["quorate"]:
        if time.monotonic() > until:
            raise Unavailable("NoView", f"no view decides after {wait:g} s; repeat the command if {master} restarted")
        time.sleep(POLL_INTERVAL_S)
    result = {"left": left, "without": lost, "synchro": found}
    print_answer(on.json, result, f"view {found['view']} decides without {names}")


def configuration(on: NamedCluster) -> None:
    """Show the configuration that is in the log: the masters, their roles and votes."""
    found = on.masters().ask_first("GET", "/txlog/configuration")
    _print_configuration(found, f"{len(found['masters'])} masters", on.json)


def create_point(
    name: Annotated[str, Argument("such as before-the-import; may be given again")],
    *,
    on: ChosenCluster,
) -> None:
    """Name this place of the log. Everything that was acknowledged as synced before is before it. It costs every master
    some 200 bytes, for as long as the cluster exists. Exit code 1 while it is not stable."""
    site, master = on.masters().first_live()
    try:
        found = site.ask(master, "POST", "/txlog/restore-points", {"name": name})
    except Unavailable as error:  # not repeated at another master: it would be a second point
        text = f"{error}; it may exist all the same: kubectl txlog restore-point list"
        raise Unavailable(error.reason, text) from None
    if found["index"] is None:
        text = f"{name} is not stable yet, and may become so; see kubectl txlog restore-point list"
    else:
        text = f"{name} is at index {found['index']}: position:{found['index']}:{found['hash']}"
    print_answer(on.json, found, text)
    if found["index"] is None:
        sys.exit(1)


def list_points(on: NamedCluster) -> None:
    """List the restore points of the log."""
    rows = on.masters().ask_first("GET", "/txlog/restore-points")["points"]
    lines = [
        f"{row['name']}: " + (f"position:{row['index']}:{row['hash']}" if row["hash"] else f"index {row['index']}")
        for row in rows
    ]
    print_answer(on.json, rows, "\n".join(lines) or "no restore points")


def _peer_path(node: str) -> str:
    return f"/txlog/peers/{quote(node)}"


def _print_configuration(found: Mapping[str, Any], done: str, json: bool) -> None:
    lines = [f"{found['pending']} waits for its place in the log; a member may be silent" if found["pending"] else done]
    for each in found["masters"]:
        seen = "in the view" if each["inView"] else "out of the view"
        lines.append(f"{each['node']}: {each['role']}, {each['weight']} votes, {seen}")
    print_answer(json, found, "\n".join(lines))


COMMANDS: Final[Tree] = {
    "force-view": force_view,
    "bootstrap": bootstrap,
    "synchro": synchro,
    "adopt-votes": adopt_votes,
    "configuration": configuration,
    "peer": Group(
        "Remove and mute masters, and change their votes.",
        {
            "mute": _muting(True, "Make a master refuse writes of clients. It takes part in the order as before."),
            "unmute": _muting(False, "Make a muted master accept writes of clients again."),
            "weight": weight,
            "remove": remove,
        },
    ),
    "restore-point": Group("Restore points: named places of the log.", {"create": create_point, "list": list_points}),
}
