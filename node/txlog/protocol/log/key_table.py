"""Uses of idempotency keys in fixed rows: 31 bytes and half a byte for the row's place, whatever a key's length is.

A row is found by a hash of its key. Rows are kept in buckets by the lower bits of that hash, in the order in which they
were added. A bucket never changes: it is replaced. So a copy of the list of buckets is the table at one moment, and its
rows can be written elsewhere piece by piece. The table grows by one bucket at a time (linear hashing): no insertion
waits until everything has moved.

A hash has 112 bits of BLAKE2b. Among a billion keys, two of one hash have a probability of 1 to 10^16.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from txlog.model.hashes import short_hash
from txlog.model.ids import Origin, Txid
from txlog.model.records import KeyTablePart

NAME_BYTES: Final = 14
"""Bytes of a key's hash."""
TAG_BYTES: Final = 2
"""Bytes of the content hash that a row keeps, to tell a retry from another body under the same key."""
_SEQ_AT: Final = NAME_BYTES + 1
_STAMP_AT: Final = _SEQ_AT + 6
_TAG_AT: Final = _STAMP_AT + 8
ROW_BYTES: Final = _TAG_AT + TAG_BYTES
"""Hash, slot of the origin (1), seq (6), stamp (8), tag of the content."""
BUCKET_ROWS: Final = 96
"""Rows of a bucket, on average, at which the table grows."""


class FirstUse(NamedTuple):
    """The transaction that counts for a key. ``stamp``: its first stamp, from which the retention counts. ``content``:
    the beginning of its content hash, which distinguishes a retry from another body under the same key."""

    txid: Txid
    stamp: int
    content: bytes


def key_name(key: str) -> bytes:
    """The hash of a key by which it is found."""
    return short_hash(key.encode())[:NAME_BYTES]


class KeyTable:
    """``count`` rows; several may have one key. ``origins``: slot in a row → origin."""

    def __init__(self) -> None:
        self.count = 0
        self.origins: list[Origin] = []
        self._slots: dict[Origin, int] = {}
        self._buckets: list[bytes] = [b""]
        self._half = 1
        """The greatest power of two up to the number of buckets."""
        self._swept = 0

    def __len__(self) -> int:
        return self.count

    @property
    def buckets(self) -> int:
        """How many there are."""
        return len(self._buckets)

    def _place(self, name: bytes) -> int:
        value = int.from_bytes(name[:4], "little")
        place = value & (2 * self._half - 1)
        return place if place < len(self._buckets) else value & (self._half - 1)

    def find(self, name: bytes) -> list[FirstUse]:
        """All uses of a key, in the order in which they were added."""
        bucket = self._buckets[self._place(name)]
        at = bucket.find(name)
        if at < 0:
            return []
        found: list[FirstUse] = []
        while at >= 0:
            if at % ROW_BYTES == 0:
                found.append(self._use(bucket, at))
                at = bucket.find(name, at + ROW_BYTES)
            else:
                at = bucket.find(name, at + 1)
        return found

    def _use(self, bucket: bytes, at: int) -> FirstUse:
        seq = int.from_bytes(bucket[at + _SEQ_AT : at + _STAMP_AT], "little")
        stamp = int.from_bytes(bucket[at + _STAMP_AT : at + _TAG_AT], "little")
        txid = Txid(self.origins[bucket[at + NAME_BYTES]], seq)
        return FirstUse(txid, stamp, bucket[at + _TAG_AT : at + ROW_BYTES])

    def add(self, name: bytes, use: FirstUse) -> None:
        """Add a use of a key, after all others."""
        slot = self._slots.get(use.txid.origin)
        if slot is None:
            slot = self._slots[use.txid.origin] = len(self.origins)
            self.origins.append(use.txid.origin)
        row = b"".join(
            (
                name,
                bytes((slot,)),
                use.txid.seq.to_bytes(6, "little"),
                use.stamp.to_bytes(8, "little"),
                use.content[:TAG_BYTES].ljust(TAG_BYTES, b"\0"),
            )
        )
        self._buckets[self._place(name)] += row
        self.count += 1
        if self.count > BUCKET_ROWS * len(self._buckets):
            self._split()

    def remove(self, name: bytes, txid: Txid) -> None:
        """Remove the use of a key by this transaction, if it is there."""
        place = self._place(name)
        bucket = self._buckets[place]
        at = bucket.find(name)
        while at >= 0:
            if at % ROW_BYTES == 0 and self._use(bucket, at).txid == txid:
                self._buckets[place] = bucket[:at] + bucket[at + ROW_BYTES :]
                self.count -= 1
                return
            at = bucket.find(name, at + 1)

    def _split(self) -> None:
        """One more bucket: it takes the rows of the next one whose hashes have one more bit."""
        place = len(self._buckets) - self._half
        bucket = self._buckets[place]
        stays: list[bytes] = []
        moves: list[bytes] = []
        for at in range(0, len(bucket), ROW_BYTES):
            row = bucket[at : at + ROW_BYTES]
            (moves if int.from_bytes(row[:4], "little") & self._half else stays).append(row)
        self._buckets[place] = b"".join(stays)
        self._buckets.append(b"".join(moves))
        if len(self._buckets) == 2 * self._half:
            self._half *= 2

    def drop_older(self, stamp: int, buckets_max: int) -> bool:
        """Drop the rows with a stamp below this one from the next ``buckets_max`` buckets. True at the end of the
        table; the next call begins at the first bucket."""
        end = min(self._swept + buckets_max, len(self._buckets))
        for place in range(self._swept, end):
            bucket = self._buckets[place]
            kept = [
                bucket[at : at + ROW_BYTES]
                for at in range(0, len(bucket), ROW_BYTES)
                if int.from_bytes(bucket[at + _STAMP_AT : at + _TAG_AT], "little") >= stamp
            ]
            if len(kept) * ROW_BYTES < len(bucket):
                self.count -= len(bucket) // ROW_BYTES - len(kept)
                self._buckets[place] = b"".join(kept)
        self._swept = end if end < len(self._buckets) else 0
        return not self._swept

    def snapshot(self) -> KeyTableSnapshot:
        """The table as it is now."""
        return KeyTableSnapshot(self.origins.copy(), self._buckets.copy() if self.count else [])

    def load(self, parts: list[KeyTablePart]) -> None:
        """The table of a snapshot, all of its parts in order."""
        self.origins = [Origin(*one) for one in parts[-1].origins] if parts else []
        self._slots = {origin: slot for slot, origin in enumerate(self.origins)}
        self._buckets = []
        for part in parts:
            at = 0
            for length in array("I", part.lengths):
                self._buckets.append(part.rows[at : at + length])
                at += length
        self._buckets = self._buckets or [b""]
        self._half = 1 << (len(self._buckets).bit_length() - 1)
        self._swept = 0
        self.count = sum([len(part.rows) for part in parts]) // ROW_BYTES


class KeyTableSnapshot:
    """A table at one moment, taken out in parts."""

    def __init__(self, origins: list[Origin], buckets: list[bytes]) -> None:
        self._origins = [(origin.node, origin.birth) for origin in origins]
        self._buckets = buckets
        self._next = 0

    @property
    def is_complete(self) -> bool:
        """Whether all parts were taken."""
        return self._next == len(self._buckets)

    def next_part(self, bytes_max: int) -> KeyTablePart:
        """The next buckets: some ``bytes_max`` bytes, at least one bucket."""
        first, size = self._next, 0
        while self._next < len(self._buckets) and size < bytes_max:
            size += len(self._buckets[self._next])
            self._next += 1
        return self.part(first, self._next)

    @property
    def bucket_count(self) -> int:
        """How many buckets there are, whether or not they were taken."""
        return len(self._buckets)

    def part(self, first: int, end: int) -> KeyTablePart:
        """The buckets from ``first`` on, before ``end``: the same at any time."""
        buckets = self._buckets[first:end]
        return KeyTablePart(self._origins, array("I", [len(one) for one in buckets]).tobytes(), b"".join(buckets))


def part_error(part: KeyTablePart) -> str:
    """Why a part that came from another master cannot be one."""
    lengths = array("I")
    if len(part.lengths) % lengths.itemsize:
        return "the lengths of the buckets of its key table"
    lengths.frombytes(part.lengths)
    if sum(lengths) != len(part.rows) or any(length % ROW_BYTES for length in lengths):
        return "the buckets of its key table do not match their rows"
    if part.rows and max(part.rows[NAME_BYTES::ROW_BYTES]) >= len(part.origins):
        return "its key table names an incarnation that is not listed"
    return ""
