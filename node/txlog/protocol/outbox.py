"""What the parts of a core issue between two drains: records, messages and reads, in the order in which they arise."""

from __future__ import annotations

from txlog.model.entry import Span
from txlog.model.records import Record
from txlog.protocol.events import JournalRead, OutgoingMessage
from txlog.wire.messages import Message, RunsReply


class Outbox:
    """All parts of one core share it; only the core empties it, into one :class:`~txlog.protocol.events.Effects`.

    ``records``: durable before any of ``sends`` leaves. ``routed``: messages that take a detour where the direct link
    is lost; the core turns them into ``sends`` at the end of each step. ``reads``: answers that the driver completes
    from the journal."""

    __slots__ = ("reads", "records", "routed", "sends")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.sends: list[OutgoingMessage] = []
        self.routed: list[tuple[str, Message]] = []
        self.reads: list[JournalRead] = []

    def append(self, record: Record) -> None:
        """Append this record to the journal."""
        self.records.append(record)

    def send(self, node: str, message: Message) -> None:
        """Send the message over the direct link."""
        self.sends.append(OutgoingMessage(node, message, None))

    def send_routed(self, node: str, message: Message) -> None:
        """Send the message, around a lost link where needed (rule 22)."""
        self.routed.append((node, message))

    def read(self, sends: list[OutgoingMessage], reply: RunsReply, spans: list[Span]) -> None:
        """Read ``spans`` now, and send ``reply`` with its transactions as ``sends`` say."""
        self.reads.append(JournalRead(sends, reply, spans))
