"""Runs one master from its ``cluster.properties``. Its peers run elsewhere, each from its own file, and its stores are
external. The Spark application and the duties of its data centre run here if the file specifies that."""

from __future__ import annotations

import sys
from pathlib import Path

from txlog.auth.tls import CA_FILE
from txlog.config.cluster_properties import ClusterProperties, is_properties, read_cluster_properties
from txlog.config.process_config import DutyJobConfig, FolderConfig
from txlog.local.local_errors import CannotRun
from txlog.local.process_plan import ProcessPlan
from txlog.local.process_spec import ProcessSpec, master_program, pipeline_program
from txlog.local.state_folder import MasterLocation, StateFolder, Topology, WorkerLocation

_WILDCARD_ADDRESSES = ("0.0.0.0", "::")


def single_master_properties(paths: list[Path]) -> ClusterProperties | None:
    """The content of the file, if the only path is a ``cluster.properties``; None where manifests are given.
    :class:`~txlog.config.cluster_properties.BadProperties`."""
    given = [path for path in paths if is_properties(path)]
    if not given:
        return None
    if len(paths) > 1:
        raise CannotRun(f"{given[0]}: expected it alone: it is one master, and others are started beside it")
    return read_cluster_properties(given[0])


def single_master_plan(
    found: ClusterProperties, state: StateFolder, java_home: Path, python: str = sys.executable
) -> ProcessPlan:
    """The plan of its processes, in the (prepared) state folder."""
    config, node = found.node, found.node.node
    if config.users_file is not None:
        config = config.model_copy(update={"own_token_file": state.own_token_file})
    if not config.peer_token_file.exists():
        raise CannotRun(
            f"{config.peer_token_file} is missing: the secret that all masters share, one line of ASCII, the same file "
            "for each of them (openssl rand -hex 32); another place: peer-token-file=PATH"
        )
    if config.tls_folder is not None:
        try:
            state.write_trusted((config.tls_folder / CA_FILE).read_text("ascii"))
        except (OSError, UnicodeDecodeError) as wrong:
            raise CannotRun(f"{config.tls_folder / CA_FILE}: {wrong}") from None
    else:
        state.write_trusted(None)
    own = MasterLocation(node=node, data_center=config.data_center, url=_client_url(found))
    topology = Topology(
        repository=config.repository,
        data_centers=[config.data_center],
        masters=[own],
        workers=[
            WorkerLocation(name=w.name, data_center=config.data_center, url=w.url, engine=w.engine, managed=False)
            for w in config.workers
        ],
    )
    pipeline = found.pipeline_config(state.pipeline(config.data_center) / "scratch")
    programs: list[ProcessSpec] = [master_program(config, own, state, python)]
    pipelines = {f"{config.data_center}-pipeline": pipeline} if pipeline is not None else {}
    programs += [pipeline_program(name, each.data_center, state, python, java_home) for name, each in pipelines.items()]
    duties = DutyJobConfig(
        data_center=config.data_center,
        masters=found.local_masters,
        target=FolderConfig(folder=state.split_backups(config.data_center)),
        elsewhere=found.remote_masters,
        shown=state.rejoin_diffs(config.data_center),
        repaired=state.repair_patches(config.data_center),
    )
    return ProcessPlan(
        topology=topology,
        programs=tuple(programs),
        links=(),
        master_configs={node: config},
        pipeline_configs=pipelines,
        duty_configs={config.data_center: duties} if pipeline is not None else {},
    )


def _client_url(found: ClusterProperties) -> str:
    """The URL for this machine's own processes: with TLS by the master's host name, else its listen address."""
    config = found.node
    if config.tls_folder is not None:
        return found.url
    host = "127.0.0.1" if config.host in _WILDCARD_ADDRESSES else config.host
    return f"http://{f'[{host}]' if ':' in host else host}:{config.port}"
