"""Before a view may exclude a silent member, a backup of an up-to-date worker must exist (rule 23)."""

from __future__ import annotations

from txlog.model.errors import OffTheLog
from txlog.protocol.replication.replication_state import ReplicationState
from txlog.protocol.views.view_policy import ViewPolicy
from txlog.protocol.views.view_state import ViewState


class SplitBackup:
    """Says when a backup is needed and which position it may have."""

    def __init__(self, views: ViewState, policy: ViewPolicy) -> None:
        self._views = views
        self._policy = policy

    def is_missing(self, state: ReplicationState | None, closing: bool) -> bool:
        """A member is silent, or was for long lately, no backup is recorded, and the view may not exclude the member
        without one."""
        views, view = self._views, self._views.accepted
        if view is None or state is None or views.majority_required or view.strategy == "None" or closing:
            return False
        return views.backup_index < 0 and (bool(self.silent_members(state)) or self._policy.silence_adds_up)

    def is_possible(self, state: ReplicationState | None) -> bool:
        """Whether a new backup can be made. An accepted view that is not installed may have truncated entries that
        workers executed. Its install may never come, because the members that would report it may be partitioned."""
        return state is not None and (self._views.installed or not state.log.truncated_executed_entries)

    def silent_members(self, state: ReplicationState) -> list[str]:
        """Members of the view that are silent, or that receive from no member. No posts are sent while the view is
        stopped, so the failure detector decides then."""
        if self._views.is_active:
            return sorted(p.node for p in state.peers if not state.is_present(p))
        most_ms = state.local.settings.round_timeout_ms
        return sorted(p.node for p in state.peers if state.failure_detector.silent_ms(p.node) > most_ms)

    def check_position(self, state: ReplicationState | None, index: int, value: bytes, epoch: int) -> None:
        """:class:`OffTheLog` unless every branch that a split can make of this view has this position.

        That is certain at or below the stable index. Another member's stable index may be higher for now, and its
        workers may be there. Entries executed in this view or before are persisted here too. So the position is certain
        when closing the view gives the same hash. ``epoch``: that of the marker; -1 when not known."""
        log = state.log if state is not None else None
        near = log is not None and (index <= log.stable or 0 <= epoch <= log.view.epoch)
        if log is None or not near or log.hash_if_view_closed(index) != value:
            raise OffTheLog(f"position {index} is not on the part of this master's log that every branch has")
