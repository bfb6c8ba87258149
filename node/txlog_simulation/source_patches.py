"""Takes a safeguard out of the shipped code while it is imported: exact old text to new text, in a fresh process.

Nothing of ``txlog`` may be imported before :func:`install_edits`, so this module imports nothing of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class SourceEdit(NamedTuple):
    """``file`` is relative to the folder of the packages; ``old`` stands in it exactly once. A folder: in one of its
    files."""

    file: str
    old: str
    new: str


class PatchTargetMissing(Exception):
    """The shipped code has changed: this edit's old text is not there exactly once."""


def apply_edits(edits: Sequence[SourceEdit]) -> dict[str, str]:
    """Module name to patched source; :class:`PatchTargetMissing` names the edit that does not fit."""
    sources: dict[str, str] = {}
    for edit in edits:
        path = ROOT / edit.file
        texts = {
            _module_name(file): file.read_text() for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
        }
        texts |= {name: text for name, text in sources.items() if name in texts}
        count = sum(text.count(edit.old) for text in texts.values())
        if count != 1:
            raise PatchTargetMissing(f"{edit.file} has this {count} times, not once:\n{edit.old}")
        name = next(name for name, text in texts.items() if edit.old in text)
        sources[name] = texts[name].replace(edit.old, edit.new)
    return sources


def _module_name(file: Path) -> str:
    return file.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")


class _PatchedLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        code = compile(self._source, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class _PatchedFinder(MetaPathFinder):
    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        source = self._sources.get(fullname)
        if source is None:
            return None
        file = str(ROOT / (fullname.replace(".", "/") + ".py"))
        return spec_from_file_location(fullname, file, loader=_PatchedLoader(fullname, file, source))


def install_edits(edits: Sequence[SourceEdit]) -> None:
    """From here on these modules are imported with the edits in them."""
    install_sources(apply_edits(edits))


def install_sources(sources: dict[str, str]) -> None:
    """From here on these modules, none of which is imported yet, are imported from these sources."""
    early = sorted(set(sources) & set(sys.modules))
    if early:
        raise PatchTargetMissing(f"already imported: {early}")
    sys.meta_path.insert(0, _PatchedFinder(sources))
