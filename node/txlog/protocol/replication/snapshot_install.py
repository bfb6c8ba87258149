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
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.log.key_table import part_error
from txlog.protocol.log.log_start import decode_log_start
from txlog.protocol.log.log_state import LogState
from txlog.protocol.outbox import Outbox
from txlog.wire.message_checks import log_start_error
from txlog.wire.messages import FetchSnapshot, LogTruncatedBelow, SnapshotChunk
from txlog.wire.protocol_level import PROTOCOL_LEVEL

SNAPSHOT_CHUNK_BYTES: Final = 1 << 20
"""Bytes of a log start in one message."""


class IncomingSnapshot:
    """A snapshot that has arrived in part. ``whole``: its index, bytes and digest, the same in every chunk; None before
    the first. ``asked_ms``: when this master last asked, or last received a chunk."""

    def __init__(self, peer: str, now_ms: int) -> None:
        self.peer = peer
        self.whole: tuple[int, int, bytes] | None = None
        self.data = bytearray()
        self.asked_ms = now_ms


class SnapshotInstaller:
    """Fetches a snapshot for a learner. A master in a view is never below the others' log start: they keep what it
    lacks (rule 19). ``incoming`` is set while a snapshot is fetched."""

    def __init__(self, local: LocalMaster, outbox: Outbox) -> None:
        self._local = local
        self._outbox = outbox
        self.incoming: IncomingSnapshot | None = None

    def on_log_truncated(self, peer: str, below: LogTruncatedBelow, log: LogState, now_ms: int) -> None:
        """The peer's log starts at this position: request a snapshot if this log ends before it."""
        if below.index <= log.log_index.length:
            return
        if self.incoming is not None and now_ms - self.incoming.asked_ms <= self._local.settings.round_timeout_ms:
            return
        self.incoming = IncomingSnapshot(peer, now_ms)
        self._outbox.send(peer, FetchSnapshot(0, 0, PROTOCOL_LEVEL))

    def on_chunk(self, peer: str, piece: SnapshotChunk, log: LogState, now_ms: int) -> bool:
        """Add the next chunk; True when the snapshot is complete and installed. After a chunk that does not fit, the
        snapshot is requested from the beginning again."""
        arriving = self.incoming
        if arriving is None or arriving.peer != peer:
            return False
        whole = (piece.index, piece.total, piece.digest)
        fits = (
            arriving.whole in (None, whole)
            and piece.offset == len(arriving.data)
            and 0 < len(piece.data) <= piece.total - piece.offset
        )
        if not fits:
            self.incoming = None
            return False
        arriving.whole, arriving.asked_ms = whole, now_ms
        arriving.data += piece.data
        if len(arriving.data) < piece.total:
            self._outbox.send(peer, FetchSnapshot(piece.index, len(arriving.data), PROTOCOL_LEVEL))
            return False
        self.incoming = None
        data = bytes(arriving.data)
        if blake2b(data, digest_size=16).digest() != piece.digest:
            raise PeerFault(peer, "Malformed", f"its snapshot at {piece.index} has another hash than it says")
        try:
            start = decode_log_start(data)
        except DECODE_ERRORS as wrong:
            raise PeerFault(peer, "Malformed", f"its snapshot at {piece.index}: {wrong}") from None
        error = log_start_error(start, piece.index) or next(filter(None, map(part_error, start.key_table)), "")
        if error:
            raise PeerFault(peer, "Malformed", f"its snapshot at {piece.index}: {error}")
        if start.index <= log.log_index.length:
            return False
        self._local.clock.check_stamp(peer, start.stamp, log.last_stamp)
        log.install_snapshot(start)
        return True
