"""How a master leaves: it takes no more work, the others persist its transactions, and it repeats its leave notice
until a peer acknowledges it."""

from __future__ import annotations

from typing import Final

from txlog.model.errors import PeerFault
from txlog.model.view import NO_VIEW
from txlog.protocol.events import ClockReading
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.outbox import Outbox
from txlog.protocol.replication.replication_state import ReplicationState
from txlog.protocol.views.view_state import FOREVER_MS, ViewState
from txlog.wire.messages import LeaveNotice

_CHECK_INTERVAL_MS: Final = 20
"""How often a closing master checks whether the others have persisted its transactions, in milliseconds."""


class DepartureHandler:
    """``closing``: no more work is taken."""

    def __init__(self, local: LocalMaster, views: ViewState, outbox: Outbox) -> None:
        self._local = local
        self._views = views
        self._outbox = outbox
        self.closing = False
        self._leave_by_ms = FOREVER_MS
        self._acknowledged_by: set[str] = set()
        self._notice_sent_ms = -FOREVER_MS

    def leave(self, now: ClockReading, timeout_ms: int) -> None:
        """Take no more work. Leave the view once all staying members have persisted everything that was accepted here,
        or after ``timeout_ms``. The caller then ends the process when :meth:`is_done`."""
        if not self.closing:
            self.closing = True
            self._leave_by_ms = now.mono + timeout_ms

    def leave_when_replicated(self, state: ReplicationState, now: ClockReading) -> int:
        """Leave the active view when the staying members have everything, or at the deadline. Returns when to check
        again, in ``mono`` milliseconds."""
        if self._leave_by_ms == FOREVER_MS:
            return FOREVER_MS
        log = state.log
        stay = [p for p in state.peers if state.is_present(p)]
        held = all(p.held_of_mine >= log.last_own_seq for p in stay) and log.own_synced >= log.last_own_seq
        if held or now.mono >= self._leave_by_ms:
            self._views.leave_view()
            self._notice_sent_ms = now.mono
            self.send_notice([p.node for p in state.peers])
        return now.mono + _CHECK_INTERVAL_MS

    def resend_or_leave(self, nodes: list[str], now: ClockReading) -> int:
        """Repeat the leave notice to ``nodes``; or leave at last, when no view is installed before the deadline."""
        views = self._views
        if self._leave_by_ms == FOREVER_MS:
            return FOREVER_MS
        if views.left == NO_VIEW or views.left != views.number:
            if now.mono < self._leave_by_ms:
                return self._leave_by_ms
            views.leave_view()
        repeat_ms = self._local.settings.repeat_ms
        if now.mono >= self._notice_sent_ms + repeat_ms:
            self._notice_sent_ms = now.mono
            self.send_notice(nodes)
        return self._notice_sent_ms + repeat_ms

    def send_notice(self, nodes: list[str]) -> None:
        """Tell these masters that this one has left its view, for good."""
        notice = self._views.leave_notice()
        for node in nodes:
            self._outbox.send(node, notice)

    def on_notice(self, peer: str, notice: LeaveNotice) -> bool:
        """A peer leaves, which is acknowledged; or it acknowledges this master's own notice. True when it leaves."""
        if notice.node == self._local.node:
            self._acknowledged_by.add(peer)
            return False
        if notice.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {notice.node}")
        return True

    @property
    def has_left(self) -> bool:
        """Whether this master has left the view that it is in."""
        return self.closing and self._views.left != NO_VIEW and self._views.left == self._views.number

    def is_done(self, state: ReplicationState | None) -> bool:
        """Whether the process may end: a staying member has acknowledged the leave notice, or no member stays."""
        if not self.has_left:
            return False
        return bool(self._acknowledged_by) or state is None or not any(state.is_present(p) for p in state.peers)
