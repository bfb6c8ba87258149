"""``kubectl txlog``: what ``txlog`` asks and does (status, peers, split-report, verify, repair, top, console), through
Kubernetes' API server, and the commands of :mod:`kubectl_txlog.store_commands`,
:mod:`kubectl_txlog.master_commands` and :mod:`kubectl_txlog.site_commands`.

Nothing but the API server must be reached: each master, and each store for ``verify`` and ``repair``, is asked through
the proxy of its pod, with what the kubeconfig shows the API server. Where the manifest names users, TxLog's own token
is read from their Secret, or comes from ``TXLOG_TOKEN_FILE``. Exit codes as those of ``txlog``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

import typer

from kubectl_txlog import master_commands, site_commands, store_commands
from kubectl_txlog.api_server import pod_proxy_path
from kubectl_txlog.command_line import Argument, Option
from kubectl_txlog.console_command import console
from kubectl_txlog.master_access import SiteAccess
from kubectl_txlog.options import ChosenCluster, NamedCluster
from kubectl_txlog.typer_commands import add_commands
from txlog.cli.cli_cluster import CliCluster
from txlog.cli.cluster_commands import show_status
from txlog.cli.load_commands import show_comparison
from txlog.cli.main import handle_errors
from txlog.cli.peer_commands import show_peers
from txlog.cli.split_commands import show_splits
from txlog.cli.top_commands import show_top
from txlog.cli.worker_commands import RepairScope, repair_worker
from txlog.client import MasterClient
from txlog.client.credentials import Credentials
from txlog.model.errors import BadInput
from txlog.workers.http_transport import HttpTransport

app = typer.Typer(
    name="kubectl txlog",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Ask and command the masters of a TxLogCluster, through the API server.",
)


def status(on: NamedCluster) -> None:
    """Show the state of masters and workers."""
    show_status(_cluster_of(on), on.json)


def peers(on: NamedCluster) -> None:
    """Show which master receives messages from which."""
    show_peers(_cluster_of(on), on.json)


def split_report(on: NamedCluster) -> None:
    """Show each split, as the reachable masters report it."""
    show_splits(_cluster_of(on), on.json)


def verify(
    wait: Annotated[float, Option("seconds until every worker must be at the index", min=0)] = 60.0,
    *,
    on: NamedCluster,
) -> None:
    """Compare the contents of all workers at one position, while writes continue. Exit code 1 if they differ."""
    show_comparison(_cluster_of(on), wait, on.json)


def repair(
    worker: Annotated[str, Argument("the worker that is wrong", "WORKER")],
    source: Annotated[str | None, Option("the worker that is right; required if TxLog cannot decide it")] = None,
    graph: Annotated[list[str] | None, Option("only this graph; empty: the default graph")] = None,
    everything: Annotated[bool, Option("compare all graphs, not only those that are known to differ", ("--all",))] = (
        False
    ),
    rebuild: Annotated[bool, Option("rebuild it if too much differs for a copy")] = False,
    *,
    on: ChosenCluster,
) -> None:
    """Copy the graphs in which a worker differs from a correct one, with both at one position: all graphs or none. The
    data passes through the API server."""
    scope = RepairScope(source, tuple(graph or ()), everything, rebuild)
    repair_worker(_cluster_of(on), worker, scope, json=on.json)


def top(
    once: Annotated[bool, Option("print one snapshot and end; so it is without a terminal")] = False,
    *,
    on: NamedCluster,
) -> None:
    """Show the cluster as it changes, as one master sees it. Keys: q quits, s sorts the workers, n asks the next
    master."""
    show_top(_cluster_of(on), once, on.json)


def _cluster_of(on: NamedCluster | ChosenCluster) -> CliCluster:
    return cluster_through_proxy(on.masters().sites)


add_commands(
    app,
    {
        "status": status,
        "peers": peers,
        "split-report": split_report,
        "top": top,
        "console": console,
        "verify": verify,
        "repair": repair,
        **store_commands.COMMANDS,
        **master_commands.COMMANDS,
        **site_commands.COMMANDS,
    },
)


def cluster_through_proxy(sites: Sequence[SiteAccess]) -> CliCluster:
    """The masters of all sites, as the commands of ``txlog`` use them."""
    by_url = {site.server.server + master: site for site in sites for master in site.masters}

    def opened(url: str, timeout_s: float) -> MasterClient:
        site = by_url[url]
        credentials = Credentials.from_headers({**site.server.headers, **site.headers})
        return MasterClient(url, timeout_s, connect_s=5.0, tls=site.server.tls, credentials=credentials)

    data_centers = {site.data_center: [url for url, at in by_url.items() if at is site] for site in sites}
    return CliCluster(data_centers, None, opened, partial(_worker_transport, sites))


def _worker_transport(sites: Sequence[SiteAccess], url: str, timeout_s: float) -> HttpTransport:
    """A store by the URL that its masters know: ``http://POD.SERVICE.NAMESPACE.svc:PORT``. Stores have no users:
    TxLog's token stays out of requests to them."""
    parts = urlsplit(url)
    pod, _, rest = (parts.hostname or "").partition(".")
    service, _, where = rest.partition(".")
    for site in sites:
        if service and where == f"{site.namespace}.svc" and not site.has_external_workers:
            server, path = site.server, pod_proxy_path(site.namespace, "http", pod, parts.port or 80) + parts.path
            return HttpTransport(server.server + path, timeout_s, connect_s=5.0, tls=server.tls, headers=server.headers)
    raise BadInput(
        f"the worker at {url} is in no pod behind these contexts; from where it is reached: txlog verify --master URL,"
        " or txlog worker repair"
    )


def main() -> None:
    """Never a stack trace for what went wrong outside of TxLog."""
    handle_errors(partial(app, prog_name="kubectl txlog"))


if __name__ == "__main__":
    main()
