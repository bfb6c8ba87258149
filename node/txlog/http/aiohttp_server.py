"""aiohttp's server, except that it never repeats what a client sent.

If a request is not valid HTTP, aiohttp's own handler answers with the unreadable line. It also writes a stack trace
with that line to the log. A token with one wrong byte would then appear in both.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from txlog.http.router import Request, Response, Router, text_response
from txlog.telemetry.event_log import EventLog


class RequestServer(RequestHandler):
    """One connection. ``log``: the event log of the master."""

    __slots__ = ("_event_log",)

    def __init__(self, server: HttpServer, log: EventLog, **more: Any) -> None:
        super().__init__(server, **more)
        self._event_log = log

    @property
    def is_between_requests(self) -> bool:
        """Whether the last request is over, and the head of the next one has not come, or not all of it."""
        waiter = self._waiter
        return waiter is not None and not waiter.done() and not self._force_close and not self._close

    def leave(self) -> None:
        """Gives up the connection between two requests without closing it."""
        self.transport = None
        self.connection_lost(None)

    def handle_error(
        self,
        request: Request,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> Response:
        """Answers and logs the kind and the status only; the connection ends."""
        kind = type(exc).__name__ if exc is not None else "Error"
        if not isinstance(exc, OSError):  # else the client has disconnected
            self._event_log.warning_rate_limited(
                "NotHttp" if status < 500 else "InternalError", kind, status=status, error=kind
            )
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was under way")
        what = "not a request as HTTP/1.1 has it" if status < 500 else "this master made a mistake with this request"
        answer = text_response(f"{what} ({kind})\n", status)
        answer.force_close()
        return answer


class HttpServer(web.Server):
    """The server of one listener."""

    def __init__(self, door: Router, log: EventLog, **more: Any) -> None:
        # Bodies are decompressed by the readers of this room, which have limits.
        super().__init__(door.handle, access_log=None, auto_decompress=False, **more)
        self._event_log = log

    def __call__(self) -> RequestServer:
        return RequestServer(self, self._event_log, loop=self._loop, **self._kwargs)
