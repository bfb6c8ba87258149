"""What a supervisor does next about a further repository. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from txlog.client.repository_calls import ListedRepository, RepositoryList
from txlog.local.repository_records import LocalRepository


class WantStep(StrEnum):
    """The next step. The value is the state that ``txlog status --json`` shows meanwhile."""

    ASK = "Waiting"
    """The manifest names it, and the masters do not know that."""
    WITHDRAW = "Withdrawing"
    """The manifest names it no more, and the masters do not know that."""
    KEEP = "Wanted"
    STAY = "Unwanted"
    """No manifest here names it. It stays until it is removed by name."""
    REPORT = "Removed"
    """It was removed, and the manifest still names it: no empty one is made in its place."""
    REPLACE = "Replaced"
    """It was removed, and made again by name: its stores begin empty."""
    DISCARD = "Discarded"
    """It was removed, and the manifest names it no more: its stores end."""
    WAIT = "Unknown"
    """The master that answered has not read the system log that far."""


UNSETTLED_STATES: Final = frozenset({WantStep.ASK, WantStep.WITHDRAW, WantStep.WAIT})
"""Something is still to be done, or to be learnt."""


def next_step(record: LocalRepository, listed: RepositoryList) -> WantStep:
    """The step for a repository, as a master lists it now. Only a master that has read the end of a log can say that
    the repository is gone: one that has not read so far lists it neither."""
    found = next((each for each in listed.repositories if each.name == record.name), None)
    if found is not None and record.number in (0, found.log):
        return _step_for_known(record, found)
    if record.number == 0:
        return _step_for_new(record, listed)
    if record.number >= listed.next_log:
        return WantStep.WAIT
    if not record.is_wanted:
        return WantStep.DISCARD
    return WantStep.REPORT if found is None else WantStep.REPLACE


def _step_for_known(record: LocalRepository, found: ListedRepository) -> WantStep:
    is_known = record.data_center in found.wanted_by
    if record.is_wanted:
        return WantStep.KEEP if is_known else WantStep.ASK
    return WantStep.WITHDRAW if is_known else WantStep.STAY


def _step_for_new(record: LocalRepository, listed: RepositoryList) -> WantStep:
    if record.is_wanted:
        return WantStep.ASK
    return WantStep.DISCARD if listed.next_log else WantStep.WAIT
