"""Processor time of processes that come and go."""

from __future__ import annotations

import subprocess
import sys
import time

from e2e.lib.host_metrics import CpuMeter, cpu_seconds

BURNT_S = 0.3
BURN = f"import time\nwhile time.process_time() < {BURNT_S}: pass"
PARENT = (
    f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])\nprint('ended', flush=True)\ninput()"
)


def test_what_a_child_that_has_ended_used_is_its_parents() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        began = time.perf_counter()
        meter = CpuMeter({"parent": parent.pid})
        before = meter.before["parent"]
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ended\n"
        assert cpu_seconds(parent.pid, children=True) >= cpu_seconds(parent.pid) + BURNT_S - 0.02
        meter.sample()
        parent.communicate(b"\n", timeout=30)
        # It is gone by now, and has left nothing in /proc.
        assert cpu_seconds(parent.pid, children=True) == 0.0
        used = meter.shares()["parent"] * (time.perf_counter() - began) / 100
        assert used >= BURNT_S - 0.02 - before
