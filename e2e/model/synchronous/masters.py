"""A master of the model: its durable state, its posts, and how its log grows and becomes stable."""

from __future__ import annotations

from dataclasses import dataclass, field

from e2e.model.synchronous.anchors import ClosedLog
from e2e.model.synchronous.log_fold import WHOLE_LOG, ModelLogStart
from e2e.model.synchronous.values import (
    MasterReport,
    ModelEntry,
    ModelTransaction,
    ModelView,
    ModelViolation,
    Number,
)


@dataclass(frozen=True, slots=True, eq=False)
class ModelPost:
    """What a master says in a round: the length of its log, its counter, what waits at it."""

    view: Number
    boots: int
    number: int
    length: int
    counter: int
    queue: tuple[ModelEntry, ...]


@dataclass(slots=True, eq=False)
class ViewProposal:
    """A view change at its coordinator. ``closed``: the next view, once all have reported."""

    number: Number
    members: tuple[int, ...]
    reports: dict[int, MasterReport] = field(default_factory=dict)
    accepted: set[int] = field(default_factory=set)
    closed: tuple[ModelView, ClosedLog] | None = None


@dataclass(slots=True, eq=False)
class PeerClaim:
    """What a master knows of a peer in this view: what it holds, the length of its log, its counter."""

    held: set[str] = field(default_factory=set)
    length: int = 0
    counter: int = -1


@dataclass(slots=True, eq=False)
class ModelWorker:
    """A store: the position that it has executed, and the effects that it has."""

    index: int = 0
    hash: int = 0
    content: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class ModelMaster:
    """``birth``: how often its disk was lost. ``stable``: a length of the log that every member of the view holds."""

    number: int
    view: ModelView
    birth: int = 0
    log: list[ModelEntry] = field(default_factory=list)
    hashes: list[int] = field(default_factory=lambda: [0])
    places: dict[str, int] = field(default_factory=dict)
    queue: dict[str, ModelEntry] = field(default_factory=dict)
    start: ModelLogStart = WHOLE_LOG
    counter: int = 0
    sequence: int = 0
    promised: Number = (0, 0)
    highest_seen: int = 0
    installed: bool = True
    base_length: int = 0
    stable: int = 0
    has_voted: bool = True
    is_learner: bool = False
    down: int = 0
    boots: int = 1
    posts: int = 0
    noted: tuple[Number, int] = ((0, 0), -1)
    worker: ModelWorker = field(default_factory=ModelWorker)
    claims: dict[int, PeerClaim] = field(default_factory=dict)
    pending: list[tuple[int, ModelPost]] = field(default_factory=list)
    last_posts: dict[int, tuple[int, int]] = field(default_factory=dict)
    proposal: ViewProposal | None = None

    @property
    def is_active(self) -> bool:
        """Whether it may stamp and write decisions: its view is installed, and it has promised no other."""
        return self.installed and self.promised == self.view.number and not self.down

    def waiting(self) -> tuple[ModelEntry, ...]:
        """The queue in the order of stamps."""
        return tuple(sorted(self.queue.values()))

    def has(self, txid: str) -> bool:
        """Whether a transaction is in its log or queue."""
        return txid in self.places or txid in self.queue

    def append(self, entry: ModelEntry) -> None:
        """The next entry of the log."""
        self.log.append(entry)
        self.hashes.append(hash((self.hashes[-1], entry.stamp, entry.txid)))
        self.places[entry.txid] = len(self.log)
        self.queue.pop(entry.txid, None)
        self.counter = max(self.counter, entry.stamp)

    def is_on_chain(self, index: int, chain_hash: int) -> bool:
        """Whether a position is one of this log."""
        return index <= len(self.log) and self.hashes[index] == chain_hash

    def crash(self) -> None:
        """Forget what is on no disk."""
        self._forget_round()
        self.proposal = None
        self.boots += 1
        self.posts = 0

    def _forget_round(self) -> None:
        self.claims, self.pending, self.last_posts = {}, [], {}

    def report(self) -> MasterReport:
        """Its promise to a coordinator."""
        waiting = self.waiting()
        return MasterReport(
            self.number,
            self.birth,
            self.view,
            tuple(self.log),
            waiting,
            self.counter,
            self.installed or self.is_learner,
            self.is_learner,
            self.has_voted,
            frozenset(self.places) | frozenset(self.queue),
        )

    def accept(self, view: ModelView, closed: ClosedLog, start: ModelLogStart) -> None:
        """Take over log and queue of the next view. What only this master has is stamped again. ``start``: where the
        log of the coordinator begins; a learner begins there, too."""
        before = self.waiting()
        self.log, self.hashes, self.places = [], [0], {}
        self.queue = {entry.txid: entry for entry in closed.queue}
        for entry in closed.base:
            self.append(entry)
        self.counter = max(self.counter, closed.counter)
        self.view, self.base_length, self.installed = view, len(closed.base), False
        self.stable = min(self.stable, self.base_length)
        if self.is_learner:
            self.start, self.is_learner = start, False
        self.has_voted = self.has_voted or view.quorate
        self._forget_round()
        for entry in before:
            if not self.has(entry.txid) and entry.transaction.origin == self.number:
                self.counter += 1
                self.queue[entry.txid] = entry._replace(stamp=self.counter)

    def claim_of(self, peer: int) -> PeerClaim:
        """What is known of a peer in this view."""
        return self.claims.get(peer) or self.claims.setdefault(peer, PeerClaim(length=self.base_length))

    def next_post(self) -> ModelPost:
        """The post of a round."""
        self.posts += 1
        return ModelPost(self.view.number, self.boots, self.posts, len(self.log), self.counter, self.waiting())

    def hold(self, transaction: ModelTransaction) -> ModelEntry:
        """Stamp a transaction of its own."""
        self.counter += 1
        entry = ModelEntry(self.counter, transaction.txid, transaction)
        self.queue[transaction.txid] = entry
        return entry

    def read_pending_posts(self) -> None:
        """A post counts once the log has the length that it names."""
        later = []
        for peer, post in self.pending:
            if post.length > len(self.log):
                later.append((peer, post))
                continue
            claim = self.claim_of(peer)
            claim.held.update(entry.txid for entry in post.queue)
            claim.length = max(claim.length, post.length)
            claim.counter = max(claim.counter, post.counter)
        self.pending = later

    def add(self, is_waited_for: set[int]) -> None:
        """Move to the log what no member can stamp below, and what those hold who are ``is_waited_for``."""
        if self.pending:
            self.read_pending_posts()
        if not self.queue:
            return
        peers = [peer for peer in self.view.members if peer != self.number]
        limit = min([self.counter, *(self.claim_of(peer).counter for peer in peers)])
        for entry in self.waiting():
            if entry.stamp > limit or any(
                peer in is_waited_for and entry.txid not in self.claim_of(peer).held for peer in peers
            ):
                return
            if self.log and entry[:2] <= self.log[-1][:2]:
                raise ModelViolation("keys do not grow")
            self.append(entry)

    def stable_length(self) -> int:
        """The length of the log that every member of the view holds."""
        length = len(self.log)
        if self.installed and self.stable >= length:
            return self.stable
        for peer in self.view.members:
            if peer == self.number:
                continue
            claim = self.claim_of(peer)
            at = max(claim.length, self.base_length)
            while at < length and self.log[at].txid in claim.held:
                at += 1
            if at < length:
                length = at
        if self.installed:
            self.stable = length = max(length, self.stable)
        return length
