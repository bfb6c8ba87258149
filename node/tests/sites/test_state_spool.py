"""States as lines, and how two of them are compared."""

from __future__ import annotations

import json
from pathlib import Path

import pyoxigraph as ox
import pytest

from txlog.model.errors import PeerFault
from txlog.sites.keys import KeyKind
from txlog.sites.state_lines import decode_head, decode_quads, encode_state
from txlog.sites.state_spool import StateSpool

HASH = bytes(range(16))


def line(subject: str, value: str) -> bytes:
    return f'<urn:{subject}> <urn:p> "{value}" .'.encode()


def state_of(*lines: bytes) -> list[bytes]:
    quads = list(ox.parse(b"\n".join(lines), ox.RdfFormat.N_QUADS))
    return b"".join(encode_state(7, HASH, quads)).splitlines()


def test_a_state_is_read_as_it_was_written_without_what_stays_at_its_site() -> None:
    own = b'<urn:a> <urn:p> "1" <urn:txlog:sites> .'
    first, *rest = state_of(line("a", "1"), own, line("b", "2"))
    head = decode_head("lon", first)
    assert (head.index, head.hash) == (7, HASH.hex())
    assert [each for part in decode_quads("lon", rest) for each in part] == [line("a", "1"), line("b", "2")]


def test_a_state_that_is_not_whole_is_refused() -> None:
    _, *rest = state_of(line("a", "1"), line("b", "2"))
    for wrong in (rest[:-1], rest[1:], [*rest, line("c", "3")], [b"x", *rest[1:]], [], [b"{", rest[0]]):
        with pytest.raises(PeerFault, match=r"state|N-Quads|quad"):
            list(decode_quads("lon", wrong))
    own = b'<urn:a> <urn:p> "1" <urn:txlog:sites> .'
    with pytest.raises(PeerFault, match="does not cross"):
        list(decode_quads("lon", [own, b'{"quads":1}']))
    for head in (b"{", json.dumps({"version": 2, "index": 1, "hash": "00"}).encode(), b'{"version":1}', line("a", "1")):
        with pytest.raises(PeerFault, match="head"):
            decode_head("lon", head)


def test_keys_that_differ_are_found_with_the_values_of_the_other_site(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    path.write_text("what an earlier transfer left")
    spool = StateSpool(path, KeyKind.PROPERTY)
    spool.add([line("same", "1"), line("more", "1"), line("more", "2"), line("new", "1")], is_own=False)
    spool.add([line("same", "1"), line("more", "1"), line("gone", "1")], is_own=True)
    assert spool.compare() == 3
    keys = spool.differing(0, 2) + spool.differing(2, 2)
    assert keys == [b"<urn:gone> <urn:p>", b"<urn:more> <urn:p>", b"<urn:new> <urn:p>"]
    assert dict(spool.values(keys)) == {
        keys[0]: frozenset(),
        keys[1]: {line("more", "1"), line("more", "2")},
        keys[2]: {line("new", "1")},
    }
    spool.close()
    assert not path.exists()
