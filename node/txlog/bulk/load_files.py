"""A load on a target: ``_bulk/<cluster>/<id>/`` with its request, parts, manifest and decision. Format 1.

``request.json`` comes first and says what is loaded. Each part is named by the hash of its bytes. ``manifest.json``
comes last and names all parts. ``decision.json`` is ``commit`` or ``abort``: the first one counts. ``outcome.json`` is
for people: where in the log the load is.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Final, Literal, TypeVar

import msgspec
import zstandard

from txlog.backup.backup_errors import ObjectMissing
from txlog.backup.target import BackupTarget
from txlog.bulk.bulk_errors import BulkPartDamaged, NoSuchLoad
from txlog.model.bulk_entry import BulkReference, is_bulk_id
from txlog.model.decode_errors import DECODE_ERRORS

FORMAT: Final = 1
FOLDER: Final = "_bulk"
PART_BYTES: Final = 32 << 20
"""Bytes of N-Quads in a part: 2 to 4 MB compressed, usually."""
PART_BYTES_MAX: Final = 64 << 20
"""No stored part is longer, and none unfolds to more."""
MANIFEST_BYTES_MAX: Final = 16 << 20
COMPRESSION_LEVEL: Final = 3
CHUNK_BYTES: Final = 1 << 20
Decision = Literal["commit", "abort"]
T = TypeVar("T")


class LoadSource(msgspec.Struct, frozen=True):
    """A file of a load. ``digest``: 32 hexadecimal digits over its bytes as they are (compressed or not)."""

    name: str
    bytes: int
    digest: str


class LoadIntent(msgspec.Struct, frozen=True, rename="camel"):
    """What is to be loaded. ``graph``: takes the triples that name none; "": the default graph. ``created_at``:
    seconds since 1970."""

    id: str
    cluster: str
    sources: list[LoadSource]
    graph: str = ""
    created_at: float = 0.0
    format: int = FORMAT

    def is_same(self, sources: list[LoadSource], graph: str) -> bool:
        """Whether it is for the same contents of files, in this order, and the same graph."""
        return [each.digest for each in self.sources] == [each.digest for each in sources] and self.graph == graph


class LoadPart(msgspec.Struct, frozen=True):
    """A part: its SHA-256 as it lies there, its length there, and lines and bytes of its N-Quads."""

    sha256: str
    bytes: int
    quads: int
    plain: int


class LoadManifest(msgspec.Struct, frozen=True, rename="camel"):
    """All parts of a load, in order. ``quads``: lines of N-Quads, each counted as often as it is there."""

    id: str
    cluster: str
    parts: list[LoadPart]
    quads: int
    plain: int
    sources: list[LoadSource]
    graph: str = ""
    format: int = FORMAT

    @property
    def stored(self) -> int:
        """Bytes on the target."""
        return sum(part.bytes for part in self.parts)


class LoadDecision(msgspec.Struct, frozen=True, rename="camel"):
    """``at``: seconds since 1970."""

    decision: Decision
    at: float


class LoadOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """Where the entry of a load is in the log."""

    transaction: str
    index: int
    at: float


class LoadFolder:
    """One load on one target."""

    def __init__(self, target: BackupTarget, cluster: str, load: str) -> None:
        self.target, self.cluster, self.load = target, cluster, load

    def key(self, name: str) -> str:
        """The key of an object of this load."""
        return f"{FOLDER}/{self.cluster}/{self.load}/{name}"

    def part_key(self, part: LoadPart) -> str:
        """The key of a part."""
        return self.key(f"{part.sha256}.nq.zst")

    # -- small objects

    def create_request(self, request: LoadIntent) -> None:
        """Begins the load; the same request may be there already."""
        self.target.create(self.key("request.json"), msgspec.json.encode(request))

    def read_request(self) -> LoadIntent:
        """What is loaded. :class:`NoSuchLoad` where nothing was begun."""
        found = self._read_json("request.json", LoadIntent)
        if found is None:
            raise NoSuchLoad(f"there is no load {self.load} on {self.target.location}; txlog bulk status lists them")
        return found

    def read_decision(self) -> LoadDecision | None:
        """None while nothing was decided."""
        return self._read_json("decision.json", LoadDecision)

    def decide(self, wanted: Decision, at: float) -> LoadDecision:
        """Writes the decision, unless there is one. Returns the one that counts."""
        self.target.create(self.key("decision.json"), msgspec.json.encode(LoadDecision(wanted, at)))
        first = self.read_decision()
        if first is None:
            raise BulkPartDamaged(f"{self.key('decision.json')} was written to {self.target.location} and is not there")
        return first

    def read_outcome(self) -> LoadOutcome | None:
        """None while it is not known where the load is in the log."""
        return self._read_json("outcome.json", LoadOutcome)

    def write_outcome(self, outcome: LoadOutcome) -> None:
        """Notes where the load is in the log."""
        self.target.create(self.key("outcome.json"), msgspec.json.encode(outcome))

    def _read_json(self, name: str, kind: type[T]) -> T | None:
        try:
            data = self.target.read(self.key(name), MANIFEST_BYTES_MAX)
        except ObjectMissing:
            return None
        try:
            return msgspec.json.decode(data, type=kind)
        except DECODE_ERRORS as wrong:
            raise self.damaged(name, str(wrong)) from None

    def damaged(self, name: str, why: str) -> BulkPartDamaged:
        """The error of an object of this load."""
        return BulkPartDamaged(f"{self.key(name)} on {self.target.location}: {why}")

    # -- manifest

    def write_manifest(self, manifest: LoadManifest) -> BulkReference:
        """Writes the manifest, which makes the load complete on this target. Returns the reference to it."""
        data = msgspec.json.encode(manifest)
        if not self.target.create(self.key("manifest.json"), data):
            there = self.target.read(self.key("manifest.json"), MANIFEST_BYTES_MAX)
            if there != data:
                raise self.damaged("manifest.json", "another manifest of the same load is there; abort it, begin again")
        return BulkReference(self.load, sha256(data).hexdigest(), manifest.quads)

    def find_reference(self) -> BulkReference | None:
        """The reference to the manifest; None while there is none."""
        try:
            data = self.target.read(self.key("manifest.json"), MANIFEST_BYTES_MAX)
        except ObjectMissing:
            return None
        return BulkReference(self.load, sha256(data).hexdigest(), self._decode_manifest(data).quads)

    def read_manifest(self, reference: BulkReference) -> LoadManifest:
        """The manifest. :class:`BulkPartDamaged` unless it is the one that the reference names, byte for byte."""
        try:
            data = self.target.read(self.key("manifest.json"), MANIFEST_BYTES_MAX)
        except ObjectMissing:
            raise self.damaged("manifest.json", "it is not there; copy the load from another data centre") from None
        if sha256(data).hexdigest() != reference.manifest:
            raise self.damaged("manifest.json", f"its SHA-256 is {sha256(data).hexdigest()}, not {reference.manifest}")
        return self._decode_manifest(data)

    def _decode_manifest(self, data: bytes) -> LoadManifest:
        try:
            found = msgspec.json.decode(data, type=LoadManifest)
        except DECODE_ERRORS as wrong:
            raise self.damaged("manifest.json", str(wrong)) from None
        if (found.id, found.cluster, found.format) != (self.load, self.cluster, FORMAT):
            raise self.damaged("manifest.json", f"it is of {found.id} of {found.cluster} in format {found.format}")
        if sum(part.quads for part in found.parts) != found.quads:
            raise self.damaged("manifest.json", "its parts do not add up to its total")
        return found

    # -- parts

    def write_part(self, lines: bytes) -> LoadPart:
        """Whole lines of N-Quads as a part. It may be there already, from an earlier attempt."""
        data = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True).compress(lines)
        part = LoadPart(sha256(data).hexdigest(), len(data), lines.count(b"\n"), len(lines))
        self.target.create(self.part_key(part), data)
        return part

    def read_part(self, part: LoadPart) -> bytes:
        """The part as it lies there, proved by its hash."""
        name = f"{part.sha256}.nq.zst"
        try:
            data = self.target.read(self.key(name), PART_BYTES_MAX)
        except ObjectMissing:
            raise self.damaged(name, "it is not there; repeat txlog bulk load with the same files") from None
        if len(data) != part.bytes or sha256(data).hexdigest() != part.sha256:
            raise self.damaged(name, f"it has {len(data):,} bytes, and is not what was written ({part.bytes:,} bytes)")
        return data

    def discard_damaged(self, part: LoadPart) -> bool:
        """Deletes a part that is not what was written, so that it can be written again. Returns whether there is a
        sound one."""
        try:
            self.read_part(part)
        except BulkPartDamaged:
            self.target.delete([self.part_key(part)])
            return False
        return True

    def unfold_part(self, part: LoadPart, data: bytes) -> Iterator[bytes]:
        """The N-Quads of a part in pieces. :class:`BulkPartDamaged` unless they are as many as the manifest says."""
        lines = plain = 0
        with zstandard.ZstdDecompressor().stream_reader(data) as reader:
            while piece := reader.read(CHUNK_BYTES):
                plain, lines = plain + len(piece), lines + piece.count(b"\n")
                if plain > part.plain:
                    break
                yield piece
        if (plain, lines) != (part.plain, part.quads):
            raise self.damaged(f"{part.sha256}.nq.zst", f"it unfolds to {plain:,} bytes, not {part.plain:,}")

    def delete_parts(self) -> int:
        """Deletes the parts and the manifest of an aborted load; returns how many objects. The decision stays."""
        kept = tuple(self.key(name) for name in ("request.json", "decision.json"))
        keys = [found.key for found in self.target.list_nested(self.key("")[:-1]) if found.key not in kept]
        self.target.delete(keys)
        return len(keys)


def list_loads(target: BackupTarget, cluster: str) -> list[LoadFolder]:
    """Every load of a cluster on a target that has begun, whatever became of it. A folder without its request is none:
    it is the rest of a load whose objects were deleted by hand."""
    prefix = f"{FOLDER}/{cluster}"
    keys = [found.key.removeprefix(f"{prefix}/").split("/") for found in target.list_nested(prefix)]
    names = {key[0] for key in keys if key[1:] == ["request.json"]}
    return [LoadFolder(target, cluster, name) for name in sorted(names) if is_bulk_id(name)]
