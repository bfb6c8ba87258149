"""How the tests share two cores. Those that start a JVM or a whole cluster wait more than they work: three rows of them
run beside all the rest."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from functools import cache, cached_property
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# Tests start thousands of Python processes. Without bytecode on disk each of them compiles all it imports, which costs
# more than the rest of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")  # how long one example takes says more about who else is at work than about the code

MARKS = ("cluster", "spark")
HEAVY = (*(f"pytest.mark.{mark}" for mark in MARKS), "from engines import")
"""What tells a heavy file: a mark, or the table of engines (``node/tests/workers/engines.py``), which has the marks of
the stores that it hands out."""
ROWS = 3


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
def is_heavy(file: str) -> bool:
    """Of a file below this folder. Read as text: who hands out the tests has not imported them."""
    text = (Path(__file__).parent / file).read_text()
    return any(mark in text for mark in HEAVY)


class BesideEachOther(LoadScopeScheduling):
    """A file's tests run in one process, so that its fixtures are made once; so do the heavy files of a row, dealt out
    in turn: no more of them at once than there are rows."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return f"heavy {self._heavy.index(file) % ROWS}" if is_heavy(file) else file

    @cached_property
    def _heavy(self) -> list[str]:
        files = {nodeid.partition("::")[0] for nodeid in self.collection or ()}
        return sorted(file for file in files if is_heavy(file))


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> BesideEachOther:
    config.option.loadscopereorder = False
    return BesideEachOther(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The heavy ones first: what is left to the end should be short. A mark that comes from somewhere else than the
    text of its file is refused: nobody could tell it from the text."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        if any(item.get_closest_marker(mark) for mark in MARKS) and not is_heavy(file):
            raise pytest.UsageError(
                f"{item.nodeid} is heavy, and the text of its file does not say so. Next: see HEAVY"
            )
    items.sort(key=lambda item: not is_heavy(item.nodeid.partition("::")[0]))
