"""A master's states follow one another as its table says."""

from __future__ import annotations

from collections import Counter

from txlog.model.master_state import MasterState
from txlog.protocol.core import Core
from txlog.protocol.master_state import TRANSITIONS
from txlog_simulation.violation import PROCESS, ViolationLog


class MasterStateChecker:
    """``seen`` counts the changes of state, over all processes."""

    def __init__(self, findings: ViolationLog) -> None:
        self.findings = findings
        self.seen: Counter[tuple[MasterState, MasterState]] = Counter()
        self._latest: dict[str, tuple[int, MasterState]] = {}

    def on_step(self, process: int, core: Core) -> None:
        """The process of this number has made a step. An older image of a disk repeats the start of another one."""
        node, state = core.local.node, core.state
        before = self._latest.get(node)
        self._latest[node] = process, state
        if before is None or before[0] != process or before[1] is state:
            return
        self.seen[before[1], state] += 1
        if state not in TRANSITIONS[before[1]]:
            self.findings.add(PROCESS, "states", f"{node} goes from {before[1]} to {state}")
