"""The anchor: what every view carries of the latest quorate view, the only sort that decides about synchronous
transactions."""

from __future__ import annotations

from typing import Final

import msgspec

from txlog.model.bounds import Birth, NodeId, Seq
from txlog.model.configuration import Master
from txlog.model.entry import Span
from txlog.model.ids import Origin, Txid, ViewNumber

DOOMED_SPANS_MAX: Final = 1000
"""What does not fit is not doomed by this view."""
ELECTORATES_MAX: Final = 256
"""Electorates in one anchor."""


class Anchor(msgspec.Struct, array_like=True, frozen=True):
    """``number``: of that view. ``members``: its masters with the births of their journals. ``electorate``: the votes
    by which it decides. ``under``: electorates under which it was counted itself, as long as no later view change has
    seen it installed. ``known``: the last seq of each origin in its base and queue. ``doomed``: what it rolls back.
    ``voters``: the births that the first anchor had as members, and those that reported a quorate view; other births
    do not count when the next view is judged."""

    number: ViewNumber
    members: list[tuple[NodeId, Birth]]
    electorate: list[Master]
    under: list[list[Master]] = []
    known: list[tuple[NodeId, Birth, Seq]] = []
    doomed: list[Span] = []
    voters: list[tuple[NodeId, Birth]] = []

    def birth_of(self, node: str) -> int | None:
        """The birth of a member's journal; None for other masters."""
        return next((birth for member, birth in self.members if member == node), None)

    def known_seqs(self) -> dict[Origin, int]:
        """``known`` by origin."""
        return {Origin(node, birth): seq for node, birth, seq in self.known}

    def doomed_names(self) -> frozenset[Txid]:
        """``doomed`` by transaction."""
        return frozenset(
            Txid(Origin(span.node, span.birth), seq)
            for span in self.doomed
            for seq in range(span.first_seq, span.first_seq + span.count)
        )
