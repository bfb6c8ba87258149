"""``txlog synchro``: whether synchronous transactions can be committed here, and which ones wait for their decision."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from txlog.cli.cli_cluster import find_cluster
from txlog.cli.options import ClusterOptions, register
from txlog.cli.tables import out, print_line, show_json, show_table
from txlog.client import MasterClient

NOT_REACHED_EXIT = 4
"""The exit code where the quorum of a rule is not here."""
WATCH_INTERVAL_S = 1.0


def add_to(app: typer.Typer) -> None:
    """Add ``synchro``."""
    register(app)(synchro)


def synchro(
    watch: Annotated[bool, typer.Option("--watch", help="show it again each second, until interrupted")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show whether this side decides about synchronous transactions, and what is undecided. Exit code 4 where the
    quorum of a rule is not here."""
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
