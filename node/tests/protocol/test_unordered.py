"""``splitRecovery: None``: what a master keeps of an order that was cut off, and what a worker passes over."""

from __future__ import annotations

from core_cluster import Cluster

from txlog.model.entry import Span
from txlog.model.ids import Origin, Txid
from txlog.model.records import AbandonedBranch
from txlog.protocol.core import Core
from txlog.protocol.log.executed_out_of_order import BranchPosition, ExecutedElsewhere, find_branch_position
from txlog.protocol.log.log_start import PlannedLogStart
from txlog.protocol.log.log_state import LogState
from txlog.protocol.log.log_trim import WORKER, RetentionPosition, decide_trim

APART = {("c", "a"), ("c", "b"), ("a", "c"), ("b", "c")}


def none(nodes: str = "abc") -> Cluster:
    return Cluster(
        nodes,
        idle_interval_ms=100,
        none_split_delay_ms=1000,
        strategy="None",  # type: ignore[arg-type]
    ).founded()


def agreement(core: Core) -> LogState:
    assert core.log_state is not None
    return core.log_state


def place(cluster: Cluster, node: str) -> tuple[int, bytes]:
    history = agreement(cluster.core(node)).log_index
    return history.length, history.hash


def branches_behind(mine: LogState, index: int, keeps_branches: bool = False) -> list[AbandonedBranch]:
    return PlannedLogStart(mine, index, 1).log_start(keeps_branches=keeps_branches).abandoned_branches


def named(cluster: Cluster, node: str, traced: BranchPosition | None) -> list[str]:
    assert traced is not None
    return sorted(f"{s.node}{s.first_seq + i}" for s in traced.spans for i in range(s.count))


def passed(cluster: Cluster, node: str, *paths: tuple[int, bytes]) -> list[str]:
    """What a worker that stood at these places passes over on the log of this master."""
    mine = agreement(cluster.core(node))
    known = [find_branch_position(mine, *path) for path in paths]
    over = ExecutedElsewhere([one for one in known if one is not None])
    assert None not in known
    found: list[str] = []
    index = 0
    for span in mine.log_index.spans(0, mine.log_index.length):
        queue = mine.by_origin[Origin(span.node, span.birth)]
        for seq in range(span.first_seq, span.first_seq + span.count):
            index += 1
            run = cluster.journals[node].read(span.node, span.birth, seq, 1, 1 << 20)
            key, stamp = run.items[0].key, run.items[0].stamp
            if over.was_executed(index, queue.origin, seq) or (
                key and over.repeats_executed_key(mine, Txid(queue.origin, seq), key, stamp)
            ):
                found.append(f"{span.node}{seq}")
    return found


def split() -> Cluster:
    """a and b go on without c, and it without them, with no backup anywhere."""
    cluster = none()
    cluster.submit("a", "first")
    cluster.run(200)
    cluster.cut |= APART
    cluster.run(600)
    assert cluster.core("a").state == "Suspected"
    assert not any(cluster.core(n).needs_split_backup for n in "abc")
    assert cluster.core("a").executes_to_end
    cluster.run(3000)
    assert {cluster.core(n).state for n in "abc"} == {"Isolated"}
    assert not cluster.core("a").executes_to_end
    return cluster


def test_an_order_that_is_cut_off_is_kept_and_names_what_was_executed() -> None:
    cluster = split()
    cluster.submit("a", "there")
    cluster.submit("c", "here", "too")
    cluster.run(300)
    assert (cluster.log("a"), cluster.log("c")) == (["a1", "a2"], ["a1", "c1", "c2"])
    stood, middle = place(cluster, "c"), (2, agreement(cluster.core("c")).log_index.hash_at(2))
    cluster.cut.clear()
    cluster.run(4000)
    assert {cluster.core(n).state for n in "abc"} == {"Joined"}
    assert cluster.log("c") == ["a1", "a2", "c1", "c2"], "the winner's, then the others'"
    for _ in range(2):
        mine = agreement(cluster.core("c"))
        traced = find_branch_position(mine, *stood)
        assert traced is not None
        assert (traced.shared_index, named(cluster, "c", traced)) == (1, ["c1", "c2"])
        assert named(cluster, "c", find_branch_position(mine, *middle)) == ["c1"]
        assert passed(cluster, "c", stood) == ["a1", "c1", "c2"]
        assert find_branch_position(agreement(cluster.core("a")), *stood) is None, "a never had that order"
        assert find_branch_position(mine, 3, bytes(16)) is None
        here = find_branch_position(mine, *place(cluster, "c"))
        assert here == BranchPosition(4, [], [])
        cluster.crash("c")  # and it stands in the journal
        cluster.start("c")
        cluster.run(3000)


def test_of_one_key_one_is_executed() -> None:
    cluster = split()
    cluster.submit("a", "same", key="k")
    cluster.submit("c", "same", key="k")
    cluster.run(300)
    stood = place(cluster, "c")
    cluster.cut.clear()
    cluster.run(4000)
    assert cluster.log("c") == ["a1", "a2", "c1"]
    mine = agreement(cluster.core("c"))
    assert mine.noops == {3: Txid(mine.by_origin[mine.log_index.origins[0]].origin, 2)}
    assert passed(cluster, "c", stood) == ["a1", "a2", "c1"], "a2 is what c1 was"
    cluster.crash("c")
    cluster.start("c")
    cluster.run(3000)
    assert passed(cluster, "c", stood) == ["a1", "a2", "c1"]


def test_a_second_split_adds_to_what_is_known_of_the_first() -> None:
    cluster = split()
    cluster.submit("a", "there")
    cluster.submit("c", "here")
    cluster.run(300)
    first = place(cluster, "c")
    cluster.cut.clear()
    cluster.run(4000)
    assert cluster.log("c") == ["a1", "a2", "c1"]
    cluster.cut |= APART
    cluster.run(4000)
    cluster.submit("a", "again")
    cluster.submit("c", "again here")
    cluster.run(300)
    assert cluster.log("c") == ["a1", "a2", "c1", "c2"]
    second = place(cluster, "c")
    cluster.cut.clear()
    cluster.run(4000)
    assert cluster.log("c") == ["a1", "a2", "c1", "a3", "c2"]
    assert passed(cluster, "c", first) == ["a1", "c1"]
    assert passed(cluster, "c", first, second) == ["a1", "a2", "c1", "c2"]


def test_abandoned_branches_are_forgotten_with_the_last_of_their_transactions() -> None:
    """Below a log start are all workers on the log, and beyond what they had executed elsewhere. A worker that names a
    position on a branch asks with it for every page, so the branch stays known as long as there is one."""
    cluster = split()
    cluster.submit("a", "there")
    cluster.submit("c", "here")
    cluster.run(300)
    cluster.cut.clear()
    cluster.run(4000)
    mine = agreement(cluster.core("c"))
    assert cluster.log("c") == ["a1", "a2", "c1"]
    assert [span for branch in mine.abandoned_branches for span in branch.spans] == [Span("c", 3, 1, 1)]
    assert branches_behind(mine, 2) == branches_behind(mine, 2, True) == mine.abandoned_branches
    assert branches_behind(mine, 3) == []
    assert branches_behind(mine, 3, True) == mine.abandoned_branches
    ordered, unordered = (
        RetentionPosition(WORKER, "c/w", 3, mine.log_index.hash_at(3), names_branch) for names_branch in (False, True)
    )
    assert not decide_trim(mine, [ordered], [], {}, 3).keeps_branches
    assert decide_trim(mine, [ordered, unordered], [], {}, 3).keeps_branches


def test_a_view_that_may_go_back_keeps_nothing() -> None:
    cluster = Cluster(idle_interval_ms=100, max_peer_lag_ms=1000).founded()
    cluster.cut |= APART
    cluster.run(600)
    for node in "ac":
        cluster.executors[node].backup_done(0, agreement(cluster.core(node)).log_index.empty_log_hash)
    cluster.run(3000)
    cluster.submit("a", "there")
    cluster.submit("c", "here")
    cluster.run(300)
    stood = place(cluster, "c")
    cluster.cut.clear()
    cluster.run(4000)
    assert cluster.log("c") == ["a1", "c1"]
    assert agreement(cluster.core("c")).abandoned_branches == []
    assert find_branch_position(agreement(cluster.core("c")), *stood) is None


def test_while_a_member_is_silent_workers_execute_to_the_logs_end() -> None:
    """c hears nobody, and is heard: its counter lets entries into the log that it does not hold."""
    for strategy in ("None", "Smart"):
        cluster = Cluster(idle_interval_ms=100, strategy=strategy).founded()  # type: ignore[arg-type]
        cluster.cut |= {("a", "c"), ("b", "c")}
        cluster.submit("a", "one")
        cluster.run(450)
        cluster.cut |= {("c", "a"), ("c", "b")}
        cluster.run(600)
        core = cluster.core("a")
        assert core.state == "Suspected"
        assert (cluster.marks["a"].log, cluster.marks["a"].stable) == (1, 0)
        assert core.executes_to_end == (strategy == "None")
        cluster.cut.clear()
        cluster.run(1500)
        assert (core.state, cluster.marks["a"].stable, core.executes_to_end) == ("Joined", 1, False)
