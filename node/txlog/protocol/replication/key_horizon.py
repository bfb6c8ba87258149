"""How old a transaction can be that enters the log later: expired idempotency keys are forgotten up to there (rule 16).

A master outside the view may bring back transactions of any age. So nothing is forgotten until every configured master
is in the view and has posted in it. From then on, each transaction that is not known here has a first stamp above a
usable counter of its origin; of the known ones, those that may still enter the log count with their own first stamps.
"""

from __future__ import annotations

from typing import Final

from txlog.model.stamp import LOGICAL_BITS
from txlog.protocol.events import ConfiguredMember
from txlog.protocol.replication.replication_state import ReplicationState

STEP_MAX: Final = 100 << LOGICAL_BITS
"""Stamps by which the counters have to grow before the horizon is computed again: at most 100 ms."""


class KeyHorizon:
    """Raises the horizon of the keys as counters grow."""

    def __init__(self, state: ReplicationState) -> None:
        self._state = state
        self._counter = 0

    def advance(self, configured: tuple[ConfiguredMember, ...]) -> None:
        """Raise the horizon as far as the present counters allow. Only in an active view."""
        state = self._state
        log, view = state.log, state.log.view
        counter = min([log.last_stamp, *(peer.usable_counter for peer in state.peers)])
        if counter - self._counter < min(STEP_MAX, log.keys.sweep_step):
            return
        self._counter = counter
        if any(view.member(one.node) is None for one in configured):
            return
        ages = [queue.oldest_keyed() for queue in log.by_origin.values()]
        ages += [one.first_stamp for one, _ in log.unstamped if one.first_stamp]
        log.keys.raise_horizon(min([counter, log.keys.oldest_tentative(), *ages]))

    def away(self, configured: tuple[ConfiguredMember, ...]) -> list[str]:
        """The configured masters outside the view: no key is forgotten while there are some."""
        return [one.node for one in configured if self._state.log.view.member(one.node) is None]
