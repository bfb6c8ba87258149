"""What this master would report if its view were stopped now: ``GET /txlog/view-report[?checkpoints=INDEX:HASH,...]``.

A client that reaches the masters of all branches computes from it the view that would follow, with the code of
``txlog.protocol.views``. Nothing is promised, and the view goes on.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping

from txlog.http.router import Request, Response, Route, json_response
from txlog.model.errors import BadInput, Unavailable
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.protocol.views.report import build_checkpoints
from txlog.runtime.master_context import MasterContext
from txlog.wire.messages import Checkpoint, ProposeView, encode


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
        proposal = ProposeView(view.number, view.cluster_id, [], view.number, [], given)
        report = status.view_report(proposal)
        seqs = [str(Txid(Origin(node, birth), seq)) for node, birth, seq in log.seqs_at(report.shared.index)]
        checkpoints = [f"{one.index}:{one.hash.hex()}" for one in build_checkpoints(agreement)]
        message = await asyncio.to_thread(lambda: base64.b64encode(encode(report)).decode())
        return json_response({"node": name, "checkpoints": checkpoints, "seqs": seqs, "report": message})


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
