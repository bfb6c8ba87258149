"""``spec.archive``: what it accepts, and what masters and archiver are given."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import MasterArchiveConfig, S3Config
from txlog.config.process_config_builder import (
    build_archiver_config,
    build_backup_config,
    build_node_config,
    build_rehearsal_config,
)

FOLDER = {"folder": {"path": "/archive"}}
S3 = {"s3": {"bucket": "backups", "secretRef": {"name": "keys"}}}


def cluster(**spec: Any) -> TxLogCluster:
    peers = [{"name": "uk", "masters": 1, "address": "uk.example.net"}]
    return TxLogCluster.model_validate(
        {
            "apiVersion": "txlog.io/v1alpha1",
            "kind": "TxLogCluster",
            "metadata": {"name": "catalogue"},
            "spec": {"dataCenter": "uk", "peers": peers, **spec},
        }
    )


def master(given: TxLogCluster) -> MasterArchiveConfig | None:
    found = build_node_config(
        given,
        "uk-1",
        url_of=lambda peer, index: "http://127.0.0.1:7300",
        port=7300,
        journal_folder=Path("/journal"),
        token_file=Path("/token"),
        workers=[],
    )
    assert ("archive" in found.model_dump(exclude_defaults=True)) == (given.spec.archive is not None)
    return found.archive


def test_without_it_nothing_is_configured() -> None:
    given = cluster()
    assert master(given) is None
    assert build_archiver_config(given, ["http://a"], Path) is None


def test_a_default_that_no_write_reaches() -> None:
    level = {"default": "archived"}
    with pytest.raises(ValidationError, match="without an archive no write is ever archived"):
        cluster(durability=level)
    assert cluster(durability=level, archive={"target": FOLDER}).spec.durability.default == "archived"


def test_a_target_of_its_own() -> None:
    given = cluster(archive={"target": FOLDER, "maxDelay": "5s", "onFull": "hold"}, backup={"target": S3})
    config = build_archiver_config(given, ["http://a"], Path)
    assert config is not None
    assert (config.data_center, config.masters, config.max_delay_ms) == ("uk", ["http://a"], 5000)
    assert str(getattr(config.target, "folder", "")) == "/archive"
    assert master(given) == MasterArchiveConfig(max_delay_ms=5000, on_full="hold")


def test_the_target_of_the_backups() -> None:
    given = cluster(archive={}, backup={"target": S3})
    config = build_archiver_config(given, ["http://a"], lambda name: Path("/secrets") / name)
    assert config is not None
    assert isinstance(config.target, S3Config)
    assert (config.target.bucket, str(config.target.credentials_folder)) == ("backups", "/secrets/keys")
    assert config.max_delay_ms == 1000
    assert master(given) == MasterArchiveConfig(max_delay_ms=1000)


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        ({}, "a target, since there is no backup.target"),
        ({"target": {}}, "either s3 or folder"),
        ({"target": FOLDER, "maxDelay": "50ms"}, "100ms"),
        ({"target": FOLDER, "maxDelay": "2h"}, "1h"),
        ({"target": FOLDER, "onFull": "stop"}, "hold"),
        ({"target": FOLDER, "keep": "14d"}, "keep"),
    ],
)
def test_what_is_refused(archive: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        cluster(archive=archive)


def test_a_recovery_window_counts_for_the_archive_and_for_its_backups() -> None:
    given = cluster(archive={"keep": "14d"}, backup={"target": S3, "keep": 3})
    archiver = build_archiver_config(given, ["http://a"], Path)
    assert archiver is not None
    assert archiver.window_s == 14 * 86_400
    assert build_backup_config(given, ["http://a"], archiver.target).window_s == 14 * 86_400
    without = cluster(archive={}, backup={"target": S3})
    found = build_archiver_config(without, ["http://a"], Path)
    assert found is not None
    assert found.window_s is None


@pytest.mark.parametrize(
    "archive",
    [{"keep": "14d", "target": FOLDER}, {"keep": "23h"}, {"keep": "14"}, {"keep": "4000d"}],
)
def test_a_window_that_cannot_be_kept(archive: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"keep|no archive\.target"):
        cluster(archive=archive, backup={"target": S3})


def test_rehearsals() -> None:
    given = cluster(archive={"target": FOLDER}, backup={"target": S3})
    config = build_rehearsal_config(given, ["http://a"], lambda name: Path("/secrets") / name)
    assert config is not None
    assert (config.max_rpo_s, config.max_rto_s) == (None, None)  # by hand, without bounds
    assert str(getattr(config.target, "folder", "")) == "/archive"
    assert isinstance(config.backups, S3Config)
    assert master(given) == MasterArchiveConfig(max_delay_ms=1000)
    assert build_rehearsal_config(cluster(), ["http://a"], Path) is None

    policy = {"schedule": "@weekly", "maxRto": "30m"}
    given = cluster(archive={"target": FOLDER, "maxDelay": "5s", "rehearsal": policy})
    config = build_rehearsal_config(given, ["http://a"], Path, Path("/scratch"))
    assert config is not None
    assert (config.max_rpo_s, config.max_rto_s, config.backups, config.level) == (50.0, 1800.0, None, "cluster")
    assert config.scratch_folder == Path("/scratch")
    found = master(given)
    assert found is not None
    assert found.rehearsal_max_age_ms == 8 * 24 * 3600 * 1000
    given = cluster(archive={"target": FOLDER, "maxDelay": "1h"})
    config = build_rehearsal_config(given, ["http://a"], Path)
    assert config is not None
    assert config.archived_s == 7200.0  # an archiver may take an hour for its next file
    given = cluster(archive={"target": FOLDER, "rehearsal": {**policy, "maxRpo": "3s", "maxAge": "2h"}})
    config, found = build_rehearsal_config(given, ["http://a"], Path), master(given)
    assert config is not None
    assert found is not None
    assert (config.max_rpo_s, found.rehearsal_max_age_ms) == (3.0, 2 * 3600 * 1000)


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"schedule": "now and then"},
        {"schedule": "@weekly", "maxAge": "1m"},
        {"schedule": "@weekly", "maxRpo": "10ms"},
        {"schedule": "@weekly", "maxRto": "0s"},
        {"schedule": "@weekly", "level": "everything"},
        {"schedule": 7},
    ],
)
def test_bad_policies_of_rehearsals(policy: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="rehearsal"):
        cluster(archive={"target": FOLDER, "rehearsal": policy})
