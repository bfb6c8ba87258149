"""``txlog up --from-archive``: a new cluster on this machine in the place of one that lost everything."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from txlog.archive.moment import format_milliseconds, parse_moment
from txlog.archive.moment_restore import MomentRequest, plan_restore
from txlog.archive.restore_plan import RestorePlan
from txlog.archive.stream_reader import StreamReader
from txlog.backup import RestoreTarget
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.backup.worker_lookup import READ_TIMEOUT_S
from txlog.cli.cli_cluster import use_credentials
from txlog.cli.moment_commands import find_stream, plan_to_dict
from txlog.cli.options import SuccessionOptions
from txlog.cli.rescue_command import to_steps
from txlog.cli.tables import describe_undecided, print_line, print_rows, show_table, warn
from txlog.cli.worker_access import progress_bars, retry_while
from txlog.client import MasterClient
from txlog.config.process_config import NodeConfig
from txlog.local.process_plan import ProcessPlan
from txlog.local.state_folder import StateFolder, WorkerLocation
from txlog.local.supervisor_main import plan_for
from txlog.model.entry import Span
from txlog.model.errors import BadInput, TxLogError, Unavailable, WorkerFault
from txlog.successor.inheritance import Inheritance
from txlog.successor.rescue import lacks_nothing, rescue_branches, row_to_dict
from txlog.successor.rescue_plan import RescueRow, RescueState
from txlog.successor.store_fill import fill_store
from txlog.successor.succession import (
    LOST_FILE,
    Succession,
    SuccessionRequest,
    found_successor,
    plan_succession,
    recovered_engine,
    refuse_survivors,
    set_aside,
)
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

STORE_START_S: Final = 120.0
SHOWN_SPANS: Final = 10


class BegunSuccession:
    """A new cluster whose first journal is written; its stores are still empty."""

    def __init__(
        self, options: SuccessionOptions, folder: StateFolder, plan: ProcessPlan, done: Succession, *, as_json: bool
    ) -> None:
        self._options = options
        self._folder = folder
        self._workers = plan.topology.workers
        self._masters = plan.master_configs
        self._done = done
        self._as_json = as_json
        self._filled: list[dict[str, Any]] = []
        self._master_urls = [url for dc in plan.topology.data_centers for url in plan.topology.master_urls(dc)]
        self._rescued: list[RescueRow] = []

    @property
    def summary(self) -> dict[str, Any]:
        """As JSON."""
        claim, inherited = self._done.claim, self._done.inherited
        return {
            "cluster": claim.successor,
            "position": {"index": claim.index, "hash": claim.hash},
            "moment": claim.moment,
            "copy": self._options.is_copy,
            **(inheritance_to_dict(inherited) if inherited is not None else {}),
            "stores": self._filled,
            "rescued": [row_to_dict(row) for row in self._rescued],
        }

    def fill_stores(self) -> None:
        """Fills every store that is not filled yet, one after the other, while the masters take writes."""
        began = time.monotonic()
        for worker in self._workers:
            with HttpTransport(worker.url, READ_TIMEOUT_S) as transport:
                self._fill(transport, worker, began)
        if not self._options.is_copy:
            self._rescue()

    def fill_or_report(self) -> None:
        """The same beside a supervisor in this process, which goes on when it fails."""
        try:
            self.fill_stores()
        except TxLogError as error:
            warn(
                f"the stores are not all filled: {error.name}: {error}; when that is mended, repeat this command", "red"
            )

    def _rescue(self) -> None:
        """What other branches of the archive hold, after a recovery to the latest moment."""
        try:
            rows = self._rescue_when_joined()
        except TxLogError as error:
            why = f"{error.name}: {error}"
            warn(f"what other branches of the archive hold is not known: {why}; see txlog archive rescue", "red")
            return
        self._rescued = rows
        if rows and not self._as_json:
            given = sum(row.state is RescueState.GIVEN for row in rows)
            print_line(f"other branches of the archive: {given:,} of {len(rows):,} transactions were given again")
        if not lacks_nothing(rows):
            warn("some of them were not: txlog archive rescue shows which, and why", "red")

    def _rescue_when_joined(self) -> list[RescueRow]:
        assert self._options.from_archive is not None
        place = self._options.open(self._options.from_archive)
        use_credentials(self._folder)
        with ExitStack() as closing, progress_bars(self._as_json) as progress:
            masters = [closing.enter_context(MasterClient(url)) for url in self._master_urls]
            # Unavailable: no master is in a view yet.
            return retry_while(Unavailable, STORE_START_S, lambda: rescue_branches(place, masters, to_steps(progress)))

    def _fill(self, transport: HttpTransport, worker: WorkerLocation, began: float) -> None:
        claim = self._done.claim
        stream, restore = _open_archive(self._options, f"position:{claim.index}:{claim.hash}")
        reader = StreamReader(stream)
        into = RestoreTarget(worker.name, ADAPTERS[_engine_of(self._masters, reader, restore, worker)], transport)
        retry_while(WorkerFault, STORE_START_S, lambda: read_system_graphs(into.adapter, into.transport))
        with progress_bars(self._as_json) as progress:
            found = fill_store(reader, restore, into, bytes.fromhex(claim.successor), progress)
        if found is None:
            return
        seconds = round(time.monotonic() - began, 3)
        self._filled.append(
            {"store": worker.name, "quads": found.quads, "digest": found.digest, "secondsUntilFilled": seconds}
        )
        if not self._as_json:
            print_line(f"{worker.name}: {found.quads:,} quads, digest {found.digest}, after {seconds:.1f} s")


def begin_succession(
    options: SuccessionOptions, paths: Sequence[Path], folder: StateFolder, *, as_json: bool
) -> BegunSuccession | None:
    """Reads and proves the archive, takes the claim, and writes the journal of the first master. A repeated call goes
    on with what an earlier one has begun. None for a dry run, which shows the plan."""
    is_copy = options.is_copy
    stream, restore = _open_archive(options, options.to or "latest")
    folder.prepare()
    with folder.locked():
        plan = plan_for(paths, folder)
        master = _first_master(plan)
        assert options.from_archive is not None
        request = SuccessionRequest(
            master,
            options.open(options.from_archive),
            StreamReader(stream),
            restore,
            is_copy,
            options.supersede,
            options.without_older_keys,
            on_step=lambda step: None if as_json else print_line(f"{step} …", style="dim"),
        )
        workers = plan.topology.workers
        for engine in sorted({_engine_of(plan.master_configs, request.reader, restore, each) for each in workers}):
            plan_restore(request.reader, restore, engine)  # stores that nothing could fill are known before a claim
        if options.dry_run:
            show_plan(request, as_json=as_json)
            return None
        if not request.memory.exists():
            journals = {node: config.journal_folder for node, config in plan.master_configs.items()}
            for journal in refuse_survivors(journals, without=options.without or ()):
                warn(f"the journal that is given up is kept in {set_aside(journal)}")
        done = found_successor(request)
    if not as_json:
        _show_founded(done, request)
    return BegunSuccession(options, folder, plan, done, as_json=as_json)


def show_plan(request: SuccessionRequest, *, as_json: bool) -> None:
    """What would be founded, as a table or as JSON."""
    plan, inherited = plan_succession(request)
    found = {**plan_to_dict(request.reader, plan, inherited.undecided), **inheritance_to_dict(inherited)}
    print_rows(as_json, found, ["WHAT", "HOW MUCH", "DETAIL"], [*_plan_rows(plan), *_inheritance_rows(inherited)])


def inheritance_to_dict(inherited: Inheritance) -> dict[str, Any]:
    """What a new cluster takes over, as JSON. ``keptUpTo``: the last transaction of each origin; what an origin had
    after it is lost."""
    return {
        "keys": len(inherited.keys),
        "keptUpTo": [f"{origin.node}.{origin.birth:016x}.{seq}" for origin, seq in inherited.seqs.items()],
        "lost": [_span_text(span) for span in inherited.lost],
        "lostTransactions": sum(span.count for span in inherited.lost),
    }


def _open_archive(options: SuccessionOptions, moment: str) -> tuple[Any, MomentRequest]:
    assert options.from_archive is not None
    place = options.open(options.from_archive)
    stream = find_stream(place, options.data_center, options.cluster_id)
    backups = options.open(options.backups) if options.backups else place
    return stream, MomentRequest(parse_moment(moment), backups, options.base, options.timeline)


def _engine_of(
    masters: Mapping[str, NodeConfig], reader: StreamReader, restore: MomentRequest, worker: WorkerLocation
) -> str:
    """With the form in which the lost cluster's stores held literals."""
    master = next(each for each in masters.values() if each.data_center == worker.data_center)
    return recovered_engine(master, reader, restore, next(w for w in master.workers if w.name == worker.name))


def _first_master(plan: ProcessPlan) -> NodeConfig:
    first = next(iter(plan.master_configs.values())).peers[0].node
    found = plan.master_configs.get(first)
    if found is None:
        raise BadInput(f"{first} comes first among the peers and runs elsewhere: recover there, then start this one")
    return found


def _span_text(span: Span) -> str:
    first = f"{span.node}.{span.birth:016x}.{span.first_seq}"
    return first if span.count == 1 else f"{first} to {span.first_seq + span.count - 1}"


def _plan_rows(plan: RestorePlan) -> list[tuple[str, str, str]]:
    base = plan.base
    return [
        ("position", f"index {plan.place.index}", plan.place.hash.hex()),
        ("base", base.name if base else "none: empty stores", f"{base.quads:,} quads" if base else ""),
        ("log", f"{plan.entries:,} entries", f"after index {plan.after.index}, in {len(plan.files):,} files"),
    ]


def _inheritance_rows(inherited: Inheritance) -> list[tuple[str, str, str]]:
    lost = [_span_text(span) for span in inherited.lost]
    more = f" and {len(lost) - SHOWN_SPANS:,} more" if len(lost) > SHOWN_SPANS else ""
    at = format_milliseconds(inherited.stamp >> 16)
    return [
        ("last transaction", at, f"{inherited.last.node}, index {inherited.place.index}"),
        ("idempotency keys", f"{len(inherited.keys):,}", "may still be repeated"),
        *(("kept up to", str(seq), f"{origin.node}.{origin.birth:016x}") for origin, seq in inherited.seqs.items()),
        (
            "lost",
            f"{sum(span.count for span in inherited.lost):,} archived transactions",
            ", ".join(lost[:SHOWN_SPANS]) + more,
        ),
        *_undecided_rows(inherited),
    ]


def _undecided_rows(inherited: Inheritance) -> list[tuple[str, str, str]]:
    if not inherited.undecided:
        return []
    count = f"{len(inherited.undecided):,} synchronous transactions"
    return [("undecided", count, describe_undecided(list(map(str, inherited.undecided))))]


def _show_founded(done: Succession, request: SuccessionRequest) -> None:
    rows = _plan_rows(done.plan)
    if done.inherited is not None:
        rows += _inheritance_rows(done.inherited)
    show_table(["WHAT", "HOW MUCH", "DETAIL"], [("cluster", "founded", done.claim.successor), *rows])
    warn(
        "what the lost cluster acknowledged after this position is not in the new one; its clients give it again under "
        "the same idempotency keys"
    )
    if done.inherited is not None and done.inherited.lost:
        print_line(f"all of them: {request.memory.with_name(LOST_FILE)}", style="dim")
