"""``txlog watch``: the log as it grows, for pipes and files."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated

import typer

from txlog.cli.output import DEFAULT_STATE, MasterOption, StateOption, find_cluster, first_answer
from txlog.client import FeedFollower, MasterClient
from txlog.model.errors import BadInput
from txlog.wire.change_feed import (
    NDJSON_MEDIA_TYPE,
    RDF_PATCH_MEDIA_TYPE,
    SSE_MEDIA_TYPE,
    is_inexpressible_in_patch,
    render_event,
)


class FeedFormat(Enum):
    EVENTS = "events"
    PATCH = "patch"
    JSON = "json"


class FeedLevel(Enum):
    STABLE = "stable"
    FINAL = "settled"


class UpdateHandling(Enum):
    STOP = "stop"
    HEADER = "header"


_MEDIA_TYPES = {
    FeedFormat.EVENTS: SSE_MEDIA_TYPE,
    FeedFormat.PATCH: RDF_PATCH_MEDIA_TYPE,
    FeedFormat.JSON: NDJSON_MEDIA_TYPE,
}


def add_to(app: typer.Typer) -> None:
    app.command()(watch)


def watch(
    start: Annotated[
        str,
        typer.Option("--from", metavar="POSITION", help="start after this: now, INDEX, or the id of an earlier event"),
    ] = "now",
    until: Annotated[
        str | None, typer.Option(metavar="INDEX|now", help="stop at this index", show_default="no end")
    ] = None,
    form: Annotated[
        FeedFormat, typer.Option("--format", help="server-sent events, RDF Patch or JSON lines")
    ] = FeedFormat.JSON,
    level: Annotated[
        FeedLevel, typer.Option(help="settled: only final entries, which no rejoin can move")
    ] = FeedLevel.STABLE,
    updates: Annotated[
        UpdateHandling, typer.Option(help="for SPARQL updates in RDF Patch: stop, or write a header")
    ] = UpdateHandling.STOP,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
) -> None:
    """Follow the log: every entry once, in order, from any master that answers. Each event has an id, and `--from ID`
    continues after it."""
    masters = find_cluster(state, master).masters
    if until == "now":
        end: int | None = first_answer(masters, MasterClient.status).stable.index
    elif until is None or (until.isascii() and until.isdecimal() and len(until) < 19):
        end = int(until) if until is not None else None
    else:
        raise BadInput(f"--until {until}: an index of the log, or now")
    out = sys.stdout.buffer
    for event in FeedFollower(masters, start, until=end, settled=level is FeedLevel.FINAL):
        if form is FeedFormat.PATCH and updates is UpdateHandling.STOP and is_inexpressible_in_patch(event):
            raise BadInput(
                f"the entry behind {event.previous}, {event.txid}, is a SPARQL update, which RDF Patch cannot say: "
                "--updates header writes it into a header, --format json as it is"
            )
        out.write(render_event(event, _MEDIA_TYPES[form]))
        out.flush()
