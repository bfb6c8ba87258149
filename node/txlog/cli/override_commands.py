"""``txlog bootstrap``, ``force-view``: what only the operator can decide."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from txlog.cli.cli_cluster import CliCluster, find_cluster
from txlog.cli.options import ClusterOptions, YesOption, confirm, register
from txlog.cli.tables import print_answer, warn
from txlog.client import MasterClient, MasterUnreachable
from txlog.model.errors import NotFound, Refused, TxLogError, Unavailable
from txlog.model.master_state import MasterState

app = typer.Typer()
POLL_INTERVAL_S = 0.2


@register(app, "found", hidden=True, deprecated=True)  # its former name
@register(app)
def bootstrap(
    member: Annotated[list[str], typer.Option(help="a master of the first view")],
    forget: Annotated[
        bool, typer.Option("--forget", help="also if a master lost the journal of an earlier cluster")
    ] = False,
    yes: YesOption = False,
    wait: Annotated[float, typer.Option(help="seconds until the first view must be installed")] = 60.0,
    *,
    cluster: ClusterOptions,
) -> None:
    """Bootstrap the cluster without waiting for every configured master. The others join when they start.

    Never repeat it with other masters: that makes two clusters, and each refuses the other.

    Where a master lost its journal (`AwaitingBootstrap`), the next cluster begins with an empty log. The command shows
    what is forgotten, and needs `--forget`. The stores stay as they are: see `txlog worker adopt`."""
    found = find_cluster(cluster)
    masters = found.masters
    lost = _forgotten(found, member)
    for line in lost:
        warn(line, "")
    if lost and not forget:
        raise Refused("a log would be forgotten; bring a journal back, or say --forget")
    confirm(yes, f"This bootstraps the cluster with {', '.join(member)}. It cannot be undone. Continue?")
    refused: TxLogError | None = None
    for url in masters:
        with MasterClient(url, timeout_s=10.0) as client:
            try:
                if client.status().node not in member:
                    continue
                client.bootstrap(member, forget=forget)
                view = _await_installed_view(client, None, [], wait)
            except TxLogError as why:
                refused = refused if isinstance(why, MasterUnreachable | Unavailable) else why
                continue
        print_answer(cluster.json, view, f"bootstrapped: {', '.join(view['members'])}")
        return
    raise refused or NotFound(f"none of {', '.join(member)} answers")


def _forgotten(cluster: CliCluster, members: list[str]) -> list[str]:
    """What is known of a log that a bootstrap with these members forgets; empty when none of them lost a journal."""
    answers = [a for a in cluster.ask_all(MasterClient.status).values() if not isinstance(a, TxLogError)]
    lost = [a for a in answers if a.node in members and a.state == MasterState.AWAITING_BOOTSTRAP]
    if not lost:
        return []
    workers = {f"{a.data_center}/{w.name}": w.position for a in answers for w in a.workers if w.position is not None}
    at = [
        f"{name} holds the data up to index {place.index} of the cluster {place.cluster or 'that it does not name'}"
        for name, place in sorted(workers.items())
    ]
    return [*(f"{a.node}: {a.view.holding}" for a in lost), *(at or ["no worker has reported a position yet"])]


@register(app)
def force_view(
    without: Annotated[list[str], typer.Option(help="a member that is permanently lost")],
    yes: YesOption = False,
    wait: Annotated[float, typer.Option(help="seconds until the next view must be installed")] = 60.0,
    *,
    cluster: ClusterOptions,
) -> None:
    """Continue without members that are lost, if nothing proves that they ended, or if the rest has no majority.

    Transactions that only they hold are then missing. The masters refuse a member that still answers: stop it, and it
    leaves by itself."""
    url, _ = find_cluster(cluster).find_remaining(without)
    confirm(
        yes,
        f"What only {', '.join(without)} had will be missing; a master of them that still runs continues as a branch. "
        "Sure?",
    )
    with MasterClient(url, timeout_s=10.0) as client:
        forced = client.force_view(without)
        for one in forced["mayMiss"]:
            warn(_missing_transactions(one), "")
        view = _await_installed_view(client, forced["view"], without, wait)
    print_answer(cluster.json, {**forced, "next": view}, f"view {view['number']} continues from {forced['view']}")


def _missing_transactions(one: dict[str, Any]) -> str:
    """The transactions that an excluded member may hold and the remaining masters lack."""
    known, held = one["heardUpTo"], one["heldUpTo"]
    if known is None or held is None:
        return f"{one['node']}: its last transaction is unknown"
    if known > held:
        return f"{one['node']}: its transactions {held + 1} to {known} are known to exist and are not here"
    return f"{one['node']}: all its known transactions are here, up to its transaction {held}"


def _await_installed_view(client: MasterClient, left: str | None, without: list[str], wait: float) -> dict[str, Any]:
    """The view that follows ``left`` and excludes the members ``without``, as soon as it is installed."""
    until = time.monotonic() + wait
    while True:
        status = client.status()
        view = status.view
        members = [str(member["node"]) for member in status.members]
        if view.number != left and view.installed and not set(members) & set(without):
            return {"number": view.number, "members": members}
        if time.monotonic() > until:
            raise Unavailable("NoView", f"the view is not there after {wait:g} s: {view.holding or status.state}")
        time.sleep(POLL_INTERVAL_S)
