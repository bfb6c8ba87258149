"""A master follows the configuration: a stable change is in effect (rule 20)."""

from __future__ import annotations

from typing import Final

import msgspec

from txlog.model.configuration import LEAVING, Configuration
from txlog.protocol.events import ClockReading, Submission
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.log.configuration_history import ConfigurationAt
from txlog.protocol.membership.configuration_changes import ConfigurationChanges
from txlog.protocol.membership.departure import DepartureHandler
from txlog.protocol.replication.replication_state import ReplicationState
from txlog.protocol.views.view_state import ViewState

_UNLIMITED_MS: Final = 1 << 50
"""A master that is removed for good waits for the staying members without a limit."""


class ConfigurationFollower:
    """``removed``: the configuration has removed this master, for good."""

    def __init__(
        self, local: LocalMaster, views: ViewState, changes: ConfigurationChanges, departure: DepartureHandler
    ) -> None:
        self._local = local
        self._views = views
        self._changes = changes
        self._departure = departure
        self.removed = False
        self._in_force: ConfigurationAt | None = None

    def apply(self, state: ReplicationState, now: ClockReading) -> Submission | None:
        """Put the configuration at the stable index into effect. Returns a transaction that the core submits now: the
        last one of this master, when it may remove itself."""
        log, view = state.log, self._views.accepted
        if view is None or view.bootstrap_configuration is None:
            return None
        place = log.configurations.at_index(log.stable)
        if place is not self._in_force:
            self._in_force = place
            self._views.needs_check = True
        mine = place.configuration.master(self._local.node)
        if mine is None:
            if view.has_member(log.own.origin) and self._is_connected_to_all(state):
                self.removed = True
                self._departure.leave(now, _UNLIMITED_MS)
        elif mine.role == LEAVING and self._may_remove_self(state, place.configuration):
            return self._removal_of_self(place.configuration)
        return None

    def _is_connected_to_all(self, state: ReplicationState) -> bool:
        """Whether a member stays that has everything this master has, and no partitioned master may lack it."""
        views = self._views
        return views.is_active and bool(state.peers) and not views.is_isolated and state.all_present

    def _may_remove_self(self, state: ReplicationState, in_force: Configuration) -> bool:
        """Whether the others have a majority with this master's vote counted, where ``Majority`` binds. They may not
        know of the removal yet when this master ends, and have to change their view all the same."""
        pending = self._changes.pending_change
        if self._departure.closing or pending is not None or not self._is_connected_to_all(state):
            return False
        rest = [peer.node for peer in state.peers]
        return not (self._views.majority_required or in_force.majority) or in_force.has_majority(rest)

    def _removal_of_self(self, in_force: Configuration) -> Submission | None:
        """The last transaction of this master: a master that has it has all others before it (rule 13)."""
        node = self._local.node
        rest = [m for m in in_force.masters if m.node != node]
        removed = [*(one for one in in_force.removed if one != node), node]
        wanted = msgspec.structs.replace(in_force, masters=rest, removed=removed)
        if wanted.validation_error():
            return None
        return self._changes.prepare_change(wanted, f"{node} has taken its last transaction")
