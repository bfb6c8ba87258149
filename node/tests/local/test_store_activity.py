"""A store that computes is at work; one that waits, or answers requests now and then, is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from txlog.local.store_activity import BUSY_LOOKS, LOOKS, StoreActivity

WORKS = "while True: pass"
WAITS = "import sys; sys.stdin.read()"
ANSWERS = """
import time
while True:
    time.sleep(0.1)
    until = time.monotonic() + 0.005
    while time.monotonic() < until:
        pass
"""


def test_a_store_that_answers_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads answer, and wait for a processor: none of them does so all the while."""

    def find_working(_: StoreActivity, pid: int) -> Iterator[str]:
        looks[pid] += 1
        yield "sorts" if pid == 1 and looks[pid] > LOOKS - BUSY_LOOKS else f"answers {looks[pid] % 2}"

    looks = Counter[int]()
    monkeypatch.setattr(StoreActivity, "_find_working", find_working)
    assert StoreActivity({"one": 1, "two": 2}).find_busy(0.0) == ["one"]


def test_what_computes_is_busy(tmp_path: Path) -> None:
    processes = {
        name: subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE)
        for name, text in (("works", WORKS), ("waits", WAITS), ("answers", ANSWERS))
    }
    try:
        activity = StoreActivity({name: process.pid for name, process in processes.items()})
        deadline = time.monotonic() + 30
        while activity.find_busy(0.5) != ["works"]:  # also while they start
            assert time.monotonic() < deadline
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    assert activity.find_busy(0.1) == [], "what has ended"
    assert StoreActivity({"x": os.getpid()}, tmp_path).find_busy(0.1) == [], "a system that does not show it"
