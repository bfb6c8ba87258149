"""Who must hold a transaction before it is added (protocol section 3)."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from txlog.model.configuration import Configuration
from txlog.model.ids import Origin, ViewNumber

Number = ViewNumber

STRATEGIES = ("Simple", "Smart", "None")
"""The safest first."""
NO_VIEW: Number = (0, 0, "")
"""Epoch, ballot, coordinator: views are ordered by it. Below every view: of a master that has none."""


class Member(msgspec.Struct, array_like=True, frozen=True):
    """A master of a view: node id, birth of its journal, vote weight, data centre."""

    node: str
    birth: int
    weight: int
    data_center: str

    @property
    def origin(self) -> Origin:
        return Origin(self.node, self.birth)


class View(msgspec.Struct, array_like=True, frozen=True):
    """``(epoch, ballot, coordinator; members; closed base; history)``.

    View 1 is the founding record: base index 0, and the cluster's id is the hash of its members, so that proposing it
    again after a crash gives the same view. ``origins``: everybody who has a transaction in the log or the queue, or
    may have one, as (node, birth); the place of an origin in it is its *slot*, in posts and in the order of the log.
    The members of the view are among them. ``base_index``, ``base_hash``: the end of the closed log that this view
    goes on from. ``ancestors``: the numbers of the views that this one has grown from, oldest first. ``floor``: every
    stamp given in this view lies above it, and every stamp in the base at or below it.

    ``strategy``: ``Smart``, ``Simple`` or ``None``, fixed at the install; ``strategies``: those of the views in
    ``ancestors``. ``diverged_index``: a configured master is out that did not say so, and no rejoin with it goes back
    below this index (``Majority``: only where one was let go by order); -1 when nobody is; ``-2 - index`` when
    everybody is in again, which holds once the view is installed:
    one who has not accepted it may go on beside it. ``known_seqs``: the last seq of each origin in the base or waiting;
    what is held of a master outside beyond it belongs to another branch (*parked*). ``merged``: the branches were
    merged in stamp order (``Simple``). ``silent_members``: masters that are out because nobody heard them.
    ``preferred_strategies``: the strategy that each member prefers, in their order, as they reported it; empty where
    nobody was asked yet. ``excluded_by_override``: members of the view before that the operator let go (``txlog
    force-view``).

    ``bootstrap_configuration``: the first configuration, the same in all views of a cluster; what is in force at a
    place in the log is that and the changes up to there. ``majority``: the ``splitMode`` of this view is ``Majority``;
    it follows the configuration in a view of everybody. ``majority_before``: that of the view before, which binds until
    this one is installed."""

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

    @property
    def number(self) -> Number:
        """Orders views: ``(epoch, ballot, coordinator)``."""
        return (self.epoch, self.ballot, self.coordinator)

    def final_index(self, stable: int, installed: bool) -> int:
        """Up to where the log of a master in this view never changes again, when it is ``stable`` up to there."""
        apart_at = -2 - self.diverged_index if self.diverged_index < -1 and not installed else self.diverged_index
        return stable if apart_at < 0 else min(stable, apart_at)

    def diverged_at(self, installed: bool) -> int:
        """``diverged_index`` as long as it counts; -1 when it was installed with everybody in it. ``installed``:
        anywhere, as far as is known."""
        return self.diverged_index if self.diverged_index >= -1 or installed else -2 - self.diverged_index

    def is_forced(self, installed: bool) -> bool:
        """``Majority``: an order is in its line, and not everybody has been in since; another may stand beside it."""
        return self.majority_before and self.diverged_at(installed) >= 0

    def precedence(self, installed: bool) -> tuple[bool, int, Number]:
        """``Majority``: of views that stand beside each other the one with the greatest goes on. One that had its
        majority, before those that an order has put beside it; of these the one whose line had a majority for longest,
        for what was settled then leaves no log again."""
        ordered = self.is_forced(installed)
        return (not ordered, self.diverged_at(installed) if ordered else 0, self.number)

    def is_majority(self, installed: bool) -> bool:
        """Whether a view that follows this one needs more than half of the votes."""
        return self.majority or (self.majority_before and not installed)

    @property
    def lineage(self) -> list[Number]:
        """The views that it has grown from, and itself."""
        return [*self.ancestors, self.number]

    def has_member(self, origin: Origin) -> bool:
        """Whether this master, with this birth, is a member."""
        return any(m.node == origin.node and m.birth == origin.birth for m in self.members)

    def member(self, node: str) -> Member | None:
        """The member with this node id."""
        return next((m for m in self.members if m.node == node), None)

    def preferred_by(self, node: str) -> str:
        """The strategy that this view took for the one that this member prefers."""
        at = next((at for at, m in enumerate(self.members) if m.node == node), -1)
        return self.preferred_strategies[at] if 0 <= at < len(self.preferred_strategies) else self.strategy

    @property
    def keeps_abandoned(self) -> bool:
        """Whether workers may be on what this view cuts off the log, and stay."""
        return self.strategy == "None" or "None" in self.strategies

    def slot(self, member: Member) -> int:
        """The place of a member among the origins."""
        return self.origins.index((member.node, member.birth))


def bootstrap_cluster_id(members: list[Member]) -> bytes:
    """The cluster id that a founding record of these members carries (16 bytes). Births are random, so no
    two foundings share it."""
    text = "\n".join(f"{m.node} {m.birth:016x} {m.weight} {m.data_center}" for m in members)
    return blake2b(text.encode(), digest_size=16).digest()


def bootstrap_view(
    ballot: int,
    coordinator: str,
    members: list[Member],
    strategy: str,
    first: Configuration | None = None,
    prefers: list[str] | None = None,
) -> View:
    """View 1 of a cluster of these masters, with the first configuration; ``preferred_strategies`` as in the view."""
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
    )
