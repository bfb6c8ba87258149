"""The core of a master: messages, submissions and the passing of time in; records and messages out.

It has no clock, no random source, no I/O and no dependence on hash order (rule 31). It changes its state as if all its
output were durable. The caller makes that true by releasing nothing before it is (``README.md``).
"""

from __future__ import annotations

from typing import Final

from txlog.model.configuration import Configuration
from txlog.model.errors import Refused, Unavailable
from txlog.model.ids import Txid
from txlog.model.master_state import MasterState
from txlog.model.records import LogStart, RecoveredState
from txlog.model.synchronous_entry import SYNCHRONOUS_KINDS, decode_synchronous_key
from txlog.model.view import View
from txlog.protocol.events import (
    NO_EFFECTS,
    NOT_TRUNCATED,
    ClockReading,
    DurabilityMarks,
    Effects,
    ProtocolSettings,
    Submission,
    SubmissionAccepted,
)
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.log.log_state import NO_CONTENTS, LogState
from txlog.protocol.log.log_trim import RetentionPosition, TrimDecision, decide_trim
from txlog.protocol.log_lifecycle import LogLifecycle
from txlog.protocol.master_state import (
    MasterFacts,
    state_of,
)
from txlog.protocol.membership.membership import Membership
from txlog.protocol.message_dispatcher import MessageDispatcher
from txlog.protocol.message_router import MessageRouter
from txlog.protocol.outbox import Outbox
from txlog.protocol.replication.durability_marks import compute_marks
from txlog.protocol.replication.failure_detector import FailureDetector
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.protocol.replication.replication import Replication
from txlog.protocol.replication.replication_state import AppendRule
from txlog.protocol.replication.submission import SubmissionTerms
from txlog.protocol.views.decisions import Progress
from txlog.protocol.views.split_backup import SplitBackup
from txlog.protocol.views.undecided import SynchronousStatus
from txlog.protocol.views.view_manager import ViewManager
from txlog.protocol.views.view_state import FOREVER_MS, ViewState
from txlog.wire.messages import Message
from txlog.wire.protocol_level import LEVEL_FIRST_STAMPS

KEY_LAG_SHARE: Final = 4
"""A counter that is older than this part of ``keyRetention`` is not the time that ages of keys are judged by."""
VIEW_CHECK_INTERVAL_MS: Final = 20
"""How often the core checks for silent members, in milliseconds, while no message bears on the view."""


class Core:
    """One master. It dispatches messages to its parts and acts when time passes.

    ``lifecycle`` has the log and its replication, once there is one. ``views`` is the view and what is known of the
    other masters, ``view_manager`` changes it, ``membership`` begins, changes and leaves the cluster. All parts share
    ``local``, ``failure_detector`` and ``outbox``."""

    def __init__(self, settings: ProtocolSettings, recovered: RecoveredState, now: ClockReading) -> None:
        self.local = LocalMaster(settings, recovered.birth, recovered.start)
        self.outbox = Outbox()
        self.failure_detector = FailureDetector(settings.node, settings.round_timeout_ms, now.mono)
        self.views = ViewState(self.local, recovered, self.failure_detector, self.outbox)
        self.view_manager = ViewManager(self.views)
        self.membership = Membership(self.local, self.views, self.outbox, recovered, now.mono)
        self.router = MessageRouter(self.local, self.failure_detector, self.views, self.outbox)
        self.split_backup = SplitBackup(self.views, self.view_manager.policy)
        self.lifecycle = LogLifecycle(self.local, self.failure_detector, self.views, self.outbox, recovered)
        self.dispatcher = MessageDispatcher(
            self.local,
            self.failure_detector,
            self.view_manager,
            self.membership,
            self.lifecycle,
            self.router,
            self.outbox,
        )
        self._marks = DurabilityMarks(0, 0, 0, 0, 0)
        self._views_checked_ms = -FOREVER_MS
        self.lifecycle.enter_view(now)

    # What it is

    @property
    def settings(self) -> ProtocolSettings:
        """The settings in effect."""
        return self.local.settings

    @property
    def birth(self) -> int:
        """This master's incarnation."""
        return self.local.birth

    @property
    def start(self) -> int:
        """The number of this process."""
        return self.local.start

    @property
    def log_state(self) -> LogState | None:
        """This master's log and queue; None before it is in a view or follows one."""
        return self.lifecycle.log

    @property
    def peers(self) -> list[PeerProgress]:
        """The other members of the latest view."""
        return self.lifecycle.peers

    @property
    def view(self) -> View | None:
        """The latest view of this master; None without a log."""
        log = self.log_state
        return log.view if log is not None else None

    @property
    def state(self) -> MasterState:
        """What this master does now."""
        views = self.views
        return state_of(
            MasterFacts(
                may_begin=not self.membership.bootstrap.awaits_order,
                has_log=self.lifecycle.log is not None,
                has_view=views.accepted is not None,
                is_admitted=self.membership.bootstrap.admitted,
                has_room=not self.local.disk_full,
                stays=not self.membership.departure.has_left,
                view_active=views.is_active and views.newer_view is None,
                all_present=all(self.is_present(peer) for peer in self.peers),
                is_complete=not views.is_isolated,
            )
        )

    @property
    def disk_full(self) -> bool:
        """The disk has no room for transactions, as the driver last reported."""
        return self.local.disk_full

    @property
    def closing(self) -> bool:
        """This master takes no more work: its process ends."""
        return self.membership.departure.closing

    @property
    def removed(self) -> bool:
        """The configuration has removed this master, for good."""
        return self.membership.follower.removed

    @property
    def configuration(self) -> Configuration | None:
        """The configuration in force where this master's log is stable; None before the cluster is bootstrapped."""
        return self.membership.changes.configuration

    @property
    def pending_change(self) -> Txid | None:
        """A change that waits for its index, or whose index is not stable yet."""
        return self.membership.changes.pending_change

    @property
    def is_leave_done(self) -> bool:
        """Whether the process may end: a staying member has acknowledged the leave notice, or no member stays."""
        return self.membership.departure.is_done(self.lifecycle.state)

    def is_present(self, peer: PeerProgress) -> bool:
        """A message of the peer arrived within the round time-out, and the peer receives from this master. A guess;
        safety never depends on it (rule 14)."""
        state = self.lifecycle.state
        return state is not None and state.is_present(peer)

    def check_listed(self, peer: str) -> None:
        """:class:`PeerFault` for unknown and removed masters, once there is a log to know them by."""
        self.membership.changes.check_listed(peer)

    # Messages

    def receive(
        self,
        peer: str,
        message: Message,
        now: ClockReading,
        room_for_work: bool,
        contents: dict[Txid, bytes] = NO_CONTENTS,
    ) -> None:
        """Process one message from an authenticated peer. ``room_for_work``: the disk has room for transactions.
        ``contents``: content hashes of its transactions that the driver computed itself. :class:`PeerFault` when the
        message is refused: no part of it counts. :class:`Fatal` when this process must end."""
        if self.dispatcher.serve_fetch(peer, message):
            return
        self.local.disk_full = not room_for_work
        self._tick(now)
        self.failure_detector.on_message(peer)
        self.dispatcher.dispatch(peer, message, now, contents)
        self.lifecycle.enter_view(now)
        self._advance()

    def _tick(self, now: ClockReading) -> None:
        self.local.clock.tick(now)
        state = self.lifecycle.state
        if state is not None:
            state.tick(now.mono)
        self.failure_detector.tick(now.mono)

    def _advance(self) -> None:
        replication = self.lifecycle.replication
        if replication is not None:
            rule = self.dispatcher.append_rule
            replication.committer.advance(rule)
            if rule is not AppendRule.NOT_NOW:
                replication.key_horizon.advance(self.views.configured_members)

    # Time

    def poll(self, now: ClockReading) -> int:
        """Send the posts that are due, after time has passed or input was taken. Returns the ``mono`` millisecond
        at which to poll again, if no input comes before."""
        self._tick(now)
        bootstrap, departure = self.membership.bootstrap, self.membership.departure
        bootstrap.poll(now.mono)
        self.lifecycle.enter_view(now)
        wake = min(self._send_hellos(now), self._poll_views(now), self.dispatcher.poll(now.mono))
        replication = self.lifecycle.replication
        if replication is None or not bootstrap.admitted or not self.views.is_active:
            nodes = [peer.node for peer in self.peers]
            return min(wake, bootstrap.next_ms(now.mono), departure.resend_or_leave(nodes, now))
        self._advance()
        last = self.membership.follower.apply(replication.state, now)
        if last is not None:
            self.submit([last], now, not self.disk_full)
        wake = min(wake, bootstrap.next_ms(now.mono), departure.leave_when_replicated(replication.state, now))
        if not self.views.is_active:
            return wake
        wake = min(wake, self._write_decisions(replication, now))
        wake = min(wake, replication.sender.remember_counter(now))
        return min(wake, self._send_posts(replication, now), replication.sender.fetch_missing(now))

    def _write_decisions(self, replication: Replication, now: ClockReading) -> int:
        """Write the decisions that are due about synchronous transactions. Returns when to ask again."""
        due = self.view_manager.decisions.due(replication.state)
        if not due.submissions or self.membership.admission.error() is not None:
            return due.wake_ms
        self.submit(due.submissions, now, not self.disk_full)
        return min(due.wake_ms, now.mono + 1)  # a lone master hears of nothing else that brings them into its log

    def _send_posts(self, replication: Replication, now: ClockReading) -> int:
        """Send the posts that are due. Returns when the next one is."""
        wake = FOREVER_MS
        for peer in replication.peers:
            due_ms = replication.post_due_ms(peer, now)
            if due_ms <= now.mono or peer.reply_due:
                last_start = self.views.last_start_seen(peer.origin)
                replication.sender.send_post(peer, now, due_ms <= now.mono, last_start)
                due_ms = replication.state.schedule.due_ms(replication.log, peer)
            wake = min(wake, max(due_ms, now.mono + 1))
        return wake

    def _send_hellos(self, now: ClockReading) -> int:
        """Send this master's hello to the others while the view is not settled. Returns when to do it again."""
        if self.membership.departure.has_left or not self.membership.bootstrap.others:
            return FOREVER_MS
        silent = any(not self.is_present(peer) for peer in self.peers)
        if not silent and self.views.backup_index >= 0 and not self.view_manager.policy.silence_adds_up:
            self.views.forget_backup()
        complete = not silent and len(self.peers) + 1 >= len(self.views.configured_members)
        return self.membership.handshake.poll(complete, self.view_manager.backfill.lacks_newer_position, now)

    def _poll_views(self, now: ClockReading) -> int:
        views, bootstrap = self.views, self.membership.bootstrap
        if not bootstrap.is_bootstrapped and views.accepted is None and self.lifecycle.log is None:
            return FOREVER_MS
        is_checked = now.mono < self._views_checked_ms + VIEW_CHECK_INTERVAL_MS
        if views.is_settled and not views.needs_check and is_checked:
            return FOREVER_MS
        views.needs_check, self._views_checked_ms = False, now.mono
        wake = self.view_manager.poll(bootstrap.admitted and bootstrap.is_bootstrapped and not self.closing)
        self.router.flush()
        self.lifecycle.enter_view(now)
        return wake

    # Output

    def drain(self) -> Effects:
        """The output since the last call. Its ``records`` go to the journal before the rest of it leaves."""
        outbox, marks, truncated_to = self.outbox, self._marks, NOT_TRUNCATED
        log = self.lifecycle.log
        if log is not None:
            truncated_to = log.take_truncation()
            if truncated_to != NOT_TRUNCATED:  # equal numbers would not be the same log
                self._marks = self._marks._replace(log=-1)
            marks = compute_marks(self._marks, log, self.peers, self.local.node, self.views.configured_members)
        changed = marks is not self._marks
        if not (changed or outbox.records or outbox.sends or outbox.reads):
            return NO_EFFECTS
        self._marks = marks
        effects = Effects(outbox.records.copy(), outbox.sends, marks if changed else None, outbox.reads, truncated_to)
        outbox.records.clear()  # the log appends to this very list
        outbox.sends, outbox.reads = [], []
        return effects

    # Clients

    def submit(
        self, batch: list[Submission], now: ClockReading, room_for_work: bool
    ) -> list[SubmissionAccepted | Refused]:
        """Give txids and stamps to transactions, in order; answer ``i`` is that of transaction ``i``. A batch is taken
        as a whole, or refused as a whole when this master takes no work (:class:`Unavailable`)."""
        self.local.disk_full = not room_for_work
        refusal = self.membership.admission.error()
        replication = self.lifecycle.replication
        if refusal is None and replication is not None:
            submissions = replication.submissions
            refusal = submissions.queue_full_error(len(batch))
            if refusal is None:
                refusals = self._synchronous_refusals(replication, batch, self.membership.admission.refusals(batch))
                replication.state.raise_counter(now)  # also without a view: first stamps tell when a key was taken
                return submissions.submit(batch, refusals, self._submission_terms(replication), now)
        assert refusal is not None
        return [refusal] * len(batch)

    def _synchronous_refusals(
        self, replication: Replication, batch: list[Submission], refusals: list[Refused | None]
    ) -> list[Refused | None]:
        """The refusals of a batch, with those of its synchronous transactions (rules S2, S15)."""
        if all(one.kind not in SYNCHRONOUS_KINDS for one in batch):
            return refusals
        undecided, found = self.view_manager.undecided, list(refusals)
        count, size = undecided.count_own(replication.state)
        for at, one in enumerate(batch):
            if one.kind in SYNCHRONOUS_KINDS and found[at] is None:
                key = decode_synchronous_key(one.key)
                found[at] = undecided.refusal(replication.state, key, (count, size))
                if found[at] is None:
                    count, size = count + 1, size + len(one.payload)
        return found

    def _submission_terms(self, replication: Replication) -> SubmissionTerms:
        configured, log = self.views.configured_members, replication.log
        others = [one.node for one in configured if one.node != self.local.node]
        view = self.views.accepted
        is_known = log.keys.has_first_stamps or (view is not None and view.level >= LEVEL_FIRST_STAMPS)
        proven = others if is_known else []
        marks = self.local.peer_levels.are_all(LEVEL_FIRST_STAMPS, others, proven)
        refusal = None
        if others:
            is_alone = self.views.installed and not self.peers
            refusal = self.local.clock.lag_error(log.last_stamp, log.keys.retention_ms // KEY_LAG_SHARE, is_alone)
        if refusal is None and not marks:
            refusal = self._keys_wait([node for node in others if node not in proven])
        if len(log.keys) >= self.settings.keys_max:
            refusal = log.keys.full_error(replication.key_horizon.away(configured))
        return SubmissionTerms(self.views.is_stopped, marks, refusal)

    def _keys_wait(self, unproven: list[str]) -> Unavailable | None:
        """Why a transaction with a key is not taken without a first stamp: the next view may give it another stamp, and
        its age would begin with that view (rule 16). Older masters keep no first stamp in any case. While a view is in
        force, only its members are waited for."""
        unheard = self.local.peer_levels.undecided(LEVEL_FIRST_STAMPS, unproven)
        view = self.views.accepted
        if view is not None and not self.views.is_stopped:
            known = {one.node for one in view.members}
            unheard = [node for node in unheard if node in known]
        if not unheard:
            return None
        text = f"{', '.join(unheard)} sent no hello since this start, and a key has no age until all masters keep it"
        return Unavailable("Starting", text)

    def prepare_change(self, wanted: Configuration, why: str) -> Submission:
        """The submission that makes ``wanted`` follow the configuration in force. :class:`BadInput` when ``wanted`` is
        not valid, :class:`ChangePending`, or :class:`Conflict` where there is no configuration to change yet."""
        return self.membership.changes.prepare_change(wanted, why)

    # Synchronous transactions

    @property
    def synchronous_status(self) -> SynchronousStatus | None:
        """Whether this master's view decides, by which votes, and what is undecided; None in a cluster without
        synchronous transactions."""
        replication = self.lifecycle.replication
        return self.view_manager.undecided.status(replication.state) if replication is not None else None

    def synchronous_progress(self, txid: Txid, stable: int, applied: int, *, asks_quorum: bool) -> Progress | None:
        """What this master knows of a synchronous transaction, for :func:`.find_answer`; None for an ordinary one, and
        for one that took effect in the trimmed part of the log. ``stable``, ``applied``: the indices up to which
        clients may get an answer. ``asks_quorum``: see :meth:`UndecidedTransactions.progress`."""
        replication = self.lifecycle.replication
        if replication is None:
            return None
        undecided = self.view_manager.undecided
        return undecided.progress(replication.state, txid, stable, applied, asks_quorum=asks_quorum)

    def give_up_votes(self, nodes: list[str]) -> None:
        """See :meth:`UndecidedTransactions.give_up_votes`."""
        self.view_manager.undecided.give_up_votes(nodes)

    # Workers and backups

    @property
    def executes_to_end(self) -> bool:
        """Workers execute up to the log's end, not only to the stable index: a member is silent, and the view's
        strategy is ``None``."""
        view = self.views.accepted
        if view is None or view.strategy != "None" or self.views.majority_required or not self.views.is_active:
            return False
        return any(not self.is_present(p) for p in self.peers)

    @property
    def needs_split_backup(self) -> bool:
        """A member is silent: before the view may exclude it, a backup of an up-to-date worker must exist (rule 23)."""
        state = self.lifecycle.state
        return self.split_backup.is_missing(state, self.closing) and self.split_backup.is_possible(state)

    @property
    def accepts_earlier_backup(self) -> bool:
        """As :attr:`needs_split_backup`, where no new backup can be made. An earlier backup suffices, if its position
        is on the log."""
        return self.split_backup.is_missing(self.lifecycle.state, self.closing) and not self.views.installed

    @property
    def silent_members(self) -> list[str]:
        """Members of the view that are silent, or that receive from no member."""
        state = self.lifecycle.state
        return self.split_backup.silent_members(state) if state is not None else []

    def check_backup_position(self, index: int, value: bytes, epoch: int) -> None:
        """:class:`OffTheLog` unless every branch that a split can make of this view has this position. ``epoch``: that
        of the marker; -1 when not known."""
        self.split_backup.check_position(self.lifecycle.state, index, value, epoch)

    def on_backup_verified(self, index: int, value: bytes, epoch: int = -1) -> None:
        """Record a verified backup at this position. Raises as :meth:`check_backup_position`."""
        self.check_backup_position(index, value, epoch)
        self.views.record_backup(index)

    # Trimming

    def decide_trim(self, positions: list[RetentionPosition], keep_from: int) -> TrimDecision:
        """How far the log may be trimmed (rule 19). ``positions`` has all workers of all data centres and all backups;
        the entries after ``keep_from`` are kept in any case."""
        replication = self.lifecycle.replication
        if replication is None:
            return TrimDecision(0, 0, [])
        views = self.views
        masters = [m.node for m in views.configured_members]
        known = replication.state.log_positions(views.candidates)
        decision = decide_trim(replication.log, positions, masters, known, keep_from)
        if not views.is_active or views.newer_view is not None or views.change is not None:
            return decision._replace(trim_to=decision.start)
        return decision

    def trim(self, start: LogStart) -> None:
        """Discard the log up to this log start, as :meth:`decide_trim` allows."""
        replication = self.lifecycle.replication
        assert replication is not None, "only a log is trimmed"
        replication.log.trim(start)
        own = start.last_seq_of(*self.local.origin)
        for peer in replication.peers:
            peer.on_log_trimmed(own)

    # Orders of the driver and the operator

    def apply_settings(self, settings: ProtocolSettings) -> None:
        """Replace the time-outs and the preferred strategy. All settings that masters have to agree on must be equal.
        A preferred strategy that the view does not know of leads to a view of the same members."""
        mine = self.settings
        assert (settings.node, settings.members, settings.majority) == (mine.node, mine.members, mine.majority)
        assert settings.key_retention_ms == mine.key_retention_ms, "it decides what the log means"
        self.local.settings = settings
        self.failure_detector.set_round_timeout(settings.round_timeout_ms)
        self.views.needs_check = True

    def order_bootstrap(self, members: list[str], forget: bool = False) -> None:
        """The operator's override: these masters bootstrap the cluster. ``forget``: also masters that lost the journal
        of an earlier cluster. :class:`Conflict` when it is not valid. It is in force, for this start and later ones,
        once its record is durable."""
        self.membership.bootstrap.order_bootstrap(members, forget)

    def force_view(self, without: list[str]) -> None:
        """The operator's override: continue without these members. :class:`Conflict` when it is not valid. It is in
        force, for this start and later ones, once its record is durable."""
        self.views.needs_check = True
        self.views.force_view(without)

    def report_down(self, node: str, birth: int, start: int) -> None:
        """The supervisor has proved that this process of a member is gone. :class:`Conflict` when a later one was
        seen."""
        self.views.needs_check = True
        self.views.report_down(node, birth, start)

    def leave(self, now: ClockReading, timeout_ms: int) -> None:
        """Take no more work, and leave the view; see :meth:`DepartureHandler.leave`."""
        self.membership.departure.leave(now, timeout_ms)
