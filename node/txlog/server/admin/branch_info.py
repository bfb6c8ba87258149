"""The branch of this master's log, for a client that asks what a rejoin would do: ``GET /txlog/branch[?at=INDEX]``."""

from __future__ import annotations

from collections.abc import Mapping

from txlog.http.router import Request, Response, Route, json_response
from txlog.model.errors import BadInput, NotFound, Unavailable
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.views import format_view_number


class BranchInfoHandler:
    """``GET /txlog/branch``."""

    def __init__(self, site: MasterContext) -> None:
        self._context = site

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/branch", self.get)]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"node","dataCenter","clusterId","configured","prefers","splitMode","view","end","hash"}``. ``end``: the
        end of the log, stable or not. ``hash`` and ``configured`` are those at ``at``, by default at the end. ``view``
        has its history, oldest first, with the strategy of each. 404 for an index above the log."""
        site = self._context
        status, durability = site.status, site.durability
        agreement, view = status.log_state, status.view
        if agreement is None or view is None:
            raise Unavailable("NotFounded", f"{site.config.node} has no view yet; wait until it is founded")
        end = durability.log_position().index
        text = request.query.get("at", str(end))
        if not (text.isascii() and text.isdecimal() and len(text) < 16):
            raise BadInput(f"at={text[:40]!r}: expected an index of the log")
        if int(text) > end:
            raise NotFound(f"index {text} is above the log of {site.config.node}, which ends at {end}")
        at = int(text)
        if not agreement.log_index.has_hash_at(at):
            raise NotFound(
                f"index {at} is below {agreement.log_index.start}, from which {site.config.node} keeps its log"
            )
        configured = agreement.configurations.at_index(at).members or status.settings.members
        return json_response(
            {
                "node": site.config.node,
                "dataCenter": site.config.data_center,
                "clusterId": view.cluster_id.hex(),
                "configured": [{"node": m.node, "weight": m.weight} for m in configured],
                "prefers": status.settings.strategy,
                "splitMode": status.split_mode,
                "view": {
                    "number": format_view_number(view.number),
                    "order": list(view.number),
                    "members": [m.node for m in view.members],
                    "strategy": view.strategy,
                    "history": [format_view_number(number) for number in view.ancestors],
                    "strategies": view.strategies,
                },
                "end": end,
                "hash": durability.position_at(at).hash.hex(),
            }
        )
