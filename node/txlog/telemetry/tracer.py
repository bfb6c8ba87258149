"""Spans that go to a collector by OTLP over HTTP. A process imports OpenTelemetry only where traces are on.

A span that ends is put into a bounded queue, from which a thread sends: a slow or lost collector costs spans and delays
nothing. The variables of OpenTelemetry count, such as ``OTEL_EXPORTER_OTLP_HEADERS`` and ``OTEL_RESOURCE_ATTRIBUTES``.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final
from urllib.parse import urlsplit

from txlog.telemetry.trace_context import TraceContext

TRACES_PATH: Final = "/v1/traces"
SEND_INTERVAL_MS: Final = 1000
QUEUE_MAX: Final = 4096
"""Spans that wait for the collector; further ones are dropped."""
SEND_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 1.0
SCOPE: Final = "txlog"
AttributeValue = str | int | float | bool


class SpanKind(Enum):
    """What a span is for its parent; the names are those of OpenTelemetry."""

    INTERNAL = "INTERNAL"
    SERVER = "SERVER"
    CONSUMER = "CONSUMER"


class TraceSpan:
    """A span that has begun. Times are nanoseconds since 1970."""

    def __init__(self, recorded: Any) -> None:
        self._recorded = recorded
        found = recorded.get_span_context()
        self.context = TraceContext(found.trace_id, found.span_id, True)

    def set(self, **attributes: AttributeValue) -> None:
        """Sets attributes below ``txlog.``."""
        for name, value in attributes.items():
            self._recorded.set_attribute(f"txlog.{name}", value)

    def end(self, at_ns: int, error: str = "") -> None:
        """Ends the span, with an error where one is given. A second call does nothing."""
        if not self._recorded.is_recording():
            return
        if error:
            from opentelemetry.trace import Status, StatusCode

            self._recorded.set_status(Status(StatusCode.ERROR, error))
        self._recorded.end(at_ns)


class Tracer:
    """Begins spans, and sends those that have ended to ``endpoint``.

    ``sample_ratio``: the part of traces without a parent that is recorded. A trace with a parent is recorded if its
    parent was. ``service``, ``node``: of this process. ``draw``: a random number of 0 to 1.
    """

    def __init__(
        self,
        endpoint: str,
        sample_ratio: float,
        *,
        service: str,
        node: str,
        attributes: Mapping[str, str] | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        # Imported late: 0.3 s and 15 MB, which a process without traces does not spend.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # not each try of a lost collector
        named = {"service.name": service, "service.namespace": "txlog", "service.instance.id": node}
        resource = Resource.create({**named, **(attributes or {})})
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=traces_url(endpoint), timeout=SEND_TIMEOUT_S)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=QUEUE_MAX, schedule_delay_millis=SEND_INTERVAL_MS)
        )
        self._tracer = self._provider.get_tracer(SCOPE)
        self._sample_ratio = sample_ratio
        self._draw = draw

    def is_sampled(self, parent: TraceContext | None) -> bool:
        """Whether a span of this parent is recorded. Without a parent, this draws."""
        return parent.is_sampled if parent is not None else self._draw() < self._sample_ratio

    def start(
        self,
        name: str,
        at_ns: int,
        parent: TraceContext | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        **attributes: AttributeValue,
    ) -> TraceSpan:
        """Begins a span that is recorded: see :meth:`is_sampled`. Attributes are below ``txlog.``."""
        from opentelemetry import trace

        context = trace.set_span_in_context(trace.INVALID_SPAN)
        if parent is not None:
            flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
            above = trace.SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)
            context = trace.set_span_in_context(trace.NonRecordingSpan(above))
        named = {f"txlog.{key}": value for key, value in attributes.items()}
        otel_kind = trace.SpanKind[kind.value]
        return TraceSpan(self._tracer.start_span(name, context, otel_kind, named, start_time=at_ns))

    def close(self) -> None:
        """Sends what waits. It blocks, for :data:`CLOSE_TIMEOUT_S` at most: a lost collector delays no end."""
        closing = threading.Thread(target=self._provider.shutdown, name="txlog-traces-end", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)


def traces_url(endpoint: str) -> str:
    """Where spans are sent: the path of OTLP below a host, or the given path."""
    path = urlsplit(endpoint).path
    return endpoint if path.strip("/") else endpoint.rstrip("/") + TRACES_PATH
