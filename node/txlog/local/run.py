"""``txlog up`` without its words: from manifests to a running supervisor.

``python -m txlog.local.run --state DIR FILE…`` is the supervisor that ``txlog up --detach`` leaves behind.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from txlog.config.manifest_reader import load_manifests
from txlog.local import identity
from txlog.local.altering import Altering
from txlog.local.control_api import control_api
from txlog.local.faults import CannotRun
from txlog.local.fuseki import find_fuseki
from txlog.local.java import find_java_home
from txlog.local.lone import lone_plan, lone_properties
from txlog.local.plan import Plan, check_complete, make_plan, port_names
from txlog.local.ports import choose_ports
from txlog.local.rdf4j import find_rdf4j
from txlog.local.securing import keep_own, secure
from txlog.local.state import StateFolder
from txlog.local.supervisor import Supervisor
from txlog.local.virtuoso import find_virtuoso
from txlog.model.errors import TxLogError

EXIT_REFUSED = 2


def find_oxigraph() -> str:
    """The store's program of the wheel ``oxigraph``, beside this Python; else on the PATH."""
    beside = Path(sys.executable).parent / "oxigraph"
    found = str(beside) if beside.exists() else shutil.which("oxigraph")
    if found is None:
        raise CannotRun("no program oxigraph beside this Python or on the PATH; install it: pip install oxigraph")
    return found


def plan_for(paths: Sequence[Path], state: StateFolder, running: Collection[str] = ()) -> Plan:
    """Read the manifests, and what was changed since, and choose ports in the (prepared) state folder; or read the one
    ``cluster.properties``. ``running``: names that keep theirs."""
    lone = lone_properties(list(paths))
    if lone is not None:
        return lone_plan(lone, state, find_java_home(state.root / "java") if lone.runs_pipeline else Path())
    manifests, changes = load_manifests(paths), state.worker_changes()
    check_complete(manifests)
    secure(manifests, state)
    ports = choose_ports(state, port_names(manifests, changes), running=running)
    java_home = find_java_home(state.root / "java")
    engines = {m.cluster.spec.workers.engine for m in manifests if not m.cluster.spec.workers.external}
    return make_plan(
        manifests,
        state,
        ports,
        oxigraph=find_oxigraph(),
        java_home=java_home,
        fuseki=find_fuseki() if "fuseki" in engines else None,
        rdf4j=find_rdf4j(state.root / "rdf4j") if "rdf4j" in engines else None,
        virtuoso=find_virtuoso() if "virtuoso" in engines else None,
        changes=changes,
    )


def check(paths: Sequence[Path]) -> None:
    """All that can be said of the manifests, or of the ``cluster.properties``, before anything is touched."""
    if lone_properties(list(paths)) is None:
        check_complete(load_manifests(paths))


async def supervise(paths: Sequence[Path], state: StateFolder) -> None:
    """Run the cluster until SIGTERM, SIGINT, or ``down``; the folder is ours meanwhile."""
    state.prepare()
    with state.locked():
        supervisor = Supervisor(plan_for(paths, state), state)
        lone = lone_properties(list(paths)) is not None
        altering = Altering(supervisor, state, lambda: plan_for(paths, state, supervisor.plan.port_names))
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        async with control_api(supervisor, stop, None if lone else altering):
            mark = identity.mark_of(os.getpid())
            state.write("supervisor.json", mark.model_dump() if mark else {})
            keeping = None if lone else asyncio.create_task(keep_own(load_manifests(paths), state))
            try:
                await supervisor.run(stop)
            finally:
                if keeping is not None:
                    keeping.cancel()
        (state.root / "supervisor.json").unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="txlog.local.run", description="the supervisor of a local cluster")
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
