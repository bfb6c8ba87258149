"""How long each phase of a rehearsal takes, and which one runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from txlog.backup.progress import BackupProgress

_RESTORE_PHASES: Final = {
    "reading the base": "base",
    "proving files": "files",
    "loading": "load",
    "executing transactions": "load",
    "comparing": "load",
}
"""What a restore reports, by phase of the rehearsal."""


class PhaseClock:
    """``on_phase``: called with the name of each phase as it begins. ``clock``: monotonic seconds."""

    def __init__(
        self, on_phase: Callable[[str], None] = lambda _: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_phase = on_phase
        self._clock = clock
        self._began = clock()
        self._seconds: dict[str, float] = {}
        self.current = ""

    def begin(self, phase: str) -> None:
        """Ends the phase before. A phase may be begun again: its seconds add up."""
        if phase == self.current:
            return
        self.end()
        self.current = phase
        self._on_phase(phase)

    def end(self) -> None:
        """Ends the running phase."""
        now = self._clock()
        if self.current:
            self._seconds[self.current] = self._seconds.get(self.current, 0.0) + now - self._began
        self._began = now

    def on_progress(self, step: BackupProgress) -> None:
        """The progress of a restore."""
        phase = _RESTORE_PHASES.get(step.phase)
        if phase is not None:
            self.begin(phase)

    @property
    def seconds(self) -> dict[str, float]:
        """By phase, in order, without the running one."""
        return dict(self._seconds)
