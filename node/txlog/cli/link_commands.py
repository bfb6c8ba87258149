"""``txlog link``: slow and cut the links between the masters of a local cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from txlog.cli.output import DEFAULT_STATE, JsonOption, StateOption, colour_state, out, show_json, show_table
from txlog.config.units import parse_duration
from txlog.local.state_folder import StateFolder
from txlog.local.supervisor_client import SupervisorClient
from txlog.model.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="Delay and cut the links between the masters of a local cluster.")

LinkEndArgument = Annotated[str, typer.Argument(help="a data centre (all its masters) or a master")]


@app.command()
def delay(
    a: LinkEndArgument,
    b: LinkEndArgument,
    time: Annotated[str, typer.Argument(help="in each direction, such as 50ms; 0 ends it")],
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Delay all bytes between A and B, in both directions."""
    try:
        milliseconds = parse_duration(time)
    except ValueError as error:
        raise BadInput(f"{time}: expected {error}") from None
    _print_result(SupervisorClient(StateFolder(state)).delay(a, b, milliseconds), f"{milliseconds} ms later", json)


@app.command()
def cut(
    a: LinkEndArgument,
    b: LinkEndArgument,
    one_way: Annotated[bool, typer.Option("--one-way", help="drop only what A sends to B")] = False,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Drop every byte between A and B, as a packet filter does: no connection is closed or refused."""
    _print_result(SupervisorClient(StateFolder(state)).cut(a, b, one_way), "cut", json)


@app.command()
def heal(
    a: Annotated[str | None, typer.Argument(help="default: all links")] = None,
    b: Annotated[str | None, typer.Argument(help="default: all links of A")] = None,
    delays: Annotated[bool, typer.Option("--delays", help="also end delays")] = False,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """End cuts. Delays stay, unless `--delays` is given."""
    _print_result(SupervisorClient(StateFolder(state)).heal(a, b, delays=delays), "healed", json)


@app.command("list")
def list_links(state: StateOption = DEFAULT_STATE, json: JsonOption = False) -> None:
    """List every direction between two masters."""
    rows = SupervisorClient(StateFolder(state)).links()
    if json:
        show_json(rows)
        return
    show_table(
        ["FROM", "TO", "DELAY", "", "CONNECTIONS"],
        [
            (
                row["from"],
                row["to"],
                f"{row['delayMs']:g} ms" if row["delayMs"] else "",
                colour_state("cut") if row["cut"] else "",
                row["connections"],
            )
            for row in rows
        ],
        "no links: there is one master only",
    )


def _print_result(directions: int, what: str, json: bool) -> None:
    if json:
        show_json({"directions": directions})
    else:
        out.print(f"{directions} direction{'s' if directions != 1 else ''}: {what}")
