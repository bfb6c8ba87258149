"""Rewrites RDF/XML into the form that the parser of the engine's library reads.

XML says more than that parser takes: other encodings than UTF-8, line ends that are normalised, ``xml:lang=""`` and
relative values of ``xml:base``. A document without them is unchanged. Sources: XML 1.0, sections 2.11, 2.12 and 4.3.3;
XML Base, section 4; RFC 3986, section 5.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, unescape

import pyoxigraph

from txlog.model.errors import BadInput, Unsupported
from txlog.sparql.expansion_limit import check_expansion, limit_for
from txlog.sparql.nesting_limit import XML_MARKUP, check_xml_nesting

_DECLARED: Final = re.compile(rb"""(\A<\?xml\s[^>]*?)\s+encoding\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_ENCODING: Final = re.compile(r"us-ascii|iso-8859-\d{1,2}|windows-125\d|utf-16(le|be)?", re.IGNORECASE)
"""Encodings that a document may declare beside UTF-8. Each has one meaning, and expands a body at most twice."""
_UTF_16: Final = {
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
    b"<\x00": "utf-16-le",
    b"\x00<": "utf-16-be",
}
_ODD: Final = re.compile(rb"""xml:lang\s*=\s*(?:""|'')|xml:base\s*=\s*["'](?![A-Za-z][A-Za-z0-9+.\-]*:)""")
"""What the parser does not take. A document without it needs no rewriting."""
_ATTRIBUTE: Final = re.compile(rb"""(\s)([^\s=<>"'/]+)(\s*=\s*)("[^"]*"|'[^']*')""")
_UNQUOTED: Final = {"&quot;": '"', "&apos;": "'"}


class RdfXmlSource(NamedTuple):
    """``text``: the document in UTF-8. ``no_language``: the tag that stands for ``xml:lang=""``, b"" without one."""

    text: bytes
    no_language: bytes

    def restore(self, nquads: bytes) -> bytes:
        """The parser's N-Quads without the tag that stands for no language."""
        if not self.no_language:
            return nquads
        tag = re.escape(self.no_language)
        return re.sub(rb'"@' + tag + rb"(?:--(?:ltr|rtl))?", b'"', nquads).replace(self.no_language, b"")


def drop_declared_encoding(body: bytes) -> bytes:
    """The document without its declared encoding: a parameter ``charset`` outside has said which it is."""
    return _DECLARED.sub(rb"\1", body, count=1)


def rewrite_rdf_xml(body: bytes, base: str | None) -> RdfXmlSource:
    """The document in UTF-8, with line feeds as line ends, no empty language and no relative base. ``base``: the IRI of
    the document.

    Raises :class:`Unsupported` for another encoding, :class:`BadInput` for bytes that are not in it and for elements
    that nest too deep, :class:`TooLarge` where bases make the document much longer."""
    text = _to_utf8(body)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    check_xml_nesting(text)  # first: bases that are relative to one another grow with the depth
    if _ODD.search(text) is None:
        return RdfXmlSource(text, b"")
    no_language = _unused_language(text)
    rewriter = _AttributeRewriter(base, no_language, len(text))
    return RdfXmlSource(XML_MARKUP.sub(rewriter.rewrite, text), no_language)


def _to_utf8(body: bytes) -> bytes:
    encoding = next((name for mark, name in _UTF_16.items() if body.startswith(mark)), "")
    if not encoding:
        found = _DECLARED.match(body)
        encoding = (found[2] or found[3] or b"").decode("ascii", "replace") if found else ""
        if encoding.lower() in ("", "utf-8", "utf8"):
            return body
    if _ENCODING.fullmatch(encoding.replace("utf-16-", "utf-16")) is None:
        raise Unsupported(f"encoding {encoding[:50]}; send UTF-8")
    try:
        return drop_declared_encoding(body.decode(encoding).encode())
    except LookupError:
        raise Unsupported(f"encoding {encoding[:50]}; send UTF-8") from None
    except UnicodeError as error:
        place = error.start if isinstance(error, UnicodeDecodeError) else 0
        raise BadInput(f"MALFORMED DATA: byte {place} is not {encoding}; send UTF-8") from None


def _unused_language(text: bytes) -> bytes:
    """A private language tag that the document does not have."""
    low, salt = text.lower(), 0
    while True:
        tag = b"x-" + blake2b(text, digest_size=4, salt=b"%d" % salt).hexdigest().encode()
        if tag not in low:
            return tag
        salt += 1


class _AttributeRewriter:
    """Called for each piece of markup, in order. Elements of an XML literal stay as they are."""

    def __init__(self, base: str | None, no_language: bytes, size: int) -> None:
        self._size, self._size_max = size, limit_for(size)
        self._bases: list[str | None] = [base]
        self._literal_depth = 0
        self._no_language = no_language

    def rewrite(self, found: re.Match[bytes]) -> bytes:
        tag = found[0]
        if tag.startswith((b"<!", b"<?")):
            return tag
        if tag.startswith(b"</"):
            self._leave()
            return tag
        if self._literal_depth:
            self._literal_depth += not tag.endswith(b"/>")
            return tag
        self._bases.append(self._bases[-1])
        is_literal = any(
            name.rpartition(b":")[2] == b"parseType" and value[1:-1] not in (b"Resource", b"Collection")
            for _, name, _, value in _ATTRIBUTE.findall(tag)
        )
        tag = _ATTRIBUTE.sub(self._attribute, tag)
        if tag.endswith(b"/>"):
            self._leave()
        elif is_literal:
            self._literal_depth = 1
        return tag

    def _leave(self) -> None:
        if self._literal_depth:
            self._literal_depth -= 1
            if self._literal_depth:
                return
        if len(self._bases) > 1:
            self._bases.pop()

    def _attribute(self, found: re.Match[bytes]) -> bytes:
        space, name, equals, quoted = found.groups()
        if name == b"xml:lang" and len(quoted) == 2:
            return space + name + equals + b'"' + self._no_language + b'"'
        if name != b"xml:base":
            return found[0]
        resolved = _resolve(unescape(quoted[1:-1].decode("utf-8", "replace"), _UNQUOTED), self._bases[-1])
        if resolved is None:
            return found[0]
        self._bases[-1] = resolved
        self._size += len(resolved)
        check_expansion(self._size, self._size_max)
        return space + name + equals + b'"' + escape(resolved, {'"': "&quot;"}).encode() + b'"'


def _resolve(reference: str, base: str | None) -> str | None:
    """The absolute IRI, None if there is none: the parser then says what is wrong."""
    try:
        if ">" in reference:
            return None
        line = f"<{reference}> <x:p> <x:o> ."
        [triple] = pyoxigraph.parse(line, pyoxigraph.RdfFormat.TURTLE, base_iri=base)
    except (SyntaxError, ValueError):
        return None
    return triple.subject.value if isinstance(triple.subject, pyoxigraph.NamedNode) else None
