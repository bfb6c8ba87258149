"""The state of a site at one position of its log, as lines: a head, each quad that crosses links, and their number.

The head and the last line are JSON. So a state whose end is missing is known as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

import msgspec
import pyoxigraph as ox

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import PeerFault
from txlog.sites.keys import crosses_links
from txlog.sites.peer_lines import check_lines
from txlog.workers.canonical_literals import canonical_lines

T = TypeVar("T")
STATE_PATH: Final = "/state"
STATE_MEDIA_TYPE: Final = "application/x-txlog-state"
STATE_VERSION: Final = 1
QUADS_AT_ONCE: Final = 5000


class StateHead(msgspec.Struct, frozen=True):
    """The entry of the log after which the state is, and the hash there in hexadecimal."""

    version: int
    index: int
    hash: str


class StateEnd(msgspec.Struct, frozen=True):
    """How many quads there were."""

    quads: int


def encode_state(index: int, at_hash: bytes, quads: Iterable[ox.Quad]) -> Iterator[bytes]:
    """The state in pieces of whole lines."""
    yield msgspec.json.encode(StateHead(STATE_VERSION, index, at_hash.hex())) + b"\n"
    count = 0
    for part in _parts(quads):
        text = " .\n".join(map(str, part))
        lines = [line for line in canonical_lines(f"{text} .".encode()).split(b"\n") if crosses_links(line)]
        count += len(lines)
        if lines:
            yield b"\n".join(lines) + b"\n"
    yield msgspec.json.encode(StateEnd(count)) + b"\n"


def decode_head(site: str, line: bytes) -> StateHead:
    """The head of a state. Raises :class:`PeerFault`."""
    try:
        head = msgspec.json.decode(line, type=StateHead)
        if head.version != STATE_VERSION or head.index < 0 or len(bytes.fromhex(head.hash)) == 0:
            raise ValueError(f"version {head.version}, index {head.index}")
    except DECODE_ERRORS as wrong:
        raise PeerFault(site, "Malformed", f"the head of a state: {wrong}") from None
    return head


def decode_quads(site: str, lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The quads after the head, checked, some at a time. Raises :class:`PeerFault` for a line that is no quad of a log,
    and where the end is missing or another one."""
    count, ended = 0, False
    for found in _parts(lines):
        if ended:
            raise PeerFault(site, "Malformed", "a state goes on after its end")
        if found[-1].startswith(b"{"):
            ended = True
            _check_end(site, found.pop(), count + len(found))
        check_lines(site, found)
        foreign = next((line for line in found if not crosses_links(line)), None)
        if foreign is not None:
            raise PeerFault(site, "Malformed", f"{foreign[:200]!r} does not cross links")
        count += len(found)
        yield found
    if not ended:
        raise PeerFault(site, "Malformed", f"a state ends after {count} quads, without its last line")


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, QUADS_AT_ONCE)):
        yield part


def _check_end(site: str, line: bytes, count: int) -> None:
    try:
        end = msgspec.json.decode(line, type=StateEnd)
    except DECODE_ERRORS as wrong:
        raise PeerFault(site, "Malformed", f"the end of a state: {wrong}") from None
    if end.quads != count:
        raise PeerFault(site, "Malformed", f"a state of {end.quads} quads has {count}")
