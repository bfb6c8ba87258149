from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.model.entry import KIND_QUADS, KIND_UPDATE, LogEntry, Position
from txlog.model.errors import PeerFault
from txlog.model.ids import Origin, Txid
from txlog.wire.log_page import LOG_PAGE_FORMAT, LogPage, PageEntry, decode_page, encode_page, make_page, page_to_json


def entry(index: int, payload: bytes = b"", birth: int = 7, noop: str = "") -> LogEntry:
    txid = Txid(Origin("uk-1", birth), index)
    return LogEntry(index, bytes([index % 256]) * 16, txid, index << 16, KIND_QUADS, payload, noop)


def page(first: int, count: int) -> LogPage:
    entries = [entry(first + i, b"A <urn:s> <urn:p> <urn:o> .\n") for i in range(count)]
    return make_page(Position(1, first - 1, b"a" * 16), entries, Position(1, first + count, b"s" * 16))


@given(
    after=st.integers(0, 1 << 40),
    payloads=st.lists(st.binary(max_size=50), max_size=5),
    births=st.lists(st.integers(0, (1 << 64) - 1), min_size=5, max_size=5),
    noop=st.sampled_from(["", "skip", "key uk-1.00c0ffee00c0ffee.42"]),
)
def test_a_page_survives_the_wire_as_it_was(after: int, payloads: list[bytes], births: list[int], noop: str) -> None:
    entries = [entry(after + 1 + i, p, births[i], noop) for i, p in enumerate(payloads)]
    sent = make_page(Position(3, after, b"h" * 16), entries, Position(4, after + 9, b"s" * 16))
    got = decode_page("uk-1", encode_page(sent))
    assert got == sent
    assert got.log_entries() == entries
    assert [e.entry for e in got.entries] == entries


@pytest.mark.parametrize("data", [b"", b"\x00", bytes([LOG_PAGE_FORMAT + 1]) + encode_page(page(1, 1))[1:], b"<html>"])
def test_an_unknown_format_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(PeerFault, match="http://m: UnknownFormat: log page format") as refused:
        decode_page("http://m", data)
    assert refused.value.reason == "UnknownFormat"


def test_every_cut_page_is_malformed_and_never_half_read() -> None:
    whole = encode_page(page(5, 3))
    for length in range(1, len(whole)):
        with pytest.raises(PeerFault) as refused:
            decode_page("m", whole[:length])
        assert refused.value.reason == "Malformed"


def test_indexes_with_a_gap_are_malformed() -> None:
    good = page(5, 3)
    gap = LogPage(good.after, [good.entries[0], good.entries[2]], good.stable)
    with pytest.raises(PeerFault, match="index 7 where 6 follows"):
        decode_page("m", encode_page(gap))


def test_later_fields_of_an_entry_are_ignored() -> None:
    wide = msgspec.msgpack.encode(
        [[1, 0, b"a" * 16], [[1, b"h" * 16, "uk-1", 7, 1, 9, 1, b"x", "", "key", 5, [], "new"]], [1, 1, b""]]
    )
    assert decode_page("m", bytes([LOG_PAGE_FORMAT]) + wide).entries == [
        PageEntry(1, b"h" * 16, "uk-1", 7, 1, 9, KIND_UPDATE, b"x", "", "key", 5)
    ]


def test_an_entry_of_an_earlier_version_has_no_key() -> None:
    earlier = msgspec.msgpack.encode([[1, 0, b"a" * 16], [[1, b"h" * 16, "uk-1", 7, 1, 9, 1, b"x", ""]], [1, 1, b""]])
    found = decode_page("m", bytes([LOG_PAGE_FORMAT]) + earlier)
    assert found.entries == [PageEntry(1, b"h" * 16, "uk-1", 7, 1, 9, KIND_UPDATE, b"x", "")]
    assert not found.has_keys


def test_the_readable_form_is_json_and_says_the_same() -> None:
    shown = json.loads(json.dumps(page_to_json(page(5, 1))))
    assert shown == {
        "after": {"epoch": 1, "index": 4, "hash": "61" * 16},
        "entries": [
            {
                "index": 5,
                "hash": "05" * 16,
                "txid": "uk-1.0000000000000007.5",
                "stamp": 5 << 16,
                "kind": "quads",
                "payload": "A <urn:s> <urn:p> <urn:o> .\n",
                "noop": "",
            }
        ],
        "stable": {"epoch": 1, "index": 6, "hash": "73" * 16},
        "cluster": "",
    }


def test_a_page_of_an_earlier_version_names_no_cluster() -> None:
    known = page(5, 1)
    named = LogPage(known.after, known.entries, known.stable, b"\xcc" * 16)
    assert decode_page("uk-1", encode_page(named)) == named
    earlier = bytes([LOG_PAGE_FORMAT]) + msgspec.msgpack.encode((known.after, known.entries, known.stable))
    assert decode_page("uk-1", earlier) == known
    assert known.cluster == b""
