"""The processes of mutants: forks of one that has imported everything, or fresh ones where only these see the edit.

An edit inside functions is put into a fork (:mod:`txlog_simulation.code_swap`). Every other edit is put into the
sources while a fresh process imports them. A mutant whose test passes in a fork runs once more in a fresh process: what
modules compute when they are imported may depend on the edited function.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import txlog
import txlog_simulation
from txlog_simulation import code_swap, runner
from txlog_simulation.mutant import MUTANT_VARIABLE, Mutant
from txlog_simulation.source_patches import ROOT

_PYTEST_OPTIONS: Final = ("-q", "-x", "-p", "no:cacheprovider", "--no-header")
_FRESH_TEST: Final = """
import sys
from txlog_simulation import mutant_table, source_patches
source_patches.install_edits(next(m.edits for m in mutant_table.MUTANTS if m.name == sys.argv[1]))
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


class MutantRun(NamedTuple):
    """One run of a mutant: its test, or so many ``seeds`` from ``start`` on."""

    mutant: Mutant
    start: int
    seeds: int


class RunEnd(NamedTuple):
    """How a run ended: ``code`` of its process and what it printed."""

    run: MutantRun
    code: int
    output: str

    @property
    def is_killed(self) -> bool:
        """Whether a test failed or a checker found a violation."""
        return self.code == 1

    def lines(self) -> list[str]:
        """The printed lines."""
        return self.output.strip().splitlines()


class MutantProcesses:
    """Runs mutants, so many at a time. Import nothing that starts threads before: forks have one."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._running: dict[int, tuple[int, MutantRun, bool, Path]] = {}
        self._ended: dict[int, RunEnd] = {}

    def run_all(self, runs: Sequence[MutantRun]) -> Iterator[RunEnd]:
        """How each run ended, in their order."""
        _import_everything()
        waiting = deque((number, run, False) for number, run in enumerate(runs))
        with tempfile.TemporaryDirectory(prefix="txlog-mutants-") as folder:
            for number in range(len(runs)):
                while number not in self._ended:
                    while waiting and len(self._running) < self._at_once:
                        self._start(*waiting.popleft(), Path(folder))
                    again = self._wait_for_one()
                    if again is not None:
                        waiting.appendleft(again)
                yield self._ended.pop(number)

    def _start(self, number: int, run: MutantRun, is_fresh: bool, folder: Path) -> None:
        output = folder / f"{number}.txt"
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _run_child(run, is_fresh, output)
        self._running[child] = number, run, is_fresh, output

    def _wait_for_one(self) -> tuple[int, MutantRun, bool] | None:
        """The run that has to be tried in a fresh process, if it is one."""
        child, status = os.wait()
        number, run, is_fresh, output = self._running.pop(child)
        end = RunEnd(run, os.waitstatus_to_exitcode(status), output.read_text(errors="replace"))
        if end.is_killed or (end.code == 0 and (is_fresh or not run.mutant.test)):
            self._ended[number] = end
            return None
        if is_fresh:
            raise SystemExit(f"mutant {run.mutant.name} cannot run:\n{end.output[-4000:]}")
        return number, run, True


def _import_everything() -> None:
    """All that tests of mutants may import, once."""
    for package in (txlog, txlog_simulation):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def _run_child(run: MutantRun, is_fresh: bool, output: Path) -> None:
    """Never returns."""
    mutant, code = run.mutant, 70
    try:
        target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, 1)
        os.dup2(target, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(ROOT.parent)
        os.environ[MUTANT_VARIABLE] = mutant.name
        if is_fresh or not code_swap.install_edits(mutant.edits):
            os.execv(sys.executable, _fresh_command(run))
        code = _run_here(run)
    except BaseException as wrong:  # noqa: BLE001 - a fork never returns into the code of its parent
        os.write(2, f"{type(wrong).__name__}: {wrong}".encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run_here(run: MutantRun) -> int:
    mutant = run.mutant
    if mutant.test:
        sys.path.insert(0, "")
        return int(pytest.main([*_PYTEST_OPTIONS, mutant.test]))
    return runner.run_all(
        runner.SimulationJob(
            run.seeds,
            run.start,
            mutant=mutant.name,
            stop_at_first=True,
            profile=mutant.profile,
            progress=False,
            shrink=False,
            counting=mutant.counts,
        )
    )


def _fresh_command(run: MutantRun) -> list[str]:
    mutant = run.mutant
    if mutant.test:
        return [sys.executable, "-c", _FRESH_TEST, mutant.name, *_PYTEST_OPTIONS, mutant.test]
    command = [sys.executable, "-m", "txlog_simulation", "--mutant", mutant.name, "--seeds", str(run.seeds)]
    command += ["--start", str(run.start), "--jobs", "1", "--stop-at-first", "--quiet"]
    return [*command, *(["--profile", mutant.profile] if mutant.profile else [])]
