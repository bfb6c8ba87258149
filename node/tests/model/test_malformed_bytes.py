"""Bytes from outside that are no MessagePack and no JSON are refused by name, whatever is wrong with them."""

from __future__ import annotations

import msgspec
import pytest

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import KIND_QUADS, Position
from txlog.model.errors import PeerFault
from txlog.wire.log_page import LogPage, PageEntry, decode_page, encode_page
from txlog.wire.messages import Notice, encode
from txlog.wire.messages import decode as decode_message

DEEP = b"[" * 100_000


def test_wrong_utf8_in_a_message_is_malformed() -> None:
    whole = encode(Notice("topic", b""))
    assert b"topic" in whole
    with pytest.raises(PeerFault, match="uk-2: Malformed"):
        decode_message("uk-2", whole.replace(b"topic", b"top\xffc"))


def test_wrong_utf8_in_a_page_is_malformed() -> None:
    entry = PageEntry(1, bytes(16), "uk-1", 1, 1, 1, KIND_QUADS, b"", "")
    whole = encode_page(LogPage(Position(0, 0, b""), [entry], Position(0, 1, bytes(16))))
    with pytest.raises(PeerFault, match="uk-2: Malformed"):
        decode_page("uk-2", whole.replace(b"uk-1", b"uk-\xdc"))


@pytest.mark.parametrize("data", [b'{"x":"\xff"}', b'{"x":', b"", b'{"x":' + DEEP, b"\x00"])
def test_all_that_decoding_raises_is_named(data: bytes) -> None:
    class Told(msgspec.Struct):
        y: str = ""
        x: str = ""

    with pytest.raises(DECODE_ERRORS):
        msgspec.json.decode(data, type=Told)
