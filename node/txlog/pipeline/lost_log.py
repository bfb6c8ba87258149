"""Where every master lost its journal: reports what the stores hold, so that a person can decide.

Such a master serves no log and is not ready, so nothing is applied and no lane reports."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.client import MasterClient, WorkerReport
from txlog.config.process_config import PipelineConfig, WorkerConfig
from txlog.model.errors import TxLogError
from txlog.model.master_state import MasterState
from txlog.pipeline.apply_round import to_worker_position
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

TIMEOUT_S: Final = 2.0


def report_to_waiting_masters(config: PipelineConfig) -> int:
    """Reports the position of each store to each master that waits for a bootstrap. Returns the number of reports."""
    done = 0
    for url in config.masters:
        with MasterClient(url, timeout_s=TIMEOUT_S) as master, suppress(TxLogError):
            status = master.status()
            if status.state != MasterState.AWAITING_BOOTSTRAP:
                continue
            known = {worker.name: worker for worker in status.workers}
            for store in config.workers:
                at = known.get(store.name)
                url_there = at.url if at is not None and at.url else store.url
                master.report_worker(store.name, _read_store(store.model_copy(update={"url": url_there})))
                done += 1
    return done


def _read_store(store: WorkerConfig) -> WorkerReport:
    try:
        with HttpTransport(store.url, TIMEOUT_S) as transport:
            markers = read_system_graphs(ADAPTERS[store.engine], transport).markers
    except TxLogError as fault:
        return WorkerReport(None, "Unreachable", str(fault))
    if len(markers) != 1:
        return WorkerReport(None, "Unknown", f"it holds {len(markers)} markers")
    return WorkerReport(to_worker_position(markers[0]), "Ahead", "no master of this data centre has a log")
