"""Why masters are out of the view. The core forgets the reason once the next view is in force; operators need it."""

from __future__ import annotations

from txlog.runtime.master_status import MasterStatus


class DepartureHistory:
    """Remembers reasons for as long as this process runs. A reason is ``left``, ``down``, ``lost`` or ``ordered``."""

    def __init__(self, status: MasterStatus) -> None:
        self._status = status
        self._reasons: dict[str, str] = {}

    def record(self) -> None:
        """Take over what the core knows now. Call this after everything by which a member may leave."""
        departures = self._status.departures
        if departures:
            self._reasons.update(departures)

    def record_proof(self, node: str) -> None:
        """A supervisor has proved that the process of this master is gone. Another master may have had the proof first:
        then the view without it is in force here already, and the core keeps no reason."""
        view = self._status.view
        if view is not None and view.member(node) is None:
            self._reasons.setdefault(node, "down")

    def departed_members(self) -> dict[str, str]:
        """Configured masters that are not in the view, or are about to leave it: node id to reason. The reason is also
        ``silent`` for a master that did not answer, and ``unknown`` when this process did not see the departure."""
        view, departures = self._status.view, self._status.departures
        if view is None:
            return {}
        found: dict[str, str] = {}
        for node in (member.node for member in self._status.configured_members):
            if view.member(node) is None:
                found[node] = "silent" if node in view.silent_members else self._reasons.get(node, "unknown")
            elif node in departures:
                found[node] = departures[node]
            else:
                self._reasons.pop(node, None)  # it has returned
        return found
