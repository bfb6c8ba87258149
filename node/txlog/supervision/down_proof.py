"""Decides which masters need the proof that a process of another master has ended.

Only a supervisor that has waited for a process can know that it ended. With the proof, the other masters continue
without it at once (protocol section 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

RETRY_DELAYS_S: Final = (0.1, 2.0)
"""Between two attempts to send a proof to one master: at first, and at most."""
LEAVE_GRACE_S: Final = 1.0
"""A master that exited gracefully has announced its departure itself. The proof only helps if it is still in a view
then."""
GIVE_UP_AFTER_S: Final = 600.0
"""After so long without an answer, a master that returns has restarted, and asks for itself."""


def needs_down_proof(
    members: Iterable[Mapping[str, Any]], peers: Iterable[Mapping[str, Any]], node: str, birth: str, start: int
) -> bool:
    """Whether the process (``birth`` in hexadecimal, ``start``) of ``node`` is still a member for a master, and that
    master has seen no later process of the node. ``members``: of its view; ``peers``: as in ``/txlog/peers``."""
    is_member = any(each["node"] == node and each["birth"] == birth for each in members)
    last_seen = next((peer.get("start") for peer in peers if peer["node"] == node), None)
    return is_member and (last_seen is None or last_seen <= start)
