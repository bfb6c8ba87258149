"""A cluster under a supervisor of ours, with what `txlog up` does not offer: masters alone, masters of an older
program, and other configurations from one start of a master to the next.

``python -m e2e.lib.cluster.supervised --state DIR [FILE…]`` is that supervisor, until SIGTERM. With manifests it runs
their whole cluster; before each start of a master it reads ``overrides/NODE.json`` of the state folder: fields of
:class:`NodeConfig` for this start. So a clock is wrong, or a disk full, without a switch for it in the product.
Without manifests it runs the example's masters and links: what a change of views costs is measured without stores and
Spark.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from e2e.lib.cluster.local import MANIFESTS, LocalCluster
from e2e.lib.report import CannotMeasure
from e2e.lib.wait import wait_until
from txlog.cli.cluster_commands import is_ready
from txlog.client import MasterClient, StatusResponse
from txlog.config.manifest_reader import load_manifests
from txlog.config.process_config import NodeConfig
from txlog.local.daemon_control import stop_daemon
from txlog.local.ports import choose_ports
from txlog.local.process_plan import ProcessPlan, make_plan, port_names
from txlog.local.process_spec import ProcessSpec
from txlog.local.state_folder import StateFolder
from txlog.local.store_program import StorePrograms
from txlog.local.supervisor import Supervisor, SupervisorIntervals
from txlog.local.supervisor_api import serve_control_api
from txlog.local.supervisor_main import plan_for

MASTERS_S: Final = 60.0
CLUSTER_S: Final = 180.0
STOP_S: Final = 90.0
SHORT_INTERVALS: Final = SupervisorIntervals(stable_after_s=2.0, restart_max_s=2.0)
"""What is killed so often must not wait for it: pauses are no fault that is looked for."""
SEGMENT_BYTES: Final = 1 << 20
"""Of masters with overrides: small ones, so that a disk can be full before 64 MiB are written, and a journal has more
than one file."""
OLDER_LAUNCHER: Final = """#!/bin/sh
test -e {mark} && export TXLOG_OLDER=1 PYTHONPATH={program}
exec {python} -P "$@"
"""
"""In the place of the interpreter: the older program, until its mark is gone."""


# -- what the supervisor runs


def masters_plan(state: StateFolder, older: Path | None = None) -> ProcessPlan:
    """``older``: the folder of a program that each master runs until :meth:`SupervisedCluster.upgrade_on_restart`."""
    manifests = load_manifests(MANIFESTS)
    ports = choose_ports(state, port_names(manifests))
    plan = make_plan(manifests, state, ports, StorePrograms("", Path()))
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


class OverriddenConfigs(Mapping[str, NodeConfig]):
    """The plan's configurations with the overrides that the state folder has at the moment of asking."""

    def __init__(self, nodes: Mapping[str, NodeConfig], state: StateFolder) -> None:
        self._nodes = nodes
        self._state = state

    def __getitem__(self, node: str) -> NodeConfig:
        planned = self._nodes[node].model_dump(mode="json")
        overrides = self._state.read(f"overrides/{node}.json", {})
        return NodeConfig.model_validate_json(json.dumps({**planned, "segment_bytes": SEGMENT_BYTES, **overrides}))

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def _make_supervisor(state: StateFolder, manifests: Sequence[Path], older: Path | None) -> Supervisor:
    if not manifests:
        return Supervisor(masters_plan(state, older), state)
    plan = plan_for(manifests, state)
    overridden = OverriddenConfigs(plan.master_configs, state)
    return Supervisor(replace(plan, master_configs=overridden), state, SHORT_INTERVALS)


async def supervise(state: StateFolder, manifests: Sequence[Path], older: Path | None) -> None:
    state.prepare()
    with state.locked():
        supervisor = _make_supervisor(state, manifests, older)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with serve_control_api(supervisor, stop):
            await supervisor.run(stop)


# -- seen from outside


class SupervisedCluster(LocalCluster):
    """The running cluster, asked from outside."""

    def status(self, node: str) -> StatusResponse:
        with MasterClient(self.nodes[node], 5.0) as master:
            return master.status()

    def journal(self, node: str) -> Path:
        return self.state.master(node) / "journal"

    def other_nodes(self, node: str) -> list[str]:
        return [other for other in self.nodes if other != node]

    def nodes_of(self, side: str) -> list[str]:
        return [master.node for master in self.topology.masters_of(side)]

    def upgrade_on_restart(self, node: str) -> None:
        """Today's program runs from the next start on."""
        _upgraded_marker(self.state, node).unlink()

    def override(self, node: str, **fields: Any) -> None:
        """For the next starts of that master; without any: as the manifest says."""
        (self.state.root / "overrides").mkdir(exist_ok=True)
        self.state.write(f"overrides/{node}.json", fields)

    @property
    def round_timeout_s(self) -> float:
        """After so long a master that sends nothing is missed, as the masters were started with."""
        configs = [(self.state.master(node) / "config.json").read_bytes() for node in self.nodes]
        return max(NodeConfig.model_validate_json(config).round_timeout_ms for config in configs) / 1000

    def is_joined(self) -> bool:
        """All masters have installed one view of all masters."""
        statuses = [self.status(node) for node in self.nodes]
        return len({one.view.number for one in statuses}) == 1 and all(
            one.state == "Joined" and one.view.installed and len(one.members) == len(statuses) for one in statuses
        )

    def wait_joined(self, deadline_s: float = MASTERS_S) -> float:
        """How long it took, in seconds."""
        began = time.monotonic()
        wait_until(
            f"all in one view; see txlog status --state {self.state.root}", deadline_s, self.is_joined, pause_s=0.02
        )
        return time.monotonic() - began

    def wait_seen(self, node: str, deadline_s: float = MASTERS_S) -> None:
        """Until the supervisor knows which start of it runs: only of that start it can prove the end."""
        start = self.status(node).start
        wait_until(
            f"the supervisor knows the start of {node}",
            deadline_s,
            lambda: self.state.read("seen.json", {}).get(node, {}).get("start") == start,
        )

    def late_pipelines(self) -> list[str]:
        """Those that have not looked at all of their workers since their process was started, as far as a master of
        their data centre knows."""
        pipelines = [p for p in self.control.status()["processes"] if p["role"] == "pipeline"]
        return [p["name"] for p in pipelines if not (p["state"] == "Running" and is_ready(p, self._masters_near(p)))]

    def _masters_near(self, process: Mapping[str, Any]) -> list[str]:
        return [master.url for master in self.topology.masters_of(process["dataCenter"])]


@contextmanager
def supervised_up(
    folder: Path, manifests: Path | None = None, *, purge: bool = True, older: Path | None = None
) -> Iterator[SupervisedCluster]:
    """Start a cluster and end it; the folder stays, with the logs. ``manifests``: of a whole cluster; without them
    masters alone. ``purge``: without what an earlier run left in the folder. ``older``: as :func:`masters_plan`."""
    state = StateFolder(folder)
    if purge and folder.exists():
        stop_daemon(state)
        state.purge()
    state.prepare()
    command = [sys.executable, "-m", "e2e.lib.cluster.supervised", "--state", str(folder)]
    command += [] if older is None else ["--older", str(older)]
    command += [] if manifests is None else [str(manifests)]
    deadline_s = MASTERS_S if manifests is None else CLUSTER_S
    with open(state.log("supervisor"), "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + deadline_s
        while not (folder / "control.json").exists() or not (folder / "topology.json").exists():
            if process.poll() is not None or time.monotonic() > until:
                raise CannotMeasure(f"the supervisor does not work; see {state.log('supervisor')}")
            time.sleep(0.05)
        cluster = SupervisedCluster(folder)
        cluster.wait_joined(deadline_s)
        yield cluster
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.lib.cluster.supervised", description="a supervisor of masters alone, or of a whole cluster"
    )
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--older", type=Path, help="a program that masters run at first; for masters alone")
    parser.add_argument("manifests", type=Path, nargs="*")
    options = parser.parse_args()
    asyncio.run(supervise(StateFolder(options.state), options.manifests, options.older))
    return 0


if __name__ == "__main__":
    sys.exit(main())
