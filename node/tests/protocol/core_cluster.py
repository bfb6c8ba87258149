"""Masters in one process for tests of the protocol: real executors and cores on plain journals, messages by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import PeerFault, Refused
from txlog.model.hashes import content_hash
from txlog.protocol.core import Core
from txlog.protocol.events import (
    ClockReading,
    ConfiguredMember,
    DurabilityMarks,
    ProtocolSettings,
    Submission,
    SubmissionAccepted,
)
from txlog.runtime.executor import Executor
from txlog.wire import messages as wire
from txlog.wire.messages import Post
from txlog_simulation.reference_journal import ReferenceJournal

WALL_MS = 1_700_000_000_000


def update(text: str, key: str = "", kind: int = KIND_UPDATE) -> Submission:
    payload = text.encode()
    return Submission(kind, key, payload, content_hash(kind, key, payload))


class Cluster:
    """``latency_ms`` one way; ``cut`` holds directions (source, target) on which nothing arrives. ``sent`` counts
    posts per source; ``log`` of all messages is kept in ``wire``. ``heavy``: masters with five votes instead of one.
    ``without_level``: masters whose program is too old to report a level."""

    without_level: str = ""

    def __init__(
        self,
        nodes: str = "abc",
        latency_ms: int = 1,
        journal: Callable[[str, int], Any] = ReferenceJournal,
        heavy: str = "",
        **settings: int,
    ) -> None:
        self.now_ms = 0
        self.latency_ms = latency_ms
        self.cut: set[tuple[str, str]] = set()
        self.members = tuple(ConfiguredMember(n, "uk", 5 if n in heavy else 1) for n in nodes)
        self.settings = settings
        self.journals: dict[str, Any] = {n: journal(n, 1 + i) for i, n in enumerate(nodes)}
        self.executors: dict[str, Executor] = {}
        self.marks: dict[str, DurabilityMarks] = {}
        self.decisions_awaited = True
        self.faults: dict[str, list[str]] = defaultdict(list)
        self.posts: dict[str, int] = defaultdict(int)
        self.wall_ms: dict[str, int] = defaultdict(int)
        self._mail: list[tuple[int, int, str, str, bytes]] = []
        self._wake: dict[str, int] = {}
        self._count = 0
        for node in nodes:
            self.start(node)

    def start(self, node: str) -> Executor:
        recovered = self.journals[node].open()
        settings = ProtocolSettings(node=node, members=self.members, **{"round_timeout_ms": 400, **self.settings})
        self.executors[node] = Executor(Core(settings, recovered, self.now(node)), self.journals[node])
        self._wake[node] = self.now_ms
        return self.executors[node]

    def crash(self, node: str, kept: int = 0) -> None:
        del self.executors[node]
        self.journals[node].crash(kept)

    def now(self, node: str) -> ClockReading:
        return ClockReading(WALL_MS + self.now_ms + self.wall_ms[node], 1000 + self.now_ms)

    def core(self, node: str) -> Core:
        return self.executors[node].core

    def log(self, node: str) -> list[str]:
        agreement = self.core(node).log_state
        assert agreement is not None
        spans = agreement.log_index.spans(agreement.log_index.start, agreement.log_index.length)
        return [f"{s.node}{s.first_seq + i}" for s in spans for i in range(s.count)]

    def submit(self, node: str, *texts: str, key: str = "", kind: int = KIND_UPDATE) -> list[SubmissionAccepted]:
        answers = self.executors[node].submit([update(text, key, kind) for text in texts], self.now(node))
        assert all(isinstance(answer, SubmissionAccepted) for answer in answers), answers
        self._turn(node)
        return [answer for answer in answers if isinstance(answer, SubmissionAccepted)]

    def ask(self, node: str, submission: Submission) -> SubmissionAccepted | Refused:
        """One transaction, whatever its kind; what becomes of it."""
        answer = self.executors[node].submit([submission], self.now(node))[0]
        self._turn(node)
        return answer

    def run(self, for_ms: int) -> None:
        end_ms = self.now_ms + for_ms
        while True:
            mail_ms = self._mail[0][0] if self._mail else end_ms + 1
            wake_ms = min((self._wake[n] for n in self.executors), default=end_ms + 1)
            at_ms = min(mail_ms, wake_ms)
            if at_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, at_ms)
            turns = {n for n in self.executors if self._wake[n] <= self.now_ms}
            while self._mail and self._mail[0][0] <= self.now_ms:
                _, _, source, target, data = self._mail.pop(0)
                if target in self.executors and (source, target) not in self.cut:
                    self.receive(source, target, data)
                    turns.add(target)
            for node in sorted(turns):
                self._turn(node)

    def receive(self, source: str, target: str, data: bytes) -> None:
        if source in self.without_level:
            message = wire.decode(source, data)
            if isinstance(message, wire.Hello | wire.HelloReply | wire.ViewReport):
                data = wire.encode(msgspec.structs.replace(message, level=0))
        try:
            self.executors[target].receive(source, data, self.now(target))
        except PeerFault as fault:
            self.faults[target].append(fault.reason)

    def _turn(self, node: str) -> None:
        executor = self.executors[node]
        self._wake[node] = executor.poll(self.now(node), self.decisions_awaited) - 1000
        while (sync := executor.begin_sync()) is not None:
            sync.run()
            executor.end_sync()
        released = executor.release()
        self.marks[node] = released.marks or self.marks.get(node, DurabilityMarks(0, 0, 0, 0, 0))
        for peer, data in released.messages:
            if isinstance(wire.decode(peer, data), Post):
                self.posts[node] += 1
            self._count += 1
            self._mail.append((self.now_ms + self.latency_ms, self._count, node, peer, data))
        self._mail.sort()

    def founded(self, within_ms: int = 1500) -> Cluster:
        self.run(within_ms)
        assert all(e.core.log_state is not None for e in self.executors.values())
        return self
