"""All parts that decide who belongs to the cluster."""

from __future__ import annotations

from txlog.model.records import RecoveredState
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.membership.admission import Admission
from txlog.protocol.membership.bootstrap import ClusterBootstrap
from txlog.protocol.membership.configuration_changes import ConfigurationChanges
from txlog.protocol.membership.configuration_effects import ConfigurationFollower
from txlog.protocol.membership.departure import DepartureHandler
from txlog.protocol.membership.handshake import Handshake
from txlog.protocol.outbox import Outbox
from txlog.protocol.views.view_state import ViewState


class Membership:
    """``bootstrap`` begins the cluster, ``handshake`` greets the other masters, ``admission`` lets transactions in,
    ``changes`` and ``follower`` change the configuration, ``departure`` lets this master leave."""

    def __init__(
        self, local: LocalMaster, views: ViewState, outbox: Outbox, recovered: RecoveredState, mono_ms: int
    ) -> None:
        self.bootstrap = ClusterBootstrap(local, views, outbox, recovered, mono_ms)
        self.changes = ConfigurationChanges(local, views)
        self.departure = DepartureHandler(local, views, outbox)
        self.handshake = Handshake(local, views, self.bootstrap, self.changes, outbox)
        self.admission = Admission(local, views, self.bootstrap, self.changes, self.departure)
        self.follower = ConfigurationFollower(local, views, self.changes, self.departure)
