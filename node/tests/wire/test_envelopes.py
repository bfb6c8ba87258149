"""Envelopes of further logs: the number, and what is refused."""

from __future__ import annotations

import pytest

from txlog.model.errors import PeerFault
from txlog.wire import messages
from txlog.wire.envelope import ENVELOPE_FORMAT, unwrap, wrap

MESSAGE = messages.encode(messages.Notice("topic", b"body"))


@pytest.mark.parametrize("number", [1, 2, 255, 1 << 16, (1 << 32) - 1])
def test_an_envelope_has_the_number_and_the_message(number: int) -> None:
    data = wrap(number, MESSAGE)
    assert data == b"\x02" + number.to_bytes(4, "big") + MESSAGE
    assert unwrap("uk-2", data) == (number, MESSAGE)


def test_the_first_byte_is_no_format_of_messages() -> None:
    assert ENVELOPE_FORMAT != messages.MESSAGE_FORMAT
    with pytest.raises(PeerFault) as refused:
        messages.decode("uk-2", wrap(2, MESSAGE))  # as a master without further logs does
    assert refused.value.reason == "UnknownFormat"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x02", "has no message"),
        (b"\x02\0\0\0\x02", "has no message"),
        (b"\x02\0\0\0\0" + MESSAGE, "an envelope of log 0"),
        (b"\x02\0\0\0\x03" + b"\x02\0\0\0\x02" + MESSAGE, "an envelope in an envelope"),
    ],
)
def test_what_is_no_envelope_is_malformed(data: bytes, says: str) -> None:
    with pytest.raises(PeerFault, match=says) as refused:
        unwrap("uk-2", data)
    assert (refused.value.peer, refused.value.reason) == ("uk-2", "Malformed")
