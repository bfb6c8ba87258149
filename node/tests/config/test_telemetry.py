"""``spec.telemetry`` goes from a manifest into the processes that trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_limits import MANIFEST

from txlog.config.cluster import TxLogCluster
from txlog.config.manifest_reader import BadManifest, load_manifests
from txlog.config.process_config import NodeConfig, TracesConfig
from txlog.config.process_config_builder import build_node_config


def read(folder: Path, telemetry: str) -> TxLogCluster:
    (folder / "a.yaml").write_text(f"{MANIFEST}  telemetry: {telemetry}\n")
    (found,) = load_manifests(folder)
    return found.cluster


def master(cluster: TxLogCluster, folder: Path) -> NodeConfig:
    places = {"journal_folder": folder, "token_file": folder}
    return build_node_config(cluster, "uk-1", url_of=lambda _peer, _index: "http://a", port=7300, workers=[], **places)


def test_a_master_gets_it(tmp_path: Path) -> None:
    given = read(tmp_path, "{traces: {endpoint: 'https://c/otlp', sampleRatio: 0.5}}")
    assert master(given, tmp_path).traces == TracesConfig(endpoint="https://c/otlp", sample_ratio=0.5)
    assert master(read(tmp_path, "{traces: {endpoint: 'http://c:4318'}}"), tmp_path).traces == TracesConfig(
        endpoint="http://c:4318", sample_ratio=0.01
    )
    assert master(read(tmp_path, "{}"), tmp_path).traces is None


@pytest.mark.parametrize(
    ("traces", "field"),
    [
        ("{}", "endpoint"),
        ("{endpoint: 'collector:4318'}", "endpoint"),
        ("{endpoint: 'http://c', sampleRatio: 1.5}", "sampleRatio"),
        ("{endpoint: 'http://c', sampleRatio: -0.1}", "sampleRatio"),
        ("{endpoint: 'http://c', sampleRate: 1}", "sampleRate"),
    ],
)
def test_what_is_refused_names_its_field(tmp_path: Path, traces: str, field: str) -> None:
    with pytest.raises(BadManifest, match=rf"telemetry.traces.{field}"):
        read(tmp_path, f"{{traces: {traces}}}")
