"""``TxLog-Min-Position``: a read that is not older than an answer which the client has seen."""

from __future__ import annotations

from typing import Final

from txlog.http.router import Request
from txlog.http.write_options import prefer_header, preferred_wait
from txlog.model.errors import BadInput, Conflict, Unavailable
from txlog.runtime.master_context import MasterContext
from txlog.runtime.watermark import Watermark

WAIT_S_MAX: Final = 60.0
RETRY_S: Final = 1


async def await_min_position(
    site: MasterContext, request: Request, mark: Watermark, reason: str = "NoWorker", what: str = "no worker here"
) -> None:
    """Waits until ``mark`` has reached the position of the header. Raises :class:`Conflict` where a rejoin moved it,
    and :class:`Unavailable` with ``reason`` after the time that the client allows; ``what`` has not reached it."""
    index, digest = read_min_position(request)
    if not index:
        return
    durability = site.durability
    seconds = preferred_wait(prefer_header(request), site.config.write_timeout_s, WAIT_S_MAX)
    reached = await durability.wait_for(durability.wait_index(mark, index), seconds)
    if index <= durability.stable.value and digest and durability.position_at(index).hash.hex() != digest:
        raise Conflict(f"TxLog-Min-Position: at index {index} this log has another hash: the position was moved")
    if not reached:
        raise Unavailable(reason, f"{what} has reached index {index} yet; ask again", RETRY_S)


def read_min_position(request: Request) -> tuple[int, str]:
    """The header ``TxLog-Min-Position`` as index and hash; (0, "") without one."""
    text = request.headers.get("TxLog-Min-Position")
    return (0, "") if text is None else parse_min_position(text)


def parse_min_position(text: str) -> tuple[int, str]:
    """An index or ``epoch:index:hash`` as index and hash, "" without a hash. :class:`BadInput` for anything else."""
    parts = text.strip().split(":")
    digits = parts[0] if len(parts) == 1 else parts[1] if len(parts) == 3 else ""
    digest = parts[2].lower() if len(parts) == 3 else ""
    right_hash = not digest or (len(digest) == 32 and all(c in "0123456789abcdef" for c in digest))
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 19 and right_hash):
        raise BadInput(f"TxLog-Min-Position: {text[:80]!r}; an index, or the TxLog-Position of an answer")
    return int(digits), digest
