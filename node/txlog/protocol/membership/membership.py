"""All parts that decide who belongs to the cluster."""

from __future__ import annotations

from txlog.protocol.local_master import LocalMaster
from txlog.protocol.membership.bootstrap import ClusterBootstrap
from txlog.protocol.membership.configuration_changes import ConfigurationChanges
from txlog.protocol.membership.configuration_effects import ConfigurationFollower
from txlog.protocol.membership.departure import DepartureHandler
from txlog.protocol.outbox import Outbox
from txlog.protocol.views.view_state import ViewState


class Membership:
    """``bootstrap`` begins the cluster, ``changes`` and ``follower`` change its configuration, ``departure`` lets this
    master leave."""

    def __init__(self, local: LocalMaster, views: ViewState, outbox: Outbox, mono_ms: int) -> None:
        self.bootstrap = ClusterBootstrap(local, views, outbox, mono_ms)
        self.changes = ConfigurationChanges(local, views)
        self.departure = DepartureHandler(local, views, outbox)
        self.follower = ConfigurationFollower(local, views, self.changes, self.departure)
