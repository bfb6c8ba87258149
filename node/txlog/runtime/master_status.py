"""What other rooms may read of a master's core and journal: the one place that knows where each fact is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txlog.model.configuration import Configuration
from txlog.model.entry import TransactionRun
from txlog.model.ids import Txid
from txlog.model.quorum import Quorum
from txlog.model.view import Number, View
from txlog.protocol.events import ConfiguredMember, ProtocolSettings, Submission
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.durability_marks import is_held_by_quorum
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.protocol.views.decisions import Progress
from txlog.protocol.views.undecided import SynchronousStatus
from txlog.runtime.executor import Executor
from txlog.wire.messages import ProposeView, ViewReport


class MasterStatus:
    """Reads one master; it changes nothing. Each value is that of the call."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._core = executor.core

    @property
    def state(self) -> str:
        """See :attr:`Core.state`."""
        return self._core.state

    @property
    def birth(self) -> int:
        """The incarnation of this master's journal."""
        return self._core.birth

    @property
    def start(self) -> int:
        """How often a process was started on this journal, this one included."""
        return self._core.start

    @property
    def settings(self) -> ProtocolSettings:
        """The settings in force at this master."""
        return self._core.settings

    @property
    def log_state(self) -> LogState | None:
        """The core's log; None while this master has none."""
        return self._core.log_state

    @property
    def is_admitted(self) -> bool:
        """Whether this start may vote (rule 2)."""
        return self._core.membership.bootstrap.admitted

    @property
    def lost_journal(self) -> str | None:
        """What is known of the journal that this master lost, while it waits for an order; None otherwise."""
        bootstrap = self._core.membership.bootstrap
        return bootstrap.lost_journal_text if bootstrap.awaits_order else None

    @property
    def is_stranded_on_full_disk(self) -> bool:
        """Whether this master cannot persist anything, and a present member of its active view can."""
        core = self._core
        if not core.disk_full or not core.views.is_active:
            return False
        return any(not peer.disk_full for peer in core.peers if core.is_present(peer))

    @property
    def is_removed(self) -> bool:
        """Whether the configuration in force has removed this master for ever."""
        return self._core.removed

    @property
    def has_left_view(self) -> bool:
        """Whether this master has left its view, or never was in one."""
        return self._core.is_leave_done or self._core.views.accepted is None

    @property
    def executes_to_end(self) -> bool:
        """See :attr:`Core.executes_to_end`."""
        return self._core.executes_to_end

    # The view

    def older_masters(self, level: int) -> list[str]:
        """The other configured masters that are known to have less than this level (``wire/protocol_level.py``)."""
        core = self._core
        others = [one.node for one in core.views.configured_members if one.node != core.local.node]
        return core.local.peer_levels.older(level, others)

    @property
    def cluster_id(self) -> str:
        """The id of this master's cluster, in hexadecimal; empty without one."""
        log = self._core.log_state
        return log.view.cluster_id.hex() if log is not None else ""

    @property
    def view(self) -> View | None:
        """The latest accepted view, installed or not."""
        return self._core.views.accepted

    @property
    def cluster_view(self) -> View | None:
        """The accepted view, once this master belongs to its cluster for good: it is installed, or follows another."""
        view = self._core.views.accepted
        return view if view is not None and (self._core.views.installed or view.ancestors) else None

    @property
    def view_number(self) -> Number:
        """Its number; ``NO_VIEW`` without one."""
        return self._core.views.number

    @property
    def newer_view(self) -> View | None:
        """A view of other masters that this one has to rejoin."""
        return self._core.views.newer_view

    @property
    def promised_view(self) -> Number:
        """The highest number for which this master has stopped its view."""
        return self._core.views.promised

    @property
    def proposed_view(self) -> Number | None:
        """The number of the view change that this master coordinates now."""
        change = self._core.views.change
        return change.number if change is not None else None

    @property
    def is_view_installed(self) -> bool:
        """Whether the latest accepted view is installed here."""
        return self._core.views.installed

    @property
    def is_view_stopped(self) -> bool:
        """Whether this master has stopped its view for the next one."""
        return self._core.views.is_stopped

    @property
    def is_view_active(self) -> bool:
        """Whether the view is installed and not stopped: it orders transactions."""
        return self._core.views.is_active

    @property
    def view_blocked_reason(self) -> str:
        """Why a wanted view change cannot begin; empty if none is wanted, or if nothing blocks it."""
        return self._core.views.blocked_reason

    @property
    def split_mode(self) -> str:
        """``Majority`` or ``Continue``."""
        return "Majority" if self._core.views.majority_required else "Continue"

    @property
    def departures(self) -> dict[str, str]:
        """Members that are known to leave the view: node id to reason."""
        views = self._core.views
        if not views.departures and not views.overrides:
            return {}
        return {node: departure.why for node, departure in views.departing.items()}

    # The other masters

    @property
    def configured_members(self) -> Sequence[ConfiguredMember]:
        """Every master of the cluster, in order of precedence: from the log, or from the manifests before the
        bootstrap."""
        return self._core.views.configured_members

    def peer(self, node: str) -> PeerProgress | None:
        """The core's state of another member of the view."""
        return next((peer for peer in self._core.peers if peer.node == node), None)

    def is_present(self, node: str) -> bool:
        """Whether this other member of the view takes part in the order now."""
        peer = self.peer(node)
        return peer is not None and self._core.is_present(peer)

    @property
    def present_peers(self) -> list[str]:
        """The other members of the view that take part in the order now."""
        return [peer.node for peer in self._core.peers if self._core.is_present(peer)]

    @property
    def silent_members(self) -> list[str]:
        """See :attr:`Core.silent_members`."""
        return self._core.silent_members

    def live_peers(self) -> list[str]:
        """The masters from which messages arrive."""
        return self._core.failure_detector.live_peers()

    def is_alive(self, node: str) -> bool:
        """Whether messages arrive from this master."""
        return self._core.failure_detector.is_alive(node)

    def is_bidirectional(self, node: str) -> bool:
        """Whether messages arrive in both directions."""
        return self._core.failure_detector.is_bidirectional(node)

    def is_reachable(self, node: str) -> bool:
        """Whether messages reach this master and return, if need be over others."""
        return node in self._core.failure_detector.reachable()

    # The configuration

    @property
    def configuration(self) -> Configuration | None:
        """The configuration at the stable end of this master's log; None before the bootstrap."""
        return self._core.configuration

    @property
    def pending_change(self) -> Txid | None:
        """The change of the configuration that has no place in the stable log yet."""
        return self._core.pending_change

    def prepare_change(self, wanted: Configuration, why: str) -> Submission:
        """See :meth:`Core.prepare_change`."""
        return self._core.prepare_change(wanted, why)

    # Backups for a split

    @property
    def needs_split_backup(self) -> bool:
        """See :attr:`Core.needs_split_backup`."""
        return self._core.needs_split_backup

    @property
    def accepts_earlier_backup(self) -> bool:
        """See :attr:`Core.accepts_earlier_backup`."""
        return self._core.accepts_earlier_backup

    @property
    def split_backup_index(self) -> int | None:
        """The index of the latest verified backup for the present split."""
        index = self._core.views.backup_index
        return index if index >= 0 else None

    def view_report(self, proposal: ProposeView) -> ViewReport:
        """What this master would report to this proposal. Nothing is promised."""
        return self._core.view_manager.participant.build_report(proposal)

    def check_backup_position(self, index: int, digest: bytes, epoch: int) -> None:
        """See :meth:`Core.check_backup_position`."""
        self._core.check_backup_position(index, digest, epoch)

    # Transactions of any master

    def is_persisted(self, txid: Txid) -> bool:
        """Whether this master has the transaction durably. The core's own knowledge may be ahead of the disk."""
        agreement = self.log_state
        queue = agreement.by_origin.get(txid.origin) if agreement is not None else None
        return queue is not None and txid.seq <= queue.held and self._executor.is_durable(txid)

    def synchronous_progress(self, txid: Txid, stable: int, applied: int, *, asks_quorum: bool) -> Progress | None:
        """See :meth:`Core.synchronous_progress`. What a quorum holds counts once it is durable here, too."""
        found = self._core.synchronous_progress(txid, stable, applied, asks_quorum=asks_quorum)
        if found is None or not found.certain or self.is_persisted(txid):
            return found
        return found._replace(certain=False)

    def own_seq_held_by(self, quorum: Quorum) -> int:
        """See :meth:`UndecidedTransactions.own_seq_held_by`; 0 without a log."""
        core = self._core
        state = core.lifecycle.state
        return 0 if state is None else core.view_manager.undecided.own_seq_held_by(state, quorum)

    @property
    def synchronous_versions(self) -> tuple[int, int]:
        """Two numbers of which one changes with everything that :meth:`synchronous_progress` is computed from, but for
        the view and what is durable here."""
        state = self._core.lifecycle.state
        return (0, 0) if state is None else (state.schedule.version, state.log.synchronous.version)

    @property
    def synchronous_status(self) -> SynchronousStatus | None:
        """See :attr:`Core.synchronous_status`."""
        return self._core.synchronous_status

    def is_held_by_quorum(self, txid: Txid) -> bool:
        """Whether this master and the members of its view that report the transaction have more than half of all
        configured weight."""
        agreement, core = self.log_state, self._core
        return (
            agreement is not None
            and self.is_persisted(txid)
            and is_held_by_quorum(agreement, core.peers, core.local.node, self.configured_members, txid)
        )

    # The journal

    def read_transactions(
        self, node: str, birth: int, first_seq: int, count_max: int, bytes_max: int
    ) -> TransactionRun:
        """Transactions of one origin, from ``first_seq`` on: at least one, and at most ``bytes_max`` bytes of
        payloads after it."""
        return self._executor.journal.read(node, birth, first_seq, count_max, bytes_max)

    def stamp_at(self, index: int) -> int:
        """The stamp of an entry that this master's log still contains."""
        agreement = self.log_state
        assert agreement is not None
        return self._executor.stamp_at(agreement, index)

    @property
    def journal_bytes_used(self) -> int | None:
        """The size of the journal's files; None for a journal that does not report it."""
        journal: Any = self._executor.journal
        return getattr(journal, "bytes_used", None)

    @property
    def journal_bytes_free(self) -> int | None:
        """The bytes that the journal may still take; None for a journal that does not report it."""
        journal: Any = self._executor.journal
        return getattr(journal, "bytes_free", None)
