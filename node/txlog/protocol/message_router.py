"""Messages around a lost link: through masters that reach both ends (rule 22)."""

from __future__ import annotations

from txlog.model.errors import PeerFault
from txlog.protocol.events import OutgoingMessage
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.outbox import Outbox
from txlog.protocol.replication.failure_detector import FailureDetector
from txlog.protocol.views.view_state import ViewState
from txlog.wire.messages import Message, Relay


class MessageRouter:
    """Knows by the failure detector which links work. Safety never depends on it: messages may get lost."""

    def __init__(self, local: LocalMaster, failure_detector: FailureDetector, views: ViewState, outbox: Outbox) -> None:
        self._local = local
        self._failure_detector = failure_detector
        self._views = views
        self._outbox = outbox

    def route(self, node: str, message: Message) -> list[OutgoingMessage]:
        """The message to that master, or to those that reach it when the link between the two is lost."""
        if self._failure_detector.is_bidirectional(node) or node not in self._failure_detector.reachable():
            return [OutgoingMessage(node, message, None)]
        return [OutgoingMessage(step, message, None, node) for step in self._next_hops(node)]

    def flush(self) -> None:
        """Give every routed message of the outbox its way."""
        routed, self._outbox.routed = self._outbox.routed, []
        for node, message in routed:
            if node != self._local.node:
                self._outbox.sends += self.route(node, message)

    def pass_on(self, peer: str, relay: Relay) -> bool:
        """Pass a relayed message on, one hop; each message passes a master once. True when it is for this master."""
        if not relay.path or len(relay.path) > len(self._views.configured_members):
            raise PeerFault(peer, "Malformed", "a forwarded message without a path that fits")
        if relay.target == self._local.node:
            return True
        if self._local.node not in relay.path:
            onward = Relay(relay.target, [*relay.path, self._local.node], relay.message)
            for node in self._next_hops(relay.target):
                if node not in relay.path:
                    self._outbox.send(node, onward)
        return False

    def _next_hops(self, target: str) -> list[str]:
        detector = self._failure_detector
        if detector.is_bidirectional(target):
            return [target]
        others = [m.node for m in self._views.configured_members if m.node not in (self._local.node, target)]
        return [node for node in others if detector.is_bidirectional(node)]
