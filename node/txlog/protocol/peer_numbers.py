"""Checks what a peer's message stamps, before anything of it counts (rule 9).

``txlog.wire.message_checks`` compares the parts of a message where it is decoded. These need this master's clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from txlog.model.entry import TransactionRun
from txlog.model.errors import PeerFault
from txlog.model.stamp import PEER_STAMP_MAX
from txlog.model.view import View
from txlog.protocol.clock_comparison import ClockComparison
from txlog.wire import messages as wire
from txlog.wire.messages import Message


def check_run(peer: str, run: TransactionRun, stamp_max: int) -> None:
    """:class:`PeerFault` for transactions with a stamp above ``stamp_max``."""
    for item in run.items:
        if not 0 <= item.stamp <= stamp_max:
            raise PeerFault(peer, "StampOutOfRange", f"stamp {item.stamp} of {run.node} is not from 0 to {stamp_max}")


class PeerNumbers:
    """``clock``: what this master knows of the time. ``counter``: its own."""

    def __init__(self, peer: str, clock: ClockComparison, counter: int) -> None:
        self._peer = peer
        self._clock = clock
        self._counter = counter

    def check(self, message: Message) -> None:
        """:class:`PeerFault` when a stamp of the message cannot be right. Posts are checked when they are merged."""
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
        self._check_view(report.view)
        self._check_stamp(report.counter)
        for queued in (*report.pending, *report.parked):
            self._check_stamps(queued.stamps)

    def _check_accept(self, accept: wire.AcceptView) -> None:
        self._check_view(accept.view)
        stamps = array("Q")
        stamps.frombytes(accept.stamps)
        self._check_stamps(stamps)
        for several in accept.waiting:
            self._check_stamps(several.stamps)

    def _check_view(self, view: View | None) -> None:
        if view is not None:
            self._check_stamp(view.floor)

    def _check_stamps(self, stamps: Sequence[int]) -> None:
        if len(stamps):
            self._check_stamp(min(stamps))
            self._check_stamp(max(stamps))

    def _check_stamp(self, stamp: int) -> None:
        self._clock.check_stamp(self._peer, stamp, self._counter)
