"""Decides which duties a supervisor performs, in which order, and when it performs one again.

The masters of a data centre list their open duties. Their lists may differ: the masters may be on different sides of a
split, and only one may know the order that a worker executed. One duty of a data centre is performed at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

RETRY_DELAYS_S: Final = (1.0, 15.0)
"""Between two attempts of a failed duty: at first, and at most. See :func:`txlog.supervision.retry_delay.next_delay_s`.
A supervisor for which an attempt is expensive waits the longest at once."""
RELEASE_ARGUMENT: Final = "--release"
"""Argument of ``python -m txlog.backup.duty`` that puts the split backups under the usual retention again."""

ListedDuty = Mapping[str, Any]
"""A duty as ``GET /txlog/duties`` describes it: ``id``, ``kind``, ``why``, ``worker``, ``lacks``."""


class DutyKind(StrEnum):
    """What is to be done, in the order of performance. A split waits for its backup, so that comes first. The value is
    the word of the HTTP API, the beginning of a duty's id, and the option of ``python -m txlog.backup.duty``."""

    BACKUP = "backup"
    UNORDER = "unorder"
    """The skip-ahead of a worker."""
    ADOPT = "adopt"
    """A person decided to keep the content of a store that is not of this cluster."""
    DISCARD = "discard"
    """A person decided to delete it: a restore."""
    RESTORE = "restore"
    REPAIR = "repair"

    @property
    def rank(self) -> int:
        """Its place in the order of performance; 0 is the first."""
        return list(DutyKind).index(self)

    @property
    def may_leave_partial_state(self) -> bool:
        """Whether an attempt that failed may leave a worker that cannot answer. The others change a worker in one
        transaction of its store."""
        return self in (DutyKind.RESTORE, DutyKind.DISCARD)

    def job_argument(self, duty: str, worker: str | None) -> str:
        """The argument of ``python -m txlog.backup.duty``."""
        return f"--{self}={duty if self is DutyKind.BACKUP else worker}"

    def changed_something(self, result: Mapping[str, Any]) -> bool:
        """Whether a job with this output did what the duty asks. False: a repetition found it done already."""
        match self:
            case DutyKind.BACKUP:
                return "index" in result
            case DutyKind.UNORDER | DutyKind.ADOPT:
                return not result.get("already")
            case DutyKind.RESTORE | DutyKind.DISCARD:
                return True
            case DutyKind.REPAIR:
                return bool(result.get("graphCount"))


class DutyList(msgspec.Struct, frozen=True):
    """The answer of one master to ``GET /txlog/duties``. ``state``: the state of that master."""

    duties: list[dict[str, Any]] = []
    state: str = ""


def kind_of(duty: str) -> DutyKind | None:
    """The kind of the duty with this id; None for a kind that only newer masters know."""
    kind = duty.partition("-")[0]
    return next((known for known in DutyKind if known == kind), None)


def duties_to_perform(lists: Sequence[DutyList], unfinished: Collection[str] = ()) -> list[ListedDuty]:
    """The duties of a data centre in the order of performance, from the lists of the masters that answered.

    ``unfinished``: workers whose restore has begun and not ended. A half-loaded worker has no position, so its masters
    cannot list it: its restore continues as long as some master answers. No worker is repaired beside another duty.

    A duty that is here again after an attempt is repeated: the attempt failed, or its success came too late for a
    master."""
    if not lists:
        return []
    plain = {
        duty["id"]: duty
        for kind in (DutyKind.BACKUP, DutyKind.UNORDER, DutyKind.ADOPT, DutyKind.DISCARD)
        for each in lists
        for duty in each.duties
        if duty["kind"] == kind
    }
    discarded = {duty["worker"] for duty in plain.values() if duty["kind"] == DutyKind.DISCARD}
    continued = {worker: _continued_restore(worker) for worker in unfinished if worker not in discarded}
    restores = continued | _merge_restores(lists)
    repairs = [] if plain or restores else _merge_repairs(lists)
    return [*plain.values(), *restores.values(), *repairs]


def _merge_restores(lists: Sequence[DutyList]) -> dict[str, ListedDuty]:
    """By worker, one duty. A master that only ``lacks`` the order which the worker executed does not decide alone:
    another master of the data centre may know that order, and then the worker stays."""
    found: dict[str, ListedDuty] = {}
    for each in lists:
        for worker, duty in _restores_by_worker(each).items():
            if not duty.get("lacks") or all(worker in _restores_by_worker(other) for other in lists):
                found[worker] = duty
    return found


def _restores_by_worker(answer: DutyList) -> dict[str, ListedDuty]:
    return {duty["worker"]: duty for duty in answer.duties if duty["kind"] == DutyKind.RESTORE}


def _merge_repairs(lists: Sequence[DutyList]) -> list[ListedDuty]:
    """One duty at most: a repair that every master lists, beside nothing else. One master that knows of an obstacle is
    enough to wait."""
    if any(duty["kind"] != DutyKind.REPAIR for each in lists for duty in each.duties):
        return []
    common = [
        duty for duty in lists[0].duties if all(any(d["id"] == duty["id"] for d in each.duties) for each in lists)
    ]
    return [*common[:1]]


def _continued_restore(worker: str) -> ListedDuty:
    why = "it was left half loaded"
    return {"id": f"restore-{worker}", "kind": DutyKind.RESTORE.value, "why": why, "worker": worker}


def masters_that_list(lists: Mapping[str, DutyList], duty: str) -> list[str]:
    """The keys of the masters that list this duty: they show its failure to operators."""
    return [master for master, each in lists.items() if any(one["id"] == duty for one in each.duties)]


def may_release_backups(lists: Sequence[DutyList], masters: int) -> bool:
    """Whether the split is over, so that no worker needs a split backup any more: all ``masters`` of the data centre
    answered, are ``Joined`` and list nothing. An unfinished restore does not count: its worker may be removed for
    good, and any backup of the log serves it."""
    return len(lists) == masters and all(each.state == "Joined" and not each.duties for each in lists)
