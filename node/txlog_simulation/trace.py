"""What happened in a run, one line per event in fixed columns.

==========  =====  ======================================================================
columns     width  meaning
==========  =====  ======================================================================
1–8         8      simulated time in milliseconds since the run began
10–13       4      the master it happened at, ``net`` for the network, ``run`` for the run itself
15–28       14     the event: ``start``, ``crash``, ``receive``, ``refused``, ``submit``, ``poll``, ``durable``,
                   ``release``, ``work``, ``ended`` (by name), ``cut``, ``mend``, ``pause``, ``resume``, ``clock``, ...
30–         any    details, ``name=value`` or words, in an order that depends on the seed only
==========  =====  ======================================================================

Lines are made only when somebody wants them: a run without trace costs one comparison an event.
"""

from __future__ import annotations

from hashlib import blake2b


class EventTrace:
    """``lines`` stays empty when ``wanted`` is false."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self.lines: list[str] = []

    def add(self, at_ms: int, where: str, event: str, detail: str = "") -> None:
        """One line; call it only when :attr:`wanted`, so that ``detail`` is not formatted for nothing."""
        self.lines.append(f"{at_ms:8d} {where:<4} {event:<14} {detail}".rstrip())

    def digest(self) -> str:
        """16 hex digits over all lines: two runs of one seed are compared by this."""
        return blake2b("\n".join(self.lines).encode(), digest_size=8).hexdigest()
