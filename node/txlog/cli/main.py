"""The command ``txlog``. Exit codes: 0 done; 1 refused, not reached, or (``verify``) different; 2 wrong usage."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

import txlog
from txlog.backup.backup_errors import describe
from txlog.bulk import bulk_errors
from txlog.cli import (
    archive_commands,
    backup_commands,
    bulk_commands,
    cluster_commands,
    journal_commands,
    link_commands,
    load_commands,
    log_commands,
    override_commands,
    peer_commands,
    point_commands,
    rehearsal_commands,
    rejoin_commands,
    repository_commands,
    settings_commands,
    site_commands,
    split_commands,
    synchro_commands,
    top_commands,
    user_commands,
    worker_commands,
)
from txlog.cli.tables import err
from txlog.model.errors import TxLogError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="TxLog: one log for the RDF stores of several data centres.",
)
for module in (
    cluster_commands,
    log_commands,
    load_commands,
    worker_commands,
    split_commands,
    settings_commands,
    override_commands,
    peer_commands,
    rejoin_commands,
    rehearsal_commands,
    top_commands,
):
    app.add_typer(module.app)  # without a name: its commands are the root's
app.add_typer(worker_commands.worker_app, name="worker")
app.add_typer(peer_commands.peer_app, name="peer")
app.add_typer(synchro_commands.synchro_app, name="synchro")
app.add_typer(backup_commands.app, name="backup")
app.add_typer(bulk_commands.app, name="bulk")
app.add_typer(archive_commands.app, name="archive")
app.add_typer(point_commands.app, name="restore-point")
app.add_typer(repository_commands.app, name="repository", hidden=True)  # no manifest configures several yet
app.add_typer(link_commands.app, name="link")
app.add_typer(site_commands.app, name="site")
app.add_typer(journal_commands.journal_app, name="journal")
app.add_typer(user_commands.user_app, name="user")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(getattr(txlog, "__version__", "0.1.0"))
        raise typer.Exit


@app.callback()
def _root_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. An error outside of TxLog never shows a stack trace."""
    handle_errors(app)


def handle_errors(command: Callable[[], object]) -> None:
    """Run a command; print an error as one sentence and exit with its code."""
    try:
        command()
    except TxLogError as error:
        err.print(_describe_error(error), style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `txlog log | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _describe_error(error: TxLogError) -> str:
    """The name comes first where a page lists it, so that it can be looked up."""
    is_listed = type(error).__module__ == bulk_errors.__name__
    return f"{error.name}: {error}" if is_listed else describe(error)


if __name__ == "__main__":
    main()
