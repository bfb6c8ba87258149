"""One peer: its connections, the messages that wait for them, and the received ones. Compiled: every message passes
here."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from txlog.config.process_config import PeerConfig
from txlog.model.errors import PeerFault
from txlog.server.peers.frame_connection import FrameConnection

QUEUE_BYTES_MAX: Final = 32 << 20
"""Bytes that may wait for one peer's connection: eight full frames. More would only delay newer messages."""
QUEUE_MESSAGES_MAX: Final = 256
QUEUE_UNCONNECTED_MAX: Final = 8
"""Messages kept for a peer without a connection: a post is worth little when it is old."""


class MessageReceiver(Protocol):
    """The receiver of messages from peers: the loop, or the repair of a damaged journal before there is a loop."""

    def receive(self, peer: str, data: bytes) -> None:
        """Handles one message; raises ``PeerFault`` when it refuses the message."""

    def count_fault(self, peer: str, reason: str) -> None:
        """Counts a message or connection of a peer that was refused."""


class PeerLink:
    """One peer. ``dropped`` counts messages that were dropped because the queue was full. ``fault(link, fault)`` is
    called for each refused message."""

    def __init__(self, config: PeerConfig, fault: Callable[[PeerLink, PeerFault], None]) -> None:
        self.config = config
        self.node: str = config.node
        self.receiver: MessageReceiver | None = None
        self.outgoing: FrameConnection | None = None
        self.incoming: FrameConnection | None = None
        self.last_error: str | None = None
        self.last_received_at: float | None = None
        self.sent_messages = 0
        self.sent_bytes = 0
        self.dropped = 0
        self.faults = 0
        self.last_fault: str | None = None
        self._on_fault = fault
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0

    @property
    def connection(self) -> FrameConnection | None:
        """The connection over which messages leave; None while there is none."""
        outgoing = self.outgoing
        if outgoing is not None and not outgoing.is_closed:
            return outgoing
        incoming = self.incoming
        return incoming if incoming is not None and not incoming.is_closed else None

    def send(self, data: bytes) -> None:
        """Sends a message, or queues it. Never blocks."""
        connection = self.connection
        if connection is not None and not connection.is_paused and not self._queue:
            connection.send(data)
            self.sent_messages += 1
            self.sent_bytes += len(data)
            return
        self._queue.append(data)
        self._queue_bytes += len(data)
        most = QUEUE_MESSAGES_MAX if connection is not None else QUEUE_UNCONNECTED_MAX
        while len(self._queue) > 1 and (len(self._queue) > most or self._queue_bytes > QUEUE_BYTES_MAX):
            self._queue_bytes -= len(self._queue.popleft())
            self.dropped += 1

    def flush(self) -> None:
        """Sends the queued messages: there is a connection, or it can be written again."""
        while self._queue:
            connection = self.connection
            if connection is None or connection.is_paused:
                return
            data = self._queue.popleft()
            self._queue_bytes -= len(data)
            connection.send(data)
            self.sent_messages += 1
            self.sent_bytes += len(data)

    @property
    def queued(self) -> tuple[int, int]:
        """Messages and bytes in the queue."""
        return len(self._queue), self._queue_bytes

    def receive(self, data: bytes) -> None:
        """Handles a message of this peer."""
        receiver = self.receiver
        assert receiver is not None
        self.last_received_at = time.time()
        try:
            receiver.receive(self.node, data)
        except PeerFault as fault:
            self.faults += 1
            self.last_fault = str(fault)[:500]
            self._on_fault(self, fault)
