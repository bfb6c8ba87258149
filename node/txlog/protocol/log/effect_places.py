"""Where synchronous transactions take effect: per origin two columns, 16 bytes a transaction.

A log may have millions of them behind its start, so none of them is an object here."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from txlog.model.ids import Origin, Txid


class _OriginPlaces:
    """The seqs of one origin in their order, and the index of each."""

    __slots__ = ("indexes", "seqs")

    def __init__(self) -> None:
        self.seqs: array[int] = array("Q")
        self.indexes: array[int] = array("Q")

    def keep(self, low: int, high: int) -> None:
        """Forget what takes effect outside of ``low`` to ``high``."""
        kept = [(seq, at) for seq, at in zip(self.seqs, self.indexes, strict=True) if low <= at <= high]
        self.seqs = array("Q", [seq for seq, _ in kept])
        self.indexes = array("Q", [at for _, at in kept])


class EffectPlaces:
    """Transaction to index. Transactions of one origin mostly take effect in their order, so that one is mostly added
    at the end."""

    def __init__(self) -> None:
        self._by_origin: dict[Origin, _OriginPlaces] = {}
        self._last = 0

    def __bool__(self) -> bool:
        return any(places.seqs for places in self._by_origin.values())

    def get(self, txid: Txid) -> int:
        """The index; 0 for a transaction without one."""
        places = self._by_origin.get(txid.origin)
        if places is None:
            return 0
        seq, seqs = txid.seq, places.seqs
        at = bisect_left(seqs, seq)
        return places.indexes[at] if at < len(seqs) and seqs[at] == seq else 0

    def set(self, txid: Txid, index: int) -> None:
        """The transaction takes effect there, and nowhere else."""
        self._last = max(self._last, index)
        places = self._by_origin.get(txid.origin)
        if places is None:
            places = self._by_origin[txid.origin] = _OriginPlaces()
        seq, seqs = txid.seq, places.seqs
        at = len(seqs) if not seqs or seqs[-1] < seq else bisect_left(seqs, seq)
        if at < len(seqs) and seqs[at] == seq:
            places.indexes[at] = index
        else:
            seqs.insert(at, seq)
            places.indexes.insert(at, index)

    def items(self) -> Iterator[tuple[Txid, int]]:
        """All of them."""
        for origin, places in self._by_origin.items():
            for seq, index in zip(places.seqs, places.indexes, strict=True):
                yield Txid(origin, seq), index

    def truncate(self, cut: int) -> None:
        """The entries after ``cut`` have left the log."""
        if cut < self._last:
            self._last = cut
            for places in self._by_origin.values():
                places.keep(0, cut)

    def trim(self, index: int) -> None:
        """The log begins after ``index``."""
        for places in self._by_origin.values():
            places.keep(index + 1, self._last)
