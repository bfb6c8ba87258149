"""What ``txlog rejoin --dry-run`` shows of the next view, which the protocol's own functions compute from reports."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import msgspec
import pytest
from stub_master import StubMaster

from txlog.cli.cli_cluster import CliCluster
from txlog.cli.rejoin_commands import RejoinForecast, compute_forecast, forecast
from txlog.model.entry import Span
from txlog.model.errors import Conflict
from txlog.model.hashes import HASH_BYTES, chain_hash, chain_start, origin_tag
from txlog.model.ids import Origin
from txlog.model.records import LogStart
from txlog.model.view import Member, View, bootstrap_view
from txlog.protocol.log.log_index import LogIndex
from txlog.wire.messages import Checkpoint, QueuedTransactions, ViewReport, encode

MEMBERS = [Member(node, birth, 1, "uk") for birth, node in enumerate("abc", start=1)]
FIRST = bootstrap_view(1, "a", MEMBERS, "Smart")


class Entry(NamedTuple):
    """The transaction ``seq`` of a master, with its stamp."""

    stamp: int
    node: str
    seq: int

    @property
    def origin(self) -> Origin:
        return next(m.origin for m in MEMBERS if m.node == self.node)

    @property
    def content(self) -> bytes:
        return f"{self.node}{self.seq}".encode().ljust(HASH_BYTES)


SAME = [Entry(1, "a", 1), Entry(2, "b", 1), Entry(3, "c", 1)]


def hashes_of(log: list[Entry]) -> list[bytes]:
    """The chain hash at every index, that of the empty log first."""
    found = [chain_start(FIRST.cluster_id)]
    for one in log:
        found.append(chain_hash(found[-1], one.stamp, origin_tag(one.origin), one.seq, one.content))
    return found


def view_of(epoch: int, members: str, strategy: str = "Smart") -> View:
    """A view that descends from the first one only."""
    inside = [m for m in MEMBERS if m.node in members]
    view = View(epoch, 1, members[0], inside, FIRST.cluster_id, 0, bytes(16), FIRST.origins, [FIRST.number])
    return msgspec.structs.replace(view, strategy=strategy, strategies=[strategy])


def report_of(node: str, view: View, log: list[Entry], own: list[Entry], strategy: str = "Smart") -> ViewReport:
    hashes, theirs = hashes_of(log), hashes_of(own)
    at = max(i for i, (one, other) in enumerate(zip(hashes, theirs, strict=False)) if one == other)
    return ViewReport(
        (9, 1, "a"),
        node,
        next(m.birth for m in MEMBERS if m.node == node),
        1,
        view,
        True,
        0,
        Checkpoint(len(log), hashes[-1]),
        Checkpoint(at, hashes[at]),
        [Span(*one.origin, one.seq, 1) for one in log[at:]],
        b"".join(hashes[at + 1 :]),
        max(one.stamp for one in log),
        [QueuedTransactions(*one.origin, one.seq, [one.stamp], one.content) for one in log],
        [],
        [],
        strategy,
    )


def log_index(log: list[Entry], start: int) -> LogIndex:
    """A log that is known after its first ``start`` entries."""
    hashes = hashes_of(log)
    seqs = [(*one.origin, one.seq) for one in log[:start]]
    found = LogIndex(
        FIRST.cluster_id,
        [m.origin for m in MEMBERS],
        LogStart(start, hashes[start], ("", 0), 0, seqs, [], [], []),
    )
    found.append(bytes("abc".index(one.node) for one in log[start:]), b"".join(hashes[start + 1 :]))
    return found


def forecast_of(logs: dict[str, tuple[View, list[Entry]]], strategy: str = "Smart", **weights: int) -> RejoinForecast:
    """The forecast for these masters, each with its view and its log. The longest log is the first one's."""
    first = next(iter(logs))
    own = logs[first][1]
    reports = [report_of(node, view, log, own, strategy) for node, (view, log) in logs.items()]
    answers = {node: {"dataCenter": "uk", "splitMode": "Continue"} for node in logs}
    configured = [{"node": node, "weight": weights.get(node, 1)} for node in "abc"]
    return compute_forecast(log_index(own, 2), reports, answers, first, lambda _: {"configured": configured})


def test_the_winner_comes_first_and_the_others_entries_move() -> None:
    one, other = [*SAME, Entry(10, "b", 2), Entry(11, "b", 3)], [*SAME, Entry(9, "c", 2)]
    ab, c = view_of(2, "ab"), view_of(2, "c")
    found = forecast_of({"a": (ab, one), "b": (ab, one), "c": (c, other)})
    assert [(b.masters, b.weight, b.end, b.kept_up_to, b.moved) for b in found.branches] == [
        (["a", "b"], 2, 5, 5, 0),
        (["c"], 1, 4, 3, 1),
    ]
    assert (found.shared_index, found.merged, found.strategy, found.start) == (3, False, "Smart", 2)
    heavy = forecast_of({"a": (ab, one), "b": (ab, one), "c": (c, other)}, c=5)
    assert [b.masters for b in heavy.voting] == [["c"], ["a", "b"]]


def test_a_branch_that_lags_has_no_vote() -> None:
    ahead = [*SAME, Entry(9, "a", 2)]
    found = forecast_of({"a": (view_of(2, "ab"), ahead), "b": (FIRST, SAME)})
    assert [(b.masters, b.weight, b.moved) for b in found.branches] == [(["a"], 2, 0), (["b"], None, 0)]
    assert found.shared_index == 4


def test_simple_merges_by_stamp_and_keeps_what_stays_in_its_place() -> None:
    one = [*SAME, Entry(10, "b", 2), Entry(20, "b", 3)]
    other = [*SAME, Entry(15, "c", 2)]
    ab, c = view_of(2, "ab", "Simple"), view_of(2, "c", "Simple")
    found = forecast_of({"a": (ab, one), "b": (ab, one), "c": (c, other)}, "Simple")
    assert (found.merged, found.strategy) == (True, "Simple")
    assert [(b.masters, b.kept_up_to, b.moved) for b in found.branches] == [(["a", "b"], 4, 1), (["c"], 3, 1)]


def stub_of(branch: dict[str, Any], **more: Any) -> StubMaster:
    stub = StubMaster("a")
    stub.more = {"/txlog/branch": branch, **more}
    return stub


BRANCH = {
    "node": "a",
    "dataCenter": "uk",
    "splitMode": "Continue",
    "end": 3,
    "configured": [{"node": "a", "weight": 1}],
}


def test_one_branch_needs_no_rejoin() -> None:
    report = encode(report_of("a", view_of(2, "a"), SAME, SAME))
    seqs = ["a.0000000000000001.1", "b.0000000000000002.1", "c.0000000000000003.1"]
    answer = {
        "checkpoints": ["3:" + hashes_of(SAME)[3].hex()],
        "seqs": seqs,
        "report": base64.b64encode(report).decode(),
    }
    stub = stub_of(BRANCH, **{"/txlog/view-report": answer})
    found = forecast(CliCluster({"uk": [stub.url]}, None))
    assert (found["winner"], found["moved"], found["shared"], found["notHeard"]) == (None, 0, 3, [])
    (branch,) = found["branches"]
    assert branch == {
        "view": "2.1.a",
        "masters": ["a"],
        "weight": 1,
        "end": 3,
        "keptUpTo": 3,
        "moved": 0,
        "votes": True,
    }
    stub.close()


def test_an_older_master_is_named_as_the_obstacle() -> None:
    stub = stub_of(BRANCH, **{"/txlog/view-report": None})
    with pytest.raises(Conflict, match="older version without GET /txlog/view-report"):
        forecast(CliCluster({"uk": [stub.url]}, None))
    stub.close()
