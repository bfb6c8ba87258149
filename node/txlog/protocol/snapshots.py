"""A master without a view that is below what the others keep of the log: it takes over the foot of theirs (rule 17).

The foot comes in pieces from one master, in order; it counts when all of it is there and its digest is right. Whether
it is the foot of the cluster's log shows when the view comes that this master is taken in by: its base must have the
hash that follows from there. Until then nothing of it is used but to know what to fetch.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from txlog.model.decoding import MALFORMED
from txlog.model.errors import PeerFault
from txlog.model.records import Recovered
from txlog.protocol.events import Now, Settings
from txlog.protocol.feet import decode_foot
from txlog.protocol.trimming import Trimming
from txlog.wire.messages import FetchSnapshot, LogTruncatedBelow, SnapshotChunk

PIECE_BYTES: Final = 1 << 20
"""Of a foot in one message."""


class Arriving:
    """A snapshot of which a part is here."""

    def __init__(self, peer: str, index: int, now_ms: int) -> None:
        self.peer = peer
        self.index = index
        self.data = bytearray()
        self.asked_ms = now_ms


class Snapshots(Trimming):
    """``arriving`` is there while one is fetched."""

    def __init__(self, settings: Settings, recovered: Recovered, now: Now) -> None:
        super().__init__(settings, recovered, now)
        self.arriving: Arriving | None = None

    @property
    def _is_below_all(self) -> bool:
        """A master in a view is never below the others' foot: they keep what it lacks (rule 19)."""
        return self.agreement is not None and self.views.accepted is None

    def _on_below(self, peer: str, below: LogTruncatedBelow) -> None:
        agreement = self.agreement
        if agreement is None or not self._is_below_all or below.index <= agreement.history.length:
            return
        now_ms = self.around.now_ms
        if self.arriving is not None and now_ms - self.arriving.asked_ms <= self.settings.round_timeout_ms:
            return
        self.arriving = Arriving(peer, 0, now_ms)
        self._say([(peer, FetchSnapshot(0, 0))])

    def _on_snapshot(self, peer: str, piece: SnapshotChunk) -> None:
        """The next piece; what does not fit is asked for again, from the beginning."""
        arriving, agreement = self.arriving, self.agreement
        if arriving is None or agreement is None or arriving.peer != peer or not self._is_below_all:
            return
        fits = arriving.index in (0, piece.index) and piece.offset == len(arriving.data) and bool(piece.data)
        if not fits:
            self.arriving = None
            return
        arriving.index, arriving.asked_ms = piece.index, self.around.now_ms
        arriving.data += piece.data
        if len(arriving.data) < piece.total:
            self._say([(peer, FetchSnapshot(piece.index, len(arriving.data)))])
            return
        self.arriving = None
        data = bytes(arriving.data)
        if blake2b(data, digest_size=16).digest() != piece.digest:
            raise PeerFault(peer, "Malformed", f"its snapshot at {piece.index} has another hash than it says")
        try:
            foot = decode_foot(data)
        except MALFORMED as wrong:
            raise PeerFault(peer, "Malformed", f"its snapshot at {piece.index}: {wrong}") from None
        if foot.index > agreement.history.length:
            agreement.take_over(foot)
            self._stirred = True
