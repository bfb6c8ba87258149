"""The cluster of a soak: what `txlog up` runs, under a supervisor whose masters can be told something else at a start.

``python -m e2e.soak.soak_cluster --state DIR FILE…`` is that supervisor. Before each start of a master it reads
``overrides/NODE.json`` of the state folder: fields of :class:`NodeConfig` for this start. So a clock is wrong, or a
disk full, from one start to another, without a door for it in the product.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from e2e.lib.cluster.masters import CannotMeasure
from e2e.lib.cluster.supervised import SupervisedMasters
from txlog.cli.cluster_commands import is_ready
from txlog.config.process_config import NodeConfig
from txlog.local.daemon_control import stop_daemon
from txlog.local.state_folder import StateFolder
from txlog.local.supervisor import Supervisor, SupervisorIntervals
from txlog.local.supervisor_api import serve_control_api
from txlog.local.supervisor_main import plan_for

UP_S: Final = 180.0
SOAK_INTERVALS: Final = SupervisorIntervals(stable_after_s=2.0, restart_max_s=2.0)
"""What is killed so often must not wait for it: pauses are no fault that is looked for."""
SEGMENT_BYTES: Final = 1 << 20
"""Small ones, so that a disk can be full before 64 MiB are written, and a journal has more than one file."""


class OverriddenConfigs(Mapping[str, NodeConfig]):
    """The plan's configurations with what stands in the state folder at the moment of asking."""

    def __init__(self, nodes: Mapping[str, NodeConfig], state: StateFolder) -> None:
        self._nodes = nodes
        self._state = state

    def __getitem__(self, node: str) -> NodeConfig:
        planned = self._nodes[node].model_dump(mode="json")
        told = self._state.read(f"overrides/{node}.json", {})
        return NodeConfig.model_validate_json(json.dumps({**planned, "segment_bytes": SEGMENT_BYTES, **told}))

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class SoakCluster(SupervisedMasters):
    """The running cluster."""

    def override(self, node: str, **fields: Any) -> None:
        """For the next starts of that master; without any: as the manifest says."""
        (self.state.root / "overrides").mkdir(exist_ok=True)
        self.state.write(f"overrides/{node}.json", fields)

    def journal(self, node: str) -> Path:
        return self.state.master(node) / "journal"

    def other_nodes(self, node: str) -> list[str]:
        return [other for other in self.nodes if other != node]

    def nodes_of(self, side: str) -> list[str]:
        return [master.node for master in self.topology.masters_of(side)]

    def late_pipelines(self) -> list[str]:
        """Those that have not looked at all of their workers since their process was started, as far as a master of
        their data centre has heard."""
        pipelines = [p for p in self.control.status()["processes"] if p["role"] == "pipeline"]
        return [p["name"] for p in pipelines if not (p["state"] == "Running" and is_ready(p, self._masters_near(p)))]

    def _masters_near(self, process: Mapping[str, Any]) -> list[str]:
        return [master.url for master in self.topology.masters_of(process["dataCenter"])]


async def supervise(paths: Sequence[Path], state: StateFolder) -> None:
    state.prepare()
    with state.locked():
        plan = plan_for(paths, state)
        supervisor = Supervisor(
            replace(plan, master_configs=OverriddenConfigs(plan.master_configs, state)), state, SOAK_INTERVALS
        )
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with serve_control_api(supervisor, stop):
            await supervisor.run(stop)


@contextmanager
def soak_cluster_up(folder: Path, manifests: Path) -> Iterator[SoakCluster]:
    """Start it, and end it; the folder stays, with the logs."""
    state = StateFolder(folder)
    if folder.exists():
        stop_daemon(state)
        state.purge()
    state.prepare()
    with open(state.log("supervisor"), "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "e2e.soak.soak_cluster", "--state", str(folder), str(manifests)],
            stdout=log,
            stderr=log,
        )
    try:
        until = time.monotonic() + UP_S
        while not (folder / "control.json").exists() or not (folder / "topology.json").exists():
            if process.poll() is not None or time.monotonic() > until:
                raise CannotMeasure(f"the supervisor does not work; see {state.log('supervisor')}")
            time.sleep(0.05)
        arena = SoakCluster(folder)
        arena.wait_joined(UP_S)
        yield arena
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(90)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.soak.soak_cluster", description="the supervisor of a soak")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("paths", type=Path, nargs="+")
    options = parser.parse_args()
    asyncio.run(supervise(options.paths, StateFolder(options.state)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
