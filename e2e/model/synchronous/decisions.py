"""Which transactions a master may commit or roll back in its view (S6, S8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from e2e.model.synchronous.anchors import AnchorRules
from e2e.model.synchronous.masters import ModelMaster
from e2e.model.synchronous.values import Missing, ModelAnchor, ModelTransaction, TransactionKind, Weights


class OpenVerdicts(NamedTuple):
    """What a master knows of what no decision in its log or queue names. ``certain``: a quorum holds it. ``doomed``: to
    be rolled back. ``late_own``: only under ``local_timeout``."""

    certain: list[str]
    doomed: list[str]
    late_own: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class DecisionRules:
    """S6 and S8 at one master."""

    anchors: AnchorRules

    def judge(self, master: ModelMaster, now: int, due: dict[str, int]) -> OpenVerdicts:
        """What the master may decide now; ``due``: the step from which a transaction is late."""
        missing, anchor = self.anchors.missing, master.view.anchor
        assert anchor is not None, master.view
        waiting = _undecided_of(master)
        late_own = [
            each.txid
            for each in waiting
            if Missing.LOCAL_TIMEOUT in missing
            and (each.origin, each.birth) == (master.number, master.birth)
            and now >= due[each.txid]
            and not self._is_held_by_quorum(master, anchor, each)
        ]
        if not master.view.quorate:
            return OpenVerdicts([], [], late_own)
        doomed = anchor.doomed
        if Missing.UNDOOMED in missing and master.number != min(master.view.members):
            doomed = frozenset()
        certain = [
            each.txid for each in waiting if each.txid not in doomed and self._is_held_by_quorum(master, anchor, each)
        ]
        rolled_back = [each.txid for each in waiting if each.txid in anchor.doomed and each.txid not in certain]
        if Missing.LATE_TIMEOUT in missing:
            certain = [txid for txid in certain if now < due[txid]]
            rolled_back = [
                each.txid
                for each in waiting
                if now >= due[each.txid] and master.places.get(each.txid, master.stable + 1) <= master.stable
            ]
        return OpenVerdicts(certain, rolled_back, late_own)

    def _is_held_by_quorum(self, master: ModelMaster, anchor: ModelAnchor, transaction: ModelTransaction) -> bool:
        """S6: the quorum is counted in the view's electorate, among members known in this view to hold it."""
        electorate = anchor.electorate
        if Missing.ELECT_NOW in self.anchors.missing:
            electorate = self.anchors.configured_weights(master.log, master.view.history)[1]
        if Missing.ANY_VIEW in self.anchors.missing:
            electorate = _restricted(electorate, master.view.members)
        holders = _holders(master, transaction.txid)
        if transaction.needs_all:
            return all(each in holders for each, votes in enumerate(electorate) if votes)
        return self.anchors.is_quorum(electorate, holders)


def _restricted(electorate: Weights, members: tuple[int, ...]) -> Weights:
    return tuple(votes if each in members else 0 for each, votes in enumerate(electorate))


def _holders(master: ModelMaster, txid: str) -> set[int]:
    """The members that are known in this view to hold it: it is in the view's base or queue, or in their posts."""
    place = master.places.get(txid)
    return {master.number} | {
        peer
        for peer in master.view.members
        if peer != master.number
        and (
            txid in master.view.material
            or txid in master.claim_of(peer).held
            or (place is not None and place <= master.claim_of(peer).length)
        )
    }


def _undecided_of(master: ModelMaster) -> list[ModelTransaction]:
    entries = [*master.log, *master.waiting()]
    named = {
        txid
        for entry in entries
        if entry.transaction.kind is TransactionKind.DECISION
        for txid in entry.transaction.names
    }
    return [
        entry.transaction
        for entry in entries
        if entry.transaction.kind is TransactionKind.SYNCHRONOUS and entry.txid not in named
    ]
