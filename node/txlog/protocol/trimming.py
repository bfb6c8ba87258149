"""How far the log may be trimmed, and who holds that back (rule 19).

Nobody may still need what goes: no configured master, the silent ones included; no worker of any data centre; nobody
who would restore the newest verified backup, or the oldest split backup that is kept. Each counts as far as it is known
to have come *on this log*, by index and hash; whoever is not known to be on it holds everything.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.model.records import Foot
from txlog.protocol.agreement import Agreement
from txlog.protocol.submitting import Submitting
from txlog.wire.messages import Checkpoint

MASTER: Final = "master"
WORKER: Final = "worker"
BACKUP: Final = "backup"
SPLIT_BACKUP: Final = "split backup"
KEEP: Final = "keep"
UNKNOWN: Final = -1


class Place(NamedTuple):
    """How far somebody has come: ``at`` is :data:`UNKNOWN` when nobody has said so. ``kind`` is one of the words
    above."""

    kind: str
    name: str
    at: int
    hash: bytes


class Holder(NamedTuple):
    """The log is needed behind ``at`` by this one; ``why`` is there where that is not simply how far it is."""

    kind: str
    name: str
    at: int
    why: str


class Verdict(NamedTuple):
    """``start``: the log is kept from there on; ``cut``: it may be trimmed up to there; ``holders``: by how much they
    hold back, the first ones first."""

    start: int
    cut: int
    holders: list[Holder]


class Trimming(Submitting):
    """The core's part of it; the driver reads the keys from the journal, the shell says where the workers are."""

    def may_trim(self, places: list[Place], keep_from: int) -> Verdict:
        """How far, if ``places`` are all workers of all data centres and all backups, and the entries behind
        ``keep_from`` are to be kept in any case."""
        agreement = self.agreement
        if agreement is None:
            return Verdict(0, 0, [])
        history = agreement.history
        self._note_reached(agreement)
        holders = [self._of_master(agreement, m.node) for m in self.views.configured]
        holders += [self._holder(agreement, one) for one in places if one.kind == WORKER]
        holders += self._of_backups(agreement, places)
        if keep_from < agreement.settled_at:
            holders.append(Holder(KEEP, "log.keep", max(keep_from, history.start), "younger than it may be"))
        holders.sort(key=lambda one: (one.at, one.kind, one.name))
        cut = min([agreement.settled_at, *(one.at for one in holders)])
        if not self.views.at_work or self.views.ahead is not None or self.views.change is not None:
            cut = history.start
        return Verdict(history.start, max(cut, history.start), holders)

    def trim(self, foot: Foot) -> None:
        """Forget the log up to there, as :meth:`may_trim` allows."""
        agreement = self.agreement
        assert agreement is not None
        agreement.trim(foot)
        own = foot.seq_of(*agreement.own.origin)
        for peer in self.peers:  # what stood below, everybody has; some may have said so through others only
            peer.held_of_mine = max(peer.held_of_mine, own)

    def _note_reached(self, agreement: Agreement) -> None:
        """Members say how far they are in their posts, those outside when they ask around."""
        self._note_peers()
        births = {peer.node: peer.origin.birth for peer in self.peers}
        for who in self.views.candidates:
            if births.get(who.node) != who.birth:
                self.reached[who.node] = Checkpoint(who.log_index, who.log_hash)

    def _of_master(self, agreement: Agreement, node: str) -> Holder:
        if node == self.settings.node:
            return Holder(MASTER, node, agreement.settled_at, "what is not settled may move")
        known = self.reached.get(node)
        if known is None:
            return Holder(MASTER, node, agreement.history.start, "not heard since this start, or since an order")
        return self._holder(agreement, Place(MASTER, node, known.index, known.hash))

    def _holder(self, agreement: Agreement, place: Place) -> Holder:
        history = agreement.history
        if place.at == UNKNOWN:
            return Holder(place.kind, place.name, history.start, "not known where it is")
        if place.at < history.start or not place.at:
            return Holder(place.kind, place.name, history.start, f"is at {place.at}")
        if place.at > history.length or history.hash_at(place.at) != place.hash:
            return Holder(place.kind, place.name, history.start, f"is not on this log at {place.at}")
        return Holder(place.kind, place.name, place.at, "")

    def _of_backups(self, agreement: Agreement, places: list[Place]) -> list[Holder]:
        """The newest that is on this log and stays on it, and the oldest of a split; one of another branch is of no use
        here."""
        history = agreement.history
        sound = [one for one in places if one.kind in (BACKUP, SPLIT_BACKUP)]
        sound = [
            one
            for one in sound
            if history.start <= one.at <= agreement.settled_at and history.hash_at(one.at) == one.hash
        ]
        if not sound:
            return [Holder(BACKUP, "newest backup", history.start, "there is none on this log that was verified")]
        newest = max(sound, key=lambda one: one.at)
        found = [Holder(BACKUP, newest.name, newest.at, "the newest that is verified")]
        split = [one for one in sound if one.kind == SPLIT_BACKUP]
        if split:
            oldest = min(split, key=lambda one: one.at)
            found.append(Holder(SPLIT_BACKUP, oldest.name, oldest.at, "the oldest of a split that is kept"))
        return found
