"""What a run can find wrong."""

from __future__ import annotations

from dataclasses import dataclass

LOG, ACKNOWLEDGEMENT, WORKER, LIVENESS = "log", "acknowledgement", "worker", "liveness"
PROMISE, JOURNAL, PROCESS = "promise", "journal", "process"
KINDS_COUNTED_FOR_MUTANTS = (LOG, ACKNOWLEDGEMENT, WORKER, LIVENESS)
"""Kinds that a client, a worker or an operator would see. A mutant is dead by one of these only: a broken promise on
the wire or an assertion of the shipped code is a hint, not harm."""


@dataclass(frozen=True)
class Violation:
    """``kind`` is one of the words above; ``rule`` numbers are those of the rules page."""

    kind: str
    rule: str
    at_ms: int
    text: str

    def __str__(self) -> str:
        return f"{self.kind} (rule {self.rule}) at {self.at_ms} ms: {self.text}"


class ViolationLog:
    """Collects violations. ``counting`` limits them to kinds; the run ends at the first that counts."""

    def __init__(self, counting: tuple[str, ...] | None = None) -> None:
        self.counting = counting
        self.now_ms = 0
        self.violations: list[Violation] = []

    def add(self, kind: str, rule: str, text: str) -> None:
        """Something is wrong now."""
        if self.counting is None or kind in self.counting:
            self.violations.append(Violation(kind, rule, self.now_ms, text))
