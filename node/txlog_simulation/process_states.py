"""The states of a simulated process."""

DOWN, UP, PAUSED, ENDED, REMOVED = "down", "up", "paused", "ended", "removed"
