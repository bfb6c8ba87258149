"""What this master would report if its view were stopped now: ``GET /txlog/view-report[?checkpoints=INDEX:HASH,...]``.

A client that reaches the masters of all branches computes from it the view that would follow, with the code of
``txlog.protocol.views``. Nothing is promised, and the view goes on.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Final

import msgspec

from txlog.http.router import Request, Response, Route, json_response
from txlog.model.entry import Span
from txlog.model.errors import BadInput, Unavailable
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.protocol.views.report import build_checkpoints, last_shared, pending_configuration_changes
from txlog.runtime.master_context import MasterContext
from txlog.wire.messages import Checkpoint, ProposeView, ViewReport, encode

TAIL_ENTRIES_IN_A_TURN: Final = 10_000
"""Entries of the log's order that one turn of the loop reads: some milliseconds."""


class ViewReportHandler:
    """``GET /txlog/view-report``."""

    def __init__(self, site: MasterContext) -> None:
        self._context = site

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/view-report", self.get)]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"node","checkpoints","seqs","report"}``. ``report``: the message between masters, in base64. It has the
        log after the last of the given checkpoints that this log has too, or after its log start; without
        ``checkpoints`` after its end. ``seqs``: the last transaction of each origin up to there. ``checkpoints``: those
        of this log, as the parameter has them. 503 ``NotFounded`` before the first view."""
        status, name = self._context.status, self._context.config.node
        agreement, view = status.log_state, status.view
        if agreement is None or view is None:
            raise Unavailable("NotFounded", f"{name} has no view yet; wait until it is founded")
        log = agreement.log_index
        text = request.query.get("checkpoints")
        given = [Checkpoint(log.length, log.hash)] if text is None else _parse_checkpoints(text)
        report = await self._report(given)
        seqs = [str(Txid(Origin(node, birth), seq)) for node, birth, seq in log.seqs_at(report.shared.index)]
        checkpoints = [f"{one.index}:{one.hash.hex()}" for one in build_checkpoints(agreement)]
        message = await asyncio.to_thread(lambda: base64.b64encode(encode(report)).decode())
        return json_response({"node": name, "checkpoints": checkpoints, "seqs": seqs, "report": message})

    async def _report(self, given: list[Checkpoint]) -> ViewReport:
        """As if it were built in one turn. The order of the log is only appended to while a view lasts, so a long one
        is read over many turns. After another view, or a trim, it is read again."""
        status = self._context.status
        while True:
            agreement, view = status.log_state, status.view
            assert agreement is not None, "a log is never lost again"
            assert view is not None, "nor is a view"
            log, shared = agreement.log_index, last_shared(agreement, given)
            tail: list[Span] = []
            hashes, read = bytearray(), shared
            while log.length - read.index > TAIL_ENTRIES_IN_A_TURN:
                end = read.index + TAIL_ENTRIES_IN_A_TURN
                _append_spans(tail, log.spans(read.index, end))
                hashes += log.hashes(read.index, end)
                read = Checkpoint(end, log.hash_at(end))
                await asyncio.sleep(0)
                if status.log_state is not agreement or status.view is not view or log.start > shared.index:
                    break
            else:
                proposal = ProposeView(view.number, view.cluster_id, [], view.number, [], [read])
                rest = status.view_report(proposal)
                _append_spans(tail, rest.tail)
                return msgspec.structs.replace(
                    rest,
                    shared=shared,
                    tail=tail,
                    hashes=bytes(hashes) + rest.hashes,
                    changes=pending_configuration_changes(agreement, shared.index),
                )


def _append_spans(tail: list[Span], more: list[Span]) -> None:
    """A span that was read in two pieces becomes one again."""
    if tail and more and (tail[-1].node, tail[-1].birth) == (more[0].node, more[0].birth):
        last = tail.pop()
        more = [Span(last.node, last.birth, last.first_seq, last.count + more[0].count), *more[1:]]
    tail += more


def _parse_checkpoints(text: str) -> list[Checkpoint]:
    found = []
    for one in text.split(",") if text else ():
        index, _, value = one.partition(":")
        try:
            found.append(Checkpoint(int(index), bytes.fromhex(value)))
        except ValueError:
            raise BadInput(f"checkpoints={text[:80]}: expected INDEX:HASH,...") from None
        if found[-1].index < 0 or len(found[-1].hash) != HASH_BYTES:
            raise BadInput(f"checkpoints={text[:80]}: expected INDEX:HASH,... with hashes of {HASH_BYTES} bytes")
    return found
