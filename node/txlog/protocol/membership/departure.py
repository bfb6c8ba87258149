"""How a master leaves: it takes no more work, the others persist its transactions, and it repeats its leave notice
until a peer acknowledges it."""

from __future__ import annotations

from txlog.model.errors import PeerFault
from txlog.model.records import RecoveredState
from txlog.model.view import NO_VIEW
from txlog.protocol.events import ClockReading, ProtocolSettings
from txlog.protocol.replication.post_sender import PostSender
from txlog.wire import messages as wire


class DepartureHandler(PostSender):
    """``closing``: no more work is taken. ``is_leave_done``: this master has left, and a peer has acknowledged it."""

    def __init__(self, settings: ProtocolSettings, recovered: RecoveredState, now: ClockReading) -> None:
        super().__init__(settings, recovered, now)
        self.closing = False
        self._leave_by_ms = 1 << 60
        self._leave_acknowledged_by: set[str] = set()
        self._leave_sent_ms = -(1 << 60)

    def leave(self, now: ClockReading, timeout_ms: int) -> None:
        """Take no more work. Leave the view once all staying members have persisted everything that was accepted here,
        or after ``timeout_ms``. The caller then ends the process when :attr:`is_leave_done`."""
        if not self.closing:
            self.closing = True
            self._leave_by_ms = now.mono + timeout_ms

    def _leave_when_replicated(self, now: ClockReading) -> int:
        agreement, views = self.log_state, self.views
        assert agreement is not None
        if self._leave_by_ms == 1 << 60:
            return 1 << 60
        stay = [p for p in self.peers if self.is_present(p)]
        held = (
            all(p.held_of_mine >= agreement.last_own_seq for p in stay)
            and agreement.own_synced >= agreement.last_own_seq
        )
        if held or now.mono >= self._leave_by_ms:
            views.leave_view()
            self._collect_records()
            self._leave_sent_ms = now.mono
            self._send_leave([p.node for p in self.peers])
        return now.mono + 20

    def _resend_or_leave(self, now: ClockReading) -> int:
        """Repeat the leave notice; or leave at last, when no view is installed before the deadline."""
        views = self.views
        if self._leave_by_ms == 1 << 60:
            return 1 << 60
        if views.left == NO_VIEW or views.left != views.number:
            if now.mono < self._leave_by_ms:
                return self._leave_by_ms
            views.leave_view()
            self._collect_records()
        if now.mono >= self._leave_sent_ms + self.settings.repeat_ms:
            self._leave_sent_ms = now.mono
            self._send_leave([p.node for p in self.peers])
        return self._leave_sent_ms + self.settings.repeat_ms

    def _send_leave(self, nodes: list[str]) -> None:
        leaving = self.views.leave_notice()
        self._send([(node, leaving) for node in nodes])

    def _on_leaving(self, peer: str, leaving: wire.LeaveNotice) -> None:
        if leaving.node == self.settings.node:  # said back: it was heard
            self._leave_acknowledged_by.add(peer)
            return
        if leaving.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {leaving.node}")
        self.views.on_leaving(leaving)
        self._send([(peer, leaving)])

    @property
    def _has_left(self) -> bool:
        views = self.views
        return self.closing and views.left != NO_VIEW and views.left == views.number

    @property
    def is_leave_done(self) -> bool:
        """Whether the process may end: a staying member has acknowledged the leave notice, or no member stays."""
        if not self._has_left:
            return False
        return bool(self._leave_acknowledged_by) or not any(self.is_present(p) for p in self.peers)
