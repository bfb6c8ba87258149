"""The requests that one call of an applier has sent to its worker."""

from __future__ import annotations

from txlog.workers.adapter import RequestOutcome, Transport, Unreachable, WorkerRequest, WorkerResponse


class SentRequests:
    """``count``: how many there are. ``may_run``: whether one that may change the worker has no known end."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.count = 0
        self.may_run = False

    def send(self, request: WorkerRequest) -> WorkerResponse:
        """Sends one more; errors as of :meth:`~txlog.workers.adapter.Transport.send`."""
        self.count += 1
        try:
            return self._transport.send(request)
        except Unreachable as lost:
            self.may_run |= lost.fate is RequestOutcome.UNKNOWN and not request.reads
            raise

    def on_answered(self) -> None:
        """The worker shows that it has executed the request without an answer."""
        self.may_run = False
