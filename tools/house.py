"""``make house``: what a newcomer meets, counted. Prints a table and one line of JSON; fails when a limit is exceeded.

Names: module names that end in -ing, class names that stand for several things, chains of inheritance, words that the
glossary replaces. Size: long files and functions. Documentation: documented public functions, sentence lengths, dead
links, alerts without a runbook. Sources are the files that git tracks; decision records keep the words of their day.
"""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCTION = ("node/txlog/", "operator/")
"""What runs in a cluster. Simulation, benchmarks and end-to-end tests are counted for names and sizes only."""
CODE = (*PRODUCTION, "node/txlog_simulation/", "bench/", "e2e/", "tools/")
NO_GERUNDS = frozenset({"string", "ring", "routing", "framing", "netting", "handling", "setting"})
"""Nouns of the field that end in -ing; ``framing`` is a term of network protocols."""
BANNED = re.compile(
    r"\b(whoever|whomever|somebody|nobody|anew|foot|feet|told|(?:gives?|gave|giving) way|let in|set right"
    r"|goes on alone|stands? (?:in|at)|is heard|was heard)\b",
    re.IGNORECASE,
)
"""Words that ``docs/concepts/glossary.md`` replaces by terms of the field."""
LIMITS = {
    "gerund_modules": 0,
    "class_names_twice": 5,
    "inheritance_depth_max": 3,
    "functions_over_70": 3,
    "files_over_500": 0,
    "banned_words": 0,
    "docs_words_per_sentence_p90": 30,
    "docs_words_per_sentence_max": 45,
    "alerts_without_runbook": 0,
    "dead_links": 0,
}
"""No count may be above its limit."""
DOCUMENTED_PCT_MIN = 95
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
BODIES = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of statements that hold statements."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class House:
    """The tracked files of a checkout, read once."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        self.files = sorted(name for name in listed.split() if (root / name).is_file())

    @cached_property
    def sources(self) -> dict[str, str]:
        """Path to text of each Python file that is not a test and not the frozen older program."""
        return {
            name: (self.root / name).read_text()
            for name in self.files
            if name.endswith(".py") and name.startswith(CODE) and "/tests/" not in name and "/golden/" not in name
        }

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        return {name: ast.parse(text) for name, text in self.sources.items()}

    @cached_property
    def definitions(self) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
        """Each function and class, nested ones too, with the path of its file. A definition is a statement, so no
        expression is walked."""
        return [(name, node) for name, tree in self.trees.items() for node in _nested_definitions(tree)]

    @cached_property
    def pages(self) -> dict[str, str]:
        """Path to text of each page for users and developers, without the decision records."""
        return {
            name: (self.root / name).read_text()
            for name in self.files
            if name.endswith(".md") and "/decisions/" not in name and "/golden/" not in name
        }

    def gerund_modules(self) -> list[str]:
        return [name for name in self.sources if (stem := Path(name).stem).endswith("ing") and stem not in NO_GERUNDS]

    def class_names_twice(self) -> list[str]:
        """``_Private`` names count, too: a reader meets them in a traceback."""
        found = Counter(node.name for _, node in self.definitions if isinstance(node, ast.ClassDef))
        return sorted(f"{name} ({count})" for name, count in found.items() if count > 1)

    @cached_property
    def classes(self) -> dict[str, tuple[ast.ClassDef, list[str]]]:
        """Full name of each class at the top of a module, to its definition and the full names of its bases."""
        return {
            f"{_module(name)}.{node.name}": (node, [_origin(tree, _module(name), base) for base in node.bases])
            for name, tree in self.trees.items()
            for node in tree.body
            if isinstance(node, ast.ClassDef)
        }

    def lineage(self, name: str) -> list[str]:
        """A class and all its ancestors of this project."""
        return [name] + [each for base in self.classes[name][1] if base in self.classes for each in self.lineage(base)]

    def inheritance_depths(self) -> dict[str, int]:
        """Class to the number of classes of this project in its longest line of ancestors, itself included."""

        def depth(name: str) -> int:
            return 1 + max((depth(base) for base in self.classes[name][1] if base in self.classes), default=0)

        return {name: depth(name) for name in self.classes}

    def inherited_documentation(self) -> set[str]:
        """Full names of methods whose documentation is that of the interface: an ancestor documents the method, or a
        Protocol of the same package does that the class, or a subclass, implements with all its members."""
        documented = {
            name: {each.name for each in node.body if isinstance(each, FUNCTION) and ast.get_docstring(each)}
            for name, (node, _) in self.classes.items()
        }
        lines = {name: self.lineage(name) for name in self.classes}
        found = {f"{name}.{method}" for name, line in lines.items() for each in line for method in documented[each]}
        members = {
            name: {member for each in line for member in _members(self.classes[each][0])}
            for name, line in lines.items()
        }
        for protocol, (_, bases) in self.classes.items():
            if "typing.Protocol" not in bases:
                continue
            package = protocol.rsplit(".", 2)[0]
            for name, line in lines.items():
                if name != protocol and name.rsplit(".", 2)[0] == package and members[protocol] <= members[name]:
                    docs = {method for each in lines[protocol] for method in documented[each]}
                    found |= {f"{each}.{method}" for each in line for method in docs}
        return found

    def functions(self) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for name, node in self.definitions:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, node

    def functions_over(self, lines: int) -> list[str]:
        return [
            f"{name}:{node.lineno} {node.name} ({length})"
            for name, node in self.functions()
            if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > lines
        ]

    def files_over(self, lines: int) -> list[str]:
        return [f"{name} ({n})" for name, text in self.sources.items() if (n := text.count("\n")) > lines]

    def undocumented(self) -> tuple[list[str], int]:
        """Public functions and classes of production code without documentation, and how many public ones there are."""
        missing, count, inherited = [], 0, self.inherited_documentation()
        for name, tree in self.trees.items():
            if not name.startswith(PRODUCTION):
                continue
            for owner, node in _definitions(tree):
                if node.name.startswith("_") or owner.startswith("_"):
                    continue
                count += 1
                if ast.get_docstring(node) is None and f"{_module(name)}.{owner}{node.name}" not in inherited:
                    missing.append(f"{name}:{node.lineno} {owner}{node.name}")
        return missing, count

    def banned_words(self) -> list[str]:
        found = [f"{name}: {word}" for name, text in self.pages.items() for word in BANNED.findall(_prose(text))]
        for name, text in self.sources.items():
            # Most have none anywhere, not even where its words are in two tokens: they are not read token by token.
            if name.startswith(PRODUCTION) and BANNED.search(text.replace("_", " ")):
                found += [f"{name}: {word}" for part in _words_of(text) for word in BANNED.findall(part)]
        return found

    def sentence_lengths(self) -> list[tuple[int, str]]:
        """Words of each sentence of ``docs`` and of the README, longest last, each with its page."""
        return sorted(
            (len(sentence.split()), f"{name}: {sentence[:80]}")
            for name, text in self.pages.items()
            if name.startswith("docs/") or name == "README.md"
            for sentence in _sentences(text)
        )

    def dead_links(self) -> list[str]:
        """Relative links and anchors of Markdown pages that lead nowhere."""
        dead = []
        for name, text in self.pages.items():
            for target in LINK.findall(_without_code(text)):
                path, _, anchor = target.partition("#")
                if re.match(r"[a-z]+:", target):
                    continue
                file = (self.root / name).parent / path if path else self.root / name
                if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
                    dead.append(f"{name}: {target}")
        return dead

    def alerts_without_runbook(self) -> list[str]:
        """Alerts of the charts whose rule names no ``runbook_url``, or whose page is not there."""
        found = []
        for name in self.files:
            if name.startswith("charts/") and name.endswith((".yaml", ".yml", ".tpl")):
                for alert, rule in _alerts((self.root / name).read_text()):
                    page = self.root / f"docs/reference/alerts/{alert}.md"
                    if "runbook_url" not in rule or not page.exists():
                        found.append(f"{name}: {alert}")
        return found


def _module(path: str) -> str:
    return re.sub(r"^(node|operator)/|(/__init__)?\.py$", "", path).replace("/", ".")


def _origin(tree: ast.Module, module: str, base: ast.expr) -> str:
    """The full name of a base class, as the imports of its module tell it."""
    text = ast.unparse(base).partition("[")[0]
    first, _, rest = text.partition(".")
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == first:
                    return ".".join(filter(None, (node.module, alias.name, rest)))
    return f"{module}.{text}"


def _nested_definitions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """All below a node, at any depth."""
    for field in BODIES:
        for inner in getattr(node, field, ()):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield inner
            yield from _nested_definitions(inner)


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Functions and classes of a module, and the methods of its classes with their class in front."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield "", node
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.", inner


def _members(node: ast.ClassDef) -> Iterator[str]:
    """Names that a class body defines: methods, properties and attributes."""
    for each in node.body:
        if isinstance(each, FUNCTION):
            yield each.name
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _words_of(source: str) -> Iterator[str]:
    """Comments, docstrings and identifiers (their parts as words) of a Python source."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.string
        elif token.type == tokenize.NAME and "_" in token.string.strip("_"):
            yield token.string.replace("_", " ")
        elif token.type == tokenize.NAME:
            yield token.string


def _without_code(text: str) -> str:
    text = re.sub(r"^[ ]*```.*?^[ ]*```", "", text, flags=re.MULTILINE | re.DOTALL)  # in a list item, too
    return re.sub(r"`[^`\n]*`", "code", text)


def _prose(text: str) -> str:
    return re.sub(r"\]\([^)]*\)", "]", _without_code(text))


def _sentences(text: str) -> Iterator[str]:
    """Sentences of the paragraphs and list items of a page; tables, headings and code are none."""
    for block in re.split(r"\n\s*\n", _prose(text)):
        lines = [line for line in block.splitlines() if not re.match(r"\s*(\||#|<)", line)]
        for item in re.split(r"(?m)^\s*(?:[-*]|\d+\.)\s+", "\n".join(lines)):
            for sentence in re.split(r"(?<=[.!?:])\s+", " ".join(item.split())):
                if sentence:
                    yield sentence


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"(?m)^#+ +(.*)$", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _alerts(text: str) -> Iterator[tuple[str, str]]:
    parts = re.split(r"(?m)^\s*- alert: *", text)
    for part in parts[1:]:
        yield part.split()[0], part


def _share(part: int, whole: int) -> float:
    return round(100 * part / max(whole, 1), 1)


def measure(house: House) -> tuple[dict[str, float], dict[str, list[str]]]:
    """The counts, and for each count the places that it counts."""
    depths = house.inheritance_depths()
    deepest = max(depths.values(), default=0)
    missing, public = house.undocumented()
    sentences = house.sentence_lengths()
    longest = LIMITS["docs_words_per_sentence_max"]
    places: dict[str, list[str]] = {
        "gerund_modules": house.gerund_modules(),
        "class_names_twice": house.class_names_twice(),
        "inheritance_depth_max": [
            f"{name} ({depth})" for name, depth in depths.items() if depth > LIMITS["inheritance_depth_max"]
        ],
        "functions_over_70": house.functions_over(70),
        "files_over_500": house.files_over(500),
        "public_documented_pct": missing,
        "banned_words": house.banned_words(),
        "docs_words_per_sentence_max": [f"{words} {where}" for words, where in sentences if words > longest],
        "alerts_without_runbook": house.alerts_without_runbook(),
        "dead_links": house.dead_links(),
    }
    counts: dict[str, float] = {"modules": len(house.sources)} | {name: len(found) for name, found in places.items()}
    counts |= {
        "inheritance_depth_max": deepest,
        "public_documented_pct": _share(public - len(missing), public),
        "docs_words_per_sentence_p90": sentences[len(sentences) * 9 // 10][0] if sentences else 0,
        "docs_words_per_sentence_max": sentences[-1][0] if sentences else 0,
    }
    return counts, places


def exceeded(counts: dict[str, float]) -> list[str]:
    """The names of the counts that miss their limit."""
    over = [name for name, limit in LIMITS.items() if counts[name] > limit]
    return over + ["public_documented_pct"] * (counts["public_documented_pct"] < DOCUMENTED_PCT_MIN)


def main(arguments: Iterable[str]) -> int:
    """``--list NAME``: the places of one count, too. The exit code: 0, or 1 when a limit is missed."""
    counts, places = measure(House())
    missed = exceeded(counts)
    print(f"{'count':<30} {'now':>8} {'limit':>8}")
    for name, count in counts.items():
        limit = f">={DOCUMENTED_PCT_MIN}" if name == "public_documented_pct" else str(LIMITS.get(name, ""))
        print(f"{name:<30} {count:>8} {limit:>8}{'  missed' if name in missed else ''}")
    for name in arguments:
        print("\n".join(f"  {place}" for place in places.get(name.removeprefix("--list="), [])))
    print(json.dumps(counts))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
