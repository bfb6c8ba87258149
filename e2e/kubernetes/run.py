"""``make e2e``: the tests of this folder, and as the last line what they found, as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from typing import Any

import pytest

from e2e.cluster import needs
from e2e.cluster.places import CannotRun
from e2e.kubernetes.figures import FIGURES


class Counted:
    """How many tests ended how; a test whose fixture fails has failed."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.ends[report.outcome] += 1


def main(arguments: list[str]) -> int:
    try:
        needs.check()
    except CannotRun as missing:
        print(missing, file=sys.stderr)
        return 1
    counted = Counted()
    os.environ["TXLOG_E2E"] = "1"
    code = int(pytest.main(["-v", *(arguments or ["e2e/kubernetes"])], [counted]))
    ends = counted.ends
    told: dict[str, Any] = {
        "tests": sum(ends.values()),
        "passed": ends["passed"],
        "failed": ends["failed"],
        "skipped": ends["skipped"],
        "ready_s": FIGURES.ready_s,
        "forbidden_requests": FIGURES.forbidden,
        "operator_rss_mb": FIGURES.operator_rss_mb,
    }
    print(json.dumps(told))
    return code or bool(ends["skipped"] or FIGURES.forbidden)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
