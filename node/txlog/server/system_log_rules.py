"""When a cluster may have its system log, and with which first entry: it names the first repository."""

from __future__ import annotations

from typing import Final, Protocol

from txlog.config.process_config import NodeConfig
from txlog.model.errors import Fatal, RepositoryRefused, Unavailable
from txlog.server.log_service import LogService
from txlog.server.peers.peer_links import PeerLinks
from txlog.server.system_log import SYSTEM_NAME
from txlog.system.catalogue import RepositorySettings
from txlog.system.entries import FirstRepository

_RESERVED_NAME: Final = (
    f"the first repository is named {SYSTEM_NAME}, as the log that names the others: this cluster can have one alone"
)


class RulesHost(Protocol):
    """The process with its first log."""

    config: NodeConfig
    links: PeerLinks

    @property
    def first(self) -> LogService: ...


class SystemLogRules:
    """Reads the first log and the links of the process; it changes nothing."""

    def __init__(self, host: RulesHost) -> None:
        self._host = host

    @property
    def _has_reserved_name(self) -> bool:
        return self._host.first.repository.lower() == SYSTEM_NAME

    def settings(self) -> RepositorySettings:
        """Those of the system log. :class:`Fatal` where the first repository has its name."""
        if self._has_reserved_name:
            raise Fatal("ReservedName", _RESERVED_NAME)
        return RepositorySettings("Smart", "Majority", self._key_retention_ms())

    def _key_retention_ms(self) -> int:
        configuration = self._host.first.loop.status.configuration
        return configuration.key_retention_ms if configuration else self._host.config.key_retention_ms

    def check(self) -> None:
        """:class:`Unavailable` unless every configured master is here, and reads envelopes.
        :class:`RepositoryRefused` where the first repository has the name of the system log."""
        if self._has_reserved_name:
            raise RepositoryRefused("ReservedName", _RESERVED_NAME)
        status, links = self._host.first.loop.status, self._host.links.links
        others = [one.node for one in status.configured_members if one.node != self._host.config.node]
        away = [node for node in others if node not in links or links[node].connection is None]
        away += [node for node in others if node not in away and not status.is_present(node)]
        older = [node for node in others if node not in away and not links[node].reads_envelopes]
        if older:
            what = f"the program of {', '.join(older)} knows one repository, or its configuration does; update it"
            raise Unavailable("OlderProgram", what, 10)
        if away or not self._host.first.context.is_ready:
            what = f"the first repository is added while every configured master is here; {', '.join(away)} is not"
            raise Unavailable("NotAllHere", what, 10)
        if status.pending_change is not None:
            raise Unavailable("ChangePending", f"the change {status.pending_change} of the masters comes first", 10)

    def first_entry(self) -> FirstRepository:
        """The entry about log 0. :class:`Unavailable` while its cluster is not founded."""
        status, config = self._host.first.loop.status, self._host.config
        if not status.cluster_id:
            raise Unavailable("NotFounded", "the first repository's cluster is not founded here yet", 10)
        name, mode = self._host.first.repository, status.split_mode
        return FirstRepository(name, status.cluster_id, config.split_recovery, mode, self._key_retention_ms())

    def check_first(self, said: FirstRepository | None) -> None:
        """:class:`Unavailable` where this master's first repository is not the one of the system log."""
        status = self._host.first.loop.status
        mine = (self._host.first.repository, status.cluster_id)
        if said is not None and status.cluster_id and mine != (said.name, said.cluster_id):
            what = f"the system log is of {said.name} with the cluster {said.cluster_id}, this master has {mine[0]}"
            raise Unavailable("OtherFirstRepository", what, 10)
