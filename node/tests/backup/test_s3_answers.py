"""What an S3 server refuses is named by its answer, however long the key is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.lib.s3_fault_proxy import S3FaultProxy
from txlog.backup.backup_errors import TargetDenied, TargetFull, TargetUnreachable
from txlog.backup.target import BackupTarget, open_target
from txlog.config.process_config import S3Config
from txlog.model.errors import TxLogError

KEY = f"_archive/{'0' * 32}/uk/log0/{'1' * 100}.txl"


@pytest.fixture
def proxy() -> Iterator[S3FaultProxy]:
    made = S3FaultProxy("http://127.0.0.1:1")
    yield made
    made.close()


@pytest.fixture
def target(proxy: S3FaultProxy, tmp_path: Path) -> BackupTarget:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (tmp_path / name).write_text("x")
    prefix = "p" * 200
    return open_target(S3Config(bucket="b", prefix=prefix, endpoint=proxy.url, credentials_folder=tmp_path))


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("denied", TargetDenied, "403 Forbidden"),
        ("full", TargetFull, "507"),
        ("unavailable", TargetUnreachable, "503 Service Unavailable"),
    ],
)
def test_the_answer_names_the_error(
    proxy: S3FaultProxy, target: BackupTarget, fault: str, error: type[TxLogError], words: str
) -> None:
    with proxy.during(fault), pytest.raises(error, match=words) as caught:
        target.create(KEY, b"1")
    assert "http://" not in str(caught.value).partition(proxy.url)[2]
