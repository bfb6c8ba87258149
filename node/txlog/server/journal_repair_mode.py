"""A master with a damaged journal: it takes no part, reports why, and fetches what is missing (rule 28).

There is no core in this phase, so nothing is posted or added. It serves only peers, and the HTTP API for people.
"""

from __future__ import annotations

import asyncio
from typing import Any

from txlog.auth.authenticator import Authenticator
from txlog.auth.tls import NO_TLS, TlsConfig
from txlog.config.process_config import NodeConfig
from txlog.model.errors import PeerFault, Unavailable
from txlog.model.records import RecoveredState
from txlog.protocol.events import ProtocolSettings
from txlog.runtime.journal_repair import JournalRepair
from txlog.runtime.master_loop import system_now
from txlog.server.coreless_server import CorelessServer, position_without_hash
from txlog.server.peers.peer_links import PeerLinks, listen_to_peers
from txlog.telemetry.event_log import EventLog
from txlog.wire import messages as wire

POLL_INTERVAL_S_MAX = 1.0


class JournalRepairMode:
    """Drives one :class:`JournalRepair`: sends its messages to the peers, and passes their answers to it."""

    def __init__(
        self,
        config: NodeConfig,
        settings: ProtocolSettings,
        recovered: RecoveredState,
        journal: Any,
        links: PeerLinks,
        log: EventLog,
        guard: Authenticator | None = None,
        tls: TlsConfig = NO_TLS,
    ) -> None:
        self._config = config
        self._tls = tls
        self._recovered = recovered
        self._links = links
        self._log = log
        self._repair = JournalRepair(settings, recovered, journal)
        self._changed = asyncio.Event()
        self._error: BaseException | None = None
        self._server = CorelessServer(config, log, guard, tls, self._refusal, self._describe, links.routes())

    async def run(self) -> JournalRepair:
        """Returns when everything is there; raises ``Fatal`` if no master has it."""
        self._log.warning("Damaged", damage=self._repair.damage_names)
        async with self._server.listening() as listener:
            tasks = [asyncio.ensure_future(forever) for forever in self._links.tasks(self).values()]
            listening = [listener]
            try:
                if self._tls.peers is not None:
                    listening.append(await listen_to_peers(self._config, self._links, self._tls.peers, self._log))
                await self._repair_until_finished()
            finally:
                for one in listening:
                    one.close()
                await self._links.close()
                for task in tasks:
                    task.cancel()
        self._log.info("Mended")
        return self._repair

    async def _repair_until_finished(self) -> None:
        while not self._repair.is_finished:
            if self._error is not None:
                raise self._error
            now = system_now()
            wake_ms, sends = self._repair.poll(now)
            for peer, message in sends:
                self._links.send(peer, wire.encode(message))
            self._changed.clear()
            try:
                await asyncio.wait_for(
                    self._changed.wait(), min(POLL_INTERVAL_S_MAX, max(1, wake_ms - now.mono) / 1000)
                )
            except TimeoutError:
                continue

    # The receiver of the links

    def receive(self, peer: str, data: bytes) -> None:
        """Handles one message of a peer."""
        try:
            self._repair.receive(peer, data, system_now())
        except PeerFault:
            raise
        except Exception as wrong:  # noqa: BLE001 - raised in its task, run()
            self._error = wrong
        self._changed.set()

    def count_fault(self, peer: str, reason: str) -> None:
        """Nothing is counted: there are no metrics yet. The fault is logged."""

    # What clients get

    def _describe(self) -> dict[str, Any]:
        recovered = self._recovered
        return {
            "birth": f"{recovered.birth:016x}",
            "start": recovered.start,
            "log": position_without_hash(0),
            "stable": position_without_hash(recovered.stable),
            "damage": self._repair.damage_names,
        }

    def _refusal(self) -> Unavailable:
        node = self._config.node
        return Unavailable("Damaged", f"{node} fetches what its journal lost from the others; ask another master")
