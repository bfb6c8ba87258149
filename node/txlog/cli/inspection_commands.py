"""``txlog peers``, ``log``, ``skip``, ``worker list``, ``journal_app``: questions to masters, and to files at rest."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from txlog.cli.divergence_view import print_divergence
from txlog.cli.output import (
    DEFAULT_STATE,
    CliCluster,
    JsonOption,
    MasterOption,
    StateOption,
    colour_state,
    find_cluster,
    first_answer,
    out,
    show_json,
    show_table,
)
from txlog.client import MasterClient
from txlog.model.errors import NotFound, TxLogError
from txlog.model.ids import parse_txid
from txlog.model.stamp import stamp_ms
from txlog.runtime.connectivity_matrix import diagnose
from txlog.wire.log_page import KIND_NAMES, LogPage, PageEntry

journal_app = typer.Typer(no_args_is_help=True, help="Inspect a journal folder while its master is stopped.")
worker_app = typer.Typer(no_args_is_help=True, help="List, add, rebuild, repair and remove workers.")

LIMIT_MAX = 100_000


def add_to(app: typer.Typer) -> None:
    app.command()(peers)
    app.command("log")(show_log)
    app.command()(skip)


def peers(state: StateOption = DEFAULT_STATE, master: MasterOption = None, json: JsonOption = False) -> None:
    """Show the peers of the first master that answers, and which master receives messages from which."""
    show_peers(find_cluster(state, master), json)


def show_peers(cluster: CliCluster, json: bool) -> None:
    found = first_answer(cluster.masters, MasterClient.peers, cluster.open_client)
    rows = _connectivity(cluster)
    wrong = diagnose(rows)
    if json:
        hears = {node: sorted(row) if row is not None else None for node, row in rows.items()}
        show_json({"peers": found, "hears": hears, "findings": [finding.to_dict() for finding in wrong]})
        return
    columns = [name for name in _PEER_COLUMNS if any(name in row for row in found)]
    heads = [_PEER_COLUMNS[name] for name in columns]
    show_table(heads, [[_format_cell(row.get(name)) for name in columns] for row in found], "no peers")
    if rows:
        out.print()
        show_table(
            ["HEARS", *rows],
            [[node, *(_connectivity_cell(node, other, row) for other in rows)] for node, row in rows.items()],
        )
    for finding in wrong:
        out.print(f"{finding.kind}: {finding.text}", style="red", highlight=False)


_PEER_COLUMNS = {
    "node": "PEER",
    "dataCenter": "DATA CENTRE",
    "state": "STATE",
    "inView": "IN VIEW",
    "why": "OUT BECAUSE",
    "connected": "CONNECTED",
    "heard": "HEARD",
    "bothWays": "BOTH WAYS",
    "present": "PRESENT",
    "logIndex": "LOG",
    "start": "START",
    "faults": "FAULTS",
    "refused": "REFUSED",
    "lastFault": "LAST FAULT",
    "lastError": "LAST ERROR",
}


def _connectivity_cell(node: str, other: str, row: frozenset[str] | None) -> str:
    if node == other:
        return "."
    return "?" if row is None else "yes" if other in row else "NO"


def _connectivity(cluster: CliCluster) -> dict[str, frozenset[str] | None]:
    """Each master's own row, from itself where it answers here, else from whoever knows it: a mute master tells nobody
    but us."""
    rows: dict[str, frozenset[str] | None] = {}
    for url in cluster.masters:
        with cluster.open_client(url, 5.0) as client:
            try:
                own, told = client.status().node, client.connectivity()
            except TxLogError:
                continue
        for node, row in told.items():
            if row is not None and (node == own or rows.get(node) is None):
                rows[node] = frozenset(row)
            else:
                rows.setdefault(node, None)
    return rows


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def show_log(
    after: Annotated[
        int | None, typer.Option(min=0, help="only entries above this index", show_default="the last ones")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="the largest number of entries")] = 20,
    full: Annotated[bool, typer.Option(help="print whole payloads")] = False,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """List entries of the log, up to the stable index."""
    entries = first_answer(find_cluster(state, master).masters, lambda client: _log_entries(client, after, limit))
    if json:
        show_json([_entry_to_dict(entry) for entry in entries])
        return
    show_table(
        ["INDEX", "TXID", "TIME (ms)", "KIND", "BYTES", "PAYLOAD"],
        [
            (
                entry.index,
                entry.txid,
                stamp_ms(entry.stamp),
                KIND_NAMES.get(entry.kind, entry.kind),
                len(entry.payload),
                f"({entry.noop})" if entry.noop else _payload_text(entry.payload, full),
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
        "payload": entry.payload.decode("utf-8", "replace"),
    }


def skip(
    txid: Annotated[str, typer.Argument(help="id of the transaction, such as uk-1.00c0ffee00c0ffee.42")],
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Make every worker skip a transaction that it refuses. Its entry stays in the log, permanently without effect."""
    parse_txid(txid)
    masters = find_cluster(state, master).masters
    if not yes:
        typer.confirm(f"{txid} will have no effect on any worker, ever. Skip it?", abort=True)
    answer = first_answer(masters, lambda client: client.skip(txid))
    if json:
        show_json(answer)
    else:
        out.print(f"{txid} is passed over once that is stable: {_format_cell(answer)}")


@worker_app.command("list")
def list_workers(state: StateOption = DEFAULT_STATE, master: MasterOption = None, json: JsonOption = False) -> None:
    """List each worker, as the masters of its data centre report it."""
    cluster = find_cluster(state, master)
    found = {dc: first_answer(urls, MasterClient.workers) for dc, urls in cluster.data_centers.items()}
    if json:
        show_json([{"dataCenter": dc, **msgspec.to_builtins(w)} for dc, workers in found.items() for w in workers])
        return
    show_table(
        ["WORKER", "DATA CENTRE", "ENGINE", "STATE", "INDEX", "HELD AT", "URL", "ERROR"],
        [
            (
                w.name,
                dc,
                w.engine,
                colour_state(w.state),
                w.position.index if w.position else "",
                w.hold,
                w.url,
                w.error,
            )
            for dc, workers in found.items()
            for w in workers
        ],
        "no workers",
    )
    print_divergence(found)


JournalFolderArgument = Annotated[Path, typer.Argument(help="a journal folder, such as .txlog/masters/uk-1/journal")]


@journal_app.command("check")
def check_journal(folder: JournalFolderArgument, json: JsonOption = False) -> None:
    """Read a journal and check every hash. Exit code 1 if it would not open without damage."""
    from txlog.journal import inspection

    found = inspection.check_journal(_existing_folder(folder))
    if json:
        typer.echo(msgspec.json.encode({"ok": found.ok, **asdict(found)}, enc_hook=str).decode())
    else:
        told = {name.replace("_", " "): value for name, value in asdict(found).items() if value not in ("", [], {})}
        show_table(
            ["", "sound" if found.ok else "NOT SOUND"], [(name, _format_cell(value)) for name, value in told.items()]
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
