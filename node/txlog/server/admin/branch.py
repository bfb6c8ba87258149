"""Which branch this master's log is, for whoever asks what a rejoin would do: ``GET /txlog/branch[?at=INDEX]``."""

from __future__ import annotations

from collections.abc import Mapping

from txlog.model.errors import BadInput, NotFound, Unavailable
from txlog.runtime.site import Site
from txlog.runtime.web import Request, Response, Route, json_answer
from txlog.server.admin.membership import number_text


class Branch:
    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        return [Route("GET", "/txlog/branch", self.get)]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"node","dataCenter","clusterId","configured","prefers","splitMode","view","end","hash"}``. ``end``: of the
        log, stable or not; ``hash`` and ``configured``: at ``at``, by default at the end. ``view`` has its
        history, oldest first, and the strategy of each. 404 for an index above the log."""
        site = self._site
        loop, core = site.loop, site.loop.core
        agreement, view = loop.agreement, core.views.accepted
        if agreement is None or view is None:
            raise Unavailable("NotFounded", f"{site.config.node} has no view yet; wait until it is founded")
        end = loop.log_position().index
        text = request.query.get("at", str(end))
        if not (text.isascii() and text.isdecimal() and len(text) < 16):
            raise BadInput(f"at={text[:40]!r}: expected an index of the log")
        if int(text) > end:
            raise NotFound(f"index {text} is above the log of {site.config.node}, which ends at {end}")
        at = int(text)
        if not agreement.history.keeps(at):
            raise NotFound(
                f"index {at} is below {agreement.history.start}, from which {site.config.node} keeps its log"
            )
        configured = agreement.configurations.place(at).members or core.settings.members
        return json_answer(
            {
                "node": site.config.node,
                "dataCenter": site.config.data_center,
                "clusterId": view.cluster_id.hex(),
                "configured": [{"node": m.node, "weight": m.weight} for m in configured],
                "prefers": core.settings.strategy,
                "splitMode": "Majority" if core.views.majority else "Continue",
                "view": {
                    "number": number_text(view.number),
                    "order": list(view.number),
                    "members": [m.node for m in view.members],
                    "strategy": view.strategy,
                    "history": [number_text(number) for number in view.history],
                    "strategies": view.strategies,
                },
                "end": end,
                "hash": loop.position_at(at).hash.hex(),
            }
        )
