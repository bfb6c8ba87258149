"""A master's API for transactions of a lost cluster that are given again (``/txlog/rescued``)."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from txlog.client.master_client import MasterClient
from txlog.client.responses import WriteResult
from txlog.client.write_headers import parse_write_result, write_headers
from txlog.model.durability import Durability
from txlog.model.rescued_transaction import KIND_HEADER
from txlog.wire.log_page import KIND_NAMES

ANSWER_S: Final = 10.0
"""More than the master itself waits."""
_MEDIA: Final = "application/octet-stream"


class RescueCalls(MasterClient):
    """The calls to one master. An earlier version answers with :class:`~txlog.model.errors.NotFound`."""

    def __init__(self, url: str) -> None:
        super().__init__(url, ANSWER_S)

    def give(self, txid: str, kind: int, key: str, payload: bytes, wait_s: float) -> WriteResult:
        """Gives one transaction again, under this Idempotency-Key: it may be repeated, at any master. The result's
        ``durability`` is below ``synced`` when it was not stable within ``wait_s`` seconds.

        Raises :class:`~txlog.model.errors.KeyTaken` where another transaction has the key, and
        :class:`~txlog.model.errors.Conflict` for a transaction that the log has."""
        headers = write_headers(_MEDIA, key, Durability.SYNCED, None, wait_s)
        reply = self._connection.request(
            "POST",
            f"/txlog/rescued/{quote(txid)}",
            body=payload,
            headers={**headers, KIND_HEADER: KIND_NAMES[kind]},
            timeout_s=wait_s + ANSWER_S,
            repeatable=True,
        )
        return parse_write_result(reply.headers)
