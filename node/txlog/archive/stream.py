"""A stream: the archive of one cluster by one data centre, on a target.

::

    _archive/<cluster>/<data centre>/stream.json     its cluster, and where it starts; created once
    _archive/<cluster>/<data centre>/log0/….txl      the files (:mod:`txlog.archive.file_name`), as shipped
    _archive/<cluster>/<data centre>/log1/….txl      the same entries, several files in one
    _archive/<cluster>/<data centre>/gap/….json      where the log goes on after a part that was trimmed too early
    _archive/<cluster>/<data centre>/lost/….json     where the masters lost entries that were final
    _archive/<cluster>/<data centre>/begin/….json    where the paths begin since older files were deleted
    _archive/<cluster>/<data centre>/skips/….json    what these older files skipped, and the namespaces that they set
    _archive/<cluster>/<data centre>/lease/….json, retiring/….json   who reads now, and who deletes now
    _archive/<cluster>/<data centre>/rehearsal/….json   the results of rehearsed recoveries
    _archive/<cluster>/<data centre>/rescued/….json     what was given again to the cluster's successor
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from txlog.archive.archive_errors import FileDamaged, NoConditionalPut, StreamTaken
from txlog.archive.file_name import LEVELS, FileName, Node, parse_file_name
from txlog.archive.format import FILE_BYTES_MAX, ArchiveFile, FileHeader, decode_file, decode_header, header_length
from txlog.backup.archive_floor import ARCHIVE_ROOT
from txlog.backup.backup_errors import ObjectMissing, UnknownFormat
from txlog.backup.backup_writer import VERSION
from txlog.backup.checked_json import decode_checked, encode_checked
from txlog.backup.target import BackupTarget
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.hashes import CLUSTER_ID_BYTES, HASH_BYTES, short_hash

ROOT: Final = ARCHIVE_ROOT
STREAM_FORMAT: Final = 1
_RECORD_BYTES_MAX: Final = 1 << 16
_RESCUED_IN_RECORD: Final = 300
"""Transactions in one record, of two ids each."""
_HEADER_BYTES: Final = 1 << 18
"""Most headers are shorter; the rest is read again."""


class StoredFile(NamedTuple):
    """``modified``: seconds since 1970, by the target's clock."""

    name: FileName
    bytes: int
    modified: float


class StreamStarts(NamedTuple):
    """``begins``: the places at which the stream begins, one for each branch that is kept. ``gaps``: those after which
    it goes on, although what is before is missing. ``floor``: no file ends at or below this index."""

    begins: list[Node]
    gaps: list[Node]
    floor: int = 0

    @property
    def all(self) -> list[Node]:
        """Where a path may begin."""
        return [*self.begins, *self.gaps]


Skip = tuple[int, str]
"""Index and key of an entry of kind skip: a skipped transaction, or a change of a namespace."""


class _SkipsRecord(msgspec.Struct):
    """By place, as text."""

    skips: dict[str, list[Skip]]


class StreamId(NamedTuple):
    """``cluster``: 16 bytes."""

    cluster: bytes
    data_center: str

    @property
    def folder(self) -> str:
        """Where the stream is on its target."""
        return f"{ROOT}/{self.cluster.hex()}/{self.data_center}"


class Stream:
    """One stream on a target. Nothing is ever overwritten. Every call raises the errors of the target."""

    def __init__(self, target: BackupTarget, identity: StreamId) -> None:
        self._target = target
        self.id = identity
        self._key = f"{identity.folder}/stream.json"

    @property
    def location(self) -> str:
        """For people."""
        return f"{self._target.location}/{self.id.folder}"

    def create(self, start: Node) -> None:
        """Creates ``stream.json`` unless it exists: the stream begins after ``start``. :class:`NoConditionalPut` when
        the target would overwrite it."""
        fields = {
            "format": STREAM_FORMAT,
            "cluster": self.id.cluster.hex(),
            "dataCenter": self.id.data_center,
            "start": _node_to_json(start),
            "created": round(time.time(), 3),
            "version": VERSION,
        }
        self._target.create(self._key, encode_checked(fields))
        self.check_target()

    def check_target(self) -> None:
        """Whether credentials, bucket and conditional writes work: asks to create ``stream.json``, with its own bytes.
        :class:`NoConditionalPut` unless the target refuses."""
        raw = self._target.read(self._key, _RECORD_BYTES_MAX)
        if self._target.create(self._key, raw):
            raise NoConditionalPut(
                f"{self._target.location} overwrites an object that was only to be created; use a store with "
                "conditional writes (If-None-Match)"
            )

    def read_start(self) -> Node | None:
        """The place after which the stream begins; None when there is no stream. :class:`StreamTaken` when
        ``stream.json`` is damaged or of another stream, :class:`UnknownFormat` for another format."""
        try:
            fields = decode_checked(self._target.read(self._key, _RECORD_BYTES_MAX))
        except ObjectMissing:
            return None
        if fields is not None and fields.get("format") != STREAM_FORMAT:
            raise UnknownFormat(
                f"{self.location}: format {fields.get('format')}, this version reads {STREAM_FORMAT}; "
                "use the TxLog that wrote it"
            )
        start = _node_from_json(fields.get("start")) if fields is not None else None
        said = (fields.get("cluster"), fields.get("dataCenter")) if fields is not None else None
        if start is None or said != (self.id.cluster.hex(), self.id.data_center):
            raise StreamTaken(
                f"{self.location}: stream.json is damaged or belongs to another stream; use another prefix"
            )
        return start

    def read_starts(self) -> StreamStarts | None:
        """Where paths begin; None when there is no stream. Raises what :meth:`read_start` raises."""
        start = self.read_start()
        if start is None:
            return None
        begins, floor = self._read_begins()
        return StreamStarts(
            begins or [start], [gap for gap in self.read_gaps() if gap.index > floor or not begins], floor
        )

    def list_files(self, starts: StreamStarts | None = None) -> list[StoredFile]:
        """Every file of the stream, by name; other objects, and files that no path needs any more, are passed over.
        ``starts``: as they were just read."""
        begins, floor = (starts.begins, starts.floor) if starts is not None else self._read_begins()
        return [each for each in self._list_all() if _is_kept(each.name, begins, floor)]

    def retired_files(self) -> list[FileName]:
        """What :meth:`list_files` leaves out of the files that are still there, the last one first."""
        known = self._read_begins()
        return sorted((each.name for each in self._list_all() if not _is_kept(each.name, *known)), reverse=True)

    def _list_all(self) -> list[StoredFile]:
        found = [
            StoredFile(name, each.bytes, each.modified)
            for level in LEVELS
            for each in self._target.list_nested(f"{self.id.folder}/log{level}")
            if (name := parse_file_name(each.key.rpartition("/")[2], level)) is not None
        ]
        return sorted(found)

    def read_file(self, name: FileName) -> ArchiveFile:
        """The whole file, proved. :class:`FileDamaged`, also when it is missing."""
        try:
            data = self._target.read(self._file_key(name), FILE_BYTES_MAX)
        except ObjectMissing:
            raise FileDamaged(f"{name} is not in {self.location}") from None
        return decode_file(name, data, self.id.cluster)

    def read_header(self, name: FileName) -> FileHeader:
        """The header alone. Raises what :func:`~txlog.archive.format.decode_header` and the target raise."""
        data = self._target.read(self._file_key(name), _HEADER_BYTES)
        length = header_length(data)
        if length > len(data) > _HEADER_BYTES:
            data = self._target.read(self._file_key(name), length)
        return decode_header(name, data, self.id.cluster)

    def create_file(self, name: FileName, data: bytes) -> bool:
        """False when an object of this name exists."""
        return self._target.create(self._file_key(name), data)

    def delete_files(self, names: Sequence[FileName]) -> None:
        """In this order. A missing one is no error."""
        self._target.delete([self._file_key(name) for name in names])

    def record_begins(self, floor: int, begins: Sequence[Node]) -> None:
        """From now on paths begin at these places, and no other file that begins at or below ``floor`` counts. The
        record with the highest floor counts, and of several the one with fewer places: branches only come to an end."""
        fields = {"floor": floor, "begins": [_node_to_json(each) for each in begins]}
        self._record("begin", fields, _begins_name(floor, begins))

    def record_skips(self, floor: int, begins: Sequence[Node], skips: Sequence[Sequence[Skip]]) -> None:
        """What is in effect at each of these places. Written before :meth:`record_begins` of the same places."""
        rows = {str(node): [list(row) for row in each] for node, each in zip(begins, skips, strict=True)}
        self._record("skips", {"skips": rows}, _begins_name(floor, begins))

    def read_skips(self, starts: StreamStarts) -> dict[Node, tuple[Skip, ...]]:
        """By place what is in effect where the paths begin, as far as it was recorded. :class:`FileDamaged`."""
        if not starts.floor:
            return {}
        key = self._record_key("skips", _begins_name(starts.floor, starts.begins))
        try:
            fields = decode_checked(self._target.read(key, FILE_BYTES_MAX))
        except ObjectMissing:
            return {}  # an earlier version deleted the files
        try:
            rows = msgspec.convert(fields, _SkipsRecord).skips
        except DECODE_ERRORS as error:
            raise FileDamaged(f"{self._target.location}/{key} is not what was written: {error}") from None
        return {node: tuple(rows.get(str(node), ())) for node in starts.begins}

    def _read_begins(self) -> tuple[list[Node], int]:
        records = [each for each in self.read_records("begin") if isinstance(each.get("floor"), int)]
        newest = max(records, key=lambda each: (each["floor"], -len(each["begins"])), default=None)
        if newest is None:
            return [], 0
        nodes = [_node_from_json(each) for each in newest["begins"]]
        return [node for node in nodes if node is not None], newest["floor"]

    def announce(self, kind: str, name: str) -> str:
        """Writes that a restore reads the stream (``lease``), or that files are deleted (``retiring``). The key, for
        :meth:`withdraw`."""
        key = f"{self.id.folder}/{kind}/{name}.json"
        self._target.write(key, encode_checked({"at": round(time.time(), 3)}))
        return key

    def withdraw(self, key: str) -> None:
        """Deletes what :meth:`announce` wrote."""
        self._target.delete([key])

    def is_announced(self, kind: str, beside: str, ttl_s: float) -> bool:
        """Whether there is an announcement of this kind that was at most ``ttl_s`` old, by the target's clock, when
        the one with the key ``beside`` was written."""
        folder = beside.rpartition("/")[0]
        now = max((each.modified for each in self._target.list_nested(folder) if each.key == beside), default=0.0)
        return any(now - each.modified <= ttl_s for each in self._target.list_nested(f"{self.id.folder}/{kind}"))

    def record_gap(self, after: Node, begin: Node, master: str) -> None:
        """The log goes on after ``begin``, on ``master``; what follows ``after`` was trimmed before it was archived."""
        self._record("gap", {"after": _node_to_json(after), "begin": _node_to_json(begin), "master": master}, begin)

    def read_gaps(self) -> list[Node]:
        """The places after which the stream begins again."""
        found = (_node_from_json(fields.get("begin")) for fields in self.read_records("gap"))
        return sorted({node for node in found if node is not None})

    def record_lost(self, head: Node, common: Node, settled: int, master: str) -> None:
        """The archive has entries up to ``head``, of which those up to ``settled`` were final, and the log of
        ``master`` has only those up to ``common``."""
        fields = {"head": _node_to_json(head), "common": _node_to_json(common), "settled": settled, "master": master}
        self._record("lost", fields, head)

    def read_losses(self) -> list[dict[str, Any]]:
        """The fields of :meth:`record_lost`, for people."""
        return list(self.read_records("lost"))

    def record_rehearsal(self, at: float, fields: dict[str, Any]) -> None:
        """The result of a rehearsed recovery that began ``at``, in seconds since 1970."""
        key = f"{self.id.folder}/rehearsal/{int(at * 1000):013d}-{secrets.token_hex(4)}.json"
        self._target.create(key, encode_checked(fields))

    def record_rescue(self, at: float, successor: str, moved: Sequence[tuple[str, str]]) -> None:
        """Which transactions were given again to the cluster ``successor``: their ids here and there. ``at``: seconds
        since 1970."""
        for first in range(0, len(moved), _RESCUED_IN_RECORD):
            rows = [list(each) for each in moved[first : first + _RESCUED_IN_RECORD]]
            key = f"{self.id.folder}/rescued/{int(at * 1000):013d}-{secrets.token_hex(4)}.json"
            self._target.create(key, encode_checked({"successor": successor, "transactions": rows, "at": at}))

    def _file_key(self, name: FileName) -> str:
        return f"{self.id.folder}/log{name.level}/{name}"

    def _record(self, kind: str, fields: dict[str, Any], node: Node) -> None:
        self._target.create(self._record_key(kind, node), encode_checked({**fields, "at": round(time.time(), 3)}))

    def _record_key(self, kind: str, node: Node) -> str:
        return f"{self.id.folder}/{kind}/{node.index:016x}-{node.hash.hex()}.json"

    def read_records(self, kind: str) -> Iterator[dict[str, Any]]:
        """The fields of the records of this kind, such as ``rehearsal``, the oldest first; damaged ones are passed
        over."""
        keys = sorted(each.key for each in self._target.list_nested(f"{self.id.folder}/{kind}"))
        for key in keys:
            fields = decode_checked(self._target.read(key, _RECORD_BYTES_MAX)) if key.endswith(".json") else None
            if fields is not None:
                yield fields


def _begins_name(floor: int, begins: Sequence[Node]) -> Node:
    return Node(floor, short_hash(b"".join(each.hash for each in begins)))


def _is_kept(name: FileName, begins: Sequence[Node], floor: int) -> bool:
    """A file that begins below the floor counts only where a path begins."""
    return name.first > floor or (name.last > floor and name.start in begins)


def find_streams(target: BackupTarget, data_center: str | None = None, cluster: str | None = None) -> list[Stream]:
    """The streams on a target, by default of every data centre and cluster. ``cluster``: its id in hexadecimal
    digits."""
    found: set[StreamId] = set()
    for each in target.list_nested(ROOT):
        parts = each.key.split("/")
        if len(parts) < 4:
            continue
        try:
            identity = StreamId(bytes.fromhex(parts[1]), parts[2])
        except ValueError:
            continue
        if len(identity.cluster) == CLUSTER_ID_BYTES:
            found.add(identity)
    return [
        Stream(target, each)
        for each in sorted(found)
        if data_center in (None, each.data_center) and cluster in (None, each.cluster.hex())
    ]


def _node_to_json(node: Node) -> dict[str, Any]:
    return {"index": node.index, "hash": node.hash.hex()}


def _node_from_json(value: Any) -> Node | None:
    try:
        node = Node(int(value["index"]), bytes.fromhex(value["hash"]))
    except (KeyError, TypeError, ValueError):
        return None
    return node if len(node.hash) == HASH_BYTES and node.index >= 0 else None
