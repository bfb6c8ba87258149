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
from txlog.wire.envelope import ENVELOPE_FORMAT, LEVEL_ENVELOPES, wrap

QUEUE_BYTES_MAX: Final = 32 << 20
"""Bytes that may wait for one peer's connection: eight full frames. More would only delay newer messages."""
QUEUE_MESSAGES_MAX: Final = 256
QUEUE_UNCONNECTED_MAX: Final = 8
"""Messages kept for a peer without a connection: a post is worth little when it is old."""
FURTHER_QUEUE_MESSAGES_MAX: Final = 16
FURTHER_QUEUE_BYTES_MAX: Final = 8 << 20
"""The same for each further log. There are several, and each leaves in turn."""
FIRST_LOG: Final = 0


class MessageReceiver(Protocol):
    """The receiver of messages from peers: the loop, or the repair of a damaged journal before there is a loop."""

    def receive(self, peer: str, data: bytes) -> None:
        """Handles one message; raises ``PeerFault`` when it refuses the message."""

    def count_fault(self, peer: str, reason: str) -> None:
        """Counts a message or connection of a peer that was refused."""


class EnvelopeReceiver(Protocol):
    """The receiver of messages of further logs."""

    def receive_envelope(self, peer: str, data: bytes) -> None:
        """Delivers one message; raises ``PeerFault`` when it is refused."""


class PeerLink:
    """One peer. ``dropped`` counts messages that were dropped because the queue was full, ``dropped_older`` those of
    further logs that the peer's program cannot read. ``fault(link, fault)`` is called for each refused message.
    ``envelopes``: delivers messages of further logs; None where this process knows none."""

    def __init__(
        self,
        config: PeerConfig,
        fault: Callable[[PeerLink, PeerFault], None],
        envelopes: EnvelopeReceiver | None = None,
    ) -> None:
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
        self.dropped_older = 0
        self.faults = 0
        self.last_fault: str | None = None
        self._on_fault = fault
        self._envelopes = envelopes
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0
        self._further_queues: dict[int, deque[bytes]] = {}
        self._turns: deque[int] = deque()
        """The logs with queued messages, each once, in the order in which they send the next one."""

    @property
    def connection(self) -> FrameConnection | None:
        """The connection over which messages leave; None while there is none."""
        outgoing = self.outgoing
        if outgoing is not None and not outgoing.is_closed:
            return outgoing
        incoming = self.incoming
        return incoming if incoming is not None and not incoming.is_closed else None

    @property
    def reads_envelopes(self) -> bool:
        """Whether there is a connection, and the peer announced that it reads envelopes."""
        connection = self.connection
        return connection is not None and connection.link_level >= LEVEL_ENVELOPES

    def send(self, data: bytes) -> None:
        """Sends a message of the first log, or queues it. Never blocks."""
        connection = self.connection
        if connection is not None and not connection.is_paused and not self._turns:
            connection.send(data)
            self.sent_messages += 1
            self.sent_bytes += len(data)
            return
        if not self._queue:
            self._turns.append(FIRST_LOG)
        self._queue.append(data)
        self._queue_bytes += len(data)
        most = QUEUE_MESSAGES_MAX if connection is not None else QUEUE_UNCONNECTED_MAX
        while len(self._queue) > 1 and (len(self._queue) > most or self._queue_bytes > QUEUE_BYTES_MAX):
            self._queue_bytes -= len(self._queue.popleft())
            self.dropped += 1

    def send_in_envelope(self, number: int, message: bytes) -> None:
        """Sends a message of a further log, or queues it. Never blocks. A connection whose other end reads no
        envelopes gets none."""
        connection = self.connection
        data = wrap(number, message)
        if connection is not None and not connection.is_paused and not self._turns:
            self._write(connection, number, data)
            return
        queue = self._further_queues.setdefault(number, deque())
        if not queue:
            self._turns.append(number)
        queue.append(data)
        most = FURTHER_QUEUE_MESSAGES_MAX if connection is not None else QUEUE_UNCONNECTED_MAX
        while len(queue) > 1 and (len(queue) > most or sum(map(len, queue)) > FURTHER_QUEUE_BYTES_MAX):
            queue.popleft()
            self.dropped += 1

    def flush(self) -> None:
        """Sends the queued messages, one of each log in turn: there is a connection, or it can be written again."""
        while self._turns:
            connection = self.connection
            if connection is None or connection.is_paused:
                return
            number = self._turns.popleft()
            queue = self._further_queues[number] if number else self._queue
            data = queue.popleft()
            if not number:
                self._queue_bytes -= len(data)
            if queue:
                self._turns.append(number)
            self._write(connection, number, data)

    def _write(self, connection: FrameConnection, number: int, data: bytes) -> None:
        if number and connection.link_level < LEVEL_ENVELOPES:
            self.dropped_older += 1
            return
        connection.send(data)
        self.sent_messages += 1
        self.sent_bytes += len(data)

    @property
    def queued(self) -> tuple[int, int]:
        """Messages and bytes in the queues."""
        further = [len(data) for queue in self._further_queues.values() for data in queue]
        return len(self._queue) + len(further), self._queue_bytes + sum(further)

    def receive(self, data: bytes) -> None:
        """Handles a message of this peer."""
        receiver = self.receiver
        assert receiver is not None
        self.last_received_at = time.time()
        try:
            if self._envelopes is not None and data[0] == ENVELOPE_FORMAT:
                self._envelopes.receive_envelope(self.node, data)
            else:
                receiver.receive(self.node, data)
        except PeerFault as fault:
            self.faults += 1
            self.last_fault = str(fault)[:500]
            self._on_fault(self, fault)
