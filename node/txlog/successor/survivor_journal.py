"""Reads the journal of a master that survived the loss of its cluster, offline. Nothing in it is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from txlog.journal.log_order import HOLE
from txlog.journal.origin_index import OriginIndex
from txlog.journal.record_reader import RecordReader
from txlog.journal.scan import scan_journal
from txlog.journal.transaction_reader import TransactionReader
from txlog.journal.vfs import OsVfs
from txlog.model.entry import KIND_SKIP, RunItem
from txlog.model.errors import JournalDamaged
from txlog.model.ids import Origin, Txid
from txlog.successor.rescue_plan import RescueCandidate
from txlog.successor.successor_errors import JournalInUse, NoSurvivor

_CACHE_BYTES: Final = 32 << 20
_RUN_ITEMS: Final = 1000
_RUN_BYTES: Final = 4 << 20
_NO_STAMP: Final = 1 << 63


class SurvivorJournal:
    """``own``: the origin of its master. ``cluster``: the id of that one's cluster. Close it after use.

    :class:`JournalInUse` while a process works in the folder, :class:`NoSurvivor` where it holds no journal of a
    cluster, :class:`JournalDamaged` for one that cannot be read at all."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise NoSurvivor(f"{folder}: no such folder; expected a journal, such as .txlog/masters/uk-1/journal")
        self.folder = folder
        self._files = OsVfs(folder, read_only=True)
        self._lock()
        try:
            found = scan_journal(self._files, 0, by_index=False)
            view = found.view(found.state.accepted) if found is not None else None
            if found is None or view is None:
                raise NoSurvivor(f"{folder} holds no journal of a master that was in a cluster")
        except BaseException:
            self._files.close()
            raise
        self._found = found
        self.own = found.own
        self.cluster = view.cluster_id
        self._reader = RecordReader(self._files, found.own.birth)
        self._transactions = TransactionReader(self._reader, found.index, _CACHE_BYTES)

    def _lock(self) -> None:
        try:
            with suppress(PermissionError):  # of another user, or on a medium that is read only
                self._files.lock()
        except BlockingIOError:
            raise JournalInUse(f"a master works in {self.folder}: end it first, then repeat this command") from None
        except OSError:
            return  # a file system without locks, or that is read only

    def close(self) -> None:
        """Releases the folder."""
        self._reader.close()
        self._files.close()

    def highest(self) -> dict[Origin, int]:
        """The last seq of each origin that the journal holds, or has held."""
        return {each.origin: each.last for each in self._found.index.all() if each.last}

    def skipped(self) -> set[str]:
        """The transactions that its log skips."""
        names = {name for name, _ in self._found.log_start.skips}
        for origin, first, stop in self._runs():
            keyed = self._found.keyed.get(origin, {})
            names.update(one.key for seq, one in keyed.items() if first <= seq < stop and one.kind == KIND_SKIP)
        return names

    def candidates(self, known: Mapping[Origin, int]) -> list[RescueCandidate]:
        """What it holds beyond ``known``, the last seq of each origin that the new cluster has: first those of its log,
        in order, then those that were not ordered yet, by stamp."""
        held: dict[Txid, tuple[int, RescueCandidate]] = {}
        for each in self._found.index.all():
            for seq, stamp, candidate in self._read_origin(each, known.get(each.origin, 0) + 1):
                held[Txid(each.origin, seq)] = (stamp, candidate)
        ordered: list[RescueCandidate] = []
        for origin, first, stop in self._runs():
            for seq in range(max(first, known.get(origin, 0) + 1), stop):
                found = held.pop(Txid(origin, seq), None)
                if found is not None:
                    ordered.append(found[1])
        left = sorted(held.items(), key=lambda item: (item[1][0] or _NO_STAMP, item[0]))
        return ordered + [found[1] for _, found in left]

    def payload(self, txid: Txid) -> bytes:
        """The payload of a candidate. :class:`JournalDamaged` when it cannot be read."""
        items = self._transactions.read(*txid.origin, txid.seq, 1, _RUN_BYTES).items
        if not items:
            raise JournalDamaged(f"{self.folder} does not hold {txid}")
        return items[0].payload

    def _runs(self) -> Iterator[tuple[Origin, int, int]]:
        """The log in order: origin, first seq, seq after the last one."""
        for span in self._found.order.spans:
            if span.node != HOLE:
                yield Origin(span.node, span.birth), span.first_seq, span.first_seq + span.count

    def _read_origin(self, held: OriginIndex, first: int) -> Iterator[tuple[int, int, RescueCandidate]]:
        """Seq, stamp and candidate. One that cannot be read is named."""
        seq = first
        while seq <= held.last:
            try:
                items: list[RunItem] = self._transactions.read(*held.origin, seq, _RUN_ITEMS, _RUN_BYTES).items
                if not items:
                    raise JournalDamaged("the journal does not hold it")
            except JournalDamaged as wrong:
                fault = "trimmed, and in no archive" if seq <= held.trimmed else f"unreadable: {wrong}"
                yield seq, 0, RescueCandidate(Txid(held.origin, seq), 0, "", 0, fault)
                seq += 1
                continue
            for at, item in enumerate(items, seq):
                txid = Txid(held.origin, at)
                yield at, item.stamp, RescueCandidate(txid, item.kind, item.key, len(item.payload))
            seq += len(items)
