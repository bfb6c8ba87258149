"""How a master leaves: no more work, others hold what it has, and it says so until it is heard."""

from __future__ import annotations

from txlog.model.errors import PeerFault
from txlog.model.records import Recovered
from txlog.model.view import NO_VIEW
from txlog.protocol.events import Now, Settings
from txlog.protocol.posting import Posting
from txlog.wire import messages as wire


class Leaving(Posting):
    """``closing``: no more work is taken. ``leave_done``: this master has left, and somebody knows."""

    def __init__(self, settings: Settings, recovered: Recovered, now: Now) -> None:
        super().__init__(settings, recovered, now)
        self.closing = False
        self._leave_by_ms = 1 << 60
        self._left_told: set[str] = set()
        self._told_leave_ms = -(1 << 60)

    def leave(self, now: Now, timeout_ms: int) -> None:
        """Take no more work, and leave the view once all that stay hold everything that was accepted here, or when
        ``timeout_ms`` are over. Then end the process when :attr:`leave_done`."""
        if not self.closing:
            self.closing = True
            self._leave_by_ms = now.mono + timeout_ms

    def _leave_when_held(self, now: Now) -> int:
        agreement, views = self.agreement, self.views
        assert agreement is not None
        if self._leave_by_ms == 1 << 60:
            return 1 << 60
        stay = [p for p in self.peers if self.is_present(p)]
        held = all(p.held_of_mine >= agreement.last_own for p in stay) and agreement.own_synced >= agreement.last_own
        if held or now.mono >= self._leave_by_ms:
            views.leave()
            self._gather()
            self._told_leave_ms = now.mono
            self._tell_leave([p.node for p in self.peers])
        return now.mono + 20

    def _leave_stopped(self, now: Now) -> int:
        """Say again that this master has left; or leave at last, when no view comes about any more."""
        views = self.views
        if self._leave_by_ms == 1 << 60:
            return 1 << 60
        if views.left == NO_VIEW or views.left != views.number:
            if now.mono < self._leave_by_ms:
                return self._leave_by_ms
            views.leave()
            self._gather()
        if now.mono >= self._told_leave_ms + self.settings.repeat_ms:
            self._told_leave_ms = now.mono
            self._tell_leave([p.node for p in self.peers])
        return self._told_leave_ms + self.settings.repeat_ms

    def _tell_leave(self, nodes: list[str]) -> None:
        leaving = self.views.leaving()
        self._say([(node, leaving) for node in nodes])

    def _on_leaving(self, peer: str, leaving: wire.LeaveNotice) -> None:
        if leaving.node == self.settings.node:  # said back: it was heard
            self._left_told.add(peer)
            return
        if leaving.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {leaving.node}")
        self.views.on_leaving(leaving)
        self._say([(peer, leaving)])

    @property
    def _has_left(self) -> bool:
        views = self.views
        return self.closing and views.left != NO_VIEW and views.left == views.number

    @property
    def leave_done(self) -> bool:
        """Whether nothing is left to be done before the process ends: somebody who stays knows, or nobody stays."""
        if not self._has_left:
            return False
        return bool(self._left_told) or not any(self.is_present(p) for p in self.peers)
