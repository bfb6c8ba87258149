"""The envelope of a message between masters that is about a further log: one byte of format, the number of the log in
four bytes (big-endian), then the message as :mod:`txlog.wire.messages` has it.

Messages of log 0 travel without an envelope, so nothing changes for a cluster with one repository. The cluster id in a
post proves the log a second time: a message with another number is refused by the core that receives it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from txlog.model.errors import PeerFault

ENVELOPE_FORMAT: Final = 2
"""The first byte of an envelope, in place of :data:`.MESSAGE_FORMAT`."""
LEVEL_ENVELOPES: Final = 1
"""The level of a link whose other end reads envelopes. Masters announce it when they connect, so it is known before the
first message; a level in a message would come later, and still count after the peer went back to an older program."""
_HEAD: Final = Struct(">BI")
_NUMBER_MAX: Final = (1 << 32) - 1


def wrap(number: int, message: bytes) -> bytes:
    """A message of the log with this number, from 1 on."""
    assert 0 < number <= _NUMBER_MAX, f"no further log has the number {number}"
    return _HEAD.pack(ENVELOPE_FORMAT, number) + message


def unwrap(peer: str, data: bytes) -> tuple[int, bytes]:
    """The number of the log, and its message. :class:`PeerFault` for anything else, also for an envelope inside of
    another one."""
    if len(data) <= _HEAD.size:
        raise PeerFault(peer, "Malformed", f"an envelope of {len(data)} bytes has no message")
    format_byte, number = _HEAD.unpack_from(data)
    if format_byte != ENVELOPE_FORMAT or not number:
        raise PeerFault(peer, "Malformed", "an envelope of log 0, whose messages have none")
    message = data[_HEAD.size :]
    if message[0] == ENVELOPE_FORMAT:
        raise PeerFault(peer, "Malformed", "an envelope in an envelope")
    return number, message
