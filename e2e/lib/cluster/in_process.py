"""Masters in one process: real cores, executors and journals, messages handed over directly, and a clock that the
caller moves. So a life of years takes minutes: nothing waits, everything is executed.
"""

from __future__ import annotations

import heapq
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from txlog.journal import Journal, OsVfs
from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import PeerFault
from txlog.model.hashes import content_hash
from txlog.protocol.core import Core
from txlog.protocol.events import ClockReading, ConfiguredMember, ProtocolSettings, Submission, SubmissionAccepted
from txlog.protocol.log.log_state import LogState
from txlog.protocol.log.log_trim import BACKUP, RetentionPosition, TrimDecision
from txlog.runtime.executor import Executor

WALL_MS: Final = 1_700_000_000_000
LATENCY_MS: Final = 1
SEGMENT_BYTES: Final = 1 << 20
"""Small, so that segments are opened and trimmed often; a start reads the one in use record by record."""
STEP_MS: Final = 5


class TooSlow(Exception):
    """Something did not happen within the milliseconds of the masters' clock that it may take."""


class InProcessCluster:
    """``nodes`` with a journal each below ``folder``. ``message_bytes_max``: of the longest message so far;
    ``faults``: named refusals so far."""

    def __init__(self, folder: Path, nodes: tuple[str, ...]) -> None:
        self.folder = folder
        self.nodes = nodes
        self.members = tuple(ConfiguredMember(node, "uk", 1) for node in nodes)
        self.now_ms = 0
        self.message_bytes_max = 0
        self.faults: Counter[str] = Counter()
        self.executors: dict[str, Executor] = {}
        self.journals: dict[str, Journal] = {}
        self.synced: dict[str, int] = dict.fromkeys(nodes, 0)
        self.starts = 0
        self._births = 0
        self._mail: list[tuple[int, int, str, str, bytes]] = []
        self._wake: dict[str, int] = {}
        self._sent = 0
        for node in nodes:
            self.start(node)

    # -- processes and disks

    def start(self, node: str) -> None:
        """Start the master on the journal that it has."""
        self._births += 1
        birth = self._births << 32
        files = OsVfs(self.folder / node)
        journal, recovered = Journal.open(files, node=node, draw_birth=lambda: birth, segment_bytes=SEGMENT_BYTES)
        settings = ProtocolSettings(
            node=node, members=self.members, round_timeout_ms=400, idle_interval_ms=100, max_peer_lag_ms=60_000
        )
        self.journals[node] = journal
        self.executors[node] = Executor(Core(settings, recovered, self._now), journal)
        self._wake[node] = self.now_ms
        self.starts += 1

    def leave(self, node: str) -> None:
        """Let the master leave its view; it may end then."""
        self.executors[node].leave(self._now, 2000)
        self.wait(lambda: self.executors[node].core.is_leave_done, f"{node} leaves")

    def kill(self, node: str) -> None:
        """End the process of the master, without a notice to the others."""
        del self.executors[node]
        self.journals.pop(node).close()

    def lose_disk(self, node: str) -> None:
        """End the master and remove its journal."""
        self.kill(node)
        shutil.rmtree(self.folder / node)

    # -- time and messages

    @property
    def _now(self) -> ClockReading:
        return ClockReading(WALL_MS + self.now_ms, 1000 + self.now_ms)

    def wait(self, condition: Callable[[], bool], what: str, within_ms: int = 30_000) -> None:
        """Run until the condition holds. :class:`TooSlow` names ``what`` and what blocks the masters."""
        end_ms = self.now_ms + within_ms
        while not condition():
            if self.now_ms > end_ms:
                blocked = {node: one.core.views.blocked_reason for node, one in self.executors.items()}
                raise TooSlow(f"{what}: not within {within_ms} ms: {blocked}")
            self.run(STEP_MS)

    def run(self, for_ms: int) -> None:
        """Everything that happens within so many milliseconds of the masters' clock."""
        end_ms = self.now_ms + for_ms
        while True:
            at_ms = min([self._mail[0][0] if self._mail else end_ms + 1, *(self._wake[n] for n in self.executors)])
            if at_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, at_ms)
            turns = {node for node in self.executors if self._wake[node] <= self.now_ms}
            while self._mail and self._mail[0][0] <= self.now_ms:
                _, _, source, target, data = heapq.heappop(self._mail)
                if target in self.executors:
                    turns.add(target)
                    self._receive(source, target, data)
            for node in sorted(turns):
                self._turn(node)

    def _receive(self, source: str, target: str, data: bytes) -> None:
        try:
            self.executors[target].receive(source, data, self._now)
        except PeerFault as fault:
            self.faults[fault.reason] += 1

    def _turn(self, node: str) -> None:
        executor = self.executors[node]
        self._wake[node] = executor.poll(self._now) - 1000
        while (sync := executor.begin_sync()) is not None:
            sync.run()
            executor.end_sync()
        while (prepare := self.journals[node].begin_preallocation()) is not None:
            prepare.run()
            self.journals[node].end_preallocation(prepare)
        released = executor.release()
        if released.marks is not None:
            self.synced[node] = released.marks.synced
        for peer, data in released.messages:
            self._sent += 1
            self.message_bytes_max = max(self.message_bytes_max, len(data))
            heapq.heappush(self._mail, (self.now_ms + LATENCY_MS, self._sent, node, peer, data))

    # -- work

    def submit(self, node: str, text: str) -> SubmissionAccepted:
        """One transaction of one client."""
        payload = text.encode()
        content = content_hash(KIND_UPDATE, "", payload)
        (answer,) = self.executors[node].submit([Submission(KIND_UPDATE, "", payload, content)], self._now)
        assert isinstance(answer, SubmissionAccepted), answer
        self._turn(node)
        return answer

    def synced_s(self, node: str, text: str) -> float:
        """Seconds of the wall clock until a transaction is synced, over all masters in this one process."""
        began = time.perf_counter()
        seq = self.submit(node, text).txid.seq
        self.wait(lambda: self.synced[node] >= seq, f"a transaction of {node}")
        return time.perf_counter() - began

    def log_state(self, node: str) -> LogState:
        """The log of a master that has one."""
        found = self.executors[node].core.log_state
        assert found is not None
        return found

    def in_view(self, *nodes: str) -> bool:
        """Whether these masters, and only these, are active in one view."""
        views = [self.executors[node].core.views for node in nodes]
        accepted = views[0].accepted
        members = {m.node for m in accepted.members} if accepted is not None else set()
        return members == set(nodes) and len({v.number for v in views}) == 1 and all(v.is_active for v in views)

    def trim(self) -> None:
        """Each master trims its log up to what all have, as with a backup that has all of it."""
        index = min(self.log_state(node).stable for node in self.nodes)
        place = RetentionPosition(BACKUP, "backup", index, self.log_state(self.nodes[0]).log_index.hash_at(index))
        for node in self.nodes:
            self._trim(node, place)

    def _trim(self, node: str, place: RetentionPosition) -> TrimDecision:
        found = self.executors[node].trim([place], 1 << 60)
        self.run(200)
        journal = self.journals[node]
        while (removal := journal.begin_removal()) is not None:
            removal.run()
            journal.end_removal(removal)
        return found

    @property
    def journal_bytes(self) -> int:
        """Bytes of all journals' files."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
