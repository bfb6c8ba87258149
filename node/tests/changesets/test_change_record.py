"""The bytes of change logs of versions 1 and 2."""

from __future__ import annotations

from txlog.changesets.change_record import (
    CapturedEntry,
    ChangeRecord,
    FileHead,
    RecordKind,
    decode_head,
    decode_record,
    encode_record,
    next_chain,
)

HEAD = bytes.fromhex(
    "54584c4f47434847010007000000000000006868686868686868686868686868686863636363636363636363636363636363a2d87638"
)
HEAD_2 = bytes.fromhex(
    "54584c4f47434847020007000000000000006868686868686868686868686868686863636363636363636363636363636363d1534d00"
)
RECORD = bytes.fromhex(
    "90dd518a4e00000095029708c41069696969696969696969696969696969a8756b2d312e312e354d02a0a0c41641203c783a"
    "613e203c783a703e203c783a6f3e202e0ac4106464646464646464646464646464646409"
)
ENTRY = CapturedEntry(8, b"i" * 16, "uk-1.1.5", 77, 2, "", "")
CHANGE = b"A <x:a> <x:p> <x:o> .\n"


def test_files_of_version_1_are_read_and_new_ones_have_version_2() -> None:
    head = FileHead(7, b"h" * 16, b"c" * 16)
    record = ChangeRecord(RecordKind.ENTRY, ENTRY, CHANGE, b"d" * 16, 9)
    assert (decode_head(HEAD), decode_record(RECORD, 0)) == (head, (record, len(RECORD)))
    assert (decode_head(HEAD_2), encode_record(record)) == (head, RECORD)
    assert head.encode() == HEAD_2
    assert record.change_set.adds == (b"<x:a> <x:p> <x:o> .",)


def test_the_chain_of_version_1_is_the_same() -> None:
    assert next_chain(b"c" * 16, ENTRY, CHANGE).hex() == "489465581666cd2cb4435d7edf002819"
