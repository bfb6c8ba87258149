"""What the masters of a site send: only whole quads, in the form of a log, become part of an update."""

from __future__ import annotations

import msgspec
import pytest

from txlog.changesets.change_set import ChangeSet
from txlog.model.errors import PeerFault
from txlog.model.stamp import PEER_STAMP_MAX
from txlog.sites.keys import KeyKind
from txlog.sites.log_reader import read_entry
from txlog.sites.peer_lines import check_lines, check_value
from txlog.wire.change_feed import FeedEvent

GOOD = (
    b"<urn:s> <urn:p> <urn:o> .",
    b'<urn:s> <urn:p> "a \\"b\\" \\\\ \\n" <urn:g> .',
    b'<urn:s> <urn:p> "x"@en .',
    b'<urn:s> <urn:p> "1.5"^^<http://www.w3.org/2001/XMLSchema#decimal> <urn:txlog:bnode:kept:g> .',
    b"<urn:s> <urn:p> <<( <urn:s> <urn:p> <urn:o> )>> .",
)
BAD = (
    b"",
    b"no quad",
    b"<urn:s> <urn:p> <urn:o>",
    b"<urn:s>  <urn:p> <urn:o> .",
    b"<urn:s> <urn:p> <urn:o> . # comment",
    b"<urn:s> <urn:p> <urn:o> .\n<urn:s> <urn:p> <urn:b> .",
    b"_:b <urn:p> <urn:o> .",
    b"<urn:s> <urn:p> _:b .",
    b"<urn:s> <urn:p> <urn:o> _:g .",
    b"<urn:s> <urn:p> <urn:o> } } ; DROP ALL ; INSERT DATA { <urn:a> <urn:b> <urn:c> .",
    b"<urn:s}> <urn:p> <urn:o> .",
    b"<urn:s> <urn:p> <urn:o> <urn:g{> .",
    b'<urn:s> <urn:p> "\\u0041" .',
    b'<urn:s> <urn:p> "x"@EN .',
    b'<urn:s> <urn:p> "1.50"^^<http://www.w3.org/2001/XMLSchema#decimal .',
)
HASH = "00" * 16


def event(**changes: object) -> FeedEvent:
    payload = "A <urn:s> <urn:p> <urn:o> .\n"
    found = FeedEvent(event="entry", id=f"3:{HASH}", index=3, stamp=5, kind="quads", payload=payload)
    return msgspec.structs.replace(found, **changes)


def test_lines_of_a_log_are_taken() -> None:
    check_lines("nyc", GOOD)
    check_lines("nyc", ())
    for line in GOOD:
        check_lines("nyc", [line])


@pytest.mark.parametrize("line", BAD)
def test_what_is_no_line_of_a_log_is_refused(line: bytes) -> None:
    for lines in ([line], [GOOD[0], line]):
        with pytest.raises(PeerFault, match="nyc"):
            check_lines("nyc", lines)


def test_a_value_holds_quads_of_its_key_alone() -> None:
    key = b"<urn:s> <urn:p>"
    check_value("nyc", key, [GOOD[0], GOOD[2]], KeyKind.PROPERTY)
    check_value("nyc", key, [], KeyKind.PROPERTY)
    for line in (GOOD[1], b"<urn:s> <urn:q> <urn:o> .", BAD[9]):
        with pytest.raises(PeerFault):
            check_value("nyc", key, [GOOD[0], line], KeyKind.PROPERTY)
    own = b"<urn:s> <urn:p> <urn:o> <urn:txlog:sites> ."
    with pytest.raises(PeerFault, match="no quad of the key"):
        check_value("nyc", b"<urn:s> <urn:p> <urn:txlog:sites>", [own], KeyKind.PROPERTY)


def test_the_next_entry_is_read() -> None:
    entry = read_entry("nyc", event(), 3)
    assert (entry.at, entry.hash, entry.stamp) == (3, bytes(16), 5)
    assert entry.change == ChangeSet((), (GOOD[0],))
    assert read_entry("nyc", event(kind="skip", payload=""), 3).change == ChangeSet()
    assert read_entry("nyc", event(kind="large", graphs=["urn:g"], payload=""), 3).change.graphs


@pytest.mark.parametrize(
    "changes",
    [
        {"index": 4, "id": f"4:{HASH}"},
        {"id": f"4:{HASH}"},
        {"id": "3"},
        {"id": "x"},
        {"stamp": PEER_STAMP_MAX + 1},
        {"stamp": 1 << 63},
        {"stamp": -1},
        {"payload": "X <urn:s> <urn:p> <urn:o> .\n"},
        {"payload": "A _:b <urn:p> <urn:o> .\n"},
        {"payload": "A broken\n"},
    ],
)
def test_what_is_no_next_entry_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(PeerFault):
        read_entry("nyc", event(**changes), 3)
