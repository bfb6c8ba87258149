"""``python link_process.py --config FILE.json``: as ``python -m txlog.sites``, with the edits of the mutant that the
environment names."""

from __future__ import annotations

import os
import sys

from txlog_simulation import mutant_table, source_patches
from txlog_simulation.mutant import MUTANT_VARIABLE

if MUTANT_VARIABLE in os.environ:
    source_patches.install_edits(
        next(each.edits for each in mutant_table.MUTANTS if each.name == os.environ[MUTANT_VARIABLE])
    )

from txlog.sites.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
