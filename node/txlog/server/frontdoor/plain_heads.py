"""Recognises the heads of ordinary requests by their bytes: plain writes, and plain reads.

Only aiohttp interprets HTTP in general. A head of any other form is not an error: aiohttp's side answers it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from txlog.http.write_options import WriteOptions, parse_write_options
from txlog.model.durability import Durability
from txlog.model.errors import TxLogError
from txlog.runtime.transaction_status import BELOW_APPLIED
from txlog.server.frontdoor.off_loop import OFF_LOOP_SPARQL
from txlog.server.frontdoor.write_handler import UPDATE_MEDIA_TYPE

TIMEOUT_S_MIN: Final = 5.0
"""Requests with a shorter time-out go to aiohttp: the fast path checks time-outs only now and then."""

_REQUEST_LINE: Final = re.compile(rb"(GET|POST) (/[\x21-\x7e]*) HTTP/1\.1")
_HEADERS: Final = re.compile(rb"(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]++:[\t\x20-\x7e]*+|)*+")
CACHED_MAX: Final = 512
"""How many blocks of headers are kept parsed: a client sends the same one again and again."""
_LENGTH: Final = re.compile("[0-9]{1,9}")
_UNSUPPORTED_HEADERS: Final = frozenset(
    b"transfer-encoding content-encoding expect upgrade te trailer http2-settings sec-websocket-key"
    b" origin sec-fetch-site txlog-updates-without-graph txlog-synchronous txlog-authorization".split()
)
"""Headers that the fast path leaves to aiohttp or another handler."""


class RequestHead(NamedTuple):
    """A head without unusual parts. ``target``: path and query, as sent. ``headers``: by name in lower case, each
    once. ``content_length``: of the body, in bytes."""

    method: bytes
    target: bytes
    headers: Mapping[bytes, str]
    content_length: int


class PlainWriteHead:
    """A recognised head. ``content_length``: of the body, in bytes; ``authorization``: the credentials of the
    client."""

    __slots__ = ("authorization", "content_length", "key", "level", "media_type", "options")

    def __init__(self, kind: str, length: int, asked: WriteOptions, shown: str | None) -> None:
        self.media_type = kind
        self.content_length = length
        self.options = asked
        self.key = asked.key
        self.level = asked.level
        self.authorization = shown


def parse_request_head(data: bytes) -> RequestHead | None:
    """Parses the bytes of a head, without the empty line behind it. None where something of it is unusual."""
    end = data.find(b"\r\n")
    found = None if end < 0 else _REQUEST_LINE.fullmatch(data, 0, end)
    headers = None if found is None else _parse_headers_cached(data[end:])
    if found is None or headers is None:
        return None
    method = found[1]
    length = headers.get(b"content-length", "0" if method == b"GET" else "")
    return RequestHead(method, found[2], headers, int(length)) if _LENGTH.fullmatch(length) else None


def _parse_headers(data: bytes) -> Mapping[bytes, str] | None:
    if _HEADERS.fullmatch(data) is None:
        return None
    headers: dict[bytes, str] = {}
    for line in data.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in headers or name in _UNSUPPORTED_HEADERS:
            return None
        headers[name] = value.strip(b" \t").decode()
    if headers.get(b"connection", "keep-alive").lower() != "keep-alive" or b"host" not in headers:
        return None
    return headers


_parse_headers_cached = lru_cache(CACHED_MAX)(_parse_headers)


def parse_plain_write(
    data: bytes, paths: frozenset[bytes], level: Durability, seconds: float, bytes_max: int
) -> PlainWriteHead | None:
    """Parses the bytes of a head; None if they do not have the one exact form. ``paths``: the accepted paths. ``level``
    and ``seconds``: defaults of a request that does not set them. ``bytes_max``: the limit of a body."""
    head = parse_request_head(data)
    return None if head is None else recognise_write(head, paths, level, seconds, bytes_max)


def recognise_write(
    head: RequestHead, paths: frozenset[bytes], level: Durability, seconds: float, bytes_max: int
) -> PlainWriteHead | None:
    """The same for a head that is parsed."""
    headers, length = head.headers, head.content_length
    if head.method != b"POST" or head.target not in paths or length > bytes_max:
        return None
    try:
        asked = parse_write_options(
            headers.get(b"txlog-durability"),
            headers.get(b"prefer"),
            headers.get(b"idempotency-key"),
            level,
            seconds,
        )
    except TxLogError:
        return None  # aiohttp's side refuses it by name
    traceparent = headers.get(b"traceparent")
    if traceparent is not None:
        asked = asked._replace(traceparent=traceparent)
    if asked.level not in BELOW_APPLIED or asked.timeout_s < TIMEOUT_S_MIN:
        return None
    media_type = headers.get(b"content-type", "")
    if length >= OFF_LOOP_SPARQL and media_type.lower().startswith(UPDATE_MEDIA_TYPE):
        return None  # it would hold the loop
    return PlainWriteHead(media_type, length, asked, headers.get(b"authorization"))
