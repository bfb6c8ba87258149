"""The section ``telemetry`` of a manifest: where traces go."""

from __future__ import annotations

from pydantic import Field

from txlog.config.manifest_model import ManifestModel


class TracesSpec(ManifestModel):
    """Traces of transactions and of reconciles, sent by OTLP over HTTP."""

    endpoint: str = Field(
        pattern=r"^https?://[^/\s?#]+(/[^\s?#]*)?$",
        description="URL of a collector, such as `http://collector:4318`. Without a path, spans go to `/v1/traces` "
        "there.",
    )
    sample_ratio: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Part of the traces that is recorded, 0 to 1. For a transaction with a `traceparent`, its client "
        "decides.",
    )


class TelemetrySpec(ManifestModel):
    """What TxLog tells of itself, beside metrics and logs."""

    traces: TracesSpec | None = Field(default=None, description="Without it there are no traces, and no cost.")
