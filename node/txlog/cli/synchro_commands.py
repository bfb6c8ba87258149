"""``txlog synchro``: whether synchronous transactions can be committed here, and which ones wait for their decision."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from txlog.cli.cli_cluster import find_cluster
from txlog.cli.options import ClusterOptions, YesOption, confirm, register, with_groups
from txlog.cli.tables import out, print_answer, print_line, show_json, show_table
from txlog.client import MasterClient
from txlog.model.errors import Unavailable

NOT_REACHED_EXIT = 4
"""The exit code where the quorum of a rule is not here."""
WATCH_INTERVAL_S = 1.0
POLL_INTERVAL_S = 0.2
synchro_app = typer.Typer()


@synchro_app.callback(invoke_without_command=True)
@with_groups
def synchro(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="show it again each second, until interrupted")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show whether this side decides about synchronous transactions, and what is undecided. Exit code 4 where the
    quorum of a rule is not here."""
    if context.invoked_subcommand is not None:
        return
    masters = find_cluster(cluster)
    while True:
        found = masters.ask_first(MasterClient.synchro)
        if cluster.json:
            show_json(found)
        else:
            print_synchro(found)
        if not watch:
            break
        time.sleep(WATCH_INTERVAL_S)
    if not all(rule["reached"] for rule in found["graphs"]):
        raise typer.Exit(NOT_REACHED_EXIT)


@register(synchro_app)
def adopt(
    nodes: Annotated[list[str], typer.Argument(metavar="NODE...", help="a master that is lost for good")],
    yes: YesOption = False,
    wait: Annotated[float, typer.Option(help="seconds until a view must decide again")] = 60.0,
    *,
    cluster: ClusterOptions,
) -> None:
    """Give up the votes of masters that are lost for good, so that the rest decides about synchronous transactions.

    Name every lost master. Never name one that still has its disk: both sides would decide, and each for itself. The
    masters refuse one that answers. The order is in memory: repeat it if the master restarts before its next view."""
    url, node = find_cluster(cluster).find_remaining(nodes)
    confirm(
        yes,
        f"What only {', '.join(nodes)} had committed is lost. If one of them still has its disk and runs again, "
        "two sides may decide differently. Sure?",
    )
    with MasterClient(url, timeout_s=10.0) as client:
        left = client.adopt_votes(nodes)["view"]
        found = _await_decisions(client, wait)
    result = {"node": node, "left": left, "without": nodes, "synchro": found}
    print_answer(cluster.json, result, f"view {found['view']} decides without {', '.join(nodes)}")


def _await_decisions(client: MasterClient, wait: float) -> dict[str, Any]:
    """What the master shows, as soon as its view decides."""
    until = time.monotonic() + wait
    while not (found := client.synchro())["quorate"]:
        if time.monotonic() > until:
            status = client.status()
            text = f"no view decides after {wait:g} s: {status.view.holding or status.state}"
            raise Unavailable("NoView", f"{text}; repeat the command if that master has restarted")
        time.sleep(POLL_INTERVAL_S)
    return found


def print_synchro(found: dict[str, Any]) -> None:
    """Print what ``GET /txlog/synchro`` answers."""
    votes, queue = found["electorate"], found["queue"]
    if found["anchor"] is None:
        print_line("no view has begun synchronous transactions; a rule for graphs begins them")
    else:
        word = "decides" if found["quorate"] else "decides nothing"
        print_line(f"view {found['view']} {word}: {votes['here']} of {votes['votes']} votes are here")
        rows = [(m["node"], m["votes"], _yes(m["here"]), _yes(m["counts"])) for m in votes["masters"]]
        show_table(["MASTER", "VOTES", "HERE", "COUNTS"], rows)
    if found["graphs"]:
        out.print()
        rules = [
            (r["match"], r["quorum"], r["needs"], r["here"], _yes(r["reached"]), r["timeout"]) for r in found["graphs"]
        ]
        show_table(["GRAPHS", "QUORUM", "NEEDS", "HERE", "REACHED", "TIMEOUT"], rules)
    out.print()
    print_line(
        f"{queue['undecided']} undecided, the oldest for {queue['oldestSeconds']:.1f} s, {queue['doomed']} to be "
        f"rolled back; {queue['own']} of {queue['limit']} are this master's own"
    )
    if found["undecided"]:
        entries = [
            (e["txid"], e["state"], e["quorum"], e["needs"], " ".join(e["held"]), f"{e['ageSeconds']:.1f} s")
            for e in found["undecided"]
        ]
        show_table(["TXID", "STATE", "QUORUM", "NEEDS", "HELD BY", "AGE"], entries)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
