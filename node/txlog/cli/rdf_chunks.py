"""RDF files to transactions: a stream of chunks, the same ones each time the same file is read.

N-Triples and N-Quads are taken line by line; Turtle, TriG, N3, RDF/XML by a streaming parser. A blank node means the
same node in the whole file, which becomes many transactions, and a master renames those of each transaction. So they
get their lasting names here, made of the file's hash. The same file loaded twice names them the same.
"""

from __future__ import annotations

import gzip
import re
import shutil
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Final, cast
from urllib.parse import urlsplit

import pyoxigraph
from pyoxigraph import RdfFormat

from txlog.model.errors import BadInput, Refused, Unavailable, Unsupported
from txlog.sparql.formats.rdf_xml_source import RdfXmlSource, rewrite_rdf_xml
from txlog.sparql.skolem_iris import SKOLEM_PREFIX

CHUNK_BYTES: Final = 2 << 20
"""A chunk ends at so many bytes even when it has fewer quads than asked; a transaction may be 16 MiB."""
READ_BYTES: Final = 1 << 20
XML_BYTES_MAX: Final = 64 << 20
"""A longer document in RDF/XML is read as a stream, and must be in the form that the parser reads."""
LINE_FORMATS: Final = (RdfFormat.N_TRIPLES, RdfFormat.N_QUADS)
_TERMS: Final = re.compile(rb'"(?:[^"\\\n]++|\\.|)*+"|<<\(|<[^>\n]*+>|_:[^ \n]++')


@dataclass(frozen=True)
class RdfSource:
    """A file at hand. ``digest``: 32 hexadecimal digits over its bytes as they are (compressed or not)."""

    name: str
    path: Path
    rdf_format: RdfFormat
    gzipped: bool
    size: int
    digest: str
    base: str


@dataclass(frozen=True)
class RdfChunk:
    """``quads`` N-Quads lines, the text of one transaction. ``number`` counts from 1; ``offset`` is how many bytes of
    the file were read when it was whole; ``line`` is where it begins, 0 where lines are not known."""

    number: int
    text: str
    quads: int
    offset: int
    line: int


@contextmanager
def open_source(name: str, form: str | None = None) -> Iterator[RdfSource]:
    """A file, or an ``http(s)`` URL, which is fetched to a temporary file first: what is loaded must be hashed, and
    read again after an interruption. ``rdf_format``: an extension such as ``ttl``, where the name has none.

    :class:`BadInput`, :class:`Unsupported`, or :class:`Unavailable` when a URL cannot be fetched."""
    if urlsplit(name).scheme in ("http", "https"):
        with tempfile.TemporaryDirectory(prefix="txlog-load-") as folder:
            path = Path(folder) / "file"
            try:
                with urllib.request.urlopen(name, timeout=60) as answer, open(path, "wb") as file:
                    shutil.copyfileobj(answer, file, READ_BYTES)
            except OSError as error:
                raise Unavailable("NotFetched", f"{name}: {error}") from None
            yield _describe_source(name, path, urlsplit(name).path, form, name)
    else:
        path = Path(name)
        if not path.is_file():
            raise BadInput(f"{name}: no such file; expected an RDF file or an http(s) URL")
        yield _describe_source(name, path, path.name, form, path.absolute().as_uri())


def _describe_source(name: str, path: Path, filename: str, form: str | None, base: str) -> RdfSource:
    with open(path, "rb") as file:
        gzipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        state = blake2b(digest_size=16)
        while block := file.read(READ_BYTES):
            state.update(block)
    suffix = form or Path(filename.removesuffix(".gz")).suffix.removeprefix(".")
    found = RdfFormat.from_extension(suffix)
    if found is None or found in (RdfFormat.JSON_LD, RdfFormat.STREAMING_JSON_LD):
        raise Unsupported(f"{name}: format {suffix or 'unknown'}; expected nt, nq, ttl, trig, n3 or rdf (--format)")
    return RdfSource(name, path, found, gzipped, path.stat().st_size, state.hexdigest(), base)


def read_chunks(source: RdfSource, quads: int, graph: str | None = None) -> Iterator[RdfChunk]:
    """The file in transactions of at most ``quads`` quads. ``graph`` takes the triples that name none.

    :class:`BadInput` names file and line of what is not RDF."""
    with open(source.path, "rb") as raw, ExitStack() as closing:
        whole: IO[bytes] = raw
        if source.gzipped:
            whole = cast("IO[bytes]", closing.enter_context(gzip.open(raw, "rb")))
        lines = (
            _read_lines(source, whole, graph)
            if source.rdf_format in LINE_FORMATS
            else _parse_quads(source, whole, graph)
        )
        held: list[bytes] = []
        size = number = first = 0
        try:
            for line, text in lines:
                if not held:
                    first = line
                held.append(text)
                size += len(text)
                if len(held) >= quads or size >= CHUNK_BYTES:
                    number += 1
                    yield _build_chunk(source, number, held, raw.tell(), first)
                    held, size = [], 0
        except (gzip.BadGzipFile, EOFError) as error:
            raise BadInput(f"{source.name}: broken gzip file: {error}") from None
        if held:
            yield _build_chunk(source, number + 1, held, raw.tell(), first)


def _build_chunk(source: RdfSource, number: int, lines: list[bytes], offset: int, first: int) -> RdfChunk:
    try:
        text = b"".join(lines).decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{source.name}: not UTF-8, in or after line {first}: {error.reason}") from None
    return RdfChunk(number, text, len(lines), offset, first)


def _read_lines(source: RdfSource, file: Iterable[bytes], graph: str | None) -> Iterator[tuple[int, bytes]]:
    stem = f"<{SKOLEM_PREFIX}{source.digest}:".encode()

    def name_by_label(label: bytes) -> bytes:
        """Without remembering any: a file may have more than fit into memory."""
        return b"%s%d>" % (stem, int.from_bytes(blake2b(label, digest_size=8).digest(), "big"))

    for number, line in enumerate(file, start=1):
        text = line.lstrip(b" \t")
        if text[:1] in (b"#", b"\n", b"\r", b""):
            continue
        if b"_:" in text or graph is not None:
            # Only the parser knows a label from a literal that looks like one, and where a term ends.
            try:
                quads = list(pyoxigraph.parse(text, RdfFormat.N_QUADS))
            except SyntaxError as error:
                raise BadInput(f"{source.name}:{number}: not {source.rdf_format.name}: {error.msg}") from None
            yield number, rename_blank_nodes(serialise_quads(quads, graph), name_by_label)
        else:
            yield number, text if text.endswith(b"\n") else text + b"\n"


def rename_blank_nodes(lines: bytes, name_of: Callable[[bytes], bytes]) -> bytes:
    """N-Quads in which blank nodes have lasting names. ``name_of``: the term for a label."""

    def name(found: re.Match[bytes]) -> bytes:
        return name_of(found[0]) if found[0].startswith(b"_:") else found[0]

    return _TERMS.sub(name, lines) if b"_:" in lines else lines


def counted_names(stem: str) -> Callable[[bytes], bytes]:
    """The terms for labels in their order: the parser draws labels for ``[]``."""
    names: dict[bytes, bytes] = {}
    return lambda label: names.setdefault(label, f"<{SKOLEM_PREFIX}{stem}:{len(names)}>".encode())


def _parse_quads(source: RdfSource, file: IO[bytes], graph: str | None) -> Iterator[tuple[int, bytes]]:
    name_of = counted_names(source.digest)
    document = rewrite_small_xml(source, file)
    text: IO[bytes] | bytes = file if document is None else document.text
    try:
        for quad in pyoxigraph.parse(text, source.rdf_format, base_iri=source.base):
            line = serialise_quads([quad], graph)
            line = line if document is None else document.restore(line)
            yield 0, rename_blank_nodes(line, name_of)
    except SyntaxError as error:
        raise BadInput(f"{source.name}:{error.lineno or 0}: not {source.rdf_format.name}: {error.msg}") from None


def rewrite_small_xml(source: RdfSource, file: IO[bytes]) -> RdfXmlSource | None:
    """RDF/XML as the front door reads it; None for another format, and for a document that is too long to rewrite."""
    if source.rdf_format != RdfFormat.RDF_XML:
        return None
    body = file.read(XML_BYTES_MAX + 1)
    if len(body) > XML_BYTES_MAX:
        file.seek(0)
        return None
    try:
        return rewrite_rdf_xml(body, source.base)
    except Refused as error:
        raise BadInput(f"{source.name}: {error}") from None


def serialise_quads(quads: list[pyoxigraph.Quad], graph: str | None) -> bytes:
    """As canonical N-Quads. ``graph`` takes the triples that name none."""
    if graph is not None:
        named = pyoxigraph.NamedNode(graph)
        quads = [
            pyoxigraph.Quad(q.subject, q.predicate, q.object, named)
            if isinstance(q.graph_name, pyoxigraph.DefaultGraph)
            else q
            for q in quads
        ]
    written = pyoxigraph.serialize(quads, format=RdfFormat.N_QUADS)
    assert written is not None
    return written
