"""Waiting for something that is polled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from e2e.lib.report import CannotMeasure
from txlog.model.errors import TxLogError

T = TypeVar("T")


class NotYet(Exception):
    """What a probe raises to describe what it saw."""


def wait_until(what: str, deadline_s: float, probe: Callable[[], T | None], pause_s: float = 0.05) -> T:
    """The first true result of ``probe``; :class:`NotYet` and errors of TxLog count as *not yet*.
    :class:`CannotMeasure` with the last result or error when the time is over."""
    until = time.monotonic() + deadline_s
    while True:
        last: object
        try:
            found = probe()
            if found:
                return found
            last = found
        except (NotYet, TxLogError) as not_now:
            last = not_now
        if time.monotonic() > until:
            raise CannotMeasure(f"not within {deadline_s:g} s: {what}; last: {last}")
        time.sleep(pause_s)
