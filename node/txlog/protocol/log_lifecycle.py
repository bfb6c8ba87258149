"""The log of a master comes into being: with its first view, or when it begins to follow a cluster."""

from __future__ import annotations

from typing import Final

from txlog.model.records import RecoveredState
from txlog.model.view import NO_VIEW, Number
from txlog.protocol.events import ClockReading
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.log.log_state import LogState
from txlog.protocol.outbox import Outbox
from txlog.protocol.replication.failure_detector import FailureDetector
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.protocol.replication.replication import Replication
from txlog.protocol.replication.replication_state import ReplicationState, learner_log
from txlog.protocol.views.view_state import ViewState

_NOT_ENTERED: Final[tuple[Number, bool]] = (NO_VIEW, False)


class NoLog:
    """This master has no log yet: no view, and no cluster to follow. ``recovered``: what its journal had."""

    def __init__(self, recovered: RecoveredState) -> None:
        self.recovered = recovered


class Learner:
    """This master follows a cluster without a view. It persists what it receives and has no vote (rule 2)."""

    def __init__(self, replication: Replication) -> None:
        self.replication = replication


class InView:
    """This master has a view, installed or not."""

    def __init__(self, replication: Replication) -> None:
        self.replication = replication


LogPhase = NoLog | Learner | InView


class LogLifecycle:
    """``phase`` has the log and its replication, once there is one."""

    def __init__(
        self,
        local: LocalMaster,
        failure_detector: FailureDetector,
        views: ViewState,
        outbox: Outbox,
        recovered: RecoveredState,
    ) -> None:
        self._local = local
        self._failure_detector = failure_detector
        self._views = views
        self._outbox = outbox
        self._ceiling = recovered.ceiling
        self._entered = _NOT_ENTERED
        self.phase: LogPhase = NoLog(recovered)

    @property
    def replication(self) -> Replication | None:
        """The exchange with the other members; None without a log."""
        return None if isinstance(self.phase, NoLog) else self.phase.replication

    @property
    def state(self) -> ReplicationState | None:
        """What replication works on; None without a log."""
        return None if isinstance(self.phase, NoLog) else self.phase.replication.state

    @property
    def log(self) -> LogState | None:
        """This master's log and queue; None before it is in a view or follows one."""
        return None if isinstance(self.phase, NoLog) else self.phase.replication.state.log

    @property
    def peers(self) -> list[PeerProgress]:
        """The other members of the latest view."""
        return [] if isinstance(self.phase, NoLog) else self.phase.replication.state.peers

    @property
    def learner_log(self) -> LogState | None:
        """The log of a master without a view, to which alone a snapshot may be given."""
        if not isinstance(self.phase, Learner) or self._views.accepted is not None:
            return None
        return self.phase.replication.log

    @property
    def last_own_seq(self) -> int:
        """The last own seq, with a log or without."""
        if not isinstance(self.phase, NoLog):
            return self.phase.replication.log.last_own_seq
        recovered, own = self.phase.recovered, self._local.origin
        queued = [q.first_seq + len(q.stamps) - 1 for q in recovered.queued if q.birth == own.birth]
        logged = [s.first_seq + s.count - 1 for s in recovered.log_spans if s.birth == own.birth]
        return max([recovered.log_start.last_seq_of(own.node, own.birth), *queued, *logged])

    @property
    def last_stamp(self) -> int:
        """The greatest stamp that this master has seen, made or promised."""
        return self._ceiling if isinstance(self.phase, NoLog) else self.phase.replication.log.last_stamp

    def enter_view(self, now: ClockReading) -> None:
        """After a start, an accept or an install: replication begins with the members of the latest view."""
        views, view = self._views, self._views.accepted
        if view is None or not (views.installed or view.ancestors):
            return
        entered = (view.number, views.installed)
        if entered == self._entered:
            return
        self._entered = entered
        if isinstance(self.phase, NoLog):
            recovered, retention_ms = self.phase.recovered, self._local.settings.key_retention_ms
            log = LogState(self._local.origin, view, recovered, retention_ms, records=self._outbox.records)
            replication = self._begin_replication(log)
        else:
            replication = self.phase.replication
        replication.log.installed = views.installed
        self.phase = InView(replication)
        replication.state.enter_view(view, views.installed, now)

    def become_learner(self, cluster: bytes) -> None:
        """A master without a log follows the cluster with this id."""
        if isinstance(self.phase, NoLog):
            log = learner_log(self._local, self.phase.recovered, cluster, self._outbox)
            self.phase = Learner(self._begin_replication(log))

    def _begin_replication(self, log: LogState) -> Replication:
        self._views.log_state = log
        return Replication(ReplicationState(self._local, self._failure_detector, self._outbox, log, self._ceiling))
