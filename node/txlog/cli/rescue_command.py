"""``txlog archive rescue``: what a survivor of a lost cluster holds beyond its archive's end, given again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from txlog.backup.progress import BackupProgress, ProgressCallback
from txlog.cli.cli_cluster import find_cluster
from txlog.cli.options import ClusterOptions, TargetOptions, YesOption, confirm
from txlog.cli.tables import colour_state, format_size, print_line, show_json, show_table
from txlog.cli.worker_access import progress_bars
from txlog.client import MasterClient
from txlog.model.errors import BadInput
from txlog.model.ids import parse_txid
from txlog.successor.archived_branches import ArchivedBranches
from txlog.successor.recovery_lineage import Lineage
from txlog.successor.rescue import (
    give_to_masters,
    lacks_nothing,
    open_lineage,
    read_rescue,
    record_rescue,
    row_to_dict,
)
from txlog.successor.rescue_plan import RescueRow, RescueState, choose_rows
from txlog.successor.rescued_keys import OnStep
from txlog.successor.successor_errors import NotASuccessor
from txlog.successor.survivor_journal import SurvivorJournal
from txlog.wire.log_page import KIND_NAMES

SHOWN_ROWS: Final = 50


def rescue_survivor(
    journal: Annotated[
        Path | None,
        typer.Argument(help="the journal folder of a master that survived; without it: other branches in the archive"),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="give only this transaction again")] = None,
    excluded: Annotated[list[str] | None, typer.Option("--except", help="do not give this transaction again")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be given again")] = False,
    yes: YesOption = False,
    *,
    target: TargetOptions,
    cluster: ClusterOptions,
) -> None:
    """Give again what a survivor of a lost cluster has and its successor lacks. Each transaction is given under its
    client's idempotency key, so a retry does not double it. The journal is read offline and stays as it is. Repeating
    the command is harmless. Exit code 1 if something was refused, or is not known yet."""
    names = {option: _parse_ids(option, given) for option, given in (("--only", only), ("--except", excluded))}
    with ExitStack() as closing_all:
        found = find_cluster(cluster)
        masters = [closing_all.enter_context(MasterClient(url)) for url in found.masters]
        place = target.open(cluster.state)
        successor, lineage = open_lineage(place, masters)
        progress = closing_all.enter_context(progress_bars(cluster.json))
        on_step = to_steps(progress)
        source = closing_all.enter_context(closing(_open_source(journal, lineage, progress)))
        rows = read_rescue(place, successor, lineage, source, on_step)
        rows = choose_rows(rows, names["--only"] if only else None, names["--except"])
        if dry_run:
            _show(rows, lineage, as_json=cluster.json)
            return
        count = sum(row.state is RescueState.LACKING for row in rows)
        is_asked = count and not cluster.json
        confirm(yes or not is_asked, f"{count:,} transactions are given again, after all that came since. Sure?")
        rows = give_to_masters(rows, source, successor, lambda done, of: on_step("giving transactions again", done, of))
    record_rescue(lineage, rows, time.time())
    _show(rows, lineage, as_json=cluster.json)
    if not lacks_nothing(rows):
        raise typer.Exit(1)


def _parse_ids(option: str, given: Sequence[str] | None) -> set[str]:
    ids = [part for text in given or () for part in text.split(",") if part]
    for text in ids:
        try:
            parse_txid(text)
        except BadInput as wrong:
            raise BadInput(f"{option}: {wrong}") from None
    return set(ids)


def _open_source(
    journal: Path | None, lineage: Lineage, progress: ProgressCallback
) -> ArchivedBranches | SurvivorJournal:
    if journal is None:
        return ArchivedBranches(lineage.streams, lineage.claim.place, to_steps(progress))
    progress(BackupProgress("reading the journal", 0, None, str(journal)))
    survivor = SurvivorJournal(journal)
    if survivor.cluster in lineage.predecessors:
        return survivor
    survivor.close()
    if survivor.cluster.hex() == lineage.claim.successor:
        raise NotASuccessor(f"{journal} is of {survivor.own}, a master of this very cluster: start the master with it")
    raise NotASuccessor(
        f"{journal} is of the cluster {survivor.cluster.hex()}, and {lineage.claim.successor} has taken the place of "
        f"{lineage.stream.id.cluster.hex()}: nothing of it belongs here"
    )


def to_steps(progress: ProgressCallback) -> OnStep:
    """Passes the steps of a rescue on to progress bars."""

    def step(phase: str, done: int, of: int | None) -> None:
        progress(BackupProgress(phase, done, of))

    return step


def _show(rows: Sequence[RescueRow], lineage: Lineage, *, as_json: bool) -> None:
    counts = {state.value: sum(row.state is state for row in rows) for state in RescueState}
    if as_json:
        show_json(
            {
                "cluster": lineage.claim.successor,
                "lost": lineage.stream.id.cluster.hex(),
                "position": {"index": lineage.claim.index, "hash": lineage.claim.hash},
                "counts": counts,
                "transactions": [row_to_dict(row) for row in rows],
            }
        )
        return
    show_table(
        ["TRANSACTION", "KIND", "KEY", "BYTES", "STATE", "NOW", "NOTE"],
        [_to_cells(row) for row in rows[:SHOWN_ROWS]],
        f"nothing is beyond index {lineage.claim.index} that the cluster {lineage.claim.successor} lacks",
    )
    if len(rows) > SHOWN_ROWS:
        print_line(f"and {len(rows) - SHOWN_ROWS:,} more: --json shows all", style="dim")
    if rows:
        print_line(", ".join(f"{count:,} {name}" for name, count in counts.items() if count))


def _to_cells(row: RescueRow) -> tuple[Any, ...]:
    one = row.candidate
    is_good = row.state in (RescueState.GIVEN, RescueState.PRESENT)
    state = colour_state(row.state.value, "Running" if is_good else None)
    kind = KIND_NAMES.get(one.kind, str(one.kind) if one.kind else "")
    return str(one.txid), kind, one.key, format_size(one.size), state, row.new, row.note
