"""``txlog log``, ``skip`` and ``watch``: entries of the log, and the log as it grows."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from txlog.cli.changes_view import watch_changes
from txlog.cli.cli_cluster import find_cluster
from txlog.cli.options import ClusterOptions, MasterOption, StateOption, YesOption, confirm, register
from txlog.cli.tables import format_cell, print_answer, print_rows
from txlog.client import FeedFollower, MasterClient
from txlog.local.state_folder import DEFAULT_FOLDER
from txlog.model.entry_effects import find_effects
from txlog.model.errors import BadInput
from txlog.model.ids import parse_txid
from txlog.model.stamp import stamp_ms
from txlog.wire.change_feed import (
    NDJSON_MEDIA_TYPE,
    RDF_PATCH_MEDIA_TYPE,
    SSE_MEDIA_TYPE,
    FeedEvent,
    is_inexpressible_in_patch,
    render_event,
)
from txlog.wire.log_page import KIND_NAMES, LogPage, PageEntry

app = typer.Typer()
LIMIT_MAX = 100_000
HOUR_MS = 3600 * 1000


class FeedFormat(Enum):
    """How ``watch`` writes events: server-sent events, RDF Patch, or JSON lines."""

    EVENTS = "events"
    PATCH = "patch"
    JSON = "json"


class FeedLevel(Enum):
    """The entries that ``watch`` shows: stable ones, or only final ones, which no rejoin moves."""

    STABLE = "stable"
    FINAL = "settled"


class UpdateHandling(Enum):
    """What ``watch`` does with a SPARQL update, which RDF Patch cannot express: stop, write it into a header, or write
    what it really deleted and added."""

    STOP = "stop"
    HEADER = "header"
    QUADS = "quads"


_MEDIA_TYPES = {
    FeedFormat.EVENTS: SSE_MEDIA_TYPE,
    FeedFormat.PATCH: RDF_PATCH_MEDIA_TYPE,
    FeedFormat.JSON: NDJSON_MEDIA_TYPE,
}


@register(app, "log")
def show_log(
    after: Annotated[
        int | None, typer.Option(min=0, help="only entries above this index", show_default="the last ones")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="the largest number of entries")] = 20,
    full: Annotated[bool, typer.Option(help="print whole payloads")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """List entries of the log, up to the stable index."""
    entries = find_cluster(cluster).ask_first(lambda client: _log_entries(client, after, limit))
    print_rows(
        cluster.json,
        [_entry_to_dict(entry) for entry in entries],
        ["INDEX", "TXID", "TIME (ms)", "KIND", "BYTES", "PAYLOAD"],
        [
            (
                entry.index,
                entry.txid,
                stamp_ms(entry.stamp),
                KIND_NAMES.get(entry.kind, entry.kind),
                len(entry.payload),
                f"({entry.noop})" if entry.noop else _payload_text(_executed_bytes(entry), full),
            )
            for entry in entries
        ],
        "the log is empty",
    )


def _log_entries(client: MasterClient, after: int | None, limit: int) -> list[PageEntry]:
    if after is None:
        after = max(0, client.status().stable.index - limit)
    found: list[PageEntry] = []
    while len(found) < limit:
        page: LogPage = client.log_page(after, upto=after + limit - len(found))
        if not page.entries:
            break
        found += page.entries
        after = found[-1].index
    return found[:limit]


def _executed_bytes(entry: PageEntry) -> bytes:
    """The payloads of all that takes effect at the entry, one after the other."""
    return b"\n".join(effect.payload for effect in find_effects(entry.entry)) or entry.payload


def _payload_text(payload: bytes, full: bool) -> str:
    text = payload.decode("utf-8", "replace").rstrip("\n")
    if full or len(text) <= 80:
        return text
    return text[:80].replace("\n", " ") + "…"


def _entry_to_dict(entry: PageEntry) -> dict[str, Any]:
    return {
        "index": entry.index,
        "hash": entry.hash.hex(),
        "txid": str(entry.txid),
        "stamp": entry.stamp,
        "kind": KIND_NAMES.get(entry.kind, str(entry.kind)),
        "noop": entry.noop,
        "payload": _executed_bytes(entry).decode("utf-8", "replace"),
    }


@register(app)
def skip(
    txid: Annotated[str, typer.Argument(help="id of the transaction, such as uk-1.00c0ffee00c0ffee.42")],
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Make every worker skip a transaction that it refuses. Its entry stays in the log, permanently without effect."""
    parse_txid(txid)
    masters = find_cluster(cluster)
    confirm(yes, f"{txid} will have no effect on any worker, ever. Skip it?")
    answer = masters.ask_first(lambda client: client.skip(txid))
    print_answer(cluster.json, answer, f"{txid} is passed over once that is stable: {format_cell(answer)}")


def describe_inexpressible(event: FeedEvent) -> str:
    """Why RDF Patch ends before this entry, and what to do."""
    if len(event.commits) > 1:
        return (
            f"the entry after {event.previous}, {event.txid}, commits several transactions, one of them a SPARQL "
            "update, which RDF Patch cannot say: --updates quads what it changed, --format json as it is"
        )
    return (
        f"the entry after {event.previous}, {event.txid}, is a SPARQL update, which RDF Patch cannot say: "
        "--updates header writes it into a header, --updates quads what it changed, --format json as it is"
    )


@register(app)
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
        FeedLevel | None,
        typer.Option(
            help="settled: only final entries, which no rejoin can move",
            show_default="stable; settled with --updates quads",
        ),
    ] = None,
    updates: Annotated[
        UpdateHandling,
        typer.Option(help="for SPARQL updates in RDF Patch: stop, or write a header; quads: what each entry changed"),
    ] = UpdateHandling.STOP,
    changes: Annotated[
        Path | None,
        typer.Option(
            help="with --updates quads: a folder for a capture store of this command, instead of the cluster's",
            show_default="STATE/changesets where the cluster has none",
        ),
    ] = None,
    keep: Annotated[int, typer.Option(min=1, help="hours that this folder keeps change sets")] = 24,
    state: StateOption = DEFAULT_FOLDER,
    master: MasterOption = None,
) -> None:
    """Follow the log: every entry once, in order, from any master that answers. Each event has an id, and `--from ID`
    continues after it."""
    cluster = find_cluster(ClusterOptions(state, master))
    if until == "now":
        end: int | None = cluster.ask_first(MasterClient.status).stable.index
    elif until is None or (until.isascii() and until.isdecimal() and len(until) < 19):
        end = int(until) if until is not None else None
    else:
        raise BadInput(f"--until {until}: an index of the log, or now")
    feed = sys.stdout.buffer
    is_quads = updates is UpdateHandling.QUADS
    settled = is_quads if level is None else level is FeedLevel.FINAL
    events: Iterable[FeedEvent]
    if is_quads and (changes is not None or cluster.ask_first(MasterClient.status).change_sets is None):
        events = watch_changes(
            cluster, changes or state / "changesets", start, end, settled=settled, keep_ms=keep * HOUR_MS
        )
    else:
        events = FeedFollower(cluster.masters, start, until=end, settled=settled, change_sets=is_quads)
    for event in events:
        if form is FeedFormat.PATCH and is_inexpressible_in_patch(
            event, reads_updates=updates is not UpdateHandling.STOP
        ):
            raise BadInput(describe_inexpressible(event))
        feed.write(render_event(event, _MEDIA_TYPES[form]))
        feed.flush()
