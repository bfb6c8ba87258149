"""A master follows the configuration: a stable change is in effect (rule 20)."""

from __future__ import annotations

from typing import Final

import msgspec

from txlog.model.configuration import LEAVING, Configuration
from txlog.protocol.events import ClockReading
from txlog.protocol.log.snapshot_install import SnapshotInstaller
from txlog.protocol.membership.configuration_history import ConfigurationAt

_UNLIMITED_MS: Final = 1 << 50
"""A master that is removed for good waits for the staying members without a limit."""


class ConfigurationFollower(SnapshotInstaller):
    """``removed``: the configuration has removed this master, for good."""

    removed = False
    _configuration_in_force: ConfigurationAt | None = None

    def _apply_configuration(self, now: ClockReading) -> None:
        """Put the configuration at the stable index into effect."""
        agreement, view = self.log_state, self.views.accepted
        if agreement is None or view is None or view.bootstrap_configuration is None:
            return
        place = agreement.configurations.at_index(agreement.stable)
        if place is not self._configuration_in_force:
            self._configuration_in_force = place
            self._needs_view_check = True
        mine = place.configuration.master(self.settings.node)
        if mine is None:
            if view.has_member(agreement.own.origin) and self._is_connected_to_all:
                self.removed = True
                self.leave(now, _UNLIMITED_MS)
        elif mine.role == LEAVING and self._may_remove_self(place.configuration):
            self._remove_self(place.configuration, now)

    @property
    def _is_connected_to_all(self) -> bool:
        """Whether a member stays that has everything this master has, and no partitioned master may lack it."""
        views = self.views
        return views.is_active and bool(self.peers) and not views.is_isolated and all(map(self.is_present, self.peers))

    def _may_remove_self(self, now_in_force: Configuration) -> bool:
        """Whether the others have a majority with this master's vote counted, where ``Majority`` binds. They may not
        know of the removal yet when this master ends, and have to change their view all the same."""
        if self.closing or self.pending_change is not None or not self._is_connected_to_all:
            return False
        rest = [peer.node for peer in self.peers]
        return not (self.views.majority_required or now_in_force.majority) or now_in_force.has_majority(rest)

    def _remove_self(self, now_in_force: Configuration, now: ClockReading) -> None:
        """Submit the last transaction of this master: a master that has it has all others before it (rule 13)."""
        node = self.settings.node
        rest = [m for m in now_in_force.masters if m.node != node]
        removed = [*(one for one in now_in_force.removed if one != node), node]
        wanted = msgspec.structs.replace(now_in_force, masters=rest, removed=removed)
        if not wanted.validation_error():
            self.submit(
                [self.prepare_change(wanted, f"{node} has taken its last transaction")], now, not self.disk_full
            )
