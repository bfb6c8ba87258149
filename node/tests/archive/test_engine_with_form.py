"""In which form a store that takes over a lost cluster's content holds literals (decisions/0101)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from txlog.archive import moment_restore
from txlog.archive.moment_restore import MomentRequest, engine_with_form
from txlog.archive.stream_reader import StreamReader
from txlog.backup.target import BackupTarget
from txlog.config.process_config import NodeConfig, WorkerConfig
from txlog.config.units import AS_WRITTEN
from txlog.successor.succession import recovered_engine

READER = cast("StreamReader", SimpleNamespace(stream=SimpleNamespace(id=SimpleNamespace(cluster=bytes(16)))))
PLACE = cast("BackupTarget", object())


def hold(monkeypatch: pytest.MonkeyPatch, *engines: str) -> None:
    """The target has backups of these engines, the highest position first."""
    found = [SimpleNamespace(manifest=SimpleNamespace(engine=engine)) for engine in engines]
    monkeypatch.setattr(moment_restore, "newest_backups", lambda *_: found)


@pytest.mark.parametrize(
    ("backups", "engine", "form"),
    [
        (["rdf4j"], "rdf4j", "rdf4j"),
        ([AS_WRITTEN], "rdf4j", AS_WRITTEN),
        ([AS_WRITTEN, "rdf4j"], "rdf4j", AS_WRITTEN),
        (["oxigraph", "rdf4j"], "rdf4j", "rdf4j"),
        ([], "rdf4j", AS_WRITTEN),
        ([AS_WRITTEN], "oxigraph", "oxigraph"),
    ],
)
def test_the_newest_backup_says_the_form(
    monkeypatch: pytest.MonkeyPatch, backups: list[str], engine: str, form: str
) -> None:
    hold(monkeypatch, *backups)
    assert engine_with_form(READER, PLACE, engine) == form


@pytest.mark.parametrize(
    ("engine", "changes", "form"),
    [
        ("rdf4j", {}, AS_WRITTEN),
        ("rdf4j", {"mixed_engines": True}, "rdf4j"),
        (AS_WRITTEN, {}, AS_WRITTEN),
        ("oxigraph", {}, "oxigraph"),
    ],
)
def test_a_recovered_store_has_the_form_of_the_lost_ones(
    monkeypatch: pytest.MonkeyPatch, engine: str, changes: dict[str, Any], form: str
) -> None:
    hold(monkeypatch, AS_WRITTEN)
    worker = WorkerConfig(name="w-1", url="http://127.0.0.1:1", engine=cast("Any", engine))
    master = NodeConfig.model_validate(
        {
            "node": "uk-1",
            "data_center": "uk",
            "repository": "demo",
            "port": 7300,
            "journal_folder": "/nowhere",
            "peer_token_file": "/nowhere/token",
            "peers": [{"node": "uk-1", "data_center": "uk", "url": "http://127.0.0.1:7300"}],
            "workers": [worker],
            **changes,
        }
    )
    request = MomentRequest(cast("Any", None), PLACE)
    assert recovered_engine(master, READER, request, worker) == form
