"""Keys: which quads a conflict between sites is decided for together."""

from __future__ import annotations

import pytest

from txlog.sites.keys import KeyKind, KeyPattern, crosses_links, key_of, pattern_of

NAMED = b'<urn:s> <urn:p> "a b \\" <urn:no> ."@en <urn:g> .'
PLAIN = b"<urn:s> <urn:p> <urn:o> ."


@pytest.mark.parametrize(
    ("line", "kind", "key", "pattern"),
    [
        (NAMED, KeyKind.PROPERTY, b"<urn:s> <urn:p> <urn:g>", (b"<urn:s>", b"<urn:p>", None, b"<urn:g>")),
        (PLAIN, KeyKind.PROPERTY, b"<urn:s> <urn:p>", (b"<urn:s>", b"<urn:p>", None, b"")),
        (NAMED, KeyKind.SUBJECT, b"<urn:s> <urn:g>", (b"<urn:s>", None, None, b"<urn:g>")),
        (PLAIN, KeyKind.SUBJECT, b"<urn:s>", (b"<urn:s>", None, None, b"")),
        (PLAIN, KeyKind.QUAD, PLAIN, (b"<urn:s>", b"<urn:p>", b"<urn:o>", b"")),
        (NAMED, KeyKind.QUAD, NAMED, (b"<urn:s>", b"<urn:p>", b'"a b \\" <urn:no> ."@en', b"<urn:g>")),
    ],
)
def test_a_key_names_its_quads(line: bytes, kind: KeyKind, key: bytes, pattern: tuple[bytes | None, ...]) -> None:
    assert key_of(line, kind) == key
    assert pattern_of(key, kind) == KeyPattern(*pattern)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (b"", KeyKind.SUBJECT),
        (b"<urn:s>", KeyKind.PROPERTY),
        (b"<urn:s> <urn:p> <urn:g> <urn:x>", KeyKind.PROPERTY),
        (b'<urn:s> "text"', KeyKind.PROPERTY),
        (b"<urn:s> <urn:p>", KeyKind.QUAD),
    ],
)
def test_what_is_no_key_is_refused(key: bytes, kind: KeyKind) -> None:
    with pytest.raises(ValueError, match="is no"):
        pattern_of(key, kind)


def test_graphs_of_txlog_stay_at_their_site() -> None:
    assert crosses_links(NAMED)
    assert crosses_links(PLAIN)
    assert not crosses_links(b'<urn:txlog:site:from:lon> <urn:txlog:site:record> "1" <urn:txlog:sites> .')
