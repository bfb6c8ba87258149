"""Spans of reconciles, where the manifest of their cluster has traces."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from txlog.config.telemetry_spec import TracesSpec
from txlog.telemetry.tracer import AttributeValue, SpanKind, Tracer

log = logging.getLogger(__name__)

SERVICE: Final = "txlog-operator"
ERROR_MAX: Final = 500


@dataclass
class ReconcileStep:
    """A part of a reconcile. Times are nanoseconds since 1970."""

    name: str
    began_ns: int
    ended_ns: int = 0
    error: str = ""
    attributes: dict[str, AttributeValue] = field(default_factory=dict)


class ReconcileTrace:
    """What one reconcile did and when. ``traces``: of the manifest in effect, once that is known; without it nothing is
    sent."""

    def __init__(self) -> None:
        self.whole = ReconcileStep("reconcile", time.time_ns())
        self.steps: list[ReconcileStep] = []
        self.traces: TracesSpec | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[ReconcileStep]:
        """The time of a part. Its error is raised again."""
        one = ReconcileStep(name, time.time_ns())
        self.steps.append(one)
        try:
            yield one
        except Exception as error:
            one.error = self.whole.error = f"{type(error).__name__}: {error}"[:ERROR_MAX]
            raise
        finally:
            one.ended_ns = time.time_ns()


class ReconcileTraces:
    """Sends the spans of all clusters of an operator. ``node``: of the operator, such as its pod."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._tracers: dict[TracesSpec, Tracer] = {}
        self._used: dict[tuple[str, str], TracesSpec] = {}

    def record(self, namespace: str, name: str, trace: ReconcileTrace) -> None:
        """Sends the spans of a reconcile that has ended, if its manifest has traces, and by chance. An error is logged:
        no reconcile fails by its trace."""
        try:
            self._record(namespace, name, trace)
        except Exception:
            log.exception("%s/%s: its reconcile was not traced", namespace, name)

    def _record(self, namespace: str, name: str, trace: ReconcileTrace) -> None:
        tracer = self._tracer(namespace, name, trace.traces)
        if tracer is None or not tracer.is_sampled(None):
            return
        whole = trace.whole
        above = tracer.start(whole.name, whole.began_ns, kind=SpanKind.INTERNAL, namespace=namespace, cluster=name)
        above.set(**whole.attributes)
        for step in trace.steps:
            tracer.start(step.name, step.began_ns, above.context, SpanKind.INTERNAL, **step.attributes).end(
                step.ended_ns, step.error
            )
        above.end(time.time_ns(), whole.error)

    def forget(self, namespace: str, name: str) -> None:
        """A cluster is gone: nothing is sent for it any more."""
        self._tracer(namespace, name, None)

    def close(self) -> None:
        """Sends what waits. It blocks, for :data:`~txlog.telemetry.tracer.CLOSE_TIMEOUT_S` for each collector."""
        for tracer in self._tracers.values():
            tracer.close()
        self._tracers, self._used = {}, {}

    def _tracer(self, namespace: str, name: str, wanted: TracesSpec | None) -> Tracer | None:
        """One for all clusters with the same collector and ratio. The last cluster that leaves one closes it."""
        key = (namespace, name)
        before = self._used.pop(key, None)
        if wanted is not None:
            self._used[key] = wanted
            if wanted not in self._tracers:
                self._tracers[wanted] = Tracer(wanted.endpoint, wanted.sample_ratio, service=SERVICE, node=self._node)
        if before is not None and before not in self._used.values():
            left = self._tracers.pop(before)
            threading.Thread(target=left.close, name="txlog-traces-end", daemon=True).start()
        return self._tracers[wanted] if wanted is not None else None
