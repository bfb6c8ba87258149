"""``txlog up`` and ``txlog down`` without their words: from manifests to a running supervisor, and back.

``python -m txlog.local.run --state DIR FILE…`` is the supervisor that ``txlog up --detach`` leaves behind.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from txlog.config.manifest import load_manifests
from txlog.local import identity
from txlog.local.child import last_lines
from txlog.local.control import Control, control_api
from txlog.local.faults import CannotRun, NotRunning
from txlog.local.identity import ProcessMark
from txlog.local.java import find_java_home
from txlog.local.plan import Plan, check_complete, make_plan, port_names
from txlog.local.ports import choose_ports
from txlog.local.state import StateFolder
from txlog.local.supervisor import Supervisor
from txlog.model.errors import TxLogError

EXIT_REFUSED = 2


def find_oxigraph() -> str:
    """The store's program of the wheel ``oxigraph``, beside this Python; else on the PATH."""
    beside = Path(sys.executable).parent / "oxigraph"
    found = str(beside) if beside.exists() else shutil.which("oxigraph")
    if found is None:
        raise CannotRun("no program oxigraph beside this Python or on the PATH; install it: pip install oxigraph")
    return found


def plan_for(paths: Sequence[Path], state: StateFolder) -> Plan:
    """Read the manifests and choose ports in the (prepared) state folder."""
    manifests = load_manifests(paths)
    check_complete(manifests)
    ports = choose_ports(state, port_names(manifests))
    java_home = find_java_home(state.root / "java")
    return make_plan(manifests, state, ports, oxigraph=find_oxigraph(), java_home=java_home)


def check(paths: Sequence[Path]) -> None:
    """All that can be said of the manifests before anything is touched."""
    check_complete(load_manifests(paths))


async def supervise(paths: Sequence[Path], state: StateFolder) -> None:
    """Run the cluster until SIGTERM, SIGINT, or ``down``; the folder is ours meanwhile."""
    state.prepare()
    with state.locked():
        supervisor = Supervisor(plan_for(paths, state), state)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        async with control_api(supervisor, stop):
            mark = identity.mark_of(os.getpid())
            state.write("supervisor.json", mark.model_dump() if mark else {})
            await supervisor.run(stop)
        (state.root / "supervisor.json").unlink(missing_ok=True)


def detach(paths: Sequence[Path], state: StateFolder, deadline_s: float = 30.0) -> None:
    """Leave a supervisor behind that outlives this process; returns when it can be asked.

    :class:`CannotRun` with its last words when it ends instead.
    """
    state.prepare()
    with state.locked():
        pass  # whoever has it, is named now rather than in a log
    log = state.log("supervisor")
    with open(log, "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "txlog.local.run", "--state", state.root, *(path.absolute() for path in paths)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        code = process.poll()
        if code is not None:
            raise CannotRun("\n".join(last_lines(log)) or f"the supervisor ended with {code}; see {log}")
        try:
            if Control(state).status()["pid"] == process.pid:
                return
        except NotRunning:
            time.sleep(0.05)
    raise CannotRun(f"the supervisor did not answer within {deadline_s:g} s; see {log}")


def bring_down(state: StateFolder, deadline_s: float = 90.0) -> bool:
    """End what runs, gracefully, then by force; True when something ran. Also ends what a supervisor that was
    killed left behind."""
    ran = state.is_locked
    if ran:
        mark = state.read("supervisor.json")
        try:
            Control(state).down()
        except NotRunning:
            if mark:
                identity.end([ProcessMark.model_validate(mark)], 0.0 if not state.is_locked else 5.0)
        until = time.monotonic() + deadline_s
        while state.is_locked and time.monotonic() < until:
            time.sleep(0.05)
        if state.is_locked and mark:
            identity.end([ProcessMark.model_validate(mark)], 5.0)
    left = [ProcessMark.model_validate(each) for each in state.read("processes.json", {}).values()]
    ended = identity.end(left, 10.0)
    return ran or bool(ended)


def wait_ready(state: StateFolder, deadline_s: float, ready: Any) -> Iterator[list[dict[str, Any]]]:
    """Yields the processes again and again until each is ``ready``, or one has ended for good.

    :class:`CannotRun` when the time is over."""
    until = time.monotonic() + deadline_s
    while True:
        processes = Control(state).status()["processes"]
        for process in processes:
            process["ready"] = process["state"] == "Running" and ready(process)
        yield processes
        if all(process["ready"] or process["state"] == "Fatal" for process in processes):
            return
        if time.monotonic() > until:
            late = ", ".join(process["name"] for process in processes if not process["ready"])
            raise CannotRun(f"not ready within {deadline_s:g} s: {late}; see {state.logs}")
        time.sleep(0.1)


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
