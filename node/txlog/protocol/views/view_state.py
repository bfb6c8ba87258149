"""The view of this master, its promises, and its knowledge of the other masters.

Nothing here decides: ``participant.py`` and ``coordinator.py`` agree on views, and ``view_policy.py`` decides when to
propose one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from txlog.model.configuration import Configuration, Master
from txlog.model.errors import Conflict, PeerFault
from txlog.model.ids import Origin
from txlog.model.records import OperatorOverrides, RecoveredState, ViewLeft, ViewPromised
from txlog.model.view import LEARNER_STAMPS, NO_VIEW, Member, Number, View
from txlog.protocol.events import ConfiguredMember, ProtocolSettings
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.log.log_state import LogState
from txlog.protocol.outbox import Outbox
from txlog.protocol.replication.failure_detector import FailureDetector
from txlog.protocol.views.candidate_checks import check_admissible
from txlog.protocol.views.needed_transactions import NeededTransactions
from txlog.protocol.views.view_change import ViewChange, ViewChangeEvent, departure_applies, has_override
from txlog.wire.messages import AcceptView, Departure, Hello, HelloReply, LeaveNotice

SILENCE_WINDOW_TERMS: Final = 4
"""Silence adds up: a member that was silent for more than half of so many terms is silent beyond its term."""
SILENT_ROUNDS: Final = 3
"""``Majority``: how long a member may be silent before the next view excludes it, in round time-outs."""
UNCONFIRMED_PROOF_RETRY_MS: Final = 30_000
"""A proof of *down* that no member could confirm is not tried again for this many milliseconds."""
PROPOSAL_TIMEOUT_ROUNDS_MAX: Final = 8
"""Limit of a proposal's time-out, in round time-outs. Each failed proposal is followed by one with a longer
time-out."""
FOREVER_MS: Final = 1 << 60


def _supersedes(later: Departure, before: Departure) -> bool:
    """Whether the later statement replaces the earlier one. A process that has left its view ends next and is proved
    down. That proof is weaker, since a member has to confirm it."""
    if before.birth == later.birth and before.start == later.start and before.why == "left":
        return later.why != "down"
    return before.birth != later.birth or before.start <= later.start


def bootstrap_configuration(settings: ProtocolSettings) -> Configuration:
    """The configuration of the manifests. It is the cluster's until the founding record exists, and part of that."""
    masters = [Master(m.node, m.data_center, m.weight) for m in settings.members]
    return Configuration(masters, settings.majority, settings.key_retention_ms, graphs=list(settings.graphs))


class ViewState:
    """``accepted``: the latest view, durable; ``installed``: every member of it has accepted. ``promised``: this master
    never works again in a view below it. ``left``: the view that this master has left. ``newer_view``: a view installed
    elsewhere that excludes this master, which has to rejoin. ``blocked_reason``: why no view change begins although
    one is needed."""

    def __init__(
        self, local: LocalMaster, recovered: RecoveredState, failure_detector: FailureDetector, outbox: Outbox
    ) -> None:
        self.local = local
        self.failure_detector = failure_detector
        self.outbox = outbox
        self.accepted = recovered.accepted
        self.installed = recovered.installed is not None
        self.promised = recovered.promised
        self.left = recovered.left
        self.highest_seen = max(self.promised, self.number)
        self.log_state: LogState | None = None
        self.change: ViewChange | None = None
        self.departures: dict[str, Departure] = {}
        """Departures that members announced, and departures that are proved, by node."""
        self.overrides: dict[str, Departure] = {
            node: Departure(node, birth, start, "ordered")
            for node, birth, start in recovered.overrides.excluded_members
        }
        """Members that the operator excludes, by node. Kept beside announced and proved departures: none of these
        replaces another."""
        self.bootstrap_members = recovered.overrides.bootstrap_members
        """The masters that bootstrap the cluster by the operator's override; empty without one."""
        self.given_up_votes: frozenset[str] = frozenset()
        """Masters whose votes an operator has given up, until a view is quorate again."""
        self.newer_view: View | None = None
        self.other_branches: dict[str, View] = {}
        """Other branches, by the node that reports one."""
        self.backup_index = -1
        """A verified backup of a worker is at this index of the log; -1 without one."""
        self.blocked_reason = ""
        self.needs_check = True
        """Something happened that may call for a view change: the core lets the policy decide at the next poll."""
        self.hellos: dict[str, Hello] = {}
        self._recorded_overrides = recovered.overrides
        self.last_starts: dict[Origin, int] = {}
        self.last_views: dict[str, Number] = {}
        self.newer_view_members: set[str] = set()
        self.unlisted_by: set[str] = set()
        """Peers that do not list this master: they were on another branch when it was added, and refuse its
        messages."""
        self.confirmed_starts: dict[Origin, int] = {}
        self.branch_holders: dict[str, dict[Origin, int]] = {}
        self.pending_accept: AcceptView | None = None
        self.accept_sender = ""
        self.needed = NeededTransactions()
        self.propose_after_ms = FOREVER_MS
        self.attempts = 0
        self.failed_members: list[Member] = []
        """With these members, the reports did not suffice for a view that this master coordinates. Another coordinator,
        with more knowledge or an override, may succeed."""
        self.unconfirmed_proofs: dict[Departure, int] = {}
        self.fetched_since_hello = 0
        """Transactions that were fetched for the next view since this master's last hello."""

    # The view

    @property
    def number(self) -> Number:
        """The number of the latest accepted view; ``NO_VIEW`` without one."""
        return self.accepted.number if self.accepted is not None else NO_VIEW

    @property
    def origin(self) -> Origin:
        """This master's node id and incarnation."""
        return self.local.origin

    @property
    def is_stopped(self) -> bool:
        """This master has sent a report or left the view: the view is never resumed."""
        return self.promised > self.number or (self.left != NO_VIEW and self.left == self.number)

    def end_change(self, event: ViewChangeEvent) -> None:
        """The view change that this master coordinates, if any, is over."""
        if self.change is not None:
            self.change.on_event(event)
            self.change = None

    @property
    def stamps_view(self) -> Number:
        """The view whose stamps the persisted transactions have. A stopped view may have persisted others since. A
        learner has those of any view that it fetched from."""
        if self.accepted is None and not self.is_stopped:
            return LEARNER_STAMPS
        return self.promised if self.is_stopped else self.number

    def promise(self, number: Number) -> None:
        """Never work again in a view below ``number``; durable before anything else leaves."""
        assert number > self.promised
        self.promised = number
        self.pending_accept = None
        self.outbox.append(ViewPromised(*number))

    @property
    def is_active(self) -> bool:
        """Installed and not stopped: posts are sent and merged, and the log grows."""
        return self.accepted is not None and self.installed and not self.is_stopped

    @property
    def is_settled(self) -> bool:
        """No question is pending: the view is active, and no master is known to wait for another view."""
        quiet = self.newer_view is None and not self.other_branches and self.change is None
        return self.is_active and quiet and self.propose_after_ms == FOREVER_MS

    @property
    def bootstrap_unconfirmed(self) -> bool:
        """A founding record is persisted, and no member is known to have started with it."""
        return self.accepted is not None and not self.installed and not self.accepted.ancestors

    def discard_bootstrap_view(self) -> None:
        """The cluster was bootstrapped without this master: the other founding record that it kept is void."""
        self.accepted = None

    def accept_bootstrap_view(self, view: View) -> None:
        """View 1 is durable here."""
        self.accepted = view
        self.installed = False
        self.promised = max(self.promised, view.number)
        self.highest_seen = max(self.highest_seen, view.number)

    def observe_number(self, number: Number) -> None:
        """A view of this number was proposed or is active somewhere: the next proposal lies above it."""
        self.highest_seen = max(self.highest_seen, number)

    def record_backup(self, index: int) -> None:
        """A verified backup of a worker is at this index of the log."""
        self.backup_index = max(self.backup_index, index)

    def forget_backup(self) -> None:
        """No member is silent: the next split needs a backup of its own."""
        self.backup_index = -1

    def mark_bootstrap_installed(self) -> None:
        """Every member has accepted view 1, which is the accepted one."""
        self.installed = True

    def mark_installed(self) -> None:
        """A member works in the accepted view, or reports that all have accepted it. The view is not used while a
        higher promise binds (rule 34)."""
        if self.installed or self.promised != self.number or self.log_state is None:
            return
        self.installed = True
        self.propose_after_ms = FOREVER_MS
        self.attempts = 0
        if self.accepted is not None and all(self.accepted.has_member(m.origin) for m in self.failed_members):
            self.failed_members = []  # else it would fail with them again, before one who knows more has its turn
        self.log_state.install_view()

    @property
    def majority_required(self) -> bool:
        """``splitMode: Majority`` binds the next view."""
        if self.accepted is None or self.accepted.bootstrap_configuration is None:
            return self.local.settings.majority
        return self.accepted.is_majority(self.installed)

    @property
    def configured_members(self) -> tuple[ConfiguredMember, ...]:
        """The masters of the cluster, in order of precedence: from the stable part of the log or, before there is a
        log, from the manifests."""
        agreement = self.log_state
        members = agreement.configurations.at_index(agreement.stable).members if agreement is not None else ()
        return members or self.local.settings.members

    @property
    def joint_configurations(self) -> list[Configuration]:
        """The configuration in force and every one that may follow: a majority has to be one under each (rule 20)."""
        agreement = self.log_state
        if agreement is not None and agreement.configurations.latest.masters:
            return agreement.configurations.joint_configurations(agreement.stable)
        return [bootstrap_configuration(self.local.settings)]

    def is_majority(self, nodes: list[str]) -> bool:
        return all(one.has_majority(nodes) for one in self.joint_configurations)

    @staticmethod
    def allowed_by_override(
        nodes: list[str], gone: list[Departure], view: View | None, jointly: list[Configuration]
    ) -> bool:
        """Whether the operator's override lets these members continue after ``view`` without a majority. The override
        names the members that may be missing. Of the members that it does not name, and that have not lost their
        state, these must be more than half. A member that is only silent may belong to a majority elsewhere."""
        if view is None or not has_override(gone):
            return False
        without = {(one.node, one.birth) for one in gone if one.why in ("ordered", "lost")}
        rest = [m.node for m in view.members if m.origin not in without]
        return all(one.has_majority(nodes, rest) for one in jointly)

    @staticmethod
    def extends_forced_view(there: set[Origin], gone: list[Departure], view: View | None, installed: bool) -> bool:
        """``Majority``: a forced view continues without a majority if it only grows. It adds members, even ones that
        lost their disks, when all its members are present and none is excluded. A member that it was to add and that
        has not accepted it counts as one of its members. Without that member's acceptance no master has continued.
        So a view that the override itself began is begun again. ``installed``: a member reports that all have
        accepted."""
        if view is None or gone:
            return False
        if not (view.is_forced(installed) or (view.excluded_by_override and not installed)):
            return False
        return all(m.origin in there for m in view.members)

    def is_configured(self, node: str) -> bool:
        """Whether this node is a master of the cluster, or becomes one if a pending change takes effect."""
        return any(one.master(node) is not None for one in self.joint_configurations)

    def includes_all_configured(self, nodes: Iterable[str]) -> bool:
        """Whether every master that may know more than these is one of them. Knowledge on a lost disk is gone."""
        return {m.node for m in self.configured_members} <= set(nodes)

    @property
    def proposal_timeout_ms(self) -> int:
        """Without growing time-outs, two coordinators on slow disks would outbid each other for ever."""
        return self.local.settings.round_timeout_ms * min(1 + self.attempts // 2, PROPOSAL_TIMEOUT_ROUNDS_MAX)

    # Presence of the other masters

    @property
    def departing(self) -> dict[str, Departure]:
        """Members that the next view excludes, by node, with the reason. An override precedes every other reason."""
        return {**self.departures, **self.overrides}

    def is_reachable(self, member: Member) -> bool:
        """Whether the member is reachable, directly or through others. Messages of a new incarnation of its node do not
        count."""
        return not self.is_identity_lost(member.origin) and member.node in self.failure_detector.reachable()

    def is_identity_lost(self, origin: Origin) -> bool:
        """Whether the node has reported that this incarnation is lost. Later messages of the node come from another
        incarnation."""
        departure = self.departures.get(origin.node)
        return departure is not None and departure.why == "lost" and departure.birth == origin.birth

    def on_hello(self, who: Hello) -> None:
        """A master reports its position and view."""
        if who.cluster and self.accepted is not None and who.cluster != self.accepted.cluster_id:
            raise PeerFault(who.node, "OtherCluster", f"its cluster is {who.cluster.hex()}")
        self.failure_detector.on_direct_peers(who.node, who.peers_heard)
        self.failure_detector.on_relayed_connectivity(who.relayed_peers_heard, who.ages_ms)
        origin = Origin(who.node, who.birth)
        member = self.accepted.member(who.node) if self.accepted is not None else None
        if member is not None and member.birth != who.birth:
            assert self.accepted is not None
            if (who.node, who.birth) in self.accepted.origins:
                raise PeerFault(who.node, "OldBirth", f"birth {who.birth:016x} was followed by {member.birth:016x}")
            self.departures[who.node] = Departure(who.node, member.birth, 0, "lost")
        self.last_views[who.node] = who.view
        self.record_start(origin, who.start)
        self.hellos.pop(who.node, None)
        check_admissible(self.accepted, who)
        self.hellos[who.node] = who

    def on_hello_reply(self, known: HelloReply) -> None:
        """A master reports its view."""
        self.failure_detector.on_reply(known.node)
        self.record_start(Origin(known.node, known.birth), known.start)
        view = known.accepted
        self.last_views[known.node] = view.number if view is not None else NO_VIEW
        self._record_listing(known)
        self._update_newer_view_members(known.node, view)
        if view is None:
            self.other_branches.pop(known.node, None)
            return
        self.highest_seen = max(self.highest_seen, view.number)
        if not known.installed and not (self.accepted is None and view.ancestors):
            return  # one without a view fetches from wherever the next one can come from
        if view.number == self.number:
            self.mark_installed()
            return
        mine = self.accepted
        if view.has_member(self.origin) or (mine is not None and mine.descends_from(view.number)):
            self.other_branches.pop(known.node, None)
            return
        if (
            mine is None
            or view.descends_from(mine.number)
            or (self.majority_required and not self._either_is_forced(view))
        ):
            if view.number <= self.number or (self.newer_view is not None and view.number < self.newer_view.number):
                return
            self._follow_newer_view(view, known.node)
        elif self.majority_required and self._loses_to(view):
            self._follow_newer_view(view, known.node)
        else:
            self.other_branches[known.node] = view
        origins = [Origin(*one) for one in view.origins]
        self.branch_holders[known.node] = dict(zip(origins, known.held, strict=False))

    def _record_listing(self, known: HelloReply) -> None:
        node, theirs, view = self.local.node, known.configuration, known.accepted
        if theirs is not None and theirs.master(node) is None and (view is None or view.member(node) is None):
            self.unlisted_by.add(known.node)
        else:
            self.unlisted_by.discard(known.node)

    def _update_newer_view_members(self, node: str, view: View | None) -> None:
        """Forget ``newer_view`` once no reachable peer is in it or in a descendant of it: the last such peer may have
        lost its disk."""
        ahead = self.newer_view
        if ahead is None:
            return
        if view is not None and view.is_or_descends_from(ahead.number):
            self.newer_view_members.add(node)
        else:
            self.newer_view_members.discard(node)
        if not self.newer_view_members:
            self.newer_view = None

    def _follow_newer_view(self, view: View, node: str) -> None:
        self.newer_view, self.newer_view_members = view, {node}

    def _either_is_forced(self, view: View) -> bool:
        """``Majority``: an override began one of the two views, so both may have continued."""
        mine = self.accepted
        return mine is not None and (mine.is_forced(self.installed) or view.is_forced(True))

    def _loses_to(self, view: View) -> bool:
        """Whether this view loses, by the rule that chooses the surviving view (``branch_selection.py``)."""
        mine = self.accepted
        assert mine is not None
        return view.precedence(True) > mine.precedence(self.installed)

    @property
    def candidates(self) -> list[Hello]:
        """The hellos of masters outside the view since the latest view was accepted."""
        return list(self.hellos.values())

    def candidate(self, node: str) -> Hello | None:
        """The latest hello of that node, if it is outside the view; None without one."""
        return self.hellos.get(node)

    def record_start(self, origin: Origin, start: int) -> None:
        """This process of the origin sent a message itself; departures of an earlier process are void."""
        if start > self.last_starts.get(origin, 0):
            self.last_starts[origin] = start
        departure = self.departures.get(origin.node)
        if departure is None or departure.birth != origin.birth or departure.why == "lost":
            return
        if departure.start < start:
            del self.departures[origin.node]

    def last_start_seen(self, origin: Origin) -> int:
        """The latest start of the origin that was seen; 0 for none."""
        return self.last_starts.get(origin, 0)

    def record_confirmed_start(self, origin: Origin, start: int) -> None:
        """This process of the origin posts in this view and has received from this process. It has not excluded this
        master until now, and will not do so for a proof about an earlier process."""
        if start > self.confirmed_starts.get(origin, 0):
            self.confirmed_starts[origin] = start

    def on_leaving(self, leaving: LeaveNotice) -> None:
        """The member is durably stopped and ends."""
        self.failure_detector.on_reply(leaving.node)
        self.record_start(Origin(leaving.node, leaving.birth), leaving.start)
        if leaving.view <= self.number:  # one who left a later view leaves something behind that is not known here
            self._record_departure(Departure(leaving.node, leaving.birth, leaving.start, "left"))

    def report_down(self, node: str, birth: int, start: int) -> None:
        """The supervisor has proved that this process is gone. :class:`Conflict` when a later process was seen."""
        heard = self.last_starts.get(Origin(node, birth), 0)
        if heard > start:
            raise Conflict(f"{node} start {start} may be gone, but start {heard} was seen: it is not down")
        self._record_departure(Departure(node, birth, start, "down"))

    def force_view(self, without: list[str]) -> None:
        """The operator excludes these members, whatever is missing then (protocol section 3, ``txlog force-view``).
        :class:`Conflict` when one of them is reachable or is no member; nothing is changed then."""
        members = [self.accepted.member(node) for node in without] if self.accepted is not None else []
        for node, member in zip(without, members, strict=False):
            if member is None:
                raise Conflict(f"{node} is no member of this master's view {self.number}")
            if node == self.local.node:
                raise Conflict(f"{node} was asked itself: it is not gone; ask one that stays")
            if self.is_reachable(member):
                where = (
                    "this master"
                    if self.failure_detector.is_bidirectional(node)
                    else "others, which answer this master"
                )
                raise Conflict(f"{node} answers {where}: stop its process first, it leaves by itself then")
        if not members:
            raise Conflict("this master has no view yet; see txlog bootstrap")
        for member in members:
            assert member is not None
            heard = self.last_starts.get(member.origin, 0)
            self.overrides[member.node] = Departure(member.node, member.birth, heard, "ordered")
        self.failed_members = []
        self.record_overrides()

    def record_overrides(self) -> None:
        """Record all overrides that have had no effect yet, if they differ from those in the journal. The journal drops
        what an accept or an install completes with the record of that step. Otherwise a crash could keep one without
        the other."""
        now = OperatorOverrides(
            self.bootstrap_members, [(one.node, one.birth, one.start) for one in self.overrides.values()]
        )
        before = self._recorded_overrides
        if self.accepted is not None:
            now, before = (one.remaining_after(self.accepted, self.installed) for one in (now, before))
        if now != before:
            self.outbox.append(now)
        self._recorded_overrides = now

    def _record_departure(self, departure: Departure) -> None:
        member = self.accepted.member(departure.node) if self.accepted is not None else None
        if departure.node == self.local.node or member is None:
            return
        if departure_applies(departure, member, self.last_starts.get(member.origin, 0)):
            before = self.departures.get(departure.node)
            if before is None or _supersedes(departure, before):
                self.departures[departure.node] = departure

    def held_seq(self, origin: Origin) -> int:
        queue = self.log_state.by_origin.get(origin) if self.log_state is not None else None
        return queue.held if queue is not None else 0

    # Leaving

    def leave_view(self) -> None:
        """Stop this master in its view for good."""
        self.end_change(ViewChangeEvent.SUPERSEDED)
        self.pending_accept = None
        if self.accepted is not None and self.left != self.number:
            self.left = self.number
            self.outbox.append(ViewLeft(*self.number))

    def leave_notice(self) -> LeaveNotice:
        """The notice that this master sends when it leaves its view."""
        return LeaveNotice(self.local.node, self.local.birth, self.local.start, self.left)

    @property
    def is_isolated(self) -> bool:
        """Whether a configured master is out of the view because it was silent."""
        return self.accepted is not None and bool(self.accepted.silent_members)
