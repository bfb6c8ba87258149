"""Words for people on a terminal, JSON for machines; and where the masters are."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from txlog.client import MasterClient, MasterUnreachable
from txlog.client.ca_trust import CA_FILE
from txlog.client.credentials import TOKEN_FILE
from txlog.local.local_errors import NotRunning
from txlog.local.state_folder import DEFAULT_FOLDER, StateFolder
from txlog.model.errors import BadInput, TxLogError, Unavailable

T = TypeVar("T")

out = Console(width=None if sys.stdout.isatty() else 200)  # nobody wants 80 columns in a file
err = Console(stderr=True)

StateOption = Annotated[Path, typer.Option("--state", help="the state folder of the local cluster", show_default=True)]
MasterOption = Annotated[
    list[str] | None, typer.Option("--master", help="URL of a master. Default: from the state folder")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]
DEFAULT_STATE = DEFAULT_FOLDER
REQUEST_TIMEOUT_S = 10.0


ClientFactory = Callable[[str, float], MasterClient]
"""From a URL and the seconds that an answer may take."""


@dataclass(frozen=True)
class CliCluster:
    """The masters' URLs by data centre; ``state`` is None when they were given by hand. ``open_client``: how one is
    spoken with."""

    data_centers: dict[str, list[str]]
    state: StateFolder | None
    open_client: ClientFactory = MasterClient

    @property
    def masters(self) -> list[str]:
        return [url for urls in self.data_centers.values() for url in urls]


def find_cluster(state: Path, masters: Sequence[str] | None) -> CliCluster:
    """From ``--master``, else from the state folder. :class:`NotRunning` when nothing runs there."""
    if masters:
        for url in masters:
            if not url.startswith(("http://", "https://")):
                raise BadInput(f"--master {url}: expected a URL such as http://127.0.0.1:7301")
        found: dict[str, list[str]] = {}
        for url in masters:
            with MasterClient(url) as client:
                found.setdefault(client.status().data_center, []).append(url)
        return CliCluster(found, None)
    folder = StateFolder(state)
    if not folder.exists or not folder.is_locked:
        raise NotRunning(folder.root)
    use_credentials(folder)
    topology = folder.topology()
    return CliCluster({dc: [m.url for m in topology.masters_of(dc)] for dc in topology.data_centers}, folder)


def use_credentials(folder: StateFolder) -> None:
    """Who may read the state folder may do everything there: its own token is shown, and its authorities
    are believed, unless others were named."""
    if folder.own_token_file.exists():
        os.environ.setdefault(TOKEN_FILE, str(folder.own_token_file))
    if folder.trusted_file.exists():
        os.environ.setdefault(CA_FILE, str(folder.trusted_file))


def first_answer(urls: Sequence[str], ask: Callable[[MasterClient], T], opened: ClientFactory = MasterClient) -> T:
    """Of the first master that answers; its refusal is an answer."""
    last: TxLogError | None = None
    for url in urls:
        with opened(url, REQUEST_TIMEOUT_S) as client:
            try:
                return ask(client)
            except (MasterUnreachable, Unavailable) as error:
                last = error
    raise Unavailable("NoMaster", f"no master answers: {last}")


def show_json(value: Any) -> None:
    """Plain, whole, without the width of a terminal."""
    typer.echo(json.dumps(msgspec.to_builtins(value, str_keys=True), indent=2))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str = "nothing") -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    count = 0
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text("" if cell is None else str(cell)) for cell in row))
        count += 1
    out.print(table if count else empty)


_STATE_COLOURS = {
    "Running": "green",
    "Joined": "green",
    "Working": "green",
    "equal": "green",
    "Starting": "yellow",
    "Founding": "yellow",
    "Waiting": "yellow",
    "Suspected": "yellow",
    "Learning": "yellow",
    "Loading": "yellow",
    "Rejoining": "yellow",
    "Left": "yellow",
    "Unknown": "yellow",
    "Unordered": "yellow",
    "Stopped": "dim",
}


def colour_state(state: str) -> Text:
    """A state's name; what nobody wants to see is red."""
    return Text(state, style=_STATE_COLOURS.get(state, "red"))
