"""``python -m e2e.scenarios.documented_pages``: the commands of the pages, run against a cluster of this machine.

``make test`` runs the pages of :data:`EVERY_CHANGE`; this command runs all of them, or those that are named.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.lib.cluster.local import MANIFESTS, run_txlog
from e2e.lib.documented_commands import ROOT, Reader
from e2e.lib.report import console

QUICKSTART: Final = "quickstart"
EVERY_CHANGE: Final = ("how-to/write-and-read", "how-to/back-up-and-restore")
OTHERS: Final = (
    "how-to/follow-the-log",
    "how-to/monitor",
    "how-to/repair-a-worker",
    "how-to/add-remove-masters",
    "how-to/change-split-recovery",
    "how-to/recover-from-a-split",
    "how-to/run-without-kubernetes",
    "how-to/replace-a-disk",
    "how-to/secure",
)
"""Pages that assume a running cluster, in the order in which one cluster serves them all."""
LOAD_MANY_QUADS: Final = "how-to/load-many-quads"
WITH_THEIR_OWN: Final = (QUICKSTART, LOAD_MANY_QUADS)
"""Pages that start and remove a cluster."""


@contextmanager
def reader_with_cluster(folder: Path) -> Iterator[Reader]:
    """A reader whose cluster of ``examples/two-data-centres`` runs, as the pages assume it."""
    reader = Reader(folder)
    try:
        run_txlog("up", "-f", ROOT / MANIFESTS, "--detach", "--state", folder / ".txlog")
        yield reader
    finally:
        reader.end()


def follow_pages(folder: Path, pages: Sequence[str]) -> list[str]:
    """Run these pages in order: those with a cluster of their own each in its own folder, the others at one cluster.
    What is wrong in them."""
    wrong: list[str] = []
    for page in (page for page in pages if page in WITH_THEIR_OWN):
        own = folder / Path(page).name
        own.mkdir()
        reader = Reader(own)
        try:
            _follow(reader, page)
        finally:
            reader.end()
        wrong += reader.wrong
    shared = [page for page in pages if page not in WITH_THEIR_OWN]
    if shared:
        own = folder / "shared"
        own.mkdir()
        with reader_with_cluster(own) as reader:
            for page in shared:
                _follow(reader, page)
        wrong += reader.wrong
    return wrong


def _follow(reader: Reader, page: str) -> None:
    began, ran = time.monotonic(), reader.ran
    reader.follow(ROOT / "docs" / f"{page}.md")
    console.print(f"{page}: {reader.ran - ran} blocks in {time.monotonic() - began:.0f} s", highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if each page shows what happens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", default=[*WITH_THEIR_OWN, *EVERY_CHANGE, *OTHERS], help="below docs/")
    pages = parser.parse_args(arguments).pages
    with tempfile.TemporaryDirectory(prefix="txlog-docs-") as folder:
        wrong = follow_pages(Path(folder), pages)
    for each in wrong:
        console.print(f"\n{each}", markup=False, highlight=False, emoji=False)
    console.print(f"\n{len(wrong)} wrong", highlight=False)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
