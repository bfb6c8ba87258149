"""An edit inside functions reaches modules that are imported; every other edit asks for a fresh process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from txlog_simulation import code_swap, source_patches
from txlog_simulation.code_swap import install_edits
from txlog_simulation.source_patches import SourceEdit

SOURCE = """
from functools import wraps

LIMIT = 3

def counted(function):
    @wraps(function)
    def call(*values):
        return function(*values) + 100
    return call

class Counter:
    step = 1

    def __init__(self):
        self.value = 0

    @property
    def double(self):
        return self.value * 2

    @double.setter
    def double(self, value):
        self.value = value // 2

    @counted
    def add(self, count):
        def one(value):
            return value + self.step
        for _ in range(count):
            self.value = one(self.value)
        return self.value

def is_full(value, limit=LIMIT):
    return value >= limit
"""
FILE = "swap_example.py"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / FILE).write_text(SOURCE)
    monkeypatch.setattr(source_patches, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("swap_example")
    del sys.modules["swap_example"]


def test_what_others_have_imported_changes(example: ModuleType) -> None:
    add, is_full, counter = example.Counter.add, example.is_full, example.Counter()
    edits = (
        SourceEdit(FILE, "value + self.step", "value + 2 * self.step"),
        SourceEdit(FILE, "value >= limit", "value > limit"),
        SourceEdit(FILE, "function(*values) + 100", "function(*values) + 1000"),
    )
    assert install_edits(edits)
    assert add(counter, 2) == 1004
    assert not is_full(3)


def test_the_right_one_of_two_functions_with_one_name_changes(example: ModuleType) -> None:
    counter = example.Counter()
    assert install_edits([SourceEdit(FILE, "self.value = value // 2", "self.value = value")])
    counter.double = 8
    assert (counter.value, counter.double) == (8, 16)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("step = 1", "step = 2"),
        ("limit=LIMIT", "limit=5"),
        ("    @counted\n", ""),
        ("def is_full", "def is_empty"),
    ],
)
def test_what_took_effect_at_the_import_asks_for_a_fresh_process(example: ModuleType, old: str, new: str) -> None:
    before = example.Counter.add.__wrapped__.__code__
    assert not install_edits([SourceEdit(FILE, old, new), SourceEdit(FILE, "return self.value\n", "return 0\n")])
    assert example.Counter.add.__wrapped__.__code__ is before


def test_a_module_that_is_not_imported_yet_gets_the_edit_then(example: ModuleType) -> None:
    (source_patches.ROOT / "swap_later.py").write_text("def limit():\n    return 3\n")
    finders = list(sys.meta_path)
    try:
        assert code_swap.install_edits([SourceEdit("swap_later.py", "return 3", "return 4")])
        assert importlib.import_module("swap_later").limit() == 4
    finally:
        sys.meta_path[:] = finders
        sys.modules.pop("swap_later", None)
