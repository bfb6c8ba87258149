"""Which transactions are recorded in which trace: sent to the other masters by notices, and to lanes on request.

A notice is beside the protocol: a master that does not know its topic ignores it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from txlog.http.router import Request, Response, Route, int_parameter, json_response
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput
from txlog.model.ids import parse_txid
from txlog.runtime.master_context import MasterContext
from txlog.runtime.transaction_traces import Announcement, TransactionTraces
from txlog.telemetry.trace_context import parse_traceparent
from txlog.telemetry.tracer import Tracer
from txlog.wire import messages as wire

TOPIC: Final = "traces"
ANNOUNCED_MAX: Final = 1000
"""Transactions in one notice; a longer one is ignored."""
SERVICE: Final = "txlog-master"


class AnnouncedTrace(msgspec.Struct, array_like=True, frozen=True):
    """A recorded transaction that the sender of the notice has accepted."""

    txid: str
    traceparent: str


def open_traces(site: MasterContext, send: Callable[[str, bytes], None]) -> TransactionTraces | None:
    """The traces of this master; None where its configuration has none. ``send(peer, message)`` sends a message to
    another master."""
    config = site.config
    if config.traces is None:
        return None

    def announce(accepted: Sequence[Announcement]) -> None:
        body = msgspec.json.encode([AnnouncedTrace(str(txid), str(context)) for txid, context in accepted])
        notice = wire.encode(wire.Notice(TOPIC, body))
        for node in site.other_nodes:
            send(node, notice)

    about = {"txlog.data_center": config.data_center, "txlog.repository": site.repository}
    tracer = Tracer(
        config.traces.endpoint, config.traces.sample_ratio, service=SERVICE, node=config.node, attributes=about
    )
    return TransactionTraces(tracer, site.durability, site.status, announce, site.log)


class TraceContextHandler:
    """``GET /txlog/traces``."""

    def __init__(self, site: MasterContext) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/traces", self.list_contexts)]

    async def list_contexts(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"transactions": [{"txid", "index", "traceparent"}]}``: the recorded transactions above index ``after``, up
        to ``upto``. The master remembers the last thousand. Empty where nothing is traced."""
        after, upto = (int_parameter(request.query, name, 0) for name in ("after", "upto"))
        if after > upto:
            raise BadInput(f"after={after} is above upto={upto}")
        traces = self._site.traces
        found = traces.contexts_between(after, upto) if traces is not None else {}
        rows = [
            {"txid": str(txid), "index": index, "traceparent": str(context)} for txid, (index, context) in found.items()
        ]
        return json_response({"transactions": rows})

    def on_notice(self, topic: str, body: bytes) -> None:
        """Handles a notice from another master."""
        traces = self._site.traces
        if topic != TOPIC or traces is None:
            return
        try:
            announced = msgspec.json.decode(body, type=list[AnnouncedTrace])
            found = [(parse_txid(one.txid), parse_traceparent(one.traceparent)) for one in announced[:ANNOUNCED_MAX]]
        except (*DECODE_ERRORS, BadInput):
            return  # a newer version sent it
        traces.on_announced([(txid, context) for txid, context in found if context is not None])
