"""The text of the module: its properties, the rules that it names, and edits of it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).parent / "Masters.tla"
PROPERTIES_OF_STEPS: Final = frozenset({"PromisesGrow"})
"""Properties of a step from one state to the next; the others hold in each state."""


class BadEdit(Exception):
    """The text to replace is not in the module exactly once."""


@cache
def module_text() -> str:
    """The module as it is in the repository."""
    return MODULE.read_text()


def properties_of(text: str = "") -> list[str]:
    """The properties that the module defines, in its order."""
    section = (text or module_text()).partition("(* Properties *)")[2]
    return re.findall(r"^(\w+) ==", section, re.MULTILINE)


def rules_of(text: str = "") -> set[int]:
    """The numbers of the rules that the module names in brackets."""
    named = re.findall(r"\[rules? ([\d, ]+)\]", text or module_text())
    return {int(number) for numbers in named for number in numbers.split(",")}


def edited(edits: tuple[tuple[str, str], ...], text: str = "") -> str:
    """The module with each old text replaced by the new one. :class:`BadEdit` when an old text is not there once."""
    result = text or module_text()
    for old, new in edits:
        if result.count(old) != 1:
            raise BadEdit(f"{result.count(old)} times in the module: {old!r}")
        result = result.replace(old, new)
    return result
