"""``make reference``: the diagrams of the protocol page are drawn from the code's tables."""

from tools import diagrams


def test_the_page_shows_what_the_tables_say() -> None:
    page = diagrams.PAGE.read_text()
    assert diagrams.with_diagrams(page) == page
