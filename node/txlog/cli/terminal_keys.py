"""Single keys of the terminal, without Enter; and the wake-up of the thread that waits for them."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any, Final, Self

READ_BYTES: Final = 64


class TerminalKeys:
    """A context in which standard input gives keys at once and shows none. It restores the terminal when it ends.
    Without a terminal there are no keys, and :meth:`wait` only waits."""

    def __init__(self) -> None:
        self._input: int | None = None
        self._before: list[Any] = []
        self._wake_read, self._wake_write = -1, -1

    def __enter__(self) -> Self:
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        if sys.stdin.isatty():
            self._input = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._input)
            tty.setcbreak(self._input)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._input is not None:
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._wake_write = -1

    def wake(self) -> None:
        """End the current or the next :meth:`wait`. Any thread may call this."""
        try:
            os.write(self._wake_write, b".")
        except OSError:
            return  # full: it wakes already; closed: the context has ended

    def wait(self, seconds: float) -> str:
        """The keys that were pressed, empty for a wake-up or when the time is over. The end of the input is ``q``."""
        watched = [self._wake_read] if self._input is None else [self._wake_read, self._input]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._wake_read in ready:
            os.read(self._wake_read, READ_BYTES)
        if self._input is None or self._input not in ready:
            return ""
        return os.read(self._input, READ_BYTES).decode("utf-8", "replace") or "q"
