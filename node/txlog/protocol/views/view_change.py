"""One change of views as its coordinator drives it: propose → report → accept → install (protocol section 3).

Each step is repeated until everybody has answered. A change that makes no progress for a round time-out is over; what
follows is a higher number.
"""

from __future__ import annotations

from txlog.model.ids import Origin
from txlog.model.view import Member, Number
from txlog.protocol.views.next_view import NextView
from txlog.wire.messages import AcceptView, Departure, ProposeView, ViewReport


class ViewChange:
    """``reports`` and ``accepted`` by node id. ``next_view`` is there once everybody has reported; ``accepts`` once
    this master has accepted the view itself, per member."""

    def __init__(self, proposal: ProposeView, members: list[Member], mono_ms: int) -> None:
        self.proposal = proposal
        self.members = members
        self.reports: dict[str, ViewReport] = {}
        self.next_view: NextView | None = None
        self.accepts: dict[str, AcceptView] = {}
        self.accepted: set[str] = set()
        self.missing_counts: dict[str, int] = {}
        self.progress_ms = mono_ms
        self.sent_ms = -(1 << 60)

    @property
    def number(self) -> Number:
        return self.proposal.number

    @property
    def departures(self) -> list[Departure]:
        return self.proposal.gone

    @property
    def size_allowance_ms(self) -> int:
        """How much longer a step is not repeated because what is sent is long: a millisecond for a hundred entries."""
        return max((len(accept.spans) for accept in self.accepts.values()), default=0) // 100

    @property
    def unreported(self) -> list[str]:
        return [m.node for m in self.members if m.node not in self.reports]

    @property
    def unaccepted(self) -> list[str]:
        return [m.node for m in self.members if m.node not in self.accepted]

    def has_timed_out(self, mono_ms: int, timeout_ms: int) -> bool:
        return mono_ms - self.progress_ms > timeout_ms

    def record_report(self, report: ViewReport, mono_ms: int) -> None:
        """The first report of each member counts."""
        if report.node not in self.reports:
            self.reports[report.node] = report
            self.progress_ms = mono_ms

    def record_accept(self, node: str, mono_ms: int) -> None:
        """It is durable there."""
        if node not in self.accepted:
            self.accepted.add(node)
            self.progress_ms = mono_ms

    def record_progress(self, node: str, count: int, mono_ms: int) -> None:
        """That member is fetching; fewer than before is progress."""
        if count < self.missing_counts.get(node, 1 << 60):
            self.missing_counts[node] = count
            self.progress_ms = mono_ms

    def unconfirmed_departure(self) -> Departure | None:
        """A member said to be down, or to have lost its state, for which nobody who reports can vouch: those who say so
        may have been let go by it before (rule 27)."""
        claimed = (one for one in self.departures if one.why in ("down", "lost"))
        return next((one for one in claimed if not self._is_confirmed(one)), None)

    def _is_confirmed(self, gone: Departure) -> bool:
        """Whether one of those who report has heard it at work since its own start, and is itself in the latest view
        that is known here to have had it: one of an earlier view may have been let go by then, and a process that is
        said to be down is that very one. Nobody has to, where a view has grown from that one without it."""
        origin = Origin(gone.node, gone.birth)
        views = [report.view for report in self.reports.values() if report.view is not None]
        latest = max((view for view in views if view.has_member(origin)), key=lambda view: view.number, default=None)
        if latest is None:
            return False
        if any(latest.number in view.ancestors for view in views):
            return True
        return any(
            Origin(node, birth) == origin and (gone.why == "lost" or start == gone.start)
            for report in self.reports.values()
            if latest.has_member(Origin(report.node, report.birth))
            for node, birth, start in report.heard
        )


def has_override(gone: list[Departure]) -> bool:
    """Whether the operator lets one of these go: what only that one has may be missing."""
    return any(one.why == "ordered" for one in gone)


def departure_applies(departure: Departure, member: Member, heard_start: int) -> bool:
    """Whether it is about this member, and, where it is about a certain process (``left``, ``down``), about the latest
    one that was heard. Silence and an order are of whoever bears that birth."""
    if Origin(departure.node, departure.birth) != member.origin:
        return False
    return departure.why not in ("left", "down") or departure.start >= heard_start
