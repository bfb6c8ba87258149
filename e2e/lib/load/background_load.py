"""Writes without a pause, beside what a scenario does to the masters."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Final

from e2e.lib.cluster.masters import REPOSITORY
from e2e.lib.load.requests import WriteProber
from txlog.model.errors import TxLogError

PAUSE_S: Final = 0.05
RETRY_S: Final = 0.3


class BackgroundLoad:
    """One thread for each master. ``written``: the transactions that were acknowledged."""

    def __init__(self, urls: Sequence[str], seed: int, repository: str = REPOSITORY) -> None:
        self.written = 0
        self._repository = repository
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(url, random.Random(seed + at)), name=f"load-{at}", daemon=True)
            for at, url in enumerate(urls)
        ]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        self._stop.set()
        for each in self._threads:
            each.join(60)

    def _run(self, url: str, chance: random.Random) -> None:
        prober = WriteProber(url, self._repository, "synced", timeout_s=10.0, wait_s=5)
        number = 0
        while not self._stop.wait(PAUSE_S):
            number += 1
            text = f"{chance.getrandbits(8 * chance.randrange(8, 600)):x}"
            try:
                done = prober.write(f'<urn:{url[-5:]}:{number}> <urn:p> "{text}" <urn:g> .\n'.encode())
            except TxLogError:
                self._stop.wait(RETRY_S)
                continue
            with self._lock:
                self.written += done is not None
        prober.close()
