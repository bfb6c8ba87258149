"""The bytes of a file of the archive: round trips, and each damage found by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_pieces import CLUSTER, META, START, UK, US, Row, chained, encoded, small, some

from txlog.archive import block_codec
from txlog.archive.archive_errors import FileDamaged
from txlog.archive.block_codec import split_blocks
from txlog.archive.file_name import FileName, Node, parse_file_name
from txlog.archive.format import (
    AFTER_GAP,
    FORMAT,
    HAS_KEYS,
    HAS_UPDATES,
    FileMeta,
    decode_file,
    decode_header,
    encode_file,
)
from txlog.backup.backup_errors import OtherCluster, UnknownFormat
from txlog.model.hashes import short_hash
from txlog.model.ids import Origin

HASHES = f"{'0' * 32}-{'0' * 32}"
GOLDEN = Path(__file__).parent / "golden"

rows = st.lists(
    st.tuples(
        st.sampled_from([UK, US]),
        st.integers(0, 1 << 40),
        st.sampled_from([0, 0, 1, 1 << 20]),
        st.integers(1, 4),
        st.booleans(),
        st.text(max_size=8),
        st.binary(max_size=60),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(rows=rows, settled=st.integers(0, 1 << 60), writer=st.integers(0, (1 << 64) - 1))
def test_a_file_gives_back_what_was_written(rows: list[Row], settled: int, writer: int) -> None:
    entries = chained(rows)
    made = encode_file(entries, START.hash, META, settled=settled, writer=writer, flags=AFTER_GAP)
    assert parse_file_name(str(made.name)) == made.name
    found = decode_file(made.name, made.data, CLUSTER)
    assert found.entries == entries
    assert (found.header.settled, found.header.writer, found.header.flags & AFTER_GAP) == (settled, writer, AFTER_GAP)
    counting = [e for e in entries if e.key and e.kind in (1, 2) and not e.is_noop]
    assert [(k.index, k.seq, k.stamp, k.content, k.key) for k in found.keys] == [
        (e.index, e.seq, e.first_stamp or e.stamp, e.content, e.key) for e in counting
    ]
    assert decode_header(made.name, made.data[: found.header.header_bytes]) == found.header


def test_the_small_file_says_what_is_in_it() -> None:
    found = decode_file(*encoded(small()))
    assert found.header.flags == HAS_KEYS | HAS_UPDATES
    assert found.header.meta.skips == [(4, f"{UK}.1")]
    assert [key.key for key in found.keys] == ["first ✓"]
    assert (found.header.meta.view, found.header.meta.history) == ((3, 1, "uk-1"), ["1.1.uk-1"])


def test_many_blocks_and_a_large_entry_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_codec, "BLOCK_PLAIN_BYTES", 300)
    entries = [*some(20)]
    entries += chained([(UK, 1, 0, 2, False, "", b"x" * 2000)], decode_end(entries))
    entries += some(5, decode_end(entries), "b")
    assert len(list(split_blocks(entries))) > 5
    assert decode_file(*encoded(entries)).entries == entries


def decode_end(entries: list[block_codec.ArchivedEntry]) -> Node:
    return Node(entries[-1].index, entries[-1].hash)


@pytest.fixture(scope="module")
def sound() -> tuple[FileName, bytes]:
    """In two blocks."""
    made = block_codec.BLOCK_PLAIN_BYTES
    block_codec.BLOCK_PLAIN_BYTES = 200  # type: ignore[misc]
    try:
        return encoded(small())
    finally:
        block_codec.BLOCK_PLAIN_BYTES = made  # type: ignore[misc]


def test_every_byte_that_is_flipped_is_found(sound: tuple[FileName, bytes]) -> None:
    name, data = sound
    assert decode_file(name, data).header.blocks == 2
    for at in range(len(data)):
        for bit in (0x01, 0x80):
            spoilt = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
            with pytest.raises(FileDamaged):
                decode_file(name, spoilt)


def test_every_cut_and_everything_added_is_found(sound: tuple[FileName, bytes]) -> None:
    name, data = sound
    for length in range(len(data)):
        with pytest.raises(FileDamaged):
            decode_file(name, data[:length])
    for more in (b"\0", data, data[-32:]):
        with pytest.raises(FileDamaged):
            decode_file(name, data + more)


def test_every_pair_of_bytes_that_is_swapped_is_found(sound: tuple[FileName, bytes]) -> None:
    name, data = sound
    for distance in (1, 8, 40, 128):
        for at in range(len(data) - distance):
            if data[at] == data[at + distance]:
                continue
            spoilt = bytearray(data)
            spoilt[at], spoilt[at + distance] = spoilt[at + distance], spoilt[at]
            with pytest.raises(FileDamaged):
                decode_file(name, bytes(spoilt))


def test_a_sound_file_under_another_name_is_damaged(sound: tuple[FileName, bytes]) -> None:
    name, data = sound
    others = [
        name._replace(first=name.first + 1),
        name._replace(last=name.last + 1),
        name._replace(before=short_hash(b"x")),
        name._replace(after=short_hash(b"x")),
    ]
    for other in others:
        with pytest.raises(FileDamaged, match="another file"):
            decode_file(other, data)
    assert decode_file(name._replace(attempt=3), data).entries == small()


def test_entries_with_right_checksums_that_are_not_of_the_log() -> None:
    """As a fault of a writer would leave them: only the chain finds it."""
    entries = small()
    spoilt = [
        [*entries[:1], msgspec.structs.replace(entries[1], payload=b"LOAD <urn:x>"), *entries[2:]],
        [*entries[:1], msgspec.structs.replace(entries[1], stamp=entries[1].stamp + 1), *entries[2:]],
        [*entries[:1], msgspec.structs.replace(entries[1], seq=entries[1].seq + 1), *entries[2:]],
        [*entries[:1], msgspec.structs.replace(entries[1], key="another"), *entries[2:]],
        [*entries[:1], msgspec.structs.replace(entries[1], kind=2), *entries[2:]],
        [*entries[:1], msgspec.structs.replace(entries[1], origin=UK), *entries[2:]],
    ]
    for each in spoilt:
        with pytest.raises(FileDamaged):
            decode_file(*encoded(each))


@pytest.mark.parametrize("table", ["_key_rows", "_skips"])
def test_a_table_that_is_not_that_of_the_entries(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """With right checksums: a recovery would forget a key, or execute what every worker skips."""
    monkeypatch.setattr(f"txlog.archive.format.{table}", lambda *_: [])
    without = encoded(small())
    monkeypatch.undo()
    with pytest.raises(FileDamaged, match="not those of its entries"):
        decode_file(*without)


def test_an_origin_without_an_entry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches for a transaction read the files that name its origin, and expect an entry of it."""
    monkeypatch.setattr("txlog.archive.format._origins_of", lambda _: [UK, US, Origin("uk-2", 1)])
    with_another = encoded(small())
    monkeypatch.undo()
    with pytest.raises(FileDamaged, match="not those of its entries"):
        decode_file(*with_another)


def test_an_intact_file_of_another_format_is_named(
    sound: tuple[FileName, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.archive.format.FORMAT", FORMAT + 1)
    later = encoded(small())
    monkeypatch.undo()
    with pytest.raises(UnknownFormat, match="format 2, this version reads 1"):
        decode_file(*later)


def test_a_file_of_another_cluster_is_named(sound: tuple[FileName, bytes]) -> None:
    with pytest.raises(OtherCluster, match="cd" * 16):
        decode_file(*sound, b"\xcd" * 16)


def test_a_frame_that_would_become_all_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_codec, "BLOCK_PLAIN_BYTES_MAX", 100)
    with pytest.raises(FileDamaged, match="would not become"):
        decode_file(*encoded(small()))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txl")), ids=lambda path: path.name[-14:])
def test_files_of_earlier_versions_are_read(path: Path) -> None:
    name = parse_file_name(path.name)
    assert name is not None
    found = decode_file(name, path.read_bytes(), CLUSTER)
    assert found.entries == small()
    assert found.header.meta == msgspec.structs.replace(
        META, origins=[(UK.node, UK.birth), (US.node, US.birth)], skips=[(4, f"{UK}.1")]
    )


def test_there_is_a_file_of_format_1() -> None:
    assert len(list(GOLDEN.glob("*.txl"))) == 1


def test_fields_that_a_later_version_adds_to_the_header_are_passed_over() -> None:
    class LaterMeta(FileMeta, array_like=True, frozen=True):
        more: str = "later"

    later = LaterMeta(**{name: getattr(META, name) for name in FileMeta.__struct_fields__})
    made = encode_file(small(), START.hash, later, settled=1, writer=1)
    assert decode_file(*made).entries == small()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x.txl",
        "stream.json",
        f"{1:016x}-{0:016x}-{'0' * 32}-{'0' * 32}.txl",
        f"{0:016x}-{1:016x}-{'0' * 32}-{'0' * 32}.txl",
    ],
)
def test_other_objects_are_no_files(text: str) -> None:
    assert parse_file_name(text) is None
