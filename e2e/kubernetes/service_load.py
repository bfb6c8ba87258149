"""Clients that write without a pause through the Service of their data centre, and repeat what was not answered."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

from e2e.kubernetes.catalogue import CatalogueCluster
from e2e.kubernetes.data_center_access import NAME
from txlog.client import MasterUnreachable
from txlog.client.connection import MasterConnection
from txlog.model.errors import TxLogError

GIVE_UP_S: Final = 60.0
THINK_S: Final = 0.05
"""Between two writes; two cores carry two whole clusters."""


class ServiceLoad:
    """One client for each data centre. Each write has an Idempotency-Key, and is repeated under it until it is synced:
    :attr:`failed` names those that never were, :attr:`longest_s` is the longest wait for one."""

    def __init__(self, catalogue: CatalogueCluster, name: str) -> None:
        self.catalogue = catalogue
        self.name = name
        self.failed: list[str] = []
        self.written = 0
        self.repeated = 0
        self.longest_s = 0.0
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(side,), daemon=True) for side in catalogue.sides]

    def __enter__(self) -> ServiceLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(2 * GIVE_UP_S)
            if thread.is_alive() and kind is None:
                raise AssertionError("a client does not end")

    def _run(self, side: str) -> None:
        url = self.catalogue.sides[side].url
        number = 0
        try:
            while not self._over.is_set():
                number += 1
                self._write_one(url, f"{self.name}-{side}-{number}")
                time.sleep(THINK_S)
        except Exception as wrong:  # noqa: BLE001 - a client that ends early would make everything look well
            self.failed.append(f"the client of {side} ended: {wrong!r}")

    def _write_one(self, url: str, name: str) -> None:
        began, txid, tries = time.monotonic(), None, 0
        while (txid := self._attempt(url, name)) is None:
            tries += 1
            if time.monotonic() > began + GIVE_UP_S:
                self.failed.append(f"{name} is not synced after {GIVE_UP_S:g} s")
                return
            time.sleep(THINK_S)
        with self._lock:
            self.catalogue.written.append(txid)
            self.written += 1
            self.repeated += tries
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    @staticmethod
    def _attempt(url: str, name: str) -> str | None:
        """The transaction's id once it is synced. Each try has a connection of its own, so that the Service chooses."""
        headers = {
            "Content-Type": "application/n-quads",
            "TxLog-Durability": "synced",
            "Prefer": "wait=5",
            "Idempotency-Key": name,
        }
        body = f'<urn:e2e:load:{name}> <urn:e2e:by> "load" .\n'.encode()
        connection = MasterConnection(url, timeout_s=10.0, connect_s=1.0)
        try:
            reply = connection.request(
                "POST", f"/repositories/{NAME}/statements", body=body, headers=headers, repeatable=False
            )
        except (MasterUnreachable, TxLogError):
            return None
        finally:
            connection.close()
        told = {key.lower(): value for key, value in reply.headers.items()}
        return told["txlog-transaction"] if reply.status == 204 else None
