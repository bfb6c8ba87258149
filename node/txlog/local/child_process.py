"""One child process: its start, its end, and its log file."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from txlog.local.log_files import last_lines
from txlog.local.process_identity import ProcessIdentity, identity_of
from txlog.local.state_folder import StateFolder

INTERRUPT_TIMEOUT_S: Final = 5.0
"""How long an interrupted job may take to delete its unfinished files."""
_PR_SET_PDEATHSIG: Final = 1
_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def end_with_parent(parent: int) -> None:
    """Runs in the new process. It restores SIGINT, which a shell ignores for a supervisor in the background. On Linux
    it makes the kernel kill the process when its supervisor ends, for whatever reason."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


class ChildProcess:
    """A running process, in a session of its own, so that Ctrl-C in a terminal reaches only its supervisor."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        control: socket.socket | None = None,
    ) -> None:
        """``OSError`` when it cannot be started. The process inherits ``control``."""
        parent = os.getpid()
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[control.fileno()] if control else [],
                start_new_session=True,
                preexec_fn=lambda: end_with_parent(parent),
            )
        self.pid = self._process.pid
        self.identity: ProcessIdentity | None = identity_of(self.pid)

    async def wait(self) -> int:
        """Its exit code, negative for a signal. Kills what it left in its process group (on Linux)."""
        loop = asyncio.get_running_loop()
        if hasattr(os, "pidfd_open"):
            over = asyncio.Event()
            descriptor = os.pidfd_open(self.pid)
            loop.add_reader(descriptor, over.set)
            try:
                await over.wait()
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        else:
            return await asyncio.to_thread(self._process.wait)
        self.signal(signal.SIGKILL)  # not reaped yet, so its process id is not reused: this reaches only its group
        return self._process.wait()  # it has ended, so this does not block

    async def wait_or_interrupt(self, clear_up_s: float) -> int:
        """Its exit code, as :meth:`wait`. When the wait is cancelled, it interrupts the process, and kills it after
        ``clear_up_s`` seconds."""
        ending = asyncio.ensure_future(self.wait())
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            self.signal(signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(ending), clear_up_s)
            self.signal(signal.SIGKILL)
            await ending
            raise

    def signal(self, number: signal.Signals) -> None:
        """Sends SIGKILL to its whole process group, any other signal to the process alone, which ends its own children
        gracefully (a Spark driver its JVM). Does nothing after it was reaped."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if number == signal.SIGKILL else os.kill)(self.pid, number)


async def run_job(state: StateFolder, program: str, config: Path, log_name: str, *arguments: str) -> tuple[int, str]:
    """Runs a process that does one thing for a data centre and ends, such as ``python -m txlog.backup``. Exit code of
    the module ``program``, and the last line of its log. Interrupts it when the wait is cancelled. ``OSError`` when it
    cannot be started."""
    log = state.log(log_name)
    command = (sys.executable, "-m", program, "--config", str(config), *arguments)
    code = await ChildProcess(command, state.own_environment, log).wait_or_interrupt(INTERRUPT_TIMEOUT_S)
    return code, "\n".join(last_lines(log, 1))
