"""What no damaged record may take with it: promises, the log's end, and how much is held (see the package's format)."""

from __future__ import annotations

from struct import Struct

from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES, NO_HASH
from txlog.model.ids import Origin

Number = tuple[int, int, str]
"""Of a view: epoch, ballot, coordinator."""
NO_VIEW: Number = (0, 0, "")

_FIXED = Struct("<QQQQ16sQQQQ")
_U64 = Struct("<Q")
_COUNT = Struct("<H")


class Vitals:
    """The state between two records. Every change keeps :attr:`encoded` right, in place where the size allows it.

    ``held``: the last seq held of each origin (contiguous from 1), the journal's own origin first.
    """

    def __init__(self, own: Origin) -> None:
        self.start = self.ceiling = self.stable = self.log_end = 0
        self.log_hash = NO_HASH
        self.accepted: Number = NO_VIEW
        self.installed: Number = NO_VIEW
        self.held: dict[Origin, int] = {own: 0}
        self._places: dict[Origin, int] = {}
        self._buffer = bytearray()
        self._encoded: bytes | None = None

    @property
    def own(self) -> Origin:
        return next(iter(self.held))

    # -- changes

    def set_held(self, origin: Origin, last_seq: int) -> None:
        known = origin in self.held
        self.held[origin] = last_seq
        place = self._places.get(origin) if known else None
        if place is None:
            self._rebuild()
        else:
            _U64.pack_into(self._buffer, place, last_seq)
            self._encoded = None

    def set_log(self, log_end: int, log_hash: bytes, stable: int) -> None:
        self.log_end, self.log_hash, self.stable = log_end, log_hash, stable
        self._refresh()

    def set_start(self, start: int) -> None:
        self.start = max(start, self.start)
        self._refresh()

    def set_stable(self, index: int) -> None:
        self.stable = index
        self._refresh()

    def set_ceiling(self, stamp: int) -> None:
        self.ceiling = max(stamp, self.ceiling)
        self._refresh()

    def set_accepted(self, number: Number) -> None:
        self.accepted = number
        self._rebuild()

    def set_installed(self, number: Number) -> None:
        self.installed = number
        self._rebuild()

    # -- bytes

    @property
    def encoded(self) -> bytes:
        if self._encoded is None:
            if not self._buffer:
                self._rebuild()
            self._encoded = bytes(self._buffer)
        return self._encoded

    def _refresh(self) -> None:
        if self._buffer:
            self._buffer[: _FIXED.size] = self._fixed()
        self._encoded = None

    def _fixed(self) -> bytes:
        return _FIXED.pack(
            self.start,
            self.ceiling,
            self.stable,
            self.log_end,
            self.log_hash,
            *self.accepted[:2],
            *self.installed[:2],
        )

    def _rebuild(self) -> None:
        parts = bytearray(self._fixed())
        parts += _text(self.accepted[2]) + _text(self.installed[2])
        parts += _COUNT.pack(len(self.held))
        for origin, last in self.held.items():
            parts += _text(origin.node) + _U64.pack(origin.birth)
            self._places[origin] = len(parts)
            parts += _U64.pack(last)
        parts += bytes(-len(parts) % 8)
        self._buffer, self._encoded = parts, None

    @classmethod
    def parse(cls, data: bytes) -> Vitals:
        """The inverse of :attr:`encoded`; the bytes have passed their checksum."""
        start, ceiling, stable, log_end, log_hash, ae, ab, ie, ib = _FIXED.unpack_from(data)
        accepted, at = _take_text(data, _FIXED.size)
        installed, at = _take_text(data, at)
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        held: dict[Origin, int] = {}
        for _ in range(count):
            node, at = _take_text(data, at)
            birth, last = _U64.unpack_from(data, at)[0], _U64.unpack_from(data, at + 8)[0]
            held[Origin(node, birth)] = last
            at += 16
        vitals = cls(next(iter(held)))
        vitals.start, vitals.ceiling, vitals.stable = start, ceiling, stable
        vitals.log_end, vitals.log_hash = log_end, log_hash
        vitals.accepted, vitals.installed = (ae, ab, accepted), (ie, ib, installed)
        vitals.held = held
        return vitals

    def copy(self) -> Vitals:
        return Vitals.parse(self.encoded)


def missing_spans(before: Vitals, after: Vitals) -> list[Span]:
    """What was held between two states."""
    spans = []
    for origin, last in after.held.items():
        first = before.held.get(origin, 0) + 1
        if last >= first:
            spans.append(Span(origin.node, origin.birth, first, last - first + 1))
    return spans


def _text(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def _take_text(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end


assert HASH_BYTES == 16
