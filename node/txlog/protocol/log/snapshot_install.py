"""A master without a view whose log ends below the others' log start installs their log start as a snapshot (rule 17).

The snapshot comes in chunks from one master, in order. It counts when it is complete and its digest is right. The view
that adds this master proves that it is of the cluster's log: the base must have the hash that follows from there. Until
then it is used only to know what to fetch.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import PeerFault
from txlog.model.records import RecoveredState
from txlog.protocol.events import ClockReading, ProtocolSettings
from txlog.protocol.log.log_start import decode_log_start
from txlog.protocol.log.log_trim import LogTrimmer
from txlog.wire.messages import FetchSnapshot, LogTruncatedBelow, SnapshotChunk

SNAPSHOT_CHUNK_BYTES: Final = 1 << 20
"""Bytes of a log start in one message."""


class IncomingSnapshot:
    """A snapshot that has arrived in part. ``asked_ms``: when this master last asked, or last received a chunk."""

    def __init__(self, peer: str, index: int, now_ms: int) -> None:
        self.peer = peer
        self.index = index
        self.data = bytearray()
        self.asked_ms = now_ms


class SnapshotInstaller(LogTrimmer):
    """Fetches a snapshot when this master needs one. ``incoming_snapshot`` is set while one is fetched."""

    def __init__(self, settings: ProtocolSettings, recovered: RecoveredState, now: ClockReading) -> None:
        super().__init__(settings, recovered, now)
        self.incoming_snapshot: IncomingSnapshot | None = None

    @property
    def _needs_snapshot(self) -> bool:
        """Whether this master may need a snapshot. A master in a view is never below the others' log start: they keep
        what it lacks (rule 19)."""
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
        """Add the next chunk. After a chunk that does not fit, the snapshot is requested from the beginning again."""
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
