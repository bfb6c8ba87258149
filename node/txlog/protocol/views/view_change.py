"""One view change as its coordinator drives it: propose → report → accept → install (protocol section 3).

Each step is repeated until every member has answered. A change that makes no progress for a round time-out ends; the
next one has a higher number.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from txlog.model.ids import Origin
from txlog.model.view import Member, Number
from txlog.protocol.views.next_view import NextView
from txlog.wire.messages import AcceptView, Departure, ProposeView, ViewReport


class ViewChangePhase(StrEnum):
    """How far a view change is, as its coordinator drives it."""

    COLLECTING = "Collecting"
    """The members are asked to stop the old view and to report."""
    FETCHING = "Fetching"
    """The next view is computed; the coordinator fetches the transactions of it that it lacks."""
    ACCEPTING = "Accepting"
    """The coordinator has accepted; the members are asked to accept."""
    INSTALLED = "Installed"
    ENDED = "Ended"
    """No view came of it. The next view change has a higher number."""


class ViewChangeEvent(StrEnum):
    """What moves a view change on."""

    ALL_REPORTED = "every member has reported"
    ACCEPTED_HERE = "the coordinator has accepted, durably"
    ALL_ACCEPTED = "every member has accepted, durably"
    FAILED = "a member refuses or is silent, or the reports do not suffice"
    SUPERSEDED = "the coordinator promises a higher number or leaves"


VIEW_CHANGE_TRANSITIONS: Final[dict[ViewChangePhase, dict[ViewChangeEvent, ViewChangePhase]]] = {
    ViewChangePhase.COLLECTING: {
        ViewChangeEvent.ALL_REPORTED: ViewChangePhase.FETCHING,
        ViewChangeEvent.FAILED: ViewChangePhase.ENDED,
        ViewChangeEvent.SUPERSEDED: ViewChangePhase.ENDED,
    },
    ViewChangePhase.FETCHING: {
        ViewChangeEvent.ACCEPTED_HERE: ViewChangePhase.ACCEPTING,
        ViewChangeEvent.FAILED: ViewChangePhase.ENDED,
        ViewChangeEvent.SUPERSEDED: ViewChangePhase.ENDED,
    },
    ViewChangePhase.ACCEPTING: {
        ViewChangeEvent.ALL_ACCEPTED: ViewChangePhase.INSTALLED,
        ViewChangeEvent.FAILED: ViewChangePhase.ENDED,
        ViewChangeEvent.SUPERSEDED: ViewChangePhase.ENDED,
    },
    ViewChangePhase.INSTALLED: {},
    ViewChangePhase.ENDED: {},
}
"""An event that the phase does not name is a fault of this program. ``docs/design/protocol.md`` shows this table as a
diagram."""


class ViewChange:
    """``phase`` says what the coordinator waits for. ``reports`` and ``accepted`` by node id. ``next_view`` is set once
    every member has reported; ``accepts``, per member, once this master has accepted the view itself."""

    def __init__(self, proposal: ProposeView, members: list[Member], mono_ms: int) -> None:
        self.proposal = proposal
        self.members = members
        self.phase = ViewChangePhase.COLLECTING
        self.reports: dict[str, ViewReport] = {}
        self.next_view: NextView | None = None
        self.accepts: dict[str, AcceptView] = {}
        self.accepted: set[str] = set()
        self.missing_counts: dict[str, int] = {}
        self.progress_ms = mono_ms
        self.sent_ms = -(1 << 60)

    @property
    def number(self) -> Number:
        """The number of the proposed view."""
        return self.proposal.number

    @property
    def departures(self) -> list[Departure]:
        """The members that the proposal excludes, with the reasons."""
        return self.proposal.gone

    def on_event(self, event: ViewChangeEvent) -> None:
        """Enter the next phase, as :data:`VIEW_CHANGE_TRANSITIONS` says."""
        self.phase = VIEW_CHANGE_TRANSITIONS[self.phase][event]

    @property
    def size_allowance_ms(self) -> int:
        """By how many milliseconds a step's repeat is delayed for the size of its messages: 1 ms per 100 entries."""
        return max((len(accept.spans) for accept in self.accepts.values()), default=0) // 100

    @property
    def unreported(self) -> list[str]:
        """The members that have not reported yet."""
        return [m.node for m in self.members if m.node not in self.reports]

    @property
    def unaccepted(self) -> list[str]:
        """The members that have not accepted yet."""
        return [m.node for m in self.members if m.node not in self.accepted]

    def has_timed_out(self, mono_ms: int, timeout_ms: int) -> bool:
        """Whether the change has made no progress for ``timeout_ms``."""
        return mono_ms - self.progress_ms > timeout_ms

    def record_report(self, report: ViewReport, mono_ms: int) -> None:
        """The first report of each member counts."""
        if report.node not in self.reports:
            self.reports[report.node] = report
            self.progress_ms = mono_ms

    def record_accept(self, node: str, mono_ms: int) -> None:
        """The view is durable on that member."""
        if node not in self.accepted:
            self.accepted.add(node)
            self.progress_ms = mono_ms

    def record_progress(self, node: str, count: int, mono_ms: int) -> None:
        """That member is fetching; a lower count than before is progress."""
        if count < self.missing_counts.get(node, 1 << 60):
            self.missing_counts[node] = count
            self.progress_ms = mono_ms

    def unconfirmed_departure(self) -> Departure | None:
        """A member reported as down, or as having lost its state, for which no reporting member can confirm it. The
        departed member may earlier have excluded the members that report this (rule 27)."""
        claimed = (one for one in self.departures if one.why in ("down", "lost"))
        return next((one for one in claimed if not self._is_confirmed(one)), None)

    def _is_confirmed(self, gone: Departure) -> bool:
        """Whether a reporting member confirms the departure. It has received from the departed process since its own
        start, and is in the latest view known here that had the process. The process may have excluded a member of an
        earlier view by then; and a process reported as down is that very one. No confirmation is needed where a view
        descends from that one without the process."""
        origin = Origin(gone.node, gone.birth)
        views = [report.view for report in self.reports.values() if report.view is not None]
        latest = max((view for view in views if view.has_member(origin)), key=lambda view: view.number, default=None)
        if latest is None:
            return False
        if any(view.descends_from(latest.number) for view in views):
            return True
        return any(
            Origin(node, birth) == origin and (gone.why == "lost" or start == gone.start)
            for report in self.reports.values()
            if latest.has_member(Origin(report.node, report.birth))
            for node, birth, start in report.heard
        )


def has_override(gone: list[Departure]) -> bool:
    """Whether the operator excludes one of these: transactions that only that one has may be missing."""
    return any(one.why == "ordered" for one in gone)


def departure_applies(departure: Departure, member: Member, heard_start: int) -> bool:
    """Whether the departure is about this member. A departure of a certain process (``left``, ``down``) must be about
    the latest one that was seen. Silence and an override apply to every process of that incarnation."""
    if Origin(departure.node, departure.birth) != member.origin:
        return False
    return departure.why not in ("left", "down") or departure.start >= heard_start
