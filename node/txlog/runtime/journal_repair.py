"""Rule 28: a master fetches what its damaged journal lacks from other masters, checks it, writes it again; then
starts.

A master whose journal has a bad record that is no torn tail does not vote: there is no core yet, so it sends no post
and no added entries. It asks the others for the order of the damaged part of its log and for the transactions in it.
It proves both against the chain hash that its journal still has, and writes them again. It stays stopped while no peer
can answer. When all peers report that they do not hold what only they could have, it ends by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from txlog.model.entry import RunItem, Span, TransactionRun
from txlog.model.errors import Fatal, PeerFault
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.ids import Origin
from txlog.model.records import Damage, LogAppended, RecoveredState
from txlog.protocol.events import ClockReading, ProtocolSettings
from txlog.wire import messages as wire
from txlog.wire.messages import FetchOrder, FetchRuns, LogTruncatedBelow, Message, OrderReply, RunsReply

_RETRY_MS = 300
"""Milliseconds between two requests: after a peer that does not answer, the next one is asked."""


class DamagedJournal(Protocol):
    """The part of :class:`txlog.journal.Journal` that a repair uses."""

    def read(self, node: str, birth: int, first_seq: int, count_max: int, bytes_max: int) -> TransactionRun:
        """Transactions of one origin, from ``first_seq`` on."""

    def provable_prefix(self, run: TransactionRun) -> int:
        """How many of the first of these transactions may replace damaged ones."""


@dataclass
class RepairedRange:
    """The content of one damaged range: ``runs`` with their ``contents`` (as in ``Held``), then ``added``."""

    runs: list[TransactionRun] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    added: LogAppended | None = None


@dataclass
class _MissingRange:
    """One damaged range. ``order`` grows until it reaches ``damage.log_to``; ``items`` until nothing is missing."""

    damage: Damage
    order: list[Span] = field(default_factory=list)
    items: dict[Origin, dict[int, RunItem]] = field(default_factory=dict)

    @property
    def ordered_to(self) -> int:
        return self.damage.log_from - 1 + sum(span.count for span in self.order)

    def next_missing(self) -> Span | None:
        """The first transaction to fetch, with as many after it as are missing too."""
        for span in self.damage.spans:
            have = self.items.get(Origin(span.node, span.birth), {})
            for seq in range(span.first_seq, span.first_seq + span.count):
                if seq not in have:
                    return Span(span.node, span.birth, seq, span.first_seq + span.count - seq)
        return None


class JournalRepair:
    """One journal's repair. Drive it like the core: call ``receive`` and ``poll``, and send the messages that they
    return. When ``is_finished``, ``repaired`` lists what to write for each damage, in order."""

    def __init__(self, settings: ProtocolSettings, recovered: RecoveredState, journal: DamagedJournal) -> None:
        assert recovered.damage
        self.settings = settings
        self.repaired: list[tuple[Damage, RepairedRange]] = []
        self._recovered = recovered
        self._journal = journal
        self._missing_ranges = [_MissingRange(damage) for damage in recovered.damage]
        self._peers = [m.node for m in settings.members if m.node != settings.node]
        self._next_peer = 0
        self._last_request_ms = -(1 << 60)
        self._peers_without: set[str] = set()

    @property
    def is_finished(self) -> bool:
        """Whether everything missing was fetched and checked."""
        return not self._missing_ranges

    @property
    def damage_names(self) -> list[str]:
        """For the status page: what is damaged and what is still missing."""
        return [f"{w.damage.where}: records {w.damage.first} to {w.damage.last}" for w in self._missing_ranges]

    def poll(self, now: ClockReading) -> tuple[int, list[tuple[str, Message]]]:
        """The ``mono`` millisecond at which to poll again, and the requests to send, by peer."""
        self._complete_verified()
        if self.is_finished:
            return 1 << 60, []
        if now.mono < self._last_request_ms + _RETRY_MS:
            return self._last_request_ms + _RETRY_MS, []
        self._last_request_ms = now.mono
        if not self._peers:
            raise Fatal(
                "BeyondRepair",
                f"{self.damage_names}: this cluster has no other master to fetch it from; put an undamaged copy of the "
                "journal back, or see the way back of a lone master (docs/how-to/replace-a-disk.md)",
            )
        peer = self._peers[self._next_peer % len(self._peers)]
        self._next_peer += 1
        return now.mono + _RETRY_MS, [(peer, self._next_request())]

    def receive(self, peer: str, data: bytes, now: ClockReading) -> None:
        """Process a reply; a master that does not vote ignores all other messages."""
        message = wire.decode(peer, data)
        if not self._missing_ranges:
            return
        match message:
            case OrderReply():
                self._on_order(peer, message)
            case RunsReply():
                self._on_runs(peer, message)
            case LogTruncatedBelow():
                self._on_below(peer, message)
            case _:
                return
        self._last_request_ms = min(self._last_request_ms, now.mono - _RETRY_MS)
        self._complete_verified()

    def _next_request(self) -> Message:
        wanted = self._missing_ranges[0]
        if wanted.ordered_to < wanted.damage.log_to:
            return FetchOrder(wanted.ordered_to, wanted.damage.log_to)
        missing = wanted.next_missing()
        assert missing is not None
        return FetchRuns(missing)

    def _on_order(self, peer: str, message: OrderReply) -> None:
        wanted = self._missing_ranges[0]
        if message.after == wanted.ordered_to and message.spans:
            count = sum(span.count for span in message.spans)
            if count > wanted.damage.log_to - message.after:
                raise PeerFault(peer, "Malformed", f"{count} entries after {message.after}, more than were requested")
            wanted.order += message.spans

    def _on_below(self, peer: str, message: LogTruncatedBelow) -> None:
        """The peer has trimmed that part of its log."""
        self._peers_without.add(peer)
        if self._peers_without >= set(self._peers):
            wanted = self._missing_ranges[0]
            raise Fatal(
                "BeyondRepair",
                f"{wanted.damage.where}: the others keep the log from {message.index} on, and this stood below; start"
                " this master with an empty folder: it is sent a snapshot, and the log behind it",
            )

    def _on_runs(self, peer: str, message: RunsReply) -> None:
        wanted = self._missing_ranges[0]
        missing = wanted.next_missing()
        if missing is None or (message.runs and not any(_contains_first(run, missing) for run in message.runs)):
            return  # an answer to an earlier question says nothing of this one
        fitting = [(run, self._journal.provable_prefix(run)) for run in message.runs]
        if not any(count for _, count in fitting):
            self._peers_without.add(peer)
            if self._peers_without >= set(self._peers):
                raise Fatal(
                    "BeyondRepair",
                    f"{wanted.damage.where}: no other master holds {missing.node} seq {missing.first_seq} as it stood"
                    " here; it is lost with this disk; the log is held until it is replaced",
                )
            return
        self._peers_without.clear()
        for run, count in fitting:
            have = wanted.items.setdefault(run.origin, {})
            for offset, item in enumerate(run.items[:count]):
                have[run.first_seq + offset] = item

    # Verification and hand-over

    def _complete_verified(self) -> None:
        while self._missing_ranges:
            wanted = self._missing_ranges[0]
            if wanted.ordered_to < wanted.damage.log_to or wanted.next_missing() is not None:
                return
            hashes = self._verified_hashes(wanted)
            if hashes is None:  # what came does not fit: ask again, the next peer first
                wanted.order.clear()
                wanted.items.clear()
                return
            self.repaired.append((wanted.damage, self._build_repaired(wanted, hashes)))
            self._missing_ranges.pop(0)

    def _verified_hashes(self, wanted: _MissingRange) -> bytes | None:
        """The chain hashes of the damaged part of the log, if they end with the hash in the journal; empty without
        such a part."""
        damage = wanted.damage
        if damage.log_from > damage.log_to:
            return b""
        value = self._hash_before(damage.log_from)
        cells: list[bytes] = []
        for span in wanted.order:
            origin = Origin(span.node, span.birth)
            tag = origin_tag(origin)
            for seq in range(span.first_seq, span.first_seq + span.count):
                item = self._item(wanted, origin, seq)
                if item is None:
                    return None
                value = chain_hash(value, item.stamp, tag, seq, content_hash(item.kind, item.key, item.payload))
                cells.append(value)
        return b"".join(cells) if value == damage.end_hash else None

    def _hash_before(self, index: int) -> bytes:
        if index > 1:
            return self._recovered.hash_at(index - 1)
        view = self._recovered.accepted
        if view is None:
            raise Fatal("BeyondRepair", "the founding record is lost with the beginning of this journal")
        return chain_start(view.cluster_id)

    def _item(self, wanted: _MissingRange, origin: Origin, seq: int) -> RunItem | None:
        fetched = wanted.items.get(origin, {}).get(seq)
        if fetched is not None:
            return fetched
        for _, mended in self.repaired:
            for run in mended.runs:
                if run.origin == origin and run.first_seq <= seq <= run.last_seq:
                    return run.items[seq - run.first_seq]
        items = self._journal.read(origin.node, origin.birth, seq, 1, 1 << 30).items
        return items[0] if items else None  # a peer can name any transaction

    def _build_repaired(self, wanted: _MissingRange, hashes: bytes) -> RepairedRange:
        mended = RepairedRange()
        for span in wanted.damage.spans:
            have = wanted.items[Origin(span.node, span.birth)]
            items = [have[seq] for seq in range(span.first_seq, span.first_seq + span.count)]
            mended.runs.append(TransactionRun(span.node, span.birth, span.first_seq, items))
            mended.contents.append(b"".join(content_hash(i.kind, i.key, i.payload) for i in items))
        if hashes:
            mended.added = LogAppended(wanted.damage.log_from, wanted.order, hashes, 0)
        return mended


def _contains_first(run: TransactionRun, span: Span) -> bool:
    """Whether the first transaction of the span is in the run."""
    return run.origin == (span.node, span.birth) and run.first_seq <= span.first_seq <= run.last_seq
