"""Whole masters with synchronous transactions: who may decide, what takes effect, and what clients hear."""

from __future__ import annotations

from typing import Any

import pytest
from core_cluster import Cluster, update

from txlog.model.durability import Durability
from txlog.model.errors import Conflict, Refused, Unavailable
from txlog.model.ids import Txid
from txlog.model.quorum import ALL, MAJORITY, Quorum
from txlog.model.synchronous_entry import KIND_DECISION, KIND_SYNCHRONOUS_UPDATE
from txlog.protocol.events import Submission, SubmissionAccepted
from txlog.protocol.replication.post_schedule import AWAITING_REPLY_INTERVAL_MS
from txlog.protocol.views.decision_writer import DECISION_DELAY_MS, DECISION_GATHER_MS
from txlog.protocol.views.decisions import SynchronousAnswer, find_answer


def synchronous(text: str, key: str = "", quorum: str = "N/2+1", timeout_ms: int = 30_000) -> Submission:
    return update(text, f"{quorum} {timeout_ms} {key}", KIND_SYNCHRONOUS_UPDATE)


class SynchronousCluster(Cluster):
    def at_work(self) -> SynchronousCluster:
        self.founded()
        self.run(2000)
        return self

    def take(self, node: str, text: str, **terms: Any) -> Txid:
        answer = self.ask(node, synchronous(text, **terms))
        assert isinstance(answer, SubmissionAccepted), answer
        return answer.txid

    def refusal(self, node: str, text: str, **terms: Any) -> Refused:
        answer = self.ask(node, synchronous(text, **terms))
        assert isinstance(answer, Refused), answer
        return answer

    def answer(self, node: str, txid: Txid, level: Durability = Durability.SYNCED) -> SynchronousAnswer | None:
        log = self.core(node).log_state
        assert log is not None
        progress = self.core(node).synchronous_progress(txid, log.stable, log.stable, asks_quorum=True)
        return find_answer(level, progress) if progress is not None else None

    def effects(self, node: str) -> list[str]:
        """What a worker of the master would execute, in order."""
        log, found = self.core(node).log_state, list[str]()
        assert log is not None
        for index in range(1, log.stable + 1):
            span = log.log_index.spans(index - 1, index)[0]
            item = self.journals[node].read(span.node, span.birth, span.first_seq, 1, 1).items[0]
            if item.kind == KIND_DECISION:
                repeats = log.synchronous.repeats_at(index)
                names = log.synchronous.committed_at(index, item.key, log.log_index)
                found += [self._text(node, txid) for txid in names if txid not in repeats]
            elif item.kind == KIND_SYNCHRONOUS_UPDATE and log.synchronous.is_passed_over(index, item.kind):
                continue
            elif index not in log.noops and item.payload:
                found.append(item.payload.decode())
        return found

    def _text(self, node: str, txid: Txid) -> str:
        return str(self.journals[node].read(*txid.origin, txid.seq, 1, 1).items[0].payload.decode())

    def split(self, side: str) -> None:
        other = [node for node in self.journals if node not in side]
        self.cut |= {pair for a in side for b in other for pair in ((a, b), (b, a))}

    def join(self) -> None:
        self.cut.clear()

    def backed_up(self, side: str) -> None:
        """The workers of these masters are backed up where they are, so that the side may go on."""
        for node in side:
            log = self.core(node).log_state
            assert log is not None
            self.executors[node].backup_done(log.stable, log.log_index.hash_at(log.stable))


def cluster(nodes: str = "abcde", **settings: Any) -> SynchronousCluster:
    return SynchronousCluster(nodes, synchronous=True, max_peer_lag_ms=1000, idle_interval_ms=150, **settings).at_work()


def test_the_first_anchor_is_made_by_a_view_of_every_configured_master() -> None:
    masters = cluster("abc")
    for node in "abc":
        view = masters.core(node).view
        assert view is not None
        assert view.is_quorate
        assert view.anchor is not None
        assert [master.node for master in view.anchor.electorate] == ["a", "b", "c"]
        assert masters.core(node).synchronous_status is not None


def test_without_the_setting_no_view_has_an_anchor_and_nothing_synchronous_is_taken() -> None:
    masters = SynchronousCluster("abc").at_work()
    view = masters.core("a").view
    assert view is not None
    assert view.anchor is None
    refused = masters.refusal("a", "x")
    assert isinstance(refused, Unavailable)
    assert refused.reason == "NoQuorum"
    assert masters.core("a").synchronous_status is None


def test_it_takes_effect_at_its_commit_on_every_master() -> None:
    masters = cluster()
    txid = masters.take("a", "one")
    masters.submit("b", "two")
    masters.run(3000)
    for node in "abcde":
        assert masters.answer(node, txid) is SynchronousAnswer.COMMITTED
        assert sorted(masters.effects(node)) == ["one", "two"]
        assert masters.effects(node) == masters.effects("a")


def test_a_minority_refuses_it_and_goes_on_with_all_else() -> None:
    masters = cluster()
    masters.split("ab")
    masters.run(600)
    masters.backed_up("abcde")
    masters.run(4000)
    refused = masters.refusal("a", "x")
    assert isinstance(refused, Unavailable)
    assert refused.reason == "NoQuorum"
    masters.submit("a", "ordinary")
    txid = masters.take("c", "y")
    masters.run(3000)
    assert "ordinary" in masters.effects("a")
    assert masters.answer("c", txid) is SynchronousAnswer.COMMITTED
    status = masters.core("a").synchronous_status
    assert status is not None
    assert not status.quorate
    masters.join()
    masters.run(6000)
    for node in "abcde":
        assert sorted(masters.effects(node)) == ["ordinary", "y"]
        assert masters.answer(node, txid) is SynchronousAnswer.COMMITTED


@pytest.mark.parametrize(("timeout_ms", "answer"), [(100, "rolled-back"), (60_000, "committed")])
def test_what_only_a_minority_held_is_rolled_back_when_it_is_late(timeout_ms: int, answer: str) -> None:
    masters = cluster()
    masters.split("a")
    txid = masters.take("a", "alone", timeout_ms=timeout_ms, key="k")
    masters.run(600)
    masters.backed_up("abcde")
    masters.run(4000)
    assert masters.answer("a", txid) is SynchronousAnswer.PENDING
    for node in "abcde":
        masters.wall_ms[node] += 1_000_000  # microseconds: walls stand still in these clusters
    masters.join()
    masters.run(8000)
    for node in "abcde":
        assert masters.answer(node, txid) == answer
        assert masters.effects(node) == (["alone"] if answer == "committed" else [])
    again = masters.ask("c", synchronous("alone", key="k", timeout_ms=timeout_ms))
    assert isinstance(again, SubmissionAccepted)
    assert again.is_repeat == (answer == "committed")


def test_another_member_commits_what_its_origin_cannot() -> None:
    masters = cluster()
    txid = masters.take("a", "one")
    masters.run(2)
    masters.split("a")
    masters.run(600)
    masters.backed_up("abcde")
    masters.run(6000)
    assert masters.answer("c", txid) is SynchronousAnswer.COMMITTED
    masters.join()
    masters.run(6000)
    assert masters.effects("a") == ["one"]


@pytest.mark.parametrize("awaited", [True, False])
@pytest.mark.parametrize("writes_on", [True, False])
def test_a_commit_that_no_request_awaits_goes_with_a_later_write(awaited: bool, writes_on: bool) -> None:
    """It lets the first ones pass, so that one COMMIT is of several."""
    masters = cluster("abc")
    masters.decisions_awaited = awaited
    txid = masters.take("a", "one")
    while masters.answer("a", txid, Durability.QUORUM) is not SynchronousAnswer.COMMITTED:
        masters.run(1)
    log = masters.core("a").log_state
    assert log is not None
    assert log.own.held == txid.seq + awaited
    if writes_on:
        masters.submit("a", "two")
        assert log.own.held == txid.seq + 1 + awaited, "with the first write no COMMIT goes"
        masters.run(DECISION_GATHER_MS)
        masters.submit("a", "three")
        assert log.own.held == txid.seq + 3
    masters.run(DECISION_DELAY_MS)
    assert log.own.held == txid.seq + (3 if writes_on else 1), "it waits no longer than that"


def test_the_last_one_that_a_quorum_holds() -> None:
    masters = cluster("abc")

    def held_by(quorum: Quorum) -> int:
        core = masters.core("a")
        assert core.lifecycle.state is not None
        return core.view_manager.undecided.own_seq_held_by(core.lifecycle.state, quorum)

    masters.cut |= {("c", "a")}
    txid = masters.take("a", "one")
    while masters.answer("a", txid, Durability.QUORUM) is not SynchronousAnswer.COMMITTED:
        assert held_by(MAJORITY) < txid.seq
        masters.run(1)
    assert held_by(MAJORITY) >= txid.seq
    assert held_by(ALL) < txid.seq, "what c holds is not known"
    masters.split("a")
    masters.run(600)
    masters.backed_up("abc")
    masters.run(4000)
    assert held_by(MAJORITY) == 0, "this view does not decide"


def test_a_commit_waits_for_no_answer_to_an_earlier_post() -> None:
    masters = cluster("abc")
    masters.cut |= {("c", "a")}
    txid = masters.take("a", "one")
    posts, began_ms = masters.posts["a"], masters.now_ms
    while masters.answer("a", txid, Durability.QUORUM) is not SynchronousAnswer.COMMITTED:
        masters.run(1)
    assert masters.now_ms < began_ms + AWAITING_REPLY_INTERVAL_MS
    assert masters.posts["a"] == posts + 2, "to b, and to c, whose answer is still on its way"


def test_a_lone_master_needs_no_message_to_go_on() -> None:
    masters = cluster("a")
    txid = masters.take("a", "one")
    masters.run(5)
    assert masters.answer("a", txid) is SynchronousAnswer.COMMITTED
    assert masters.effects("a") == ["one"]


def test_a_restart_changes_nothing_of_it() -> None:
    masters = cluster("abc")
    txid = masters.take("a", "one", key="k")
    masters.run(2000)
    masters.split("a")
    pending = masters.take("a", "two")
    masters.crash("a")
    masters.start("a")
    masters.run(600)
    assert masters.answer("a", txid) is not SynchronousAnswer.ROLLED_BACK
    assert masters.answer("a", pending) is SynchronousAnswer.PENDING
    masters.join()
    masters.run(4000)
    for node in "abc":
        assert masters.effects(node) == ["one", "two"]


def test_too_many_undecided_ones_are_refused() -> None:
    masters = cluster("abc", synchronous_transactions_max=2)
    masters.split("a")
    masters.take("a", "one")
    masters.take("a", "two")
    refused = masters.refusal("a", "three")
    assert isinstance(refused, Unavailable)
    assert refused.reason == "SynchroFull"


def test_it_is_refused_where_its_quorum_does_not_answer() -> None:
    masters = cluster()
    masters.split("ab")
    masters.run(600)
    refused = masters.refusal("a", "x")
    assert isinstance(refused, Unavailable)
    assert "2 of 5 votes are here, N/2+1 needs 3" in str(refused)
    assert masters.refusal("c", "x", quorum="all").args[0].startswith("3 of 5 votes are here, all needs 5")
    masters.take("c", "x")


def test_it_is_refused_where_one_master_of_three_has_half_of_the_votes() -> None:
    """Without it, no view is quorate again."""
    masters = cluster("abc", heavy="b")
    refused = masters.refusal("a", "x")
    assert isinstance(refused, Unavailable)
    assert refused.reason == "NoQuorum"
    assert "b has half of the votes" in str(refused)


def test_no_anchor_is_made_while_a_configured_master_is_out() -> None:
    masters = SynchronousCluster("abcd", max_peer_lag_ms=1000, idle_interval_ms=150).at_work()
    masters.settings["synchronous"] = True
    masters.crash("d")
    for node in "ab":
        masters.crash(node)
        masters.start(node)
    masters.run(600)
    masters.backed_up("abc")
    masters.run(3000)
    view = masters.core("a").view
    assert view is not None
    assert [member.node for member in view.members] == ["a", "b", "c"]
    assert view.anchor is None
    masters.start("d")
    masters.run(4000)
    view = masters.core("a").view
    assert view is not None
    assert view.is_quorate


class OneOlder(SynchronousCluster):
    without_level = "c"


def test_no_anchor_is_made_with_an_older_program() -> None:
    masters = OneOlder("abc", max_peer_lag_ms=1000, idle_interval_ms=150).at_work()
    masters.settings["synchronous"] = True
    masters.crash("a")
    masters.start("a")
    masters.crash("b")
    masters.run(600)
    masters.backed_up("ac")
    masters.run(3000)
    masters.start("b")
    masters.run(3000)
    view = masters.core("a").view
    assert view is not None
    assert [member.node for member in view.members] == ["a", "b", "c"]
    assert view.anchor is None


def test_a_master_of_an_older_program_is_not_let_into_a_cluster_with_an_anchor() -> None:
    masters = cluster("abc")
    masters.crash("c")
    masters.run(600)
    masters.backed_up("ab")
    masters.run(3000)
    masters.without_level = "c"
    masters.start("c")
    masters.run(3000)
    assert "OlderProgram" in masters.faults["a"]
    view = masters.core("a").view
    assert view is not None
    assert [member.node for member in view.members] == ["a", "b"]


def test_the_log_is_not_trimmed_below_what_is_open_where_it_is_served_from() -> None:
    masters = cluster("abc")
    for text in ("one", "two", "three"):
        masters.submit("b", text)
    masters.run(1500)
    masters.split("c")
    txid = masters.take("a", "waits", quorum="N/2+1")
    masters.join()
    masters.run(3000)
    log = masters.core("a").log_state
    assert log is not None
    effects, own = log.synchronous, log.log_index.index_of(txid.origin, txid.seq)
    commit = effects.effect_index(txid)
    assert own < commit
    assert effects.log_start_for(own - 1) == own - 1
    assert effects.log_start_for(own) == own - 1
    assert effects.log_start_for(commit) == commit


def test_none_holds_no_order_so_nothing_synchronous_is_taken() -> None:
    masters = SynchronousCluster("abc", synchronous=True, strategy="None").at_work()
    view = masters.core("a").view
    assert view is not None
    assert view.anchor is None
    refused = masters.refusal("a", "x")
    assert isinstance(refused, Unavailable)
    assert refused.reason == "SynchroNone"


@pytest.mark.parametrize("told", ["a", "b"])
def test_votes_that_are_lost_for_good_can_be_given_up(told: str) -> None:
    """Whichever master is told."""
    masters = cluster()
    with pytest.raises(Conflict, match="no vote is missing"):
        masters.core("a").give_up_votes(["e"])
    txid = masters.take("a", "one")
    masters.run(1000)
    for node in "cde":
        masters.crash(node)
    masters.run(600)
    masters.backed_up("ab")
    masters.run(4000)
    assert masters.refusal("a", "x").name == "Unavailable"
    with pytest.raises(Conflict, match="b answers"):
        masters.core("a").give_up_votes(["b", "c"])
    with pytest.raises(Conflict, match="f has no vote"):
        masters.core("a").give_up_votes(["f"])
    masters.executors[told].give_up_votes(["c", "d", "e"])
    masters.run(3000)
    view = masters.core("b").view
    assert view is not None
    assert view.is_quorate
    assert view.anchor is not None
    assert [master.node for master in view.anchor.electorate] == ["a", "b"]
    later = masters.take("b", "two")
    masters.run(2000)
    assert masters.answer("a", later) is SynchronousAnswer.COMMITTED
    assert masters.answer("b", txid) is SynchronousAnswer.COMMITTED
    assert masters.effects("a") == ["one", "two"]
