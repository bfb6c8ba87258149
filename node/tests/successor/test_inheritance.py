"""What a new cluster takes over is what a master at that place of the log knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from archived_history import LOSING_VIEW, History
from lost_cluster import DAY_MS, inherit

from txlog.archive.format import AFTER_GAP, FileMeta, encode_file
from txlog.archive.stream import Stream, StreamId
from txlog.model.entry import CONTROL_KINDS, KIND_CONFIG, KIND_SKIP, Span
from txlog.model.ids import Origin, Txid
from txlog.successor.inheritance import to_spans
from txlog.successor.successor_errors import KeysUnknown, NothingArchived


@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_a_plain_fold_of_the_log_gives(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "target", seed)
    for index in (1, len(history.final.entries) // 2, len(history.final.entries)):
        entries = history.final.entries[:index]
        last = entries[-1]
        plan, found = inherit(history, f"position:{index}:{last.hash.hex()}")
        assert (plan.place.index, found.place, found.last, found.stamp) == (
            index,
            plan.place,
            last.origin,
            last.stamp,
        )
        seqs: dict[Origin, int] = {}
        for entry in entries:
            seqs[entry.origin] = entry.seq
        assert found.seqs == seqs
        first_skip = {entry.key: entry.index for entry in reversed(entries) if entry.kind == KIND_SKIP}
        assert dict(found.skips) == first_skip
        assert [(key, use.txid) for key, use in found.keys] == [
            (entry.key, entry.txid)
            for entry in entries
            if entry.key and entry.kind not in CONTROL_KINDS and not entry.is_noop
        ]


def test_epoch_and_stamps_are_above_those_of_every_timeline(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 1)
    _, found = inherit(history, f"position:2:{history.final.entries[1].hash.hex()}")
    every = [*history.final.entries, *history.losing.entries]
    assert found.highest_stamp == max(entry.stamp for entry in every)
    assert found.epoch == 3


@pytest.mark.parametrize("seed", range(4))
def test_what_the_place_does_not_have_is_named(tmp_path: Path, seed: int) -> None:
    """Also what an abandoned branch alone has: it may have been archived before its rejoin."""
    history = History(tmp_path / "target", seed)
    index = history.common
    _, found = inherit(history, f"position:{index}:{history.final.entries[index - 1].hash.hex()}")
    kept = {entry.txid for entry in history.final.entries[:index]}
    every = {
        entry.txid
        for branch in (history.final, history.losing)
        for entry in branch.entries
        if not entry.is_noop and entry.kind != KIND_CONFIG
    }
    named = {
        Txid(Origin(span.node, span.birth), span.first_seq + at) for span in found.lost for at in range(span.count)
    }
    assert named == every - kept
    assert named
    _, found = inherit(history)
    assert not found.lost, "the rejoin brought the rest of each origin"


def test_a_key_that_has_expired_is_not_taken_over(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 3, length=40)
    entries = history.final.entries
    keyed = [e for e in entries if e.key and e.kind not in CONTROL_KINDS and not e.is_noop]
    assert len(keyed) > 2
    retention_ms = (entries[-1].stamp - keyed[1].stamp) >> 16
    _, found = inherit(history, key_retention_ms=retention_ms)
    assert [key for key, _ in found.keys] == [entry.key for entry in keyed[1:]]


def _without_beginning(history: History, path: Path, after: int) -> History:
    """The same log in a stream that begins later."""
    history.stream = Stream(history.target, StreamId(history.stream.id.cluster, "later"))
    start = history.final.node(after)
    history.stream.create(start)
    meta = FileMeta(history.stream.id.cluster, "later", view=LOSING_VIEW, written=1.0)
    entries = history.final.entries[after:]
    made = encode_file(entries, start.hash, meta, settled=entries[-1].index, writer=1, flags=AFTER_GAP)
    history.stream.create_file(made.name, made.data)
    history.back_up(history.final, len(history.final.entries))
    return history


def test_an_archive_that_lacks_younger_keys_is_refused(tmp_path: Path) -> None:
    history = _without_beginning(History(tmp_path / "target", 5), tmp_path, 4)
    with pytest.raises(KeysUnknown, match="--without-older-keys"):
        inherit(history, base=None)
    _, found = inherit(history, base=None, without_older_keys=True)
    assert found.place.index == len(history.final.entries)
    with pytest.raises(KeysUnknown):
        inherit(history, base=None, key_retention_ms=DAY_MS)
    _, found = inherit(history, base=None, key_retention_ms=1)  # all keys that may be repeated are there
    assert found.place.index == len(history.final.entries)


def test_an_archive_without_an_entry_founds_nothing(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 5)
    with pytest.raises(NothingArchived):
        inherit(history, f"position:0:{history.final.node(0).hash.hex()}")


def test_spans() -> None:
    uk, us = Origin("uk-1", 7), Origin("us-1", 2)
    found = to_spans([Txid(us, 1), Txid(uk, 3), Txid(uk, 2), Txid(uk, 9)])
    assert found == [Span("uk-1", 7, 2, 2), Span("uk-1", 7, 9, 1), Span("us-1", 2, 1, 1)]
