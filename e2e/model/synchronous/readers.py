"""Workers, their backups, and trims: who reads the log, and what a master may forget of it (S13)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from e2e.model.synchronous.assertions import Assertions
from e2e.model.synchronous.log_fold import FoldMemo, LogFold, log_start_at
from e2e.model.synchronous.masters import ModelMaster
from e2e.model.synchronous.values import DecisionVerdict, Missing, ModelViolation, TransactionKind


class ModelBackup(NamedTuple):
    """A worker's state at a position."""

    position: int
    hash: int
    content: tuple[str, ...]


@dataclass(slots=True, eq=False)
class LogReaders:
    """Executes logs at workers, and trims them."""

    chance: random.Random
    missing: frozenset[Missing]
    assertions: Assertions
    counts: Counter[str]
    folds: FoldMemo
    backups: list[ModelBackup] = field(default_factory=lambda: [ModelBackup(0, 0, ())])

    def fold_of(self, master: ModelMaster, end: int) -> LogFold:
        """The fold of the first ``end`` entries, as the master knows it."""
        return self.folds.fold_at(master.start, master.log, master.hashes, master.places, end)

    def execute(self, worker_of: ModelMaster, served_by: ModelMaster, end: int) -> None:
        """The worker of one master executes the log of another up to ``end``."""
        worker = worker_of.worker
        if worker.index < served_by.start.served_from:
            self.restore(worker_of, served_by)
        if worker.index >= end or not served_by.is_on_chain(worker.index, worker.hash):
            return
        done = set(worker.content)
        content = list(worker.content)
        for index, txid in self._effects(served_by, worker.index, end):
            if txid in done:
                continue
            done.add(txid)
            content.append(txid)
            if served_by.log[index - 1].transaction.kind is TransactionKind.DECISION and (
                served_by.places[txid] <= served_by.start.index
            ):
                raise ModelViolation("the payload of a committed transaction was trimmed")
            if self.assertions.transactions[txid].kind is TransactionKind.SYNCHRONOUS:
                self.assertions.execute(served_by.view, txid)
        worker.index, worker.hash, worker.content = end, served_by.hashes[end], tuple(content)
        self.assertions.moved(worker)
        if self.chance.random() < 0.15:
            self.back_up(worker_of)

    def _effects(self, master: ModelMaster, begin: int, end: int) -> list[tuple[int, str]]:
        effects = [each for each in self.fold_of(master, end).effects if each[0] > begin]
        anchor = master.view.anchor
        if Missing.FAST_PATH in self.missing and master.view.quorate and anchor is not None:
            known = {txid for _, txid in effects}
            effects += [
                (index, entry.txid)
                for index, entry in enumerate(master.log[begin:end], begin + 1)
                if entry.transaction.kind is TransactionKind.SYNCHRONOUS
                and entry.txid not in anchor.doomed
                and entry.txid not in known
            ]
        return sorted(effects, key=lambda each: each[0])

    def back_up(self, master: ModelMaster) -> None:
        """Keep the state of its worker."""
        worker = master.worker
        self.backups.append(ModelBackup(worker.index, worker.hash, worker.content))

    def restore(self, worker_of: ModelMaster, served_by: ModelMaster) -> None:
        """Send a worker back to a backup on the chain from which the log goes on."""
        self.counts["restored"] += 1
        fit = [
            each
            for each in self.backups
            if each.position >= served_by.start.served_from and served_by.is_on_chain(each.position, each.hash)
        ]
        if not fit:
            raise ModelViolation("no backup on the chain")
        chosen = self.chance.choice(fit) if self.chance.random() < 0.5 else max(fit, key=lambda each: each.position)
        worker = worker_of.worker
        worker.index, worker.hash, worker.content = chosen

    def trim(self, master: ModelMaster, masters: list[ModelMaster]) -> None:
        """S13: all readers allow a trim up to ``served``; it ends before the first transaction that is open there."""
        stable = master.stable_length()
        if not all(
            each.worker.index <= stable
            and master.is_on_chain(each.worker.index, each.worker.hash)
            and each.view is master.view
            and each.installed
            for each in masters
        ):
            return
        fit = [
            each.position
            for each in self.backups
            if each.position <= stable and master.is_on_chain(each.position, each.hash)
        ]
        if not fit:
            return
        served = min(max(fit), *(each.worker.index for each in masters))
        if served <= master.start.served_from:
            return
        end = served
        if Missing.TRIM not in self.missing:
            end = min([served, *(master.places[txid] - 1 for txid in self.fold_of(master, served).open)])
        if end <= master.start.index:
            return
        fold = self.fold_of(master, end)
        self.counts["trims"] += 1
        self.counts["open at the log start"] += len(fold.open)
        self.counts["decided ahead of the log start"] += len(fold.ahead)
        master.start = log_start_at(end, master.hashes[end], fold, served, self.missing)

    def what_became_of(self, master: ModelMaster, txid: str) -> DecisionVerdict | None:
        """The answer of a master about a transaction of its stable log; below its log start all that it does not carry
        counts as done."""
        stable = master.stable_length()
        place = master.places.get(txid)
        if place is None or place > stable:
            return None
        fold = self.fold_of(master, stable)
        verdict = fold.decided.get(txid)
        if verdict is None and place <= master.start.index and txid not in fold.open:
            return DecisionVerdict.COMMIT
        return verdict
