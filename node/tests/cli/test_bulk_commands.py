"""Which load a repeated command continues, and when a disk has too little room."""

from __future__ import annotations

from pathlib import Path

import pytest

from txlog.backup.folder_target import FolderTarget
from txlog.bulk.bulk_errors import NoRoom
from txlog.bulk.load_files import LoadFolder, LoadIntent, LoadOutcome, LoadSource
from txlog.bulk.load_writer import build_manifest, write_parts
from txlog.cli.bulk_commands import _describe_load, _find_request, _Place, _refuse_full_disks, _Setting
from txlog.cli.cli_cluster import CliCluster
from txlog.model.errors import BadInput

CLUSTER, LOAD = "0a" * 16, "01" * 16
SOURCES = [LoadSource("a.nt", 10, "ab" * 16)]


@pytest.fixture
def setting(tmp_path: Path) -> _Setting:
    place = _Place("uk", [], FolderTarget(tmp_path), CLUSTER, [tmp_path])
    return _Setting(CliCluster({}, None), CLUSTER, [place])


def begun(setting: _Setting) -> LoadFolder:
    folder = setting.places[0].folder(LOAD)
    folder.create_request(LoadIntent(LOAD, CLUSTER, SOURCES, "urn:g", 5.0))
    return folder


def test_the_same_files_continue_their_load(setting: _Setting) -> None:
    assert _find_request(setting, SOURCES, "urn:g", again=False) is None
    begun(setting)
    found = _find_request(setting, [LoadSource("moved.nt", 10, "ab" * 16)], "urn:g", again=False)
    assert found is not None
    assert found.id == LOAD
    assert _find_request(setting, SOURCES, "urn:h", again=False) is None, "another graph"
    assert _find_request(setting, [LoadSource("a.nt", 10, "cd" * 16)], "urn:g", again=False) is None, "other contents"
    assert _find_request(setting, SOURCES * 2, "urn:g", again=False) is None, "more files"


def test_an_aborted_load_is_not_continued(setting: _Setting) -> None:
    begun(setting).decide("abort", 1.0)
    assert _find_request(setting, SOURCES, "urn:g", again=False) is None


def test_what_is_in_is_loaded_again_only_when_asked_for(setting: _Setting) -> None:
    folder = begun(setting)
    folder.decide("commit", 1.0)
    folder.write_outcome(LoadOutcome("uk-1.1.1", 7, 1.0))
    with pytest.raises(BadInput, match=r"in the cluster already: load .* index 7"):
        _find_request(setting, SOURCES, "urn:g", again=False)
    assert _find_request(setting, SOURCES, "urn:g", again=True) is None


def test_the_states_of_a_load(setting: _Setting) -> None:
    folder = begun(setting)
    request = folder.read_request()
    states = [_describe_load(folder)["state"]]
    line = b"<urn:a> <urn:p> <urn:b> .\n"
    folder.write_manifest(build_manifest(request, write_parts(folder, iter([line]), lambda _: None)))
    states.append(_describe_load(folder)["state"])
    folder.decide("commit", 1.0)
    states.append(_describe_load(folder)["state"])
    folder.write_outcome(LoadOutcome("uk-1.1.1", 7, 1.0))
    states.append(_describe_load(folder)["state"])
    assert states == ["Writing", "Staged", "Committed", "Loaded"]


def test_a_disk_with_too_little_room_is_named(setting: _Setting, tmp_path: Path) -> None:
    _refuse_full_disks(setting.places, 1)
    with pytest.raises(NoRoom, match=f"{tmp_path.name}: .* are free"):
        _refuse_full_disks(setting.places, 1 << 60)
