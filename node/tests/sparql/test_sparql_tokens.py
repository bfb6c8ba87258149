"""Every character belongs to one token; comments, strings, IRIs and names hide what stands in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.sparql.tokens import line_column, tokens

PIECES = [
    "SELECT", " ", "\n", "?x", "$y", "<http://a/b#c>", "<a\\u0062>",
    "ex:a.b", "ex:a\\(b", ":", "_:b1.", "'it'", '"a\\"b"',
    '"""a "q" b"""', "'''x'y'''", "# c GRAPH\n",
    "1", "1.5", ".5e-3", "1.", "^^", "@en-GB", "<", "<=", "{", "}", "(", ")",
    "<<(", "||", "!", "?", "\\u0041", "\u00a0", "é", "'", '"', "'''", "@", "`", "\0",
]  # fmt: skip


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=30).map("".join)))
def test_tokens_put_together_are_the_input(text: str) -> None:
    found = tokens(text)
    assert "".join(token.text for token in found) == text
    assert all(text.startswith(token.text, token.start) and token.text for token in found)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("<a:b>", "IRI"),
        ("?a < ?b", "VARIABLE SPACE MARK SPACE VARIABLE"),
        ("ex:a.b.", "PNAME MARK"),
        ("ex:RAND()", "PNAME MARK MARK"),
        ("_:a.b.", "BLANK MARK"),
        ("RAND", "WORD"),
        ("graph:x", "PNAME"),
        ('"RAND()"@en', "STRING LANGUAGE"),
        ("'''a'b\n'''", "STRING"),
        ("1 'open RAND()", "NUMBER SPACE ERROR"),
        ('""', "STRING"),
        ("1.5 1. 1.5e3 .5", "NUMBER SPACE NUMBER MARK SPACE NUMBER SPACE NUMBER"),
        ("?a-1", "VARIABLE MARK NUMBER"),
        ("# RAND()\r1", "COMMENT SPACE NUMBER"),
        ("<p>?", "IRI MARK"),
        ("'open", "ERROR"),
        ("\\u0041", "ERROR WORD"),
        ("a:-b", "PNAME MARK WORD"),
        ("true-1", "WORD MARK NUMBER"),
        ("aé-b ", "WORD ERROR SPACE"),
        ("a" * 255, "WORD"),
        ("a-" * 128, "ERROR"),
        ("a" * 9000 + ":b", "PNAME"),
    ],
)
def test_kinds(text: str, kinds: str) -> None:
    assert " ".join(token.kind for token in tokens(text)) == kinds


def test_places_count_from_one() -> None:
    assert [line_column("ab\ncd", at) for at in (0, 1, 3, 4)] == ["1:1", "1:2", "2:1", "2:2"]


@pytest.mark.parametrize(
    "bad",
    [
        "'''" * 20000, '"' * 40001, "<a" * 30000, "a:" + "." * 40000, "'''\\" * 20000, "@" * 40000, "a." * 40000,
        "D" + "ÿ" * 200_000, "aé" * 100_000, "a-" * 100_000, "·a" * 100_000, ("a-" * 127 + "a.") * 1000,
    ],
)  # fmt: skip
def test_no_text_takes_more_than_linear_time(bad: str) -> None:
    # The test's time limit is the assertion: a quadratic scan of these takes minutes.
    assert tokens(bad)
