"""Work in a process of its own, which kills itself with SIGKILL just before its n-th step.

:class:`KilledAtSteps` starts a script as a process that imports everything once, and forks it for each try. The script
calls :func:`serve` with its work. A line of JSON goes to it for each try, and one comes back.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Step = Callable[[str], None]


class Ended(NamedTuple):
    """``steps``: by name, in order; where it was killed, the last one is the one before which that was."""

    killed: bool
    steps: list[str]


class KilledAtSteps:
    """``script``: the module that calls :func:`serve`."""

    def __init__(self, script: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, at: int, **asked: Any) -> Ended:
        """Killed before step ``at``, from 1 on, or ended without an error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"at": at, "asked": asked}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        status = answer["status"]
        assert status in (0, signal.SIGKILL), f"{asked} ended before step {at}: {status}, {answer['steps']}"
        return Ended(status == signal.SIGKILL, answer["steps"])

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


# -- in the other process


def watch(owner: Any, names: tuple[str, ...], step: Step) -> None:
    """Each call of these functions of ``owner`` is a step."""
    for name in names:
        whole = getattr(owner, name)

        def watched(*arguments: Any, _whole: Any = whole, _name: str = name, **named: Any) -> Any:
            step(_name)
            return _whole(*arguments, **named)

        setattr(owner, name, watched)


def serve(work: Callable[..., None]) -> None:
    """``work(step, **asked)`` in a process of its own, for each line."""
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(_fork(order["at"], work, order["asked"])), flush=True)


def _fork(at: int, work: Callable[..., None], asked: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            work(_count(at, writing), **asked)
        except BaseException:  # noqa: BLE001 - the process is over in any case, and must say so
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        steps = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    return {"status": abs(os.waitstatus_to_exitcode(status)), "steps": steps}


def _count(at: int, writing: int) -> Step:
    left = at

    def step(name: str) -> None:
        nonlocal left
        os.write(writing, name.encode() + b"\n")
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return step
