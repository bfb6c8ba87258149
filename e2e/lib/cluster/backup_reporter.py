"""Answers the masters' wishes for split backups where no worker belongs to them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from txlog.client import MasterClient
from txlog.model.errors import TxLogError


class BackupReporter(threading.Thread):
    """Until :meth:`end`: reports each wanted backup of a split as done at the stable position. The logs of this cluster
    are never trimmed, so the log itself is that backup."""

    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self._urls = urls
        self._over = threading.Event()

    def end(self) -> None:
        """End it."""
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.2):
            for url in self._urls:
                try:
                    with MasterClient(url, 2.0) as master:
                        for duty in master.duties():
                            stable = master.status().stable
                            master.complete_duty(duty["id"], stable.index, stable.hash)
                except TxLogError:
                    continue  # it is down, or has gone on meanwhile
