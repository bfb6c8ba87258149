"""RDF uploads that are packed: gzip, bzip2 and zip archives, recognised by their first bytes, as in RDF4J.

Each file of an archive is a document of its own. Its name says its format; another name has that of the request.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from txlog.model.errors import BadInput, TooLarge
from txlog.sparql.expansion_limit import check_expansion, limit_for
from txlog.sparql.rdf_upload import RandomBits, prepare_rdf
from txlog.sparql.transaction_body import TransactionBody
from txlog.sparql.transaction_builder import concatenate, prepare_removal
from txlog.wire.compressed_stream import PIECE_BYTES, Decompressor, sniff_compression

FILES_MAX: Final = 1000
"""Files of one archive."""
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_DIRECTORY_ENTRY: Final = b"PK\x01\x02"
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The only methods that RDF4J reads, too. Others may need gigabytes of memory for a few bytes."""
_ENCRYPTED: Final = 1
_ERRORS: Final = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError, RuntimeError)
_MEDIA_TYPES: Final = {
    "nq": "application/n-quads",
    "nt": "application/n-triples",
    "ttl": "text/turtle",
    "trig": "application/trig",
    "rdf": "application/rdf+xml",
    "rdfs": "application/rdf+xml",
    "owl": "application/rdf+xml",
    "xml": "application/rdf+xml",
    "jsonld": "application/ld+json",
    "n3": "text/n3",
    "trix": "application/trix",
    "rj": "application/rdf+json",
    "brf": "application/x-binary-rdf",
}
"""Media types by the endings of file names, as RDF4J knows them."""


class RdfDocument(NamedTuple):
    """``name``: of the file in its archive, "" outside one."""

    body: bytes
    media_type: str
    name: str = ""


def unpack_upload(body: bytes, media_type: str, bytes_max: int) -> list[RdfDocument]:
    """The documents of an upload: the body itself if it is not packed. Raises :class:`TooLarge` if they have more than
    ``bytes_max`` bytes together, before they are in memory, and :class:`BadInput` for a broken archive."""
    if not is_packed(body):
        return [RdfDocument(body, media_type)]
    return list(_unpack(RdfDocument(body, media_type), _Budget(bytes_max), in_archive=False))


def is_packed(body: bytes) -> bool:
    """Whether the first bytes are those of a format that :func:`unpack_upload` unpacks."""
    return body.startswith(_ZIP) or sniff_compression(body) != ""


class _Budget:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = self._left = bytes_max

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise TooLarge(f"unpacked, this is more than {self._bytes_max} bytes; send it in pieces")


def _unpack(packed: RdfDocument, budget: _Budget, *, in_archive: bool) -> Iterator[RdfDocument]:
    """A file may be packed inside an archive and an archive inside a compressed stream, but neither in itself."""
    name = sniff_compression(packed.body)
    if name:
        body = _decompress(name, packed.body, budget)
        if not in_archive and body.startswith(_ZIP):
            yield from _unpack_archive(packed._replace(body=body), budget)
        else:
            yield packed._replace(body=body)
    elif packed.body.startswith(_ZIP) and not in_archive:
        yield from _unpack_archive(packed, budget)
    else:
        yield packed


def _decompress(name: str, body: bytes, budget: _Budget) -> bytes:
    decompressor = Decompressor(name)
    out = io.BytesIO()
    for piece in decompressor.decompress(body):
        budget.take(len(piece))
        out.write(piece)
    decompressor.check_complete()
    return out.getvalue()


def _unpack_archive(packed: RdfDocument, budget: _Budget) -> Iterator[RdfDocument]:
    if packed.body.count(_DIRECTORY_ENTRY) > FILES_MAX:
        raise TooLarge(f"an archive may have {FILES_MAX} files; send it in pieces")
    try:
        with zipfile.ZipFile(io.BytesIO(packed.body)) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    body = _read_entry(archive, entry, budget)
                    media_type = _media_type_of(entry.filename, packed.media_type)
                    yield from _unpack(RdfDocument(body, media_type, entry.filename), budget, in_archive=True)
    except _ERRORS as error:
        raise BadInput(f"MALFORMED DATA: the archive cannot be read: {error}") from None


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, budget: _Budget) -> bytes:
    if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
        raise BadInput(
            f"MALFORMED DATA: {entry.filename[:100]} in the archive is encrypted, or neither stored nor deflated"
        )
    out = io.BytesIO()
    with archive.open(entry) as file:
        while piece := file.read(PIECE_BYTES):
            budget.take(len(piece))
            out.write(piece)
    return out.getvalue()


def _media_type_of(name: str, default: str) -> str:
    stem, _, ending = name.lower().rpartition(".")
    if ending in ("gz", "bz2"):
        ending = stem.rpartition(".")[2]
    return _MEDIA_TYPES.get(ending, default)


def prepare_upload(
    body: bytes,
    media_type: str,
    bytes_max: int,
    *,
    base: str | None,
    contexts: list[str],
    draw: RandomBits,
    same_nodes: bool = False,
    yield_control: Callable[[], None] | None = None,
) -> TransactionBody:
    """As :func:`txlog.sparql.prepare_rdf`, for a body that may be packed."""

    def prepare(document: RdfDocument) -> TransactionBody:
        return prepare_rdf(
            document.body,
            document.media_type,
            base=base,
            contexts=contexts,
            draw=draw,
            same_nodes=same_nodes,
            yield_control=yield_control,
        )

    return _prepare_each(unpack_upload(body, media_type, bytes_max), prepare)


def prepare_packed_removal(
    body: bytes, media_type: str, bytes_max: int, *, base: str | None, graphs: Sequence[str] | None
) -> TransactionBody:
    """As :func:`txlog.sparql.prepare_removal`, for a body that may be packed."""

    def prepare(document: RdfDocument) -> TransactionBody:
        return prepare_removal(document.body, document.media_type, base=base, graphs=graphs)

    return _prepare_each(unpack_upload(body, media_type, bytes_max), prepare)


def _prepare_each(
    documents: Sequence[RdfDocument], prepare: Callable[[RdfDocument], TransactionBody]
) -> TransactionBody:
    limit = limit_for(sum(len(document.body) for document in documents))
    size = 0
    parts: list[TransactionBody] = []
    for document in documents:
        try:
            parts.append(prepare(document))
        except BadInput as error:
            if type(error) is not BadInput or not document.name:
                raise
            raise BadInput(f"{error} (in {document.name[:200]})") from None
        size += len(parts[-1].payload)
        if len(documents) > 1:  # one document has its own bound
            check_expansion(size, limit)
    return concatenate(parts)
