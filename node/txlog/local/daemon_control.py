"""How the command line starts a supervisor in the background, waits for it, and ends it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from txlog.local import process_identity
from txlog.local.local_errors import CannotRun, NotRunning
from txlog.local.log_files import last_lines
from txlog.local.process_identity import ProcessIdentity
from txlog.local.repository_want import UNSETTLED_STATES
from txlog.local.state_folder import StateFolder
from txlog.local.supervisor_client import SupervisorClient

KILL_WAIT_S: Final = 5.0
"""For the end of a process that was killed."""


def start_daemon(paths: Sequence[Path], state: StateFolder, deadline_s: float = 30.0) -> None:
    """Starts a supervisor that outlives this process; returns when it answers.

    :class:`CannotRun` with its last log lines when it exits instead.
    """
    state.prepare()
    with state.locked():
        pass  # report a supervisor that holds the lock now rather than in a log
    log = state.log("supervisor")
    with open(log, "ab") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "txlog.local.supervisor_main",
                "--state",
                state.root,
                *(path.absolute() for path in paths),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        code = process.poll()
        if code is not None:
            raise CannotRun("\n".join(last_lines(log)) or f"the supervisor ended with {code}; see {log}")
        try:
            if SupervisorClient(state).status()["pid"] == process.pid:
                return
        except NotRunning:
            time.sleep(0.05)
    raise CannotRun(f"the supervisor did not answer within {deadline_s:g} s; see {log}")


def ended_supervisor(state: StateFolder) -> CannotRun:
    """The error for a supervisor that answered once and has ended since, with the last lines of its log."""
    log = state.log("supervisor")
    lines = "\n".join(last_lines(log))
    return CannotRun(f"the supervisor ended while its processes started; see {log}" + (f"\n{lines}" if lines else ""))


def stop_daemon(state: StateFolder, deadline_s: float = 90.0) -> bool:
    """Ends what runs, gracefully, then by force. Also ends what a killed supervisor left. Returns whether
    anything ran; the folder is still locked when it does not end."""
    ran = state.is_locked
    if ran:
        mark = state.read("supervisor.json")
        marks = [ProcessIdentity.model_validate(mark)] if mark else []
        try:
            SupervisorClient(state).down()
        except NotRunning:
            process_identity.terminate_all(marks, 5.0 if state.is_locked else 0.0)
        _wait_unlocked(state, deadline_s)
        if state.is_locked:
            process_identity.terminate_all(marks, 5.0)
        _wait_unlocked(state, KILL_WAIT_S)
    ended = process_identity.end_leftovers(state)
    return ran or bool(ended)


def _wait_unlocked(state: StateFolder, deadline_s: float) -> None:
    until = time.monotonic() + deadline_s
    while state.is_locked and time.monotonic() < until:
        time.sleep(0.05)


def wait_ready(
    state: StateFolder, deadline_s: float, ready: Callable[[dict[str, Any]], bool]
) -> Iterator[list[dict[str, Any]]]:
    """Yields the processes repeatedly until each is ``ready``, or one has ended for good.

    :class:`CannotRun` after the time-out.
    """
    until = time.monotonic() + deadline_s
    while True:
        processes = SupervisorClient(state).status()["processes"]
        for process in processes:
            process["ready"] = process["state"] == "Running" and ready(process)
        yield processes
        if all(process["ready"] or process["state"] == "Fatal" for process in processes):
            return
        if time.monotonic() > until:
            late = ", ".join(process["name"] for process in processes if not process["ready"])
            raise CannotRun(f"not ready within {deadline_s:g} s: {late}; see {state.logs}")
        time.sleep(0.1)


def wait_repositories(state: StateFolder, deadline_s: float) -> None:
    """Returns when the masters know which further repositories the manifests name. :class:`CannotRun` after the
    time-out, with the last error of each one."""
    until = time.monotonic() + deadline_s
    while True:
        found = SupervisorClient(state).status()["repositories"]
        late = [each for each in found if each["state"] in UNSETTLED_STATES or each["message"]]
        if not late:
            return
        if time.monotonic() > until:
            reasons = ", ".join(f"{each['name']} of {each['dataCenter']}: {each['message']}" for each in late)
            raise CannotRun(f"repositories that the masters do not have within {deadline_s:g} s: {reasons}")
        time.sleep(0.1)
