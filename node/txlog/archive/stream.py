"""A stream: the archive of one cluster by one data centre, on a target.

::

    _archive/<cluster>/<data centre>/stream.json     whose it is, and where it starts; created once
    _archive/<cluster>/<data centre>/log0/….txl      the files (:mod:`txlog.archive.file_name`)
    _archive/<cluster>/<data centre>/gap/….json      where the log goes on after a part that was trimmed too early
    _archive/<cluster>/<data centre>/lost/….json     where the masters lost entries that were final
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from txlog.archive.archive_errors import FileDamaged, NoConditionalPut, StreamTaken
from txlog.archive.file_name import FileName, Node, parse_file_name
from txlog.archive.format import FILE_BYTES_MAX, ArchiveFile, FileHeader, decode_file, decode_header
from txlog.backup.backup_errors import ObjectMissing, UnknownFormat
from txlog.backup.backup_writer import VERSION
from txlog.backup.checked_json import decode_checked, encode_checked
from txlog.backup.target import BackupTarget
from txlog.model.hashes import CLUSTER_ID_BYTES, HASH_BYTES

ROOT: Final = "_archive"
"""No backup has a name like this, so no listing of backups finds the archive."""
STREAM_FORMAT: Final = 1
_RECORD_BYTES_MAX: Final = 1 << 16
_HEADER_BYTES: Final = 1 << 18
"""Enough for the header of a file of a cluster with thousands of views."""


class StoredFile(NamedTuple):
    """``modified``: seconds since 1970, by the target's clock."""

    name: FileName
    bytes: int
    modified: float


class StreamId(NamedTuple):
    """``cluster``: 16 bytes."""

    cluster: bytes
    data_center: str

    @property
    def folder(self) -> str:
        """Where the stream is on its target."""
        return f"{ROOT}/{self.cluster.hex()}/{self.data_center}"


class Stream:
    """One stream on a target. Nothing is ever overwritten or deleted. Every call raises the errors of the target."""

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

    def list_files(self) -> list[StoredFile]:
        """Every file of the stream, by name; other objects are passed over."""
        folder = f"{self.id.folder}/log0"
        found = [
            StoredFile(name, each.bytes, each.modified)
            for each in self._target.list_nested(folder)
            if (name := parse_file_name(each.key.rpartition("/")[2])) is not None
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
        """The header alone."""
        return decode_header(name, self._target.read(self._file_key(name), _HEADER_BYTES), self.id.cluster)

    def create_file(self, name: FileName, data: bytes) -> bool:
        """False when an object of this name exists."""
        return self._target.create(self._file_key(name), data)

    def record_gap(self, after: Node, begin: Node, master: str) -> None:
        """The log goes on after ``begin``, on ``master``; what follows ``after`` was trimmed before it was archived."""
        self._record("gap", {"after": _node_to_json(after), "begin": _node_to_json(begin), "master": master}, begin)

    def read_gaps(self) -> list[Node]:
        """The places after which the stream begins again."""
        found = (_node_from_json(fields.get("begin")) for fields in self._read_records("gap"))
        return sorted({node for node in found if node is not None})

    def record_lost(self, head: Node, common: Node, settled: int, master: str) -> None:
        """The archive has entries up to ``head``, of which those up to ``settled`` were final, and the log of
        ``master`` has only those up to ``common``."""
        fields = {"head": _node_to_json(head), "common": _node_to_json(common), "settled": settled, "master": master}
        self._record("lost", fields, head)

    def read_losses(self) -> list[dict[str, Any]]:
        """The fields of :meth:`record_lost`, for people."""
        return list(self._read_records("lost"))

    def _file_key(self, name: FileName) -> str:
        return f"{self.id.folder}/log0/{name}"

    def _record(self, kind: str, fields: dict[str, Any], node: Node) -> None:
        key = f"{self.id.folder}/{kind}/{node.index:016x}-{node.hash.hex()}.json"
        self._target.create(key, encode_checked({**fields, "at": round(time.time(), 3)}))

    def _read_records(self, kind: str) -> Iterator[dict[str, Any]]:
        keys = sorted(each.key for each in self._target.list_nested(f"{self.id.folder}/{kind}"))
        for key in keys:
            fields = decode_checked(self._target.read(key, _RECORD_BYTES_MAX)) if key.endswith(".json") else None
            if fields is not None:
                yield fields


def find_streams(target: BackupTarget, keep: Callable[[StreamId], bool] = lambda _: True) -> list[Stream]:
    """The streams on a target, of every cluster."""
    found: set[StreamId] = set()
    for each in target.list_nested(ROOT):
        parts = each.key.split("/")
        if len(parts) < 4:
            continue
        try:
            cluster = bytes.fromhex(parts[1])
        except ValueError:
            continue
        if len(cluster) == CLUSTER_ID_BYTES:
            found.add(StreamId(cluster, parts[2]))
    return [Stream(target, each) for each in sorted(found) if keep(each)]


def _node_to_json(node: Node) -> dict[str, Any]:
    return {"index": node.index, "hash": node.hash.hex()}


def _node_from_json(value: Any) -> Node | None:
    try:
        node = Node(int(value["index"]), bytes.fromhex(value["hash"]))
    except (KeyError, TypeError, ValueError):
        return None
    return node if len(node.hash) == HASH_BYTES and node.index >= 0 else None
