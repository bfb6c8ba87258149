"""Takes a safeguard out of modules that are imported already: functions get the code of the edited source.

A fork of a process that has imported everything needs no time to import, so a mutant costs little more than the test
that kills it. Only bodies of functions can be exchanged so. An edit of anything else, such as a constant that other
modules have copied, needs a fresh process.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from txlog_simulation import source_patches
from txlog_simulation.source_patches import SourceEdit

Place = tuple[str, int]
"""A function's qualified name, and its number among those of this name in its module."""


def install_edits(edits: Sequence[SourceEdit]) -> bool:
    """Apply the edits to modules that are imported, and to the others when they will be. False, and nothing is
    changed, where a fresh process is needed."""
    sources = source_patches.apply_edits(edits)
    swaps: list[tuple[FunctionType, CodeType]] = []
    for name in sorted(set(sources) & set(sys.modules)):
        found = _find_swaps(sys.modules[name], sources.pop(name))
        if found is None:
            return False
        swaps += found
    for function, code in swaps:
        function.__code__ = code
    source_patches.install_sources(sources)
    return True


def _find_swaps(module: ModuleType, source: str) -> list[tuple[FunctionType, CodeType]] | None:
    """The living functions of the module that change, with their new code; None where more than functions changes."""
    file = module.__file__ or ""
    if _outside_functions(Path(file).read_text()) != _outside_functions(source):
        return None
    code = compile(source, file, "exec", dont_inherit=True)
    new = _functions_of(code)
    swaps = []
    for place, functions in _living_functions(module).items():
        made = new.get(place)
        if made is None or len(made.co_freevars) != len(functions[0].__code__.co_freevars):
            return None
        swaps += [(function, made) for function in functions if function.__code__ != made]
    return swaps or None


class _BodiesRemoved(ast.NodeTransformer):
    """Keeps signatures, decorators and defaults, which take effect when the module is imported."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = []
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.body = []
        return node


def _outside_functions(source: str) -> str:
    return ast.dump(_BodiesRemoved().visit(ast.parse(source)))


def _functions_of(code: CodeType) -> dict[Place, CodeType]:
    """By place, in the order of the source."""
    counts: Counter[str] = Counter()
    found: dict[Place, CodeType] = {}
    for one in sorted(_nested(code), key=lambda each: each.co_firstlineno):
        found[one.co_qualname, counts[one.co_qualname]] = one
        counts[one.co_qualname] += 1
    return found


def _nested(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested(constant)


def _living_functions(module: ModuleType) -> dict[Place, list[FunctionType]]:
    """Functions whose code comes from the module's file. Functions within functions may live several times."""
    by_code: dict[CodeType, list[FunctionType]] = defaultdict(list)
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename == module.__file__:
            by_code[one.__code__].append(one)
    old = compile(Path(module.__file__ or "").read_text(), module.__file__ or "", "exec", dont_inherit=True)
    places = {code: place for place, code in _functions_of(old).items()}
    return {places[code]: functions for code, functions in by_code.items() if code in places}
