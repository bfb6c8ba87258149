"""Which journals belong to which process of a master: what a proof about a process says of each of its logs.

A supervisor proves that a process is gone by the birth and start of its first log's journal. Its further logs have
journals of their own. Each master tells the others which, so that a proof counts for each of its logs, and for no log
of the process that follows.
"""

from __future__ import annotations

import contextlib
from typing import Final, Protocol

import msgspec

from txlog.model.bounds import Birth, Count
from txlog.model.crosslog_entry import SYSTEM_LOG
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import Conflict
from txlog.server.log_service import LogService
from txlog.server.peers.envelope_router import EnvelopeLinks
from txlog.server.peers.peer_links import PeerLinks
from txlog.system.catalogue import FIRST_LOG
from txlog.wire import messages as wire

TOPIC: Final = "log-process"
ANNOUNCE_S: Final = 5.0
"""Between two notices about this process, beside those for a change."""
PROCESSES_KEPT: Final = 2
"""Of each master: a proof about one may come when the next one runs already."""


class ProcessNotice(msgspec.Struct):
    """The process of the sender: birth and start of its first log, then number, birth and start of each further log."""

    birth: Birth
    start: Count
    logs: list[tuple[Count, Birth, Count]]


class NoticeHost(Protocol):
    """The process that has the logs."""

    links: PeerLinks
    logs: dict[int, LogService]

    @property
    def first(self) -> LogService: ...


class ProcessNotices:
    """Sends and keeps these notices."""

    def __init__(self, host: NoticeHost) -> None:
        self._host = host
        self._known: dict[str, dict[tuple[int, int], ProcessNotice]] = {}
        self._announced_s = -ANNOUNCE_S
        self._announced: ProcessNotice | None = None

    def announce(self, now_s: float) -> float:
        """Tells the others which journals are of this process: after a change, and once in a while. Returns the seconds
        until it is due again."""
        status = self._host.first.loop.status
        logs = [
            (number, one.loop.status.birth, one.loop.status.start)
            for number, one in self._host.logs.items()
            if number != FIRST_LOG
        ]
        notice = ProcessNotice(status.birth, status.start, logs)
        if notice != self._announced or now_s >= self._announced_s + ANNOUNCE_S:
            self._announced, self._announced_s = notice, now_s
            data = wire.encode(wire.Notice(TOPIC, msgspec.json.encode(notice)))
            links = EnvelopeLinks(SYSTEM_LOG, self._host.links)
            for node in links.connected_peers():
                links.send(node, data)
        return max(0.0, self._announced_s + ANNOUNCE_S - now_s)

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Keeps what another master says of its process."""
        if topic != TOPIC:
            return
        try:
            notice = msgspec.json.decode(body, type=ProcessNotice)
        except DECODE_ERRORS:
            return  # a newer version sent it
        known = self._known.setdefault(peer, {})
        known[notice.birth, notice.start] = notice
        if len(known) > PROCESSES_KEPT:
            del known[next(iter(known))]

    def logs_of(self, node: str, birth: int, start: int) -> list[tuple[int, int, int]]:
        """Number, birth and start of the further logs of this process; empty where it sent no notice."""
        notice = self._known.get(node, {}).get((birth, start))
        return notice.logs if notice is not None else []

    def on_proved_down(self, node: str, birth: int, start: int) -> None:
        """This process of another master is gone, so each of its logs is without it."""
        for number, log_birth, log_start in self.logs_of(node, birth, start):
            service = self._host.logs.get(number)
            view = service.loop.status.view if service is not None else None
            member = view.member(node) if view is not None else None
            if service is not None and member is None:
                service.loop.departures.record_proof(node)
            elif service is not None and member is not None and member.birth == log_birth:
                with contextlib.suppress(Conflict):  # that log has received messages of a later process
                    service.loop.prove_down(node, log_birth, log_start)
