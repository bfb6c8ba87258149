"""Processes that do one thing for a data centre and end, such as ``python -m txlog.backup``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from txlog.local.child_process import ChildProcess
from txlog.local.log_files import last_lines
from txlog.local.state_folder import StateFolder

INTERRUPT_TIMEOUT_S: Final = 5.0
"""How long an interrupted one may take to delete its unfinished files."""


async def run_job(state: StateFolder, program: str, config: Path, log_name: str, *arguments: str) -> tuple[int, str]:
    """Exit code of the module ``program``, and the last line of its log. Interrupts it when the wait is cancelled.
    ``OSError`` when it cannot be started."""
    log = state.log(log_name)
    command = (sys.executable, "-m", program, "--config", str(config), *arguments)
    code = await ChildProcess(command, state.own_environment, log).wait_or_interrupt(INTERRUPT_TIMEOUT_S)
    return code, "\n".join(last_lines(log, 1))
