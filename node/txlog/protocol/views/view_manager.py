"""The view of a master and how the next one comes about (protocol section 3).

``view_state.py`` has its view, its promises and its knowledge of the others. ``participant.py`` promises and accepts,
``coordinator.py`` drives a view change, ``view_policy.py`` decides when one is wanted, and ``backfill.py`` fetches the
transactions that a view names. ``undecided.py`` and ``decision_writer.py`` decide about synchronous transactions.
"""

from __future__ import annotations

from txlog.model.errors import PeerFault
from txlog.protocol.views.backfill import Backfill
from txlog.protocol.views.coordinator import ViewCoordinator
from txlog.protocol.views.decision_writer import DecisionWriter
from txlog.protocol.views.participant import ViewParticipant
from txlog.protocol.views.undecided import UndecidedTransactions
from txlog.protocol.views.view_policy import ViewPolicy
from txlog.protocol.views.view_state import ViewState
from txlog.wire import messages as wire
from txlog.wire.messages import Message


class ViewManager:
    """Passes messages and the time on to its parts, which share ``views``."""

    def __init__(self, views: ViewState) -> None:
        self.views = views
        self.backfill = Backfill(views)
        self.participant = ViewParticipant(views)
        self.coordinator = ViewCoordinator(views, self.participant)
        self.policy = ViewPolicy(views, self.backfill, self.coordinator)
        self.undecided = UndecidedTransactions(views)
        self.decisions = DecisionWriter(self.undecided)

    def on_message(self, peer: str, message: Message) -> None:
        """Process one message of a view change. :class:`PeerFault` when it is refused, and for any other message."""
        match message:
            case wire.ProposeView():
                self.participant.on_propose(peer, message)
            case wire.ViewReport():
                self.coordinator.on_report(message)
            case wire.RejectView():
                self.coordinator.on_refuse(peer, message)
            case wire.AcceptView():
                if self.participant.on_accept(peer, message):
                    self.coordinator.try_accept()
            case wire.FetchProgress():
                self.coordinator.on_fetch_progress(message)
            case wire.ViewAcceptedReply():
                self.coordinator.on_accepted(message)
            case wire.InstallView():
                self.participant.on_install(message.number)
            case _:
                raise PeerFault(peer, "Misplaced", f"{type(message).__name__} is not for the core")

    def poll(self, may_lead: bool) -> int:
        """Send what is due. ``may_lead``: this master takes part (admitted, not leaving). Returns when to poll again,
        in ``mono`` milliseconds."""
        return self.policy.poll(may_lead)
