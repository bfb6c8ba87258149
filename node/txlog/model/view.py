"""The view: the masters that must persist a transaction before it is stable (protocol section 3)."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from txlog.model.anchor import Anchor
from txlog.model.bounds import Birth, Count, NodeId
from txlog.model.configuration import Configuration
from txlog.model.hashes import CLUSTER_ID_BYTES
from txlog.model.ids import Origin, ViewNumber

Number = ViewNumber

STRATEGIES = ("Simple", "Smart", "None")
"""The safest first."""
FORGETTING_LEVEL: Final = 1
"""The level of a program that reads views of which not all ancestors are listed (``wire/messages.py``)."""
LISTED_ANCESTORS_MAX: Final = 4096
"""So many ancestors a view lists before no master is admitted any more while another one stays out."""
NO_VIEW: Number = (0, 0, "")
"""Epoch, ballot, coordinator: views are ordered by it. Lower than every view: the number of a master that has none."""
LEARNER_STAMPS: Number = (0, 0, "learner")
"""What a learner names as the view of its stamps: it fetched them from masters of any view. No view has this number."""


class Member(msgspec.Struct, array_like=True, frozen=True):
    """A master of a view: node id, birth of its journal, vote weight, data centre."""

    node: NodeId
    birth: Birth
    weight: Count
    data_center: str

    @property
    def origin(self) -> Origin:
        """Node id and incarnation of the member."""
        return Origin(self.node, self.birth)


class View(msgspec.Struct, array_like=True, frozen=True):
    """``(epoch, ballot, coordinator; members; closed base; history)``.

    View 1 is the founding record: base index 0, and the cluster's id is the hash of its members, so that proposing it
    again after a crash gives the same view. ``origins``: every origin that has a transaction in the log or the queue,
    or may have one, as (node, birth). The place of an origin in it is its *slot*, in posts and in the order of the log.
    The members of the view are among them. ``base_index``, ``base_hash``: the end of the closed log that this view
    continues. ``ancestors``: the numbers of the views that this one descends from, oldest first, as far as they are
    listed. ``floor``: every stamp given in this view lies above it, and every stamp in the base at or below it.

    ``strategy``: ``Smart``, ``Simple`` or ``None``, fixed at the install; ``strategies``: those of the views in
    ``ancestors``. ``diverged_index``: a configured master is out without a leave notice, and no rejoin with it goes
    below this index (``Majority``: only where the operator excluded one). It is -1 when no such master is out. It is
    ``-2 - index`` when every master is in again. That holds once the view is installed: a master that has not accepted
    it may continue in another branch. ``known_seqs``: the last seq of each origin in the base or waiting. Persisted
    transactions of a master outside beyond it belong to another branch (*parked*). ``merged``: the branches were
    merged in stamp order (``Simple``). ``silent_members``: masters that are out because they were silent.
    ``preferred_strategies``: the strategy that each member prefers, in their order, as they reported it; empty before
    any were asked. ``excluded_by_override``: members of the view before that the operator excluded (``txlog
    force-view``).

    ``bootstrap_configuration``: the first configuration, the same in all views of a cluster. The configuration in
    force at an index of the log is that with the changes up to there. ``majority``: the ``splitMode`` of this view is
    ``Majority``; it follows the configuration in a view of all masters. ``majority_before``: that of the view before,
    which binds until this one is installed.

    ``lineage_start``: an ancestor that every configured master had accepted. No master can report a view below it any
    more. Of the ancestors below it, only view 1 is listed. Every view below it counts as an ancestor, except
    ``foreign_views``: views of branches that did not survive, which configuration changes name that a master still
    holds. ``NO_VIEW``: all ancestors are listed.

    ``level``: each configured master that was ever in this cluster had at least this level when it was last in it. The
    members report theirs; for absent masters, the views before bound it.

    ``anchor``: what is known of the latest quorate view, which is this one where the numbers are equal; None in a
    cluster that has no synchronous transactions."""

    epoch: int
    ballot: int
    coordinator: str
    members: list[Member]
    cluster_id: bytes
    base_index: int
    base_hash: bytes
    origins: list[tuple[str, int]]
    ancestors: list[Number]
    floor: int = 0
    strategy: str = "Smart"
    diverged_index: int = -1
    known_seqs: list[int] = []
    strategies: list[str] = []
    merged: bool = False
    silent_members: list[str] = []
    preferred_strategies: list[str] = []
    excluded_by_override: list[str] = []
    bootstrap_configuration: Configuration | None = None
    majority: bool = False
    majority_before: bool = False
    lineage_start: Number = NO_VIEW
    foreign_views: list[Number] = []
    level: int = 0
    anchor: Anchor | None = None

    @property
    def is_quorate(self) -> bool:
        """Whether this view decides about synchronous transactions (rule S4)."""
        return self.anchor is not None and self.anchor.number == self.number

    @property
    def number(self) -> Number:
        """Orders views: ``(epoch, ballot, coordinator)``."""
        return (self.epoch, self.ballot, self.coordinator)

    def final_index(self, stable: int, installed: bool) -> int:
        """The highest index of the log that never changes again for a master in this view, given its stable index."""
        apart_at = -2 - self.diverged_index if self.diverged_index < -1 and not installed else self.diverged_index
        return stable if apart_at < 0 else min(stable, apart_at)

    def diverged_at(self, installed: bool) -> int:
        """``diverged_index`` as long as it counts; -1 when the view was installed with every master in it.
        ``installed``: on any master, as far as is known."""
        return self.diverged_index if self.diverged_index >= -1 or installed else -2 - self.diverged_index

    def is_forced(self, installed: bool) -> bool:
        """``Majority``: an ancestor view was forced and no later view contained every member. Another branch may
        exist."""
        return self.majority_before and self.diverged_at(installed) >= 0

    def precedence(self, installed: bool) -> tuple[bool, int, Number]:
        """``Majority``: of views in different branches, the one with the greatest value survives. A view with a
        majority precedes forced ones. Of forced views, the one whose line had a majority for longest precedes: entries
        that were final then never leave the log."""
        ordered = self.is_forced(installed)
        return (not ordered, self.diverged_at(installed) if ordered else 0, self.number)

    def is_majority(self, installed: bool) -> bool:
        """Whether a view that follows this one needs more than half of the votes."""
        return self.majority or (self.majority_before and not installed)

    def descends_from(self, number: Number) -> bool:
        """Whether the view of this number is an ancestor of this one. ``NO_VIEW`` and ``LEARNER_STAMPS`` are none."""
        return number in self.ancestors or (
            number[0] > 0 and number < self.lineage_start and number not in self.foreign_views
        )

    def is_or_descends_from(self, number: Number) -> bool:
        """Whether this is the view of this number, or descends from it."""
        return number == self.number or self.descends_from(number)

    def has_member(self, origin: Origin) -> bool:
        """Whether this master, with this birth, is a member."""
        return any(m.node == origin.node and m.birth == origin.birth for m in self.members)

    def member(self, node: str) -> Member | None:
        """The member with this node id."""
        return next((m for m in self.members if m.node == node), None)

    def preferred_by(self, node: str) -> str:
        """The strategy that this view recorded as the member's preference."""
        at = next((at for at, m in enumerate(self.members) if m.node == node), -1)
        return self.preferred_strategies[at] if 0 <= at < len(self.preferred_strategies) else self.strategy

    @property
    def keeps_abandoned(self) -> bool:
        """Whether workers may have executed what this view truncates, and stay there."""
        return self.strategy == "None" or "None" in self.strategies

    def slot(self, member: Member) -> int:
        """The place of a member among the origins."""
        return self.origins.index((member.node, member.birth))


def bootstrap_cluster_id(members: list[Member]) -> bytes:
    """The cluster id that a founding record of these members carries (16 bytes). Births are random, so no
    two bootstraps share it."""
    text = "\n".join(f"{m.node} {m.birth:016x} {m.weight} {m.data_center}" for m in members)
    return blake2b(text.encode(), digest_size=CLUSTER_ID_BYTES).digest()


def bootstrap_view(
    ballot: int,
    coordinator: str,
    members: list[Member],
    strategy: str,
    first: Configuration | None = None,
    prefers: list[str] | None = None,
    level: int = 0,
) -> View:
    """View 1 of a cluster of these masters, with the first configuration; ``preferred_strategies`` and ``level`` as in
    the view."""
    origins = [(m.node, m.birth) for m in members]
    majority = first is not None and first.majority
    return View(
        1,
        ballot,
        coordinator,
        members,
        bootstrap_cluster_id(members),
        0,
        bytes(16),
        origins,
        [],
        0,
        strategy,
        preferred_strategies=prefers or [],
        bootstrap_configuration=first,
        majority=majority,
        majority_before=majority,
        level=level,
    )
