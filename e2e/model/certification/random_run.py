"""One random run: a seed, and the rules with or without one of their parts."""

from __future__ import annotations

import random
from collections import Counter

from e2e.model.certification.assertions import CertificationAssertions
from e2e.model.certification.log_fold import ChainFold
from e2e.model.certification.requests import RequestsOfModel
from e2e.model.certification.sides import MasterSides
from e2e.model.certification.values import PREDICATES, SUBJECTS, LeftOut, RejoinMode


def run(seed: int, left_out: frozenset[LeftOut] = frozenset()) -> Counter[str]:
    """What the run met. :class:`.RuleBroken` where it did what no rule may allow."""
    return _CertificationRun(seed, left_out).make()


class _CertificationRun:
    """Steps are drawn one at a time. In the end all sides are joined, and all requests are answered."""

    def __init__(self, seed: int, left_out: frozenset[LeftOut]) -> None:
        self.chance = chance = random.Random(seed)
        self.counts = Counter[str]()
        masters = chance.choice([2, 3, 3, 4])
        mode = chance.choice([RejoinMode.SMART, RejoinMode.SIMPLE])
        state = frozenset(
            (subject, predicate, chance.randrange(5))
            for subject in range(SUBJECTS)
            for predicate in range(PREDICATES)
            if chance.random() < 0.6
        )
        fold = ChainFold(left_out, self.counts)
        self.sides = MasterSides(chance, masters, mode, state, fold, self.counts)
        self.assertions = CertificationAssertions(chance, left_out, self.counts)
        own_share = chance.choice([0.3, 0.8, 0.95])
        self.requests = RequestsOfModel(chance, self.sides, self.assertions, left_out, self.counts, own_share)

    def make(self) -> Counter[str]:
        """The whole run."""
        for _ in range(self.chance.randrange(200, 420)):
            self._act()
        while len(self.sides.sides) > 1:
            self.sides.rejoin()
        side = self.sides.sides[0]
        for _ in range(400):
            self.sides.spread(side, whole=True)
            self.sides.extend_log(side)
            if not self.requests.open_requests:
                break
            for request in self.requests.open_requests:
                self.requests.step(request)
        self.assertions.finish(side)
        return self.counts

    def _act(self) -> None:
        chance, requests = self.chance, self.requests
        draw, master = chance.random(), chance.randrange(self.sides.masters)
        if draw < 0.13:
            requests.write_quads(master)
        elif draw < 0.16:
            requests.write_text(master)
        elif draw < 0.30:
            requests.ask(master)
        elif draw < 0.68:
            requests.step_any()
        elif draw < 0.97:
            side = chance.choice(self.sides.sides)
            self.sides.spread(side, whole=chance.random() < 0.5)
            self.sides.extend_log(side)
        elif draw < 0.982:
            self._split()
        else:
            self.sides.rejoin()

    def _split(self) -> None:
        """A link goes while transactions are in flight: some of them reach both sides, some only one."""
        whole = [side for side in self.sides.sides if len(side.masters) > 1]
        if not whole:
            return
        side = self.chance.choice(whole)
        for _ in range(self.chance.randrange(0, 5)):
            writer = self.chance.choice(side.masters)
            if self.chance.random() < 0.5:
                self.requests.ask_and_submit(writer)
            else:
                self.requests.write_quads(writer)
        self.sides.spread(side)
        self.sides.divide(side)
