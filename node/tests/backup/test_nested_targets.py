"""The part of a target that is a further repository's: with the same names, apart, and unseen by an older program."""

from __future__ import annotations

from pathlib import Path

import pytest
from oxigraph_process import OxigraphProcess
from pen import apply, back_up, filled_log, folder_target, put_back

from e2e.lib.seaweedfs import ACCESS, SECRET, SeaweedProcess
from txlog.backup import BackupTarget, catalogue, check_backup, delete_backup, open_target
from txlog.backup.backup_errors import NameTaken, NoSuchBackup, ObjectMissing, TargetUnreachable
from txlog.config.process_config import FolderConfig, S3Config, TargetConfig


@pytest.fixture(params=["folder", "s3"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> TargetConfig:
    if request.param == "folder":
        (tmp_path / "backups").mkdir()
        return FolderConfig(folder=tmp_path / "backups")
    seaweed: SeaweedProcess = request.getfixturevalue("seaweed")
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text(ACCESS)
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text(SECRET)
    return S3Config(bucket="backups", prefix=tmp_path.name, endpoint=seaweed.url, credentials_folder=tmp_path)


def nested(config: TargetConfig, repository: str) -> BackupTarget:
    return open_target(config.model_copy(update={"repository": repository}))


def test_the_same_names_are_apart(config: TargetConfig, worker: OxigraphProcess, empty: OxigraphProcess) -> None:
    log = filled_log(6)
    apply(worker, log, 3)
    outer, stock, other = open_target(config), nested(config, "stock"), nested(config, "stock2")
    assert stock.location == f"{outer.location}/_repositories/stock"
    assert list(stock.list_objects()) == []
    back_up(worker, outer, name="one")
    apply(worker, log)
    made = back_up(worker, stock, name="one")
    assert [each.name for each in catalogue(outer)] == ["one"], "as an older program lists it"
    assert [each.manifest for each in catalogue(stock)] == [made]
    assert catalogue(other) == [], "a name that begins alike"
    assert check_backup(outer, "one").place.index == 3
    assert check_backup(stock, "one").place.index == 6
    with pytest.raises(NoSuchBackup):
        check_backup(other, "one")
    with pytest.raises(NoSuchBackup):
        check_backup(outer, "_repositories")
    assert put_back(stock, "one", empty, log).quads == 60
    delete_backup(stock, "one")
    assert (catalogue(stock), len(catalogue(outer))) == ([], 1)


def test_objects_by_key(config: TargetConfig) -> None:
    outer, stock = open_target(config), nested(config, "stock")
    stock.write("b/one", b"1")
    with pytest.raises(NameTaken):
        stock.write("b/one", b"2")
    assert stock.create("b/one", b"2") is False
    stock.write("_state/deep/er", b"3")
    stock.write("_state/two", b"4")
    assert [each.key for each in stock.list_objects()] == ["b/one"]
    assert [each.key for each in stock.list_objects("b/")] == ["b/one"]
    assert list(stock.list_objects("b/x")) == []
    assert [each.key for each in stock.list_objects("_state/")] == ["_state/two"]
    assert sorted(each.key for each in stock.list_nested("_state")) == ["_state/deep/er", "_state/two"]
    assert [each.key for each in stock.list_nested("_state", "_state/deep/er")] == ["_state/two"]
    assert stock.read("b/one", 9) == b"1"
    assert outer.read("_repositories/stock/b/one", 9) == b"1"
    assert list(outer.list_objects()) == []
    stock.delete(["b/one", "b/none"])
    with pytest.raises(ObjectMissing):
        stock.read("b/one", 9)
    assert stock.read("_state/two", 9) == b"4"


def test_a_volume_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    stock = nested(FolderConfig(folder=tmp_path / "none"), "stock")
    with pytest.raises(TargetUnreachable):
        list(stock.list_objects())
    with pytest.raises(TargetUnreachable):
        stock.write("b/one", b"1")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-a", "_a"])
def test_what_is_no_name_of_a_repository_is_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="repository"):
        FolderConfig(folder=tmp_path, repository=name)
    with pytest.raises(ValueError, match="repository"):
        S3Config(bucket="b", repository=name)


def test_a_plain_target_is_written_as_before(tmp_path: Path) -> None:
    assert "repository" not in FolderConfig(folder=tmp_path).model_dump_json(exclude_defaults=True)
    assert FolderConfig.model_validate_json('{"folder": "/b"}').repository is None
    assert folder_target(tmp_path / "b").location == str(tmp_path / "b")
