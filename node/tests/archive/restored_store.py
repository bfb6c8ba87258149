"""A real store that is restored to moments of a stream, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest
from oxigraph_process import ADAPTER, OxigraphProcess
from server_process import swift_folder

from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import MomentRequest, MomentRestored, restore_to_moment
from txlog.archive.stream import Stream
from txlog.archive.stream_reader import StreamReader
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.target import BackupTarget


@pytest.fixture(scope="module")
def store() -> Iterator[OxigraphProcess]:
    with swift_folder() as folder:
        process = OxigraphProcess(folder / "store")
        yield process
        process.kill()


class ArchivedLog(Protocol):
    """A stream, and the target with its backups."""

    @property
    def stream(self) -> Stream: ...

    @property
    def target(self) -> BackupTarget: ...


def restore(history: ArchivedLog, store: OxigraphProcess, moment: str, base: str | None = None) -> MomentRestored:
    assert store.update("DROP ALL").ok
    request = MomentRequest(parse_moment(moment), history.target, base)
    into = RestoreTarget(store.url, ADAPTER, store.transport)
    return restore_to_moment(StreamReader(history.stream), request, into)
