"""The quickstart, and the pages on which everybody depends, do what they show. `make docs-run` runs the other pages."""

from pathlib import Path

import pytest

from e2e.scenarios.documented_pages import EVERY_CHANGE, QUICKSTART, follow_pages

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param((QUICKSTART,), id="quickstart"),
        pytest.param(EVERY_CHANGE, id="how-to", marks=pytest.mark.long),
    ],
)
def test_a_page_does_what_it_shows(tmp_path: Path, pages: tuple[str, ...]) -> None:
    wrong = follow_pages(tmp_path, pages)
    assert not wrong, "\n\n".join(wrong)
