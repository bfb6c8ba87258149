"""`txlog down` while the supervisor has locked the folder and does not answer yet: it may fetch a store's program."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from txlog.local.daemon_control import stop_daemon
from txlog.local.state_folder import StateFolder

DEADLINE_S = 60.0
STARTING = """
import asyncio, signal, sys
from pathlib import Path
from txlog.local import supervisor_main
from txlog.local.state_folder import StateFolder

def plan_for(*_):
    print("locked", flush=True)
    signal.pause()

supervisor_main.plan_for = plan_for
asyncio.run(supervisor_main.supervise([], StateFolder(Path(sys.argv[1]))))
"""


@pytest.fixture
def starting(state: StateFolder) -> Iterator[subprocess.Popen[str]]:
    """A supervisor in the middle of its start."""
    # What an earlier one that was killed has left: its port may be that of another program now.
    state.write("control.json", {"url": "http://127.0.0.1:9", "token": "secret", "pid": 1})
    state.write("supervisor.json", {"pid": 1, "began": "before"})
    process = subprocess.Popen([sys.executable, "-c", STARTING, state.root], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
    finally:
        process.kill()
        process.wait()


def test_it_is_ended(state: StateFolder, starting: subprocess.Popen[str]) -> None:
    began = time.monotonic()
    assert stop_daemon(state, 5.0) is True
    assert not state.is_locked
    assert starting.wait(DEADLINE_S) != 0
    assert time.monotonic() - began < DEADLINE_S


def test_no_token_goes_to_the_port_of_an_earlier_one(state: StateFolder, starting: subprocess.Popen[str]) -> None:
    assert not (state.root / "control.json").exists()
    assert state.read("supervisor.json")["pid"] == starting.pid
