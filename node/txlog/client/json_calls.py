"""Requests with a JSON body and a JSON answer, over one connection to a master."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from txlog.client.connection import MasterConnection
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import PeerFault

T = TypeVar("T")
JSON_HEADERS = {"Content-Type": "application/json"}


class JsonCalls:
    """Calls over ``connection``; its errors pass through. An answer that is no ``kind`` raises :class:`PeerFault`
    ``Malformed``."""

    def __init__(self, connection: MasterConnection) -> None:
        self._connection = connection

    def get(self, path: str, kind: type[T], timeout_s: float | None = None) -> T:
        """The answer to a GET. ``timeout_s``: None for the connection's own."""
        return self.call("GET", path, kind, timeout_s=timeout_s, repeatable=True)

    def call(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: object = None,
        timeout_s: float | None = None,
        repeatable: bool = False,
    ) -> T:
        """The answer. ``body``: any value that msgspec encodes; None sends none. ``repeatable``: as in
        :meth:`MasterConnection.request`."""
        reply = self._connection.request(
            method,
            path,
            body=msgspec.json.encode(body) if body is not None else None,
            headers=JSON_HEADERS if body is not None else {},
            timeout_s=timeout_s,
            repeatable=repeatable,
        )
        try:
            return msgspec.json.decode(reply.body or b"null", type=kind)
        except DECODE_ERRORS as wrong:
            raise PeerFault(self._connection.url, "Malformed", f"{path}: {wrong}") from None

    def post(self, path: str, body: object) -> Any:
        """The answer to a POST that may be repeated, as plain values."""
        return self.call("POST", path, object, body=body, repeatable=True)
