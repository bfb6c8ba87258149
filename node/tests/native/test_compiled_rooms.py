"""The compiled rooms: the same as the sources, or not used at all."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from txlog.native import __main__ as making
from txlog.native import finder

RUNTIME_TYPES = re.compile(r"^class \w+\((?:\w+\.)?(?:Struct|BaseModel)\b", re.MULTILINE)
SAYS = (
    "import txlog.native as n; print(n.install_import_hook()); import txlog.protocol.core; print(n.finder.is_native())"
)


def run(*arguments: str, native: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, "TXLOG_NATIVE": native}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("module", finder.COMPILED_MODULES)
def test_no_compiled_class_has_annotations_that_are_read_at_run_time(module: str) -> None:
    """mypyc keeps only their outer type: ``list[Span]`` would be read as ``list``."""
    assert not RUNTIME_TYPES.search(finder.source_path(module).read_text())


@pytest.mark.parametrize("seed", [7, 1234])
def test_compiled_and_interpreted_the_simulator_says_the_same(seed: int) -> None:
    if making.compiler() is None:
        pytest.skip("no C compiler here: there is nothing to compare")
    assert run("-c", SAYS).split() == ["True", "True"], "make native comes before the tests"
    trace = ("-m", "txlog_simulation", "--trace", "--start", str(seed))
    compiled, interpreted = run(*trace), run(*trace, native="0")
    assert compiled.count("\n") > 100
    assert compiled == interpreted


def test_switched_off_it_is_interpreted() -> None:
    assert run("-c", SAYS, native="0").split() == ["False", "False"]


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        "not JSON",
        "[]",
        "{}",
        '{"digest": 1, "files": []}',
        json.dumps({"digest": "of other sources", "files": {"txlog.protocol.core": "x.so"}}),
    ],
)
def test_what_is_not_there_or_does_not_fit_is_not_used(
    manifest: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if manifest is not None:
        (tmp_path / finder.MANIFEST).write_text(manifest)
    monkeypatch.setattr(finder, "BUILD_FOLDER", tmp_path)
    before = list(sys.meta_path)
    assert finder.install_import_hook() is False
    assert sys.meta_path == before


def test_a_missing_extension_means_none_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = {"digest": finder.source_digest(), "files": {"txlog.protocol.core": "txlog.protocol.core.so"}}
    (tmp_path / finder.MANIFEST).write_text(json.dumps(manifest))
    monkeypatch.setattr(finder, "BUILD_FOLDER", tmp_path)
    assert finder.install_import_hook() is False
