"""``txlog link``: slow and cut the links between the masters of a local cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from txlog.cli.output import DEFAULT_STATE, JsonOption, StateOption, coloured, out, show_json, show_table
from txlog.config.units import parse_duration
from txlog.local.control import Control
from txlog.local.state import StateFolder
from txlog.model.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="Slow and cut the links between the masters of a local cluster.")

One = Annotated[str, typer.Argument(help="a data centre (all its masters) or a master")]


@app.command()
def delay(
    a: One,
    b: One,
    time: Annotated[str, typer.Argument(help="each way, such as 50ms; 0 ends it")],
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Bytes between A and B arrive later, each way."""
    try:
        milliseconds = parse_duration(time)
    except ValueError as error:
        raise BadInput(f"{time}: expected {error}") from None
    _said(Control(StateFolder(state)).delay(a, b, milliseconds), f"{milliseconds} ms later", json)


@app.command()
def cut(
    a: One,
    b: One,
    one_way: Annotated[bool, typer.Option("--one-way", help="only what A says to B is lost")] = False,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """No byte between A and B any more, as behind a packet filter: nothing is closed, nothing is refused."""
    _said(Control(StateFolder(state)).cut(a, b, one_way), "cut", json)


@app.command()
def heal(
    a: Annotated[str | None, typer.Argument(help="without: all links")] = None,
    b: Annotated[str | None, typer.Argument(help="without: all links of A")] = None,
    delays: Annotated[bool, typer.Option("--delays", help="end delays, too")] = False,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """End cuts; delays stay unless --delays."""
    _said(Control(StateFolder(state)).heal(a, b, delays=delays), "healed", json)


@app.command("list")
def list_links(state: StateOption = DEFAULT_STATE, json: JsonOption = False) -> None:
    """Every direction between two masters."""
    rows = Control(StateFolder(state)).links()
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
                coloured("cut") if row["cut"] else "",
                row["connections"],
            )
            for row in rows
        ],
        "no links: there is one master only",
    )


def _said(directions: int, what: str, json: bool) -> None:
    if json:
        show_json({"directions": directions})
    else:
        out.print(f"{directions} direction{'s' if directions != 1 else ''}: {what}")
