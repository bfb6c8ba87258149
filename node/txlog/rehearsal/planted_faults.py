"""Twelve faults that a rehearsal has to name. Each one is planted into what the rehearsal reads: no object on a target,
no worker and no master is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec

from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import FileName, Node, parse_file_name
from txlog.archive.format import AFTER_GAP, COMPACTED, decode_file, encode_file
from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import MomentRequest, plan_restore
from txlog.archive.restore_plan import RestorePlan
from txlog.archive.stream import Stream
from txlog.archive.stream_reader import StreamReader
from txlog.backup.backup_manifest import MANIFEST_NAME
from txlog.backup.backup_writer import BackupRequest, write_backup
from txlog.backup.folder_target import FolderTarget
from txlog.backup.verification import read_contents, read_manifest
from txlog.model.entry import CONTROL_KINDS
from txlog.model.hashes import HASH_BYTES
from txlog.rehearsal.live_state import LiveState, measure_rpo
from txlog.rehearsal.planted_target import PlantedTarget
from txlog.rehearsal.rehearsal import RehearsalRequest
from txlog.rehearsal.store_damage import delete_one_quad
from txlog.rehearsal.verdict import PlacedDigest

_ARCHIVED_S: Final = 1.0
"""The archive has the place already, so a wait that is longer shows nothing."""
_FLIPPED: Final = 0x10
_EXTRA_QUAD: Final = b"<urn:planted:s> <urn:planted:p> <urn:planted:o> <urn:planted:g> .\n"


class Planting(NamedTuple):
    """What faults are planted into. ``live``: read once, for all of them. ``plan``: of the sound restore."""

    request: RehearsalRequest
    stream: Stream
    live: LiveState
    plan: RestorePlan

    @property
    def place(self) -> Node:
        return self.live.held.place

    def with_archive(self, **changes: object) -> RehearsalRequest:
        """The request with another archive; the backups stay."""
        return replace(self.request, archive=PlantedTarget(self.request.archive, **changes))  # type: ignore[arg-type]

    def with_backups(self, **changes: object) -> RehearsalRequest:
        """The request with other backups; the archive stays."""
        return replace(self.request, backups=PlantedTarget(self.request.backups, **changes))  # type: ignore[arg-type]


class NotPlantable(Exception):
    """This archive has no place for the fault."""


@dataclass(frozen=True)
class RehearsalFault:
    """``error``: the name that a rehearsal has to give it. ``plant``: the request with the fault."""

    name: str
    error: str
    plant: Callable[[Planting], RehearsalRequest]


def make_planting(request: RehearsalRequest, stream: Stream, live: LiveState) -> Planting:
    """``live``: also read by each rehearsal with a fault. Raises what planning a restore raises."""
    place = live.held.place
    moment = MomentRequest(parse_moment(f"position:{place.index}:{place.hash.hex()}"), request.backups, request.base)
    plan = plan_restore(StreamReader(stream), moment, live.engine)
    fixed = replace(request, read_live=lambda *_: live, archived_s=_ARCHIVED_S, level="data")
    return Planting(fixed, stream, live, plan)


def _file_of(key: str) -> FileName | None:
    folder, _, name = key.rpartition("/")
    level = {"log0": 0, "log1": 1}.get(folder.rpartition("/")[2])
    return parse_file_name(name, level) if level is not None else None


def _holds(key: str, index: int) -> bool:
    name = _file_of(key)
    return name is not None and name.first <= index <= name.last


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ _FLIPPED]) + data[at + 1 :]


# -- the archive


def _bit_in_file(into: Planting) -> RehearsalRequest:
    at = _last_file(into).last
    return into.with_archive(change=lambda key, data: _flip(data, len(data) // 2) if _holds(key, at) else data)


def _file_missing(into: Planting) -> RehearsalRequest:
    at = _last_file(into).first if len(into.plan.files) < 2 else into.plan.files[0].name.last
    if not any(each.name.first > at for each in into.stream.list_files()):
        raise NotPlantable("one file holds everything since the backup: the archive would just end before it")
    return into.with_archive(hides=lambda key: _holds(key, at))


def _end_missing(into: Planting) -> RehearsalRequest:
    at = _last_file(into).last
    return into.with_archive(hides=lambda key: (name := _file_of(key)) is not None and name.last >= at)


def _other_stream(into: Planting) -> RehearsalRequest:
    key = f"{into.stream.id.folder}/stream.json"
    own, other = into.stream.id.cluster.hex().encode(), into.stream.id.cluster[::-1].hex().encode()
    return into.with_archive(change=lambda read, data: data.replace(own, other) if read == key else data)


def _invented_repeats(into: Planting) -> RehearsalRequest:
    """Whether an entry is a repeat is not covered by the chain, so every checksum of these files is right."""
    _last_file(into)
    return into.with_archive(change=lambda key, data: _mark_repeats(key, data, into.plan.after.index))


def _mark_repeats(key: str, data: bytes, after: int) -> bytes:
    name = _file_of(key)
    if name is None or name.last <= after:
        return data
    found = decode_file(name, data)
    entries = [_mark(each) if each.index > after else each for each in found.entries]
    flags = found.header.flags & (COMPACTED | AFTER_GAP)
    header = found.header
    return encode_file(
        entries, name.before, header.meta, settled=header.settled, writer=header.writer, flags=flags
    ).data


def _mark(entry: ArchivedEntry) -> ArchivedEntry:
    return entry if entry.kind in CONTROL_KINDS else msgspec.structs.replace(entry, is_noop=True)


def _claimed(into: Planting) -> RehearsalRequest:
    return into.with_archive(extra={f"{into.stream.id.folder}/recovery/0001.json": b"of another cluster"})


def _archiver_behind(into: Planting) -> RehearsalRequest:
    """The loss is measured as if nothing since the backup had been archived."""
    _last_file(into)
    after = into.plan.after.index
    behind = PlantedTarget(
        into.request.archive, hides=lambda key: (name := _file_of(key)) is not None and name.last > after
    )
    rpo_s = measure_rpo(into.request.masters, Stream(behind, into.stream.id))
    late = into.live._replace(rpo_s=rpo_s)
    return replace(into.request, read_live=lambda *_: late, bounds=into.request.bounds._replace(rpo_s=0.0))


def _last_file(into: Planting) -> FileName:
    if not into.plan.files:
        raise NotPlantable("the backup is at the place of the worker, so no archived file is read; write something")
    return into.plan.files[-1].name


# -- the backups


def _part_damaged(into: Planting) -> RehearsalRequest:
    _base(into)

    def change(key: str, data: bytes) -> bytes:
        is_part = key.count("/") == 1 and not key.endswith(".json")
        return _flip(data, len(data) // 2) if is_part and data else data

    return into.with_backups(change=change)


def _no_backup(into: Planting) -> RehearsalRequest:
    return into.with_backups(hides=lambda key: key.endswith(f"/{MANIFEST_NAME}"))


def _another_quad(into: Planting) -> RehearsalRequest:
    """A backup whose parts and manifest agree, and which holds what no log has written."""
    manifest = read_manifest(into.request.backups, _base(into))
    folder = into.request.folder / "backups"
    folder.mkdir()
    copy = FolderTarget(folder)

    def pieces() -> Iterator[bytes]:
        yield from read_contents(into.request.backups, manifest)
        yield _EXTRA_QUAD

    order = BackupRequest(manifest.cluster, manifest.data_center)
    base = manifest.base_content
    write_backup(pieces(), manifest.position, manifest.worker, manifest.engine, copy, order, base=base)
    return replace(into.request, backups=copy)


def _base(into: Planting) -> str:
    if into.plan.base is None:
        raise NotPlantable("the log is replayed from an empty store, so no backup is read; take one")
    return into.plan.base.name


# -- the store


def _lost_quad(into: Planting) -> RehearsalRequest:
    return replace(into.request, change_restored=lambda store, found: delete_one_quad(store, found))


def _other_place(into: Planting) -> RehearsalRequest:
    """The store says that it is at the same index of another branch."""

    def change(_: object, found: PlacedDigest) -> PlacedDigest:
        return found._replace(place=Node(found.place.index, bytes(HASH_BYTES)))

    return replace(into.request, change_restored=change)


FAULTS: Final[Sequence[RehearsalFault]] = (
    RehearsalFault("bit-in-file", "FileDamaged", _bit_in_file),
    RehearsalFault("file-missing", "FileMissing", _file_missing),
    RehearsalFault("end-missing", "NotArchivedInTime", _end_missing),
    RehearsalFault("stream-of-another-cluster", "StreamTaken", _other_stream),
    RehearsalFault("invented-repeats", "RehearsalDiffers", _invented_repeats),
    RehearsalFault("claimed-by-another-cluster", "AlreadyRecovered", _claimed),
    RehearsalFault("archiver-behind", "RpoExceeded", _archiver_behind),
    RehearsalFault("backup-part-damaged", "PartDamaged", _part_damaged),
    RehearsalFault("no-backup", "NoBase", _no_backup),
    RehearsalFault("backup-with-another-quad", "RehearsalDiffers", _another_quad),
    RehearsalFault("store-lost-a-quad", "RehearsalDiffers", _lost_quad),
    RehearsalFault("another-place", "NothingCompared", _other_place),
)
"""The twelve faults, in the order in which they are planted."""
