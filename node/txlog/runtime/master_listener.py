"""What a master's loop reports to the program around it."""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.view import View


class ViewTransition(NamedTuple):
    """The acceptance of a view. The log of ``old`` ended at ``end`` and was stable up to ``stable``. If it was
    truncated, it is unchanged up to ``common_index``."""

    old: View
    new: View
    end: int
    stable: int
    common_index: int | None


class MasterListener:
    """Ignores every event; a subclass overrides those that it needs. Each method is called in the turn of the loop in
    which the event happens. It must not block."""

    def on_stable_moved(self) -> None:
        """The stable index has changed."""

    def on_log_truncated(self) -> None:
        """An accepted view has truncated the log: what is known of higher indexes is no longer valid."""

    def on_view_changed(self, change: ViewTransition) -> None:
        """Another view is accepted."""

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """The program around another master's loop has sent a notice. :class:`PeerFault` refuses it."""

    def on_ended(self, error: BaseException) -> None:
        """This process must end. Called once; nothing is sent or answered after it."""
