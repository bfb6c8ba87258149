"""Single requests as any client sends them, and many writes over one stream."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from e2e.lib.report import CannotMeasure
from txlog.client import MasterClient, WriteRequest
from txlog.client.connection import MasterConnection
from txlog.model.durability import Durability

N_QUADS: Final = "application/n-quads"
SPARQL_UPDATE: Final = "application/sparql-update"


def http_get(url: str, path: str, accept: str, timeout_s: float) -> bytes:
    connection = MasterConnection(url, timeout_s=timeout_s)
    try:
        return connection.request("GET", path, headers={"Accept": accept}).body
    finally:
        connection.close()


def csv_rows(body: bytes) -> list[list[str]]:
    """Rows without the header."""
    return list(csv.reader(io.StringIO(body.decode())))[1:]


def write_one(master: str, repository: str, update: str, level: str, timeout_s: float = 60.0) -> dict[str, str]:
    """One SPARQL update; the answer's TxLog headers, their names in lower case. Another status than 204 or 200 is
    :class:`CannotMeasure`: the level was not reached in time."""
    connection = MasterConnection(master, timeout_s=timeout_s)
    try:
        reply = connection.request(
            "POST",
            f"/repositories/{quote(repository)}/statements",
            body=update.encode(),
            headers={"Content-Type": SPARQL_UPDATE, "TxLog-Durability": level, "Prefer": "wait=30"},
            repeatable=False,
        )
    finally:
        connection.close()
    if reply.status not in (200, 204):
        raise CannotMeasure(f"{master} answered {reply.status} to a write for {level}: {reply.body[:200]!r}")
    return {name.lower(): value for name, value in reply.headers.items() if name.lower().startswith("txlog-")}


class WriteProber:
    """A plain client with one kept connection that writes single transactions: the latency of a level as felt."""

    def __init__(self, master: str, repository: str, level: str, timeout_s: float = 60.0, wait_s: int = 30) -> None:
        self._connection = MasterConnection(master, timeout_s=timeout_s)
        self._path = f"/repositories/{quote(repository)}/statements"
        self._headers = {"Content-Type": N_QUADS, "TxLog-Durability": level, "Prefer": f"wait={wait_s}"}

    def write(self, quads: bytes) -> float | None:
        """Seconds from the request to its answer; None when the level was not reached in time."""
        began = time.perf_counter()
        reply = self._connection.request("POST", self._path, body=quads, headers=self._headers, repeatable=False)
        return time.perf_counter() - began if reply.status in (200, 204) else None

    def close(self) -> None:
        self._connection.close()


def timed_upload(master: str, repository: str, quads: bytes) -> float:
    """Seconds that one large transaction takes on a connection of its own until it is synced. :class:`CannotMeasure`
    when it is not within a minute."""
    prober = WriteProber(master, repository, "synced", timeout_s=120.0, wait_s=60)
    try:
        took = prober.write(quads)
    finally:
        prober.close()
    if took is None:
        raise CannotMeasure(f"{master}: {len(quads)} bytes were not synced within 60 s")
    return took


def submit_all(
    master: str, writes: Iterable[WriteRequest], level: Durability, *, wait_s: float = 60.0, timeout_s: float = 60.0
) -> list[str]:
    """Many transactions over one stream; their txids. :class:`CannotMeasure` for the first that is refused."""
    acknowledged = []
    with MasterClient(master, timeout_s) as client:
        for answer in client.submit(writes, level, wait_s=wait_s):
            if answer.error or answer.txid is None:
                raise CannotMeasure(f"{master} refused a write: {answer.error}: {answer.message}")
            acknowledged.append(answer.txid)
    return acknowledged
