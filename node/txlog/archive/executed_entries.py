"""What a worker executes along a restore plan: ordinary transactions at their own places, synchronous ones where their
COMMITs are. Pure; bytes come through a :data:`~txlog.archive.timeline.FileReader`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from txlog.archive.archive_errors import ArchiveGap
from txlog.archive.archived_effects import EffectFold, fold_range
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.restore_plan import RestorePlan
from txlog.archive.timeline import ArchivedRange, FileFacts, FileReader
from txlog.model.entry_effects import EXECUTED_KINDS
from txlog.model.ids import Txid
from txlog.model.synchronous_entry import SYNCHRONOUS_AND_DECISION


def find_undecided(plan: RestorePlan, read: FileReader) -> list[Txid]:
    """The synchronous transactions without effect at the place of a plan, and not rolled back there. A store that is
    restored to it does not have them."""
    fold = fold_range(_range_of(plan), plan.place.index, read)
    return _undecided(fold, plan)


class ExecutedEntries:
    """What a worker executes along a plan: :meth:`of_file` for each of its files, in order. Raises what ``read``
    raises."""

    def __init__(self, plan: RestorePlan, read: FileReader) -> None:
        self._plan, self._read = plan, read
        self._range = _range_of(plan)
        self._fold = fold_range(self._range, plan.after.index, read)

    def of_file(self, file: FileFacts) -> Iterator[ArchivedEntry]:
        """The transactions that take effect at the entries of a file, each with the index and kind at which a worker
        executes it. :class:`ArchiveGap`: the payload of one is before the archive."""
        for entry in self._read(file.name):
            if entry.kind not in SYNCHRONOUS_AND_DECISION:
                if self._plan.is_executed(entry):
                    yield entry
            elif self._plan.after.index < entry.index <= self._plan.place.index:
                yield from self._take_effect(entry)

    @property
    def undecided(self) -> list[Txid]:
        """As :func:`find_undecided`, once every file was read."""
        return _undecided(self._fold, self._plan)

    def _take_effect(self, entry: ArchivedEntry) -> Iterator[ArchivedEntry]:
        decided, skipped = self._fold.apply(entry), self._plan.skipped
        if str(entry.txid) in skipped:
            return
        for txid in decided.missing:
            if str(txid) not in skipped:
                raise ArchiveGap(
                    f"the transaction {txid} takes effect at index {entry.index}, and its payload is before the "
                    f"archive, which begins after {self._range.start}; choose a base after that index"
                )
        for effect in decided.effects:
            if str(effect.transaction.txid) not in skipped:
                found = self._range.find_entry(effect.transaction.log_index, self._read)
                assert found is not None, "it was folded from there"
                yield msgspec.structs.replace(found, index=entry.index, kind=EXECUTED_KINDS[found.kind])


def _range_of(plan: RestorePlan) -> ArchivedRange:
    found = plan.timeline.find_range(plan.place.index)
    assert found is not None, "the place was found there"
    return found


def _undecided(fold: EffectFold, plan: RestorePlan) -> list[Txid]:
    return [one.txid for one in fold.open if str(one.txid) not in plan.skipped]
