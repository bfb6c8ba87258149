"""``POST /txlog/rescued/{txid}``: gives a transaction of the lost cluster again, whose place this one has taken.

Its payload is as that cluster's log had it. A front door would make another one of it: an update would be guarded
twice, and a client's retry under the same key would be another transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from txlog.http.router import Request, Response, Route, read_body
from txlog.model.bulk_entry import decode_bulk_load
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput, Conflict
from txlog.model.hashes import content_hash
from txlog.model.ids import parse_txid
from txlog.model.rescued_transaction import KIND_HEADER, rescue_key
from txlog.protocol.events import Submission
from txlog.runtime.master_context import MasterContext
from txlog.server.frontdoor.off_loop import run_sparql_off_loop
from txlog.server.frontdoor.request_parameters import read_write_options
from txlog.server.frontdoor.write_handler import WriteHandler
from txlog.sparql.logged_payload import check_logged_payload
from txlog.wire.log_page import KIND_NAMES

_KINDS: Final = {KIND_NAMES[kind]: kind for kind in (KIND_UPDATE, KIND_QUADS)}


class RescuedWriteHandler:
    """``writes``: the front door's writes, which log it as any other one."""

    def __init__(self, site: MasterContext, writes: WriteHandler) -> None:
        self._context = site
        self._writes = writes

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("POST", "/txlog/rescued/{txid}", self.post)]

    async def post(self, request: Request, names: Mapping[str, str]) -> Response:
        """The body is the payload; its kind is in the header ``TxLog-Kind``. Options and answers are those of a write.
        Without an Idempotency-Key, the key is made of the transaction's id: to repeat the request is harmless.

        :class:`Conflict` for a transaction that this log has."""
        txid = parse_txid(names["txid"])
        asked = read_write_options(self._context, request)
        name = request.headers.get(KIND_HEADER, "")
        kind = _KINDS.get(name.strip().lower())
        if kind is None:
            raise BadInput(f"{KIND_HEADER}: {name[:40]!r} is none of {', '.join(_KINDS)}")
        if self._context.transactions.outcome(txid).level is not None:
            raise Conflict(f"{txid} is in this log; nothing was logged")
        payload = await read_body(request, self._writes.bytes_max, self._context.interactive_load)
        if decode_bulk_load(payload) is not None:
            raise BadInput(f"{txid} is a bulk load: load its files again (txlog load --bulk)")
        await run_sparql_off_loop(len(payload), lambda: check_logged_payload(kind, payload))
        key = asked.key or rescue_key(txid)
        submission = Submission(kind, key, payload, content_hash(kind, key, payload))
        return await self._writes.write(submission, asked._replace(key=key))
