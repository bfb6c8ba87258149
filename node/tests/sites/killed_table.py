"""``python killed_table.py FOLDER N``: processes that write books to a version table, the first killed at the N-th
statement, the next at the 2N-th, until one comes to its end. Each has a folder with the number of its statement.

This program only forks them, and opens no table itself."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

from txlog_simulation import mutant_table, source_patches
from txlog_simulation.mutant import MUTANT_VARIABLE

if MUTANT_VARIABLE in os.environ:
    edits = next(each.edits for each in mutant_table.MUTANTS if each.name == os.environ[MUTANT_VARIABLE])
    source_patches.install_edits(edits)

from table_steps import COUNT, IDENTITY, step

from txlog.sites.version_table import VersionTable


def write_books(folder: Path, left: int) -> None:
    """This process is killed at the statement numbered ``left``."""

    def statement(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    table = VersionTable(folder / "versions.sqlite", IDENTITY, statement)
    while table.mine.index < COUNT:
        step(table)
        table.save()
    table.close()


def is_killed(folder: Path, at: int) -> bool:
    """Whether a process of its own was killed at this statement, and not over before. Another end of it ends this
    program."""
    folder.mkdir()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            write_books(folder, at)
            code = 0
        finally:
            if code:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"ended with {code}")
    return code != 0


def main(folder: Path, every: int) -> None:
    """See above."""
    at = every
    while is_killed(folder / str(at), at):
        at += every


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
