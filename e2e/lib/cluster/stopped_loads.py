"""``txlog bulk load`` as a process that stops itself at a step, until it is continued or killed.

``python -m e2e.lib.cluster.stopped_loads STEP ARGUMENTS…`` is that process: the command with its arguments, with one
function of it changed, which sends SIGSTOP to its own process. Steps:

========= ====================================================================================
writing   one part is on the first target
written   all of it is on the first target
copying   its parts are on the second target, and not its manifest
copied    it is on both targets, and no pipeline was asked for anything
sending   the pipelines were asked
held      each working store holds it
deciding  the stores have sorted it, and nothing is decided
decided   it is decided that the load happens, and no master was asked for its entry
appended  the entry is stable, and no file says so
noted     a file says where the entry is, and the stores are waited for
========= ====================================================================================
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from e2e.lib.report import CannotMeasure
from e2e.lib.wait import NotYet, wait_until
from txlog.bulk import load_run
from txlog.bulk.load_files import LoadFolder
from txlog.bulk.load_run import APPEND_S
from txlog.cli import bulk_commands
from txlog.cli.bulk_commands import SORT_MAX_S
from txlog.cli.main import main as run_command_line
from txlog.client.bulk_calls import BulkCalls

PREPARE_S: Final = 90.0
WAIT_S: Final = 60.0
START_S: Final = 60.0
"""For everything that has no limit of its own: an interpreter that starts, small files."""
STOP_S: Final = START_S + PREPARE_S + 2 * SORT_MAX_S
"""No shorter than what the command allows itself: on a busy machine it takes that long."""
END_S: Final = STOP_S + APPEND_S + WAIT_S


class StopPoint(NamedTuple):
    """The ``nth`` call of ``owner.function``, before it begins or after it has ended."""

    owner: Any
    function: str
    nth: int = 1
    is_after: bool = True


STEPS: Final[dict[str, StopPoint]] = {
    "writing": StopPoint(LoadFolder, "write_part"),
    "written": StopPoint(LoadFolder, "write_manifest"),
    "copying": StopPoint(LoadFolder, "create_request", 2, is_after=False),
    "copied": StopPoint(bulk_commands, "prepare_load", is_after=False),
    "sending": StopPoint(load_run, "ask_again"),
    "held": StopPoint(bulk_commands, "prepare_load"),
    "deciding": StopPoint(LoadFolder, "decide", is_after=False),
    "decided": StopPoint(LoadFolder, "decide"),
    "appended": StopPoint(BulkCalls, "append"),
    "noted": StopPoint(LoadFolder, "write_outcome"),
}
UNDECIDED_STEPS: Final = tuple(STEPS)[: tuple(STEPS).index("decided")]


class CommandEnd(NamedTuple):
    """The exit code (negative: the signal that killed it), and all that it has printed."""

    code: int
    text: str


class LoadCommand:
    """One process of the command. ``step``: where it stops; empty: nowhere."""

    def __init__(self, file: Path, state: Path, step: str = "") -> None:
        self._step = step
        program = ["-m", "e2e.lib.cluster.stopped_loads", step or "-"]
        options = ["--json", "--prepare-timeout", f"{PREPARE_S:g}s", "--wait", f"{WAIT_S:g}s", "--state", str(state)]
        places = os.pathsep.join(str(Path(place).absolute()) for place in sys.path if place)
        self._process = subprocess.Popen(
            [sys.executable, *program, "bulk", "load", str(file), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": places},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_stopped(self) -> None:
        """:class:`CannotMeasure` where the command ended before its step."""

        def probe() -> bool:
            if self._process.poll() is not None:
                raise CannotMeasure(f"the load ended before it was {self._step}: {self.wait()}")
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state != "T":
                raise NotYet(f"the process is {state}")
            return True

        wait_until(f"the load is {self._step}", STOP_S, probe, pause_s=0.01)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def fill_disk(self) -> None:
        """From now on no file that the command writes has room."""
        hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (8, hard))

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """Nothing of it is left, however it was used."""
        if not self.has_ended():
            self._process.kill()
            self._process.communicate()

    def kill(self) -> CommandEnd:
        self._process.kill()
        return self.wait()

    def wait(self) -> CommandEnd:
        try:
            text, _ = self._process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            text, _ = self._process.communicate()
            raise CannotMeasure(f"a load did not end within {END_S:g} s: {text[-500:]}") from None
        return CommandEnd(self._process.returncode, text)


def stop_at(point: StopPoint) -> None:
    """Changes this process so that it stops there, once."""
    original: Callable[..., Any] = getattr(point.owner, point.function)
    left = point.nth

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not point.is_after:
            os.kill(os.getpid(), signal.SIGSTOP)
        result = original(*arguments, **named)
        if left == 0 and point.is_after:
            os.kill(os.getpid(), signal.SIGSTOP)
        return result

    setattr(point.owner, point.function, counted)


if __name__ == "__main__":
    if sys.argv[1] != "-":
        stop_at(STEPS[sys.argv[1]])
    del sys.argv[1]
    run_command_line()
