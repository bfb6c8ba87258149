"""Diagrams of the protocol's states in docs/design/protocol.md, drawn from the tables that the code uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from txlog.model.master_state import MasterState
from txlog.protocol.master_state import ENTERED_WHEN, TRANSITIONS
from txlog.protocol.replication.peer_progress import PUSH_TRANSITIONS, PushState
from txlog.protocol.views.view_change import VIEW_CHANGE_TRANSITIONS, ViewChangePhase

PAGE = Path(__file__).parents[1] / "docs" / "design" / "protocol.md"


def _mermaid(lines: list[str]) -> str:
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"  {line}" for line in lines), "```"])


S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


def _events_diagram(first: S, table: Mapping[S, Mapping[E, S]]) -> str:
    lines = [f"[*] --> {first}"]
    for state, events in table.items():
        lines += [f"{state} --> {after}: {event}" for event, after in events.items()]
        lines += [] if events else [f"{state} --> [*]"]
    return _mermaid(lines)


def _master_diagram() -> str:
    """States that follow one another in any order are one group: a master enters each when its cause appears."""
    again = [state for state, after in TRANSITIONS.items() if all(state in TRANSITIONS[other] for other in after)]
    once = [state for state in MasterState if state not in again]
    lines = [f"[*] --> {once[0]}: {ENTERED_WHEN[once[0]]}"]
    lines += [f"{state} --> {after}: {ENTERED_WHEN[after]}" for state, after in pairwise(once)]
    lines += [f"{once[-1]} --> Admitted: its peers confirm its journal", "state Admitted {"]
    lines += [f"  state {state}" for state in again]
    return _mermaid([*lines, "}", *(f"note right of {state}: {ENTERED_WHEN[state]}" for state in again)])


def diagrams() -> dict[str, str]:
    """Name of a diagram to its text."""
    return {
        "master states": _master_diagram(),
        "view change": _events_diagram(ViewChangePhase.COLLECTING, VIEW_CHANGE_TRANSITIONS),
        "pushes to a peer": _events_diagram(PushState.PUSHING, PUSH_TRANSITIONS),
    }


def with_diagrams(page: str) -> str:
    """The page with every diagram between its markers redrawn."""
    for name, text in diagrams().items():
        begin, end = f"<!-- diagram: {name} -->", "<!-- end of diagram -->"
        page, count = re.subn(f"{begin}.*?{end}", lambda _, made=f"{begin}\n{text}\n{end}": made, page, flags=re.DOTALL)
        assert count == 1, f"{PAGE.name} has no place for the diagram {name!r}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_diagrams(PAGE.read_text()))
