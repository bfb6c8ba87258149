"""A clock that is wrong moves no stamp further than rule 6 allows."""

from __future__ import annotations

from typing import Final

from txlog.model.stamp import stamp_ms
from txlog.protocol.core import Core
from txlog_simulation.run_plan import RunPlan
from txlog_simulation.violation import LOG, ViolationLog

_STEP_MS: Final = 75_000
"""The default ``maxClockSkew``, the time that passes in a round, and the ten seconds of a ceiling after a restart."""


class ClockChecker:
    """``base_ms``: what a right clock shows when the run begins, in milliseconds since 1970. Clocks that are wrong by
    less than ``maxClockSkew`` are used as they are. A larger jump takes one step a round at most, from each master."""

    def __init__(self, plan: RunPlan, base_ms: int, findings: ViolationLog) -> None:
        self._plan = plan
        self._base_ms = base_ms
        self._findings = findings
        self._starts: set[tuple[str, int, int]] = set()

    def is_near(self, stamp: int, now_ms: int) -> bool:
        """Whether a counter has come up to the time, but for what clocks may be wrong by."""
        return stamp_ms(stamp) - self._base_ms >= now_ms - 2 * max(self._plan.max_clock_skew_ms, 1000)

    def on_step(self, core: Core, now_ms: int) -> None:
        """A process has made a step."""
        log = core.log_state
        if log is None or not self._plan.clock_jumps:
            return
        self._starts.add((core.local.node, core.birth, core.start))
        ahead_ms = stamp_ms(log.last_stamp) - self._base_ms
        rounds = 2 + self._plan.masters * (1 + now_ms // self._plan.round_timeout_ms) + len(self._starts)
        if ahead_ms > _STEP_MS * rounds:
            self._findings.add(LOG, "6", f"the stamps of {core.local.node} are {ahead_ms // 1000} s ahead of the time")
