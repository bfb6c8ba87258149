"""``txlog rejoin --dry-run``: the view that would follow if all masters that answer reached each other now.

Each master reports what it would report in a view change. The protocol's own functions then close the branches, as a
coordinator would that has the longest log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import typer

from txlog.backup import catalogue, open_target
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.catalogue import COMPLETE
from txlog.cli.cli_cluster import REQUEST_TIMEOUT_S, CliCluster, find_cluster
from txlog.cli.options import ClusterOptions, register
from txlog.cli.tables import print_line, show_json, show_table
from txlog.client import MasterClient, WorkerStatus
from txlog.config.process_config import DutyJobConfig
from txlog.model.errors import BadInput, Conflict, NotFound, TxLogError, Unavailable
from txlog.model.ids import Origin, Txid, parse_txid
from txlog.model.records import LogStart
from txlog.model.view import Member, Number
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.views.branch_selection import InsufficientReports, ViewBranch, branch_weight, group_by_view
from txlog.protocol.views.log_merge import MergedLog, collect_transactions
from txlog.protocol.views.next_view import NextView, compute_next_view, is_majority_change
from txlog.wire.messages import ViewReport, decode

app = typer.Typer()
HashAt = Callable[[int], bytes]
"""The chain hash of a log at an index within it."""


@dataclass(frozen=True)
class BranchForecast:
    """A branch before the rejoin. ``number``: of its view. ``node``: the master with its longest log, which ends at
    ``end``. ``weight``: None for a branch that lags: it follows without a vote. ``kept_up_to``: the entries up to this
    index keep their place."""

    number: Number
    view: str
    masters: list[str]
    node: str
    end: int
    weight: int | None
    kept_up_to: int
    hash_at: HashAt

    @property
    def moved(self) -> int:
        """How many of its entries get another index."""
        return self.end - self.kept_up_to


@dataclass(frozen=True)
class RejoinForecast:
    """``branches``: the winner first, those that lag last. ``shared_index``: the last index that all branches with a
    vote have. ``merged``: they are merged in stamp order (``Simple``). ``strategy``: of the next view; it decides
    whether workers go back. ``start``: the first index that :attr:`BranchForecast.hash_at` knows."""

    branches: list[BranchForecast]
    shared_index: int
    merged: bool
    strategy: str
    cluster_id: str
    start: int

    @property
    def voting(self) -> list[BranchForecast]:
        """The branches with a vote, the winner first."""
        return [branch for branch in self.branches if branch.weight is not None]


@register(app)
def rejoin(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="required: nothing is changed")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Forecast the rejoin: the winner, the last shared index, the entries that move, and the workers that go back.

    It asks every master that answers, on all sides of the split. Later writes are not included. Masters rejoin by
    themselves as soon as they reach each other."""
    if not dry_run:
        raise BadInput("masters rejoin by themselves when they hear each other: heal the link; see --dry-run")
    result = forecast(find_cluster(cluster))
    if cluster.json:
        show_json(result)
    else:
        _show_forecast(result)


def forecast(cluster: CliCluster) -> dict[str, Any]:
    """The answer as ``--json`` shows it. :class:`Unavailable` when no master answers; :class:`Conflict` when a master
    runs an older version, or when the masters changed meanwhile."""
    with ExitStack() as closing:
        clients: dict[str, MasterClient] = {}
        answers: dict[str, dict[str, Any]] = {}
        missing: list[str] = []
        for url in cluster.masters:
            client = closing.enter_context(MasterClient(url, timeout_s=REQUEST_TIMEOUT_S))
            try:
                answer = client.branch()
            except TxLogError as error:
                missing.append(str(error))
                continue
            answers[answer["node"]] = answer
            clients[answer["node"]] = client
        if not answers:
            raise Unavailable("NoMaster", f"no master answers: {'; '.join(missing)}")
        first = max(answers, key=lambda node: (answers[node]["end"], node))
        own, reports = _fetch_reports(clients, first)
        try:
            found = compute_forecast(own, reports, answers, first, lambda index: clients[first].branch(index))
        except InsufficientReports as why:
            raise Conflict(f"the reports of the masters do not fit together: {why}; try again") from None
        logs = _BranchLogs(clients, found)
        return {**_forecast_to_dict(found), "workers": _worker_forecasts(cluster, logs), "notHeard": missing}


def _fetch_reports(clients: Mapping[str, MasterClient], first: str) -> tuple[LogIndex, list[ViewReport]]:
    """The log of the master ``first`` from the lowest index on at which a report begins, and the reports of all."""
    try:
        checkpoints = clients[first].view_report().checkpoints
        reports = {
            node: _decode_report(node, client.view_report(checkpoints).report)
            for node, client in clients.items()
            if node != first
        }
        lowest = min((report.shared.index for report in reports.values()), default=None)
        mine = clients[first].view_report(
            [one for one in checkpoints if lowest is None or int(one.partition(":")[0]) <= lowest]
        )
    except NotFound:
        raise Conflict(
            "a master runs an older version without GET /txlog/view-report: upgrade all masters, then forecast"
        ) from None
    reports[first] = _decode_report(first, mine.report)
    return _log_of(reports[first], [parse_txid(text) for text in mine.seqs]), list(reports.values())


def _decode_report(node: str, message: bytes) -> ViewReport:
    report = decode(node, message)
    assert isinstance(report, ViewReport), type(report)
    return report


def _log_of(report: ViewReport, last: Sequence[Txid]) -> LogIndex:
    """The log of a master from where its report begins. ``last``: the last transaction of each origin up to there."""
    assert report.view is not None
    seqs = [(txid.origin.node, txid.origin.birth, txid.seq) for txid in last]
    named = [*(txid.origin for txid in last), *(Origin(span.node, span.birth) for span in report.tail)]
    origins = list(dict.fromkeys(named))
    start = LogStart(report.shared.index, report.shared.hash, ("", 0), 0, seqs, [], [], [])
    log = LogIndex(report.view.cluster_id, origins, start)
    slots = {origin: slot for slot, origin in enumerate(origins)}
    log.append(b"".join(bytes([slots[Origin(s.node, s.birth)]]) * s.count for s in report.tail), report.hashes)
    return log


def compute_forecast(
    own: LogIndex,
    reports: list[ViewReport],
    answers: Mapping[str, Mapping[str, Any]],
    first: str,
    branch_at: Callable[[int], Mapping[str, Any]],
) -> RejoinForecast:
    """The view that would follow these reports. ``own``: the log of the master ``first``, to which their ``shared``
    positions refer. ``answers``: of ``GET /txlog/branch``, by master; ``branch_at``: that of ``first`` at an index.
    :class:`InsufficientReports` when the reports do not suffice."""
    branches = group_by_view(reports, own)
    configured = branch_at(min(branch.shared for branch in branches))["configured"]
    weights = {str(one["node"]): int(one["weight"]) for one in configured}
    members = [Member(r.node, r.birth, weights.get(r.node, 0), answers[r.node]["dataCenter"]) for r in reports]
    number = (max(branch.number[0] for branch in branches) + 1, 1, first)
    majority = is_majority_change(reports, answers[first]["splitMode"] == "Majority")
    following = compute_next_view(number, members, [], reports, own, weights, majority)
    base = _base_of(following, own, reports)
    by_number = {branch.number: branch for branch in branches}
    voting = [by_number[number] for number in following.branches]
    found = [
        BranchForecast(
            branch.number,
            ".".join(map(str, branch.number)),
            sorted(branch.nodes),
            max(branch.reports, key=lambda report: (report.log.index, report.node)).node,
            branch.length,
            branch_weight(branch, branches, voting, members, weights)[0] if branch in voting else None,
            _last_shared_index(own.start, branch.length, _hashes_of(branch, own), base.length, _base_hashes(base, own)),
            _hashes_of(branch, own),
        )
        for branch in [*voting, *(branch for branch in branches if branch not in voting)]
    ]
    winner = found[0]
    shared = min(
        _last_shared_index(own.start, winner.end, winner.hash_at, one.end, one.hash_at)
        for one in found
        if one.weight is not None
    )
    view = following.view
    return RejoinForecast(found, shared, view.merged, view.strategy, view.cluster_id.hex(), own.start)


def _base_of(following: NextView, own: LogIndex, reports: list[ViewReport]) -> MergedLog:
    """The log from which the next view begins."""
    known = collect_transactions([some for report in reports for some in (*report.pending, *report.parked)])
    base = MergedLog(own, following.truncate_to)
    stamps = iter(following.stamps)
    for span in following.spans:
        origin = Origin(span.node, span.birth)
        for seq in range(span.first_seq, span.first_seq + span.count):
            base.append(origin, seq, known[origin][seq]._replace(stamp=next(stamps)))
    return base


def _hashes_of(branch: ViewBranch, own: LogIndex) -> HashAt:
    return lambda index: own.hash_at(index) if index <= branch.shared else branch.hashes[index - branch.shared - 1]


def _base_hashes(base: MergedLog, own: LogIndex) -> HashAt:
    return lambda index: own.hash_at(index) if index <= base.base_index else base.hashes[index - base.base_index - 1]


def _last_shared_index(start: int, end: int, hash_at: HashAt, other_end: int, other_hash_at: HashAt) -> int:
    """The last index with the same hash in both logs, which are equal up to ``start``. Logs that are equal at an index
    are equal before it."""
    after = range(start + 1, min(end, other_end) + 1)
    return start + bisect_left(after, True, key=lambda index: hash_at(index) != other_hash_at(index))


class _BranchLogs:
    """The chain hashes of all branches. Those before the forecast's start are asked of the master with the longest
    log."""

    def __init__(self, clients: Mapping[str, MasterClient], found: RejoinForecast) -> None:
        self.forecast = found
        self._clients = clients

    def has_position(self, index: int, value: str) -> bool:
        """Whether the log after the rejoin would have this position, as far as that is known now."""
        if index == 0:
            return True
        return any(
            index <= branch.kept_up_to and self._hash_at(branch, index) == value for branch in self.forecast.branches
        )

    def _hash_at(self, branch: BranchForecast, index: int) -> str:
        if index >= self.forecast.start:
            return branch.hash_at(index).hex()
        return str(self._clients[branch.node].branch(index)["hash"])


def _worker_forecasts(cluster: CliCluster, logs: _BranchLogs) -> list[dict[str, Any]]:
    """Each known worker, its position, and its future: ``stays``, ``goes back`` or ``unordered``."""
    listed = _latest_worker_reports(cluster)
    stay: dict[str, bool | None] = {}
    for workers in listed.values():
        for worker in workers:
            place = worker.position
            stay[worker.name] = logs.has_position(place.index, place.hash) if place is not None else None
    live = [name for name, stays in stay.items() if stays]
    rows = []
    for dc, workers in listed.items():
        for worker in workers:
            stays, index = stay[worker.name], worker.position.index if worker.position else None
            row = {"worker": worker.name, "dataCenter": dc, "index": index, "what": "stays", "from": None}
            if stays is None:
                row["what"] = "unknown"
            elif not stays and logs.forecast.strategy == "None":
                row["what"] = "unordered"
            elif not stays:
                row |= {"what": "goes back", "from": _restore_source(cluster, dc, logs, live)}
            rows.append(row)
    return rows


def _latest_worker_reports(cluster: CliCluster) -> dict[str, list[WorkerStatus]]:
    """By data centre: each worker as the master has it that received the latest report of it. A pipeline reports to the
    nearest master only."""
    best: dict[str, dict[str, WorkerStatus]] = {dc: {} for dc in cluster.data_centers}
    answers = cluster.ask_all(MasterClient.workers)
    for dc, urls in cluster.data_centers.items():
        for answer in (answers[url] for url in urls):
            for worker in answer if not isinstance(answer, TxLogError) else ():
                known = best[dc].get(worker.name)
                if known is None or float(worker.reported_at or 0.0) > float(known.reported_at or 0.0):
                    best[dc][worker.name] = worker
    return {dc: list(workers.values()) for dc, workers in best.items()}


def _restore_source(cluster: CliCluster, data_center: str, logs: _BranchLogs, live: list[str]) -> str:
    """The source that the duty would choose: a backup of this data centre or another, a live worker, the whole log."""
    if cluster.state is None:
        return "unknown: backups are known to the state folder only (--state)"
    config = msgspec.json.decode(cluster.state.duties(data_center).read_bytes())
    job = DutyJobConfig.model_validate(config)
    for target in [job.target, *job.others]:
        try:
            made = _newest_backup_on(catalogue(open_target(target)), logs)
        except TxLogError:
            continue
        if made is not None:
            return f"backup {made.name} at {made.place.index}"
    return f"a copy of {live[0]}" if live else "the whole log"


def _newest_backup_on(listed: Sequence[Any], logs: _BranchLogs) -> BackupManifest | None:
    for each in reversed(listed):
        made: BackupManifest | None = each.manifest if each.state == COMPLETE else None
        if made is None or made.cluster != logs.forecast.cluster_id:
            continue
        if logs.has_position(made.place.index, made.place.hash):
            return made
    return None


def _forecast_to_dict(found: RejoinForecast) -> dict[str, Any]:
    voting = found.voting
    way = "merged in stamp order" if found.merged else "the others follow the winner"
    return {
        "winner": voting[0].masters if len(voting) > 1 else None,
        "way": way if len(voting) > 1 else "no branches",
        "splitRecovery": found.strategy,
        "shared": found.shared_index,
        "moved": sum(branch.moved for branch in voting),
        "branches": [
            {
                "view": branch.view,
                "masters": branch.masters,
                "weight": branch.weight,
                "end": branch.end,
                "keptUpTo": branch.kept_up_to,
                "moved": branch.moved,
                "votes": branch.weight is not None,
            }
            for branch in found.branches
        ],
    }


def _show_forecast(result: dict[str, Any]) -> None:
    if result["winner"]:
        print_line(
            f"{', '.join(result['winner'])} would win, {result['way']} (splitRecovery {result['splitRecovery']}); "
            f"the branches part after index {result['shared']}, {result['moved']} transactions would move",
            "bold",
        )
    else:
        print_line("nothing to rejoin: no two branches", "bold")
    show_table(
        ["VIEW", "MASTERS", "WEIGHT", "LOG ENDS AT", "KEPT UP TO", "MOVED"],
        [
            (b["view"], ", ".join(b["masters"]), b["weight"], b["end"], b["keptUpTo"], b["moved"])
            for b in result["branches"]
        ],
    )
    show_table(
        ["WORKER", "DATA CENTRE", "AT", "WHAT", "FROM"],
        [(w["worker"], w["dataCenter"], w["index"], w["what"], w["from"]) for w in result["workers"]],
        "no workers",
    )
    for text in result["notHeard"]:
        print_line(f"no answer: {text}", "yellow")
