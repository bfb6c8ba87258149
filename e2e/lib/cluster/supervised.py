"""The masters of the example, their links and their supervisor, without stores and Spark: what a change of views costs
is measured without them. ``python -m e2e.lib.cluster.supervised --state DIR`` is that supervisor, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from e2e.lib.cluster.local import MANIFESTS, LocalCluster
from e2e.lib.cluster.masters import CannotMeasure
from txlog.client import MasterClient, StatusResponse
from txlog.config.manifest_reader import load_manifests
from txlog.config.process_config import NodeConfig
from txlog.local.ports import choose_ports
from txlog.local.process_plan import ProcessPlan, ProcessSpec, make_plan, port_names
from txlog.local.state_folder import StateFolder
from txlog.local.supervisor import Supervisor
from txlog.local.supervisor_api import serve_control_api
from txlog.model.errors import TxLogError

START_S = 60.0


OLDER_LAUNCHER = """#!/bin/sh
test -e {mark} && export TXLOG_OLDER=1 PYTHONPATH={program}
exec {python} -P "$@"
"""
"""In the place of the interpreter: the older program, until its mark is gone."""


def masters_plan(state: StateFolder, older: Path | None = None) -> ProcessPlan:
    """``older``: the folder of a program whose masters are begun with, each until
    :meth:`Masters.upgrade_on_restart`."""
    manifests = load_manifests(MANIFESTS)
    ports = choose_ports(state, port_names(manifests))
    plan = make_plan(manifests, state, ports, oxigraph="", java_home=Path())
    return replace(
        plan,
        topology=plan.topology.model_copy(update={"workers": []}),
        programs=tuple(
            _with_older_program(program, state, older) if older is not None and program.role == "master" else program
            for program in plan.programs
            if program.role in ("links", "master")
        ),
        master_configs={
            node: config.model_copy(update={"workers": []}) for node, config in plan.master_configs.items()
        },
        pipeline_configs={},
    )


def _upgraded_marker(state: StateFolder, node: str) -> Path:
    return state.root / f"older-{node}"


def _with_older_program(program: ProcessSpec, state: StateFolder, older: Path) -> ProcessSpec:
    mark = _upgraded_marker(state, program.name)
    mark.touch()
    script = state.root / f"python-of-{program.name}"
    words = {"mark": mark.resolve(), "program": older.resolve(), "python": program.command[0]}
    script.write_text(OLDER_LAUNCHER.format(**{name: shlex.quote(str(word)) for name, word in words.items()}))
    script.chmod(0o700)
    return replace(program, command=(str(script.resolve()), *program.command[1:]))


async def supervise(state: StateFolder, older: Path | None = None) -> None:
    state.prepare()
    with state.locked():
        supervisor = Supervisor(masters_plan(state, older), state)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with serve_control_api(supervisor, stop):
            await supervisor.run(stop)


class SupervisedMasters(LocalCluster):
    """Running masters, asked from outside."""

    def status(self, node: str) -> StatusResponse:
        with MasterClient(self.nodes[node], 5.0) as master:
            return master.status()

    def upgrade_on_restart(self, node: str) -> None:
        """When it is started next, it is today's program that is."""
        _upgraded_marker(self.state, node).unlink()

    @property
    def round_timeout_s(self) -> float:
        """After so long a master that says nothing is missed, as the masters were started with."""
        configs = [(self.state.master(node) / "config.json").read_bytes() for node in self.nodes]
        return max(NodeConfig.model_validate_json(config).round_timeout_ms for config in configs) / 1000

    def is_joined(self) -> bool:
        """All masters have installed one view of all masters."""
        try:
            told = [self.status(node) for node in self.nodes]
        except TxLogError:
            return False
        return len({one.view.number for one in told}) == 1 and all(
            one.state == "Joined" and one.view.installed and len(one.members) == len(told) for one in told
        )

    def wait_joined(self, deadline_s: float = START_S) -> float:
        """How long it took, in seconds."""
        began = time.monotonic()
        while not self.is_joined():
            if time.monotonic() > began + deadline_s:
                raise CannotMeasure(
                    f"not in one view after {deadline_s:g} s; see txlog status --state {self.state.root}"
                )
            time.sleep(0.02)
        return time.monotonic() - began

    def wait_seen(self, node: str, deadline_s: float = START_S) -> None:
        """Until the supervisor knows which start of it runs: what it can prove nobody needs to wait for."""
        start = self.status(node).start
        until = time.monotonic() + deadline_s
        while self.state.read("seen.json", {}).get(node, {}).get("start") != start:
            if time.monotonic() > until:
                raise CannotMeasure(f"the supervisor has not asked {node} for its start")
            time.sleep(0.05)


@contextmanager
def masters_up(folder: Path, *, anew: bool = True, older: Path | None = None) -> Iterator[SupervisedMasters]:
    """Start them, and end them again. Not ``anew``: with what an earlier run left in the folder. ``older``: as
    :func:`masters_plan`."""
    state = StateFolder(folder)
    if anew and folder.exists():
        state.purge()
    state.prepare()
    command = [sys.executable, "-m", "e2e.lib.cluster.supervised", "--state", str(folder)]
    if older is not None:
        command += ["--older", str(older)]
    with open(state.log("supervisor"), "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + START_S
        while not (folder / "control.json").exists() or not (folder / "topology.json").exists():
            if process.poll() is not None or time.monotonic() > until:
                raise CannotMeasure(f"the supervisor does not work; see {state.log('supervisor')}")
            time.sleep(0.05)
        masters = SupervisedMasters(folder)
        masters.wait_joined()
        yield masters
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.lib.cluster.supervised", description="a supervisor of masters alone"
    )
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--older", type=Path, help="a program that its masters are begun with")
    options = parser.parse_args()
    asyncio.run(supervise(StateFolder(options.state), options.older))
    return 0


if __name__ == "__main__":
    sys.exit(main())
