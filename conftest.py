"""How the tests share two cores. Those that start a JVM or a whole cluster wait more than they work: three of their
files run beside all the rest."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# Tests start thousands of Python processes. Without bytecode on disk each of them compiles all it imports, which costs
# more than the rest of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A Java's start is most of what it costs in a test, and less with the quick compiler alone.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")  # how long one example takes says more about who else is at work than about the code

MARKS = ("cluster", "spark")
ENGINES = "from engines import"
"""The table of engines (``node/tests/workers/engines.py``): it has the marks of the stores that it hands out, and keeps
one store of each kind for the files of one process."""
HEAVY = (*(f"pytest.mark.{mark}" for mark in MARKS), ENGINES)
"""What tells a heavy file."""
HEAVY_AT_ONCE = 3


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests and what they import stay until the end: no later collection of garbage walks them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@cache
def _text(file: str) -> str:
    """Of a file below this folder. Read as text: who hands out the tests has not imported them."""
    return (Path(__file__).parent / file).read_text()


def is_heavy(file: str) -> bool:
    return any(mark in _text(file) for mark in HEAVY)


class BesideEachOther(LoadScopeScheduling):
    """A file's tests run in one process, so that its fixtures are made once; so do those of all files that share the
    stores of the table of engines. Heavy ones are begun by any free process, but no more of them at once than
    :data:`HEAVY_AT_ONCE`."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return ENGINES if ENGINES in _text(file) else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        busy = sum(self._has_heavy(other) for other in self.nodes if other is not node)
        if busy >= HEAVY_AT_ONCE:
            light = next((scope for scope in self.workqueue if not _is_heavy_scope(scope)), None)
            if light is not None:
                self.workqueue.move_to_end(light, last=False)
        super()._assign_work_unit(node)

    def _has_heavy(self, node: WorkerController) -> bool:
        """Whether a heavy file is under way there, or waits for it."""
        units = self.assigned_work[node].items()
        return any(_is_heavy_scope(scope) and not all(unit.values()) for scope, unit in units)


def _is_heavy_scope(scope: str) -> bool:
    return scope == ENGINES or is_heavy(scope)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> BesideEachOther:
    config.option.loadscopereorder = False
    return BesideEachOther(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The heavy ones first, and before all those of the engines, in one row: what is left to the end should be short. A
    mark that comes from somewhere else than the text of its file is refused: the scheduler reads only the text."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        if any(item.get_closest_marker(mark) for mark in MARKS) and not is_heavy(file):
            raise pytest.UsageError(
                f"{item.nodeid} is heavy, and the text of its file does not say so. Next: see HEAVY"
            )
    items.sort(key=_by_weight)


def _by_weight(item: pytest.Item) -> tuple[bool, bool]:
    file = item.nodeid.partition("::")[0]
    return (not is_heavy(file), ENGINES not in _text(file))
