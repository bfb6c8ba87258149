"""Writes the parts of a load, and copies a load to the target of another data centre."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyoxigraph
from pyoxigraph import RdfFormat

from txlog.backup.part_codec import batch_lines, refuse_blank_nodes
from txlog.bulk.load_files import CHUNK_BYTES, PART_BYTES, LoadFolder, LoadIntent, LoadManifest, LoadPart
from txlog.model.bulk_entry import BulkReference
from txlog.sparql import check_supported_terms

PartCallback = Callable[[LoadPart], None]


def write_parts(
    folder: LoadFolder, pieces: Iterator[bytes], on_part: PartCallback, part_bytes: int = PART_BYTES
) -> list[LoadPart]:
    """``pieces``: canonical N-Quads without blank nodes, each of whole lines. The same pieces give the same parts, so
    an attempt that broke off is continued by writing them again."""
    parts: list[LoadPart] = []
    held: list[bytes] = []
    size = 0

    def close() -> None:
        part = folder.write_part(b"".join(held))
        parts.append(part)
        on_part(part)

    for piece in pieces:
        if held and size + len(piece) > part_bytes:
            close()
            held, size = [], 0
        held.append(piece)
        size += len(piece)
    if held:
        close()
    return parts


def build_manifest(request: LoadIntent, parts: list[LoadPart]) -> LoadManifest:
    """The manifest of a request whose parts are all written."""
    quads, plain = sum(part.quads for part in parts), sum(part.plain for part in parts)
    return LoadManifest(request.id, request.cluster, parts, quads, plain, request.sources, request.graph)


def stage_load(home: LoadFolder, to: LoadFolder, reference: BulkReference, on_part: PartCallback) -> LoadManifest:
    """Makes the load complete on the target of a data centre: each part is copied unless a sound one is there, read
    back, and proved by its hash. The manifest is written last. ``to`` may be ``home``: then everything is read back.

    :class:`~txlog.bulk.bulk_errors.BulkPartDamaged` for a part that is not what was written, and
    :class:`~txlog.model.errors.SystemGraphNamed` for quads that no worker may hold."""
    manifest = home.read_manifest(reference)
    is_copy = to.target.location != home.target.location
    for part in manifest.parts:
        if is_copy:
            _copy_part(home, to, part)
        for lines in batch_lines(to.unfold_part(part, to.read_part(part)), CHUNK_BYTES):
            _check_lines(to, part, lines)
        on_part(part)
    if is_copy:
        to.create_request(home.read_request())
        to.write_manifest(manifest)
    return to.read_manifest(reference)


def _copy_part(home: LoadFolder, to: LoadFolder, part: LoadPart) -> None:
    data = home.read_part(part)
    if not to.target.create(to.part_key(part), data) and not to.discard_damaged(part):
        to.target.create(to.part_key(part), data)


def _check_lines(folder: LoadFolder, part: LoadPart, lines: bytes) -> None:
    """What a client wrote is believed by its hash alone where it is used; so it is parsed again here."""
    check_supported_terms(lines)
    name = f"{part.sha256}.nq.zst"
    try:
        same = pyoxigraph.serialize(pyoxigraph.parse(lines, RdfFormat.N_QUADS), format=RdfFormat.N_QUADS)
    except SyntaxError as error:
        raise folder.damaged(name, f"it is no N-Quads: {error.msg}") from None
    if same != lines:
        raise folder.damaged(name, "its N-Quads are not in their canonical form")
    list(refuse_blank_nodes(iter([lines]), folder.part_key(part)))


def read_quads(folder: LoadFolder, reference: BulkReference) -> Iterator[bytes]:
    """The N-Quads of a whole load in pieces of whole lines, each part proved before its first line is given out."""
    for part in folder.read_manifest(reference).parts:
        yield from batch_lines(folder.unfold_part(part, folder.read_part(part)), CHUNK_BYTES)
