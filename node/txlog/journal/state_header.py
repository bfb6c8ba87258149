"""The state that no damaged record may destroy: promises, the log's end, and what is held (see the package's
format)."""

from __future__ import annotations

from struct import Struct

from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES, NO_HASH
from txlog.model.ids import Origin
from txlog.model.records import NO_OVERRIDES, LogStart, OperatorOverrides
from txlog.model.view import NO_VIEW, Number, View

_FIXED = Struct("<QQQQ16sQQQQQ")
_NUMBER = Struct("<QQ")
_U64 = Struct("<Q")
_HELD = Struct("<QQ")
_COUNT = Struct("<H")
_ORDERS = Struct("<BBB")


class StateHeader:
    """The state between two records (called *vitals* in the format). The entries of ``held`` are kept as bytes, so that
    encoding a change costs the same for a journal of one origin and of hundreds.

    ``held``: the last seq held of each origin (contiguous from 1), the journal's own origin first. ``changes``: the
    number of accepted views that have changed the log, the stable index or stamps, and of trims.
    """

    def __init__(self, own: Origin) -> None:
        self.start = self.ceiling = self.stable = self.log_end = 0
        self.changes = 0
        self.log_hash = NO_HASH
        self.accepted: Number = NO_VIEW
        self.installed: Number = NO_VIEW
        self.promised: Number = NO_VIEW
        self.left: Number = NO_VIEW
        self.overrides = NO_OVERRIDES
        self.held: dict[Origin, int] = {}
        self._held_entries = bytearray()
        self._offsets: dict[Origin, int] = {}
        self._encoded: bytes | None = None
        self.set_held(own, 0)

    @property
    def own(self) -> Origin:
        """The journal's own origin."""
        return next(iter(self.held))

    # -- changes

    def set_held(self, origin: Origin, last_seq: int) -> None:
        """Set the last seq held of an origin."""
        self.held[origin] = last_seq
        offset = self._offsets.get(origin)
        if offset is None:
            self._held_entries += _encode_text(origin.node) + _U64.pack(origin.birth)
            self._offsets[origin] = len(self._held_entries)
            self._held_entries += _U64.pack(last_seq)
        else:
            _U64.pack_into(self._held_entries, offset, last_seq)
        self._encoded = None

    def set_log(self, log_end: int, log_hash: bytes, stable: int) -> None:
        """Set the end of the log, its chain hash and the stable index."""
        self.log_end, self.log_hash, self.stable = log_end, log_hash, stable
        self._encoded = None

    def set_start(self, start: int) -> None:
        """Raise the number of the latest start; a lower value changes nothing."""
        self.start = max(start, self.start)
        self._encoded = None

    def set_stable(self, index: int) -> None:
        """Set the stable index."""
        self.stable = index
        self._encoded = None

    def set_ceiling(self, stamp: int) -> None:
        """Raise the ceiling of stamps; a lower value changes nothing."""
        self.ceiling = max(stamp, self.ceiling)
        self._encoded = None

    def set_accepted(self, view: View) -> None:
        """Set the accepted view and nothing else; call :meth:`set_change`, too, if the view changes more."""
        self.accepted, self.promised = view.number, max(view.number, self.promised)
        self.overrides = self.overrides.remaining_after(view, False)
        self._encoded = None

    def set_change(self, view: View, cut: int, hashes: bytes) -> None:
        """Count one more accepted view that truncates the log and continues it with these entries, or gives new
        stamps."""
        if cut != self.log_end or hashes:
            self.log_end = cut + len(hashes) // HASH_BYTES
            self.log_hash = hashes[-HASH_BYTES:] or (view.base_hash if cut else NO_HASH)
        self.stable = min(self.stable, cut)
        self.changes += 1
        self._encoded = None

    def set_log_start(self, log_start: LogStart) -> None:
        """Record a trim of the log. It counts as a change, since only this journal records it. A log start above the
        log's end comes from another master (a snapshot)."""
        self.changes += 1
        for node, birth, seq in log_start.seqs:
            if seq > self.held.get(Origin(node, birth), 0):
                self.set_held(Origin(node, birth), seq)
        if log_start.index > self.log_end:
            self.log_end, self.log_hash, self.stable = log_start.index, log_start.hash, log_start.index
        self._encoded = None

    def set_installed(self, number: Number, base_index: int) -> None:
        """Record the installation of a view: its base is stable, and an override to bootstrap has taken effect."""
        self.installed, self.stable = number, base_index
        self.overrides = OperatorOverrides([], self.overrides.excluded_members)
        self._encoded = None

    def set_promised(self, number: Number) -> None:
        """Raise the promised view number; a lower value changes nothing."""
        self.promised = max(number, self.promised)
        self._encoded = None

    def set_left(self, number: Number) -> None:
        """Set the number of the view that this master has left."""
        self.left = number
        self._encoded = None

    def set_overrides(self, orders: OperatorOverrides) -> None:
        """Set the operator's overrides."""
        self.overrides = orders
        self._encoded = None

    # -- bytes

    @property
    def encoded(self) -> bytes:
        """The bytes of this state as the package's format specifies them."""
        if self._encoded is None:
            parts = bytearray(
                _FIXED.pack(
                    self.start,
                    self.ceiling,
                    self.stable,
                    self.log_end,
                    self.log_hash,
                    self.changes,
                    *self.accepted[:2],
                    *self.installed[:2],
                )
            )
            parts += _encode_text(self.accepted[2]) + _encode_text(self.installed[2])
            parts += _encode_optional(self.accepted, self.promised) + _encode_optional(NO_VIEW, self.left)
            parts += _COUNT.pack(len(self.held)) + self._held_entries
            parts += _encode_overrides(self.overrides)
            parts += bytes(-len(parts) % 8)
            self._encoded = bytes(parts)
        return self._encoded

    @classmethod
    def parse(cls, data: bytes) -> StateHeader:
        """The inverse of :attr:`encoded`; the bytes have passed their checksum."""
        start, ceiling, stable, log_end, log_hash, changes, ae, ab, ie, ib = _FIXED.unpack_from(data)
        accepted, at = _decode_text(data, _FIXED.size)
        installed, at = _decode_text(data, at)
        promised, at = _decode_optional_number(data, at, (ae, ab, accepted))
        left, at = _decode_optional_number(data, at, NO_VIEW)
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        entries = at
        held: dict[Origin, int] = {}
        offsets: dict[Origin, int] = {}
        for _ in range(count):
            node, at = _decode_text(data, at)
            birth, last = _HELD.unpack_from(data, at)
            origin = Origin(node, birth)
            held[origin], offsets[origin] = last, at + _U64.size - entries
            at += _HELD.size
        vitals = cls(next(iter(held)))
        vitals.start, vitals.ceiling, vitals.stable = start, ceiling, stable
        vitals.log_end, vitals.log_hash, vitals.changes = log_end, log_hash, changes
        vitals.accepted, vitals.installed = (ae, ab, accepted), (ie, ib, installed)
        vitals.promised, vitals.left = promised, left
        vitals.held, vitals._offsets, vitals._held_entries = held, offsets, bytearray(data[entries:at])
        vitals.overrides = _decode_overrides(data, at)
        return vitals

    def copy(self) -> StateHeader:
        """An independent copy."""
        made = StateHeader(self.own)
        made.start, made.ceiling, made.stable = self.start, self.ceiling, self.stable
        made.log_end, made.log_hash, made.changes = self.log_end, self.log_hash, self.changes
        made.accepted, made.installed = self.accepted, self.installed
        made.promised, made.left = self.promised, self.left
        made.overrides = self.overrides
        made.held, made._offsets = dict(self.held), dict(self._offsets)
        made._held_entries = bytearray(self._held_entries)
        return made


def missing_spans(before: StateHeader, after: StateHeader) -> list[Span]:
    """The transactions persisted between two states."""
    spans = []
    for origin, last in after.held.items():
        first = before.held.get(origin, 0) + 1
        if last >= first:
            spans.append(Span(origin.node, origin.birth, first, last - first + 1))
    return spans


def _encode_overrides(orders: OperatorOverrides) -> bytes:
    """Mostly there are none: then nothing is written, so the bytes equal those of a journal without this field."""
    if orders == NO_OVERRIDES:
        return b""
    parts = bytearray(_ORDERS.pack(1, len(orders.bootstrap_members), len(orders.excluded_members)))
    for node in orders.bootstrap_members:
        parts += _encode_text(node)
    for node, birth, start in orders.excluded_members:
        parts += _encode_text(node) + _NUMBER.pack(birth, start)
    return bytes(parts)


def _decode_overrides(data: bytes, at: int) -> OperatorOverrides:
    if at >= len(data) or not data[at]:
        return NO_OVERRIDES
    _, begin_count, without_count = _ORDERS.unpack_from(data, at)
    at += _ORDERS.size
    begin: list[str] = []
    without: list[tuple[str, int, int]] = []
    for _ in range(begin_count):
        node, at = _decode_text(data, at)
        begin.append(node)
    for _ in range(without_count):
        node, at = _decode_text(data, at)
        birth, start = _NUMBER.unpack_from(data, at)
        without.append((node, birth, start))
        at += _NUMBER.size
    return OperatorOverrides(begin, without)


def _encode_text(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def _encode_optional(usual: Number, number: Number) -> bytes:
    """A number that mostly equals ``usual``."""
    return b"\0" if number == usual else b"\1" + _NUMBER.pack(*number[:2]) + _encode_text(number[2])


def _decode_optional_number(data: bytes, at: int, usual: Number) -> tuple[Number, int]:
    if not data[at]:
        return usual, at + 1
    epoch, ballot = _NUMBER.unpack_from(data, at + 1)
    coordinator, at = _decode_text(data, at + 1 + _NUMBER.size)
    return (epoch, ballot, coordinator), at


def _decode_text(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end


assert HASH_BYTES == 16
