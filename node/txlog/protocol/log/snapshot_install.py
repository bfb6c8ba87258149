"""A master without a view that is below what the others keep of the log: it takes over the foot of theirs (rule 17).

The foot comes in pieces from one master, in order; it counts when all of it is there and its digest is right. Whether
it is the foot of the cluster's log shows when the view comes that this master is taken in by: its base must have the
hash that follows from there. Until then nothing of it is used but to know what to fetch.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import PeerFault
from txlog.model.records import RecoveredState
from txlog.protocol.events import ClockReading, ProtocolSettings
from txlog.protocol.log.log_start import decode_log_start
from txlog.protocol.log.log_trimming import LogTrimmer
from txlog.wire.messages import FetchSnapshot, LogTruncatedBelow, SnapshotChunk

SNAPSHOT_CHUNK_BYTES: Final = 1 << 20
"""Of a foot in one message."""


class IncomingSnapshot:
    """A snapshot of which a part is here."""

    def __init__(self, peer: str, index: int, now_ms: int) -> None:
        self.peer = peer
        self.index = index
        self.data = bytearray()
        self.asked_ms = now_ms


class SnapshotInstaller(LogTrimmer):
    """``incoming_snapshot`` is there while one is fetched."""

    def __init__(self, settings: ProtocolSettings, recovered: RecoveredState, now: ClockReading) -> None:
        super().__init__(settings, recovered, now)
        self.incoming_snapshot: IncomingSnapshot | None = None

    @property
    def _needs_snapshot(self) -> bool:
        """A master in a view is never below the others' foot: they keep what it lacks (rule 19)."""
        return self.log_state is not None and self.views.accepted is None

    def _on_log_truncated(self, peer: str, below: LogTruncatedBelow) -> None:
        agreement = self.log_state
        if agreement is None or not self._needs_snapshot or below.index <= agreement.log_index.length:
            return
        now_ms = self.failure_detector.now_ms
        if (
            self.incoming_snapshot is not None
            and now_ms - self.incoming_snapshot.asked_ms <= self.settings.round_timeout_ms
        ):
            return
        self.incoming_snapshot = IncomingSnapshot(peer, 0, now_ms)
        self._send([(peer, FetchSnapshot(0, 0))])

    def _on_snapshot(self, peer: str, piece: SnapshotChunk) -> None:
        """The next piece; what does not fit is asked for again, from the beginning."""
        arriving, agreement = self.incoming_snapshot, self.log_state
        if arriving is None or agreement is None or arriving.peer != peer or not self._needs_snapshot:
            return
        fits = arriving.index in (0, piece.index) and piece.offset == len(arriving.data) and bool(piece.data)
        if not fits:
            self.incoming_snapshot = None
            return
        arriving.index, arriving.asked_ms = piece.index, self.failure_detector.now_ms
        arriving.data += piece.data
        if len(arriving.data) < piece.total:
            self._send([(peer, FetchSnapshot(piece.index, len(arriving.data)))])
            return
        self.incoming_snapshot = None
        data = bytes(arriving.data)
        if blake2b(data, digest_size=16).digest() != piece.digest:
            raise PeerFault(peer, "Malformed", f"its snapshot at {piece.index} has another hash than it says")
        try:
            foot = decode_log_start(data)
        except DECODE_ERRORS as wrong:
            raise PeerFault(peer, "Malformed", f"its snapshot at {piece.index}: {wrong}") from None
        if foot.index > agreement.log_index.length:
            agreement.install_snapshot(foot)
            self._needs_view_check = True
