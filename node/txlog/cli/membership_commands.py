"""``txlog peer …``, ``txlog configuration``: what the log says of the cluster itself, changed while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from txlog.cli.output import (
    DEFAULT_STATE,
    JsonOption,
    MasterOption,
    StateOption,
    find_cluster,
    first_answer,
    out,
    show_json,
    show_table,
)
from txlog.client import MasterClient
from txlog.model.errors import BadInput, Unavailable

POLL_INTERVAL_S = 0.2
peer_app = typer.Typer(
    no_args_is_help=True, help="Add, remove and mute masters, and change their votes, while the cluster runs."
)

NodeArgument = Annotated[str, typer.Argument(help="node id of the master, such as uk-3")]
WaitOption = Annotated[float, typer.Option(help="seconds until the change must be in effect")]


def add_to(app: typer.Typer) -> None:
    app.command()(configuration)
    app.add_typer(peer_app, name="peer")


@peer_app.command()
def add(
    node: NodeArgument,
    url: Annotated[list[str], typer.Argument(help="where the other masters reach it")],
    data_center: Annotated[str | None, typer.Option(help="default: the node id without its number")] = None,
    weight: Annotated[int, typer.Option(help="its vote weight")] = 1,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Add a master to the configuration. It joins when its process runs, reaches the others and has caught up."""
    where = data_center or node.rpartition("-")[0]
    if not where:
        raise BadInput(f"{node}: expected --data-center, since its name does not say it")
    told = _request_change(state, master, lambda client: client.add_peer(node, where, url, weight))
    _show_configuration(told, f"{node} is a master of the cluster; it is let in as soon as it has caught up", json)


@peer_app.command()
def remove(
    node: NodeArgument,
    lost: Annotated[bool, typer.Option("--lost", help="the master is lost, with what only it holds")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    wait: WaitOption = 60.0,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Remove a master permanently: it accepts no more writes, hands over what it holds, and ends.

    Remove it from the manifests afterwards. Its journal can then be deleted."""
    if lost and not yes:
        typer.confirm(f"What only {node} had will be missing, now and for ever. Sure?", abort=True)
    urls = find_cluster(state, master).masters  # the one that goes ends meanwhile
    told = first_answer(urls, lambda client: client.remove_peer(node, lost=lost))
    until = time.monotonic() + wait
    while node not in told["removed"]:
        if time.monotonic() > until:
            raise Unavailable("Draining", f"{node} has not brought in all that it has after {wait:g} s; it goes on")
        time.sleep(POLL_INTERVAL_S)
        told = first_answer(urls, MasterClient.configuration)
    _show_configuration(told, f"{node} is taken out", json)


@peer_app.command()
def mute(
    node: NodeArgument, state: StateOption = DEFAULT_STATE, master: MasterOption = None, json: JsonOption = False
) -> None:
    """Make a master refuse writes of clients. It takes part in the order and supplies its workers as before."""
    _show_configuration(
        _request_change(state, master, lambda client: client.update_peer(node, muted=True)), f"{node} is muted", json
    )


@peer_app.command()
def unmute(
    node: NodeArgument, state: StateOption = DEFAULT_STATE, master: MasterOption = None, json: JsonOption = False
) -> None:
    """Make a muted master accept writes of clients again."""
    _show_configuration(
        _request_change(state, master, lambda client: client.update_peer(node, muted=False)), f"{node} is heard", json
    )


@peer_app.command()
def weight(
    node: NodeArgument,
    votes: Annotated[int, typer.Argument(help="the new vote weight, 0 to 1000")],
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Change the vote weight of a master."""
    told = _request_change(state, master, lambda client: client.update_peer(node, weight=votes))
    _show_configuration(told, f"{node} has {votes} votes", json)


def configuration(
    split_mode: Annotated[str | None, typer.Option(help="new value: Continue or Majority")] = None,
    key_retention: Annotated[str | None, typer.Option(help="new value, such as 24h")] = None,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Show the configuration that is in the log, or change it."""
    if split_mode is None and key_retention is None:
        told = _request_change(state, master, MasterClient.configuration)
    else:
        told = _request_change(state, master, lambda client: client.configure(split_mode, key_retention))
    _show_configuration(told, "", json)


def _request_change(
    state: Path, master: list[str] | None, ask: Callable[[MasterClient], dict[str, Any]]
) -> dict[str, Any]:
    return first_answer(find_cluster(state, master).masters, ask)


def _show_configuration(told: dict[str, Any], said: str, json: bool) -> None:
    if json:
        show_json(told)
        return
    if told["pending"]:
        out.print(f"{told['pending']} waits for its place in the log; a member may be silent", highlight=False)
    elif said:
        out.print(said, highlight=False)
    rows = [
        (m["node"], m["dataCenter"], m["weight"], m["role"], "yes" if m["inView"] else "no", " ".join(m["urls"]))
        for m in told["masters"]
    ]
    show_table(["MASTER", "DATA CENTRE", "WEIGHT", "ROLE", "IN VIEW", "URL"], rows)
    out.print(
        f"splitMode {told['splitMode']}, keyRetention {told['keyRetention']}, version {told['version']}"
        + (f", removed: {', '.join(told['removed'])}" if told["removed"] else ""),
        highlight=False,
    )
