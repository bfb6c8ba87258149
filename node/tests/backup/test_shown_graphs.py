"""What a worker that goes back had shown, per named graph, against what it holds when everything is brought together:
on real stores. A stub stands for the masters, a lane for the pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess
from pen import CLUSTER, apply, back_up, chain_of, folder_target
from stub_master import StubMaster
from test_rebuilding import Lane

from txlog.apply import apply_up_to
from txlog.backup import RestoreTarget, SourceWorker, rebuild_from_backup
from txlog.backup.digest_file import differing_graphs, write_digests
from txlog.backup.rejoin_diff import RejoinDiff, find_last_rejoin
from txlog.client import MasterClient
from txlog.workers.digest import digest

SHARED, LOST, KEPT, MOVED = 5, 4, 6, 4
"""Transactions: before the branches part, of the branch that is lost, of the one that goes on, brought over from the
lost one."""


def graph_of(*names: str) -> list[str]:
    return [f'<urn:s:{name}> <urn:p> "{name}" <urn:g:{name}> .' for name in names]


def shared(log: MemoryLog) -> None:
    for n in range(SHARED):
        log.add(*graph_of(f"both-{n}"))


def lost_branch() -> MemoryLog:
    """Its last two transactions overwrite what the other side overwrites as well."""
    log = MemoryLog()
    shared(log)
    log.add(*graph_of("us-1"))
    log.add(*graph_of("us-2"))
    log.update("INSERT DATA { GRAPH <urn:g:clash> { <urn:london> <urn:people> 8 } }")
    log.update("DELETE DATA { GRAPH <urn:g:both-0> { <urn:s:both-0> <urn:p> 'both-0' } }")
    assert log.end == SHARED + LOST
    return log


def final_log() -> MemoryLog:
    log = MemoryLog()
    shared(log)
    for n in range(KEPT - 1):
        log.add(*graph_of(f"uk-{n}"))
    log.update("INSERT DATA { GRAPH <urn:g:clash> { <urn:london> <urn:people> 9 } }")
    log.add(*graph_of("us-1"))
    log.add(*graph_of("us-2"))
    log.update("INSERT DATA { GRAPH <urn:g:clash> { <urn:london> <urn:people> 8 } }")
    log.update("DELETE DATA { GRAPH <urn:g:both-0> { <urn:s:both-0> <urn:p> 'both-0' } }")
    for n in range(50):
        log.add(*graph_of(f"later-{n}"))
    return log


def rejoin_record(*, merged: bool, base: int, brought: int) -> dict[str, Any]:
    view = {"number": "4.1.uk-1", "members": ["uk-1", "us-1"], "silent": [], "merged": merged}
    before = {"number": "2.1.us-1", "members": ["us-1"], "silent": ["uk-1"], "merged": False, "base": SHARED}
    return {"at": 1.0, "view": {**view, "base": base, "brought": brought}, "before": before, "end": 9, "kept": 5}


@pytest.fixture
def master() -> Iterator[StubMaster]:
    found = StubMaster("us-1")
    found.more["/txlog/splits"] = {"records": []}
    yield found
    found.close()


@pytest.fixture
def masters(master: StubMaster) -> Iterator[list[MasterClient]]:
    with MasterClient(master.url) as client:
        yield [client]


def names(told: dict[str, Any]) -> list[str]:
    return [json.loads(line)["graph"] for line in Path(told["file"]).read_text().splitlines()]


def on_branch(worker: OxigraphProcess, log: MemoryLog) -> None:
    done = apply_up_to(ADAPTER, worker.transport, log, log.end, epoch=2, budget_s=60)
    assert done.error is None


@pytest.mark.parametrize("merged", [False, True])
def test_the_graphs_that_are_not_what_was_shown_are_named_exactly(
    worker: OxigraphProcess,
    empty: OxigraphProcess,
    master: StubMaster,
    masters: list[MasterClient],
    tmp_path: Path,
    merged: bool,
) -> None:
    lost, final = lost_branch(), final_log()
    base, brought = SHARED + KEPT, SHARED + KEPT + MOVED
    target = folder_target(tmp_path / "backups")
    apply(worker, final, 3)
    back_up(worker, target)
    on_branch(empty, lost)
    record = rejoin_record(merged=merged, base=brought if merged else base, brought=brought)
    master.more["/txlog/splits"] = {"records": [record]}
    shown = RejoinDiff(tmp_path / "shown", SourceWorker("us-worker-1", ADAPTER, empty.transport, masters))
    shown.record_before_restore()
    assert shown.resume_limit == (brought if merged else base)
    into = RestoreTarget("us-worker-1", ADAPTER, empty.transport)
    with Lane("us-worker-1", empty, final, master) as lane:
        made, restored = rebuild_from_backup(target, into, masters, CLUSTER, chain_of(final), onward=shown.resume_limit)
        told = shown.compare(restored.marker.position.index)
        assert made.position.index == 3
        while lane.upto < final.end:
            assert lane.thread.is_alive()
    assert master.holds == {}
    assert (told["endedBy"], told["comparedAt"]) == ("4.1.uk-1", brought)
    mine, *others = told["sides"]
    assert (mine["side"], mine["shownAt"], mine["graphs"]) == ("us-worker-1", lost.end, KEPT)
    assert names(mine) == sorted(["urn:g:clash", *(f"urn:g:uk-{n}" for n in range(KEPT - 1))])
    assert mine["first"] == names(mine)
    if merged:
        assert others == []
    else:
        (theirs,) = others
        assert (theirs["side"], theirs["shownAt"]) == ("the branch that went on", base)
        assert names(theirs) == ["urn:g:both-0", "urn:g:clash", "urn:g:us-1", "urn:g:us-2"]
    left = [path.name for path in (tmp_path / "shown").iterdir()]
    assert sorted(left) == sorted(Path(side["file"]).name for side in told["sides"])
    again = RejoinDiff(tmp_path / "shown", SourceWorker("us-worker-2", ADAPTER, worker.transport, masters))
    again.record_before_restore()
    assert again.resume_limit is None, "one worker of a data centre is compared for a view"
    assert "another worker" in again.compare(0)["notTold"]


def test_what_cannot_be_told_is_said_and_keeps_nobody(
    worker: OxigraphProcess, empty: OxigraphProcess, master: StubMaster, masters: list[MasterClient], tmp_path: Path
) -> None:
    lost, final = lost_branch(), final_log()
    base, brought = SHARED + KEPT, SHARED + KEPT + MOVED
    on_branch(empty, lost)
    shown = RejoinDiff(tmp_path / "shown", SourceWorker("us-worker-1", ADAPTER, empty.transport, masters))
    shown.record_before_restore()
    assert shown.resume_limit is None
    assert "no rejoin is known" in shown.compare(0)["notTold"]

    master.more["/txlog/splits"] = {"records": [rejoin_record(merged=False, base=base, brought=brought)]}
    nothing = RejoinDiff(tmp_path / "shown", SourceWorker("us-worker-1", ADAPTER, worker.transport, masters))
    nothing.record_before_restore()
    assert "could not be read" in nothing.compare(0)["notTold"]

    # a split that waits for its backup goes first
    shown.record_before_restore()
    assert shown.resume_limit == base
    master.more["/txlog/duties"] = {"duties": [{"id": "b", "kind": "backup"}]}
    apply(worker, final, 2)
    shown._source = SourceWorker(
        "us-worker-1", ADAPTER, worker.transport, masters
    )  # it has gone back and does not move
    told = shown.compare(2)
    assert told["endedBy"] == "4.1.uk-1"
    assert "backup" in told["notTold"]
    assert master.holds == {}

    # what it began from is newer than what is looked for
    master.more["/txlog/duties"] = {"duties": []}
    shown._source = SourceWorker("us-worker-1", ADAPTER, empty.transport, masters)
    shown.record_before_restore()
    apply(worker, final, brought + 1)
    shown._source = SourceWorker("us-worker-1", ADAPTER, worker.transport, masters)
    assert "above" in shown.compare(brought + 1)["notTold"]
    assert list((tmp_path / "shown").iterdir()) == []


def test_a_comparison_that_broke_off_lets_the_worker_go(
    worker: OxigraphProcess, master: StubMaster, masters: list[MasterClient], tmp_path: Path
) -> None:
    apply(worker, lost_branch())
    master.more["/txlog/splits"] = {"records": [rejoin_record(merged=False, base=11, brought=15)]}
    source = SourceWorker("us-worker-1", ADAPTER, worker.transport, masters)
    RejoinDiff(tmp_path / "shown", source).record_before_restore()
    master.holds["us-worker-1"] = 11
    RejoinDiff(tmp_path / "shown", source).abandon()
    assert master.holds == {}
    master.holds["us-worker-1"] = 11
    RejoinDiff(tmp_path / "shown", source).abandon()
    assert master.holds == {"us-worker-1": 11}, "a hold of somebody else"


def test_the_latest_rejoin_counts(master: StubMaster, masters: list[MasterClient]) -> None:
    one = rejoin_record(merged=False, base=11, brought=15)
    alone = {**one, "view": {**one["view"], "number": "5.1.uk-1", "members": ["us-1"]}}
    old = {
        **one,
        "view": {key: value for key, value in one["view"].items() if key != "brought"} | {"number": "9.1.uk-1"},
    }
    earlier = {**one, "view": {**one["view"], "number": "3.9.uk-1", "brought": 99}}
    master.more["/txlog/splits"] = {"records": [{"at": 1, "state": "Joined"}, one, alone, old, earlier]}
    found = find_last_rejoin(masters)
    assert found is not None
    assert (found.view, found.epoch, found.surviving_index, found.merged_index) == ("4.1.uk-1", 4, 11, 15)


def test_sums_are_those_of_the_digest_whatever_the_memory_and_the_order(tmp_path: Path) -> None:
    lines = [f'<urn:s:{n}> <urn:p> "{n}"{f" <urn:g:{n % 37}>" if n % 3 else ""} .\n'.encode() for n in range(2000)]
    system = b"<urn:txlog:system:1> <urn:p> <urn:o> <urn:txlog:system:x> .\n"
    text = b"".join([*lines, system])
    pieces = [text[at : at + 777] for at in range(0, len(text), 777)]
    wanted = digest(pieces).graphs
    assert write_digests(iter(pieces), tmp_path / "all") == len(wanted) == 38
    assert write_digests(iter([*lines[::-1], system]), tmp_path / "few", graphs_max=3) == 38
    assert (tmp_path / "all").read_bytes() == (tmp_path / "few").read_bytes()
    found = {}
    for line in (tmp_path / "all").read_bytes().splitlines():
        graph, quads, total = line.split(b"\t")
        found[graph[1:-1].decode()] = (int(quads), int(total, 16))
    assert found == wanted
    assert list(differing_graphs(tmp_path / "all", tmp_path / "few")) == []
    write_digests(iter([*lines[3:], b"<urn:a> <urn:b> <urn:c> <urn:g:new> ."]), tmp_path / "other")
    assert list(differing_graphs(tmp_path / "all", tmp_path / "other")) == [
        ("", wanted[""][0], wanted[""][0] - 1),
        ("urn:g:1", wanted["urn:g:1"][0], wanted["urn:g:1"][0] - 1),
        ("urn:g:2", wanted["urn:g:2"][0], wanted["urn:g:2"][0] - 1),
        ("urn:g:new", 0, 1),
    ]
    write_digests(iter([]), tmp_path / "none")
    assert [name for name, _, now in differing_graphs(tmp_path / "all", tmp_path / "none") if now] == []
