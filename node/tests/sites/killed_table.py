"""``python killed_table.py FOLDER N``: writes books to a version table, and kills itself at the N-th statement."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from txlog_simulation import mutant_table, source_patches
from txlog_simulation.mutants import MUTANT_VARIABLE

if MUTANT_VARIABLE in os.environ:
    edits = next(each.edits for each in mutant_table.MUTANTS if each.name == os.environ[MUTANT_VARIABLE])
    source_patches.install_edits(edits)

from table_steps import COUNT, IDENTITY, step

from txlog.sites.version_table import VersionTable

left = int(sys.argv[2])


def statement(_: str) -> None:
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


table = VersionTable(Path(sys.argv[1]) / "versions.sqlite", IDENTITY, statement)
while table.mine.index < COUNT:
    step(table)
    table.save()
table.close()
