"""Which view this master is in, what it has promised, and how the next view comes about (protocol section 3).

Nothing here looks at a clock or sends: time comes in, messages go to ``sends``, records to ``records``. The steps of a
change, seen from a member::

    Propose ── promise (durable), the old view is stopped ──> Report
    Accept  ── every payload fetched, the closed base taken over (durable) ──> Accepted
    Install, or a post in the new view ── its base is stable, work goes on

The coordinator is a member like any other; :class:`~txlog.protocol.changes.Change` is what it keeps besides.
"""

from __future__ import annotations

from array import array

from txlog.model.entry import Span
from txlog.model.errors import Conflict, PeerFault
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin
from txlog.model.records import Left, Promised, Record, Recovered
from txlog.model.view import NO_VIEW, Member, Number, View
from txlog.protocol.agreement import Agreement
from txlog.protocol.changes import Change, fits
from txlog.protocol.closing import Unclosed, close, latest_view, outline
from txlog.protocol.events import Settings
from txlog.protocol.history import History
from txlog.protocol.queue import OriginQueue
from txlog.protocol.surroundings import Surroundings
from txlog.wire.messages import (
    Accept,
    Accepted,
    Checkpoint,
    Departure,
    FetchRuns,
    Install,
    Known,
    Leaving,
    Message,
    Missing,
    Pending,
    Propose,
    Refuse,
    Report,
    Who,
)

CAUGHT_UP = 1000
"""Transactions that a master outside may still lack when the view is stopped to let it in: well below a second."""
SILENT_ROUNDS = 3
"""``Majority``: a member's term, in round time-outs."""
UNVOUCHED_MS = 30_000
"""A proof of *down* that nobody could vouch for is not tried again for so long."""
PATIENCE_MAX = 8
"""Round time-outs that a proposal is given at most; each that fails is followed by a more patient one."""
_NEVER = 1 << 60


class Views:
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
        self._candidates: dict[str, Who] = {}
        self._starts: dict[Origin, int] = {}
        self._seen: dict[str, Number] = {}
        self._working: dict[Origin, int] = {}
        self._holders: dict[str, dict[Origin, int]] = {}
        self._reported: Report | None = None
        self._incoming: Accept | None = None
        self._from = ""
        self._wish_ms = _NEVER
        self._tries = 0
        self._asked: tuple[str, int, int] = ("", 0, 0)
        self._asked_ms = -_NEVER
        self._turn = 0
        self._missing = (0, -_NEVER)
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

    @property
    def at_work(self) -> bool:
        """Installed and not stopped: posts are sent and merged, and the log grows."""
        return self.accepted is not None and self.installed and not self.stopped

    @property
    def is_settled(self) -> bool:
        """Nothing has to be asked: at work, and nobody is known to wait for another view."""
        quiet = self.ahead is None and not self.apart and self.change is None
        return self.at_work and quiet and self._wish_ms == _NEVER

    def take_founding(self, view: View) -> None:
        """View 1 is durable here."""
        self.accepted = view
        self.installed = False
        self.promised = max(self.promised, view.number)
        self.highest = max(self.highest, view.number)

    # Who is there

    def on_who(self, who: Who) -> None:
        """A master says where it is."""
        if who.cluster and self.accepted is not None and who.cluster != self.accepted.cluster_id:
            raise PeerFault(who.node, "OtherCluster", f"its cluster is {who.cluster.hex()}")
        self.around.hears(who.node, who.hears)
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

    def on_known(self, known: Known) -> None:
        """A master tells its view."""
        self.around.answered(known.node)
        self.heard_start(Origin(known.node, known.birth), known.start)
        view = known.accepted
        self._seen[known.node] = view.number if view is not None else NO_VIEW
        if view is None:
            return
        self.highest = max(self.highest, view.number)
        if not known.installed:
            return
        if view.number == self.number:
            self.learn_installed()
            return
        mine = self.accepted
        if view.has(self.origin) or (mine is not None and view.number in (mine.number, *mine.history)):
            self.apart.pop(known.node, None)
            return
        if mine is None or mine.number in view.history or self.settings.majority:
            if view.number <= self.number or (self.ahead is not None and view.number < self.ahead.number):
                return
            self.ahead = view
        else:
            self.apart[known.node] = view
        origins = [Origin(*one) for one in view.origins]
        self._holders[known.node] = dict(zip(origins, known.held, strict=False))

    def heard_start(self, origin: Origin, start: int) -> None:
        """This process of it was heard itself; what was said of an earlier one is no more."""
        if start > self._starts.get(origin, 0):
            self._starts[origin] = start
        departure = self.departures.get(origin.node)
        if departure is not None and departure.birth == origin.birth and departure.why != "lost":
            if departure.start < start:
                del self.departures[origin.node]

    def heard_working(self, origin: Origin, start: int) -> None:
        """This process of it posts in this view, so it has not let this master go until now."""
        self._working[origin] = start

    def on_leaving(self, leaving: Leaving) -> None:
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

    def _depart(self, departure: Departure) -> None:
        member = self.accepted.member(departure.node) if self.accepted is not None else None
        if departure.node == self.settings.node or member is None:
            return
        if fits(departure, member, self._starts.get(member.origin, 0)):
            before = self.departures.get(departure.node)
            if before is None or before.birth != departure.birth or before.start <= departure.start:
                self.departures[departure.node] = departure

    # As a member

    def on_propose(self, peer: str, proposal: Propose) -> None:
        """Stop the view and report, or refuse and say why."""
        self.highest = max(self.highest, proposal.number)
        mine = next((m for m in proposal.members if m.node == self.settings.node), None)
        if mine is None or mine.birth != self.birth:
            raise PeerFault(peer, "UnknownBirth", f"it proposes a view with another birth of {self.settings.node}")
        if self.accepted is not None and proposal.cluster != self.accepted.cluster_id:
            raise PeerFault(peer, "OtherCluster", f"its cluster is {proposal.cluster.hex()}")
        if proposal.number < self.promised or proposal.number <= self.number:
            self._refuse(peer, proposal.number, "Promised", "", f"{self.settings.node} has promised {self.promised}")
            return
        if proposal.number > self.promised:
            wrong = self._unfit(proposal)
            if wrong is not None:
                self._refuse(peer, proposal.number, *wrong)
                return
            if self.change is not None and self.change.number < proposal.number:
                self.change = None
            self._promise(proposal.number)
            self._reported = self._report(proposal)
            self._tries += 1
        report = self._reported
        if report is None or report.number != proposal.number:  # promised before this process started
            report = self._reported = self._report(proposal)
        self._another_leads()
        self.sends.append((peer, report))

    def _another_leads(self) -> None:
        """Give it time before this master's own turn comes."""
        if self.change is None:
            self._wish_ms = self.around.now_ms + self._patience_ms

    def _unfit(self, proposal: Propose) -> tuple[str, str, str] | None:
        """Why this master does not agree to what is left out (protocol section 3.2): a word, whom it is about, a text."""
        if self.accepted is None:
            return None
        stay = {(m.node, m.birth) for m in proposal.members}
        gone = {(one.node, one.birth): one for one in proposal.gone}
        for member in self.accepted.members:
            if (member.node, member.birth) in stay:
                continue
            one = gone.get((member.node, member.birth))
            if one is None:
                if self.around.both_ways(member.node):
                    return "HeardBothWays", member.node, f"{member.node} is heard here"
                if proposal.view != self.number:
                    continue  # it is not in the coordinator's view
                return "LeftOut", member.node, f"{member.node} is left out without a reason"
            heard = self._starts.get(member.origin, 0)
            if not fits(one, member, heard):
                return (
                    "StaleProof",
                    member.node,
                    f"{member.node} start {heard} was heard, {one.start} is said to be gone",
                )
            if one.why == "silent" and self.around.both_ways(member.node):
                return "HeardBothWays", member.node, f"{member.node} is heard here"
        if self.settings.majority and not self._is_majority([m.node for m in proposal.members]):
            return "NoMajority", "", "these members have no more than half of the weight"
        return None

    def _refuse(self, peer: str, number: Number, why: str, about: str, text: str) -> None:
        self.sends.append((peer, Refuse(number, self.promised, why, about, text)))

    def _promise(self, number: Number) -> None:
        assert number > self.promised
        self.promised = number
        self._incoming = None
        self.records.append(Promised(*number))

    def _report(self, proposal: Propose) -> Report:
        """One snapshot; it is durable before it leaves."""
        number, agreement = proposal.number, self.agreement
        if agreement is None:
            empty = Checkpoint(0, b"")
            me, prefers = self.settings.node, self.settings.strategy
            return Report(
                number, me, self.birth, self.start, None, False, 0, empty, empty, [], b"", 0, [], [], [], prefers
            )
        history = agreement.history
        shared = Checkpoint(0, history.start_hash)
        for one in sorted(proposal.checkpoints, key=lambda c: -c.index):
            if one.index <= history.length and history.hash_at(one.index) == one.hash:
                shared = one
                break
        members = self.accepted.members if self.accepted is not None else []
        heard = [(m.node, m.birth, self._working[m.origin]) for m in members if m.origin in self._working]
        return Report(
            number,
            self.settings.node,
            self.birth,
            self.start,
            self.accepted,
            self.installed,
            agreement.stable,
            Checkpoint(history.length, history.hash),
            shared,
            history.spans(shared.index, history.length),
            history.hashes(shared.index, history.length),
            agreement.last_stamp,
            pending_of(agreement),
            parked_of(agreement),
            heard,
            self.settings.strategy,
        )

    def on_accept(self, peer: str, accept: Accept) -> None:
        """The next view. Once every payload of it is here it becomes this master's latest."""
        number = accept.view.number
        self.highest = max(self.highest, number)
        if number == self.number:
            self.sends.append((peer, Accepted(number, self.settings.node, self.birth)))
            return
        if number != self.promised:
            self._refuse(peer, number, "Promised", "", f"{self.settings.node} has promised {self.promised}")
            return
        if not accept.view.has(self.origin):
            raise PeerFault(peer, "UnknownBirth", f"it sends a view without birth {self.birth:016x}")
        if not self._may_return(accept):
            self._refuse(peer, number, "Left", "", f"{self.settings.node} has left {self.left}; nobody there went on")
            return
        if len(accept.stamps) != 8 * sum(span.count for span in accept.spans):
            raise PeerFault(peer, "Malformed", "a stamp is missing in the base")
        self._another_leads()
        self._incoming, self._from = accept, peer
        self._take()

    def _may_return(self, accept: Accept) -> bool:
        """Rule 27: a master that left goes on only with one that knows what followed, or with all that it left."""
        if self.left == NO_VIEW or self.left != self.number:
            return True
        if latest_view(accept.outlines) > self.number:
            return True
        assert self.accepted is not None
        there = {(one.node, one.birth) for one in accept.outlines}
        return all((m.node, m.birth) in there for m in self.accepted.members)

    def _take(self) -> None:
        """Accept what came, if all of it is held."""
        accept, agreement = self._incoming, self.agreement
        if accept is None or agreement is None:
            return
        number = accept.view.number
        if number != self.promised:
            self._incoming = None
            return
        lacks = agreement.lacks(accept.spans, accept.waiting)
        if lacks:
            self._say_missing(number, sum(span.count for span in lacks))
            return
        self._incoming = None
        stamps = array("Q")
        stamps.frombytes(accept.stamps)
        sound = agreement.stable <= accept.cut <= agreement.history.length
        if not sound or not agreement.accept(accept.view, accept.cut, accept.spans, stamps.tolist(), accept.waiting):
            self._refuse(self._from, number, "OtherBase", "", "the base that came is not the one that the view names")
            return
        self.accepted = accept.view
        self.installed = False
        self.ahead = None
        self.apart.clear()
        self.backup_at = min(self.backup_at, accept.cut)
        self._holders.clear()
        self.departures = {
            node: one for node, one in self.departures.items() if accept.view.has(Origin(node, one.birth))
        }
        self._candidates.clear()
        self._working.clear()
        self._seen.update((m.node, accept.view.number) for m in accept.view.members)
        self.changed = True
        change = self.change
        if change is not None and change.number == number:
            self._spread(change)
        else:
            self.sends.append((self._from, Accepted(number, self.settings.node, self.birth)))

    def _say_missing(self, number: Number, count: int) -> None:
        now_ms = self.around.now_ms
        if self.change is not None and self.change.number == number:
            self.change.misses(self.settings.node, count, now_ms)
        elif now_ms >= self._missing[1] + self.settings.repeat_ms:
            self._missing = (count, now_ms)
            self.sends.append((self._from, Missing(number, self.settings.node, count)))

    def on_install(self, number: Number) -> None:
        """Everybody has accepted."""
        if number == self.number:
            self.learn_installed()

    def learn_installed(self) -> None:
        """Somebody works in the accepted view, or says that all have accepted it; no use of it while a higher promise
        binds (rule 34)."""
        if self.installed or self.promised != self.number or self.agreement is None:
            return
        self.installed = True
        self.changed = True
        self._wish_ms = _NEVER
        self._tries = 0
        self.agreement.install()

    # As the coordinator

    def on_report(self, report: Report) -> None:
        """A member has stopped and tells what it holds."""
        self.heard_start(Origin(report.node, report.birth), report.start)
        self._seen[report.node] = report.view.number if report.view is not None else NO_VIEW
        change = self.change
        if change is None or change.number != report.number or change.closed is not None:
            return
        change.report(report, self.around.now_ms)
        if not change.unreported:
            self._close(change)

    def _close(self, change: Change) -> None:
        agreement = self.agreement
        assert agreement is not None
        unvouched = change.unvouched() if not self.settings.majority else None
        if unvouched is not None:
            self._unvouched[unvouched] = self.around.now_ms
            self._give_up(f"nobody here has heard {unvouched.node} as the process that is said to be down")
            return
        reports = [change.reports[m.node] for m in change.members]
        if self.settings.majority and not self._is_majority([r.node for r in reports if r.view is not None]):
            self._give_up("those who know the log have no more than half of the weight")
            return
        try:
            weights = {m.node: m.weight for m in self.settings.members}
            closed = close(
                change.number,
                change.members,
                change.gone,
                reports,
                agreement.history,
                weights,
                self.settings.majority,
            )
        except Unclosed as why:
            self._give_up(str(why))
            return
        change.closed = closed
        stamps = array("Q", closed.stamps).tobytes()
        outlines = [outline(report) for report in reports]
        accept = Accept(closed.view, change.gone, closed.cut, closed.spans, stamps, closed.waiting, outlines)
        if not self._may_return(accept):
            self._give_up(f"{self.settings.node} has left {self.left}; nobody here knows what followed")
            return
        self._incoming, self._from = accept, self.settings.node
        self._take()

    def _give_up(self, why: str) -> None:
        self.holding = why
        self.change = None
        self._tries += 1
        self._wish_ms = self.around.now_ms + self.settings.round_timeout_ms

    def _spread(self, change: Change) -> None:
        """This master has accepted: its log is the base now. What each member needs of it."""
        agreement, closed = self.agreement, change.closed
        assert agreement is not None
        assert closed is not None
        history, base = agreement.history, closed.view.base_index
        outlines = [outline(change.reports[m.node]) for m in change.members]
        for member in change.members:
            if member.node == self.settings.node:
                continue
            report = change.reports[member.node]
            cut = _shared_with(history, report, closed.cut, base)
            spans = history.spans(cut, base)
            change.accepts[member.node] = Accept(closed.view, change.gone, cut, spans, b"", closed.waiting, outlines)
        change.accept(self.settings.node, self.around.now_ms)
        change.sent_ms = -_NEVER
        self._finish(change)

    def on_missing(self, missing: Missing) -> None:
        """A member is still fetching; or the coordinator says that it waits for one."""
        if self.change is not None and self.change.number == missing.number:
            self.change.misses(missing.node, missing.count, self.around.now_ms)
        elif missing.number == self.number and not self.installed:
            self._another_leads()

    def on_accepted(self, accepted: Accepted) -> None:
        """A member has accepted, durably."""
        change = self.change
        if change is not None and change.number == accepted.number:
            change.accept(accepted.node, self.around.now_ms)
            self._finish(change)

    def _finish(self, change: Change) -> None:
        if change.unaccepted or self.promised != change.number:
            return
        self.change = None
        self.holding = ""
        self.learn_installed()
        self.sends += [(m.node, Install(change.number)) for m in change.members if m.node != self.settings.node]

    def on_refuse(self, peer: str, refuse: Refuse) -> None:
        """A member does not go along; the next proposal will know why."""
        self.highest = max(self.highest, refuse.promise)
        change = self.change
        if change is None or change.number != refuse.number:
            return
        if refuse.why == "StaleProof":
            self.departures.pop(refuse.about, None)
        self._give_up(f"{peer} refused {refuse.number}: {refuse.why}: {refuse.text}")

    # What is wanted

    def poll(self, may_lead: bool) -> int:
        """Say what is due. ``may_lead``: this master takes part (admitted, not leaving). Returns when to poll again."""
        now_ms = self.around.now_ms
        self._take()
        self._fetch()
        change = self.change
        if change is not None and change.is_over(now_ms, self._patience_ms):
            self._give_up(self._slow(change))
            self._wish_ms = now_ms
            change = None
        if change is None and may_lead and self.ahead is None:
            self._consider(now_ms)
            change = self.change
        if change is not None and now_ms >= change.sent_ms + self.settings.repeat_ms:
            self._repeat(change, now_ms)
        return now_ms + self.settings.repeat_ms if not self.is_settled else _NEVER

    @property
    def _patience_ms(self) -> int:
        """Two coordinators on a slow disk would outbid each other for ever."""
        return self.settings.round_timeout_ms * min(1 + self._tries // 2, PATIENCE_MAX)

    def _slow(self, change: Change) -> str:
        waits = change.unreported or change.unaccepted
        return f"no answer from {', '.join(waits)} to {change.number}"

    def _repeat(self, change: Change, now_ms: int) -> None:
        change.sent_ms = now_ms
        if change.accepts:
            self.sends += [(node, change.accepts[node]) for node in change.unaccepted]
            waits = Missing(change.number, self.settings.node, len(change.unaccepted))
            self.sends += [(node, waits) for node in change.accepted if node != self.settings.node]
        elif change.closed is None:
            self.sends += [(node, change.proposal) for node in change.unreported]

    def _consider(self, now_ms: int) -> None:
        """Begin a change when one is wanted, everybody in it is there, and it is this master's turn."""
        view = self.accepted
        if view is None or self.agreement is None:
            return
        wanted, gone = self._wanted(view)
        if not self._is_wanted(view, wanted):
            self._wish_ms, self.holding = _NEVER, ""
            return
        if self._wish_ms == _NEVER:
            self._wish_ms = now_ms
        nodes = [m.node for m in wanted]
        reachable = self.around.reachable()
        absent = [node for node in nodes if node not in reachable]
        if absent:
            self.holding = f"waiting for {', '.join(absent)}"
            return
        if self.settings.majority and not self._is_majority(nodes):
            self.holding = "those who are here have no more than half of the weight"
            return
        if now_ms - self._wish_ms >= self._rank(nodes) * self._patience_ms:
            self._begin(view, wanted, gone)

    def _rank(self, nodes: list[str]) -> int:
        """How many come before this master: those of a later view, who know more, then the order of precedence."""
        mine = nodes.index(self.settings.node)
        before = [self._seen.get(node, self.number) >= self.number for node in nodes[:mine]]
        after = [self._seen.get(node, self.number) > self.number for node in nodes[mine + 1 :]]
        return sum(before) + sum(after)

    def _wanted(self, view: View) -> tuple[list[Member], list[Departure]]:
        """Who should be in the next view, in order of precedence, and who of this one should not."""
        gone: list[Departure] = []
        stay: dict[str, Member] = {}
        for member in view.members:
            departure = self._departure(member)
            if departure is None:
                stay[member.node] = member
            else:
                gone.append(departure)
        for configured in self.settings.members:
            who = self._candidates.get(configured.node)
            if who is not None and configured.node not in stay and self._is_ready(who):
                stay[who.node] = Member(who.node, who.birth, configured.weight, configured.data_center)
        order = {m.node: place for place, m in enumerate(self.settings.members)}
        return sorted(stay.values(), key=lambda m: order.get(m.node, len(order))), gone

    def _departure(self, member: Member) -> Departure | None:
        if member.node == self.settings.node:
            return None
        found = self.departures.get(member.node)
        if found is not None and fits(found, member, self._starts.get(member.origin, 0)):
            tried_ms = self._unvouched.get(found, -_NEVER)
            return found if self.around.now_ms - tried_ms > UNVOUCHED_MS else None
        if self.around.silent_ms(member.node) > self._term_ms and self._may_part:
            return Departure(member.node, member.birth, self._starts.get(member.origin, 0), "silent")
        return None

    @property
    def _term_ms(self) -> int:
        """How long a member may be silent."""
        if self.settings.majority:
            return SILENT_ROUNDS * self.settings.round_timeout_ms
        none = self.accepted is not None and self.accepted.strategy == "None"
        return self.settings.none_split_delay_ms if none else self.settings.max_peer_lag_ms

    @property
    def _may_part(self) -> bool:
        """No backup, no going on (rule 23)."""
        agreement, view = self.agreement, self.accepted
        if self.settings.majority or agreement is None or view is None or view.strategy == "None":
            return True
        others = [self._candidates.get(m.node) for m in view.members if self.around.is_heard(m.node)]
        return self.backup_at >= 0 or any(who is not None and who.backup >= 0 for who in others)

    def _is_ready(self, who: Who) -> bool:
        """A master from outside that lacks so little that the stop will be short."""
        agreement, view = self.agreement, self.accepted
        assert agreement is not None
        assert view is not None
        if view.has(Origin(who.node, who.birth)) and who.node not in self.departures:
            return False
        departure = self.departures.get(who.node)
        if departure is not None and departure.birth == who.birth and departure.start >= who.start:
            return False
        if not self.around.both_ways(who.node):
            return False
        held = {Origin(node, birth): seq for node, birth, seq in who.held}
        lacking = sum(max(0, min(q.held, q.limit) - held.get(q.origin, 0)) for q in agreement.queues)
        if lacking > CAUGHT_UP:
            return False
        mine = sum(max(0, seq - self._held(origin)) for origin, seq in held.items())
        return mine <= CAUGHT_UP

    def _held(self, origin: Origin) -> int:
        assert self.agreement is not None
        queue = self.agreement.by_origin.get(origin)
        return queue.held if queue is not None else 0

    def _is_wanted(self, view: View, wanted: list[Member]) -> bool:
        if self.stopped or not self.installed:
            return True
        if [(m.node, m.birth) for m in wanted] != [(m.node, m.birth) for m in view.members]:
            return True
        waiting = [self._candidates.get(m.node) for m in wanted]
        return any(who is not None and who.stopped and who.view == view.number for who in waiting)

    def _is_majority(self, nodes: list[str]) -> bool:
        weights = {m.node: m.weight for m in self.settings.members}
        return 2 * sum(weights.get(node, 0) for node in nodes) > sum(weights.values())

    def _begin(self, view: View, wanted: list[Member], gone: list[Departure]) -> None:
        agreement = self.agreement
        assert agreement is not None
        epoch = max(view.epoch + 1, self.highest[0])
        ballot = self.highest[1] + 1 if self.highest[0] == epoch else 1
        number = (epoch, ballot, self.settings.node)
        self.highest = max(self.highest, number)
        proposal = Propose(number, view.cluster_id, wanted, view.number, gone, checkpoints_of(agreement))
        self.change = change = Change(proposal, wanted, self.around.now_ms)
        self._promise(number)
        self._reported = self._report(proposal)
        change.report(self._reported, self.around.now_ms)
        if not change.unreported:
            self._close(change)

    # Payloads that are missed

    @property
    def fetching(self) -> bool:
        """Transactions of others are taken although no view is at work."""
        return self.ahead is not None or self._incoming is not None or bool(self.apart)

    def _fetch(self) -> None:
        """Ask for the first thing that is missing, once in a while, or at once when the last question was answered."""
        agreement = self.agreement
        if agreement is None or not self.fetching:
            return
        sources, span = self._missed(agreement)
        if span is None or not sources:
            return
        now_ms = self.around.now_ms
        asked = (span.node, span.birth, span.first_seq)
        if asked == self._asked and now_ms < self._asked_ms + self.settings.repeat_ms:
            return
        if asked == self._asked:
            self._turn += 1
        self._asked, self._asked_ms = asked, now_ms
        count = min(span.count, self.settings.frame_items_max)
        source = sources[self._turn % len(sources)]
        self.sends.append((source, FetchRuns(Span(span.node, span.birth, span.first_seq, count))))

    def _missed(self, agreement: Agreement) -> tuple[list[str], Span | None]:
        accept = self._incoming
        if accept is not None:
            lacks = agreement.lacks(accept.spans, accept.waiting)
            others = [m.node for m in accept.view.members if m.node not in (self.settings.node, self._from)]
            sources = [node for node in (self._from, *others) if node != self.settings.node]
            return sources, lacks[0] if lacks else None
        for node, holds in sorted(self._holders.items()):
            for origin, seq in holds.items():
                queue = agreement.by_origin.get(origin)
                held = queue.held if queue is not None else 0
                if seq > held and origin != self.origin:
                    return [node], Span(origin.node, origin.birth, held + 1, seq - held)
        return [], None

    # Leaving

    def leave(self) -> None:
        """From now on this master is stopped in its view for good."""
        self.change = None
        self._incoming = None
        if self.accepted is not None and self.left != self.number:
            self.left = self.number
            self.records.append(Left(*self.number))

    def leaving(self) -> Leaving:
        """What the others are told."""
        return Leaving(self.settings.node, self.birth, self.start, self.left)

    @property
    def is_isolated(self) -> bool:
        """A configured master is out of the view because it was silent."""
        return False


def checkpoints_of(agreement: Agreement) -> list[Checkpoint]:
    """The log's end, and places ever farther back: a report begins at the last one that its log has too."""
    history = agreement.history
    places = {0, agreement.stable, agreement.settled_at}
    back = 0
    while back <= history.length:
        places.add(history.length - back)
        back = max(1, 2 * back)
    return [Checkpoint(index, history.hash_at(index)) for index in sorted(places, reverse=True)]


def _shared_with(history: History, report: Report, cut: int, base: int) -> int:
    """How much of a base, which is all of ``history`` now and was cut behind ``cut``, the log of this report shares."""
    place = report.shared
    if place.index > base or (place.index and history.hash_at(place.index) != place.hash):
        return min(place.index, cut)
    index = place.index
    for at in range(min(report.log.index, base) - place.index):
        if report.hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES] != history.hash_at(index + 1):
            break
        index += 1
    return index


def pending_of(agreement: Agreement) -> list[Pending]:
    """Everything held that may still leave the log, in it or not, by origin. What has no stamp yet is nobody else's
    business."""
    found: list[Pending] = []
    for slot, queue in enumerate(agreement.queues):
        first = agreement.history.seq_within(slot, agreement.settled_at) + 1
        found += _named(queue, first, min(queue.held, queue.limit))
    return found


def parked_of(agreement: Agreement) -> list[Pending]:
    """What is held of another branch."""
    found: list[Pending] = []
    for _, queue in sorted(agreement.by_origin.items()):
        found += _named(queue, max(queue.limit + 1, queue.kept_from), queue.held)
    return found


def _named(queue: OriginQueue, first: int, last: int) -> list[Pending]:
    if first > last:
        return []
    contents = b"".join(queue.contents(first, last))
    return [Pending(queue.origin.node, queue.origin.birth, first, queue.stamps(first, last), contents)]
