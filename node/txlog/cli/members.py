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

PAUSE_S = 0.2
peer = typer.Typer(no_args_is_help=True, help="Masters come, go, and are muted while the cluster runs.")

Node = Annotated[str, typer.Argument(help="its node id, such as uk-3")]
Wait = Annotated[float, typer.Option(help="seconds until it must be in effect")]


def add_to(app: typer.Typer) -> None:
    app.command()(configuration)
    app.add_typer(peer, name="peer")


@peer.command()
def add(
    node: Node,
    url: Annotated[list[str], typer.Argument(help="where the other masters reach it")],
    data_center: Annotated[str | None, typer.Option(help="default: the node id without its number")] = None,
    weight: Annotated[int, typer.Option(help="its votes")] = 1,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Name a new master. It is let in when its process runs, reaches the others and has caught up."""
    where = data_center or node.rpartition("-")[0]
    if not where:
        raise BadInput(f"{node}: expected --data-center, since its name does not say it")
    told = _asked(state, master, lambda client: client.add_peer(node, where, url, weight))
    _show(told, f"{node} is a master of the cluster; it is let in as soon as it has caught up", json)


@peer.command()
def remove(
    node: Node,
    lost: Annotated[bool, typer.Option("--lost", help="it is gone, with what only it had")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    wait: Wait = 60.0,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Take a master out for good: it takes no more work, brings in what it has, and ends.

    Take it out of the manifests afterwards; its journal can be removed then."""
    if lost and not yes:
        typer.confirm(f"What only {node} had will be missing, now and for ever. Sure?", abort=True)
    urls = find_cluster(state, master).masters  # the one that goes ends meanwhile
    told = first_answer(urls, lambda client: client.remove_peer(node, lost=lost))
    until = time.monotonic() + wait
    while node not in told["removed"]:
        if time.monotonic() > until:
            raise Unavailable("Draining", f"{node} has not brought in all that it has after {wait:g} s; it goes on")
        time.sleep(PAUSE_S)
        told = first_answer(urls, MasterClient.configuration)
    _show(told, f"{node} is taken out", json)


@peer.command()
def mute(node: Node, state: StateOption = DEFAULT_STATE, master: MasterOption = None, json: JsonOption = False) -> None:
    """It takes no writes of clients; it orders, and feeds its workers, as before."""
    _show(_asked(state, master, lambda client: client.update_peer(node, muted=True)), f"{node} is muted", json)


@peer.command()
def unmute(
    node: Node, state: StateOption = DEFAULT_STATE, master: MasterOption = None, json: JsonOption = False
) -> None:
    """It takes writes again."""
    _show(_asked(state, master, lambda client: client.update_peer(node, muted=False)), f"{node} is heard", json)


@peer.command()
def weight(
    node: Node,
    votes: Annotated[int, typer.Argument(help="0 to 1000")],
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Change how much it counts."""
    told = _asked(state, master, lambda client: client.update_peer(node, weight=votes))
    _show(told, f"{node} has {votes} votes", json)


def configuration(
    split_mode: Annotated[str | None, typer.Option(help="Continue or Majority")] = None,
    key_retention: Annotated[str | None, typer.Option(help="such as 24h")] = None,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """What all masters agree on, as the log says; or change it."""
    if split_mode is None and key_retention is None:
        told = _asked(state, master, MasterClient.configuration)
    else:
        told = _asked(state, master, lambda client: client.configure(split_mode, key_retention))
    _show(told, "", json)


def _asked(state: Path, master: list[str] | None, ask: Callable[[MasterClient], dict[str, Any]]) -> dict[str, Any]:
    return first_answer(find_cluster(state, master).masters, ask)


def _show(told: dict[str, Any], said: str, json: bool) -> None:
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
