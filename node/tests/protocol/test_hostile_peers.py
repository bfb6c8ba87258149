"""A broken or lying peer ends no process outside of a named refusal: messages of real masters, each with some values
changed."""

from __future__ import annotations

import copy
import random
from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest
from changing_views import back_up, forget, leave, run_until_in_view
from core_cluster import Cluster

from txlog.model.errors import Fatal, PeerFault
from txlog.protocol.events import ClockReading
from txlog.runtime.executor import Executor
from txlog.wire import messages as wire

MUTATIONS = 3000
OF_EACH_KIND = 30
"""Messages of one kind that are kept: posts would be all otherwise."""
NUMBERS = (0, 1, -1, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


class Received:
    """A message to ``b``, and ``b`` as it was when the message arrived."""

    def __init__(self, kind: str, source: str, data: bytes, executor: Executor, now: ClockReading) -> None:
        self.kind = kind
        self.source = source
        self.data = data
        self.executor = executor
        self.now = now


class Recorded(Cluster):
    """Keeps messages to ``b``."""

    kept: defaultdict[str, list[Received]]
    random: random.Random

    def receive(self, source: str, target: str, data: bytes) -> None:
        if target == "b":
            kind = type(wire.decode(source, data)).__name__
            kept = self.kept[kind]
            if len(kept) < OF_EACH_KIND or self.random.random() < 0.1:
                one = Received(kind, source, data, copy.deepcopy(self.executors["b"]), self.now("b"))
                if len(kept) < OF_EACH_KIND:
                    kept.append(one)
                else:
                    kept[self.random.randrange(OF_EACH_KIND)] = one
        super().receive(source, target, data)


@pytest.fixture(scope="module")
def received() -> list[Received]:
    """Messages of a bootstrap, a leave, a split in which both sides write, a rejoin, and a lost disk."""
    cluster = Recorded.__new__(Recorded)
    cluster.kept, cluster.random = defaultdict(list), random.Random(7)
    cluster.__init__("abc", max_peer_lag_ms=900, idle_interval_ms=100)  # type: ignore[misc]
    cluster.founded()
    for number in range(3):
        for node in "abc":
            cluster.submit(node, f"x{node}{number}", key=f"k{number}")
        cluster.run(30)
    leave(cluster, "c")
    cluster.run(100)
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    cluster.submit("c", "later")
    cluster.run(50)
    cluster.cut |= {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}
    cluster.submit("a", "apart")
    cluster.submit("b", "together")
    cluster.run(500)
    back_up(cluster, "a", "b", "c")
    run_until_in_view(cluster, "b", "c")
    run_until_in_view(cluster, "a")
    cluster.submit("a", "apart 2")
    cluster.submit("b", "together 2")
    cluster.run(50)
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")
    cluster.submit("a", "again")
    cluster.run(300)
    cluster.crash("a")
    cluster.run(50)
    forget(cluster, "a")
    cluster.start("a")
    run_until_in_view(cluster, "a", "b", "c")
    cluster.run(300)
    return [one for kind in sorted(cluster.kept) for one in cluster.kept[kind]]


def changed(value: Any, rng: random.Random) -> Any:
    """One change somewhere in a decoded MessagePack value."""
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        return [*value[:at], changed(value[at], rng), *value[at + 1 :]]
    if isinstance(value, list):
        return rng.choice([[], value + value, value[:-1], [*value, value[-1]] if value else [[]]])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([*NUMBERS, value + 1, max(0, value - 1), value * 2])
    if isinstance(value, bytes):
        flipped = bytes([value[0] ^ 1]) + value[1:] if value else b"\x01"
        return rng.choice([b"", value[:-1], value + value, bytes(len(value)), flipped])
    if isinstance(value, str):
        return rng.choice(["", "z", "b", value + "x", "\u00fc" * 70_000])
    return rng.choice([None, 0, ""])


def outcome(one: Received, data: bytes) -> str:
    """What becomes of ``b``: empty, or how its process ends outside of a named refusal."""
    executor, now = copy.deepcopy(one.executor), one.now
    try:
        try:
            executor.receive(one.source, data, now)
        except PeerFault:
            pass
        for later_ms in (0, 30, 330, 900):
            executor.poll(ClockReading(now.wall, now.mono + later_ms))
            while (sync := executor.begin_sync()) is not None:
                sync.run()
                executor.end_sync()
            executor.release()
    except Fatal:
        return ""
    except Exception as wrong:
        frame = wrong.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        assert frame is not None
        where = f"{frame.tb_frame.f_code.co_filename.rpartition('/')[2]}:{frame.tb_lineno}"
        return f"{type(wrong).__name__} in {where}: {str(wrong)[:90]}"
    return ""


def test_no_changed_message_ends_a_process_outside_of_a_named_refusal(received: list[Received]) -> None:
    kinds = {one.kind for one in received}
    assert kinds >= {"Post", "Hello", "HelloReply", "ProposeView", "ViewReport", "AcceptView", "RunsReply", "FetchRuns"}
    rng = random.Random(1)
    by_kind = [[one for one in received if one.kind == kind] for kind in sorted(kinds)]
    found: Counter[tuple[str, str]] = Counter()
    tries = 0
    while tries < MUTATIONS:
        one = rng.choice(rng.choice(by_kind))
        original = msgspec.msgpack.decode(one.data[1:])
        value = original
        for _ in range(rng.choice((1, 1, 2))):
            value = changed(value, rng)
        if not isinstance(value, list) or not value or value[0] != original[0]:
            continue
        try:
            data = one.data[:1] + msgspec.msgpack.encode(value)
        except OverflowError:
            continue  # doubled beyond what MessagePack has
        tries += 1
        ended = outcome(one, data)
        if ended:
            found[one.kind, ended] += 1
    assert not found, "\n".join(f"{count} {kind}: {ended}" for (kind, ended), count in found.most_common())
