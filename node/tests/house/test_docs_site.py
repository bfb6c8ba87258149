"""``make docs``: the navigation of the site names every page for users and developers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

ROOT: Final = Path(__file__).parents[3]
DOCS: Final = ROOT / "docs"
TOC: Final = ROOT / "tools" / "docs_site" / "toc.yml"


def named(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        if "glob" in entry:
            yield from (path.relative_to(DOCS).as_posix() for path in DOCS.glob(f"{entry['glob']}.md"))
        else:
            yield f"{entry['file']}.md"
        yield from named(entry.get("entries", []))


def test_the_navigation_names_every_page_once() -> None:
    toc = YAML(typ="safe").load(TOC)
    pages = ["index.md", *(page for part in toc["subtrees"] for page in named(part["entries"]))]
    assert sorted(pages) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_list_of_decisions_names_every_decision() -> None:
    """Its text is written by hand, the files are found by a pattern."""
    listed = (DOCS / "decisions" / "README.md").read_text()
    assert [path.name for path in (DOCS / "decisions").glob("0*.md") if f"]({path.name})" not in listed] == []
