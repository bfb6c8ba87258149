"""What has been given again is found however long ago that was, and other branches of the archive are read whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from archived_history import History
from archiver_runs import folder
from log_pieces import CLUSTER, META, START, UK, chained

from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.archive.format import encode_file
from txlog.archive.stream import Stream, StreamId
from txlog.backup.folder_target import FolderTarget
from txlog.client import MasterUnreachable
from txlog.model.entry import CONTROL_KINDS, KIND_QUADS, KIND_SKIP, Position
from txlog.model.errors import LogNeedsRestore, Unavailable
from txlog.successor.archived_branches import ArchivedBranches
from txlog.successor.recovery_claim import Claim, take_claim
from txlog.successor.recovery_lineage import find_lineage
from txlog.successor.rescued_keys import KeyedPages, UsedKeys
from txlog.successor.successor_errors import KeysUncertain, NotASuccessor
from txlog.wire.log_page import LogPage, PageEntry

NEW = bytes(range(1, 17))


def quiet(phase: str, done: int, of: int | None) -> None:
    pass


class TrimmedMaster:
    """Serves these entries, in pages of two; none before ``start``."""

    def __init__(self, entries: Sequence[ArchivedEntry], start: int = 0) -> None:
        self.entries = entries
        self.start = start

    def log_page(
        self,
        after: int,
        at_hash: bytes | None = None,
        upto: int | None = None,
        max_bytes: int | None = None,
        *,
        keys: bool = False,
    ) -> LogPage:
        assert keys
        if after < self.start:
            raise LogNeedsRestore("trimmed", self.start)
        found = [each for each in self.entries if each.index > after][:2]
        last = self.entries[-1]
        rows = [
            PageEntry(
                each.index,
                each.hash,
                each.origin.node,
                each.origin.birth,
                each.seq,
                each.stamp,
                each.kind,
                b"",
                "key x" if each.is_noop else "",
                each.key,
            )
            for each in found
        ]
        place = Position(1, last.index, last.hash)
        return LogPage(Position(1, after, at_hash or b""), rows, place, NEW, last.index, 0, (1, 1, "uk-1"))


class GoneMaster(TrimmedMaster):
    def log_page(self, *_: Any, **__: Any) -> LogPage:
        raise MasterUnreachable("http://gone", "gone", sent=False)


def log_after(place: Node, count: int) -> list[ArchivedEntry]:
    """Each with its key; the last one repeats the first."""
    rows = [(UK, 3, 0, KIND_QUADS, False, f"new-{at}", b"A <urn:s> <urn:p> <urn:o> .\n") for at in range(count)]
    return chained([*rows, (UK, 3, 0, KIND_QUADS, True, "new-0", b"")], place)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "target", 3, updates=False, length=40)


def used(wanted: set[str], masters: Sequence[KeyedPages], streams: Sequence[Stream], place: Node) -> dict[str, str]:
    keys = UsedKeys(wanted, quiet)
    keys.read_new(masters, streams, place)
    return keys.found


def test_keys_of_the_lost_log_count_up_to_the_place(history: History) -> None:
    entries = history.final.entries
    keyed = [each for each in entries if each.key and each.kind not in CONTROL_KINDS and not each.is_noop]
    for place in keyed[:-1]:
        keys = UsedKeys({each.key for each in keyed}, quiet)
        keys.read_archived([history.stream], Node(place.index, place.hash))
        assert keys.found == {each.key: str(each.txid) for each in keyed if each.index <= place.index}
    with pytest.raises(KeysUncertain):
        UsedKeys({"a"}, quiet).read_archived([history.stream], Node(keyed[0].index, bytes(16)))


def test_keys_behind_the_place_do_not_count(tmp_path: Path) -> None:
    """Also where they are in the same file: the new cluster does not have these."""
    entries = log_after(START, 6)
    stream = Stream(FolderTarget(folder(tmp_path / "one-file")), StreamId(CLUSTER, "uk"))
    stream.create(START)
    made = encode_file(entries, START.hash, META, settled=0, writer=1)
    stream.create_file(made.name, made.data)
    for place in entries:
        keys = UsedKeys({f"new-{at}" for at in range(6)}, quiet)
        keys.read_archived([stream], Node(place.index, place.hash))
        assert list(keys.found) == [f"new-{at}" for at in range(min(place.index, 6))]


def test_keys_of_the_new_log_count_from_its_masters(history: History) -> None:
    place = history.final.end
    entries = log_after(place, 5)
    masters = [GoneMaster(entries), TrimmedMaster(entries)]
    assert used({"new-0", "new-3", "other"}, masters, [], place) == {
        "new-0": str(entries[0].txid),
        "new-3": str(entries[3].txid),
    }
    with pytest.raises(Unavailable, match="no master gives its log"):
        used({"new-0"}, [GoneMaster(entries)], [], place)


def test_keys_that_the_masters_trimmed_are_in_the_new_archive(history: History, tmp_path: Path) -> None:
    place = history.final.end
    entries = log_after(place, 8)
    stream = Stream(FolderTarget(folder(tmp_path / "new")), StreamId(NEW, "uk"))
    stream.create(place)
    meta = msgspec.structs.replace(META, cluster=NEW)
    made = encode_file(entries[:5], place.hash, meta, settled=0, writer=1)
    stream.create_file(made.name, made.data)
    trimmed = TrimmedMaster(entries, start=entries[3].index)
    found = used({"new-0", "new-7"}, [trimmed], [stream], place)
    assert found == {"new-0": str(entries[0].txid), "new-7": str(entries[7].txid)}
    with pytest.raises(KeysUncertain, match="no archive of this cluster"):
        used({"new-0"}, [trimmed], [], place)
    with pytest.raises(LogNeedsRestore):  # the archive ends before the masters begin
        used({"new-0"}, [TrimmedMaster(entries, start=entries[6].index)], [stream], place)


@pytest.mark.parametrize("seed", range(4))
def test_other_branches_and_what_follows_the_place_are_found(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "target", seed)
    index = history.common
    place = history.final.node(index)
    source = ArchivedBranches([history.stream], place, quiet)
    kept = {each.txid for each in history.final.entries[:index]}
    every = {each.txid: each for each in (*history.losing.entries, *history.final.entries)}
    known = {UK: max(txid.seq for txid in kept)}
    found = source.candidates(known)
    assert {each.txid for each in found} == every.keys() - kept
    for each in found:
        assert source.payload(each.txid) == every[each.txid].payload
        assert (each.kind, each.key) == (every[each.txid].kind, every[each.txid].key)
    assert source.highest()[UK] == max(txid.seq for txid in every if txid.origin == UK)
    skips = {each.key for each in (*history.final.entries, *history.losing.entries) if each.kind == KIND_SKIP}
    assert source.skipped() == skips


def test_one_order_of_each_branch_is_kept(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 2)
    place = history.final.node(history.common)
    found = [each.txid for each in ArchivedBranches([history.stream], place, quiet).candidates({})]
    final = [each.txid for each in history.final.entries if each.txid in set(found)]
    assert [txid for txid in found if txid in set(final)] == final
    assert len(set(found)) == len(found)


CLAIM = Claim("mine", "latest", 7, "ab" * 16, NEW.hex(), "uk-1", "0" * 16)


def test_a_successor_is_known_by_the_claim_in_force(history: History) -> None:
    with pytest.raises(NotASuccessor, match="a copy takes no place"):
        find_lineage(history.target, NEW)
    take_claim(history.target, history.stream.id, CLAIM)
    found = find_lineage(history.target, NEW)
    assert (found.claim.place.index, found.predecessors) == (7, frozenset({history.stream.id.cluster}))
    other = msgspec.structs.replace(CLAIM, token="other", successor="cd" * 16)
    take_claim(history.target, history.stream.id, other, supersede=1)
    assert find_lineage(history.target, bytes.fromhex("cd" * 16)).predecessors == {history.stream.id.cluster, NEW}
    with pytest.raises(NotASuccessor, match="has replaced"):
        find_lineage(history.target, NEW)
