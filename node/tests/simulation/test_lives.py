"""Lives that no mix of faults alone leads to: each is met, nothing is wrong, and its checkers can fail."""

from __future__ import annotations

from collections import Counter

import pytest
from compiled_runs import run

from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import KeyTaken
from txlog.model.ids import Origin, Txid
from txlog.protocol.events import DurabilityMarks, SubmissionAccepted
from txlog_simulation.checkers.clients import ClientChecker
from txlog_simulation.checkers.log import ObservedEntry
from txlog_simulation.checkers.transactions import TransactionChecker
from txlog_simulation.lives import KEY_RETENTION_MS, LIVES, SLEEP_MS, draw_run
from txlog_simulation.lost_disks import DiskCopy
from txlog_simulation.run_plan import draw_plan
from txlog_simulation.simulation import Simulation
from txlog_simulation.submissions import build_submission
from txlog_simulation.violation import ViolationLog

A, B = Origin("a", 1), Origin("b", 2)
MET = {
    "clocks-and-keys": ("clock jump", "client's retry"),
    "flow": ("all at work while clients write",),
    "liar": ("message of a liar", "ended by name"),
    "loop": (
        "client disconnects",
        "slow fsync",
        "sync in the thread",
        "sync on the loop",
        "answered by a task",
        "answered in the turn",
        "too many requests",
        "view changes under waiting clients",
        "waited until durable",
    ),
    "lone": ("lose-all", "older copy put back", "ended by name", "told synced", "store of another cluster refused"),
    "old": ("begun old and trimmed", "idempotency key repeated", "segments removed", "told applied-all"),
    "retries": (
        "client's retry",
        "client sends again",
        "client gave up waiting",
        "sleep",
        "told quorum",
        "told applied",
    ),
    "synchronous": (
        "answered committed",
        "answered rolled-back",
        "commit",
        "decided by another one",
        "isolated with a decision",
        "rollback",
        "synchronous effect",
    ),
}
"""By life: what some of its seeds come to."""
SEEDS = {"old": 12}
"""Of a life whose seeds take seconds; 30 of the others."""
LONG = ("old", "synchronous")
"""Lives that ``make simulate`` meets in shorter time, compiled."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "life", [pytest.param(life, marks=[pytest.mark.long] * (life in LONG)) for life in sorted(LIVES)]
)
def test_no_violation_and_a_life_meets_what_it_is_for(life: str) -> None:
    met: Counter[str] = Counter()
    for seed in range(SEEDS.get(life, 30)):
        result = run(draw_run(seed, life))
        assert not result.violations, f"python -m txlog_simulation --seeds 1 --start {seed} --profile {life} --trace"
        assert result.profile == life
        met += result.coverage
    assert [name for name in MET[life] if not met[name]] == []


@pytest.mark.parametrize("life", sorted(LIVES))
def test_a_seed_of_a_life_has_one_trace(life: str) -> None:
    one, other = (run(draw_run(9_000, life), trace=True) for _ in range(2))
    assert one.trace == other.trace
    assert len(one.trace) > 30


def test_most_seeds_are_of_no_life_and_each_life_has_some() -> None:
    drawn = [draw_run(seed) for seed in range(1500)]
    profiles = Counter(plan.profile for plan in drawn)
    assert set(LIVES) <= set(profiles)
    assert sum(profiles[life] for life in LIVES) < 400
    assert all(plan == draw_plan(plan.seed) for plan in drawn if plan.profile not in LIVES)


class Clients:
    """A checker of clients, and what it found."""

    def __init__(self) -> None:
        self.findings = ViolationLog()
        self.checker = ClientChecker(draw_run(0, "retries"), self.findings, TransactionChecker(self.findings))
        self.write = build_submission("x", "k")

    def answered(self, origin: Origin, seq: int, at_ms: int, *, repeat: bool = False, text: str = "x") -> None:
        answer = SubmissionAccepted(Txid(origin, seq), repeat=repeat)
        self.checker.on_answers(origin, [build_submission(text, "k")], [answer], at_ms)

    def log(self, *txids: Txid, counts_instead: Txid | None = None) -> list[ObservedEntry]:
        content = self.write.content
        entries = [ObservedEntry(txid, 1 + at, content, "k", KIND_UPDATE, 1) for at, txid in enumerate(txids)]
        return [entries[0], *(entry._replace(counts_instead=counts_instead) for entry in entries[1:])]

    @property
    def said(self) -> str:
        return "; ".join(v.text for v in self.findings.violations)


def test_a_retry_is_answered_with_the_transaction_that_it_repeats() -> None:
    clients = Clients()
    clients.answered(A, 1, 100)
    clients.answered(B, 1, 120, repeat=True)
    assert "b.0000000000000002.1, which no master has taken" in clients.said
    clients = Clients()
    clients.answered(A, 1, 100)
    clients.checker.on_answers(B, [build_submission("y", "k")], [SubmissionAccepted(Txid(A, 1), repeat=True)], 110)
    assert "another body" in clients.said


def test_a_key_is_refused_only_where_another_body_came_under_it() -> None:
    clients = Clients()
    clients.answered(A, 1, 100)
    clients.checker.on_answers(B, [clients.write], [KeyTaken("no")], 110)
    assert "nobody sent it with another body" in clients.said
    clients = Clients()
    clients.answered(A, 1, 100)
    clients.checker.on_answers(B, [build_submission("y", "k")], [KeyTaken("no")], 110)
    assert not clients.said


def test_a_retry_that_comes_after_the_retention_is_a_transaction_of_its_own() -> None:
    clients = Clients()
    clients.answered(A, 1, 100)
    clients.checker.check_age_of_repeat("a", Txid(A, 1), 100 + KEY_RETENTION_MS)
    assert not clients.said
    clients.checker.check_age_of_repeat("a", Txid(A, 1), 100 + SLEEP_MS)
    assert "swallows k" in clients.said


def test_two_copies_that_were_sent_within_the_retention_take_effect_once() -> None:
    clients = Clients()
    clients.answered(A, 1, 100)
    clients.answered(B, 1, 200)
    clients.checker.check_final(clients.log(Txid(A, 1), Txid(B, 1), counts_instead=Txid(A, 1)))
    assert not clients.said
    clients.checker.check_final(clients.log(Txid(A, 1), Txid(B, 1)))
    assert "takes effect twice" in clients.said


def test_what_a_client_was_told_of_has_taken_effect() -> None:
    clients = Clients()
    clients.answered(A, 1, 100)
    clients.checker.on_told(Txid(A, 1), clients.write.content)
    clients.checker.check_final(clients.log(Txid(A, 1)))
    assert not clients.said
    clients.checker.on_told(Txid(B, 7), clients.write.content)
    clients.checker.check_final(clients.log(Txid(A, 1)))
    assert "nothing took effect" in clients.said


def test_what_is_durable_under_a_txid_is_what_its_client_was_answered_for() -> None:
    clients = Clients()
    clients.answered(A, 1, 100)
    clients.checker.on_persisted(Txid(A, 1), "k", KIND_UPDATE, clients.write.content)
    assert not clients.said
    clients.checker.on_persisted(Txid(A, 1), "k", KIND_UPDATE, build_submission("y", "k").content)
    assert "another body" in clients.said


def test_an_older_copy_is_told_from_the_disk_by_what_a_supervisor_saw_or_a_client_was_answered() -> None:
    master = Simulation(draw_run(525108), False, None).simulated_masters[0]
    master.origin, master.last_member = A, (A.birth, 1)
    made_in_start_2 = DiskCopy({}, 2, None)
    assert not made_in_start_2.is_outdated(master), "start 3 did nothing, and no supervisor saw it"
    master.last_member = (A.birth, 3)
    assert made_in_start_2.is_outdated(master), "a supervisor saw start 3"
    master.last_member = (A.birth, 1)
    master.world.acknowledgements.released_marks[A] = DurabilityMarks(1, 1, 1, 1, 1)
    assert made_in_start_2.is_outdated(master), "start 3 told a client"


WRONG_IN_A_LIFE = {
    81006: "a transaction of a master without a name was stored, and a start could not read it",
    62588: "a peer answered with a transaction that no view named, and its old stamp ended the process",
    49421: "a process that crashed in a sync, while it was stopped in order, went on as if that sync was done",
    25146: "a proposal to found a cluster on a base that no log has ended the process",
    29865: "a worker beyond the log of its master counted for what that master ordered alone after a split",
    2043175: "an order founded the cluster, and a proposal to found it with all came to one that followed it",
    2055624: "a founding lost its disk, and clients wrote while an operator had to order another one",
    2080656: "zeros whose fsync had failed were read, and old records behind the end came back with a loss of power",
    2099317: "an old disk gave numbers again while the one who held them was away, who named the fork",
    2090455: "two bytes of its hash took one body for another whose transaction the log start had passed",
    414709: "a worker beyond the log of its master was taken for one that has executed it",
    427508: "a worker on another branch counted among those that have executed a transaction",
    2014016: "keys were taken without an age, and took effect twice behind a long sleep",
    2006332: "a view of None offered what was not stable, and one of Simple cut it off",
    2007884: "a flipped last record lost the seals behind it with the power, and the supervisor knew a later start",
    331: "a key that a master took without a view began to age with the next one, and took effect twice",
    355: "first stamps came from a clock of another year, and one key took effect twice",
    527417: "a false run entered the queue behind a log that had passed its stamp, and ended the process",
    510701: "two bytes of its hash took one body under a key for another",
    511375: "a data centre whose workers nothing was known of did not count among all workers",
    519194: "a second cluster that could not know of the first emptied the store of a worker of the first",
    525108: "a master took work on a copy of its disk that lacked the number of a start that no other process had seen",
    400428: "a worker beyond the end of a log that a split had parted counted as one that had executed it",
    501834: "a master fetched what it lacked of each incarnation in a round trip of its own",
    514332: "a join took a round trip for each disk that the cluster had ever had",
    662994997412: "a join over a slow link took as long as the cluster was old",
    662995002205: "a join over a slow link took as long as the cluster was old",
}
"""Seeds of lives that once violated a rule."""


@pytest.mark.parametrize("seed", WRONG_IN_A_LIFE)
def test_what_was_wrong_once_in_a_life_is_right(seed: int) -> None:
    assert not run(draw_run(seed)).violations, WRONG_IN_A_LIFE[seed]
