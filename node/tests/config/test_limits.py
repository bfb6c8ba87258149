"""``spec.limits`` goes from a manifest, or a ``cluster.properties`` file, into what acts on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from txlog.apply import ApplyOutcome, WorkerState
from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_properties import BadProperties, read_cluster_properties
from txlog.config.limit_specs import LimitsSpec
from txlog.config.manifest_reader import BadManifest, load_manifests
from txlog.config.preferences import is_manifest_only
from txlog.config.process_config import NodeConfig, PipelineConfig
from txlog.config.process_config_builder import build_node_config
from txlog.pipeline import worker_applier
from txlog.pipeline.apply_round import WorkerCache
from txlog.server.log_service import core_settings
from txlog.workers.adapter import Transport

MANIFEST = """\
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {name: catalogue}
spec:
  dataCenter: uk
  peers:
  - {name: uk, masters: 1, address: uk.example.net}
"""
PROPERTIES = (
    "node-id=uk-1\nmaster-url=http://uk-1.example.net:7300/repositories/r\nworker.1.url=http://127.0.0.1:7878\n"
)


def read(folder: Path, limits: str) -> TxLogCluster:
    (folder / "a.yaml").write_text(MANIFEST + limits)
    (found,) = load_manifests(folder)
    return found.cluster


def master(cluster: TxLogCluster) -> NodeConfig:
    return build_node_config(
        cluster,
        "uk-1",
        url_of=lambda peer, index: "http://127.0.0.1:1",
        port=1,
        journal_folder=Path("j"),
        token_file=Path("t"),
        workers=[],
    )


def test_the_keys_that_a_manifest_allows_are_those_of_the_core(tmp_path: Path) -> None:
    config = master(read(tmp_path, "  limits: {keysMax: 5000}\n"))
    assert core_settings(config).keys_max == 5000
    assert config.limits.model_dump(exclude={"keys_max"}) == NodeConfig.model_validate(
        {**config.model_dump(), "limits": {}}
    ).limits.model_dump(exclude={"keys_max"}), "no other bound changes"


def test_without_a_word_nothing_changes(tmp_path: Path) -> None:
    """Also not the text of the configuration, by which supervisors see that a process has to be started again."""
    cluster = read(tmp_path, "")
    assert core_settings(master(cluster)).keys_max == 20_000_000
    assert "limits" not in master(cluster).model_dump(exclude_defaults=True)
    fields = cluster.spec.limits.pipeline_fields()
    pipeline = PipelineConfig(data_center="uk", masters=["m"], workers=[WORKER], scratch_folder=tmp_path, **fields)
    assert (pipeline.execution_s, pipeline.closed_connections) == (20.0, 3)
    assert not {"execution_s", "closed_connections"} & pipeline.model_dump(exclude_defaults=True).keys()


WORKER: dict[str, Any] = {"name": "uk-worker-1", "url": "http://127.0.0.1:7878"}


@pytest.mark.parametrize(
    ("limits", "field", "what"),
    [
        ("{keysMax: 999}", "keysMax", "1000"),
        ("{keysMax: 30000001}", "keysMax", "30000000"),
        ("{keysMax: '5000'}", "keysMax", "expected a whole number"),
        ("{keysMax: 5000.0}", "keysMax", "expected a whole number"),
        ("{executionTimeout: 41s}", "executionTimeout", "a duration from 1s to 40s"),
        ("{executionTimeout: 999ms}", "executionTimeout", "a duration from 1s to 40s"),
        ("{executionTimeout: 20}", "executionTimeout", "a duration: a whole number and one of"),
        ("{closedConnections: 1}", "closedConnections", "2"),
        ("{closedConnections: 101}", "closedConnections", "100"),
        ("{joinParts: 200}", "joinParts", "no such field"),
        ("5", "", "expected a mapping"),
    ],
)
def test_a_bound_that_does_not_fit_is_named_with_its_line(tmp_path: Path, limits: str, field: str, what: str) -> None:
    with pytest.raises(BadManifest) as caught:
        read(tmp_path, f"  limits: {limits}\n")
    (said,) = (str(problem) for problem in caught.value.problems)
    where = f"a.yaml:8: spec.limits{f'.{field}' if field else ''}: "
    assert where in said
    assert what in said.partition(where)[2]


def test_properties_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "cluster.properties"
    path.write_text(PROPERTIES + "keys-max=5000\nexecution-timeout=30s\nclosed-connections=5\n")
    found = read_cluster_properties(path)
    assert found.limits == LimitsSpec.model_validate(
        {"keysMax": 5000, "executionTimeout": "30s", "closedConnections": 5}
    )
    assert core_settings(found.node).keys_max == 5000
    pipeline = found.pipeline_config(tmp_path)
    assert pipeline is not None
    assert (pipeline.execution_s, pipeline.closed_connections) == (30.0, 5)
    path.write_text(PROPERTIES)
    assert read_cluster_properties(path).limits == LimitsSpec()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("keys-max=10", "a whole number from 1000 to 30000000"),
        ("execution-timeout=2m", "a duration from 1s to 40s"),
        ("closed-connections=one", "a whole number from 2 to 100"),
    ],
)
def test_a_wrong_property_is_named_with_its_line(tmp_path: Path, line: str, expected: str) -> None:
    path = tmp_path / "cluster.properties"
    path.write_text(f"{PROPERTIES}{line}\n")
    name, _, value = line.partition("=")
    with pytest.raises(BadProperties) as caught:
        read_cluster_properties(path)
    assert str(caught.value) == f'{path}:4: {name}: is "{value}"; expected {expected}'
    assert is_manifest_only(name)


def test_the_pipeline_hands_its_bounds_to_what_applies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, Any] = {}

    def apply_up_to(*_: Any, **named: Any) -> ApplyOutcome:
        given.update(named)
        return ApplyOutcome(None, WorkerState.WORKING, None, None, 0, 0, None, None)

    monkeypatch.setattr(worker_applier, "apply_up_to", apply_up_to)
    fields = LimitsSpec.model_validate({"executionTimeout": "7s", "closedConnections": 9}).pipeline_fields()
    config = PipelineConfig(
        data_center="uk", masters=["http://127.0.0.1:1"], workers=[WORKER], scratch_folder=tmp_path, **fields
    )
    applier = worker_applier.WorkerApplier(config, "uk-worker-1", lambda url: cast(Transport, None))
    applier(1, 0.1, WorkerCache(probed=True))
    assert (given["execution_s"], given["ended_min"]) == (7.0, 9)
