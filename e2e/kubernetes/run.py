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

from e2e.cluster import prerequisites
from e2e.cluster.layout import ROOT, ClusterUnavailable
from e2e.kubernetes.measurements import MEASUREMENTS
from e2e.lib.report import BenchReport, Figure, build_table, print_table

READY_S: Final = 180.0
CPU_PERCENT: Final = 1.0
RSS_MB: Final = 150.0


class TestTier(NamedTuple):
    """``builds``: it waits for programs and image."""

    name: str
    arguments: tuple[str, ...]
    builds: bool


OPERATOR: Final = "operator/tests"
TIERS: Final = (
    TestTier("pure", (OPERATOR, "e2e/tests/test_cluster_parts.py", "-m", "not kubernetes"), builds=False),
    TestTier("api", (OPERATOR, "-m", "kubernetes"), builds=True),
    TestTier("data_centers", ("e2e/kubernetes",), builds=True),
)


class OutcomeCounter:
    """How many tests ended how; a test whose fixture fails has failed."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.ends[report.outcome] += 1


class TierResult(NamedTuple):
    """``code``: of pytest; not 0 also where nothing could be collected."""

    tier: str
    ends: Counter[str]
    seconds: float
    code: int


def run_tier(tier: TestTier) -> TierResult:
    counted, began = OutcomeCounter(), time.monotonic()
    code = int(pytest.main(["-v", "-p", "no:cacheprovider", *tier.arguments], [counted]))
    return TierResult(tier.name, counted.ends, time.monotonic() - began, code)


def build_all() -> None:
    """Programs and image, each in a process of its own. :class:`ClusterUnavailable` when one is not built; its words
    are on stderr."""
    for module, *words in (("e2e.cluster.programs",), ("e2e.cluster.image_build", "--older")):
        told = [sys.executable, "-m", module, *words]
        if subprocess.run(told, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode:
            raise ClusterUnavailable(f"{module} was not built; why is said above")


def run_all(tiers: Sequence[TestTier]) -> tuple[list[TierResult], ClusterUnavailable | None]:
    """What ran, and what kept the rest from it."""
    found: list[TierResult] = []
    with ThreadPoolExecutor(1) as pool:
        built: Future[None] = pool.submit(build_all)
        for tier in tiers:
            if tier.builds:
                try:
                    built.result()
                except ClusterUnavailable as missing:
                    return found, missing
            found.append(run_tier(tier))
    return found, None


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    report = BenchReport("make e2e")
    try:
        prerequisites.check_prerequisites()
    except ClusterUnavailable as missing:
        print(missing, file=sys.stderr)
        return 1
    os.environ["TXLOG_E2E"] = "1"
    tiers = [TestTier("chosen", tuple(map(_file_of, arguments)), builds=True)] if arguments else TIERS
    ran, missing_build = run_all(tiers)
    _report_tiers(report, ran)
    if missing_build is not None:
        report.failed("programs and image", str(missing_build))
    _check_measurements(report, whole=not arguments)
    report.figure("seconds", time.monotonic() - began, 0)
    return report.end()


def _file_of(argument: str) -> str:
    """Of a single word, the file of this folder with those tests; anything else is for pytest as it is."""
    file = f"e2e/kubernetes/test_{argument}.py"
    return file if argument.isidentifier() and (ROOT / file).exists() else argument


def _report_tiers(report: BenchReport, ran: Sequence[TierResult]) -> None:
    rows: list[list[Figure]] = [
        [each.tier, each.ends["passed"], each.ends["failed"], each.ends["skipped"], each.seconds] for each in ran
    ]
    print_table(build_table("tiers", ("tier", "passed", "failed", "skipped", "seconds"), rows))
    if MEASUREMENTS.took_s:
        print_table(
            build_table(
                "from the fault or the change to its end", ("what", "seconds"), list(MEASUREMENTS.took_s.items())
            )
        )
    ends = sum((each.ends for each in ran), Counter[str]())
    report.figure("tests", sum(ends.values()))
    report.figure("passed", ends["passed"])
    report.equal("failed", ends["failed"], 0)
    report.equal("skipped", ends["skipped"], 0)
    for each in ran:
        report.require(f"{each.tier}: pytest ends with 0", each.code == 0, None if each.code == 0 else each.code)


def _check_measurements(report: BenchReport, *, whole: bool) -> None:
    """A figure that a chosen part did not measure is not missed."""
    for name, value, limit in (
        ("ready_s", MEASUREMENTS.ready_s, READY_S),
        ("forbidden_requests", MEASUREMENTS.forbidden, 0.0),
        ("operator_rss_mb", MEASUREMENTS.operator_rss_mb, RSS_MB),
        ("operator_cpu_percent", MEASUREMENTS.operator_cpu_percent, CPU_PERCENT),
    ):
        if value is None and not whole:
            report.figure(name, None)
        else:
            report.at_most(name, value, limit)
    report.nested({"took_s": MEASUREMENTS.took_s})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
