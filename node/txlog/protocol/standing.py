"""Which view this master is in, what it has promised, and what it has heard of the others.

Nothing here agrees to anything: ``membership.py`` does that, and ``views.py`` says when to ask for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from txlog.model.configuration import Configuration, Master
from txlog.model.errors import Conflict, PeerFault
from txlog.model.ids import Origin
from txlog.model.records import Left, Orders, Promised, Record, Recovered
from txlog.model.view import NO_VIEW, Member, Number, View
from txlog.protocol.agreement import Agreement
from txlog.protocol.changes import Change, fits, is_ordered
from txlog.protocol.events import ConfiguredMember, Settings
from txlog.protocol.surroundings import Surroundings
from txlog.wire.messages import AcceptView, Departure, Hello, HelloReply, LeaveNotice, Message, ViewReport

CAUGHT_UP: Final = 1000
"""Transactions that a master outside may still lack when the view is stopped to let it in: well below a second."""
SILENT_ROUNDS: Final = 3
"""``Majority``: a member's term, in round time-outs."""
UNVOUCHED_MS: Final = 30_000
"""A proof of *down* that nobody could vouch for is not tried again for so long."""
PATIENCE_MAX: Final = 8
"""Round time-outs that a proposal is given at most; each that fails is followed by a more patient one."""
NEVER: Final = 1 << 60


def _is_more(later: Departure, before: Departure) -> bool:
    """Whether what is heard now counts instead. A process that has left its view ends next, and is proved down: that
    says less, since somebody has to vouch for it."""
    if before.birth == later.birth and before.start == later.start and before.why == "left":
        return later.why != "down"
    return before.birth != later.birth or before.start <= later.start


def first_configuration(settings: Settings) -> Configuration:
    """What the manifests say; it is that of the cluster until the founding record, and in it."""
    masters = [Master(m.node, m.data_center, m.weight) for m in settings.members]
    return Configuration(masters, settings.majority, settings.key_retention_ms)


class Standing:
    """``accepted``: the latest view, durable; ``installed``: everybody in it has accepted. ``promised``: no view below
    it is worked in any more. ``left``: the view that this master has left. ``ahead``: a view installed elsewhere that
    this master is not in; it has to be taken in again. ``holding``: why no change is begun although one is wanted."""

    def __init__(self, settings: Settings, recovered: Recovered, around: Surroundings) -> None:
        self.settings = settings
        self.around = around
        self.birth = recovered.birth
        self.start = recovered.start
        self.accepted = recovered.accepted
        self.installed = recovered.installed is not None
        self.promised = recovered.promised
        self.left = recovered.left
        self.highest = max(self.promised, self.number)
        self.agreement: Agreement | None = None
        self.change: Change | None = None
        self.departures: dict[str, Departure] = {}
        """What members said themselves, and what is proved of them, by node."""
        self.orders: dict[str, Departure] = {
            node: Departure(node, birth, start, "ordered") for node, birth, start in recovered.orders.without
        }
        """Whom the operator lets go, by node. Beside what is said and proved: none of these replaces another."""
        self.begin_with = recovered.orders.begin
        """Who begins the cluster by the operator's order; empty without one."""
        self.ahead: View | None = None
        self.apart: dict[str, View] = {}
        """Other branches, by the node that tells of one."""
        self.backup_at = -1
        """A verified backup of a worker stands at this index of the log."""
        self.holding = ""
        self.records: list[Record] = []
        self.sends: list[tuple[str, Message]] = []
        self.changed = False
        """The view was accepted or installed since the core looked."""
        self._candidates: dict[str, Hello] = {}
        self._ordered = recovered.orders
        self._starts: dict[Origin, int] = {}
        self._seen: dict[str, Number] = {}
        self._know_ahead: set[str] = set()
        self._unlisted_by: set[str] = set()
        """To whom this master is none: they were on another branch when it was added, and do not listen to it."""
        self._beyond: dict[tuple[str, str], tuple[int, int]] = {}
        """When proposals were refused, first and last, by their coordinator and whom they left out without hearing."""
        self._working: dict[Origin, int] = {}
        self._holders: dict[str, dict[Origin, int]] = {}
        self._reported: ViewReport | None = None
        self._incoming: AcceptView | None = None
        self._from = ""
        self._wish_ms = NEVER
        self._tries = 0
        self._failed_with: list[Member] = []
        """With these, what was reported did not do for a view that this master begins; another one, who knows more or
        has an order, may be able to."""
        self._asked: tuple[str, int, int] = ("", 0, 0)
        self._asked_ms = -NEVER
        self._turn = 0
        self._missing = (0, -NEVER)
        self._unvouched: dict[Departure, int] = {}

    # What it is in

    @property
    def number(self) -> Number:
        return self.accepted.number if self.accepted is not None else NO_VIEW

    @property
    def origin(self) -> Origin:
        return Origin(self.settings.node, self.birth)

    @property
    def stopped(self) -> bool:
        """A report was given, or the view was left: it is never resumed."""
        return self.promised > self.number or (self.left != NO_VIEW and self.left == self.number)

    def _promise(self, number: Number) -> None:
        assert number > self.promised
        self.promised = number
        self._incoming = None
        self.records.append(Promised(*number))

    @property
    def at_work(self) -> bool:
        """Installed and not stopped: posts are sent and merged, and the log grows."""
        return self.accepted is not None and self.installed and not self.stopped

    @property
    def is_settled(self) -> bool:
        """Nothing has to be asked: at work, and nobody is known to wait for another view."""
        quiet = self.ahead is None and not self.apart and self.change is None
        return self.at_work and quiet and self._wish_ms == NEVER

    @property
    def unfounded(self) -> bool:
        """A founding record is held that nobody is known to have begun with."""
        return self.accepted is not None and not self.installed and not self.accepted.history

    def forget_founding(self) -> None:
        """The cluster was founded without this master: what was held of another founding never came about."""
        self.accepted = None

    def take_founding(self, view: View) -> None:
        """View 1 is durable here."""
        self.accepted = view
        self.installed = False
        self.promised = max(self.promised, view.number)
        self.highest = max(self.highest, view.number)

    def learn_installed(self) -> None:
        """Somebody works in the accepted view, or says that all have accepted it; no use of it while a higher promise
        binds (rule 34)."""
        if self.installed or self.promised != self.number or self.agreement is None:
            return
        self.installed = True
        self.changed = True
        self._wish_ms = NEVER
        self._tries = 0
        if self.accepted is not None and all(self.accepted.has(m.origin) for m in self._failed_with):
            self._failed_with = []  # else it would fail with them again, before one who knows more has its turn
        self.agreement.install()

    @property
    def majority(self) -> bool:
        """``splitMode: Majority`` binds the next view."""
        if self.accepted is None or self.accepted.founding is None:
            return self.settings.majority
        return self.accepted.is_majority(self.installed)

    @property
    def configured(self) -> tuple[ConfiguredMember, ...]:
        """The masters of the cluster, in order of precedence: as the log says where it is stable, or, before there is
        one, as the manifests do."""
        agreement = self.agreement
        members = agreement.configurations.place(agreement.stable).members if agreement is not None else ()
        return members or self.settings.members

    @property
    def jointly(self) -> list[Configuration]:
        """The configuration in force, and every one that may follow: a majority is one under each (rule 20)."""
        agreement = self.agreement
        if agreement is not None and agreement.configurations.last.masters:
            return agreement.configurations.jointly(agreement.stable)
        return [first_configuration(self.settings)]

    def _is_majority(self, nodes: list[str]) -> bool:
        return all(one.has_majority(nodes) for one in self.jointly)

    @staticmethod
    def _by_order(nodes: list[str], gone: list[Departure], view: View | None, jointly: list[Configuration]) -> bool:
        """Whether the operator's order lets these go on after ``view`` with no majority. It names what may be missing:
        of the members that it does not name, and that have not lost their state, these are more than half. Who is only
        not heard may be a majority elsewhere."""
        if view is None or not is_ordered(gone):
            return False
        without = {(one.node, one.birth) for one in gone if one.why in ("ordered", "lost")}
        rest = [m.node for m in view.members if m.origin not in without]
        return all(one.has_majority(nodes, rest) for one in jointly)

    @staticmethod
    def _only_grows(there: set[Origin], gone: list[Departure], view: View | None, installed: bool) -> bool:
        """``Majority``: a view that was begun by order goes on without a majority as it is. It lets others in, who may
        have lost their disks, when all its members are among these and nobody is left out. Who was to be let in by it
        and has not accepted it is one of them: without that word nobody has gone on, and one that the order itself has
        begun is begun again. ``installed``: one of these says that all have."""
        if view is None or gone:
            return False
        if not (view.is_by_order(installed) or (view.forced and not installed)):
            return False
        return all(m.origin in there for m in view.members)

    def is_configured(self, node: str) -> bool:
        """Whether this is a master of the cluster, or one soon, if what is pending takes effect."""
        return any(one.master(node) is not None for one in self.jointly)

    def _all_here(self, nodes: Iterable[str]) -> bool:
        """Whoever may know more than these is one of them; what a lost disk knew besides, nobody knows any more."""
        return {m.node for m in self.configured} <= set(nodes)

    @property
    def _patience_ms(self) -> int:
        """Two coordinators on a slow disk would outbid each other for ever."""
        return self.settings.round_timeout_ms * min(1 + self._tries // 2, PATIENCE_MAX)

    # Who is there

    @property
    def going(self) -> dict[str, Departure]:
        """Members of the view that the next one is to do without, by node, and why; an order before all else."""
        return {**self.departures, **self.orders}

    def _is_there(self, member: Member) -> bool:
        """Whether it is reached, itself or through others. What is heard of a new birth of its node is not it."""
        return not self._is_lost(member.origin) and member.node in self.around.reachable()

    def _is_lost(self, origin: Origin) -> bool:
        """Its node has said that this birth is no more; what is heard of that node since is another."""
        departure = self.departures.get(origin.node)
        return departure is not None and departure.why == "lost" and departure.birth == origin.birth

    def on_who(self, who: Hello) -> None:
        """A master says where it is."""
        if who.cluster and self.accepted is not None and who.cluster != self.accepted.cluster_id:
            raise PeerFault(who.node, "OtherCluster", f"its cluster is {who.cluster.hex()}")
        self.around.hears(who.node, who.peers_heard)
        self.around.hears_of(who.relayed_peers_heard, who.ages_ms)
        origin = Origin(who.node, who.birth)
        member = self.accepted.member(who.node) if self.accepted is not None else None
        if member is not None and member.birth != who.birth:
            assert self.accepted is not None
            if (who.node, who.birth) in self.accepted.origins:
                raise PeerFault(who.node, "OldBirth", f"birth {who.birth:016x} was followed by {member.birth:016x}")
            self.departures[who.node] = Departure(who.node, member.birth, 0, "lost")
        self._candidates[who.node] = who
        self._seen[who.node] = who.view
        self.heard_start(origin, who.start)

    def on_known(self, known: HelloReply) -> None:
        """A master tells its view."""
        self.around.answered(known.node)
        self.heard_start(Origin(known.node, known.birth), known.start)
        view = known.accepted
        self._seen[known.node] = view.number if view is not None else NO_VIEW
        self._note_listed(known)
        self._forget_ahead(known.node, view)
        if view is None:
            self.apart.pop(known.node, None)
            return
        self.highest = max(self.highest, view.number)
        if not known.installed and not (self.accepted is None and view.history):
            return  # one without a view fetches from wherever the next one can come from
        if view.number == self.number:
            self.learn_installed()
            return
        mine = self.accepted
        line = mine.history if mine is not None else []
        if view.has(self.origin) or view.number == self.number or view.number in line:
            self.apart.pop(known.node, None)
            return
        if mine is None or mine.number in view.history or (self.majority and not self._by_order_beside(view)):
            if view.number <= self.number or (self.ahead is not None and view.number < self.ahead.number):
                return
            self._go_after(view, known.node)
        elif self.majority and self._gives_way_to(view):
            self._go_after(view, known.node)
        else:
            self.apart[known.node] = view
        origins = [Origin(*one) for one in view.origins]
        self._holders[known.node] = dict(zip(origins, known.held, strict=False))

    def _note_listed(self, known: HelloReply) -> None:
        node, told, view = self.settings.node, known.configuration, known.accepted
        if told is not None and told.master(node) is None and (view is None or view.member(node) is None):
            self._unlisted_by.add(known.node)
        else:
            self._unlisted_by.discard(known.node)

    def _forget_ahead(self, node: str, view: View | None) -> None:
        """When the disk of the last one is lost that was in it, or in one that has grown from it."""
        ahead = self.ahead
        if ahead is None:
            return
        if view is not None and ahead.number in view.chain:
            self._know_ahead.add(node)
        else:
            self._know_ahead.discard(node)
        if not self._know_ahead:
            self.ahead = None

    def _go_after(self, view: View, node: str) -> None:
        self.ahead, self._know_ahead = view, {node}

    def _by_order_beside(self, view: View) -> bool:
        """``Majority``: one of the two was begun by order, so that both may have gone on."""
        mine = self.accepted
        return mine is not None and (mine.is_by_order(self.installed) or view.is_by_order(True))

    def _gives_way_to(self, view: View) -> bool:
        """As the view that goes on is chosen (``branches.py``)."""
        mine = self.accepted
        assert mine is not None
        return view.precedence(True) > mine.precedence(self.installed)

    @property
    def candidates(self) -> list[Hello]:
        """What those who looked around have said since the latest view was accepted."""
        return list(self._candidates.values())

    def candidate(self, node: str) -> Hello | None:
        return self._candidates.get(node)

    def heard_start(self, origin: Origin, start: int) -> None:
        """This process of it was heard itself; what was said of an earlier one is no more."""
        if start > self._starts.get(origin, 0):
            self._starts[origin] = start
        departure = self.departures.get(origin.node)
        if departure is None or departure.birth != origin.birth or departure.why == "lost":
            return
        if departure.start < start:
            del self.departures[origin.node]

    def heard_start_of(self, origin: Origin) -> int:
        """The latest start of it that was heard; 0 for none."""
        return self._starts.get(origin, 0)

    def heard_working(self, origin: Origin, start: int) -> None:
        """This process of it posts in this view, and has heard this process: it has not let this master go until now,
        and will not for a proof about an earlier process."""
        if start > self._working.get(origin, 0):
            self._working[origin] = start

    def on_leaving(self, leaving: LeaveNotice) -> None:
        """It is durably stopped and ends."""
        self.around.answered(leaving.node)
        self.heard_start(Origin(leaving.node, leaving.birth), leaving.start)
        if leaving.view <= self.number:  # one who left a later view leaves something behind that is not known here
            self._depart(Departure(leaving.node, leaving.birth, leaving.start, "left"))

    def prove_down(self, node: str, birth: int, start: int) -> None:
        """The supervisor has proved that this process is gone. :class:`Conflict` when a later one was heard."""
        heard = self._starts.get(Origin(node, birth), 0)
        if heard > start:
            raise Conflict(f"{node} start {start} may be gone, but start {heard} was heard: it is not down")
        self._depart(Departure(node, birth, start, "down"))

    def force(self, without: list[str]) -> None:
        """The operator lets these members go, whatever is missing then (protocol section 3, ``txlog force-view``).
        :class:`Conflict` when one of them is heard or is no member; nothing is changed then."""
        members = [self.accepted.member(node) for node in without] if self.accepted is not None else []
        for node, member in zip(without, members, strict=False):
            if member is None:
                raise Conflict(f"{node} is no member of this master's view {self.number}")
            if node == self.settings.node:
                raise Conflict(f"{node} was asked itself: it is not gone; ask one that stays")
            if self._is_there(member):
                where = "here" if self.around.both_ways(node) else "by others, whom this master hears"
                raise Conflict(f"{node} is heard {where}: stop its process first, it leaves by itself then")
        if not members:
            raise Conflict("this master has no view yet; see txlog found")
        for member in members:
            assert member is not None
            heard = self._starts.get(member.origin, 0)
            self.orders[member.node] = Departure(member.node, member.birth, heard, "ordered")
        self._failed_with = []
        self.say_orders()

    def say_orders(self) -> None:
        """All orders that nothing has come of yet, where they are not what the journal has. It drops by itself what an
        accept or an install leaves behind, in the very record of these: else a crash could keep one without the
        other."""
        now = Orders(self.begin_with, [(one.node, one.birth, one.start) for one in self.orders.values()])
        before = self._ordered
        if self.accepted is not None:
            now, before = (one.left_by(self.accepted, self.installed) for one in (now, before))
        if now != before:
            self.records.append(now)
        self._ordered = now

    def _depart(self, departure: Departure) -> None:
        member = self.accepted.member(departure.node) if self.accepted is not None else None
        if departure.node == self.settings.node or member is None:
            return
        if fits(departure, member, self._starts.get(member.origin, 0)):
            before = self.departures.get(departure.node)
            if before is None or _is_more(departure, before):
                self.departures[departure.node] = departure

    def _held(self, origin: Origin) -> int:
        assert self.agreement is not None
        queue = self.agreement.by_origin.get(origin)
        return queue.held if queue is not None else 0

    # Leaving

    def leave(self) -> None:
        """From now on this master is stopped in its view for good."""
        self.change = None
        self._incoming = None
        if self.accepted is not None and self.left != self.number:
            self.left = self.number
            self.records.append(Left(*self.number))

    def leaving(self) -> LeaveNotice:
        """What the others are told."""
        return LeaveNotice(self.settings.node, self.birth, self.start, self.left)

    @property
    def is_isolated(self) -> bool:
        """A configured master is out of the view because it was silent."""
        return self.accepted is not None and bool(self.accepted.silent)
