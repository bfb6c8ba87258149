"""``txlog link``: slow and cut the links between the masters of a local cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from txlog.cli.options import LocalOptions, option_ms, register
from txlog.cli.tables import colour_state, print_answer, print_rows
from txlog.local.supervisor_client import SupervisorClient

app = typer.Typer(no_args_is_help=True, help="Delay and cut the links between the masters of a local cluster.")

LinkEndArgument = Annotated[str, typer.Argument(help="a data centre (all its masters) or a master")]


@register(app)
def delay(
    a: LinkEndArgument,
    b: LinkEndArgument,
    time: Annotated[str, typer.Argument(help="in each direction, such as 50ms; 0 ends it")],
    *,
    local: LocalOptions,
) -> None:
    """Delay all bytes between A and B, in both directions."""
    milliseconds = option_ms("TIME", time)
    _print_result(SupervisorClient(local.folder).delay(a, b, milliseconds), f"{milliseconds} ms later", local.json)


@register(app)
def cut(
    a: LinkEndArgument,
    b: LinkEndArgument,
    one_way: Annotated[bool, typer.Option("--one-way", help="drop only what A sends to B")] = False,
    *,
    local: LocalOptions,
) -> None:
    """Drop every byte between A and B, as a packet filter does: no connection is closed or refused."""
    _print_result(SupervisorClient(local.folder).cut(a, b, one_way), "cut", local.json)


@register(app)
def heal(
    a: Annotated[str | None, typer.Argument(help="default: all links")] = None,
    b: Annotated[str | None, typer.Argument(help="default: all links of A")] = None,
    delays: Annotated[bool, typer.Option("--delays", help="also end delays")] = False,
    *,
    local: LocalOptions,
) -> None:
    """End cuts. Delays stay, unless `--delays` is given."""
    _print_result(SupervisorClient(local.folder).heal(a, b, delays=delays), "healed", local.json)


@register(app, "list")
def list_links(local: LocalOptions) -> None:
    """List every direction between two masters."""
    rows = SupervisorClient(local.folder).links()
    print_rows(
        local.json,
        rows,
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
    print_answer(json, {"directions": directions}, f"{directions} direction{'s' if directions != 1 else ''}: {what}")
