"""The command ``txlog``. Exit codes: 0 done; 1 refused, not reached, or (``verify``) different; 2 wrong usage."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

import txlog
from txlog.backup.backup_errors import describe
from txlog.cli import (
    asking,
    backing,
    links,
    local,
    members,
    moving,
    ordering,
    rejoining,
    repairing,
    restoring,
    setting,
    splits,
    staffing,
    users,
    watching,
)
from txlog.cli.output import err
from txlog.model.errors import TxLogError
from txlog.workers.virtuoso import PROCEDURES

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="TxLog: one log for the RDF stores of several data centres.",
)
local.add_to(app)
asking.add_to(app)
watching.add_to(app)
moving.add_to(app)
restoring.add_to(app, asking.worker)
staffing.add_to(asking.worker)
repairing.add_to(asking.worker)
splits.add_to(app)
setting.add_to(app)
ordering.add_to(app)
members.add_to(app)
rejoining.add_to(app)
app.add_typer(backing.app, name="backup")
app.add_typer(links.app, name="link")
app.add_typer(asking.journal, name="journal")
app.add_typer(asking.worker, name="worker")
app.add_typer(users.user, name="user")


@app.command("virtuoso-sql")
def virtuoso_sql() -> None:
    """What makes a Virtuoso a worker, for `isql-vt HOST:PORT dba PASSWORD`; it may be run again."""
    typer.echo(PROCEDURES.read_text(), nl=False)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(getattr(txlog, "__version__", "0.1.0"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="and exit")] = False,
) -> None:
    pass


def main() -> None:
    """Never a stack trace for what went wrong outside of TxLog."""
    spoken(app)


def spoken(command: Callable[[], object]) -> None:
    """Its errors as one sentence and an exit code."""
    try:
        command()
    except TxLogError as error:
        err.print(describe(error), style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `txlog log | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
