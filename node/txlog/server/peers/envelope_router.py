"""Messages of further logs: each goes to the log that its envelope names, and leaves in an envelope of its log."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from txlog.model.configuration import Configuration
from txlog.server.peers.peer_link import MessageReceiver
from txlog.server.peers.peer_links import PeerLinks
from txlog.wire.envelope import unwrap

DROPPED_NUMBERS_MAX = 1000
"""Numbers of logs that are counted one by one. They come from outside: this bounds the memory."""


class DropReason(StrEnum):
    """Why a message of a further log was not delivered. The protocol repairs the loss, if there is one."""

    UNKNOWN_LOG = "UnknownLog"
    """This master has no log of that number, or not yet."""
    REMOVED_LOG = "RemovedLog"
    CLOSED_LOG = "ClosedLog"
    """The log failed at this master, and is closed here."""


class EnvelopeRouter:
    """The further logs of this process by number. ``unknown(peer, number)`` is called for a message of a log that is
    neither here nor closed."""

    def __init__(self, unknown: Callable[[str, int], None] = lambda peer, number: None) -> None:
        self._receivers: dict[int, MessageReceiver] = {}
        self._closed: dict[int, DropReason] = {}
        self._on_unknown = unknown
        self.dropped: dict[tuple[int, DropReason], int] = {}
        """Messages that were not delivered, by number of the log and reason."""

    def open_log(self, number: int, receiver: MessageReceiver) -> None:
        """Delivers messages of this log from now on."""
        assert number not in self._receivers, f"two logs with the number {number}"
        self._closed.pop(number, None)
        self._receivers[number] = receiver

    def close_log(self, number: int, reason: DropReason) -> None:
        """Drops messages of this log from now on, for this reason."""
        self._receivers.pop(number, None)
        self._closed[number] = reason

    def receive_envelope(self, peer: str, data: bytes) -> None:
        """Delivers one message. :class:`PeerFault` for bytes that are no envelope, or when the log refuses it."""
        number, message = unwrap(peer, data)
        receiver = self._receivers.get(number)
        if receiver is not None:
            receiver.receive(peer, message)
            return
        reason = self._closed.get(number, DropReason.UNKNOWN_LOG)
        if len(self.dropped) >= DROPPED_NUMBERS_MAX:
            self.dropped.clear()
        self.dropped[number, reason] = self.dropped.get((number, reason), 0) + 1
        if reason is DropReason.UNKNOWN_LOG:
            self._on_unknown(peer, number)


class EnvelopeLinks:
    """The way of one further log to the other masters: the links of the process, in envelopes. It implements
    :class:`~txlog.server.log_routes.LogLinks`."""

    def __init__(self, number: int, links: PeerLinks) -> None:
        self._number = number
        self._links = links

    def send(self, peer: str, data: bytes) -> None:
        """Queues one message. Never blocks. It is dropped if the peer reads no envelopes."""
        link = self._links.links.get(peer)
        if link is not None:
            link.send_in_envelope(self._number, data)

    def connected_peers(self) -> list[str]:
        """The peers that a message of this log can be sent to now."""
        return [node for node, link in self._links.links.items() if link.reads_envelopes]

    def describe(self) -> dict[str, Any]:
        """The links of the process."""
        return self._links.describe()

    def on_configuration(self, configuration: Configuration) -> None:
        """Does nothing: the first log decides which masters there are links to."""
