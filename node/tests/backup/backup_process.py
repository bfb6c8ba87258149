"""A backup or a restore in a process of its own, which kills itself with SIGKILL at the n-th step of a phase.

``python backup_process.py create|restore URL FOLDER NAME PHASE N HASHES``
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from txlog.backup import Into, Order, Progress, Source, create, loading, open_target, parts, restore
from txlog.config.process import FolderConfig
from txlog.model.entry import Position
from txlog.workers import OxigraphAdapter
from txlog.workers.transport import HttpTransport


def main(what: str, url: str, folder: str, name: str, phase: str, number: str, cluster: str) -> None:
    left = int(number)
    loading.BATCH_BYTES = 4000  # type: ignore[misc]  # several requests for little data

    parts.GATHERED = 1000  # type: ignore[misc]  # and several pieces

    def told(progress: Progress) -> None:
        nonlocal left
        if progress.phase == phase:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def on_chain(_: Position) -> None:
        pass

    target = open_target(FolderConfig(folder=Path(folder)))
    with HttpTransport(url) as transport:
        if what == "create":
            order = Order(cluster, "uk", name=name, part_bytes=2000)
            create(Source("uk-worker-1", OxigraphAdapter(), transport), target, order, told)
        else:
            restore(target, name, Into("uk-worker-2", OxigraphAdapter(), transport), cluster, on_chain, told=told)
    print(json.dumps({"left": left}))


if __name__ == "__main__":
    main(*sys.argv[1:])
