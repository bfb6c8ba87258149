"""A member that is silent for more than half of the last four terms is excluded, though no single silence is a term."""

from __future__ import annotations

import pytest
from changing_views import back_up, in_view, prefer
from core_cluster import Cluster

from txlog.model.records import ViewAccepted
from txlog.protocol.replication.failure_detector import SILENCES_MAX, FailureDetector

LINKS = {("c", "a"), ("a", "c"), ("c", "b"), ("b", "c")}
TERM_MS = 3000
HEARD_MS = 400


def flap(cluster: Cluster, silent_ms: int, times: int, backup_in_silence: int) -> bool:
    """c is silent and heard again, several times; whether a and b continue without it meanwhile. A split backup is
    finished in one of the silences."""
    for number in range(times):
        cluster.cut |= LINKS
        end_ms = cluster.now_ms + silent_ms
        while cluster.now_ms < end_ms:
            cluster.run(50)
            if number == backup_in_silence and cluster.core("a").views.backup_index < 0:
                cluster.run(700)  # so long the backup takes
                back_up(cluster, "a", "b")
            if continued_without_c(cluster):
                return True
        cluster.cut -= LINKS
        cluster.run(HEARD_MS)
    return continued_without_c(cluster)


def continued_without_c(cluster: Cluster) -> bool:
    views = [record.view for record in cluster.journals["a"].records if isinstance(record, ViewAccepted)]
    return any(view.member("c") is None for view in views)


@pytest.mark.parametrize("backup_in_silence", [1, 2, 3])
def test_a_flapping_member_does_not_stop_the_log(backup_in_silence: int) -> None:
    """No silence is as long as the term. The backup is of an earlier silence, which adds up with this one."""
    cluster = Cluster("abc", max_peer_lag_ms=TERM_MS, idle_interval_ms=200).founded()
    assert flap(cluster, TERM_MS - 300, 6, backup_in_silence)
    cluster.submit("a", "x")
    cluster.run(300)
    assert cluster.marks["a"].synced == 1


def test_rule_23_silence_that_adds_up_needs_a_backup_too() -> None:
    cluster = Cluster("abc", max_peer_lag_ms=TERM_MS, idle_interval_ms=200).founded()
    assert not flap(cluster, TERM_MS - 300, 8, backup_in_silence=-1)


def test_rule_23_a_backup_is_needed_while_silence_adds_up_and_kept_until_it_does_not() -> None:
    """A backup may take longer than any of the silences."""
    cluster = Cluster("abc", max_peer_lag_ms=TERM_MS, idle_interval_ms=200).founded()
    a = cluster.core("a")
    assert not flap(cluster, TERM_MS - 300, 1, backup_in_silence=-1)
    assert not a.needs_split_backup, "one short silence that is over"
    assert not flap(cluster, TERM_MS - 300, 1, backup_in_silence=-1)
    assert a.silent_members == []
    assert a.needs_split_backup
    back_up(cluster, "a", "b")
    cluster.run(500)
    assert a.views.backup_index == 0
    assert not a.needs_split_backup
    cluster.run(4 * TERM_MS)
    assert a.views.backup_index == -1, "the next split needs a backup of its own"
    assert not a.needs_split_backup


def test_a_member_that_is_heard_for_half_of_the_time_stays() -> None:
    cluster = Cluster("abc", max_peer_lag_ms=TERM_MS, idle_interval_ms=200).founded()
    for _ in range(8):
        assert not flap(cluster, 1200, 1, backup_in_silence=0)
        cluster.run(1600)


def test_a_flapping_member_is_excluded_by_a_majority() -> None:
    """The term is three round time-outs there, 1,200 ms."""
    cluster = Cluster("abc", idle_interval_ms=200, majority=True).founded()
    assert flap(cluster, 1100, 6, backup_in_silence=-1)


def test_a_flapping_member_is_excluded_under_none() -> None:
    cluster = Cluster("abc", none_split_delay_ms=TERM_MS, idle_interval_ms=200).founded()
    prefer(cluster, "None")
    assert flap(cluster, TERM_MS - 300, 6, backup_in_silence=-1)


def test_a_member_that_comes_back_begins_with_no_silence() -> None:
    cluster = Cluster("abc", max_peer_lag_ms=TERM_MS, idle_interval_ms=200).founded()
    assert flap(cluster, TERM_MS - 300, 6, backup_in_silence=2)
    cluster.cut -= LINKS
    cluster.run(4000)
    assert in_view(cluster, "a", "b", "c")
    detector = cluster.core("a").failure_detector
    assert detector.silent_ms_within("c", 4 * TERM_MS) == 0


# The failure detector alone

ROUND_MS = 400


def detect(around: FailureDetector, for_ms: int, heard: bool) -> None:
    for at_ms in range(around.now_ms, around.now_ms + for_ms, 40):
        around.tick(at_ms)
        if heard:
            around.on_message("b")
            around.on_direct_peers("b", [around.node])


def test_silences_are_counted_from_the_last_message() -> None:
    around = FailureDetector("a", ROUND_MS, 0)
    detect(around, 1000, heard=True)
    assert around.silent_ms_within("b", 10_000) == 0
    detect(around, 1000, heard=False)
    assert around.is_silent("b")
    detect(around, 1000, heard=True)
    assert not around.is_silent("b")
    assert 900 <= around.silent_ms_within("b", 10_000) <= 1200
    assert around.silent_ms_within("b", 500) == 0, "it was before that"


def test_a_pause_shorter_than_the_round_timeout_is_no_silence() -> None:
    around = FailureDetector("a", ROUND_MS, 0)
    for _ in range(20):
        detect(around, 120, heard=True)
        detect(around, 320, heard=False)
    assert around.silent_ms_within("b", 100_000) == 0


def test_the_silences_that_are_kept_are_bounded_and_their_sum_stays() -> None:
    around = FailureDetector("a", ROUND_MS, 0)
    rounds = SILENCES_MAX + 50
    for _ in range(rounds):
        detect(around, 200, heard=True)
        detect(around, 800, heard=False)
    found = around.silent_ms_within("b", 1 << 40)
    assert 700 * rounds <= found <= 900 * rounds
    assert len(around._silences["b"]) <= SILENCES_MAX


def test_rule_14_a_process_that_stood_still_counts_no_silence_before() -> None:
    around = FailureDetector("a", ROUND_MS, 0)
    detect(around, 200, heard=True)
    detect(around, 2000, heard=False)
    around.tick(around.now_ms + 60_000)
    assert around.silent_ms_within("b", 1 << 40) == 0
