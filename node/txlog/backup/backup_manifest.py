"""The manifest of a backup: ``manifest.json``, written last.

Its bytes are those of :mod:`txlog.backup.checked_json`, so no changed byte goes unnoticed.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from txlog.backup.backup_errors import ManifestDamaged, UnknownFormat
from txlog.backup.checked_json import decode_checked, encode_checked
from txlog.model.entry import Position
from txlog.model.errors import BadInput
from txlog.model.hashes import HASH_BYTES, short_hash
from txlog.model.ids import parse_txid

FORMAT_VERSION: Final = 1
"""Of a backup whose content is all from the log."""
BASE_FORMAT_VERSION: Final = 2
"""Of a backup with ``base``: an earlier program must not restore it as if the log were all."""
UNDECIDED_FORMAT_VERSION: Final = 3
"""Of a backup with ``undecided``, with or without ``base``: an earlier program reads none of it."""
INCREMENT_FORMAT_VERSION: Final = 4
"""Of an incremental backup: an earlier program must not take its parts for all that the worker held."""
FORMATS: Final = (FORMAT_VERSION, BASE_FORMAT_VERSION, UNDECIDED_FORMAT_VERSION, INCREMENT_FORMAT_VERSION)
MANIFEST_NAME: Final = "manifest.json"
RELEASED_NAME: Final = "released.json"
MERGED_NAME: Final = "merged.json"
"""Beside the manifest of a full backup that was merged from a chain, without a worker."""
NAME_PATTERN: Final = re.compile(r"^[a-z0-9][a-z0-9.-]{0,119}$")
MANIFEST_BYTES_MAX: Final = 64 << 20
"""A part takes about 120 bytes here: enough for 16 TB of N-Quads."""

BackupReason = Literal["manual", "schedule", "split", "adopt"]
Retention = Literal["normal", "held"]
"""``held``: pinned until it is released, independent of the retention."""


class BackupPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """``bytes`` and ``sha256`` of the object on the target; ``plain``: bytes of N-Quads in it."""

    name: str
    bytes: int
    sha256: str
    plain: int


class ManifestPosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A position of the log as the manifest stores it."""

    epoch: int
    index: int
    hash: str


class ManifestIncrement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What makes a backup an incremental one. ``of``: the name of the backup that it continues; ``place`` and
    ``digest``: of that one. ``number``: 1 after a full backup, else one more than that one's. ``deleted_parts``:
    quads that are gone since then; the parts of the manifest are those that came. ``added`` and ``deleted``: how many.
    ``state_bytes``: N-Quads of the whole state."""

    of: str
    place: ManifestPosition = msgspec.field(name="position")
    digest: str
    number: int
    added: int
    deleted: int
    state_bytes: int
    deleted_parts: list[BackupPart]


class BackupManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Times are seconds since 1970 by the clock of the writer. ``digest``: the total of
    :class:`txlog.workers.digest.Digest` in hexadecimal. ``graphs``: number of named graphs that hold quads. ``base``:
    which content the worker had before the first entry of the log, in hexadecimal
    (:class:`~txlog.workers.adapter.MarkerPosition`); not there for none. ``undecided``: the synchronous transactions
    that no decision up to the position names; not there for none. A worker that is restored gets them with the pages of
    their COMMITs."""

    format: int = FORMAT_VERSION
    name: str
    cluster: str
    data_center: str
    worker: str
    engine: str
    place: ManifestPosition = msgspec.field(name="position")
    quads: int
    graphs: int
    digest: str
    parts: list[BackupPart]
    started: float
    finished: float
    why: BackupReason
    retention: Retention
    version: str
    base: str | msgspec.UnsetType = msgspec.UNSET
    undecided: list[str] | msgspec.UnsetType = msgspec.UNSET
    increment: ManifestIncrement | msgspec.UnsetType = msgspec.UNSET

    @property
    def base_content(self) -> bytes:
        """``base`` as a marker stores it. A store that was adopted as a backup is its own base."""
        if self.base is not msgspec.UNSET:
            return bytes.fromhex(self.base)
        return short_hash(b"adopt" + self.digest.encode()) if self.why == "adopt" else b""

    @property
    def undecided_transactions(self) -> list[str]:
        """``undecided``, empty for none."""
        return self.undecided if self.undecided is not msgspec.UNSET else []

    @property
    def position(self) -> Position:
        """The position in the log whose data the backup contains."""
        return Position(self.place.epoch, self.place.index, bytes.fromhex(self.place.hash))

    @property
    def continues(self) -> ManifestIncrement | None:
        """``increment``; None for a full backup."""
        return self.increment if self.increment is not msgspec.UNSET else None

    @property
    def chain_number(self) -> int:
        """How many incremental backups there are from the full one to this; 0 for a full one."""
        return self.continues.number if self.continues is not None else 0

    @property
    def all_parts(self) -> list[BackupPart]:
        """The parts on the target, also those of deleted quads."""
        return [*self.parts, *(self.continues.deleted_parts if self.continues is not None else ())]

    @property
    def stored_bytes(self) -> int:
        """Bytes of all parts on the target."""
        return sum(part.bytes for part in self.all_parts)

    @property
    def part_bytes(self) -> int:
        """Bytes of N-Quads in all parts."""
        return sum(part.plain for part in self.all_parts)

    @property
    def plain_bytes(self) -> int:
        """Bytes of N-Quads of the whole state."""
        return self.continues.state_bytes if self.continues is not None else self.part_bytes


def to_manifest_position(position: Position) -> ManifestPosition:
    """The form that the manifest stores: the chain hash in hexadecimal digits."""
    return ManifestPosition(position.epoch, position.index, position.hash.hex())


def find_format(*, has_base: bool, has_undecided: bool, is_increment: bool = False) -> int:
    """The lowest format that has these fields, so that earlier programs read what they can."""
    if is_increment:
        return INCREMENT_FORMAT_VERSION
    if has_undecided:
        return UNDECIDED_FORMAT_VERSION
    return BASE_FORMAT_VERSION if has_base else FORMAT_VERSION


def encode_manifest(manifest: BackupManifest) -> bytes:
    """The bytes of ``manifest.json``."""
    return encode_checked(msgspec.to_builtins(manifest))


def decode_manifest(name: str, raw: bytes) -> BackupManifest:
    """The inverse of :func:`encode_manifest`. :class:`ManifestDamaged` for bytes that it did not write;
    :class:`UnknownFormat` for an intact manifest of another format."""
    fields = decode_checked(raw)
    if fields is None:
        raise ManifestDamaged(f"{name}: its manifest is not what was written; take another backup (txlog backup list)")
    if fields.get("format") not in FORMATS:
        known = ", ".join(map(str, FORMATS))
        raise UnknownFormat(
            f"{name}: format {fields.get('format')}, this version reads {known}; use the TxLog that wrote it"
        )
    try:
        manifest = msgspec.convert(fields, BackupManifest)
        sound = len(manifest.position.hash) == HASH_BYTES and manifest.name == name
        sound = sound and len(manifest.base_content) in (0, HASH_BYTES)
        sound = sound and (manifest.format == INCREMENT_FORMAT_VERSION) == (manifest.continues is not None)
        sound = sound and (manifest.continues is None or _is_sound_increment(manifest, manifest.continues))
        sound = sound and all(str(parse_txid(txid)) == txid for txid in manifest.undecided_transactions)
    except (msgspec.ValidationError, ValueError, BadInput):
        sound = False
    if not sound:
        raise ManifestDamaged(f"{name}: its manifest is none of this name and format; it was copied or made by hand")
    return manifest


def _is_sound_increment(manifest: BackupManifest, increment: ManifestIncrement) -> bool:
    return (
        NAME_PATTERN.match(increment.of) is not None
        and increment.of != manifest.name
        and increment.number > 0
        and increment.place.index <= manifest.place.index
    )
