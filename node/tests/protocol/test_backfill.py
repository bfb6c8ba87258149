"""How a master fetches what it lacks of many origins: in few round trips, from one holder after the other (rule 32)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from changing_views import assert_same_logs, forget, in_view
from core_cluster import Cluster
from lone_member import CONFIGURED, FIRST, VIEW, A, C, Lone, base, held
from test_trimming import BACKUP, cluster_with, place, trim, write

from txlog.model.bounds import SLOTS_MAX
from txlog.model.entry import Span
from txlog.model.errors import PeerFault
from txlog.model.view import Member, View
from txlog.protocol.views.backfill import ANSWER_ROUNDS_MAX
from txlog.wire import messages as wire
from txlog.wire.messages import FetchRuns, RunsReply

FAR_MS = 60
LOST_DISKS = 30
OLD_ORIGINS = [("d", 1000 + birth) for birth in range(200)]
AGED = View(2, 1, "c", [C], VIEW.cluster_id, 0, base(), [*VIEW.origins, *OLD_ORIGINS], [VIEW.number])
"""c has gone on, in a log of many origins."""
SEQS = [0, 0, 0, *[2] * len(OLD_ORIGINS)]
REPEAT_MS = 100
"""``ProtocolSettings.repeat_ms`` of a lone member."""


class CountedCluster(Cluster):
    """``requests``: of each master, the requests for transactions. ``older``: these read one span of a request."""

    older = ""

    def __init__(self, nodes: str = "abc", **settings: Any) -> None:
        self.requests = dict.fromkeys(nodes, 0)
        super().__init__(nodes, idle_interval_ms=200, round_timeout_ms=600, **settings)

    def receive(self, source: str, target: str, data: bytes) -> None:
        message = wire.decode(source, data)
        if isinstance(message, FetchRuns):
            self.requests[source] += 1
            if target in self.older:
                data = wire.encode(msgspec.structs.replace(message, more=[]))
        super().receive(source, target, data)


def replace_disk(cluster: CountedCluster, birth: int) -> int:
    """c loses its disk. Returns the milliseconds until all work in one view again."""
    cluster.crash("c")
    forget(cluster, "c", birth=birth)
    cluster.start("c")
    began_ms = cluster.now_ms
    while not in_view(cluster, "a", "b", "c"):
        assert cluster.now_ms < began_ms + 10_000, cluster.core("c").state
        cluster.run(20)
    return cluster.now_ms - began_ms


def grown_old(cluster: CountedCluster, lost_disks: int) -> int:
    """Each incarnation of c makes two transactions. Returns how many there are."""
    cluster.latency_ms = 1
    for birth in range(1000, 1000 + lost_disks):
        cluster.submit("c", "x", "y")
        cluster.run(100)
        replace_disk(cluster, birth)
    cluster.submit("c", "x", "y")
    cluster.run(500)
    cluster.requests["c"] = 0
    return 2 * (lost_disks + 1)


def test_a_join_takes_as_long_in_an_old_cluster_as_in_a_young_one() -> None:
    """What a cluster had of disks costs no round trip each."""
    took: dict[int, tuple[int, int]] = {}
    for lost_disks in (1, LOST_DISKS):
        cluster = CountedCluster().founded()
        count = grown_old(cluster, lost_disks)
        cluster.latency_ms = FAR_MS
        took_ms = replace_disk(cluster, 5000)
        took[lost_disks] = cluster.requests["c"], took_ms
        assert_same_logs(cluster, count)
    (few, young_ms), (requests, old_ms) = took.values()
    assert requests <= few, took
    assert old_ms <= young_ms + 2 * FAR_MS, took


def test_a_master_joins_where_older_ones_answer_one_span_of_a_request() -> None:
    cluster = CountedCluster().founded()
    count = grown_old(cluster, 6)
    cluster.older = "ab"
    replace_disk(cluster, 5000)
    assert cluster.requests["c"] >= 6
    assert_same_logs(cluster, count)


@pytest.mark.parametrize("limit", ["frame_items_max", "frame_bytes_max"])
def test_an_answer_is_one_frame_and_the_rest_is_requested_at_once(limit: str) -> None:
    """Two transactions of a byte each fit a frame, or three: also when a request names more."""
    cluster = CountedCluster(**{limit: 3}).founded()
    count = grown_old(cluster, 6)
    answers: list[int] = []
    receive = cluster.receive

    def counted(source: str, target: str, data: bytes) -> None:
        message = wire.decode(source, data)
        if isinstance(message, RunsReply) and target == "c":
            answers.append(sum(len(run.items) for run in message.runs))
        receive(source, target, data)

    cluster.receive = counted  # type: ignore[method-assign]
    replace_disk(cluster, 5000)
    assert answers
    assert max(answers) == 3
    assert_same_logs(cluster, count)


def aged_member(*others: str) -> Lone:
    """b knows of a newer view whose log has many origins. These masters reported it."""
    b = Lone([*FIRST, held(A, 1, 10)])
    for node in others or ("c",):
        birth = {"a": 1, "c": 3}[node]
        b.receive(node, wire.HelloReply(node, birth, 1, list(CONFIGURED), [], AGED, True, SEQS))
    b.said.clear()
    return b


def requests_of(b: Lone) -> list[tuple[str, FetchRuns]]:
    found = [(peer, message) for peer, message in b.said if isinstance(message, FetchRuns)]
    b.said.clear()
    return found


def named(request: FetchRuns) -> list[Span]:
    return [request.span, *request.more]


def answer(*origins: tuple[str, int], first: int = 1, count: int = 2) -> RunsReply:
    stamps = [20 + first + n for n in range(count)]
    return RunsReply([held(Member(*one, 1, "uk"), first, *stamps).run for one in origins], AGED.number)


def test_one_request_names_what_is_missing_of_every_origin() -> None:
    b = aged_member()
    b.pass_ms(1)
    ((peer, request),) = requests_of(b)
    assert peer == "c"
    assert named(request) == [Span(*origin, 1, 2) for origin in OLD_ORIGINS]
    b.receive("c", answer(*OLD_ORIGINS[:3]))
    b.pass_ms(1)
    ((_, request),) = requests_of(b)
    assert named(request) == [Span(*origin, 1, 2) for origin in OLD_ORIGINS[3:]]


def test_a_holder_that_does_not_answer_is_followed_by_the_next() -> None:
    """What it holds, others hold, too: its silence, however long, stops no join."""
    b = aged_member("a", "c")
    asked: list[str] = []
    for _ in range(60):
        b.pass_ms(20)
        asked += [peer for peer, _ in requests_of(b)]
    assert asked[:3] == ["a", "c", "a"]


def test_a_holder_that_has_nothing_is_followed_by_the_next_at_once() -> None:
    """A change of views ends before a wait does: then the same holder would be asked in every one of them. After an
    answer of each, the requests become rarer: they must not go round as fast as the links do."""
    b = aged_member("a", "c")
    asked: list[tuple[int, str]] = []
    began_ms = b.mono
    while b.mono < began_ms + 20 * REPEAT_MS:
        b.pass_ms(10)
        for peer, _ in requests_of(b):
            asked.append((b.mono - began_ms, peer))
            b.receive(peer, RunsReply([], AGED.number))
            b.receive(peer, RunsReply([], AGED.number))
    assert [peer for _, peer in asked[:4]] == ["a", "c", "a", "c"]
    times = [at for at, _ in asked[:4]]
    assert times[1] - times[0] <= 10
    assert times[2] - times[1] >= REPEAT_MS
    assert times[3] - times[2] <= 10
    assert len(asked) < 14


def times_of_requests(b: Lone, for_ms: int) -> list[int]:
    began_ms, times = b.mono, []
    while b.mono < began_ms + for_ms:
        b.pass_ms(10)
        times += [b.mono - began_ms for _ in requests_of(b)]
    return times


def test_a_request_without_an_answer_is_repeated_soon_and_then_less_often() -> None:
    b = aged_member()
    times = times_of_requests(b, 10_000)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[:4] == [REPEAT_MS, 2 * REPEAT_MS, 4 * REPEAT_MS, 8 * REPEAT_MS]
    longest_ms = ANSWER_ROUNDS_MAX * b.core.settings.round_timeout_ms
    assert set(pauses[4:]) == {longest_ms}


def test_an_answer_on_the_way_is_not_requested_again() -> None:
    """A frame on a slow link takes as long as it takes; a copy of it would delay the next one."""
    b = aged_member()
    slow_ms = 8 * REPEAT_MS
    copies: list[int] = []
    for origin in OLD_ORIGINS[:4]:
        copies.append(len(times_of_requests(b, slow_ms)))
        b.receive("c", answer(origin))
    assert copies[0] > 2, "nothing is known of the link yet"
    assert copies[-1] == 1


def test_a_lost_request_is_repeated_soon_where_answers_come_soon() -> None:
    """Also after a time without any answer."""
    b = aged_member()
    times_of_requests(b, 10_000)
    for origin in OLD_ORIGINS[:4]:
        times_of_requests(b, 20)
        b.receive("c", answer(origin))
    assert times_of_requests(b, 2 * REPEAT_MS)[:2] == [10, 10 + REPEAT_MS]


def served(cluster: Cluster, request: FetchRuns) -> wire.Message:
    """What a answers to b."""
    a = cluster.executors["a"]
    a.receive("b", wire.encode(request), cluster.now("a"))
    answers = [wire.decode("a", data) for peer, data in a.release().messages if peer == "b"]
    (found,) = [one for one in answers if isinstance(one, RunsReply | wire.LogTruncatedBelow)]
    return found


def test_rule_17_a_request_that_is_in_part_below_the_log_start_is_answered_with_it() -> None:
    """A snapshot is needed first. What is unknown here is passed over, and nothing else for it."""
    cluster = cluster_with(10)
    log = cluster.core("a").log_state
    assert log is not None
    trim(cluster, "a", place(cluster, BACKUP, log.log_index.length))
    trimmed = log.log_index.start
    assert trimmed > 0
    write(cluster, 1)
    births = {node: cluster.core(node).views.origin.birth for node in "abc"}
    first, last = Span("b", births["b"], 1, 1), Span("c", births["c"], 11, 1)
    below = served(cluster, FetchRuns(last, [first]))
    assert isinstance(below, wire.LogTruncatedBelow)
    assert below.index == trimmed
    kept = served(cluster, FetchRuns(Span("x", 9, 1, 5), [Span("b", births["b"], 99, 1), last]))
    assert isinstance(kept, RunsReply)
    assert [(run.node, run.first_seq, len(run.items)) for run in kept.runs] == [("c", 11, 1)]


def test_an_answer_is_no_longer_than_the_holder_allows() -> None:
    cluster = Cluster("abc", frame_items_max=3).founded()
    for node in "abc":
        cluster.submit(node, "x", "y")
    cluster.run(500)
    spans = [Span(node, cluster.core(node).views.origin.birth, 1, 2) for node in "abc"]
    found = served(cluster, FetchRuns(spans[0], spans[1:]))
    assert isinstance(found, RunsReply)
    assert [(run.node, len(run.items)) for run in found.runs] == [("a", 2), ("b", 1)]


def test_a_request_with_more_spans_than_a_log_has_origins_is_malformed() -> None:
    spans = [Span("a", 1, 1, 1)] * (SLOTS_MAX + 1)
    assert named(_decoded(FetchRuns(spans[0], spans[1:]))) == spans
    with pytest.raises(PeerFault, match="Malformed"):
        _decoded(FetchRuns(spans[0], spans))


def _decoded(request: FetchRuns) -> FetchRuns:
    message = wire.decode("a", wire.encode(request))
    assert isinstance(message, FetchRuns)
    return message
