"""Programs that are written in a Dockerfile, a chart or a script name what exists."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
IMPORT = re.compile(r"from ((?:txlog|txlog_operator|kubectl_txlog)[\w.]*) import (\w+(?:, \w+)*)")
MODULE = re.compile(r"python3? -m ((?:txlog|txlog_operator|kubectl_txlog)[\w.]*)")
FILES = sorted(
    path
    for pattern in ("Dockerfile", "charts/**/*.yaml", "tools/*", ".ci/*", "Makefile", "examples/**/*")
    for path in ROOT.glob(pattern)
    if path.is_file() and path.suffix != ".py"
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_imported_or_started_exists(path: Path) -> None:
    text = path.read_text()
    for module, names in IMPORT.findall(text):
        found = importlib.import_module(module)
        assert [name for name in names.split(", ") if not hasattr(found, name)] == [], module
    for module in MODULE.findall(text):
        assert importlib.util.find_spec(module.rstrip(".")) is not None, module


def test_the_image_starts_from_a_file_that_imports() -> None:
    assert IMPORT.findall((ROOT / "Dockerfile").read_text())
