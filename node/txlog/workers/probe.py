"""Checks whether a store can be a worker: once, at registration, with requests that leave no data in it."""

from __future__ import annotations

from dataclasses import dataclass

from txlog.workers.adapter import Adapter, Transport, WorkerRefused


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe. ``refused`` is None for a store that can change data and position in one transaction;
    otherwise it names the missing capability."""

    engine: str
    refused: WorkerRefused | None

    @property
    def ok(self) -> bool:
        """Whether the store can be a worker."""
        return self.refused is None


def probe(adapter: Adapter, transport: Transport) -> ProbeResult:
    """Run the adapter's steps on a scratch name in the system namespace, up to the first that fails. Raises
    :class:`~txlog.workers.adapter.Unreachable`. Must not run while an applier writes to this worker."""
    for step in adapter.probe_steps():
        response = transport.send(step.request)
        wrong = response.status not in step.expected_statuses
        if not wrong and step.empty:
            wrong = len(response.body.split()) != 1
        wrong = wrong or step.holds not in response.body
        if wrong:
            message = f"{transport.url}: {step.message} (it answered {response.status} {response.text[:200]!r})"
            return ProbeResult(adapter.engine, WorkerRefused(step.reason, message))
    return ProbeResult(adapter.engine, None)
