"""Everything that a master offers over HTTP, put together: the rooms behind its doors, which do not know each other."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from txlog.runtime.certificates import Tls
from txlog.runtime.levels import ViewChange
from txlog.runtime.site import Site
from txlog.runtime.web import Route
from txlog.server.admin.branch import Branch
from txlog.server.admin.branches import Branches
from txlog.server.admin.configuring import Configuring
from txlog.server.admin.duties import Duties
from txlog.server.admin.jolokia import Jolokia
from txlog.server.admin.membership import Membership
from txlog.server.admin.metrics import Metrics
from txlog.server.admin.openapi import OpenApi
from txlog.server.admin.repairs import Repairs
from txlog.server.admin.settings import LiveSettings
from txlog.server.admin.skipping import Skipping
from txlog.server.admin.splits import Splits
from txlog.server.admin.status import Status
from txlog.server.admin.trimming import Trimming
from txlog.server.feed.pages import Pages
from txlog.server.feed.watch import Watch
from txlog.server.feed.workers import Workers
from txlog.server.frontdoor.evaluated_updates import OptimisticUpdateExecutor
from txlog.server.frontdoor.evaluator_pool import EvaluatorPool
from txlog.server.frontdoor.load_fetcher import LoadFetcher
from txlog.server.frontdoor.namespaces import NamespaceHandler
from txlog.server.frontdoor.ndjson_writes import NdjsonWriteHandler
from txlog.server.frontdoor.rdf4j_transactions import TransactionHandler
from txlog.server.frontdoor.read_handler import ReadHandler
from txlog.server.frontdoor.repositories import RepositoryHandler
from txlog.server.frontdoor.statements import StatementHandler
from txlog.server.frontdoor.write_handler import WriteHandler, draw_blank_node_seed
from txlog.server.peers.links import Links


class Doors:
    """Of one master. What happens in it is told by :meth:`hear`, :meth:`wake` and :meth:`view_changed`. ``settings``:
    those that are changed while it runs."""

    def __init__(self, site: Site, links: Links, settings: LiveSettings, tls: Tls) -> None:
        config = site.config
        self._site = site
        self._links = links
        # clients
        self.reads = ReadHandler(site)
        pages = Pages(site)
        once = config.non_deterministic_updates == "effects"
        self.evaluators = EvaluatorPool(config.limits)
        effects = (
            OptimisticUpdateExecutor(site, self.reads.router, pages.read, draw_blank_node_seed, self.evaluators)
            if once
            else None
        )
        loads = LoadFetcher(config.load) if config.load is not None else None
        self.writes = WriteHandler(site, effects, loads)
        self.transactions = TransactionHandler(site, self.writes, self.reads, self.evaluators)
        # workers and log readers
        self._feed = Workers(site)
        self._trimming = Trimming(site, links.send)
        self._branches = Branches(site, self._trimming.covering)
        self.watch = Watch(site, pages, self._branches.shared)
        # operators
        duties = Duties(site, Repairs(site, lambda: settings.preferences.worker_repair == "auto"))
        self._skipping = Skipping(site, links.send)
        self._membership = Membership(site, links.send)
        self._splits = Splits(site)
        self._configuring = Configuring(site, links.follow)
        self._rooms = (
            self.writes,
            self.reads,
            NdjsonWriteHandler(site),
            NamespaceHandler(site, self.writes),
            RepositoryHandler(site),
            StatementHandler(site, self.writes, self.reads),
            self.transactions,
            pages,
            self.watch,
            self._feed,
            Status(site, self._membership, duties, links.view, self._trimming),
            Metrics(site, self._membership, links.view, self._trimming, tls),
            self._skipping,
            self._membership,
            duties,
            self._splits,
            Branch(site),
            self._branches,
            self._trimming,
            settings,
            self._configuring,
            OpenApi(),
            Jolokia(site, settings, self._configuring, self.reads.count),
            links,
        )

    def routes(self) -> list[Route]:
        """Every path of this master."""
        return [route for room in self._rooms for route in room.routes()]

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What must run as long as the master does, by name."""
        rooms = (self._feed, self._skipping, self._membership, self._splits, self._trimming, self._configuring)
        return {name: task for room in rooms for name, task in room.tasks().items()}

    # -- what happens in the master

    def hear(self, peer: str, topic: str, body: bytes) -> None:
        """Another master has sent a notice. Each room knows its own topics."""
        self._skipping.hear(peer, topic, body)
        self._membership.hear(peer, topic, body)
        self._trimming.hear(peer, topic, body)

    def wake(self) -> None:
        """Who waits for the log looks at it again."""
        self._site.registry.wake_all()
        self.watch.wake()

    def view_changed(self, change: ViewChange) -> None:
        """Another view is in force."""
        self._branches.noticed(change)
        self._splits.noticed(change)
