"""Which masters no next view can have, whatever else they are: their hellos are refused by name (rule 32)."""

from __future__ import annotations

from txlog.model.bounds import SLOTS_MAX
from txlog.model.errors import PeerFault
from txlog.model.view import FORGETTING_LEVEL, LISTED_ANCESTORS_MAX, NO_VIEW, View
from txlog.wire.messages import Hello
from txlog.wire.protocol_level import LEVEL_SYNCHRONOUS


def check_admissible(view: View | None, who: Hello) -> None:
    """:class:`PeerFault` when no view that follows ``view`` can have the sender as a member."""
    if not has_room_for_origins(view, who.origins):
        raise PeerFault(
            who.node,
            "TooManyIncarnations",
            f"with birth {who.birth:016x} the log would have more than {SLOTS_MAX} incarnations of masters",
        )
    if not can_read_lineage(view, who.level):
        raise PeerFault(
            who.node,
            "OlderProgram",
            f"its program has level {who.level} and cannot read views with forgotten ancestors; update it",
        )
    if not can_read_anchor(view, who.level):
        text = f"its program has level {who.level} and cannot read synchronous transactions; update it"
        raise PeerFault(who.node, "OlderProgram", text)


def can_read_anchor(view: View | None, level: int) -> bool:
    """Whether a program of this level can work in a cluster that has had synchronous transactions (rule S16)."""
    return view is None or view.anchor is None or level >= LEVEL_SYNCHRONOUS


def has_room_for_origins(view: View | None, added: set[tuple[str, int]]) -> bool:
    """Whether the next view can have these incarnations besides those of ``view``. A view change that begins with too
    many would stop the view, and no next one could be computed."""
    return view is None or len(added.union(view.origins)) <= SLOTS_MAX


def can_read_lineage(view: View | None, level: int) -> bool:
    """Whether a program of this level can work with the views that follow. An older one would drop what a view says of
    its forgotten ancestors, and judge configuration changes in another way."""
    return view is None or view.lineage_start == NO_VIEW or level >= FORGETTING_LEVEL


def has_room_for_views(view: View) -> bool:
    """Whether views may follow in which a configured master is missing and another one is admitted. Departures have
    room beyond this bound: each makes the view smaller."""
    return len(view.ancestors) < LISTED_ANCESTORS_MAX
