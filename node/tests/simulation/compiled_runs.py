"""Runs of the simulator in a process that has the compiled rooms, if they were built: the same runs in less time. The
tests' own processes interpret them, since tests replace parts of them.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, cast

if __name__ != "__main__":
    from txlog_simulation.mutant import MUTANT_VARIABLE
if TYPE_CHECKING:
    from txlog_simulation.run_plan import RunPlan
    from txlog_simulation.simulation import RunResult


class CompiledRuns:
    """The process, which is started by the first run. One that was interrupted in a run is not asked again."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, plan: RunPlan, *, trace: bool) -> RunResult:
        process = self._process
        if process is None:
            command = [sys.executable, str(Path(__file__)), os.environ.get(MUTANT_VARIABLE, "")]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._process = None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((plan, trace), process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
            self._process = process
        finally:
            if self._process is None:
                process.kill()
                process.wait()
        assert not isinstance(answer, str), answer
        return cast("RunResult", answer)


_RUNS = CompiledRuns()


def run(plan: RunPlan, *, trace: bool = False) -> RunResult:
    """As :func:`txlog_simulation.simulation.run`."""
    return _RUNS.run(plan, trace=trace)


# -- in the other process


def serve(mutant: str) -> None:
    """Until its standard input ends, with which the tests' process ends, too. ``mutant``: a name, or ""."""
    from txlog.native import install_import_hook
    from txlog_simulation import mutant_table, source_patches

    if mutant:
        source_patches.install_edits(next(each.edits for each in mutant_table.MUTANTS if each.name == mutant))
    else:
        install_import_hook()
    from txlog_simulation import simulation  # not before: it imports what is compiled, or patched

    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    while True:
        try:
            plan, trace = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: object = simulation.run(plan, trace=trace)
        except Exception:  # noqa: BLE001 - the test that asked fails with it
            answer = traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
