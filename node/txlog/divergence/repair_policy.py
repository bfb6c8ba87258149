"""Decides whether a worker that differs may be repaired automatically. Pure: known facts in, a repair status out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from txlog.wire.divergence_report import CompletedRepair, DivergenceFinding, RepairStatus

REPAIRS_MAX: Final = 3
"""Automatic repairs of one worker within :data:`REPAIR_WINDOW_S`. If it differs again, an operator must act: its disk
is bad, or another program writes into it all the time, and copying hides that."""
REPAIR_WINDOW_S: Final = 24 * 3600.0
RETRY_PAUSES_S: Final = (15.0, 900.0)
"""Seconds of pause after a failed repair: the first and the longest; doubled each time."""


class RepairFailure(msgspec.Struct, frozen=True):
    """Failed repairs. ``count``: the number of consecutive failures, the last at ``at`` (seconds since 1970)."""

    count: int
    message: str
    at: float

    @property
    def retry_at(self) -> float:
        """When the next repair may start, in seconds since 1970. The pause doubles with each failure, within
        :data:`RETRY_PAUSES_S`."""
        return self.at + min(RETRY_PAUSES_S[1], RETRY_PAUSES_S[0] * float(1 << min(self.count - 1, 10)))


class RepairInputs(msgspec.Struct, frozen=True):
    """The known facts about one worker. ``repairs``: its repairs, oldest first; ``given_up``: the fence at which
    automatic repair was suspended; ``obstacle``: why a repair cannot begin now, else empty."""

    finding: DivergenceFinding | None
    repairs: Sequence[CompletedRepair] = ()
    failure: RepairFailure | None = None
    given_up: int | None = None
    running: bool = False
    obstacle: str = ""


def repair_status(seen: RepairInputs, by_itself: bool, now: float) -> RepairStatus | None:
    """The repair status of a worker at ``now`` (seconds since 1970). ``by_itself``: automatic repair is on. None: the
    worker does not differ, and was never repaired."""
    last = seen.repairs[-1] if seen.repairs else None
    lately = sum(1 for each in seen.repairs if each.at > now - REPAIR_WINDOW_S)
    finding = seen.finding
    if finding is None:
        return RepairStatus("Done", "", lately, last) if last is not None else None
    state, why = _decide(seen, finding, last, lately, by_itself, now)
    return RepairStatus(state, why, lately, last)


def _decide(
    seen: RepairInputs,
    finding: DivergenceFinding,
    last: CompletedRepair | None,
    lately: int,
    by_itself: bool,
    now: float,
) -> tuple[str, str]:
    if finding.kind == "refusal":
        return "ByHand", "it cannot come to where the others are: txlog worker rebuild NAME --live"
    if not finding.wrong:
        return "Undecided", "say which worker is right: txlog worker repair NAME --source OTHER"
    if not finding.right:
        return "Undecided", "no worker of its engine that is right was seen at the same position"
    if not by_itself:
        return "ByHand", "workerRepair is manual: txlog worker repair NAME"
    if last is not None and last.fence > finding.fence:
        return "Waiting", "it was repaired, and is looked at again"
    # A higher fence: an operator or a duty has repaired or rebuilt the worker since.
    untouched = last is not None and last.fence == finding.fence
    if seen.given_up == finding.fence or (untouched and lately >= REPAIRS_MAX):
        return (
            "GivenUp",
            f"repaired {max(lately, REPAIRS_MAX)} times, it differs again: look at its disk, and who writes",
        )
    if seen.running:
        return "Running", ""
    if seen.failure is not None and now < seen.failure.retry_at:
        return "Waiting", f"again in {seen.failure.retry_at - now:.0f} s: {seen.failure.message}"
    return ("Waiting", seen.obstacle) if seen.obstacle else ("Due", "")
