"""Checks what a peer's message counts and stamps, before anything of it counts (rule 9).

Types and the range of plain numbers are checked where a message is decoded. These checks need what this master knows.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from txlog.model.bounds import COUNT_MAX
from txlog.model.entry import Span, TransactionRun
from txlog.model.errors import PeerFault
from txlog.model.hashes import HASH_BYTES
from txlog.model.stamp import PEER_STAMP_MAX
from txlog.model.view import STRATEGIES, View
from txlog.protocol.clock_comparison import ClockComparison
from txlog.wire import messages as wire
from txlog.wire.messages import Message

_KIND_MAX: Final = 255


def check_run(peer: str, run: TransactionRun, stamp_max: int) -> None:
    """:class:`PeerFault` for transactions without a usable place, or above ``stamp_max``."""
    if not 0 < run.first_seq <= COUNT_MAX:
        raise PeerFault(peer, "Malformed", f"seq {run.first_seq} is not from 1 to {COUNT_MAX}")
    for item in run.items:
        if not 0 <= item.stamp <= stamp_max:
            raise PeerFault(peer, "StampOutOfRange", f"stamp {item.stamp} of {run.node} is not from 0 to {stamp_max}")
        if not 0 <= item.kind <= _KIND_MAX:
            raise PeerFault(peer, "Malformed", f"kind {item.kind} of a transaction is not from 0 to {_KIND_MAX}")


class PeerNumbers:
    """``clock``: what this master knows of the time. ``counter``: its own."""

    def __init__(self, peer: str, clock: ClockComparison, counter: int) -> None:
        self._peer = peer
        self._clock = clock
        self._counter = counter

    def check(self, message: Message) -> None:
        """:class:`PeerFault` when a number of the message cannot be right. Posts are checked when they are merged."""
        match message:
            case wire.HelloReply():
                self._check_view(message.accepted)
                for one in message.known_incarnations:
                    self._check_stamp(one.counter)
            case wire.ViewReport():
                self._check_report(message)
            case wire.AcceptView():
                self._check_accept(message)
            case wire.RunsReply():
                for run in message.runs:
                    check_run(self._peer, run, PEER_STAMP_MAX)
                    self._check_stamps([item.stamp for item in run.items])
            case wire.ProposeBootstrap() | wire.BootstrapAccepted() | wire.CommitBootstrap():
                self._check_view(message.view)
            case _:
                pass

    def _check_report(self, report: wire.ViewReport) -> None:
        self._check_strategies([report.prefers])
        self._check_view(report.view)
        self._check_stamp(report.counter)
        count = self._count(report.tail)
        if count * HASH_BYTES != len(report.hashes) or count != report.log.index - report.shared.index:
            raise self._malformed(f"a log of {count} entries behind {report.shared.index} with other hashes")
        for queued in (*report.pending, *report.parked):
            if len(queued.contents) != HASH_BYTES * len(queued.stamps):
                raise self._malformed(f"{len(queued.stamps)} transactions of {queued.node} with other contents")
            self._check_stamps(queued.stamps)

    def _check_accept(self, accept: wire.AcceptView) -> None:
        self._check_view(accept.view)
        if len(accept.stamps) != 8 * self._count(accept.spans):
            raise self._malformed("a stamp is missing in the base")
        stamps = array("Q")
        stamps.frombytes(accept.stamps)
        self._check_stamps(stamps)
        for several in accept.waiting:
            self._check_number(several.first_seq)
            self._check_stamps(several.stamps)

    def _check_view(self, view: View | None) -> None:
        if view is None:
            return
        self._check_strategies([view.strategy, *view.strategies, *view.preferred_strategies])
        self._check_stamp(view.floor)
        for epoch, ballot, _ in (view.number, *view.ancestors):
            self._check_number(epoch)
            self._check_number(ballot)
        for number in (view.base_index, *view.known_seqs):
            self._check_number(number)
        if not -COUNT_MAX <= view.diverged_index <= COUNT_MAX:
            raise self._malformed(f"branches diverged at {view.diverged_index}")

    def _check_strategies(self, strategies: list[str]) -> None:
        for strategy in strategies:
            if strategy not in STRATEGIES:
                raise PeerFault(self._peer, "UnknownStrategy", f"splitRecovery {strategy[:40]!r} is not known here")

    def _count(self, spans: list[Span]) -> int:
        for span in spans:
            self._check_number(span.first_seq)
            self._check_number(span.count)
        return sum([span.count for span in spans])

    def _check_number(self, number: int) -> None:
        if not 0 <= number <= COUNT_MAX:
            raise self._malformed(f"{number} is not from 0 to {COUNT_MAX}")

    def _check_stamps(self, stamps: Sequence[int]) -> None:
        if len(stamps):
            self._check_stamp(min(stamps))
            self._check_stamp(max(stamps))

    def _check_stamp(self, stamp: int) -> None:
        self._clock.check_stamp(self._peer, stamp, self._counter)

    def _malformed(self, text: str) -> PeerFault:
        return PeerFault(self._peer, "Malformed", text)
