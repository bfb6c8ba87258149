"""The core against the seed's algorithm, word for word (rules 10, 12, 14)."""

from __future__ import annotations

from random import Random

import pytest
from core_cluster import Cluster, update
from hypothesis import given, settings
from hypothesis import strategies as st

from txlog.model.entry import KIND_UPDATE, RunItem, Span, TransactionRun
from txlog.model.hashes import HASH_BYTES, chain_hash, chain_start, origin_tag
from txlog.model.ids import Origin
from txlog.model.records import CounterCeiling, LogAppended, Record, TransactionsPersisted, ViewAccepted, ViewInstalled
from txlog.model.view import Member, bootstrap_view
from txlog.protocol.core import Core
from txlog.protocol.events import ClockReading, ConfiguredMember, ProtocolSettings
from txlog.wire.messages import Post, ReplicaState
from txlog_simulation.reference_journal import recovered_state
from txlog_simulation.reference_model import ReferenceNode, ReferenceTransaction, common_prefix

NODES = "abcde"


@st.composite
def rounds(draw: st.DrawFn) -> tuple[int, list[list[int]], int, list[list[int]], list[int]]:
    """Masters, stamps of each one's transactions, length of the shared log, who holds what, counters."""
    n = draw(st.integers(2, 4))
    stamps = [sorted(draw(st.sets(st.integers(1, 25), max_size=6))) for _ in range(n)]
    order = sorted(ReferenceTransaction(stamp, NODES[o], i + 1) for o in range(n) for i, stamp in enumerate(stamps[o]))
    base = draw(st.integers(0, len(order)))
    in_log = [sum(1 for tx in order[:base] if tx.node == NODES[o]) for o in range(n)]
    held = [
        [len(stamps[o]) if o == m else draw(st.integers(in_log[o], len(stamps[o]))) for o in range(n)] for m in range(n)
    ]
    seen = [max([0, *(stamps[o][h - 1] for o, h in enumerate(held[m]) if h)]) for m in range(n)]
    counters = [s + draw(st.integers(0, 6)) for s in seen]
    return n, stamps, base, held, counters


def _whole_queue(
    stamps: list[list[int]], held: list[int], log: list[ReferenceTransaction]
) -> tuple[ReferenceTransaction, ...]:
    known = set(log)
    queue = [ReferenceTransaction(stamps[o][i], NODES[o], i + 1) for o in range(len(held)) for i in range(held[o])]
    return tuple(sorted(tx for tx in queue if tx not in known))


@settings(max_examples=300, deadline=None)
@given(rounds())
def test_the_core_adds_what_the_literal_algorithm_adds(
    case: tuple[int, list[list[int]], int, list[list[int]], list[int]],
) -> None:
    n, stamps, base, held, counters = case
    order = sorted(ReferenceTransaction(stamp, NODES[o], i + 1) for o in range(n) for i, stamp in enumerate(stamps[o]))
    log = order[:base]
    union = [len(s) for s in stamps]
    queues = [_whole_queue(stamps, union, log)] + [_whole_queue(stamps, held[m], log) for m in range(1, n)]
    own_counter = max([0, *(s[-1] for s in stamps if s), *counters])
    expected = common_prefix(queues, min([own_counter, *counters[1:]]))
    assert _core_adds(n, stamps, log, held, counters) == [(tx.node, tx.seq) for tx in expected]


def _core_adds(
    n: int, stamps: list[list[int]], log: list[ReferenceTransaction], held: list[list[int]], counters: list[int]
) -> list[tuple[str, int]]:
    members = [Member(NODES[o], o + 1, 1, "uk") for o in range(n)]
    view = bootstrap_view(1, "a", members, "Smart")

    def run(o: int, first: int, last: int) -> TransactionRun:
        items = [RunItem(stamps[o][i - 1], KIND_UPDATE, "", f"{o}.{i}".encode()) for i in range(first, last + 1)]
        return TransactionRun(NODES[o], o + 1, first, items)

    contents = {(NODES[o], i + 1): update(f"{o}.{i + 1}").content for o in range(n) for i in range(len(stamps[o]))}
    value, cells, spans = chain_start(view.cluster_id), [], []
    for tx in log:
        birth = NODES.index(tx.node) + 1
        value = chain_hash(value, tx.stamp, origin_tag(Origin(tx.node, birth)), tx.seq, contents[tx.node, tx.seq])
        cells.append(value)
        spans.append(Span(tx.node, birth, tx.seq, 1))
    records: list[Record] = [ViewAccepted(view), ViewInstalled(1, 1, "a"), CounterCeiling(counters[0])]
    for o in range(n):
        if held[0][o]:
            one = run(o, 1, held[0][o])
            records.append(TransactionsPersisted(one, b"".join(contents[NODES[o], i + 1] for i in range(held[0][o]))))
    if log:
        records.append(LogAppended(1, spans, b"".join(cells), 0))
    configured = tuple(ConfiguredMember(m.node, "uk", 1) for m in members)
    core = Core(ProtocolSettings("a", configured), recovered_state("a", 1, 1, records), ClockReading(0, 0))
    core.poll(ClockReading(0, 10_000))
    for m in range(1, n):
        claim = ReplicaState(m, m + 1, 1, 1, len(log), value, counters[m], len(stamps[m]), held[m], (1 << n) - 1, False)
        runs = [run(m, 1, len(stamps[m]))] if stamps[m] else []
        post = Post(view.cluster_id, 1, 1, "a", claim, [], False, 0, len(log), b"", b"", runs)
        core.receive(NODES[m], post, ClockReading(0, 10_000), True)
    agreement = core.log_state
    assert agreement is not None
    assert len(agreement.log_index.hash) == HASH_BYTES
    spans = agreement.log_index.spans(len(log), agreement.log_index.length)
    return [(s.node, s.first_seq + i) for s in spans for i in range(s.count)]


@pytest.mark.parametrize("seed", range(10))
def test_core_and_literal_logs_are_prefixes_of_one_another(seed: int) -> None:
    """Both are fed the same transactions, with messages of each lost and late in their own way."""
    rng = Random(seed)
    nodes = NODES[: rng.choice((2, 3, 4))]
    cluster = Cluster(nodes, latency_ms=rng.choice((1, 5))).founded()
    literal = {n: ReferenceNode(n, set(nodes) - {n}) for n in nodes}
    mail: list[tuple[str, object]] = []
    for step in range(150):
        node = rng.choice(nodes)
        if rng.random() < 0.3:
            for answer in cluster.submit(node, *[f"{step}.{i}" for i in range(rng.randint(1, 3))]):
                agreement = cluster.core(node).log_state
                assert agreement is not None
                own = agreement.own
                stamp = own.stamp(answer.txid.seq)
                literal[node].add_local(ReferenceTransaction(stamp, node, answer.txid.seq))
        if rng.random() < 0.05:
            cluster.cut = {tuple(rng.sample(nodes, 2)) for _ in range(rng.randint(0, 2))}  # type: ignore[misc]
        cluster.run(rng.choice((0, 1, 3)))
        for n in nodes:
            agreement = cluster.core(n).log_state
            assert agreement is not None
            literal[n].counter = agreement.last_stamp
        post = literal[node].post()
        mail += [(peer, post) for peer in nodes if peer != node and rng.random() < 0.9]
        rng.shuffle(mail)
        for peer, one in mail[: rng.randint(0, 6)]:
            literal[peer].collect(one)  # type: ignore[arg-type]
            literal[peer].add_common_prefix(
                missing=rng.sample(sorted(set(nodes) - {peer}), rng.randint(0, len(nodes) - 1))
            )
        del mail[:6]
        logs = [cluster.log(n) for n in nodes] + [[f"{t.node}{t.seq}" for t in literal[n].log] for n in nodes]
        longest = max(logs, key=len)
        for log in logs:
            assert log == longest[: len(log)]
    assert len(longest) > 10
