"""``txlog journal``: a journal folder while its master is stopped."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from txlog.cli.options import JsonOption
from txlog.cli.tables import format_cell, show_table
from txlog.model.errors import NotFound

journal_app = typer.Typer(no_args_is_help=True, help="Inspect a journal folder while its master is stopped.")

JournalFolderArgument = Annotated[Path, typer.Argument(help="a journal folder, such as .txlog/masters/uk-1/journal")]


@journal_app.command("check")
def check_journal(folder: JournalFolderArgument, json: JsonOption = False) -> None:
    """Read a journal and check every hash. Exit code 1 if it would not open without damage."""
    from txlog.journal import inspection

    found = inspection.check_journal(_existing_folder(folder))
    if json:
        typer.echo(msgspec.json.encode({"ok": found.ok, **asdict(found)}, enc_hook=str).decode())
    else:
        show_table(
            ["", "sound" if found.ok else "NOT SOUND"],
            [
                (name.replace("_", " "), format_cell(value))
                for name, value in asdict(found).items()
                if value not in ("", [], {})
            ],
        )
    if not found.ok:
        raise typer.Exit(1)


@journal_app.command("show")
def show_journal(folder: JournalFolderArgument, json: JsonOption = False) -> None:
    """Print a journal, record by record."""
    from txlog.journal import inspection

    for line in inspection.dump_journal(_existing_folder(folder)):
        typer.echo(msgspec.json.encode(line).decode() if json else line)


def _existing_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise NotFound(f"{folder}: no such folder; expected a journal folder, such as .txlog/masters/uk-1/journal")
    return folder
