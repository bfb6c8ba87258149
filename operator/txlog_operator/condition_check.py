"""One condition as it is computed, before its time and generation are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from txlog.config.cluster_status import ConditionType

ConditionStatus = Literal["True", "False", "Unknown"]
CheckResult = tuple[ConditionStatus, str, str]
"""Status, reason and message of a condition."""
SHOWN_MAX: Final = 3
"""Failures, volumes or rules that a message names; it counts the rest."""


@dataclass(frozen=True)
class ConditionCheck:
    """One condition as computed now: its type, status, reason and message."""

    kind: ConditionType
    status: ConditionStatus
    reason: str
    message: str


def join_first(texts: Sequence[str]) -> str:
    """The first of these texts for a message, and how many there are beside them."""
    more = f"; and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    return f"{'; '.join(texts[:SHOWN_MAX])}{more}"
