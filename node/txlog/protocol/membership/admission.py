"""Whether this master takes transactions of clients now."""

from __future__ import annotations

from txlog.model.entry import KIND_CONFIG
from txlog.model.errors import Refused, Unavailable
from txlog.protocol.events import Submission
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.membership.bootstrap import ClusterBootstrap
from txlog.protocol.membership.configuration_changes import ConfigurationChanges
from txlog.protocol.membership.departure import DepartureHandler
from txlog.protocol.views.view_state import ViewState


class Admission:
    """A batch is refused as a whole when this master takes no work, else transaction by transaction."""

    def __init__(
        self,
        local: LocalMaster,
        views: ViewState,
        bootstrap: ClusterBootstrap,
        changes: ConfigurationChanges,
        departure: DepartureHandler,
    ) -> None:
        self._local = local
        self._views = views
        self._bootstrap = bootstrap
        self._changes = changes
        self._departure = departure

    def error(self) -> Refused | None:
        """Why this master takes no work."""
        if self._departure.closing:
            return Unavailable("Closing", "this master is stopping; ask another one")
        if self._bootstrap.awaits_order:
            return Unavailable("AwaitingBootstrap", f"{self._bootstrap.lost_journal_text}; see txlog bootstrap")
        if self._views.log_state is None:
            return Unavailable("NotFounded", "the cluster is not founded yet: every configured master must answer once")
        if self._views.accepted is None:
            return Unavailable("Learning", "this master has no journal of its own yet and catches up; ask another one")
        if not self._bootstrap.admitted:
            return Unavailable("Starting", "this master asks its peers what they last heard of it")
        if self._local.disk_full:
            return Unavailable("DiskFull", "no room for new transactions on this master's disk; make room there", 10)
        return None

    def refusals(self, batch: list[Submission]) -> list[Refused | None]:
        """Per transaction, why the configuration does not let it in."""
        write_error = self._changes.write_error()
        refusals: list[Refused | None] = []
        has_change = False
        for one in batch:
            if one.kind == KIND_CONFIG:
                refusals.append(self._changes.change_error(one, has_change))
                has_change = True
            else:
                refusals.append(write_error)
        return refusals
