"""The soak loses the place of one side's backups, a folder or a real S3 server, and that side really waits for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from e2e.lib.cluster.supervised import SupervisedCluster, supervised_up
from e2e.lib.load.requests import write_one
from e2e.scenarios.split_demo import manifests
from e2e.soak.backup_target_faults import targets_up
from e2e.soak.fault_log import FaultLog
from e2e.soak.master_faults import LAG_S
from e2e.soak.split_faults import SplitFault
from txlog.backup import catalogue, open_target
from txlog.config.process_config import DutyJobConfig, S3Config

IN_S3: Final = "us"
JOIN_S: Final = 120.0


class FixedChoice(random.Random):
    """This side, and the server killed or stopped."""

    def __init__(self, side: str, value: float) -> None:
        super().__init__(1)
        self._side, self._value = side, value

    def choice(self, seq: object) -> str:  # type: ignore[override]
        return self._side

    def random(self) -> float:
        return self._value


def backups(arena: SupervisedCluster, side: str) -> list[str]:
    target = DutyJobConfig.model_validate_json(arena.state.duties(side).read_bytes()).target
    assert isinstance(target, S3Config) == (side == IN_S3)
    return [each.name for each in catalogue(open_target(target)) if each.state == "complete"]


def write(arena: SupervisedCluster, text: str) -> None:
    """One transaction, which every worker has executed when this returns."""
    update = f'INSERT DATA {{ <http://example.org/a> <http://example.org/b> "{text}" }}'
    write_one(arena.masters[0], arena.repository, update, "synced")
    arena.wait_converged(JOIN_S)


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_side_whose_target_is_lost_waits_and_goes_on_when_it_is_there_again(tmp_path: Path) -> None:
    diary = FaultLog(lambda _: None)
    with (
        manifests(lag=f"{LAG_S:g}s") as files,
        supervised_up(tmp_path / "state", files) as arena,
        targets_up(arena, arena.topology.data_centers.index(IN_S3)) as targets,
    ):
        arena.wait_applying(600)
        for side, value in ((IN_S3, 0.9), (IN_S3, 0.1), ("uk", 0.1)):
            write(arena, f"{side} {value}")  # else the backup of the split before may do, and no new one is made
            before = backups(arena, side)
            SplitFault(arena, diary, FixedChoice(side, value), targets, majority=False).target_lost()
            assert len(set(backups(arena, side)) - set(before)) == 1, (side, value)
            arena.wait_joined(JOIN_S)
            arena.wait_converged(JOIN_S)
    assert diary.counts()["S3 target unreachable"] == 2
    assert diary.counts()["backup target unreachable"] == 1
