"""How a cluster begins, and what a master asks after a start, before it votes.

A bootstrap (protocol section 3) is agreed like any view: *propose* → accepted by all, durably → *install*. The first
master in order of precedence proposes when every configured master has answered and none has a cluster. With an
operator's override it proposes when the masters that the override names have answered. Every step is repeated until it
is answered. Repeating a step gives the same view, because the cluster id is the hash of the members.

A master that lost its journal founds nothing (rule 2): its supervisor saw an incarnation that the journal does not
know. It learns the log from a master that has it. Where none has it, the master waits for an operator's override that
says so (``forget``): the next cluster begins without what the lost journal had.
"""

from __future__ import annotations

from typing import Final

import msgspec

from txlog.model.configuration import Configuration
from txlog.model.errors import Conflict, Fatal, PeerFault
from txlog.model.ids import Origin
from txlog.model.records import RecoveredState, ViewAccepted, ViewInstalled
from txlog.model.view import STRATEGIES, Member, View, bootstrap_view
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.outbox import Outbox
from txlog.protocol.views.view_state import ViewState, bootstrap_configuration
from txlog.wire.messages import (
    BootstrapAccepted,
    CommitBootstrap,
    HelloReply,
    KnownIncarnation,
    ProposeBootstrap,
)
from txlog.wire.protocol_level import PROTOCOL_LEVEL

_REPEAT_MS: Final = 200
"""Between two questions to a peer that has not answered: several in a round time-out, at a negligible cost."""
_NO_PEER_ROUNDS: Final = 5
"""Round time-outs without any message before a master that has just started considers itself partitioned. A peer that
only pauses would report whether this journal is an old image; a split cannot be waited for."""


class ClusterBootstrap:
    """``admitted``: this start may vote. Every peer that answers has confirmed that this journal is not older than
    the peer's knowledge of it (rule 2). This master waits one round time-out for peers that do not answer, or several
    while none has answered."""

    def __init__(
        self, local: LocalMaster, views: ViewState, outbox: Outbox, recovered: RecoveredState, mono_ms: int
    ) -> None:
        settings = local.settings
        self.local = local
        self.views = views
        self._outbox = outbox
        self.admitted = len(settings.members) == 1
        self.cluster = b""
        self._recovered_learner = recovered.accepted is None and bool(
            recovered.log_start.index or recovered.log_spans or recovered.queued
        )
        """The journal has transactions and no view: they belong to a cluster that this master followed."""
        self._has_lost_journal = settings.last_seen_birth not in (0, local.birth)
        self.must_learn = recovered.accepted is None and (self._recovered_learner or self._has_lost_journal)
        """This master was in a cluster and lost its journal: it founds no other one unless an operator orders it."""
        self._began_ms = mono_ms
        self._asked_ms = -(1 << 60)
        self._forgets = False
        """The operator's override of this process says that a log may be forgotten."""
        self._replies: dict[str, HelloReply] = {}
        self._acceptances: dict[str, View] = {}
        self._members = [tuple(m) for m in settings.members]
        self._bootstrap_members = [m.node for m in settings.members]
        self._resume_override(views.bootstrap_members)
        self._check_last_seen()

    def _resume_override(self, named: list[str]) -> None:
        """Resume an override recorded before this start. It is void if the manifests name other masters since."""
        configured = [m.node for m in self.local.settings.members]
        if named and [node for node in configured if node in named] == named and named[0] == self.local.node:
            self._bootstrap_members = named
            if self._has_lost_journal:  # then it was given only with ``forget``
                self._forgets, self.must_learn = True, False

    def _check_last_seen(self) -> None:
        seen_birth, seen_start = self.local.settings.last_seen_birth, self.local.settings.last_seen_start
        if seen_birth == self.local.birth and seen_start >= self.local.start:
            raise Fatal("OldJournal", f"start {self.local.start}, the supervisor last saw start {seen_start}")

    @property
    def others(self) -> list[str]:
        """The node ids of the configured masters except this one."""
        return [m.node for m in self.views.configured_members if m.node != self.local.node]

    @property
    def _other_bootstrap_members(self) -> list[str]:
        """The masters that view 1 needs besides this one."""
        return [node for node in self._bootstrap_members if node != self.local.node]

    @property
    def _is_coordinator(self) -> bool:
        return self._bootstrap_members[0] == self.local.node

    def order_bootstrap(self, members: list[str], forget: bool = False) -> None:
        """The operator names the masters that bootstrap the cluster (``txlog bootstrap``); the others join when they
        arrive. ``forget``: also if they were in a cluster before, whose log is then forgotten. :class:`Conflict` when
        the override is not valid; nothing is changed then."""
        named = [m.node for m in self.local.settings.members if m.node in members]
        if self.is_bootstrapped or self.cluster:
            raise Conflict("this master belongs to a founded cluster already")
        if not named or self.local.node != named[0]:
            raise Conflict(
                f"{', '.join(named[:1]) or 'no configured master'} comes first among them: give it the order"
            )
        silent = [node for node in named if node != self.local.node and node not in self._replies]
        if silent:
            raise Conflict(f"{', '.join(silent)} did not answer this master yet")
        if self.local.settings.majority and not bootstrap_configuration(self.local.settings).has_majority(named):
            raise Conflict(
                "with splitMode Majority those that begin need more than half of the votes: no other master could join"
            )
        if self._recovered_learner:
            raise Conflict("this master's journal has a part of a cluster's log: give it an empty folder first")
        if self.must_learn and not forget:
            raise Conflict(f"{self.lost_journal_text}; an order has to say that this log is forgotten")
        if self._is_bound:
            assert self.views.accepted is not None
            raise Conflict(f"the founding that {self.views.accepted.coordinator} began may be complete: it is needed")
        self._forgets = forget
        self.must_learn = False
        self._bootstrap_members = self.views.bootstrap_members = named
        self.views.record_overrides()

    @property
    def awaits_order(self) -> bool:
        """This master lost its journal, and no master that answers has the log."""
        return self.must_learn and not self.cluster and self.views.accepted is None and self.views.log_state is None

    @property
    def lost_journal_text(self) -> str:
        """What is known of the lost journal, and which masters may have the log."""
        if self._recovered_learner:
            return "this master followed a cluster, and no master that answers is in it"
        silent = [node for node in self.others if node not in self._replies]
        where = f"{', '.join(silent)} did not answer yet" if silent else "no other master has its log"
        seen = self.local.settings
        return (
            f"this master was in a cluster with the journal {seen.last_seen_birth:016x}, which is lost "
            f"(start {seen.last_seen_start} was seen last); {where}"
        )

    @property
    def _is_bound(self) -> bool:
        """Whether this master accepted another master's bootstrap view and replied: that master may have continued
        with it since."""
        mine = self.views.accepted
        return mine is not None and mine.coordinator != self.local.node

    # Messages of the other masters

    def check_members(self, peer: str, members: list[tuple[str, str, int]]) -> None:
        """Check a peer's members against the manifests, which decide the members before there is a founding record;
        afterwards the log does."""
        if not self.is_bootstrapped and [tuple(m) for m in members] != self._members:
            raise PeerFault(
                peer,
                "OtherMembers",
                f"it is configured with {members}, this master with {self._members}; the list must be the same",
            )

    def on_hello_reply(self, known: HelloReply, own_seq: int, last_stamp: int) -> None:
        """A peer reports its knowledge of this node id; :class:`Fatal` when that exceeds what this journal has. Its
        answer to an earlier process may be older than its knowledge now."""
        if not known.installed and (known.accepted is None or not known.accepted.ancestors):
            self.check_members(known.node, known.members)
        if not any(one.birth == self.local.birth and one.start >= self.local.start for one in known.known_incarnations):
            return
        for heard in known.known_incarnations:
            self._check_incarnation(known, heard, own_seq, last_stamp)
        self._replies[known.node] = known
        if known.accepted is not None and (known.installed or known.accepted.ancestors):
            self._on_bootstrapped_elsewhere(known.accepted, known.installed)
        if set(self._replies) >= set(self.others):
            self.admitted = True

    def _check_incarnation(self, known: HelloReply, heard: KnownIncarnation, own_seq: int, last_stamp: int) -> None:
        view, mine = known.accepted, self.views.accepted
        if heard.birth != self.local.birth:
            its = Origin(self.local.node, heard.birth)
            # The view that readmitted this master proves that its earlier incarnation is known.
            if mine is not None and view is not None and view.has_member(its) and its not in mine.origins:
                raise Fatal(
                    "IdentityLost",
                    f"{known.node} knows this node id with birth {heard.birth:016x}, this journal was born "
                    f"{self.local.birth:016x}: put the newer journal back, or start with an empty folder",
                )
            return
        if heard.start > self.local.start:
            raise Fatal(
                "Superseded", f"{known.node} has heard start {heard.start} of this node, this is {self.local.start}"
            )
        if heard.seq > own_seq or heard.counter > last_stamp:
            raise Fatal(
                "OldJournal",
                f"{known.node} has heard seq {heard.seq}, counter {heard.counter} of this node; "
                f"this journal ends at seq {own_seq}, counter {last_stamp}: it is older than this master's word",
            )

    def _on_bootstrapped_elsewhere(self, view: View, installed: bool) -> None:
        """A later view that descends from view 1 proves its install, though no peer that answers has installed it."""
        mine = self.views.accepted
        if mine is not None and mine.number == view.number:
            if installed:
                self.views.mark_installed()
            return
        if installed and not view.ancestors and view.has_member(Origin(self.local.node, self.local.birth)):
            self._adopt_cluster(view)
            return
        if mine is not None and mine.cluster_id == view.cluster_id and mine.number in view.ancestors:
            return  # it grew from the very view that this master accepted, so that it still knows the log from there
        named = view.has_member(Origin(self.local.node, self.local.birth))
        if named and view.ancestors and not installed and (mine is None or mine.cluster_id != view.cluster_id):
            named = False  # it was to be added, and ended before it accepted: it still is a learner
        if (mine is None or self.views.bootstrap_unconfirmed) and not named:
            self.cluster = view.cluster_id
            self.views.discard_bootstrap_view()

    def _adopt_cluster(self, view: View) -> None:
        """That bootstrap was completed, with this master's acceptance; the one that it accepted since was not."""
        if self.views.bootstrap_unconfirmed:
            self._accept(view)
            self.on_commit(view)

    def on_propose(self, peer: str, view: View, forgets: bool = False) -> None:
        """Accept view 1: it is durable here before the answer leaves. It is not used before the install (rule 21).
        ``forgets``: an operator ordered it also for masters that lost their journals."""
        mine = view.member(self.local.node)
        if mine is None or mine.birth != self.local.birth:
            raise PeerFault(peer, "UnknownBirth", f"it proposes a view with another birth of {self.local.node}")
        proposed = [(m.node, m.data_center, m.weight) for m in view.members]
        if proposed != [m for m in self._members if view.member(str(m[0])) is not None]:
            raise PeerFault(
                peer, "OtherMembers", f"it bootstraps with {proposed}, this master is configured with {self._members}"
            )
        accepted = self.views.accepted
        if accepted is None and (self._recovered_learner or self.views.log_state is not None):
            raise PeerFault(
                peer,
                "OtherCluster",
                "this master follows a cluster that exists; with an empty journal it may join another",
            )
        if accepted is None and self.must_learn and not forgets:
            raise PeerFault(peer, "AwaitingBootstrap", f"{self.lost_journal_text}; txlog bootstrap")
        if accepted is not None and accepted.ancestors and accepted.cluster_id == view.cluster_id:
            return  # sent before this cluster went on to its next view
        if accepted is not None and _is_stale_proposal(view, accepted):
            return
        if accepted is not None and accepted != view and (self.views.installed or accepted.number > view.number):
            return  # the proposer goes on asking until it learns of the bootstrap that was completed
        if accepted != view:
            self._accept(view)
        self._outbox.send(peer, BootstrapAccepted(self.local.node, self.local.birth, view))

    def _accept(self, view: View) -> None:
        self.must_learn = False
        self.views.accept_bootstrap_view(view)
        self._outbox.append(ViewAccepted(view))

    def on_accepted(self, founded: BootstrapAccepted) -> None:
        """A member has accepted view 1, durably."""
        self._acceptances[founded.node] = founded.view

    def on_commit(self, view: View) -> None:
        """Every member has accepted view 1. The first master in order of precedence sends this, or a member that has
        installed it. The view is not used while a higher promise binds (rule 34)."""
        views = self.views
        if views.installed or views.accepted != view or views.promised > view.number:
            return
        views.mark_bootstrap_installed()
        self._outbox.append(ViewInstalled(view.epoch, view.ballot, view.coordinator))

    # The next step

    def poll(self, mono_ms: int) -> None:
        """Send the proposals of view 1 that are due, each repeated until it is answered."""
        rounds = 1 if self._replies else _NO_PEER_ROUNDS
        if (
            self._began_ms + rounds * self.local.settings.round_timeout_ms <= mono_ms
            and self.views.accepted is not None
        ):
            self.admitted = True
        if self.is_bootstrapped or not self._is_coordinator or self.cluster or self._is_bound or self.must_learn:
            return
        due = mono_ms >= self._asked_ms + _REPEAT_MS
        if due:
            self._asked_ms = mono_ms
        self._propose(due)

    @property
    def is_bootstrapped(self) -> bool:
        """View 1 is over: it is installed here, or a later one has been accepted."""
        accepted = self.views.accepted
        return accepted is not None and (self.views.installed or bool(accepted.ancestors))

    @property
    def is_finished(self) -> bool:
        """Whether this start may vote and view 1 is over."""
        return self.admitted and self.is_bootstrapped

    def next_ms(self, mono_ms: int) -> int:
        """When to poll again."""
        return mono_ms + _REPEAT_MS if not self.is_finished else 1 << 60

    def _propose(self, due: bool) -> None:
        if not set(self._replies) >= set(self._other_bootstrap_members):
            return
        if any(
            known.accepted is not None and (known.installed or known.accepted.ancestors)
            for known in self._replies.values()
        ):
            return
        view = self._bootstrap_view()
        if self.views.accepted != view:
            self._accept(view)
            due = True
        waiting = [node for node in self._other_bootstrap_members if self._acceptances.get(node) != view]
        if not waiting:
            self.on_commit(view)
            for node in self._other_bootstrap_members:
                self._outbox.send(node, CommitBootstrap(view))
            return
        if due:
            for node in waiting:
                self._outbox.send(node, ProposeBootstrap(view, self._forgets))

    def _bootstrap_view(self) -> View:
        births = {node: known.birth for node, known in self._replies.items()}
        births[self.local.node] = self.local.birth
        configured = [m for m in self.local.settings.members if m.node in self._bootstrap_members]
        members = [Member(m.node, births[m.node], m.weight, m.data_center) for m in configured]
        accepted = [k.accepted for k in self._replies.values() if k.accepted is not None]
        if self.views.accepted is not None:
            accepted.append(self.views.accepted)
        same = [v for v in accepted if v.members == members]
        above = max((v.ballot + 1 for v in accepted), default=1)
        ballot = max((v.ballot for v in same), default=above)
        if any(v.number > (1, ballot, self.local.node) for v in accepted if v.members != members):
            ballot = above  # else a master that has accepted that one would ignore this
        first, mine = self._bootstrap_configuration(), self.views.accepted
        same_again = ((1, ballot, self.local.node), members, first)
        if mine is not None and (mine.number, mine.members, mine.bootstrap_configuration) == same_again:
            return mine  # proposed before; a master may prefer another strategy since
        prefers = [
            self.local.settings.strategy if m.node == self.local.node else self._preferred_strategy(m.node)
            for m in members
        ]
        level = min([PROTOCOL_LEVEL, *(self._replies[node].level for node in self._other_bootstrap_members)])
        strategy = min(prefers, key=STRATEGIES.index)
        return bootstrap_view(ballot, self.local.node, members, strategy, first, prefers, level)

    def _bootstrap_configuration(self) -> Configuration:
        """That of the manifests. Literals are kept as they were sent only where every founder's stores can: one engine
        that cannot would make its stores differ from the others (rule 20)."""
        mine = bootstrap_configuration(self.local.settings)
        others = [self._replies[node].keeps_literals for node in self._other_bootstrap_members]
        return msgspec.structs.replace(mine, keeps_literals=mine.keeps_literals and all(others))

    def _preferred_strategy(self, node: str) -> str:
        """The strategy that this member prefers; this master's own preference where the member's version does not
        report one."""
        preferred = self._replies[node].prefers
        return preferred if preferred in STRATEGIES else self.local.settings.strategy


def _is_stale_proposal(founding: View, accepted: View) -> bool:
    """Whether the founder of this cluster proposed it earlier: another bootstrap that it gave up for an override."""
    first = accepted.ancestors[0] if accepted.ancestors else accepted.number
    return first[2] == founding.coordinator and first > founding.number
