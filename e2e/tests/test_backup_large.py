"""``make backup-large`` with a small database: it measures what it says, and fails where something is not refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.lib.report import CannotMeasure
from e2e.scenarios import backup_large
from e2e.scenarios.backup_large import BackupOnDisk, RefusalChecks, flip_byte, main, truncate_file

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]
REFUSED = {
    "a flipped byte": "PartDamaged",
    "a truncated part": "PartTruncated",
    "a missing part": "PartMissing",
    "a position off the chain": "OffTheChain",
    "a wrong cluster's backup": "OtherCluster",
}


@pytest.mark.long
def test_a_small_one_is_restored_and_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--quads", "2000", "--state", str(tmp_path / "state")])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, told
    assert list(told) == ["quads", "backup_s", "bytes", "parts", "restore_s", "digests_equal", "refused"]
    assert (told["quads"], told["parts"], told["digests_equal"], told["refused"]) == (2000, 1, True, REFUSED)
    assert told["backup_s"] > 0
    assert told["restore_s"] > 0
    assert 2000 < told["bytes"] < 200_000
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_what_is_spoilt_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    backup = BackupOnDisk(tmp_path, "b")
    part = tmp_path / "b" / "part-00001.nq.zst"
    part.write_bytes(b"whole")
    for change, left in ((flip_byte, b"whnle"), (truncate_file, b"whol"), (Path.unlink, None)):
        with backup.corrupted(part, change):
            assert (part.read_bytes() if part.exists() else None) == left
        assert part.read_bytes() == b"whole"
    assert backup.parts == [part]


def test_what_is_not_refused_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command that does what it must not, and a store that changes although it was refused."""
    refusals = RefusalChecks.__new__(RefusalChecks)
    refusals.backup, refusals.empty, refusals.in_rotation = BackupOnDisk(tmp_path, "b"), "empty", "at work"
    refusals.messages, refusals.wrong = {}, []
    looks = iter(range(100))
    monkeypatch.setattr(backup_large, "read_store_content", lambda url: 0)
    monkeypatch.setattr(backup_large, "run_txlog", lambda *command, timeout_s: "done")
    refusals.of_backup("a", "OtherCluster", foreign="http://127.0.0.1:9")
    assert refusals.wrong == ["a: not refused instead of OtherCluster"]

    def refuse(*command: object, timeout_s: float) -> str:
        raise CannotMeasure("txlog restore ended with 1: OtherCluster: it is of another")

    monkeypatch.setattr(backup_large, "run_txlog", refuse)
    refusals.of_backup("b", "OtherCluster", foreign="http://127.0.0.1:9")
    assert len(refusals.wrong) == 1
    monkeypatch.setattr(backup_large, "read_store_content", lambda url: next(looks))
    refusals.of_backup("c", "OtherCluster", foreign="http://127.0.0.1:9")
    assert refusals.wrong[1:] == ["c: a store has changed"]
