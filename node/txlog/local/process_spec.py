"""One process of a local cluster, and how the processes of TxLog itself are started. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from txlog.config.process_config import ChangeSetsConfig, NodeConfig, SiteLinkConfig
from txlog.config.process_config_builder import MASTER_STOP_MARGIN_S
from txlog.local.state_folder import MasterLocation, StateFolder

Role = Literal["worker", "links", "master", "pipeline", "archiver", "changesets", "site"]


@dataclass(frozen=True)
class ProcessSpec:
    """One process; its name is also the name of its log file. ``url`` with ``ready_path`` answers once the process is
    ready. ``stop_timeout_s``: how long a graceful exit may take."""

    name: str
    role: Role
    data_center: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    ready_path: str = "/"
    stop_timeout_s: float = 10.0


def loopback_url(port: int, *, tls: bool = False) -> str:
    """The URL of a port of this machine."""
    return f"{'https' if tls else 'http'}://127.0.0.1:{port}"


def change_sets_name(data_center: str) -> str:
    """The name of the process that makes the change sets of a data centre, and of its port."""
    return f"{data_center}-changesets"


def master_program(config: NodeConfig, master: MasterLocation, state: StateFolder, python: str) -> ProcessSpec:
    """The process of a master."""
    return ProcessSpec(
        name=master.node,
        role="master",
        data_center=master.data_center,
        command=(python, "-m", "txlog.server", "--config", str(state.master(master.node) / "config.json")),
        url=master.url,
        ready_path="/health/ready",
        stop_timeout_s=config.leave_timeout_ms / 1000 + MASTER_STOP_MARGIN_S,
    )


def pipeline_program(name: str, data_center: str, state: StateFolder, python: str, java_home: Path) -> ProcessSpec:
    """The process of a data centre's Spark application."""
    return ProcessSpec(
        name=name,
        role="pipeline",
        data_center=data_center,
        command=(python, "-m", "txlog.pipeline", "--config", str(state.pipeline(data_center) / "config.json")),
        environment={
            **state.own_environment,
            "JAVA_HOME": str(java_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
        },
        stop_timeout_s=20.0,
    )


def archiver_program(data_center: str, state: StateFolder, python: str) -> ProcessSpec:
    """The process of a data centre's archiver. At its end it archives what was read, so it needs the masters."""
    return ProcessSpec(
        name=f"{data_center}-archiver",
        role="archiver",
        data_center=data_center,
        command=(python, "-m", "txlog.archive", "--config", str(state.archiver(data_center))),
        environment=state.own_environment,
        stop_timeout_s=15.0,
    )


def change_sets_program(config: ChangeSetsConfig, state: StateFolder, python: str) -> ProcessSpec:
    """The process that makes the change sets of a data centre."""
    return ProcessSpec(
        name=change_sets_name(config.data_center),
        role="changesets",
        data_center=config.data_center,
        command=(
            *(python, "-m", "txlog.capture", "--config"),
            str(state.change_sets(config.data_center) / "config.json"),
        ),
        environment=state.own_environment,
        url=loopback_url(config.port),
        ready_path="/health/ready",
        stop_timeout_s=30.0,
    )


def site_link_name(data_center: str, other: str) -> str:
    """Name of the process that imports the changes of another site."""
    return f"{data_center}-from-{other}"


def site_link_program(config: SiteLinkConfig, python: str, environment: Mapping[str, str]) -> ProcessSpec:
    """The process that imports the changes of another site."""
    return ProcessSpec(
        name=site_link_name(config.data_center, config.other.name),
        role="site",
        data_center=config.data_center,
        command=(python, "-m", "txlog.sites", "--config", str(config.folder / "config.json")),
        environment=dict(environment),
        stop_timeout_s=15.0,
    )
