"""kill -9 of a capture store at each step between a record and the store: the change log stays exact."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "killed_captures.py"


@pytest.mark.timeout(600)
def test_a_kill_at_each_step_keeps_the_change_log_exact() -> None:
    memory = Path("/dev/shm")  # a kill loses nothing of a file, so no disk has to sync them
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        command = [sys.executable, str(PROGRAM), folder]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=590, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["kills"] > 100
    assert found["large"] == [6, 11]
