"""Links that lose, repeat, reorder, delay and are cut, one way or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from txlog_simulation.run_plan import RunPlan


class SimulatedNetwork:
    """``deliver(at_ms, source, target, data)`` puts a message on the calendar. ``cuts`` counts per link (a pair, one
    way) the reasons for which it is cut, ``slow`` those for which it is slow; ``losing``: which messages are lost on
    a link that chance is not left to."""

    def __init__(self, plan: RunPlan, rng: Random, met: Counter[str], deliver: Callable[[int, int, int, bytes], None]):
        self.plan = plan
        links = [(a, b) for a in range(plan.masters) for b in range(plan.masters)]
        self.cuts = dict.fromkeys(links, 0)
        self.slow = dict.fromkeys(links, 0)
        self.losing: dict[tuple[int, int], Callable[[bytes], bool]] = {}
        self.healed = False
        self.sent = 0
        self._random = rng.random
        self._coverage = met
        self._deliver = deliver
        self._last_at = dict.fromkeys(links, 0)
        self._base_ms = {(a, b): plan.network_ms(a, b) for a, b in links}

    def send(self, now_ms: int, a: int, b: int, data: bytes) -> None:
        """One message leaves ``a`` for ``b``."""
        self.sent += 1
        link = (a, b)
        if self.cuts[link]:
            self._coverage["message cut off"] += 1
            return
        if self.losing and link in self.losing and self.losing[link](data):
            self._coverage["message lost"] += 1
            return
        if self.healed:
            self._deliver(now_ms + self._base_ms[link], a, b, data)
            return
        plan = self.plan
        if plan.loss and self._random() < plan.loss:
            self._coverage["message lost"] += 1
            return
        self._deliver(self._arrival_ms(now_ms, link), a, b, data)
        if plan.repeat and self._random() < plan.repeat:
            self._coverage["message repeated"] += 1
            self._deliver(self._arrival_ms(now_ms, link) + int(self._random() * 200), a, b, data)

    def _arrival_ms(self, now_ms: int, link: tuple[int, int]) -> int:
        at_ms = now_ms + self._base_ms[link] + int(self._random() * self.plan.jitter_ms)
        if self.slow[link]:
            self._coverage["message slow"] += 1
            at_ms += 50 + int(self._random() * 250)
        before = self._last_at[link]
        if at_ms < before:
            if self.plan.reorder:
                self._coverage["message overtaken"] += 1
            else:
                at_ms = before
        self._last_at[link] = max(at_ms, before)
        return at_ms
