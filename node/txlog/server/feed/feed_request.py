"""What a follower of the log asks for, as the query and the headers of its request name it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from txlog.http.router import Request, int_parameter
from txlog.model.errors import BadInput, NotAcceptable
from txlog.wire.change_feed import (
    FEED_MEDIA_TYPES,
    NDJSON_MEDIA_TYPE,
    SSE_MEDIA_TYPE,
    FeedEvent,
    FeedPosition,
    is_inexpressible_in_patch,
    parse_feed_position,
)

HEARTBEAT_S: Final = 15
HEARTBEAT_S_MAX: Final = 300
_PARAMETERS: Final = frozenset({"from", "until", "level", "heartbeat", "updates"})


class FeedRequest(msgspec.Struct, frozen=True):
    """What a follower requested. ``start`` None: from now on. ``until`` -1: the current stable index; None: without
    end."""

    form: str
    start: FeedPosition | None
    until: int | None
    settled: bool
    heartbeat_s: int
    updates: str

    @property
    def wants_change_sets(self) -> bool:
        """Whether it follows what entries deleted and added."""
        return self.updates == "quads"

    def count_expressible(self, events: Sequence[FeedEvent]) -> int:
        """How many of the events come before the first one that RDF Patch cannot express for this follower."""
        reads = self.updates != "stop"
        wrong = (at for at, each in enumerate(events) if is_inexpressible_in_patch(each, reads_updates=reads))
        return next(wrong, len(events))


def parse_feed_request(request: Request) -> FeedRequest:
    """The request of a follower. Raises :class:`BadInput` and :class:`NotAcceptable`."""
    query = request.query
    unknown = sorted(set(query) - _PARAMETERS)
    if unknown:
        raise BadInput(f"{unknown[0][:40]}: no parameter of a feed; there are {', '.join(sorted(_PARAMETERS))}")
    last = request.headers.get("Last-Event-ID")
    start = query.get("from", "now")
    updates, until = query.get("updates", "stop"), query.get("until")
    # What entries changed is followed by those who cannot take it back.
    level = query.get("level", "settled" if updates == "quads" else "stable")
    if level not in ("stable", "settled"):
        raise BadInput(f"level={level[:40]}: stable or settled")
    if updates not in ("stop", "header", "quads"):
        raise BadInput(
            f"updates={updates[:40]}: stop (the feed ends before a SPARQL update), header, or quads (what each entry "
            "deleted and added)"
        )
    if last is not None:
        begin: FeedPosition | None = parse_feed_position(last, "Last-Event-ID")
    else:
        begin = None if start == "now" else parse_feed_position(start, "from")
    return FeedRequest(
        _negotiate_format(request.headers.get("Accept", "")),
        begin,
        -1 if until == "now" else int_parameter(query, "until", 0) if until is not None else None,
        level == "settled",
        int_parameter(query, "heartbeat", HEARTBEAT_S, least=1, most=HEARTBEAT_S_MAX),
        updates,
    )


def _negotiate_format(accept: str) -> str:
    """The format that the client prefers; of equal weights, the first that it names."""
    wanted: list[tuple[float, str]] = []
    for part in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        try:
            wanted.append((float(weight), name))
        except ValueError:
            raise BadInput(f"Accept: {part.strip()[:80]!r}: q is a number from 0 to 1") from None
    for liking, name in sorted(wanted, key=lambda one: -one[0]):
        if liking <= 0:
            continue
        if name in FEED_MEDIA_TYPES:
            return name
        if name in ("", "*/*", "text/*"):
            return SSE_MEDIA_TYPE
        if name == "application/*":
            return NDJSON_MEDIA_TYPE
    raise NotAcceptable(f"Accept: {accept[:80]}; there are {', '.join(FEED_MEDIA_TYPES)}")
