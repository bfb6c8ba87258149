"""``make fuzz``: whatever reads bytes from outside, given bytes that nobody would send.

Inputs are drawn by number from a seed: those that are well formed, changed; words of the language in any order; things
said thousands of times. Each is read in a process that is watched: it may be refused by a typed error, and by nothing
else, within a time and with bounded memory. An input that is not is written down, and can be read again alone
(``--seed N --only NUMBER``). The last line of stdout is JSON: ``{"inputs", "crashes", "hangs", ...}``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from e2e.fuzz.targets import FuzzTarget, all_targets
from e2e.lib.host_metrics import cpu_seconds, memory_growth_mb
from e2e.lib.report import BenchReport, CannotMeasure, build_table, console, print_table
from txlog.model.errors import TxLogError

PROCESSES: Final = 2
HANG_S: Final = 5.0
"""Of the processor, for one input of at most 64 KiB."""
MEMORY_MB: Final = 400
"""That one input may add to what a process uses. What a small body unfolds to is bounded by 16 MiB, of
which several copies are there at a time."""
SHOWN_MAX: Final = 20
POLL_S: Final = 0.25
BATCH: Final = 200
TargetFactory = Callable[[], list[FuzzTarget]]


class FuzzFinding(NamedTuple):
    """``kind``: crash or hang. ``where``: which one it is, so that each is told once."""

    kind: str
    number: int
    target: str
    where: str
    text: str


def generate_input(seed: int, number: int, all_targets: list[FuzzTarget]) -> tuple[FuzzTarget, bytes]:
    """The input of that number."""
    chance = random.Random(f"{seed} {number}")
    [target] = chance.choices(all_targets, [one.share for one in all_targets])
    return target, target.input(chance)


def run_input(number: int, target: FuzzTarget, data: bytes, accepted: Counter[str] | None = None) -> FuzzFinding | None:
    """Read one input in this process. ``accepted`` counts, by target, what is not refused."""

    def read() -> None:
        with suppress(TxLogError):
            target.read(data)
            if accepted is not None:
                accepted[target.name] += 1

    try:
        grown = memory_growth_mb(read)
    except Exception as wrong:  # noqa: BLE001 - that is what is looked for
        frames = traceback.extract_tb(wrong.__traceback__)
        where = f"{type(wrong).__name__} at {Path(frames[-1].filename).name}:{frames[-1].lineno}"
        return FuzzFinding("crash", number, target.name, where, "".join(traceback.format_exception(wrong)[-6:])[-3000:])
    if grown > MEMORY_MB:
        return FuzzFinding("crash", number, target.name, "memory", f"{grown:.0f} MB more for {len(data)} bytes")
    return None


def run_inputs(seed: int, first: int, step: int, last: int, make: TargetFactory, at: Connection) -> None:
    """Every ``step``th input from ``first`` on; what is found, and how far this process is, goes to ``at``."""
    all_targets = make()
    counts: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    at.send(("ready", first))
    for done, number in enumerate(range(first, last, step)):
        target, data = generate_input(seed, number, all_targets)
        at.send(("begin", number, target.name))
        found = run_input(number, target, data, accepted)
        if found is not None:
            at.send(("found", found))
        counts[target.name] += 1
        if done % BATCH == 0:
            at.send(("done", counts, accepted))
            counts, accepted = Counter(), Counter()
    at.send(("done", counts, accepted))
    at.send(("end", last))


class FuzzProcess:
    """One process and the input it is at."""

    def __init__(self, seed: int, first: int, step: int, last: int, make: TargetFactory, hang_s: float) -> None:
        self.seed, self.step, self.last = seed, step, last
        self._make, self._hang_s = make, hang_s
        self.number, self.target = first, "start"
        self.is_finished = False
        self.findings: list[FuzzFinding] = []
        self.counts: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self._start(first)

    def _start(self, first: int) -> None:
        if first >= self.last:
            self.is_finished = True
            return
        context = multiprocessing.get_context("spawn")
        self._at, given = context.Pipe(duplex=False)
        given_all = (self.seed, first, self.step, self.last, self._make, given)
        # A daemon ends with this process, whatever ends it.
        self._process = context.Process(target=run_inputs, args=given_all, daemon=True)
        self._process.start()
        given.close()
        self._began = 0.0
        self._working = False

    def poll(self, timeout_s: float) -> None:
        """What it has said, and whether it stands still or is gone."""
        if self.is_finished:
            return
        try:
            while self._at.poll(timeout_s):
                self._on_message(self._at.recv())
                timeout_s = 0.0
                if self.is_finished:
                    self._process.join()
                    return
        except EOFError:
            self._process.join()
            if not self._working:
                raise CannotMeasure(
                    "a process that reads inputs ended before its first one; what it said stands above"
                ) from None
            self._on_process_lost("crash", f"the process ended with {self._process.exitcode}")
            return
        used = cpu_seconds(self._process.pid or 0)
        # It may have gone on between the last word and the look at its processor: then it has said so by now.
        if self._working and used - self._began > self._hang_s and not self._at.poll(0.0):
            self._process.kill()
            self._process.join()
            self._on_process_lost("hang", f"more than {self._hang_s:g} s of the processor")

    def _on_message(self, said: tuple[object, ...]) -> None:
        match said:
            case ("begin", int(number), str(target)):
                self.number, self.target = number, target
                self._working = True
                self._began = cpu_seconds(self._process.pid or 0)
            case ("found", FuzzFinding() as found):
                self.findings.append(found)
            case ("done", Counter() as counts, Counter() as accepted):
                self.counts.update(counts)
                self.accepted.update(accepted)
            case ("end", _):
                self.is_finished = True
            case _:
                pass

    def _on_process_lost(self, kind: str, why: str) -> None:
        self.findings.append(FuzzFinding(kind, self.number, self.target, f"{self.target}: {why}", why))
        self._start(self.number + self.step)


def run_fuzz(
    seed: int, count: int, *, processes: int = PROCESSES, make: TargetFactory = all_targets, hang_s: float = HANG_S
) -> tuple[list[FuzzFinding], Counter[str], Counter[str]]:
    """So many inputs, read. What was found, how many there were of each target, without those that ended a
    process, and how many of them were accepted. ``make`` gives the targets, in each process."""
    rows = [FuzzProcess(seed, at, processes, count, make, hang_s) for at in range(min(processes, count))]
    shown = time.monotonic()
    while not all(row.is_finished for row in rows):
        for row in rows:
            row.poll(POLL_S / len(rows))
        if time.monotonic() > shown + 15:
            shown = time.monotonic()
            done, found = sum(row.counts.total() for row in rows), sum(len(row.findings) for row in rows)
            console.print(f"{done} inputs, {found} findings")
    counts = sum((row.counts for row in rows), Counter[str]())
    accepted = sum((row.accepted for row in rows), Counter[str]())
    return sorted((found for row in rows for found in row.findings), key=lambda found: found.number), counts, accepted


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.fuzz.run", description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed when it is not given")
    parser.add_argument("--jobs", type=int, default=PROCESSES, help="processes that read")
    parser.add_argument("--only", type=int, default=None, help="read the input of this number, here, and show it")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    console.print(f"seed {seed}")
    if options.only is not None:
        target, data = generate_input(seed, options.only, all_targets())
        print(f"{target.name}: {data!r}")
        target.read(data)
        return 0
    report = BenchReport("fuzz")
    began = time.monotonic()
    findings, counts, taken = run_fuzz(seed, options.inputs, processes=options.jobs)
    rows = [(name, count, taken[name]) for name, count in sorted(counts.items())]
    print_table(build_table("inputs", ("reader", "inputs", "accepted"), rows))
    kinds = Counter((found.kind, found.where) for found in findings)
    print_table(
        build_table("found", ("what", "inputs"), [(f"{kind}: {where}", n) for (kind, where), n in kinds.most_common()])
    )
    for (kind, where), _ in kinds.most_common(SHOWN_MAX):
        first = next(found for found in findings if (found.kind, found.where) == (kind, where))
        print(f"{kind} of {first.target} with input {first.number} of seed {seed}\n{first.text}")
    lost = sum(found.where.startswith(found.target) for found in findings)
    report.figure("inputs", counts.total() + lost)
    report.figure("accepted", taken.total())
    report.equal("crashes", sum(found.kind == "crash" for found in findings), 0)
    report.equal("hangs", sum(found.kind == "hang" for found in findings), 0)
    report.figure("seconds", time.monotonic() - began)
    report.figure("seed", seed)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
