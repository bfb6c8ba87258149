"""Writes the configurations of all processes of a plan, and prepares the folders of its stores."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from txlog.config.process_config import FolderConfig
from txlog.config.units import server_of_engine
from txlog.local.engines.rdf4j_server import prepare_rdf4j
from txlog.local.engines.virtuoso_server import prepare_virtuoso
from txlog.local.process_plan import ProcessPlan
from txlog.local.repository_records import write_repositories
from txlog.local.state_folder import StateFolder, WorkerLocation

log = logging.getLogger("txlog.local")

SORTED_FILES: Final = "bulk-*.sst"
"""Oxigraph sorts what it loads into such files, and takes them in at the end of a load. A killed one leaves them behind
and never removes them."""


def write_config_files(plan: ProcessPlan, state: StateFolder) -> None:
    """Those of masters are written at each of their starts, with what was last seen of them."""
    for pipeline in plan.pipeline_configs.values():
        pipeline.scratch_folder.mkdir(parents=True, exist_ok=True)
        state.write_config(state.pipeline(pipeline.data_center) / "config.json", pipeline)
    for worker in (*plan.topology.workers, *plan.topology.repository_workers):
        if worker.managed:
            prepare_store(worker, state)
    for data_center, backup in plan.backup_plans.items():
        state.write_config(state.backup(data_center), backup.config)
    for data_center, archiver in plan.archiver_configs.items():
        state.write_config(state.archiver(data_center), archiver)
    for data_center, change_sets in plan.change_set_configs.items():
        state.write_config(state.change_sets(data_center) / "config.json", change_sets)
    for link in plan.site_link_configs:
        state.write_config(link.folder / "config.json", link)
    for data_center, rehearsal in plan.rehearsal_plans.items():
        state.write_config(state.rehearsal(data_center), rehearsal.config)
    for group, duties in plan.duty_configs.items():
        state.write_config(state.duties(group), duties)
        if isinstance(duties.target, FolderConfig) and duties.target.folder == state.split_backups(group):
            duties.target.folder.mkdir(parents=True, exist_ok=True)
    state.write("links.json", [link.model_dump() for link in plan.links])
    state.write("topology.json", plan.topology.model_dump())
    write_repositories(state, plan.repositories)


def prepare_store(worker: WorkerLocation, state: StateFolder) -> None:
    """The folder of a store that TxLog runs, with what its server expects there."""
    state.worker(worker.name).mkdir(parents=True, exist_ok=True)
    if server_of_engine(worker.engine) == "rdf4j":
        prepare_rdf4j(state.worker(worker.name))
    elif worker.engine == "virtuoso":
        prepare_virtuoso(state.worker(worker.name), urlsplit(worker.url).port or 0)


def remove_leftovers(folder: Path) -> int:
    """Removes what a killed store has left from the folder of a store that does not run. Returns how many files."""
    found = [path for path in folder.glob(SORTED_FILES) if path.is_file()]
    for path in found:
        with suppress(OSError):
            path.unlink()
    if found:
        log.info("removed %d files of a load that broke off from %s", len(found), folder)
    return len(found)
