"""``txlog bootstrap``, ``force-view``: what only the operator can decide."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from txlog.cli.output import DEFAULT_STATE, JsonOption, MasterOption, StateOption, err, find_cluster, out, show_json
from txlog.client import MasterClient, MasterUnreachable
from txlog.model.errors import NotFound, TxLogError, Unavailable

POLL_INTERVAL_S = 0.2


def add_to(app: typer.Typer) -> None:
    app.command()(bootstrap)
    app.command("found", hidden=True, deprecated=True)(bootstrap)  # its name in the releases before
    app.command("force-view")(force_view)


def bootstrap(
    member: Annotated[list[str], typer.Option("--member", help="a master of the first view")],
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    wait: Annotated[float, typer.Option(help="seconds until the first view must be installed")] = 60.0,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Bootstrap the cluster without waiting for every configured master. The others join when they start.

    Never repeat it with other masters: that makes two clusters, and each refuses the other."""
    masters = find_cluster(state, master).masters
    if not yes:
        typer.confirm(
            f"This bootstraps the cluster with {', '.join(member)}. It cannot be undone. Continue?", abort=True
        )
    refused: TxLogError | None = None
    for url in masters:
        with MasterClient(url, timeout_s=10.0) as client:
            try:
                if client.status().node not in member:
                    continue
                client.bootstrap(member)
                view = _await_installed_view(client, None, [], wait)
            except TxLogError as why:
                refused = refused if isinstance(why, MasterUnreachable | Unavailable) else why
                continue
        if json:
            show_json(view)
        else:
            out.print(f"founded: {', '.join(view['members'])}", highlight=False)
        return
    raise refused or NotFound(f"none of {', '.join(member)} answers")


def force_view(
    without: Annotated[list[str], typer.Option("--without", help="a member that is permanently lost")],
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    wait: Annotated[float, typer.Option(help="seconds until the next view must be installed")] = 60.0,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Continue without members that are lost, if nothing proves that they ended, or if the rest has no majority.

    Transactions that only they hold are then missing. The masters refuse a member that still answers: stop it, and it
    leaves by itself."""
    client = MasterClient(_remaining_master(find_cluster(state, master).masters, without), timeout_s=10.0)
    if not yes:
        names = ", ".join(without)
        typer.confirm(f"What only {names} had will be missing; what still runs of it goes on alone. Sure?", abort=True)
    with client:
        told = client.force_view(without)
        for one in told["mayMiss"]:
            err.print(_missing_members(one), highlight=False)
        view = _await_installed_view(client, told["view"], without, wait)
    if json:
        show_json({**told, "next": view})
    else:
        out.print(f"view {view['number']} goes on from {told['view']}", highlight=False)


def _remaining_master(masters: list[str], without: list[str]) -> str:
    told = []
    for url in masters:
        with MasterClient(url, timeout_s=5.0) as client:
            try:
                node = client.status().node
            except TxLogError as silent:
                told.append(f"{url}: {silent}")
                continue
        if node not in without:
            return url
    raise NotFound("no master answers that stays; " + "; ".join(told))


def _missing_members(one: dict[str, Any]) -> str:
    heard, held = one["heardUpTo"], one["heldUpTo"]
    if heard is None or held is None:
        return f"{one['node']}: nothing is known of what it had"
    if heard > held:
        return f"{one['node']}: its transactions {held + 1} to {heard} were heard of and are not here"
    return f"{one['node']}: all that was heard of it is here, up to its transaction {held}"


def _await_installed_view(client: MasterClient, left: str | None, without: list[str], wait: float) -> dict[str, Any]:
    """The view that follows ``left`` and has none of these, as soon as it is installed."""
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
