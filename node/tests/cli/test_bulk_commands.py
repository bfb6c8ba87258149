"""Which load a repeated command continues, and when a disk has too little room."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import pytest

from txlog.backup.backup_errors import TargetFull
from txlog.backup.folder_target import FolderTarget
from txlog.bulk.bulk_errors import BulkKeyForgotten, BulkPartDamaged, NoRoom, TooLate
from txlog.bulk.load_files import LoadFolder, LoadIntent, LoadOutcome, LoadSource
from txlog.bulk.load_run import BulkSite
from txlog.bulk.load_writer import build_manifest, write_parts
from txlog.cli import bulk_commands
from txlog.cli.bulk_commands import (
    _begin_request,
    _check_graph,
    _describe_load,
    _find_request,
    _key_retention,
    _LoadRun,
    _Place,
    _refuse_full_disks,
    _Setting,
)
from txlog.cli.cli_cluster import CliCluster
from txlog.cli.main import handle_errors
from txlog.cli.rdf_chunks import open_source
from txlog.model.bulk_entry import BulkReference
from txlog.model.errors import BadInput, SystemGraphNamed, TxLogError, Unavailable

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


def test_a_load_of_unknown_outcome_is_continued_while_its_key_is_known(
    setting: _Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_commands, "_key_retention", lambda _: 3600.0)
    folder = begun(setting)
    folder.decide("commit", time.time() - 1700)
    assert _find_request(setting, SOURCES, "urn:g", again=False) == folder.read_request()
    monkeypatch.setattr(bulk_commands, "_key_retention", lambda _: 3300.0)
    with pytest.raises(BulkKeyForgotten, match="with --again"):
        _find_request(setting, SOURCES, "urn:g", again=False)
    assert _find_request(setting, SOURCES, "urn:g", again=True) is None, "a load of its own"


def test_how_long_a_key_is_known_is_counted_in_seconds(setting: _Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """In milliseconds, an entry would be written long after its key was forgotten, and could come in twice."""
    monkeypatch.setattr(CliCluster, "ask_first", lambda *_: {"keyRetention": "24h"})
    assert _key_retention(setting) == 24 * 3600


def other(setting: _Setting, load: str) -> LoadFolder:
    """Another load of the same files."""
    folder = setting.places[0].folder(load)
    folder.create_request(LoadIntent(load, CLUSTER, SOURCES, "urn:g", 6.0))
    return folder


@pytest.mark.parametrize("load", ["00" * 16, "02" * 16])
def test_what_is_in_or_may_be_comes_before_what_is_undecided(
    setting: _Setting, monkeypatch: pytest.MonkeyPatch, load: str
) -> None:
    """A load that a refused command has left would bring the quads in twice. Its id may be smaller, or larger."""
    monkeypatch.setattr(bulk_commands, "_key_retention", lambda _: 3600.0)
    undecided = begun(setting)
    first = other(setting, load)
    first.decide("commit", time.time())
    assert _find_request(setting, SOURCES, "urn:g", again=False) == first.read_request()
    first.write_outcome(LoadOutcome("uk-1.1.1", 7, 1.0))
    with pytest.raises(BadInput, match="in the cluster already"):
        _find_request(setting, SOURCES, "urn:g", again=False)
    assert _find_request(setting, SOURCES, "urn:g", again=True) == undecided.read_request()


@pytest.mark.parametrize("load", ["0" * 32, "f" * 32])
def test_commands_of_the_same_files_that_begin_at_once_share_a_load(
    setting: _Setting, monkeypatch: pytest.MonkeyPatch, load: str
) -> None:
    create = LoadFolder.create_request

    def create_beside(folder: LoadFolder, request: LoadIntent) -> None:
        create(folder, request)
        if request.id != load:
            other(setting, load)

    monkeypatch.setattr(LoadFolder, "create_request", create_beside)
    ours = _begin_request(setting, SOURCES, "urn:g", again=False)
    assert ours == _begin_request(setting, SOURCES, "urn:g", again=False), "the other command finds the same one"
    assert (ours.id == load) == (load == "0" * 32)


def run_of(setting: _Setting) -> _LoadRun:
    folder = begun(setting)
    return _LoadRun(setting, [BulkSite("uk", [], folder)], folder, folder.read_request(), True)


@pytest.mark.parametrize("decision", ["commit", None])
def test_parts_of_a_committed_load_stay(setting: _Setting, tmp_path: Path, decision: Literal["commit"] | None) -> None:
    """Two commands of the same files share the parts. One may have committed them when the other one fails."""
    run = run_of(setting)
    home = setting.places[0].folder(LOAD)
    part = home.write_part(b"<urn:a> <urn:p> <urn:b> .\n")
    if decision is not None:
        home.decide(decision, 1.0)
    (tmp_path / "broken.nt").write_text("<urn:a> <urn:p>\n")
    with open_source(str(tmp_path / "broken.nt")) as source, pytest.raises(BadInput, match=r"broken.nt:1"):
        run.write_and_stage([source], None)
    assert home.target.create(home.part_key(part), b"") == (decision is None)


def test_a_damaged_part_is_written_again_from_the_same_files(setting: _Setting, tmp_path: Path) -> None:
    run = run_of(setting)
    home = setting.places[0].folder(LOAD)
    file = tmp_path / "a.nt"
    file.write_text("<urn:a> <urn:p> _:b .\n")

    def write() -> BulkReference:
        with open_source(str(file)) as source:
            return run.write_and_stage([source], "urn:g")[0]

    first = write()
    (part,) = home.read_manifest(first).parts
    (tmp_path / home.part_key(part)).write_bytes(b"other")
    assert write() == first
    assert home.read_part(part)


def test_where_a_load_is_in_the_log_is_noted_before_the_workers_are_waited_for(
    setting: _Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(*_: object) -> None:
        raise Unavailable("Unreachable", "no master answers")

    run = run_of(setting)
    home = setting.places[0].folder(LOAD)
    home.decide("commit", 1.0)
    outcome = LoadOutcome("uk-1.1.1", 7, 1.0)
    monkeypatch.setattr(bulk_commands, "_key_retention", lambda _: 3600.0)
    monkeypatch.setattr(bulk_commands, "commit_load", lambda *_: "uk-1.1.1")
    monkeypatch.setattr(_LoadRun, "_find_outcome", lambda *_: outcome)
    monkeypatch.setattr(_LoadRun, "_await", wait)
    reference = home.write_manifest(build_manifest(home.read_request(), []))
    with pytest.raises(Unavailable):
        run.take_in(reference, home.read_manifest(reference), 1.0, 1.0)
    assert home.read_outcome() == outcome


def test_what_another_command_has_decided_is_waited_for_no_longer(
    setting: _Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(*given: Any) -> None:
        home.decide("commit", 1.0)
        assert given[-1](), "it looks for the decision"

    run = run_of(setting)
    home = setting.places[0].folder(LOAD)
    reference = home.write_manifest(build_manifest(home.read_request(), []))
    monkeypatch.setattr(bulk_commands, "prepare_load", prepare)
    run._prepare(reference, home.read_manifest(reference), 1.0)


@pytest.mark.parametrize(("error", "is_kept"), [(TargetFull("x"), False), (Unavailable("OutcomeUnknown", "x"), True)])
def test_stores_are_freed_unless_the_entry_may_come(
    setting: _Setting, monkeypatch: pytest.MonkeyPatch, error: TxLogError, is_kept: bool
) -> None:
    def fail(*_: object) -> None:
        raise error

    run = run_of(setting)
    home = setting.places[0].folder(LOAD)
    freed: list[str] = []
    monkeypatch.setattr(bulk_commands, "_key_retention", lambda _: 3600.0)
    monkeypatch.setattr(_LoadRun, "_prepare", lambda *_: None)
    monkeypatch.setattr(bulk_commands, "commit_load", fail)
    monkeypatch.setattr(bulk_commands, "give_up", lambda _, load: freed.append(load))
    reference = home.write_manifest(build_manifest(home.read_request(), []))
    with pytest.raises(type(error)):
        run.take_in(reference, home.read_manifest(reference), 1.0, 1.0)
    assert freed == ([] if is_kept else [LOAD])


@pytest.mark.parametrize("graph", ["", "g", "urn:a b", "urn:txlog:system:x"])
def test_a_graph_that_is_none_is_refused_at_the_beginning(graph: str) -> None:
    with pytest.raises((BadInput, SystemGraphNamed)):
        _check_graph(graph)
    _check_graph("urn:g")
    _check_graph(None)


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


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (BulkPartDamaged("x"), "PartDamaged: x"),
        (BulkKeyForgotten("x"), "KeyForgotten: x"),
        (TooLate("x"), "TooLate: x"),
        (BadInput("x"), "x"),
    ],
)
def test_an_error_is_shown_by_the_name_that_the_page_lists(
    capsys: pytest.CaptureFixture[str], error: TxLogError, shown: str
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit):
        handle_errors(fail)
    assert capsys.readouterr().err == f"{shown}\n"


def test_a_disk_with_too_little_room_is_named(setting: _Setting, tmp_path: Path) -> None:
    _refuse_full_disks(setting.places, 1)
    with pytest.raises(NoRoom, match=f"{tmp_path.name}: .* are free"):
        _refuse_full_disks(setting.places, 1 << 60)
