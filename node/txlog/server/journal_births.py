"""The empty journals of masters for logs that are not founded yet: what each of them tells the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from txlog.model.bounds import Birth, Count
from txlog.model.crosslog_entry import SYSTEM_LOG
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.server.peers.envelope_router import EnvelopeLinks
from txlog.server.peers.peer_links import PeerLinks
from txlog.system.first_view import JournalBirth
from txlog.wire import messages as wire

TOPIC: Final = "log-births"


class BirthNotice(msgspec.Struct):
    """The empty journal of the sender for a new log."""

    number: Count
    birth: Birth
    keeps_literals: bool
    level: Count


class JournalBirths:
    """Sends and keeps these notices. ``changed()`` is called when another master's journal is known or is another
    one."""

    def __init__(self, links: PeerLinks, changed: Callable[[], None]) -> None:
        self._links = links
        self._on_change = changed
        self._births: dict[int, dict[str, JournalBirth]] = {}

    def announce(self, number: int, node: str, birth: JournalBirth) -> dict[str, JournalBirth]:
        """Tells the others the journal of this master. Returns those of all masters that are known, by node."""
        births = self._births.setdefault(number, {})
        births[node] = birth
        notice = wire.encode(wire.Notice(TOPIC, msgspec.json.encode(BirthNotice(number, *birth))))
        links = EnvelopeLinks(SYSTEM_LOG, self._links)
        for peer in links.connected_peers():
            links.send(peer, notice)
        return births

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Keeps what another master says of its journal."""
        if topic != TOPIC:
            return
        try:
            said = msgspec.json.decode(body, type=BirthNotice)
        except DECODE_ERRORS:
            return  # a newer version sent it
        births = self._births.setdefault(said.number, {})
        birth = JournalBirth(said.birth, said.keeps_literals, said.level)
        if births.get(peer) != birth:
            births[peer] = birth
            self._on_change()

    def forget(self, number: int) -> None:
        """This log is founded, or gone."""
        self._births.pop(number, None)
