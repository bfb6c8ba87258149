"""The core of ``txlog up`` without its output: from manifests to a running supervisor.

``python -m txlog.local.supervisor_main --state DIR FILE…`` is the supervisor that ``txlog up --detach`` starts.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from txlog.config.manifest_reader import load_manifests
from txlog.config.units import server_of_engine
from txlog.local import process_identity
from txlog.local.engines.fuseki_server import obtain_fuseki
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.local.engines.rdf4j_server import obtain_rdf4j
from txlog.local.engines.virtuoso_server import obtain_virtuoso
from txlog.local.local_errors import CannotRun
from txlog.local.local_security import prepare_security, renew_certificates
from txlog.local.ports import choose_ports
from txlog.local.process_plan import ProcessPlan, check_complete, make_plan, port_names
from txlog.local.repository_plan import planned_records, repository_engines
from txlog.local.repository_records import read_repositories
from txlog.local.single_master import single_master_plan, single_master_properties
from txlog.local.state_folder import StateFolder
from txlog.local.store_program import StorePrograms
from txlog.local.supervisor import Supervisor
from txlog.local.supervisor_api import serve_control_api
from txlog.local.worker_scaler import WorkerScaling
from txlog.model.errors import TxLogError

EXIT_REFUSED = 2


def obtain_oxigraph() -> str:
    """The store's program from the wheel ``oxigraph``, beside this Python; else from the PATH."""
    beside = Path(sys.executable).parent / "oxigraph"
    found = str(beside) if beside.exists() else shutil.which("oxigraph")
    if found is None:
        raise CannotRun("no program oxigraph beside this Python or on the PATH; install it: pip install oxigraph")
    return found


def plan_for(paths: Sequence[Path], state: StateFolder, running: Collection[str] = ()) -> ProcessPlan:
    """Reads the manifests and the later changes, and chooses ports in the (prepared) state folder; or reads the one
    ``cluster.properties``. ``running``: names that keep their ports."""
    lone = single_master_properties(list(paths))
    if lone is not None:
        return single_master_plan(lone, state, obtain_java_home(state.root / "java") if lone.runs_pipeline else Path())
    manifests, changes = load_manifests(paths), state.worker_changes()
    check_complete(manifests)
    repositories = planned_records(manifests, read_repositories(state))
    prepare_security(manifests, state, by_repository=repositories.was_used)
    ports = choose_ports(state, port_names(manifests, changes, repositories), running=running)
    java_home = obtain_java_home(state.root / "java")
    stores = [m.cluster.spec.workers for m in manifests]
    own = {each.engine for each in stores if not each.external} | repository_engines(repositories)
    engines = {server_of_engine(engine) for engine in own}
    programs = StorePrograms(
        obtain_oxigraph(),
        java_home,
        fuseki=obtain_fuseki() if "fuseki" in engines else None,
        rdf4j=obtain_rdf4j(state.root / "rdf4j") if "rdf4j" in engines else None,
        virtuoso=obtain_virtuoso() if "virtuoso" in engines else None,
    )
    return make_plan(manifests, state, ports, programs, changes=changes, repositories=repositories)


def check(paths: Sequence[Path]) -> None:
    """Validates the manifests, or the ``cluster.properties``, before anything is changed."""
    if single_master_properties(list(paths)) is None:
        check_complete(load_manifests(paths))


async def supervise(paths: Sequence[Path], state: StateFolder) -> None:
    """Runs the cluster until SIGTERM, SIGINT, or ``down``, and locks the state folder meanwhile."""
    state.prepare()
    with state.locked(), _marked(state):
        await asyncio.to_thread(process_identity.end_leftovers, state)
        supervisor = Supervisor(plan_for(paths, state), state)
        lone = single_master_properties(list(paths)) is not None
        scaling = WorkerScaling(supervisor, state, lambda: plan_for(paths, state, supervisor.plan.port_names))
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        async with serve_control_api(supervisor, stop, None if lone else scaling):
            keeping = None if lone else asyncio.create_task(renew_certificates(load_manifests(paths), state))
            try:
                await supervisor.run(stop)
            finally:
                if keeping is not None:
                    keeping.cancel()


@contextmanager
def _marked(state: StateFolder) -> Iterator[None]:
    """Meanwhile ``supervisor.json`` says which process this is, so that ``txlog down`` can end one that still fetches a
    store's program and answers nothing. What an earlier supervisor said of itself is removed: its port may be that of
    another program now."""
    (state.root / "control.json").unlink(missing_ok=True)
    mark = process_identity.identity_of(os.getpid())
    state.write("supervisor.json", mark.model_dump() if mark else {})
    try:
        yield
    finally:
        (state.root / "supervisor.json").unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the supervisor. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="txlog.local.supervisor_main", description="the supervisor of a local cluster"
    )
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("paths", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(supervise(options.paths, StateFolder(options.state)))
    except TxLogError as error:
        print(error, file=sys.stderr)
        return EXIT_REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
