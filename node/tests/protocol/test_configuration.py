"""Masters come, go and are muted by entries of the log (rule 20)."""

from __future__ import annotations

import msgspec
import pytest
from changing_views import assert_same_logs, back_up, forget, leave, prefer, run_until_in_view
from core_cluster import Cluster, update

from txlog.model.configuration import (
    LEAVING,
    MUTED,
    Configuration,
    ConfigurationChange,
    Master,
    encode_configuration_change,
)
from txlog.model.errors import BadInput, ChangePending, Conflict, Fatal, Refused, Unavailable
from txlog.model.ids import Origin, Txid
from txlog.model.stamp import LOGICAL_BITS
from txlog.protocol.events import ConfiguredMember, SubmissionAccepted
from txlog.protocol.log.configuration_history import ConfigurationHistory
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.key_table import FirstUse, key_name
from txlog.protocol.membership.handshake import build_hello
from txlog.wire.messages import AcceptView, Post, decode, encode
from txlog_simulation.reference_journal import ReferenceJournal


def configuration(cluster: Cluster, node: str) -> Configuration:
    found = cluster.core(node).configuration
    assert found is not None
    return found


def change(cluster: Cluster, at: str, wanted: Configuration) -> SubmissionAccepted | Refused:
    submission = cluster.core(at).prepare_change(wanted, "a test")
    answer = cluster.ask(at, submission)
    cluster.run(1)
    return answer


def with_role(now: Configuration, node: str, role: str) -> Configuration:
    masters = [msgspec.structs.replace(m, role=role) if m.node == node else m for m in now.masters]
    return msgspec.structs.replace(now, masters=masters)


def add(cluster: Cluster, at: str, node: str, weight: int = 1) -> None:
    now = configuration(cluster, at)
    wanted = msgspec.structs.replace(now, masters=[*now.masters, Master(node, "uk", weight)])
    assert isinstance(change(cluster, at, wanted), SubmissionAccepted)


def begin(cluster: Cluster, node: str, birth: int) -> None:
    """A new master's manifest names itself and those that were there."""
    cluster.journals[node] = ReferenceJournal(node, birth)
    before = cluster.members
    cluster.members = (*before, ConfiguredMember(node, "uk", 1))
    cluster.start(node)
    cluster.members = before


def remove(cluster: Cluster, at: str, node: str) -> None:
    assert isinstance(change(cluster, at, with_role(configuration(cluster, at), node, LEAVING)), SubmissionAccepted)


def run_until_removed(cluster: Cluster, node: str, within_ms: int = 5000) -> None:
    end_ms = cluster.now_ms + within_ms
    while not (cluster.core(node).removed and cluster.core(node).is_leave_done):
        assert cluster.now_ms < end_ms, cluster.core(node).state
        cluster.run(5)
    cluster.crash(node)


def test_a_third_master_comes_live() -> None:
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    cluster.submit("a", "x")
    add(cluster, "a", "c")
    cluster.submit("b", "y")
    begin(cluster, "c", 33)
    run_until_in_view(cluster, "a", "b", "c")
    cluster.submit("c", "z")
    assert_same_logs(cluster, 4)
    assert cluster.core("a").state == "Joined"
    assert [m.node for m in configuration(cluster, "c").masters] == ["a", "b", "c"]


def test_it_may_run_before_it_is_added() -> None:
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    begin(cluster, "c", 33)
    cluster.run(500)
    assert "NotListed" in cluster.faults["a"]
    assert cluster.core("c").log_state is None
    add(cluster, "b", "c")
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 1)


def test_what_was_agreed_outlives_every_process() -> None:
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    add(cluster, "a", "c", weight=2)
    begin(cluster, "c", 33)
    run_until_in_view(cluster, "a", "b", "c")
    for node in "abc":
        cluster.crash(node)
    for node in "abc":
        cluster.start(node)
    run_until_in_view(cluster, "a", "b", "c")
    for node in "abc":
        assert [(m.node, m.weight) for m in configuration(cluster, node).masters] == [("a", 1), ("b", 1), ("c", 2)]
        assert configuration(cluster, node).version == 1


def test_a_removed_master_brings_everything_in_and_is_refused_by_name() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.submit("c", "x", "y")
    remove(cluster, "a", "c")
    run_until_removed(cluster, "c")
    run_until_in_view(cluster, "a", "b", within_ms=2000)
    assert cluster.core("a").state == "Joined"
    assert configuration(cluster, "b").removed == ["c"]
    assert_same_logs(cluster, 4)
    assert cluster.log("a")[-1] == "c3"
    cluster.start("c")
    with pytest.raises(Fatal, match="Removed"):
        cluster.run(2000)
    assert "Removed" in cluster.faults["a"] + cluster.faults["b"]


def test_as_many_as_are_configured_is_not_everybody() -> None:
    """Seed 4564: who takes itself out is in its view and configured no more; b, who has most of the weight, is away."""
    cluster = Cluster("abcd", idle_interval_ms=100).founded()
    now = configuration(cluster, "a")
    masters = [msgspec.structs.replace(m, weight=3) if m.node == "b" else m for m in now.masters]
    assert isinstance(change(cluster, "a", msgspec.structs.replace(now, masters=masters)), SubmissionAccepted)
    cluster.run(300)
    leave(cluster, "b")
    run_until_in_view(cluster, "a", "c", "d", within_ms=2000)
    remove(cluster, "a", "c")
    run_until_removed(cluster, "c")
    marks = cluster.marks["c"]
    assert (marks.accepted, marks.synced, marks.quorum) == (1, 1, 0)


def test_a_master_that_is_taken_out_takes_no_work_while_it_drains() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.submit("c", "x")
    cluster.cut |= {("c", "b"), ("b", "c")}
    remove(cluster, "a", "c")
    cluster.run(10)
    refused = cluster.executors["c"].submit([update("late")], cluster.now("c"))[0]
    assert isinstance(refused, Unavailable)
    assert refused.reason == "Removed"


def test_a_crash_while_it_drains_loses_nothing() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.cut |= {("c", "a"), ("c", "b")}
    cluster.submit("c", "x")
    remove(cluster, "a", "c")
    cluster.crash("c")
    cluster.cut.clear()
    cluster.start("c")
    run_until_removed(cluster, "c")
    run_until_in_view(cluster, "a", "b", within_ms=3000)
    cluster.run(500)
    assert "c1" in cluster.log("a")


def test_a_muted_master_orders_and_takes_no_writes() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    assert isinstance(change(cluster, "b", with_role(configuration(cluster, "b"), "a", MUTED)), SubmissionAccepted)
    cluster.run(50)
    refused = cluster.executors["a"].submit([update("x")], cluster.now("a"))[0]
    assert isinstance(refused, Unavailable)
    assert refused.reason == "Muted"
    cluster.submit("c", "y")
    cluster.run(50)
    assert cluster.marks["c"].synced == 1
    # the muted one itself may be asked to be heard again
    assert isinstance(change(cluster, "a", with_role(configuration(cluster, "a"), "a", "member")), SubmissionAccepted)
    cluster.run(50)
    cluster.submit("a", "z")
    assert_same_logs(cluster, 4)


def test_a_second_change_is_refused_while_one_is_pending() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    now = configuration(cluster, "a")
    cluster.cut |= {("c", "a"), ("c", "b"), ("b", "a")}
    assert isinstance(change(cluster, "a", with_role(now, "c", MUTED)), SubmissionAccepted)
    refused = change(cluster, "a", with_role(now, "b", MUTED))
    assert isinstance(refused, ChangePending)
    with pytest.raises(BadInput, match="less than half"):
        cluster.core("a").prepare_change(msgspec.structs.replace(now, masters=now.masters[:2], majority=True), "")


def test_of_two_changes_at_once_the_first_in_the_log_counts() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    for node, other in (("a", "b"), ("b", "c")):
        submission = cluster.core(node).prepare_change(with_role(configuration(cluster, node), other, MUTED), "")
        assert isinstance(cluster.executors[node].submit([submission], cluster.now(node))[0], SubmissionAccepted)
    cluster.run(200)
    muted = {tuple(m.node for m in configuration(cluster, n).masters if m.role == MUTED) for n in "abc"}
    assert len(muted) == 1
    assert len(muted.pop()) == 1
    for node in "abc":
        agreement = cluster.core(node).log_state
        assert agreement is not None
        assert list(agreement.configurations.noops) == [2]
    assert_same_logs(cluster, 2)


def test_the_split_mode_follows_in_a_view_of_everybody() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    wanted = msgspec.structs.replace(configuration(cluster, "a"), majority=True)
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    assert isinstance(change(cluster, "a", wanted), SubmissionAccepted)
    cluster.run(500)
    assert not cluster.core("a").views.majority_required
    leave(cluster, "b")
    run_until_in_view(cluster, "a")
    assert not cluster.core("a").views.majority_required  # c may have gone on alone, for all that is known
    cluster.start("b")
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    cluster.run(500)
    assert all(cluster.core(node).views.majority_required for node in "abc")
    cluster.cut |= {("c", "a"), ("c", "b"), ("a", "c"), ("b", "c")}
    cluster.run(4000)
    assert cluster.core("c").state == "Suspected"
    run_until_in_view(cluster, "a", "b")


def test_new_masters_get_half_of_the_votes_only_when_majority_binds_no_more() -> None:
    """The log says Continue, the view is still under Majority: while this is pending a, b and c have no majority as it
    will be, so no view could be changed any more, and d is let in by a view."""
    cluster = Cluster(idle_interval_ms=100, majority=True).founded()
    cluster.cut |= {("c", "a"), ("c", "b"), ("a", "c"), ("b", "c")}
    run_until_in_view(cluster, "a", "b")
    now = configuration(cluster, "a")
    assert isinstance(change(cluster, "a", msgspec.structs.replace(now, majority=False)), SubmissionAccepted)
    cluster.run(500)
    now = configuration(cluster, "a")
    assert not now.majority
    assert cluster.core("a").views.majority_required, "c is out, who could go on under the other one"
    heavy = msgspec.structs.replace(now, masters=[*now.masters, Master("d", "uk", 3)])
    refused = change(cluster, "a", heavy)
    assert isinstance(refused, ChangePending)
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")
    cluster.run(500)
    assert not cluster.core("a").views.majority_required
    assert isinstance(change(cluster, "a", heavy), SubmissionAccepted)
    begin(cluster, "d", 44)
    run_until_in_view(cluster, "a", "b", "c", "d")


def test_a_master_is_added_under_majority_only_while_those_in_the_view_stay_a_majority() -> None:
    """c is out and lost its disk: it votes for nothing, so of four masters a and b would be a half, and could let in
    neither c nor d."""
    cluster = Cluster(idle_interval_ms=100, majority=True).founded()
    cluster.crash("c")
    forget(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    now = configuration(cluster, "a")
    wanted = msgspec.structs.replace(now, masters=[*now.masters, Master("d", "uk", 1)])
    refused = change(cluster, "a", wanted)
    assert isinstance(refused, Conflict)
    assert "a, b are in the view" in str(refused)
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    assert isinstance(change(cluster, "a", wanted), SubmissionAccepted)
    begin(cluster, "d", 44)
    run_until_in_view(cluster, "a", "b", "c", "d")


def test_a_master_that_is_taken_out_goes_when_the_others_are_most_with_its_vote_counted() -> None:
    """They may not know yet that it was taken out when it ends: of four votes b and c have a half, until d is in."""
    cluster = Cluster(idle_interval_ms=100, majority=True).founded()
    add(cluster, "a", "d")
    cluster.run(200)
    remove(cluster, "b", "a")
    cluster.run(5000)
    assert not cluster.core("a").removed
    begin(cluster, "d", 44)
    run_until_removed(cluster, "a")
    run_until_in_view(cluster, "b", "c", "d")


def test_a_half_that_changes_the_weights_alone_is_no_majority() -> None:
    """It could give itself the votes, and the others know nothing of it."""
    cluster = Cluster("abcd", idle_interval_ms=100, majority=True).founded()
    cluster.cut |= {(x, y) for x in "abcd" for y in "abcd" if (x in "ab") != (y in "ab")}
    now = configuration(cluster, "a")
    weights = {"a": 3, "b": 3, "c": 2, "d": 2}
    masters = [msgspec.structs.replace(m, weight=weights[m.node]) for m in now.masters]
    assert isinstance(change(cluster, "a", msgspec.structs.replace(now, masters=masters)), SubmissionAccepted)
    cluster.run(6000)
    assert not cluster.core("a").log_state.log_index.length  # type: ignore[union-attr]
    assert cluster.core("a").state == cluster.core("c").state == "Suspected"
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c", "d")
    cluster.run(500)
    assert configuration(cluster, "c").masters == masters


def test_a_lost_disk_is_taken_in_again_under_the_configuration_of_the_log() -> None:
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    add(cluster, "a", "c")
    begin(cluster, "c", 33)
    run_until_in_view(cluster, "a", "b", "c")
    cluster.submit("c", "x")
    cluster.run(200)
    cluster.crash("b")
    forget(cluster, "b")
    cluster.start("b")
    run_until_in_view(cluster, "a", "b", "c")
    cluster.run(300)
    assert [m.node for m in configuration(cluster, "b").masters] == ["a", "b", "c"]
    assert cluster.core("b").views.accepted.has_member(Origin("b", 77))  # type: ignore[union-attr]
    assert_same_logs(cluster, 2)


def test_a_half_that_has_not_seen_a_change_is_no_majority_under_it() -> None:
    """Two have added what makes them a majority; three hold it, have not added it, and were one before."""
    cluster = Cluster("abcde", idle_interval_ms=100, majority=True).founded()
    now = configuration(cluster, "a")
    weights = {"a": 4, "b": 4, "c": 1, "d": 1, "e": 1}
    masters = [msgspec.structs.replace(m, weight=weights[m.node]) for m in now.masters]
    assert isinstance(change(cluster, "a", msgspec.structs.replace(now, masters=masters)), SubmissionAccepted)
    # it has arrived everywhere, and so do the answers; of what follows from them three are told nothing
    cluster.cut |= {(x, y) for x in "ab" for y in "cde"}
    cluster.run(150)
    assert [len(cluster.log(node)) for node in "abcde"] == [1, 1, 0, 0, 0]
    cluster.cut |= {(y, x) for x in "ab" for y in "cde"}
    cluster.run(6000)
    # where it is stable the two are a majority; the three know that it may be, and are none under it
    run_until_in_view(cluster, "a", "b")
    assert all(cluster.core(node).views.number == (1, 1, "a") for node in "cde")
    cluster.cut.clear()
    run_until_in_view(cluster, *"abcde")
    assert_same_logs(cluster, 1)


def test_what_an_accepted_view_holds_changes_no_majority_before_its_install() -> None:
    """a and b accept a view in whose log they have most of the votes. c, which was to be in it, has reported and never
    gets it; with d and e it is a majority, as the log says where everybody knows it."""
    cluster = Cluster("abcde", idle_interval_ms=100, majority=True).founded()
    receive = cluster.receive

    def keep_from_c(source: str, target: str, data: bytes) -> None:
        post_or_accept = isinstance(decode(source, data), Post | AcceptView)
        if not (post_or_accept and source in "ab" and target == "c"):
            receive(source, target, data)

    for node in "de":
        cluster.crash(node)
    cluster.receive = keep_from_c  # type: ignore[method-assign]
    now = configuration(cluster, "a")
    weights = {"a": 4, "b": 4, "c": 1, "d": 1, "e": 1}
    masters = [msgspec.structs.replace(m, weight=weights[m.node]) for m in now.masters]
    assert isinstance(change(cluster, "a", msgspec.structs.replace(now, masters=masters)), SubmissionAccepted)
    end_ms = cluster.now_ms + 10_000
    while any(cluster.core(node).views.number[0] == 1 for node in "ab"):
        assert cluster.now_ms < end_ms, [cluster.core(node).views.blocked_reason for node in "abc"]
        cluster.run(1)
    assert not any(cluster.core(node).views.installed for node in "ab")
    assert [len(cluster.log(node)) for node in "abc"] == [1, 1, 0]
    cluster.receive = receive  # type: ignore[method-assign]
    cluster.cut |= {(x, y) for x in "abcde" for y in "abcde" if (x in "ab") != (y in "ab")}
    for node in "de":
        cluster.start(node)
    run_until_in_view(cluster, "c", "d", "e", within_ms=20_000)
    cluster.run(6000)
    assert not any(cluster.core(node).views.is_active for node in "ab"), "a majority by what only they have accepted"
    cluster.cut.clear()
    run_until_in_view(cluster, *"abcde", within_ms=20_000)
    assert_same_logs(cluster, 1)


def test_a_change_made_in_a_view_that_the_chain_does_not_know_is_a_noop() -> None:
    along = ConfigurationHistory(Configuration([Master("a", "uk", 1), Master("b", "uk", 1)], False, 1000))
    wanted = with_role(along.latest, "b", MUTED)
    elsewhere = encode_configuration_change(ConfigurationChange((3, 1, "b"), 0, wanted))
    assert not along.apply(1, Txid(Origin("b", 2), 1), elsewhere, [(1, 1, "a"), (2, 1, "a")].__contains__)
    assert along.latest.version == 0
    assert along.noops == {1: Txid(Origin("b", 2), 1)}
    assert along.apply(2, Txid(Origin("b", 2), 2), elsewhere, [(1, 1, "a"), (3, 1, "b")].__contains__)
    assert [m.role for m in along.latest.masters] == ["member", MUTED]
    along.truncate(1)
    assert along.latest.version == 0


def test_a_change_of_a_branch_that_did_not_go_on_is_a_noop_where_it_was_made_as_well() -> None:
    """a's log stays as it is and b's comes behind it (Simple); what a's change had decided is decided anew."""
    cluster = Cluster("ab", idle_interval_ms=100, max_peer_lag_ms=800, key_retention_ms=1).founded()
    prefer(cluster, "Simple")
    cluster.submit("a", "before")
    cluster.run(300)
    cluster.cut = {("a", "b"), ("b", "a")}
    cluster.run(2000)
    back_up(cluster, "a", "b")
    run_until_in_view(cluster, "a")
    run_until_in_view(cluster, "b")
    longer = msgspec.structs.replace(configuration(cluster, "a"), key_retention_ms=60_000)
    assert isinstance(change(cluster, "a", longer), SubmissionAccepted)
    cluster.submit("a", "y", key="once")
    cluster.run(300)
    assert configuration(cluster, "a").key_retention_ms == 60_000
    cluster.run(2000)
    muted = change(cluster, "b", with_role(configuration(cluster, "b"), "a", MUTED))
    assert isinstance(muted, SubmissionAccepted)
    cluster.submit("b", "y", key="once")
    cluster.submit("b", "z")
    cluster.run(300)
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b")
    assert_same_logs(cluster, 6)
    for again in (False, True):
        if again:
            cluster.crash("a")
            cluster.start("a")
            run_until_in_view(cluster, "a", "b")
        mine, its = cluster.core("b").log_state, cluster.core("a").log_state
        assert mine is not None
        assert its is not None
        assert its.configurations.entries == mine.configurations.entries
        assert its.configurations.noops == mine.configurations.noops
        assert list(mine.configurations.noops) == [2]
        assert (its.noops, mine.noops) == ({}, {})
        assert configuration(cluster, "a").master("a").role == MUTED  # type: ignore[union-attr]


def test_what_a_longer_retention_finds_forgotten_stays_forgotten() -> None:
    """The same whether the first entry with the key is still in memory or not."""
    origin = Origin("a", 1)
    for remembers in (True, False):
        keys = IdempotencyKeys(1000)
        assert keys.record_use(1, "k", FirstUse(Txid(origin, 1), 0, b"")) is None
        keys.record_use(2, "other", FirstUse(Txid(origin, 2), 1500 << LOGICAL_BITS, b""))
        if not remembers:
            keys.mark_final(2)
            keys.raise_horizon(1500 << LOGICAL_BITS)
            assert not keys.final.find(key_name("k"))
        keys.change_retention(3, 1600 << LOGICAL_BITS, 60_000)
        assert keys.record_use(4, "k", FirstUse(Txid(origin, 4), 1700 << LOGICAL_BITS, b"")) is None
        assert keys.record_use(5, "other", FirstUse(Txid(origin, 5), 9000 << LOGICAL_BITS, b"")) == Txid(origin, 2)
        late = FirstUse(Txid(Origin("b", 1), 1), 1550 << LOGICAL_BITS, b"")
        assert keys.record_use(6, "k", late) == Txid(origin, 4), "taken before the retention grew, and it comes back"
        keys.truncate(2)
        assert not keys.is_repeat(0, 1001 << LOGICAL_BITS)


def test_a_master_that_is_alone_does_not_go() -> None:
    """What nobody else has would go with it."""
    cluster = Cluster(idle_interval_ms=100, max_peer_lag_ms=1000).founded()
    remove(cluster, "a", "c")
    end_ms = cluster.now_ms + 500
    while cluster.core("c").log_state.last_own_seq == 0:  # type: ignore[union-attr]
        assert cluster.now_ms < end_ms
        cluster.run(1)
    cluster.cut |= {("c", "a"), ("c", "b"), ("a", "c"), ("b", "c")}
    cluster.run(700)
    for node in "ac":
        assert cluster.core(node).needs_split_backup
        agreement = cluster.core(node).log_state
        assert agreement is not None
        cluster.executors[node].backup_done(agreement.stable, agreement.log_index.hash_at(agreement.stable))
    run_until_in_view(cluster, "a", "b")
    run_until_in_view(cluster, "c")
    cluster.run(500)
    assert configuration(cluster, "c").removed == ["c"]
    assert not cluster.core("c").removed
    assert configuration(cluster, "a").removed == []
    cluster.cut.clear()
    run_until_removed(cluster, "c", within_ms=20_000)
    run_until_in_view(cluster, "a", "b")
    assert configuration(cluster, "a").removed == ["c"]


def test_one_that_is_lost_is_refused_when_it_comes_back() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.submit("c", "x")
    cluster.run(50)
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    now = configuration(cluster, "a")
    wanted = msgspec.structs.replace(now, masters=now.masters[:2], removed=["c"])
    assert isinstance(change(cluster, "a", wanted), SubmissionAccepted)
    cluster.run(100)
    assert cluster.core("b").state == "Joined"
    cluster.start("c")
    with pytest.raises(Fatal, match="Removed"):
        cluster.run(3000)
    assert cluster.faults["a"] == ["Removed"]
    # with an empty disk it is a stranger like any other, until it is named again
    del cluster.executors["c"]
    forget(cluster, "c")
    cluster.start("c")
    cluster.run(1000)
    assert cluster.core("c").log_state is None
    now = configuration(cluster, "b")
    again = msgspec.structs.replace(now, masters=[*now.masters, Master("c", "uk", 1)], removed=[])
    assert isinstance(change(cluster, "b", again), SubmissionAccepted)
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 3)


def test_another_clusters_master_is_refused_by_name() -> None:
    cluster, other = Cluster("ab", idle_interval_ms=100).founded(), Cluster("cd", idle_interval_ms=100).founded()
    who = build_hello(other.core("c").views)
    cluster.receive("c", "a", encode(who))
    assert cluster.faults["a"] == ["NotListed"]
    # also where its id is a master's
    who = msgspec.structs.replace(who, node="b", birth=99)
    cluster.receive("b", "a", encode(who))
    assert cluster.faults["a"] == ["NotListed", "OtherCluster"]


def test_nobody_goes_while_another_is_out_who_knows_none_of_those_that_stay() -> None:
    cluster = Cluster("ab", idle_interval_ms=100, max_peer_lag_ms=500).founded()
    cluster.crash("a")
    cluster.run(2000)
    cluster.executors["b"].backup_done(0, cluster.core("b").log_state.log_index.hash)  # type: ignore[union-attr]
    run_until_in_view(cluster, "b")
    add(cluster, "b", "c")
    begin(cluster, "c", 33)
    run_until_in_view(cluster, "b", "c")
    cluster.run(1000)  # c is heard of by b, and has waited for a
    refused = change(cluster, "c", with_role(configuration(cluster, "c"), "b", LEAVING))
    assert isinstance(refused, Conflict)
    assert "a is out of the view" in str(refused)
    cluster.start("a")
    run_until_in_view(cluster, "a", "b", "c")
    remove(cluster, "c", "b")
    run_until_removed(cluster, "b")
    run_until_in_view(cluster, "a", "c")
