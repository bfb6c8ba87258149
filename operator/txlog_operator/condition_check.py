"""One condition as it is computed, before its time and generation are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from txlog.config.cluster_status import ConditionType

ConditionStatus = Literal["True", "False", "Unknown"]
CheckResult = tuple[ConditionStatus, str, str]
"""Status, reason and message of a condition."""


@dataclass(frozen=True)
class ConditionCheck:
    """One condition as computed now: its type, status, reason and message."""

    kind: ConditionType
    status: ConditionStatus
    reason: str
    message: str
