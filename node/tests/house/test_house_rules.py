"""House rules that no linter knows."""

import operator
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE_LINES_MAX = 800


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [ROOT / name for name in listed if (ROOT / name).exists()]


def test_the_operator_folder_never_hides_the_module() -> None:
    assert operator.itemgetter(0)([1]) == 1


def test_lock_files_name_no_index() -> None:
    for lock in tracked("*.lock"):
        assert not re.search(r"https?://|--(index|find-links|extra)", lock.read_text()), lock
        for line in lock.read_text().splitlines():
            has_hash = line.endswith("\\") or re.search(r" [0-9a-f]{64}$", line)  # pip's, Maven's
            assert not line or line[0] in " #" or has_hash, f"{lock}: without a hash: {line}"


def test_every_dependency_has_a_line_of_reason() -> None:
    page = (ROOT / "docs/dependencies.md").read_text()
    for wanted in tracked("*.in"):
        for line in wanted.read_text().splitlines():
            name = re.split(r"[=<>\[ ]", line)[0]
            if name and not line.startswith(("#", "-")):
                assert re.search(rf"(\| |, ){re.escape(name)}[ ,]", page), f"{name} of {wanted.name}"


def test_modules_stay_small_enough_to_read() -> None:
    for module in tracked(
        "node/txlog/**/*.py", "node/txlog/*.py", "node/txlog_simulation/*.py", "bench/*.py", "e2e/**/*.py"
    ):
        assert len(module.read_text().splitlines()) <= CODE_LINES_MAX, module


def test_possessive_groups_end_with_an_empty_alternative() -> None:
    """Without it Python before 3.11.5 takes too much: see ``sparql/tokens.py``. Sets of characters may hold ``)*+``."""
    for module in tracked("node/txlog/**/*.py", "bench/*.py", "e2e/**/*.py"):
        for number, line in enumerate(module.read_text().splitlines(), 1):
            bare = re.sub(r"\\.|\[(?:[^\]\\]|\\.)*\]", "x", line)
            assert not re.search(r"(?<!\|)\)(?:[*?+]|\{[0-9,]+\})\+", bare), f"{module}:{number}"


def test_test_modules_have_names_of_their_own() -> None:
    names = [
        path.name for path in tracked("node/tests/**/test_*.py", "e2e/**/test_*.py", "operator/tests/**/test_*.py")
    ]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
