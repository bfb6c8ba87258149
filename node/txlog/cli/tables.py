"""Output on a terminal and for programs: tables, times, sizes, JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

out = Console(width=None if sys.stdout.isatty() else 200)  # a file has no width, and 80 columns would fold its rows
err = Console(stderr=True)

Row = Sequence[object]
"""The cells of a row: a :class:`rich.text.Text` as it is, None as an empty cell, else as ``str`` shows it."""


def open_progress(quiet: bool, *columns: ProgressColumn) -> Progress:
    """Bars with these columns, drawn on a terminal alone and unless ``quiet``. They leave nothing behind."""
    shown = (TextColumn("{task.description}", markup=False), BarColumn(), *columns, TimeRemainingColumn())
    return Progress(*shown, console=err, transient=True, disable=quiet or not err.is_terminal)


def show_json(value: Any) -> None:
    """Print a value as indented JSON, regardless of the terminal's width."""
    typer.echo(json.dumps(msgspec.to_builtins(value, str_keys=True), indent=2))


def show_table(columns: Sequence[str], rows: Iterable[Row], empty: str = "nothing") -> None:
    """Print a table; ``empty`` is the text when there is no row."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text("" if cell is None else str(cell)) for cell in row))
    out.print(table if table.row_count else empty)


def show_section(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print an empty line and a table; nothing when there is no row."""
    if rows:
        out.print()
        show_table(columns, rows)


def print_rows(as_json: bool, value: Any, columns: Sequence[str], rows: Iterable[Row], empty: str = "nothing") -> None:
    """Print a list, as JSON or as a table of these rows."""
    if as_json:
        show_json(value)
    else:
        show_table(columns, rows, empty)


def print_line(text: str, style: str | None = None) -> None:
    """Print a line to standard output, without highlighting numbers and names."""
    out.print(text, style=style, highlight=False)


def print_answer(as_json: bool, value: Any, text: str, style: str | None = None) -> None:
    """Print the result of a command, as JSON or in words."""
    if as_json:
        show_json(value)
    else:
        print_line(text, style)


def warn(text: str, style: str = "yellow") -> None:
    """Print a line to standard error."""
    err.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def format_time(at: float | None) -> str:
    """Seconds since 1970 as a UTC time; ``?`` for an unknown one."""
    return "?" if at is None else time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))


def format_size(size: int) -> str:
    """Bytes with a decimal unit, such as ``1.5 MB``."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def format_cell(value: Any) -> str:
    """A field of a JSON answer as a cell: text as it is, None as an empty cell, all else as compact JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


UNDECIDED_SHOWN: Final = 10
"""So many transactions are named in a sentence; ``--json`` has them all."""
_STATE_COLOURS = {
    **dict.fromkeys(("Running", "Shipping", "Following", "Joined", "Online", "Working", "equal"), "green"),
    **dict.fromkeys(("Starting", "Founding", "Waiting", "Suspected", "Behind", "Learning", "Loading"), "yellow"),
    **dict.fromkeys(("Rejoining", "Left", "Unknown", "Unordered", "OutOfOrder", "GoingOffline"), "yellow"),
    **dict.fromkeys(("Stopped", "Offline"), "dim"),
}


def colour_state(state: str, like: str | None = None) -> Text:
    """The name of a state, in the colour of the state ``like``, by default its own. Unknown states are errors: red."""
    return Text(state, style=_STATE_COLOURS.get(like or state, "red"))


def describe_undecided(txids: Sequence[str]) -> str:
    """The sentence for synchronous transactions that are neither committed nor rolled back at a place of the log."""
    more = f" and {len(txids) - UNDECIDED_SHOWN:,} more" if len(txids) > UNDECIDED_SHOWN else ""
    return f"undecided there, so left out of the data: {', '.join(txids[:UNDECIDED_SHOWN])}{more}"
