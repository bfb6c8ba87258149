"""Spans of what lanes apply: how long a worker took for the transactions that are recorded in traces.

A lane only notes which part of the log it has applied, and when. A thread of the process asks a master later which of
these transactions are recorded.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from txlog.client import RecordedTrace
from txlog.client.trace_lookup import TraceLookup
from txlog.config.process_config import PipelineConfig
from txlog.model.errors import TxLogError
from txlog.pipeline.apply_round import Applier, ApplyRound, WorkerCache
from txlog.telemetry.trace_context import parse_traceparent
from txlog.telemetry.tracer import SpanKind, Tracer

log = logging.getLogger(__name__)

SERVICE: Final = "txlog-lanes"
LOOKUP_DELAY_S: Final = 0.5
"""After an application, until the masters are asked: what they tell each other of traces has arrived then."""
LOOKUP_TIMEOUT_S: Final = 2.0
NOTED_MAX: Final = 1000
"""Applications that wait for their look-up; further ones are not recorded."""


class AppliedRange(NamedTuple):
    """A worker went from index ``after`` to index ``upto`` of the log. Times are nanoseconds since 1970."""

    worker: str
    after: int
    upto: int
    began_ns: int
    ended_ns: int


class LaneTraces:
    """The spans of all lanes of one process."""

    def __init__(self, config: PipelineConfig, tracer: Tracer) -> None:
        self._tracer = tracer
        self._masters = TraceLookup(config.masters, LOOKUP_TIMEOUT_S)
        self._noted: queue.Queue[AppliedRange] = queue.Queue(NOTED_MAX)
        threading.Thread(target=self._run, name="txlog-lane-traces", daemon=True).start()

    def note(self, applied: AppliedRange) -> None:
        """Never waits."""
        try:
            self._noted.put_nowait(applied)
        except queue.Full:
            return

    def _run(self) -> None:
        while True:
            ranges = [self._noted.get()]
            time.sleep(LOOKUP_DELAY_S)
            while not self._noted.empty():
                ranges.append(self._noted.get_nowait())
            try:
                self._record(ranges)
            except TxLogError as error:
                log.info("spans of %d applications are lost: %s", len(ranges), error)
            except Exception:  # a bug must not end the thread
                log.exception("spans of lanes")

    def _record(self, ranges: Sequence[AppliedRange]) -> None:
        after, upto = min(each.after for each in ranges), max(each.upto for each in ranges)
        for recorded in self._masters.recorded(after, upto):
            for applied in ranges:
                if applied.after < recorded.index <= applied.upto:
                    self._span(applied, recorded)

    def _span(self, applied: AppliedRange, recorded: RecordedTrace) -> None:
        context = parse_traceparent(recorded.traceparent)
        if context is None:
            return
        span = self._tracer.start("execute", applied.began_ns, context, SpanKind.CONSUMER, worker=applied.worker)
        span.set(transaction=recorded.txid, index=recorded.index, entries=applied.upto - applied.after)
        span.end(applied.ended_ns)


class TracedApplier:
    """An applier whose applications are noted."""

    def __init__(self, worker: str, apply: Applier, traces: LaneTraces) -> None:
        self._worker = worker
        self._apply = apply
        self._traces = traces

    def __call__(self, upto: int, budget_s: float, known: WorkerCache) -> ApplyRound:
        """As the applier does."""
        began_ns = time.time_ns()
        done = self._apply(upto, budget_s, known)
        position = done.report.position
        if known.marker is not None and position is not None and position.index > known.marker.position.index:
            before = known.marker.position.index
            self._traces.note(AppliedRange(self._worker, before, position.index, began_ns, time.time_ns()))
        return done


def open_lane_traces(config: PipelineConfig) -> LaneTraces | None:
    """None where the configuration has no traces."""
    if config.traces is None:
        return None
    node = f"{config.data_center}-lanes"
    about = {"txlog.data_center": config.data_center}
    tracer = Tracer(config.traces.endpoint, config.traces.sample_ratio, service=SERVICE, node=node, attributes=about)
    return LaneTraces(config, tracer)
