"""``python -m txlog_simulation --seeds N --start S``: see the README beside this file."""

from __future__ import annotations

import argparse
import secrets
import sys

from txlog.native import install_import_hook
from txlog_simulation import source_patches
from txlog_simulation.mutant_table import MUTANTS


def _start(text: str) -> int:
    """Any seed from a million on, so that the fixed ones are not drawn again; it is told at once, to be repeated."""
    if text != "random":
        return int(text)
    start = 1_000_000 + secrets.randbelow(1 << 40)
    print(f"seeds from {start} on", flush=True)
    return start


def main(arguments: list[str]) -> int:
    """The exit code: 0, or 1 when something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m txlog_simulation")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--start", type=_start, default=0, help="the first seed; random: any, which is printed")
    parser.add_argument("--jobs", type=int, default=0, help="processes; 0: one for each processor")
    parser.add_argument("--profile", default="", help="only this mix of faults")
    parser.add_argument("--mutant", default="", help="with this safeguard taken out")
    parser.add_argument("--stop-at-first", action="store_true", help="end at the first violation")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--trace", action="store_true", help="print every event of the first seed")
    parser.add_argument("--digest", action="store_true", help="one digest of every event of all seeds, nothing else")
    parser.add_argument("--shrink", action="store_true", help="with --mutant or --trace: the smallest plan that fails")
    options = parser.parse_args(arguments)
    mutant = next(m for m in MUTANTS if m.name == options.mutant) if options.mutant else None
    if mutant is not None:
        source_patches.install_edits(mutant.edits)
    else:
        install_import_hook()
    from txlog_simulation import runner  # not before the patch

    job = runner.SimulationJob(
        options.seeds,
        options.start,
        options.jobs or runner.parallel_runs(),
        options.mutant,
        options.stop_at_first,
        options.profile,
        not options.quiet,
        options.shrink or not (options.mutant or options.trace),
        mutant.counts if mutant is not None else None,
    )
    if options.digest:
        return runner.print_digest(job)
    return runner.show_trace(job) if options.trace else runner.run_all(job)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
