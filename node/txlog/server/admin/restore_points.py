"""``/txlog/restore-points``: names a place of the log, to which a store can be restored later."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_json
from txlog.model.restore_points import check_point_name, decode_restore_point, encode_restore_point
from txlog.model.stamp import stamp_ms
from txlog.protocol.log.log_state import LogState
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.skipped_entry import append_skipped_entry

BODY_MAX: Final = 4096
_EXPECTED_BODY: Final = '{"name": "before-the-import"}'


class RestorePointRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new restore point."""

    name: str


class RestorePointHandler:
    """Creates restore points and lists them. Each one is an entry of the log that no worker executes."""

    def __init__(self, site: MasterContext) -> None:
        self._context = site

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", "/txlog/restore-points", self.list_points),
            Route("POST", "/txlog/restore-points", self.create),
        ]

    async def list_points(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"points": [...]}``, the oldest first. ``at``: its time in seconds since 1970; ``hash``: both None where
        the log no longer reaches back to it."""
        return json_response({"points": self.describe()})

    async def create(self, request: Request, _: Mapping[str, str]) -> Response:
        """Appends the point to the log. The answer comes when it is stable: everything that was acknowledged as synced
        before the request is before it. 202, without a place, when it is not stable within the write time-out: it may
        become so."""
        wanted = await read_json(request, RestorePointRequest, _EXPECTED_BODY, BODY_MAX)
        key = encode_restore_point(check_point_name(wanted.name), secrets.token_hex(12))
        appended = await append_skipped_entry(self._context, key)
        txid = None if appended is None else str(appended)
        agreement = self._context.status.log_state
        index = agreement.skips.get(key) if agreement is not None else None
        if agreement is None or index is None or index > self._context.durability.stable.value:
            unknown = {"name": wanted.name, "transaction": txid, "index": None, "hash": None, "at": None}
            return json_response(unknown, 202)
        self._context.log.info("RestorePoint", name=wanted.name, txid=txid, index=index)
        return json_response({**self._describe_point(agreement, wanted.name, index), "transaction": txid})

    def describe(self) -> list[dict[str, Any]]:
        """The stable points, the oldest first."""
        agreement = self._context.status.log_state
        if agreement is None:
            return []
        stable = self._context.durability.stable.value
        found = [
            (index, name)
            for key, index in agreement.skips.items()
            if index <= stable and (name := decode_restore_point(key)) is not None
        ]
        return [self._describe_point(agreement, name, index) for index, name in sorted(found)]

    def _describe_point(self, agreement: LogState, name: str, index: int) -> dict[str, Any]:
        is_known = agreement.log_index.start < index
        return {
            "name": name,
            "index": index,
            "hash": agreement.log_index.hash_at(index).hex() if is_known else None,
            "at": round(stamp_ms(self._context.status.stamp_at(index)) / 1000, 3) if is_known else None,
        }
