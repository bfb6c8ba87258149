"""A question to several masters, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from txlog.client.errors import MasterUnreachable
from txlog.client.master_client import MasterClient
from txlog.model.errors import Unavailable

T = TypeVar("T")


def ask_in_turn(masters: Sequence[MasterClient], ask: Callable[[MasterClient], T], unanswered: str = "") -> T:
    """The answer of the first master that has one; its refusal is an answer. When none has, the error of the last one
    is raised. ``unanswered``: :class:`Unavailable` ``NoMaster`` with this text instead."""
    last: MasterUnreachable | Unavailable | None = None
    for master in masters:
        try:
            return ask(master)
        except (MasterUnreachable, Unavailable) as error:
            last = error
    if last is None or unanswered:
        text = unanswered or "no master answers"
        raise Unavailable("NoMaster", f"{text}: {last or 'none was named'}; see txlog status")
    raise last
