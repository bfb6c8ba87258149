"""``txlog rejoin --dry-run``: what the masters would do, would they hear each other now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import msgspec
import typer

from txlog.backup import catalogue, open_target
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.catalogue import COMPLETE
from txlog.cli.output import (
    DEFAULT_STATE,
    CliCluster,
    JsonOption,
    MasterOption,
    StateOption,
    find_cluster,
    out,
    show_json,
    show_table,
)
from txlog.cli.rejoin_forecast import AnsweringBranch, RejoinForecast, StampedTransaction, forecast_rejoin
from txlog.client import MasterClient, WorkerStatus
from txlog.config.process_config import DutyJobConfig
from txlog.model.errors import BadInput, TxLogError, Unavailable


def add_to(app: typer.Typer) -> None:
    app.command()(rejoin)


def rejoin(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="required: nothing is changed")] = False,
    state: StateOption = DEFAULT_STATE,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Forecast the rejoin: the winner, the last shared index, the entries that move, and the workers that go back.

    It asks every master that answers, on all sides of the split. Later writes are not included. Masters rejoin by
    themselves as soon as they reach each other."""
    if not dry_run:
        raise BadInput("masters rejoin by themselves when they hear each other: heal the link; see --dry-run")
    told = forecast(find_cluster(state, master))
    if json:
        show_json(told)
    else:
        _show_forecast(told)


def forecast(cluster: CliCluster) -> dict[str, Any]:
    """The answer as ``--json`` shows it."""
    with ExitStack() as closing:
        clients: dict[str, MasterClient] = {}
        branches: list[dict[str, Any]] = []
        missing: list[str] = []
        for url in cluster.masters:
            client = closing.enter_context(MasterClient(url, timeout_s=10.0))
            try:
                branch = client.branch()
            except TxLogError as error:
                missing.append(str(error))
                continue
            branches.append(branch)
            clients[branch["node"]] = client
        if not branches:
            raise Unavailable("NoMaster", f"no master answers: {'; '.join(missing)}")
        logs = _BranchLogs(clients)
        found = forecast_rejoin(branches, logs.hash_at, logs.entries_after, logs.weights_at)
        workers = _worker_forecasts(cluster, found, logs)
        return {**_forecast_to_dict(found), "workers": workers, "notHeard": missing}


class _BranchLogs:
    """The logs of several sides, each asked of the master whose log is the longest there."""

    def __init__(self, clients: dict[str, MasterClient]) -> None:
        self._clients = clients
        self._hashes: dict[tuple[str, int], str] = {}

    def hash_at(self, side: AnsweringBranch, index: int) -> str:
        key = (side.view_number, index)
        if key not in self._hashes:
            self._hashes[key] = str(self._clients[side.branch_info["node"]].branch(index)["hash"])
        return self._hashes[key]

    def weights_at(self, side: AnsweringBranch, index: int) -> dict[str, int]:
        configured = self._clients[side.branch_info["node"]].branch(index)["configured"]
        return {one["node"]: int(one["weight"]) for one in configured}

    def entries_after(self, side: AnsweringBranch, index: int) -> Iterator[StampedTransaction]:
        """As far as it is stable there, which is all while the others are let go."""
        client = self._clients[side.branch_info["node"]]
        while index < side.end and (page := client.log_page(index, upto=side.end)).entries:
            for entry in page.entries:
                yield entry.stamp, entry.node, entry.birth, entry.seq
            index = page.entries[-1].index

    def has_position(self, found: RejoinForecast, index: int, value: str) -> bool:
        """Whether the log after the rejoin would have this position, as far as that is known now."""
        if index == 0:
            return True
        sides = [*found.forks, *found.laggards]
        return any(index <= found.kept_up_to[side.view_number] and self.hash_at(side, index) == value for side in sides)


def _worker_forecasts(cluster: CliCluster, found: RejoinForecast, logs: _BranchLogs) -> list[dict[str, Any]]:
    """Each worker that is known, where it stands, and what becomes of it: ``stays``, ``goes back`` or ``unordered``."""
    listed = {dc: _latest_worker_reports(urls) for dc, urls in cluster.data_centers.items()}
    stay: dict[str, bool | None] = {}
    for workers in listed.values():
        for worker in workers:
            place = worker.position
            stay[worker.name] = logs.has_position(found, place.index, place.hash) if place is not None else None
    live = [name for name, stays in stay.items() if stays]
    rows = []
    for dc, workers in listed.items():
        for worker in workers:
            stays, index = stay[worker.name], worker.position.index if worker.position else None
            row = {"worker": worker.name, "dataCenter": dc, "index": index, "what": "stays", "from": None}
            if stays is None:
                row["what"] = "unknown"
            elif not stays and found.strategy == "None":
                row["what"] = "unordered"
            elif not stays:
                row |= {"what": "goes back", "from": _restore_source(cluster, dc, found, logs, live)}
            rows.append(row)
    return rows


def _latest_worker_reports(urls: Sequence[str]) -> list[WorkerStatus]:
    """As the master has them that knows most: a pipeline reports to the nearest only."""
    best: dict[str, WorkerStatus] = {}
    for url in urls:
        with MasterClient(url, timeout_s=5.0) as client:
            try:
                workers = client.workers()
            except TxLogError:
                continue
        for worker in workers:
            known = best.get(worker.name)
            if known is None or float(worker.reported_at or 0.0) > float(known.reported_at or 0.0):
                best[worker.name] = worker
    return list(best.values())


def _restore_source(
    cluster: CliCluster, data_center: str, found: RejoinForecast, logs: _BranchLogs, live: list[str]
) -> str:
    """As the duty would go: a backup of this data centre or another, a live worker, the whole log."""
    if cluster.state is None:
        return "unknown: backups are known to the state folder only (--state)"
    config = msgspec.json.decode(cluster.state.duties(data_center).read_bytes())
    job = DutyJobConfig.model_validate(config)
    for target in [job.target, *job.others]:
        try:
            made = _newest_backup_on(catalogue(open_target(target)), found, logs)
        except TxLogError:
            continue
        if made is not None:
            return f"backup {made.name} at {made.place.index}"
    return f"a copy of {live[0]}" if live else "the whole log"


def _newest_backup_on(listed: Sequence[Any], found: RejoinForecast, logs: _BranchLogs) -> BackupManifest | None:
    for each in reversed(listed):
        made: BackupManifest | None = each.manifest if each.state == COMPLETE else None
        if made is None or made.cluster != found.winner.branch_info["clusterId"]:
            continue
        if logs.has_position(found, made.place.index, made.place.hash):
            return made
    return None


def _forecast_to_dict(found: RejoinForecast) -> dict[str, Any]:
    return {
        "winner": list(found.winner.nodes) if len(found.forks) > 1 else None,
        "way": ("merged in stamp order" if found.merged else "the others follow the winner")
        if len(found.forks) > 1
        else "nobody forked",
        "splitRecovery": found.strategy,
        "shared": found.shared_index,
        "moved": sum(found.moved_entries(fork) for fork in found.forks),
        "branches": [
            {
                "view": side.view_number,
                "masters": list(side.nodes),
                "weight": found.weights.get(side.view_number),
                "end": side.end,
                "keptUpTo": found.kept_up_to[side.view_number],
                "moved": found.moved_entries(side),
                "votes": side in found.forks,
            }
            for side in (*found.forks, *found.laggards)
        ],
    }


def _show_forecast(told: dict[str, Any]) -> None:
    if told["winner"]:
        out.print(
            f"{', '.join(told['winner'])} would win, {told['way']} (splitRecovery {told['splitRecovery']}); "
            f"the branches part behind index {told['shared']}, {told['moved']} transactions would move",
            style="bold",
            highlight=False,
        )
    else:
        out.print("nothing to rejoin: no two branches", style="bold", highlight=False)
    show_table(
        ["VIEW", "MASTERS", "WEIGHT", "LOG ENDS AT", "KEPT UP TO", "MOVED"],
        [
            (b["view"], ", ".join(b["masters"]), b["weight"], b["end"], b["keptUpTo"], b["moved"])
            for b in told["branches"]
        ],
    )
    show_table(
        ["WORKER", "DATA CENTRE", "AT", "WHAT", "FROM"],
        [(w["worker"], w["dataCenter"], w["index"], w["what"], w["from"]) for w in told["workers"]],
        "no workers",
    )
    for text in told["notHeard"]:
        out.print(f"not heard: {text}", style="yellow", highlight=False)
