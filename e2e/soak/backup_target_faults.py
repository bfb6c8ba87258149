"""Where the backups of splits go, and how that is lost and comes back: one data centre has a folder, the other one an
S3-compatible store, a real SeaweedFS."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.lib.cluster.supervised import SupervisedCluster
from e2e.lib.seaweedfs import ACCESS, BUCKET, SECRET, SeaweedProcess
from txlog.config.process_config import DutyJobConfig, FolderConfig, S3Config, TargetConfig

ANSWER_S: Final = 3.0
"""How long a duty waits for a server that hangs, so that it begins again soon once that goes on."""


class SoakBackupTargets:
    """``in_s3``: the data centre whose backups go to ``server``; the others' go to folders of the state folder."""

    def __init__(
        self, arena: SupervisedCluster, in_s3: str | None = None, server: SeaweedProcess | None = None
    ) -> None:
        self._arena = arena
        self._in_s3 = in_s3
        self._server = server

    def fault_name(self, side: str) -> str:
        """The fault's name."""
        return "S3 target unreachable" if side == self._in_s3 else "backup target unreachable"

    def break_and_restore(self, side: str, draw: random.Random) -> tuple[Callable[[], None], Callable[[], None]]:
        """What takes that data centre's target away, and what brings it back; the second may be done twice."""
        if side != self._in_s3:
            folder = self._arena.state.split_backups(side)
            away = folder.with_name(folder.name + "-away")
            return lambda: _rename(folder, away), lambda: _rename(away, folder)
        server = self._server
        assert server is not None
        if draw.random() < 0.5:
            return (
                lambda: server.process.send_signal(signal.SIGSTOP),
                lambda: server.process.send_signal(signal.SIGCONT),
            )
        return server.kill, lambda: server.start() if server.process.poll() is not None else None

    def write_configs(self) -> None:
        """Tell those who perform duties: each reads its file when it is started."""
        if self._in_s3 is None or self._server is None:
            return
        mine = FolderConfig(folder=self._arena.state.split_backups(self._in_s3))
        there = self._s3(self._server)
        for side in self._arena.topology.data_centers:
            path = self._arena.state.duties(side)
            told = DutyJobConfig.model_validate_json(path.read_bytes())
            change: Callable[[TargetConfig], TargetConfig] = lambda one: there if one == mine else one  # noqa: E731
            changed = {"target": change(told.target), "others": [change(other) for other in told.others]}
            self._arena.state.write_config(path, told.model_copy(update=changed))

    def _s3(self, server: SeaweedProcess) -> S3Config:
        credentials = server.folder / "credentials"
        credentials.mkdir(exist_ok=True)
        (credentials / "AWS_ACCESS_KEY_ID").write_text(ACCESS)
        (credentials / "AWS_SECRET_ACCESS_KEY").write_text(SECRET)
        return S3Config(
            bucket=BUCKET,
            prefix="splits",
            endpoint=server.url,
            credentials_folder=credentials.absolute(),
            timeout_s=ANSWER_S,
            connect_s=ANSWER_S,
        )


def _rename(one: Path, other: Path) -> None:
    if one.exists():
        one.rename(other)


@contextmanager
def targets_up(arena: SupervisedCluster, in_s3: int | None) -> Iterator[SoakBackupTargets]:
    """``in_s3``: the data centre of that number keeps its backups in an S3 store; None: all keep them in folders."""
    if in_s3 is None:
        yield SoakBackupTargets(arena)
        return
    folder = arena.state.root / "seaweed"
    folder.mkdir()
    server = SeaweedProcess(folder.absolute())
    try:
        targets = SoakBackupTargets(arena, arena.topology.data_centers[in_s3], server)
        targets.write_configs()
        yield targets
    finally:
        server.process.send_signal(signal.SIGCONT)
        server.kill()
