"""``kubectl txlog``: what ``txlog`` asks and does (status, peers, split-report, verify, repair, top, console), through
Kubernetes' API server, and the commands of :mod:`kubectl_txlog.store_commands`,
:mod:`kubectl_txlog.master_commands` and :mod:`kubectl_txlog.site_commands`.

Nothing but the API server must be reached: each master, and each store for ``verify`` and ``repair``, is asked through
the proxy of its pod, with what the kubeconfig shows the API server. Where the manifest names users, TxLog's own token
is read from their Secret, or comes from ``TXLOG_TOKEN_FILE``. Exit codes as those of ``txlog``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote, urlsplit

import typer

from kubectl_txlog import master_commands, site_commands, store_commands
from kubectl_txlog.command_line import Argument, Option
from kubectl_txlog.console_command import console
from kubectl_txlog.kubeconfig import context_namespace, read_kubeconfig
from kubectl_txlog.master_access import TXLOG_AUTHORIZATION_HEADER
from kubectl_txlog.options import ChosenCluster, NamedCluster, SiteOptions
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
from txlog.client.credentials import TOKEN_FILE, Credentials
from txlog.config.cluster import TxLogCluster
from txlog.model.errors import BadInput, Forbidden, NotFound, Unavailable
from txlog.workers.http_transport import HttpTransport
from txlog_operator.cluster_secrets import SecretContent, read_secrets
from txlog_operator.kube_client import ApiEndpoint, ApiError, KubeClient
from txlog_operator.manifest_validation import parse_manifest
from txlog_operator.specs import KubeObject
from txlog_operator.specs.common import INTERNAL_TOKEN_KEY, MASTER_PORT, selector, url_scheme
from txlog_operator.specs.masters import COMPONENT

REQUIRED_RIGHTS: Final = (
    "kubectl txlog needs get and list of txlogclusters, list of pods, get of pods/proxy"
    " (console: create, too; verify and repair: create, update and delete, too)"
)

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
    found = cluster_through_proxy(find_sites(on.cluster, on.sites))
    repair_worker(found, worker, scope, json=on.json)


def top(
    once: Annotated[bool, Option("print one snapshot and end; so it is without a terminal")] = False,
    *,
    on: NamedCluster,
) -> None:
    """Show the cluster as it changes, as one master sees it. Keys: q quits, s sorts the workers, n asks the next
    master."""
    show_top(_cluster_of(on), once, on.json)


def _cluster_of(on: NamedCluster) -> CliCluster:
    return cluster_through_proxy(find_sites(on.name, on.sites))


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

# -- where they are


@dataclass(frozen=True)
class KubernetesSite:
    """A data centre behind its API server. ``authorization``: the header for the API server, None without one;
    ``token``: for the masters, None where they need none; ``urls``: of the masters, through their pods' proxies."""

    endpoint: ApiEndpoint
    authorization: str | None
    namespace: str
    cluster: TxLogCluster
    token: str | None
    urls: Sequence[str]

    @property
    def headers(self) -> dict[str, str]:
        """The credentials for the API server, and those for the masters in a header of their own."""
        for_server = {"Authorization": self.authorization} if self.authorization else {}
        return for_server | ({TXLOG_AUTHORIZATION_HEADER: f"Bearer {self.token}"} if self.token is not None else {})

    def has_master(self, url: str) -> bool:
        """Whether the URL is a master of this data centre."""
        return url in self.urls


def find_sites(name: str | None, options: SiteOptions) -> list[KubernetesSite]:
    """One for each context. :class:`BadInput` for a kubeconfig or a name that leads nowhere, :class:`Forbidden` without
    the rights, :class:`NotFound`, and :class:`~txlog_operator.kube_client.ApiError` when an API server is not
    reached."""
    sites = []
    chosen_contexts: Sequence[str | None] = options.context or [None]
    for context in chosen_contexts:
        content = read_kubeconfig(context, options.kubeconfig)
        sites.append(asyncio.run(_read_site(content, options.namespace or context_namespace(content), name)))
    centres = [site.cluster.data_center for site in sites]
    twice = next((centre for centre in centres if centres.count(centre) > 1), None)
    if twice is not None:
        raise BadInput(f"--context: two of them lead to the data centre {twice}; expected another one each")
    return sites


def cluster_through_proxy(sites: Sequence[KubernetesSite]) -> CliCluster:
    """The masters of all sites, as the commands of ``txlog`` use them."""

    def opened(url: str, timeout_s: float) -> MasterClient:
        site = next(site for site in sites if site.has_master(url))
        tls = site.endpoint.tls_context() if url.startswith("https:") else None
        return MasterClient(url, timeout_s, connect_s=5.0, tls=tls, credentials=Credentials.from_headers(site.headers))

    data_centers = {site.cluster.data_center: list(site.urls) for site in sites}
    return CliCluster(data_centers, None, opened, partial(_worker_transport, sites))


def _worker_transport(sites: Sequence[KubernetesSite], url: str, timeout_s: float) -> HttpTransport:
    """A store by the URL that its masters know: ``http://POD.SERVICE.NAMESPACE.svc:PORT``."""
    parts = urlsplit(url)
    pod, _, rest = (parts.hostname or "").partition(".")
    service, _, where = rest.partition(".")
    for site in sites:
        if service and where == f"{site.namespace}.svc" and site.cluster.spec.workers.external is None:
            through = _pod_proxy_url(site.endpoint, site.namespace, "", pod, parts.port or 80) + parts.path
            tls = site.endpoint.tls_context() if through.startswith("https:") else None
            return HttpTransport(through, timeout_s, connect_s=5.0, tls=tls, headers=_without_txlog_token(site.headers))
    raise BadInput(
        f"the worker at {url} is in no pod behind these contexts; from where it is reached: txlog verify --master URL,"
        " or txlog worker repair"
    )


def _without_txlog_token(headers: Mapping[str, str]) -> dict[str, str]:
    """Stores have no users: TxLog's token stays out of requests to them."""
    return {name: value for name, value in headers.items() if name != TXLOG_AUTHORIZATION_HEADER}


def _pod_proxy_url(place: ApiEndpoint, namespace: str, how: str, pod: str, port: int) -> str:
    return f"{place.server}/api/v1/namespaces/{quote(namespace)}/pods/{how}{quote(pod)}:{port}/proxy"


async def _read_site(kubeconfig: Mapping[str, Any], namespace: str, name: str | None) -> KubernetesSite:
    place = await ApiEndpoint.from_kubeconfig(kubeconfig, "the kubeconfig")
    authorization = await place.authorization()
    kube = KubeClient(place)
    try:
        found = await _read_cluster(kube, namespace, name)
        cluster, problems = parse_manifest(found)
        if cluster is None:
            raise BadInput(f"the TxLogCluster {found['metadata']['name']} is not valid: {'; '.join(problems)}")
        pods = await kube.list("Pod", namespace, selector(cluster, COMPONENT))
        own = await _default_token(kube, cluster)
    except ApiError as error:
        if error.code == 403:
            raise Forbidden(f"{error}; {REQUIRED_RIGHTS}") from None
        if error.code == 401:
            raise Forbidden(f"{error}: the API server does not take what the kubeconfig shows") from None
        raise
    finally:
        await kube.close()
    if not pods:
        raise Unavailable(
            "NoMaster", f"no pod of {cluster.metadata.name}'s masters is there; see kubectl -n {namespace} get txl"
        )
    how = "https:" if url_scheme(cluster) == "https" else ""
    urls = [
        _pod_proxy_url(place, namespace, how, each["metadata"]["name"], _container_port(each))
        for each in sorted(pods, key=_pod_index)
    ]
    return KubernetesSite(place, authorization, namespace, cluster, own, urls)


async def _read_cluster(kube: KubeClient, namespace: str, name: str | None) -> KubeObject:
    if name is not None:
        found = await kube.get("TxLogCluster", namespace, name)
        if found is None:
            raise NotFound(f"there is no TxLogCluster {name} in the namespace {namespace}; see kubectl get txl -A")
        return found
    try:
        listed = await kube.list("TxLogCluster", namespace)
    except ApiError as error:
        if error.code == 404:
            raise NotFound(
                "this Kubernetes cluster knows no TxLogCluster; its definitions come with the operator"
            ) from None
        raise
    if len(listed) == 1:
        return listed[0]
    names = ", ".join(each["metadata"]["name"] for each in listed)
    if names:
        raise BadInput(f"which TxLogCluster of the namespace {namespace}? Name one of {names}")
    raise NotFound(f"there is no TxLogCluster in the namespace {namespace}; see kubectl get txl -A, and -n")


async def _default_token(kube: KubeClient, cluster: TxLogCluster) -> str | None:
    """The token for masters with users: the environment's, else TxLog's own; None where the manifest names no users."""
    users = cluster.spec.security.users
    if users is None:
        return None
    if os.environ.get(TOKEN_FILE):
        return Credentials.from_environment().headers()["Authorization"].removeprefix("Bearer ")
    only = cluster.model_copy(update={"spec": cluster.spec.model_copy(update={"security": _users_only(cluster)})})
    secret: SecretContent = (await read_secrets(kube, only))[users.secret_ref.name]
    token = (secret.data or {}).get(INTERNAL_TOKEN_KEY, b"").decode("ascii", "replace").strip()
    if not token:
        raise Forbidden(
            f"{cluster.metadata.name} asks who comes: set {TOKEN_FILE} to the file of an admin's token, or be let read"
            f" {INTERNAL_TOKEN_KEY} of the Secret {users.secret_ref.name}"
        )
    return token


def _users_only(cluster: TxLogCluster) -> Any:
    return cluster.spec.security.model_copy(update={"tls_secret_ref": None, "peer_tls_secret_ref": None})


def _container_port(pod: KubeObject) -> int:
    ports = pod["spec"]["containers"][0].get("ports", [])
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "http"), MASTER_PORT)


def _pod_index(pod: KubeObject) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def main() -> None:
    """Never a stack trace for what went wrong outside of TxLog."""
    handle_errors(partial(app, prog_name="kubectl txlog"))


if __name__ == "__main__":
    main()
