"""Golden values: these bytes are on disks and in workers; a change here is a new format version."""

import pytest

from txlog.model.entry import KIND_QUADS
from txlog.model.errors import BadInput
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.ids import Origin, Txid, parse_txid
from txlog.model.quads import decode_quads, encode_quads, split_graph


def test_hashes_keep_their_golden_values() -> None:
    content = content_hash(KIND_QUADS, "k1", b"A <a:s> <a:p> <a:o> .\n")
    start = chain_start(bytes(range(16)))
    tag = origin_tag(Origin("uk-1", 0xC0FFEE))
    assert content.hex() == "5b2812ae73c8f2c61ba136384775b1b7"
    assert start.hex() == "f48bdd5ef6c123f8a501867596293538"
    assert chain_hash(start, 7 << 16, tag, 42, content).hex() == "f73396db18e7cb6f68e061a3c4f2853a"


def test_key_and_payload_cannot_be_shifted_into_one_another() -> None:
    assert content_hash(2, "ab", b"c") != content_hash(2, "a", b"bc")


def test_txid_round_trip_and_refusal() -> None:
    txid = Txid(Origin("uk-1", 0xC0FFEE), 42)
    assert str(txid) == "uk-1.0000000000c0ffee.42"
    assert parse_txid(str(txid)) == txid
    for bad in ("", "uk-1", "uk-1.c0ffee.42", "UK.0000000000c0ffee.1", "uk-1.0000000000c0ffee.0", "x" * 400):
        with pytest.raises(BadInput, match="not a transaction id"):
            parse_txid(bad)


@pytest.mark.parametrize(
    ("line", "triple", "graph"),
    [
        (b"<a:s> <a:p> <a:o> .", b"<a:s> <a:p> <a:o>", b""),
        (b"<a:s> <a:p> <a:o> <a:g> .", b"<a:s> <a:p> <a:o>", b"<a:g>"),
        (b'<a:s> <a:p> "x <a:y> ." .', b'<a:s> <a:p> "x <a:y> ."', b""),
        (b'<a:s> <a:p> "q\\" <a:z> ." <a:g> .', b'<a:s> <a:p> "q\\" <a:z> ."', b"<a:g>"),
        (b'<a:s> <a:p> "x"@en-gb <a:g> .', b'<a:s> <a:p> "x"@en-gb', b"<a:g>"),
        (b'<a:s> <a:p> "1"^^<a:int> .', b'<a:s> <a:p> "1"^^<a:int>', b""),
    ],
)
def test_graph_term_is_found_behind_any_object(line: bytes, triple: bytes, graph: bytes) -> None:
    assert split_graph(line) == (triple, graph)


def test_quads_payload_round_trip() -> None:
    payload = encode_quads([b"<a:s> <a:p> <a:o> ."], [b'<a:s> <a:p> "n" .'])
    assert list(decode_quads(payload)) == [(False, b"<a:s> <a:p> <a:o> ."), (True, b'<a:s> <a:p> "n" .')]
    assert list(decode_quads(b"")) == []
