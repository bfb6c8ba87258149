"""Families of metrics, each with the prefix ``txlog_``.

``prometheus_client`` is imported late: most masters on a laptop are never scraped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Samples = Mapping[Any, float] | Iterable[tuple[tuple[str, ...], float]]
"""Values by label values."""


def gauge(name: str, text: str, value: float) -> Any:
    """A value."""
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"txlog_{name}", text, value=value)


def counter(name: str, text: str, value: float) -> Any:
    """A count that only grows."""
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(f"txlog_{name}", text, value=value)


def gauges(name: str, text: str, labels: list[str], samples: Samples) -> Any:
    """Values by labels."""
    from prometheus_client.core import GaugeMetricFamily

    return _add_samples(GaugeMetricFamily(f"txlog_{name}", text, labels=labels), samples)


def counters(name: str, text: str, labels: list[str], samples: Samples) -> Any:
    """Counts by labels."""
    from prometheus_client.core import CounterMetricFamily

    return _add_samples(CounterMetricFamily(f"txlog_{name}", text, labels=labels), samples)


def histogram(name: str, text: str, buckets: Sequence[tuple[str, float]], total: float) -> Any:
    """``buckets``: upper bounds, the last one ``+Inf``, with how many values are not above; ``total``: their sum."""
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(f"txlog_{name}", text, buckets=buckets, sum_value=total)


def join_families(label: str, sources: Mapping[str, Iterable[Any]]) -> list[Any]:
    """The families of several sources, each once: a text of Prometheus has no family twice. ``label`` names the source
    of each sample."""
    joined: dict[str, Any] = {}
    for source, families in sources.items():
        for family in families:
            family.samples = [s._replace(labels={label: source, **s.labels}) for s in family.samples]
            known = joined.setdefault(family.name, family)
            if known is not family:
                known.samples += family.samples
    return list(joined.values())


def _add_samples(family: Any, samples: Samples) -> Any:
    for labels, value in samples.items() if isinstance(samples, Mapping) else samples:
        family.add_metric(list(labels), value)
    return family
