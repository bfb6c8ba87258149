"""Literals in the form in which Oxigraph keeps them, whatever text they come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.workers import canonical_literals
from txlog.workers.canonical_literals import (
    _MAY_NEED_REWRITING,
    _may_need_rewriting,
    canonical_lines,
    canonical_literal,
    clean_quads,
)

XSD = b"http://www.w3.org/2001/XMLSchema#"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (b'"01"^^<%sint>', b'"1"^^<%sinteger>'),
        (b'"1.10"^^<%sdecimal>', b'"1.1"^^<%sdecimal>'),
        (b'"1.0e0"^^<%sdouble>', b'"1"^^<%sdouble>'),
        (b'"2020-01-02T03:04:05+00:00"^^<%sdateTime>', b'"2020-01-02T03:04:05Z"^^<%sdateTime>'),
        (b'"abc"^^<%sinteger>', b'"abc"^^<%sinteger>'),
    ],
)
def test_a_literal_and_its_form(given: bytes, kept: bytes) -> None:
    assert canonical_literal(given % XSD) == kept % XSD
    line = b'<urn:a> <urn:b> %s <urn:g> .\nD <urn:a> <urn:b> "01" .\n'
    assert canonical_lines(line % (given % XSD)) == line % (kept % XSD)


def test_the_memory_for_forms_is_bounded() -> None:
    """Long texts with escapes are usual, and each of them comes once: the number of literals alone is no bound."""
    before = canonical_literals._compute_cached.cache_info().currsize
    size = canonical_literals.CACHED_BYTES_MAX
    line = b'<urn:a> <urn:b> "%s\\u0041%d" .\n'
    assert canonical_lines(b"".join(line % (b"x" * size, n) for n in range(50))).count(b"xA") == 50
    assert canonical_literals._compute_cached.cache_info().currsize == before
    assert canonical_lines(line % (b"short", before)) == b'<urn:a> <urn:b> "shortA%d" .\n' % before
    assert canonical_literals._compute_cached.cache_info().currsize == before + 1


def test_tags_and_escapes() -> None:
    assert canonical_literal(b'"x"@EN-us') == b'"x"@en-us'
    assert canonical_lines(rb'<urn:a> <urn:b> "\u0041\t\"@EN" .' + b"\n") == rb'<urn:a> <urn:b> "A\t\"@EN" .' + b"\n"
    with pytest.raises(SyntaxError):
        canonical_literal(b'"x"^^<no iri>')


@pytest.mark.parametrize("byte", range(256))
def test_the_quick_look_finds_each_suspicious_byte(byte: int) -> None:
    text = b'<urn:a> <urn:b> "x%by"@en .\n' % bytes([byte])
    assert _may_need_rewriting(text) == (_MAY_NEED_REWRITING.search(text) is not None)


@given(st.lists(st.sampled_from(['"', "@", "^^<", XSD.decode(), "en", "EN", "-", "\\", "\t", "\n", "é"]), max_size=8))
def test_the_quick_look_finds_what_is_suspicious(parts: list[str]) -> None:
    text = "".join(parts).encode()
    assert _may_need_rewriting(text) == (_MAY_NEED_REWRITING.search(text) is not None)


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), max_size=12),
            st.sampled_from(["", "@en", "@EN-us", f"^^<{XSD.decode()}integer>", "^^<urn:t>"]),
        ),
        max_size=5,
    ),
    st.integers(1, 40),
)
def test_any_cut_gives_the_same_and_the_form_of_a_form_is_itself(terms: list[tuple[str, str]], size: int) -> None:
    escapes = {92: r"\\", 34: r"\"", 10: r"\n", 13: r"\r"}
    lines = [f'<urn:a> <urn:b> "{text.translate(escapes)}"{tail} .\n'.encode() for text, tail in terms]
    ours = b"<urn:txlog:system> <urn:txlog:system> <urn:txlog:system> <urn:txlog:system:1> .\n"
    whole = b"".join([ours, *lines])
    made = b"".join(clean_quads([whole[at : at + size] for at in range(0, len(whole), size)], ours[:19]))
    assert made == canonical_lines(b"".join(lines))
    assert canonical_lines(made) == made
    assert made.count(b"\n") == len(lines)
