"""The HTTP API of one log, assembled from its handlers, which are independent of each other."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final, Protocol

from txlog.http.router import Route
from txlog.model.configuration import Configuration
from txlog.runtime.master_context import MasterContext
from txlog.runtime.master_listener import ViewTransition
from txlog.server.admin.abandoned_branches import AbandonedBranchesHandler
from txlog.server.admin.archive_reports import ArchiveReports
from txlog.server.admin.branch_info import BranchInfoHandler
from txlog.server.admin.bulk_loads import BulkLoadHandler
from txlog.server.admin.change_set_reports import ChangeSetReports
from txlog.server.admin.configuration import ConfigurationHandler
from txlog.server.admin.duties import DutyHandler
from txlog.server.admin.jolokia import JolokiaHandler
from txlog.server.admin.log_metrics import LogMetrics
from txlog.server.admin.log_retention import LogRetention
from txlog.server.admin.recovery_view import RecoveryHandler
from txlog.server.admin.restore_points import RestorePointHandler
from txlog.server.admin.settings import SettingsHandler
from txlog.server.admin.site_links import SiteLinkHandler
from txlog.server.admin.site_reports import SiteReports
from txlog.server.admin.skip_transaction import SkipHandler
from txlog.server.admin.split_history import SplitHistory
from txlog.server.admin.status import StatusHandler
from txlog.server.admin.store_decisions import StoreDecisions
from txlog.server.admin.synchronous_view import SynchronousHandler
from txlog.server.admin.view_report import ViewReportHandler
from txlog.server.admin.views import ViewHandler
from txlog.server.admin.worker_repairs import WorkerRepairs
from txlog.server.console.live_view import LiveViewHandler
from txlog.server.feed.change_feed import ChangeFeedHandler
from txlog.server.feed.change_set_source import ChangeSetSource
from txlog.server.feed.key_values import KeyValueHandler
from txlog.server.feed.log_pages import LogPageHandler
from txlog.server.feed.site_state import SiteStateHandler
from txlog.server.feed.trace_contexts import TraceContextHandler
from txlog.server.feed.worker_reports import WorkerReportHandler
from txlog.server.frontdoor.evaluated_updates import OptimisticUpdateExecutor
from txlog.server.frontdoor.evaluator_pool import EvaluatorPool
from txlog.server.frontdoor.load_fetcher import LoadFetcher
from txlog.server.frontdoor.namespaces import NamespaceHandler
from txlog.server.frontdoor.ndjson_writes import NdjsonWriteHandler
from txlog.server.frontdoor.rdf4j_transactions import TransactionHandler
from txlog.server.frontdoor.read_handler import ReadHandler
from txlog.server.frontdoor.repositories import RepositoryHandler
from txlog.server.frontdoor.request_parameters import draw_blank_node_seed
from txlog.server.frontdoor.rescued_writes import RescuedWriteHandler
from txlog.server.frontdoor.statements import StatementHandler
from txlog.server.frontdoor.write_handler import WriteHandler

SYSTEM_LOG_ROUTES: Final = frozenset(
    {
        ("GET", "/txlog/status"),
        ("GET", "/txlog/log"),
        ("GET", "/txlog/configuration"),
        ("GET", "/txlog/peers"),
        ("POST", "/txlog/views"),
        ("POST", "/txlog/members/{node}/down"),
    }
)
"""What administrators need of the log without a repository."""


def is_of_system_log(route: Route) -> bool:
    """Whether the system log has this route, too."""
    return (route.method, route.path) in SYSTEM_LOG_ROUTES


class LogLinks(Protocol):
    """The way of one log to the other masters."""

    def send(self, peer: str, data: bytes) -> None:
        """Queues one message. Never blocks."""

    def connected_peers(self) -> list[str]:
        """The peers that a message can be sent to now."""

    def describe(self) -> dict[str, Any]:
        """The links, as ``GET /txlog/peers`` has them."""

    def on_configuration(self, configuration: Configuration) -> None:
        """Follows the masters that the log names."""


class ClientHandlers:
    """What clients of a repository ask for: queries, updates, statements, transactions, namespaces. ``pages``: reads
    the log. ``evaluators``: those of the process. ``handlers``: all of them."""

    def __init__(self, site: MasterContext, pages: LogPageHandler, evaluators: EvaluatorPool) -> None:
        config = site.config
        self.reads = ReadHandler(site)
        router = self.reads.router
        once = config.non_deterministic_updates == "effects"
        effects = OptimisticUpdateExecutor(site, router, pages.read, draw_blank_node_seed, evaluators) if once else None
        loads = LoadFetcher(config.load) if config.load is not None else None
        self.writes = WriteHandler(site, effects, loads, router)
        self.transactions = TransactionHandler(site, self.writes, self.reads, evaluators)
        self.handlers = (
            self.writes,
            self.reads,
            NdjsonWriteHandler(site),
            NamespaceHandler(site, self.writes),
            RepositoryHandler(site, router),
            StatementHandler(site, self.writes, self.reads),
            self.transactions,
            RescuedWriteHandler(site, self.writes),
        )


class LogRoutes:
    """The HTTP API of one log. The log notifies it by :meth:`on_peer_notice`, :meth:`wake_log_waiters` and
    :meth:`on_view_changed`. ``settings``: the handler of the settings that change at run time. ``evaluators``: those of
    the process. ``peer_token``: the secret that the masters share."""

    def __init__(
        self,
        site: MasterContext,
        links: LogLinks,
        settings: SettingsHandler,
        evaluators: EvaluatorPool,
        peer_token: bytes,
    ) -> None:
        self._context = site
        pages = LogPageHandler(site)
        clients = ClientHandlers(site, pages, evaluators)
        self.reads, self.writes, self.transactions = clients.reads, clients.writes, clients.transactions
        # workers and log readers
        repairs = WorkerRepairs(site, lambda: settings.preferences.worker_repair == "auto")
        bulk_loads = BulkLoadHandler(site)
        self._worker_reports = WorkerReportHandler(site, repairs.describe_workers, bulk_loads.on_report)
        self._archive = ArchiveReports(site, links.send)
        self._log_retention = LogRetention(site, links.send, self._archive)
        self._abandoned_branches = AbandonedBranchesHandler(site, self._log_retention.backup_covering)
        self._change_sets = ChangeSetReports(site, links.send)
        self.change_set_source = ChangeSetSource(site, self._change_sets.captured, peer_token)
        self.change_feed = ChangeFeedHandler(site, pages, self._abandoned_branches.common_index, self.change_set_source)
        # operators
        self._store_decisions = decisions = StoreDecisions(site)
        duties = DutyHandler(site, repairs, decisions)
        self._skip_handler = SkipHandler(site, links.send, repairs, self._change_sets.has_executed)
        self._views = ViewHandler(site, links.send)
        self._split_history = SplitHistory(site)
        self._configuration = ConfigurationHandler(site, links.on_configuration)
        synchronous = SynchronousHandler(site)
        site_reports = SiteReports()
        self.metrics = LogMetrics(
            site, self._views, repairs, self._log_retention, self._archive, synchronous, self._change_sets, site_reports
        )
        self._trace_contexts = TraceContextHandler(site)
        self._handlers = (
            *clients.handlers,
            pages,
            KeyValueHandler(site, self.change_set_source),
            SiteStateHandler(site, self.change_set_source),
            self.change_feed,
            self._worker_reports,
            *self._overviews(links, repairs, duties),
            self._archive,
            self._change_sets,
            SiteLinkHandler(site, site_reports),
            RestorePointHandler(site),
            bulk_loads,
            self._skip_handler,
            self._views,
            duties,
            decisions,
            self._split_history,
            BranchInfoHandler(site),
            ViewReportHandler(site),
            self._abandoned_branches,
            self._log_retention,
            settings,
            self._configuration,
            synchronous,
            self._trace_contexts,
            RecoveryHandler(site, self._log_retention.reported_backups, self._archive.streams),
            JolokiaHandler(site, settings, self._configuration, self.reads.count),
        )

    def _overviews(
        self, links: LogLinks, repairs: WorkerRepairs, duties: DutyHandler
    ) -> tuple[StatusHandler, LiveViewHandler]:
        """What shows the whole log: the status, and the console's snapshots."""
        site = self._context
        status = StatusHandler(
            site,
            self._views,
            duties,
            repairs,
            links.describe,
            self._log_retention,
            self._archive,
            self._change_sets.describe,
        )
        live = LiveViewHandler(
            site,
            links=links.describe,
            reachability=self._views.reachability,
            view=self._views.describe,
            trim=self._log_retention.describe,
            duties=lambda: [duty.to_dict() for duty in duties.open_duties()],
            refresh=repairs.refresh_states,
        )
        return status, live

    def routes(self) -> list[Route]:
        """Every path of this log: below ``/repositories/{id}``, and those of an API that may serve one log alone."""
        return [route for room in self._handlers for route in room.routes()]

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The tasks that must run as long as the log does, by name."""
        rooms = (
            self._worker_reports,
            self._store_decisions,
            self._skip_handler,
            self._views,
            self._split_history,
            self._log_retention,
            self._archive,
            self._change_sets,
            self._configuration,
        )
        return {name: task for room in rooms for name, task in room.tasks().items()}

    # -- events in the master

    def on_peer_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Passes on a notice from another master. Each handler knows its own topics."""
        self._skip_handler.on_notice(peer, topic, body)
        self._views.on_notice(peer, topic, body)
        self._log_retention.on_notice(peer, topic, body)
        self._archive.on_notice(peer, topic, body)
        self._trace_contexts.on_notice(topic, body)
        self._change_sets.on_notice(topic, body)

    def wake_log_waiters(self) -> None:
        """Wakes all requests that wait for the log."""
        self._context.registry.doorbell.wake_all()
        self.change_feed.wake_followers()

    def on_view_changed(self, change: ViewTransition) -> None:
        """Another view is in force."""
        self._abandoned_branches.on_view_changed(change)
        self._split_history.on_view_changed(change)
