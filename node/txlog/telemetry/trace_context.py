"""The context of a trace as the header ``traceparent`` carries it (W3C Trace Context). Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

HEADER: Final = "traceparent"
SAMPLED_FLAG: Final = 1
_PATTERN: Final = re.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_KNOWN_VERSION: Final = "00"
_INVALID_VERSION: Final = "ff"


class TraceContext(NamedTuple):
    """A span, and whether its trace is recorded. Ids are 128 and 64 bits, never 0."""

    trace_id: int
    span_id: int
    is_sampled: bool

    def __str__(self) -> str:
        return f"{_KNOWN_VERSION}-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def parse_traceparent(text: str) -> TraceContext | None:
    """The context of a header; None for one that is not valid: such a header counts as none."""
    found = _PATTERN.fullmatch(text.strip())
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == _INVALID_VERSION or (version == _KNOWN_VERSION and more is not None):
        return None
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & SAMPLED_FLAG))
