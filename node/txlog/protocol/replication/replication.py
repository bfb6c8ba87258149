"""All parts of replication, over one log."""

from __future__ import annotations

from txlog.protocol.events import ClockReading
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.commit import LogCommitter
from txlog.protocol.replication.key_horizon import KeyHorizon
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.protocol.replication.post_receiver import PostReceiver
from txlog.protocol.replication.post_sender import PostSender
from txlog.protocol.replication.replication_state import ReplicationState
from txlog.protocol.replication.submission import SubmissionHandler


class Replication:
    """``state`` is shared by the parts. It exists as soon as this master has a log."""

    def __init__(self, state: ReplicationState) -> None:
        self.state = state
        self.committer = LogCommitter(state)
        self.receiver = PostReceiver(state, self.committer)
        self.sender = PostSender(state)
        self.submissions = SubmissionHandler(state)
        self.key_horizon = KeyHorizon(state)

    @property
    def log(self) -> LogState:
        """This master's log and queue."""
        return self.state.log

    @property
    def peers(self) -> list[PeerProgress]:
        """The other members of the latest view."""
        return self.state.peers

    def post_due_ms(self, peer: PeerProgress, now: ClockReading) -> int:
        """When the next post to the peer is due, after requests that were not answered in time are given up."""
        peer.expire_in_flight(now.mono - self.state.schedule.resend_ms)
        return self.state.schedule.due_ms(self.log, peer)
