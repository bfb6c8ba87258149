"""A journal is founded once, whatever breaks off; nothing that still lives is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from archived_history import History
from lost_cluster import inherit, node_config, succession

from txlog.archive.archive_errors import FileDamaged
from txlog.journal import Journal, OsVfs
from txlog.model.records import RecoveredState
from txlog.successor.recovery_claim import find_claim
from txlog.successor.succession import found_successor, refuse_survivors, set_aside
from txlog.successor.successor_errors import AlreadyRecovered, OtherFounder, StillThere


class BrokeOff(Exception):
    pass


def opened(folder: Path, node: str = "uk-1") -> RecoveredState:
    journal, found = Journal.open(
        OsVfs(folder), node=node, draw_birth=lambda: pytest.fail("it has a birth"), segment_bytes=1 << 20
    )
    journal.close()
    return found


def test_the_journal_goes_on_at_the_end_of_the_archive(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 2)
    done = found_successor(succession(history, tmp_path))
    _, inherited = inherit(history)
    found = opened(tmp_path / "uk-1" / "journal")
    assert found.accepted is not None
    assert found.installed == found.accepted
    assert found.accepted.cluster_id.hex() == done.claim.successor != history.stream.id.cluster.hex()
    assert (found.log_start.index, found.log_start.hash) == (inherited.place.index, inherited.place.hash)
    assert (found.stable, found.log_end) == (inherited.place.index, inherited.place.index)
    assert found.accepted.floor == inherited.highest_stamp
    assert found.accepted.number > (3, 1, "uk-1"), "above every view of the lost cluster"
    assert [m.node for m in found.accepted.members] == ["uk-1"]
    assert [m.node for m in found.log_start.configuration[1].masters] == ["uk-1", "uk-2", "us-1"]  # type: ignore[index]


@pytest.mark.parametrize("step", ["reading the archive", "taking the claim", "writing the journal"])
def test_what_broke_off_goes_on(tmp_path: Path, step: str) -> None:
    history = History(tmp_path / "target", 2)

    def break_off(at: str) -> None:
        if at == step:
            raise BrokeOff

    with pytest.raises(BrokeOff):
        found_successor(succession(history, tmp_path, on_step=break_off))
    assert not (tmp_path / "uk-1" / "journal").exists()
    done = found_successor(succession(history, tmp_path))
    found = find_claim(history.target, history.stream.id)
    assert found is not None
    assert (found.number, found.claim) == (1, done.claim)
    again = found_successor(succession(history, tmp_path))
    assert (again.claim, again.inherited) == (done.claim, None)
    assert opened(tmp_path / "uk-1" / "journal").accepted.cluster_id.hex() == done.claim.successor  # type: ignore[union-attr]


def test_a_half_written_journal_is_written_again(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 2)
    left = tmp_path / "uk-1" / "journal.new"
    left.mkdir(parents=True)
    (left / "0000000000000001.txl").write_bytes(b"half")
    found_successor(succession(history, tmp_path))
    assert opened(tmp_path / "uk-1" / "journal").accepted is not None


def test_what_deleted_files_said_must_be_known_to_a_successor(tmp_path: Path) -> None:
    """Without it the new cluster would lack namespaces, and nothing would tell. A copy goes on without."""
    history = History(tmp_path / "target", 2)
    request = succession(history, tmp_path)
    request.reader.skips_fault = FileDamaged("skips/x.json is not what was written")
    with pytest.raises(FileDamaged):
        found_successor(request)
    assert find_claim(history.target, history.stream.id) is None
    assert not (tmp_path / "uk-1" / "journal").exists()
    copy = succession(history, tmp_path / "copy", is_copy=True)
    copy.reader.skips_fault = request.reader.skips_fault
    assert found_successor(copy).inherited is not None


def test_a_second_one_is_refused_and_a_copy_is_not(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 2)
    first = found_successor(succession(history, tmp_path / "a"))
    with pytest.raises(AlreadyRecovered, match=first.claim.successor):
        found_successor(succession(history, tmp_path / "b"))
    assert not (tmp_path / "b" / "uk-1" / "journal").exists()
    copy = found_successor(succession(history, tmp_path / "c", is_copy=True))
    assert copy.claim.successor != first.claim.successor
    found = find_claim(history.target, history.stream.id)
    assert found is not None
    assert found.claim == first.claim
    other = found_successor(succession(history, tmp_path / "b", supersede=1))
    assert other.claim.successor not in (first.claim.successor, copy.claim.successor)


def test_a_folder_founds_one_cluster(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 2)
    found_successor(succession(history, tmp_path))
    index, entry = 3, history.final.entries[2]
    with pytest.raises(OtherFounder, match="another --state"):
        found_successor(succession(history, tmp_path, f"position:{index}:{entry.hash.hex()}"))


def test_other_peers_do_not_go_on_with_a_claim(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 2)

    def break_off(at: str) -> None:
        if at == "writing the journal":
            raise BrokeOff

    with pytest.raises(BrokeOff):
        found_successor(succession(history, tmp_path, on_step=break_off))
    heavier = [{**peer.model_dump(), "weight": 5} for peer in node_config(tmp_path).peers]
    with pytest.raises(OtherFounder, match="peers"):
        found_successor(succession(history, tmp_path, master={"peers": heavier}))


def test_a_journal_that_lives_is_not_replaced(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 2)
    folder = tmp_path / "uk-1" / "journal"
    folder.mkdir(parents=True)
    Journal.open(OsVfs(folder), node="uk-1", draw_birth=lambda: 7, segment_bytes=1 << 20)[0].close()
    with pytest.raises(StillThere, match="no recovery wrote"):
        found_successor(succession(history, tmp_path))
    assert find_claim(history.target, history.stream.id) is None


def test_survivors_are_named(tmp_path: Path) -> None:
    journals = {node: tmp_path / node / "journal" for node in ("uk-1", "uk-2", "us-1")}
    for node in ("uk-2", "us-1"):
        journals[node].mkdir(parents=True)
        (journals[node] / "file").write_text("")
    with pytest.raises(StillThere, match=r"^us-1 still.*--without us-1"):
        refuse_survivors(journals, without=["uk-2"])
    assert refuse_survivors(journals, without=["uk-2", "us-1"]) == [journals["uk-2"], journals["us-1"]]
    assert set_aside(journals["us-1"]).name == "journal.given-up-1"
    assert refuse_survivors(journals, without=["uk-2"]) == [journals["uk-2"]]
