"""Converts uploaded RDF to quads: parsed once, without blank nodes, relative IRIs and system names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import Final

import pyoxigraph

from txlog.model.entry import KIND_QUADS
from txlog.model.errors import BadInput, Unsupported
from txlog.model.quads import encode_quads, split_graph
from txlog.sparql.expansion_limit import EXPANDED_BYTES_MAX, ExpansionBuffer, check_expansion, limit_for
from txlog.sparql.formats.rdf4j_binary import read_rdf
from txlog.sparql.formats.rdf_json import read_rdf_json
from txlog.sparql.formats.rdf_xml_source import RdfXmlSource, drop_declared_encoding, rewrite_rdf_xml
from txlog.sparql.formats.trix import read_trix
from txlog.sparql.known_prefixes import declare_known_prefixes, lacks_known_prefix
from txlog.sparql.nesting_limit import check_json_nesting, check_triple_term_nesting
from txlog.sparql.skolem_iris import SKOLEM_PREFIX_BYTES, rename_nodes, skolemise_kept_lines
from txlog.sparql.terms import SYSTEM_GRAPHS, base_iri, refuse_system
from txlog.sparql.transaction_body import TransactionBody
from txlog.sparql.triple_terms import decode_triple_iris, quoted_to_triple_terms, refused_subject, shorten_strings

RandomBits = Callable[[], int]

_FORMATS: Final = {
    "application/n-quads": pyoxigraph.RdfFormat.N_QUADS,
    "text/x-nquads": pyoxigraph.RdfFormat.N_QUADS,
    "text/nquads": pyoxigraph.RdfFormat.N_QUADS,
    "application/n-triples": pyoxigraph.RdfFormat.N_TRIPLES,
    "text/plain": pyoxigraph.RdfFormat.N_TRIPLES,
    "text/turtle": pyoxigraph.RdfFormat.TURTLE,
    "application/x-turtle": pyoxigraph.RdfFormat.TURTLE,
    "application/trig": pyoxigraph.RdfFormat.TRIG,
    "application/x-trig": pyoxigraph.RdfFormat.TRIG,
    "text/x-turtlestar": pyoxigraph.RdfFormat.TURTLE,
    "application/x-turtlestar": pyoxigraph.RdfFormat.TURTLE,
    "application/x-trigstar": pyoxigraph.RdfFormat.TRIG,
    "application/rdf+xml": pyoxigraph.RdfFormat.RDF_XML,
    "application/xml": pyoxigraph.RdfFormat.RDF_XML,
    "text/xml": pyoxigraph.RdfFormat.RDF_XML,
    "application/ld+json": pyoxigraph.RdfFormat.JSON_LD,
    "text/n3": pyoxigraph.RdfFormat.N3,
    "text/rdf+n3": pyoxigraph.RdfFormat.N3,
}
_OWN_PARSERS: Final[dict[str, Callable[[bytes], Iterable[pyoxigraph.Quad]]]] = {
    "application/trix": read_trix,
    "application/rdf+json": read_rdf_json,
    "application/x-binary-rdf": read_rdf,
}
"""Formats that pyoxigraph cannot read."""
_STAR_FORMATS: Final = frozenset(("text/x-turtlestar", "application/x-turtlestar", "application/x-trigstar"))
"""RDF4J's, in which ``<<s p o>>`` is a term."""
_WITHOUT_TRIPLE_TERMS: Final = frozenset(
    ("application/ld+json", "text/n3", "text/rdf+n3", "application/trix", "application/rdf+json")
)
"""Formats in which RDF4J's IRI of a triple stands for it."""
_ENTITY = re.compile(rb"""<!ENTITY\s+%?\s*([^\s%"']+)\s+("[^"]*"|'[^']*')""")
_REFERENCE = re.compile(rb"[&%][^#;\s]+;")
_PREFIXED_FORMATS: Final = (pyoxigraph.RdfFormat.TURTLE, pyoxigraph.RdfFormat.TRIG, pyoxigraph.RdfFormat.N3)
_LINE_FORMATS: Final = (pyoxigraph.RdfFormat.N_QUADS, pyoxigraph.RdfFormat.N_TRIPLES)

# Lines that the parser would return unchanged, so that it need not run. Narrow on purpose: IRIs of plain ASCII with
# simple authorities, lower-case language tags, only escapes that all serialisers write the same way. Of Unicode the
# first plane and the emoji of the second, without controls, private characters and noncharacters.
_BEYOND_ASCII: Final = (
    rb"\xc2[\xa0-\xbf]|[\xc3-\xdf][\x80-\xbf]"
    rb"|[\xe1-\xec][\x80-\xbf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xef[\xa4-\xb6\xb8-\xbe][\x80-\xbf]|\xf0\x9f[\x80-\xbe][\x80-\xbf]"
)
_ASCII: Final = rb"[\x20\x21\x23-\x5b\x5d-\x7e]*+"
PLAIN_STRING: Final = rb'"' + _ASCII + rb'(?:(?:\\[nrt"\\]|' + _BEYOND_ASCII + rb")" + _ASCII + rb'|)*+"'
PLAIN_IRI: Final = (
    rb"<[a-z][a-z0-9+.\-]*+:(?:(?!//)|//[A-Za-z0-9.\-]++(?::[0-9]++|)?+(?=[/?#>]))"
    rb"[A-Za-z0-9\-._~:/@!$&'()*+,;=?]*+(?:#[A-Za-z0-9\-._~:/@!$&'()*+,;=?]*+|)?+>"
)
PLAIN_OBJECT: Final = (
    rb"(?:"
    + PLAIN_IRI
    + rb"|"
    + PLAIN_STRING
    + rb"(?:@[a-z]{2,3}(?:-[a-z]{2}|)?+|\^\^(?!<http://www\.w3\.org/(?:2001/XMLSchema#string|1999/02/22-rdf-syntax-ns#(?:dirL|l)angString)>)"
    + PLAIN_IRI
    + rb"|)?+)"
)
_TRIPLE = PLAIN_IRI + b" " + PLAIN_IRI + b" " + PLAIN_OBJECT
_CANONICAL_QUADS = re.compile(
    rb"(?:" + _TRIPLE + rb"(?: " + PLAIN_IRI + rb"|)?+ \.\n|)*+(?:" + _TRIPLE + rb"(?: " + PLAIN_IRI + rb"|)?+ \.|)?+"
)
_CANONICAL_TRIPLES = re.compile(rb"(?:" + _TRIPLE + rb" \.\n|)*+(?:" + _TRIPLE + rb" \.|)?+")

_CHUNK_BYTES: Final = 256 << 10
"""Bytes of a body that are matched at once: meanwhile no other thread of this process can run."""
_ONE_QUAD = re.compile(_TRIPLE + rb"(?: " + PLAIN_IRI + rb"|)?+ \.\n?+")

LARGE_BODY_BYTES: Final = 256 << 10
"""Bytes: a body of this size is checked in chunks, if it can be."""
YIELD_CHUNK_BYTES: Final = 64 << 10
"""Bytes that are checked between two yields: about a millisecond."""

_TERMS = re.compile(rb'"(?:[^"\\\n]++|\\.|)*+"|<<\(|<[^>\n]*+>|_:[^ \n]++')
_SYSTEM_TERM: Final = b"<" + SYSTEM_GRAPHS.encode()
_CHARSETS: Final = {"utf-8": "utf-8", "utf8": "utf-8", "us-ascii": "ascii", "ascii": "ascii", "iso-8859-1": "latin-1"}


class Skolemiser:
    """Replaces blank nodes by IRIs that no other body has (``skolem_iris.py``), with one random number per body."""

    def __init__(self, draw: RandomBits) -> None:
        self._draw = draw
        self._stem = b""
        self._count = 0

    def skolemise(self, nquads: bytes) -> tuple[bytes, set[bytes]]:
        """N-Quads with every blank node replaced, and the labels that occurred. Labels are local to this body."""
        if b"_:" not in nquads:
            return nquads, set()
        names: dict[bytes, bytes] = {}

        def name(found: re.Match[bytes]) -> bytes:
            term = found[0]
            if not term.startswith(b"_:"):
                return term
            known = names.get(term)
            if known is None:
                if not self._stem:
                    self._stem = b"<%s%032x:" % (SKOLEM_PREFIX_BYTES, self._draw() & (1 << 128) - 1)
                known = names[term] = b"%s%d>" % (self._stem, self._count)
                self._count += 1
            return known

        return rename_nodes(nquads, _TERMS, name), set(names)


def skolemise_lines(nquads: bytes, stem: bytes) -> bytes:
    """Whole lines of N-Quads with every blank node replaced, like :class:`Skolemiser`, but named by its label, so that
    a body of any length needs no table. ``stem``: 32 random hexadecimal digits of the body."""
    if b"_:" not in nquads:
        return nquads

    def name(found: re.Match[bytes]) -> bytes:
        term = found[0]
        if not term.startswith(b"_:"):
            return term
        label = term[2:]
        plain = label.isalnum() and label.isascii()
        # A label may hold characters that no IRI may. The x distinguishes its hexadecimal form from plain labels.
        return b"<%s%s:%s>" % (SKOLEM_PREFIX_BYTES, stem, label if plain else b"x-" + label.hex().encode())

    return rename_nodes(nquads, _TERMS, name)


def check_supported_terms(nquads: bytes) -> None:
    """Raise SystemGraphNamed for a system name, also inside of a triple term."""
    if _SYSTEM_TERM not in nquads:
        return
    for line in nquads.split(b"\n"):
        for term in _TERMS.findall(line):
            if term.startswith(_SYSTEM_TERM):
                refuse_system(term[1:-1].decode())


def parse(source: bytes | str, form: pyoxigraph.RdfFormat, base: str | None) -> bytes:
    """Parse RDF to canonical N-Quads. Prefixes that RDF4J knows need no declaration in Turtle, TriG and N3. Raises the
    parser's SyntaxError (with lineno and offset), and TooLarge above the expansion limit."""
    try:
        return _parse(source, form, base)
    except SyntaxError as error:
        if "quoted triple object" in error.msg:
            # pyoxigraph's parser knows no string in three quotes inside of a triple term.
            return _parse(shorten_strings(source), form, base)
        if form not in _PREFIXED_FORMATS or not lacks_known_prefix(error):
            raise
        try:
            return _parse(declare_known_prefixes(source), form, base)
        except SyntaxError as other:
            raise (error if other.lineno == 1 else other) from None  # columns of the first line are not the client's


def _parse(source: bytes | str, form: pyoxigraph.RdfFormat, base: str | None) -> bytes:
    out = ExpansionBuffer(limit_for(len(source)))
    pyoxigraph.serialize(pyoxigraph.parse(source, form, base_iri=base), out, format=pyoxigraph.RdfFormat.N_QUADS)
    return out.getvalue()


def _malformed(error: SyntaxError) -> BadInput:
    said = error.msg
    if "<<( is not a valid" in said and "ubject" in said:
        return refused_subject()
    if "LoadDocumentCallback" in said:
        said = "a JSON-LD context by address is not fetched; write the context into the document"
    if "No scheme found" in said:
        said += "; the IRI is relative: send baseURI, or write it in full"
    return BadInput(f"MALFORMED DATA: {said}")


def _line_chunks(body: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Start and end offsets of chunks of whole lines, each of about ``size`` bytes. A regular expression for lines
    matches no line across its end, so it gives the same result for the chunks as for the whole."""
    start = 0
    while start < len(body):
        stop = body.find(b"\n", min(start + size, len(body)) - 1) + 1 or len(body)
        yield start, stop
        start = stop


def _is_canonical(body: bytes, lines: re.Pattern[bytes]) -> bool:
    """Whether ``lines`` matches the whole body."""
    return all(lines.fullmatch(body, start, stop) for start, stop in _line_chunks(body, _CHUNK_BYTES))


def _parse_quads(body: bytes, form: pyoxigraph.RdfFormat, base: str | None) -> bytes:
    document: RdfXmlSource | None = None
    if form == pyoxigraph.RdfFormat.RDF_XML:
        document = rewrite_rdf_xml(body, base)
        body = document.text
        if b"<!" in body:
            _check_entities(body)
    elif form == pyoxigraph.RdfFormat.JSON_LD:
        check_json_nesting(body)
    if form in _LINE_FORMATS:
        if _is_canonical(body, _CANONICAL_QUADS if form == pyoxigraph.RdfFormat.N_QUADS else _CANONICAL_TRIPLES):
            return body
        base = None
    check_triple_term_nesting(body)
    try:
        nquads = parse(body, form, base)
    except SyntaxError as error:
        raise _malformed(error) from None
    except ValueError as error:
        raise BadInput(f"MALFORMED DATA: {error}") from None
    return nquads if document is None else document.restore(nquads)


def _check_entities(body: bytes) -> None:
    """Raise BadInput for a document whose entities would expand beyond the limit: the parser itself has no limit."""
    unfolded = 0
    for name, quoted in _ENTITY.findall(body):
        value = quoted[1:-1]
        if _REFERENCE.search(value):
            raise BadInput("MALFORMED DATA: an entity made of entities; write its value in full")
        unfolded += len(value) * body.count(b"&%s;" % name)
    if unfolded > EXPANDED_BYTES_MAX:
        raise BadInput(
            f"MALFORMED DATA: its entities unfold to more than {EXPANDED_BYTES_MAX} bytes; send it in pieces"
        )


def _run_own_parser(own: Callable[[bytes], Iterable[pyoxigraph.Quad]], body: bytes) -> bytes:
    out = ExpansionBuffer(limit_for(len(body)))
    try:
        pyoxigraph.serialize(own(body), out, format=pyoxigraph.RdfFormat.N_QUADS)
    except SyntaxError as error:
        raise _malformed(error) from None
    except ValueError as error:
        raise BadInput(f"MALFORMED DATA: {error}") from None
    return out.getvalue()


def split_lines(nquads: bytes) -> list[bytes]:
    """The lines, without the empty end."""
    lines = nquads.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def build_quads_body(deletes: Iterable[bytes], adds: Iterable[bytes]) -> TransactionBody:
    """A transaction from lines of N-Quads that are already the net effect."""
    removed, added = dict.fromkeys(deletes), dict.fromkeys(adds)
    return TransactionBody(KIND_QUADS, encode_quads(removed, added), len(removed) + len(added))


def parse_plain_quad(body: bytes) -> bytes | None:
    """The payload (``KIND_QUADS``) of a body of one line of N-Quads that needs no conversion, else None. Most
    transactions are one such line, so they skip the processing of many lines."""
    if _ONE_QUAD.fullmatch(body) is None or _SYSTEM_TERM in body:
        return None
    return b"A " + body if body.endswith(b"\n") else b"A %s\n" % body


def _parse_one_plain_quad(body: bytes) -> TransactionBody | None:
    payload = parse_plain_quad(body)
    return None if payload is None else TransactionBody(KIND_QUADS, payload, 1)


def _parse_large_plain(
    body: bytes, media_type: str, yield_control: Callable[[], None] | None = None
) -> TransactionBody | None:
    """A long body of lines that need no conversion, checked in chunks: one match over all of it would block every other
    thread of this process for its whole time. None for any other body, and for one with a repeated line."""
    if _FORMATS.get(media_type.partition(";")[0].strip().lower()) not in _LINE_FORMATS:
        return None
    form, body = _decode(body, media_type)
    canonical = _CANONICAL_QUADS if form == pyoxigraph.RdfFormat.N_QUADS else _CANONICAL_TRIPLES
    met: set[int] = set()
    payload = BytesIO()  # grows without being copied
    count = 0
    for start, stop in _line_chunks(body, YIELD_CHUNK_BYTES):
        piece = body[start:stop]
        if canonical.fullmatch(piece) is None or _SYSTEM_TERM in piece:
            return None
        lines = split_lines(piece)
        met.update(map(hash, lines))
        count += len(lines)
        if len(met) < count:
            return None
        payload.write(encode_quads((), lines))
        if yield_control is not None:
            yield_control()
    return TransactionBody(KIND_QUADS, payload.getvalue(), count)


def _graph_suffix(term: str) -> bytes:
    if term == "null":
        return b""
    if not (term.startswith("<") and term.endswith(">")):
        raise BadInput(f"context {term[:200]!r} is neither an N-Triples IRI in <> nor null")
    refuse_system(term[1:-1])
    try:
        return str(pyoxigraph.NamedNode(term[1:-1])).encode()
    except ValueError:
        raise BadInput(f"context {term[:200]} is no absolute IRI") from None


def prepare_rdf(
    body: bytes,
    media_type: str,
    *,
    base: str | None,
    contexts: list[str],
    draw: RandomBits,
    same_nodes: bool = False,
    yield_control: Callable[[], None] | None = None,
) -> TransactionBody:
    """Prepare an upload as the quads that it adds.

    ``contexts`` are N-Triples IRIs or ``null`` (the default graph). When there are any, every statement is added to
    each of them, whatever graph the body names, as in RDF4J. ``draw`` returns 128 random bits for the names of blank
    nodes. Blank nodes are new ones, as RDF says; with ``same_nodes`` each is the one that its label names
    (``skolem_iris.py``). ``yield_control()`` is called about once a millisecond while a long body is checked in chunks.

    Raises ``Unsupported`` (another media type), ``BadInput`` (``MALFORMED DATA``, with line and column),
    ``SystemGraphNamed``, ``TooLarge`` (it expands to more than a transaction may hold). Source: RDF4J REST protocol,
    statements POST; formats by the W3C.
    """
    if not contexts and media_type == "application/n-quads":
        plain = _parse_one_plain_quad(body)
        if plain is not None:
            return plain
    if len(body) >= LARGE_BODY_BYTES and not contexts:
        prepared = _parse_large_plain(body, media_type, yield_control)
        if prepared is not None:
            return prepared
    graphs = [_graph_suffix(context) for context in contexts]
    nquads = to_nquads(body, media_type, base)
    nquads = skolemise_kept_lines(nquads) if same_nodes else Skolemiser(draw).skolemise(nquads)[0]
    lines: Iterable[bytes] = split_lines(nquads)
    # The names of blank nodes and of several graphs make the quads longer than the body.
    unfolded = len(nquads)
    if graphs:
        unfolded = len(graphs) * unfolded + sum(len(graph) + 1 for graph in graphs) * nquads.count(b"\n")
    check_expansion(unfolded, limit_for(len(body)))
    if graphs:
        triples = [split_graph(line)[0] for line in lines]
        ends = [b" %s ." % graph if graph else b" ." for graph in graphs]
        lines = [triple + end for triple in triples for end in ends]
    return build_quads_body((), lines)


def to_nquads(body: bytes, media_type: str, base: str | None) -> bytes:
    """A body in any RDF format as canonical N-Quads, with its blank nodes, without system names."""
    media = media_type.partition(";")[0].strip().lower()
    own = _OWN_PARSERS.get(media)
    if own is not None:
        nquads = _run_own_parser(own, body)
    else:
        form, text = _decode(body, media_type)
        if media in _STAR_FORMATS and (b"<<" in text or b"{|" in text or b"~" in text):
            text = quoted_to_triple_terms(text)
        nquads = _parse_quads(text, form, base_iri(base))
    if media in _WITHOUT_TRIPLE_TERMS:
        nquads = decode_triple_iris(nquads)
    check_supported_terms(nquads)
    return nquads


def _decode(body: bytes, media_type: str) -> tuple[pyoxigraph.RdfFormat, bytes]:
    name, _, parameters = media_type.partition(";")
    form = _FORMATS.get(name.strip().lower())
    if form is None:
        known = ", ".join((*_FORMATS, *_OWN_PARSERS))
        raise Unsupported(f"Unsupported MIME type: {media_type[:200] or 'no Content-Type'}; send one of {known}")
    if body.startswith(b"\xef\xbb\xbf"):
        body = body[3:]
    found = re.search(r'charset\s*=\s*"?([^\s";]+)', parameters, re.IGNORECASE) if parameters else None
    charset = _CHARSETS.get(found[1].lower()) if found else "utf-8"
    if charset is None:
        raise Unsupported(f"charset {found[1][:50] if found else ''}; send UTF-8")
    if found and form == pyoxigraph.RdfFormat.RDF_XML:
        body = drop_declared_encoding(body)
    if charset == "utf-8":
        return form, body
    try:
        return form, body.decode(charset).encode()
    except UnicodeDecodeError as error:
        raise BadInput(f"MALFORMED DATA: byte {error.start} is not {charset}; send UTF-8") from None


def prepare_lines(adds: str | bytes, deletes: str | bytes = b"", *, draw: RandomBits) -> TransactionBody:
    """N-Quads to add and to delete as one transaction; a quad in both is added (deletes come first).

    Blank nodes in ``adds`` are new ones; in ``deletes`` each is the one that its label names. Raises ``BadInput`` and
    ``SystemGraphNamed``.
    """
    added = _encode_text(adds)
    if not deletes:
        plain = _parse_one_plain_quad(added)
        if plain is not None:
            return plain
    form = pyoxigraph.RdfFormat.N_QUADS
    added = _parse_quads(added, form, None)
    removed = _parse_quads(_encode_text(deletes), form, None) if deletes else b""
    check_supported_terms(added)
    added, _ = Skolemiser(draw).skolemise(added)
    if removed:
        check_supported_terms(removed)
        removed = skolemise_kept_lines(removed)
    adding = dict.fromkeys(split_lines(added))
    return build_quads_body((line for line in split_lines(removed) if line not in adding), adding)


def _encode_text(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"MALFORMED DATA: half a surrogate pair at character {error.start} is no character") from None


def refuse_blank_deletes(nquads: bytes) -> None:
    """Raise BadInput when a quad of DELETE DATA holds a blank node."""
    if b"_:" in nquads and any(term.startswith(b"_:") for term in _TERMS.findall(nquads)):
        raise BadInput("MALFORMED QUERY: a blank node names nothing that could be deleted; use its IRI or a pattern")
