"""The header ``traceparent``, as W3C Trace Context has it."""

import pytest
from otlp_receiver import OtlpReceiver

from txlog.telemetry.trace_context import TraceContext, parse_traceparent
from txlog.telemetry.tracer import SpanKind, Tracer, traces_url

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),  # a flag that is not known
        (f" 00-{TRACE}-{SPAN}-01\t", True),
        (f"cc-{TRACE}-{SPAN}-01", True),  # a later version
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
    ],
)
def test_valid(text: str, is_sampled: bool) -> None:
    assert parse_traceparent(text) == TraceContext(int(TRACE, 16), int(SPAN, 16), is_sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0x",
        f"00-{TRACE}{SPAN}-01",
    ],
)
def test_counts_as_none(text: str) -> None:
    assert parse_traceparent(text) is None


def test_there_and_back() -> None:
    context = TraceContext(7, 9, True)
    assert str(context) == f"00-{7:032x}-{9:016x}-01"
    assert parse_traceparent(str(context)) == context


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/otlp/v1/traces", "https://c/otlp/v1/traces"),
    ],
)
def test_where_spans_are_sent(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url


def test_the_part_that_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
    receiver, draws = OtlpReceiver(), iter([0.24, 0.25, 0.0])
    tracer = Tracer(receiver.url, 0.25, service="s", node="n", draw=lambda: next(draws))
    assert [tracer.is_sampled(None) for _ in range(3)] == [True, False, True]
    assert tracer.is_sampled(TraceContext(1, 1, True))
    assert not tracer.is_sampled(TraceContext(1, 1, False))
    span = tracer.start("a", 1_000, TraceContext(1, 2, True), SpanKind.SERVER, index=7)
    span.end(2_000, "it broke")
    span.end(3_000)
    tracer.close()
    receiver.close()
    (found,) = receiver.spans
    assert (int(found.trace, 16), int(found.parent, 16)) == (1, 2)
    assert (found.began, found.ended, found.error) == (1_000, 2_000, "it broke")
    assert (found.service, found.node, found.attributes) == ("s", "n", {"txlog.index": 7})
    assert receiver.headers[0]["authorization"] == "Bearer secret"
