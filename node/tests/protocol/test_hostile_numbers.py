"""A peer that is broken, or lies: whatever number it sends, it is refused by name, and ends no process otherwise."""

from __future__ import annotations

import contextlib
import pickle
from random import Random
from typing import Any

import msgspec
import pytest
from changing_views import back_up, leave, run_until_in_view
from core_cluster import Cluster
from lone_member import DOWN, A, B, Lone, accept, propose, who_of

from txlog.model.errors import Fatal, PeerFault
from txlog.model.stamp import PEER_STAMP_MAX
from txlog.protocol.events import ClockReading
from txlog.runtime.executor import Executor
from txlog.wire import messages as wire
from txlog.wire.messages import Post, QueuedTransactions, ViewReport

CHANGED = 1500
"""Changed messages of each seed."""
Sent = tuple[str, bytes, bytes, ClockReading]
"""The third is the pickled executor: thousands of copies are made, and a deep copy takes six times as long."""


class Recorder(Cluster):
    """Keeps messages to b, and b as it was before each of them."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.sent: list[Sent] = []
        super().__init__("abc", max_peer_lag_ms=900, idle_interval_ms=100)

    def receive(self, source: str, target: str, data: bytes) -> None:
        is_post = isinstance(wire.decode(source, data), Post)
        if target == "b" and (not is_post or self.rng.random() < 0.2):
            self.sent.append((source, data, pickle.dumps(self.executors["b"]), self.now("b")))
        super().receive(source, target, data)


def messages_of_a_life(seed: int) -> list[Sent]:
    """A cluster begins, writes, loses and regains a member, splits and rejoins."""
    c = Recorder(seed)
    c.founded()
    for n in range(3):
        for node in "abc":
            c.submit(node, f"x{node}{n}", key=f"k{n}")
        c.run(30)
    leave(c, "c")
    c.run(100)
    c.start("c")
    c.run(500)
    run_until_in_view(c, "a", "b", "c")
    cut = {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}
    c.cut |= cut
    c.submit("a", "apart")
    c.submit("b", "together")
    c.run(500)
    back_up(c, "a", "b", "c")
    run_until_in_view(c, "b", "c")
    run_until_in_view(c, "a")
    c.submit("a", "apart 2")
    c.run(50)
    c.cut.clear()
    run_until_in_view(c, "a", "b", "c")
    c.run(300)
    return c.sent


def changed(rng: Random, value: Any) -> Any:
    """One change somewhere in a decoded MessagePack value."""
    if isinstance(value, list):
        if not value or rng.random() < 0.15:
            return rng.choice([[], value + value, value[:-1]])
        at = rng.randrange(len(value))
        return [*value[:at], changed(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        numbers = (0, 1, -1, 1 << 31, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
        return rng.choice([*numbers, min(value + 1, (1 << 64) - 1), max(0, value - 1)])
    if isinstance(value, bytes):
        return rng.choice([b"", value[:-1], value + value, bytes(len(value))])
    return rng.choice(["", "z", "b", None])


@pytest.mark.parametrize("seed", [1, 2])
def test_a_changed_message_ends_nothing_but_by_name(seed: int) -> None:
    rng, sent = Random(seed), messages_of_a_life(seed)
    for _ in range(CHANGED):
        source, data, packed, now = rng.choice(sent)
        tag, *rest = msgspec.msgpack.decode(data[1:])
        message = data[:1] + msgspec.msgpack.encode([tag, *changed(rng, rest)])
        mine: Executor = pickle.loads(packed)
        try:
            with contextlib.suppress(PeerFault):
                mine.receive(source, message, now)
            for later_ms in (30, 330):
                mine.poll(ClockReading(now.wall, now.mono + later_ms))
                while (sync := mine.begin_sync()) is not None:
                    sync.run()
                    mine.end_sync()
                mine.release()
        except Fatal:
            pass  # a named end; docs/limits.md says what one master with the token can do


def report(**fields: Any) -> ViewReport:
    """What b reports, as if a had sent it, with other fields."""
    told = Lone().ask("a", propose([A, B], [DOWN]))
    assert isinstance(told, ViewReport)
    return msgspec.structs.replace(told, node="a", birth=A.birth, **fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"prefers": "Newest"}, "unknown strategy"),
        ({"counter": PEER_STAMP_MAX}, "StampOutOfRange"),
        ({"counter": (1 << 64) - 1}, "Malformed"),
        ({"pending": [QueuedTransactions("a", A.birth, 1, [-5], bytes(16))]}, "Malformed"),
        ({"pending": [QueuedTransactions("a", A.birth, 1, [5, 6], bytes(16))]}, "Malformed"),
        ({"parked": [QueuedTransactions("a", A.birth, 1, [1 << 62], bytes(16))]}, "Malformed"),
        ({"tail": [wire.Span("a", A.birth, 1, 1 << 40)]}, "Malformed"),
        ({"log": wire.Checkpoint(1 << 40, bytes(16))}, "Malformed"),
    ],
)
def test_a_report_that_cannot_be_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(PeerFault, match=reason):
        Lone().receive("a", report(**fields))


def test_a_view_with_a_floor_or_a_strategy_that_cannot_be_is_refused() -> None:
    b = Lone()
    b.ask("a", propose([A, B], [DOWN]))
    before = len(b.records)
    for wrong, reason in (
        (accept((A, 1, 10), floor=PEER_STAMP_MAX), "StampOutOfRange"),
        (accept((A, 1, (1 << 64) - 1), floor=10), "Malformed"),
        (msgspec.structs.replace(accept((A, 1, 10)), stamps=b""), "Malformed"),
    ):
        with pytest.raises(PeerFault, match=reason):
            b.receive("a", wrong)
    sound = accept((A, 1, 10))
    for view, reason in (
        (msgspec.structs.replace(sound.view, strategy="Newest"), "unknown strateg"),
        (msgspec.structs.replace(sound.view, ancestors=[(1 << 63, 1, "a")]), "Malformed"),
        (msgspec.structs.replace(sound.view, known_seqs=[-1]), "Malformed"),
    ):
        with pytest.raises(PeerFault, match=reason):
            b.receive("a", msgspec.structs.replace(sound, view=view))
    assert len(b.records) == before


def test_numbers_without_a_next_one_are_refused() -> None:
    b = Lone()
    hello = who_of("a", 1, ["b"])
    for wrong in (
        msgspec.structs.replace(hello, start=(1 << 64) - 1),
        msgspec.structs.replace(hello, view=((1 << 64) - 1, 1, "a")),
        propose([A, B], [DOWN], number=(2, (1 << 64) - 1, "a")),
        propose([A, B], [DOWN], number=(-1, 1, "a")),
    ):
        with pytest.raises(PeerFault, match="Malformed"):
            b.receive("a", wrong)
    assert b.core.views.highest_seen == (1, 1, "a")
