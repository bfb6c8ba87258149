"""One child process: how it is started, what is heard of its end, and its log file."""

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

from txlog.local.process_identity import ProcessIdentity, identity_of

_PR_SET_PDEATHSIG: Final = 1
_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _prepare_child(parent: int) -> None:
    """In the new process: it can be interrupted, also when its supervisor was started in the background of a shell,
    which ignores SIGINT then. On Linux the kernel kills it when its supervisor is gone, however that ended."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


class ChildProcess:
    """A running process, in a session of its own, so that Ctrl-C in a terminal reaches its supervisor only."""

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
                preexec_fn=lambda: _prepare_child(parent),
            )
        self.pid = self._process.pid
        self.identity: ProcessIdentity | None = identity_of(self.pid)

    async def wait(self) -> int:
        """Its exit code, negative for a signal; what it left behind in its process group is killed (on Linux)."""
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
        self.signal(signal.SIGKILL)  # not reaped yet, so its number is still its own: this reaches only its group
        return self._process.wait()  # it has ended, so this does not block

    async def wait_or_interrupt(self, clear_up_s: float) -> int:
        """Its exit code, as :meth:`wait`. When the waiting is cancelled it is interrupted, and killed if it has not
        ended after ``clear_up_s``."""
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
        """SIGKILL to its whole process group, any other to the process alone: it ends its own children in order
        (a Spark driver its JVM). Nothing once it has been reaped."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if number == signal.SIGKILL else os.kill)(self.pid, number)
