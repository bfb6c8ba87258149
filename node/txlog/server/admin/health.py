"""The health checks of a process. The health of one repository is ``/repositories/{id}/health``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from txlog.http.router import Request, Response, Route, json_response, text_response
from txlog.runtime.master_context import MasterContext


class HealthHandler:
    """``/health/live``, ``/health/ready`` and ``/health/startup``. ``sites``: the logs of this process, at least one,
    the first one first."""

    def __init__(self, sites: Callable[[], Sequence[MasterContext]]) -> None:
        self._sites = sites

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", "/health/live", self.live),
            Route("GET", "/health/ready", self.ready),
            Route("GET", "/health/startup", self.startup),
        ]

    async def live(self, request: Request, _: Mapping[str, str]) -> Response:
        """Whether the process is alive."""
        return text_response("live\n")

    async def ready(self, request: Request, _: Mapping[str, str]) -> Response:
        """Ready for work: a log is bootstrapped, admitted, not damaged and not closing. One log that is not must not
        take its clients away from the others."""
        sites = self._sites()
        site = next((site for site in sites if site.is_ready), sites[0])
        state = "Closing" if site.is_closing else site.state
        return json_response({"state": state}, *((200, {}) if site.is_ready else (503, {"Retry-After": "1"})))

    async def startup(self, request: Request, _: Mapping[str, str]) -> Response:
        """The startup check: the process runs and connects to its peers. The bootstrap may have to wait for them."""
        return text_response("started\n")
