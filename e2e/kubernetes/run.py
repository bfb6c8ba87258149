"""``make e2e``: every tier of the tests on Kubernetes, a table, and as the last line what they found, as JSON.

*pure* needs nothing; *api* a control plane without nodes; *data_centers* two whole clusters and the image. Programs and
image are built while the first tier runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

import pytest

from bench.report import Figure, Report, show, table
from e2e.cluster import needs
from e2e.cluster.places import ROOT, CannotRun
from e2e.kubernetes.figures import FIGURES

READY_S: Final = 180.0
CPU_PERCENT: Final = 1.0
RSS_MB: Final = 150.0


class Tier(NamedTuple):
    """``builds``: it waits for programs and image."""

    name: str
    arguments: tuple[str, ...]
    builds: bool


OPERATOR: Final = "node/tests/operator"
TIERS: Final = (
    Tier("pure", (OPERATOR, "e2e/test_cluster_parts.py", "-m", "not kubernetes"), builds=False),
    Tier("api", (OPERATOR, "-m", "kubernetes"), builds=True),
    Tier("data_centers", ("e2e/kubernetes",), builds=True),
)


class Counted:
    """How many tests ended how; a test whose fixture fails has failed."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.ends[report.outcome] += 1


class Ran(NamedTuple):
    """``code``: of pytest; not 0 also where nothing could be collected."""

    tier: str
    ends: Counter[str]
    seconds: float
    code: int


def run(tier: Tier) -> Ran:
    counted, began = Counted(), time.monotonic()
    code = int(pytest.main(["-v", "-p", "no:cacheprovider", *tier.arguments], [counted]))
    return Ran(tier.name, counted.ends, time.monotonic() - began, code)


def build() -> None:
    """Programs and image, each in a process of its own. :class:`CannotRun` when one is not built; its words are on
    stderr."""
    for module, *words in (("e2e.cluster.programs",), ("e2e.cluster.image", "--older")):
        told = [sys.executable, "-m", module, *words]
        if subprocess.run(told, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode:
            raise CannotRun(f"{module} was not built; why is said above")


def run_all(tiers: Sequence[Tier]) -> tuple[list[Ran], CannotRun | None]:
    """What ran, and what kept the rest from it."""
    found: list[Ran] = []
    with ThreadPoolExecutor(1) as pool:
        built: Future[None] = pool.submit(build)
        for tier in tiers:
            if tier.builds:
                try:
                    built.result()
                except CannotRun as missing:
                    return found, missing
            found.append(run(tier))
    return found, None


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    report = Report("make e2e")
    try:
        needs.check()
    except CannotRun as missing:
        print(missing, file=sys.stderr)
        return 1
    os.environ["TXLOG_E2E"] = "1"
    tiers = [Tier("chosen", tuple(arguments), builds=True)] if arguments else TIERS
    ran, missing_build = run_all(tiers)
    _tell(report, ran)
    if missing_build is not None:
        report.failed("programs and image", str(missing_build))
    _judge(report, whole=not arguments)
    report.figure("seconds", time.monotonic() - began, 0)
    return report.end()


def _tell(report: Report, ran: Sequence[Ran]) -> None:
    rows: list[list[Figure]] = [
        [each.tier, each.ends["passed"], each.ends["failed"], each.ends["skipped"], each.seconds] for each in ran
    ]
    show(table("tiers", ("tier", "passed", "failed", "skipped", "seconds"), rows))
    if FIGURES.took_s:
        show(table("from the fault or the change to its end", ("what", "seconds"), list(FIGURES.took_s.items())))
    ends = sum((each.ends for each in ran), Counter[str]())
    report.figure("tests", sum(ends.values()))
    report.figure("passed", ends["passed"])
    report.equal("failed", ends["failed"], 0)
    report.equal("skipped", ends["skipped"], 0)
    for each in ran:
        report.must(f"{each.tier}: pytest ends with 0", each.code == 0, None if each.code == 0 else each.code)


def _judge(report: Report, *, whole: bool) -> None:
    """A figure that a chosen part did not measure is not missed."""
    for name, value, limit in (
        ("ready_s", FIGURES.ready_s, READY_S),
        ("forbidden_requests", FIGURES.forbidden, 0.0),
        ("operator_rss_mb", FIGURES.operator_rss_mb, RSS_MB),
        ("operator_cpu_percent", FIGURES.operator_cpu_percent, CPU_PERCENT),
    ):
        if value is None and not whole:
            report.figure(name, None)
        else:
            report.at_most(name, value, limit)
    report.nested({"took_s": FIGURES.took_s})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
