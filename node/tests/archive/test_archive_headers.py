"""Headers of files, which tell of each skip and change of a namespace: they are read alone, and never too long."""

from __future__ import annotations

import io
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from log_pieces import CLUSTER, META, START, UK, chained, encoded, some

from txlog.archive import stream_reader
from txlog.archive.archive_errors import FileDamaged
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.branch_line import BranchLine
from txlog.archive.compaction_plan import CompactionLimits
from txlog.archive.compactor import Compactor
from txlog.archive.file_name import FileName, Node
from txlog.archive.format import (
    FACT_BYTES_MAX,
    HEADER_BYTES_MAX,
    FileHeader,
    decode_file,
    decode_header,
    encode_file,
    fact_bytes,
    header_length,
)
from txlog.archive.stream import Stream, StreamId
from txlog.archive.stream_reader import StreamReader
from txlog.backup.backup_errors import TargetUnreachable
from txlog.backup.folder_target import FolderTarget
from txlog.model.entry import KIND_QUADS, KIND_SKIP
from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import DECIDED_MAX, KIND_DECISION, SYNCHRONOUS_KINDS
from txlog.model.view import NO_VIEW
from txlog.telemetry.event_log import EventLog


def _namespaces(count: int, characters: int) -> list[ArchivedEntry]:
    """What clients set as prefixes: the header of a file names each."""
    keys = [f"namespace {at:032x} set p{at} urn:{'x' * characters}" for at in range(count)]
    return chained([(UK, 3, 0, KIND_SKIP, False, key, b"") for key in keys])


def test_a_header_of_any_length_that_a_file_can_have_is_read_alone(tmp_path: Path) -> None:
    """A restore reads headers alone: it must take what reading the whole file takes."""
    stream = Stream(FolderTarget(tmp_path), StreamId(CLUSTER, "uk"))
    for entries in (_namespaces(3_000, 60), _namespaces(2_000, 1_000)):
        made = encoded(entries)
        assert stream.create_file(made.name, made.data)
        header = stream.read_header(made.name)
        assert [key for _, key in header.meta.skips] == [entry.key for entry in entries]
        assert stream.read_file(made.name).entries == entries


def test_a_header_that_is_longer_than_a_reader_takes_is_refused() -> None:
    made = encoded(some(3))
    fields = bytearray(made.data)
    fields[16:20] = (HEADER_BYTES_MAX + 8).to_bytes(4, "little")
    assert header_length(bytes(fields)) == HEADER_BYTES_MAX
    with pytest.raises(FileDamaged):
        decode_header(made.name, bytes(fields))


def test_a_file_ends_before_its_header_is_too_long() -> None:
    line = BranchLine(START)
    line.add(_namespaces(2_000, 1_000), NO_VIEW, 0, 0.0)
    assert line.is_full(16 << 20)
    count = 0
    while line.entries:
        taken = line.take_file(16 << 20)
        made = encode_file(taken, line.base.hash, META, settled=1, writer=77)
        assert len(taken) == 1 or decode_header(made.name, made.data).header_bytes < FACT_BYTES_MAX + 4096
        line.archived(len(taken), 0.0)
        count += 1
    assert count > 3
    assert (line.fact_bytes, line.plain_bytes) == (0, 0)


def test_the_bytes_of_facts_are_never_too_few() -> None:
    names = tuple(
        Txid(Origin(f"{'n' * 60}-{at % 2}", (1 << 64) - 1 - at), (1 << 62) - 500 + 2 * at) for at in range(200)
    )
    entry = chained([(UK, 3, 0, KIND_DECISION, False, "commit x", b"")])[0]
    for one in (
        *_namespaces(1, 2_000),
        msgspec.structs.replace(entry, passed_over=names),
        msgspec.structs.replace(entry, kind=SYNCHRONOUS_KINDS[0], verdict="commit"),
    ):
        plain = msgspec.structs.replace(one, passed_over=(), verdict="", kind=KIND_QUADS, key="")
        longer, shorter = (encode_file([each], START.hash, META, settled=1, writer=1) for each in (one, plain))
        more = [decode_header(each.name, each.data).header_bytes for each in (longer, shorter)]
        assert more[0] - more[1] <= fact_bytes(one) + 8


def test_a_compacted_file_ends_before_its_header_is_too_long(tmp_path: Path) -> None:
    stream = Stream(FolderTarget(tmp_path), StreamId(CLUSTER, "uk"))
    stream.create(START)
    entries = _namespaces(1_000, 1_000)
    before = START
    for at in range(0, 1_000, 100):
        made = encode_file(entries[at : at + 100], before.hash, META, settled=1_000, writer=7)
        stream.create_file(made.name, made.data)
        before = Node(made.name.last, made.name.after)
    for at, path in enumerate(sorted(tmp_path.rglob("log0/*.txl"))):
        os.utime(path, (1_700_000_000 + at,) * 2)
    done = Compactor(stream, EventLog("compactor", io.StringIO(), 0), CompactionLimits(span_s=9.0)).run()
    assert len(done.written) > 1
    for name in done.written:
        assert stream.read_header(name).header_bytes < FACT_BYTES_MAX + 4096


def test_a_header_that_names_more_than_a_decision_can_is_refused() -> None:
    """A forged one must not take the memory of a restore."""
    entry = chained([(UK, 3, 0, KIND_DECISION, False, "commit x", b"")])[0]
    few = tuple(Txid(UK, 1 + at) for at in range(DECIDED_MAX))
    for names, is_sound in ((few, True), ((*few, Txid(UK, 1 + DECIDED_MAX)), False)):
        made = encoded([msgspec.structs.replace(entry, passed_over=names)])
        if is_sound:
            assert decode_file(made.name, made.data).entries[0].passed_over == names
        else:
            with pytest.raises(FileDamaged, match="more than"):
                decode_file(made.name, made.data)


class _GatedPool(ThreadPoolExecutor):
    """What is read after the first error waits until the reader ends its pool."""

    gate = threading.Event()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        self.gate.set()
        super().shutdown(wait=wait)


def test_a_target_that_is_gone_is_not_asked_for_every_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(FolderTarget(tmp_path), StreamId(CLUSTER, "uk"))
    stream.create(START)
    before = START
    for entry in some(100):
        made = encoded([entry], before.hash)
        stream.create_file(made.name, made.data)
        before = made.name.end
    reader = StreamReader(stream)
    asked: list[FileName] = []
    _GatedPool.gate.clear()

    def fail(_: Stream, name: FileName) -> FileHeader:
        asked.append(name)
        if len(asked) > 1:
            assert _GatedPool.gate.wait(60.0)
        raise TargetUnreachable("it is gone")

    monkeypatch.setattr(Stream, "read_header", fail)
    monkeypatch.setattr(stream_reader, "ThreadPoolExecutor", _GatedPool)
    with pytest.raises(TargetUnreachable):
        reader.find_timelines()
    assert len(asked) <= 2 * stream_reader.HEADERS_AT_ONCE
