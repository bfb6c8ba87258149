"""The masters of a ``TxLogCluster`` in one or more data centres, asked through the API servers. Needs Python's own
library alone."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from kubectl_txlog.api_server import TIMEOUT_S, ApiServer, object_path, pod_proxy_path
from kubectl_txlog.kubeconfig import context_namespace, read_kubeconfig
from txlog.model.errors import BadInput, Forbidden, NotFound, TxLogError, Unavailable

T = TypeVar("T")
TXLOG_AUTHORIZATION_HEADER: Final = "TxLog-Authorization"
"""``Authorization`` is for the API server, which does not pass it on."""
GROUP_VERSION: Final = "txlog.io/v1alpha1"
TOKEN_FILE: Final = "TXLOG_TOKEN_FILE"
OWN_TOKEN_KEY: Final = "own-token"
HTTP_PORT_NAME: Final = "http"
MASTER_PORT: Final = 7300


@dataclass(frozen=True)
class SiteAccess:
    """One data centre: its ``TxLogCluster`` as the API server has it, and the proxy paths of its masters' pods."""

    server: ApiServer
    namespace: str
    cluster: Mapping[str, Any]
    masters: Sequence[str]
    headers: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of the TxLogCluster."""
        return str(self.cluster["metadata"]["name"])

    @property
    def data_center(self) -> str:
        """The data centre."""
        return str(self.cluster["spec"]["dataCenter"])

    @property
    def has_external_workers(self) -> bool:
        """Whether the stores run elsewhere, and not in pods of the TxLogCluster."""
        return bool((self.cluster["spec"].get("workers") or {}).get("external"))

    def ask(self, master: str, method: str, path: str, body: object = None, timeout_s: float = TIMEOUT_S) -> Any:
        """The answer of one master."""
        return self.server.call(method, master + path, body, self.headers, timeout_s)

    def create(self, plural: str, kind: str, name: str, spec: Mapping[str, Any]) -> Any:
        """Create a resource of TxLog beside the TxLogCluster."""
        wanted = {"apiVersion": GROUP_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        return self.server.call("POST", object_path(self.namespace, plural, group=GROUP_VERSION), wanted)

    def read(self, plural: str, name: str) -> Any:
        """A resource of TxLog beside the TxLogCluster. :class:`NotFound`."""
        return self.server.call("GET", object_path(self.namespace, plural, name, GROUP_VERSION))


@dataclass(frozen=True)
class MasterProxies:
    """All data centres that the contexts lead to."""

    sites: Sequence[SiteAccess]

    def ask_first(self, method: str, path: str, body: object = None) -> Any:
        """The answer of the first master that answers; its refusal is an answer. :class:`Unavailable` when none
        does."""
        return self._ask_first(method, path, body)[2]

    def first_live(self) -> tuple[SiteAccess, str]:
        """The first master that answers. :class:`Unavailable` when none does."""
        return self._ask_first("GET", "/txlog/status")[:2]

    def _ask_first(self, method: str, path: str, body: object = None) -> tuple[SiteAccess, str, Any]:
        return first_answer(self.masters(), lambda site, master: (site, master, site.ask(master, method, path, body)))

    def ask_all(self, path: str) -> list[tuple[SiteAccess, str, Any]]:
        """The answer of each master, or the error in its place."""
        found: list[tuple[SiteAccess, str, Any]] = []
        for site, master in self.masters():
            try:
                found.append((site, master, site.ask(master, "GET", path)))
            except TxLogError as error:
                found.append((site, master, error))
        return found

    def masters(self) -> Iterator[tuple[SiteAccess, str]]:
        """Each master with its data centre."""
        return ((site, master) for site in self.sites for master in site.masters)


def first_answer(masters: Iterable[tuple[SiteAccess, str]], ask: Callable[[SiteAccess, str], T]) -> T:
    """What the first master that answers gives to ``ask``. :class:`Unavailable` when none does."""
    last: TxLogError | None = None
    for site, master in masters:
        try:
            return ask(site, master)
        except Unavailable as silent:
            last = silent
    raise Unavailable("NoMaster", f"no master answers: {last}")


def find_masters(
    name: str | None, namespace: str | None, contexts: Sequence[str] | None, kubeconfig: Path | None
) -> MasterProxies:
    """One data centre for each context. :class:`BadInput` for a kubeconfig or a name that leads nowhere,
    :class:`Forbidden` without the rights, :class:`NotFound`, and :class:`Unavailable` when an API server is silent."""
    chosen: Sequence[str | None] = contexts or [None]
    sites = [_find_site(name, namespace, context, kubeconfig) for context in chosen]
    centres = [site.data_center for site in sites]
    twice = next((centre for centre in centres if centres.count(centre) > 1), None)
    if twice is not None:
        raise BadInput(f"--context: two of them lead to the data centre {twice}; expected another one each")
    return MasterProxies(sites)


def _find_site(name: str | None, namespace: str | None, context: str | None, kubeconfig: Path | None) -> SiteAccess:
    content = read_kubeconfig(context, kubeconfig)
    server, where = ApiServer(content), namespace or context_namespace(content)
    cluster = _find_cluster(server, where, name)
    selector = {
        "app.kubernetes.io/name": "txlog",
        "app.kubernetes.io/instance": cluster["metadata"]["name"],
        "app.kubernetes.io/component": "master",
    }
    query = "%2C".join(f"{key}%3D{value}" for key, value in selector.items())
    pods = server.call("GET", f"{object_path(where, 'pods')}?labelSelector={query}")["items"]
    if not pods:
        raise Unavailable(
            "NoMaster", f"no pod of {cluster['metadata']['name']}'s masters is there; see kubectl get txl"
        )
    security = cluster["spec"].get("security") or {}
    scheme = "https" if security.get("tlsSecretRef") else "http"
    masters = [
        pod_proxy_path(where, scheme, pod["metadata"]["name"], _http_port(pod)) for pod in sorted(pods, key=_pod_index)
    ]
    token = _token(server, where, cluster["metadata"]["name"], security)
    headers = {} if token is None else {TXLOG_AUTHORIZATION_HEADER: f"Bearer {token}"}
    return SiteAccess(server, where, cluster, masters, headers)


def _find_cluster(server: ApiServer, namespace: str, name: str | None) -> Mapping[str, Any]:
    found: Mapping[str, Any]
    if name is not None:
        try:
            found = server.call("GET", object_path(namespace, "txlogclusters", name, GROUP_VERSION))
        except NotFound:
            raise NotFound(
                f"there is no TxLogCluster {name} in the namespace {namespace}; see kubectl get txl -A"
            ) from None
        return found
    try:
        listed = server.call("GET", object_path(namespace, "txlogclusters", group=GROUP_VERSION))["items"]
    except NotFound:
        raise NotFound(
            "this Kubernetes cluster knows no TxLogCluster; its definitions come with the operator"
        ) from None
    if len(listed) == 1:
        found = listed[0]
        return found
    names = ", ".join(each["metadata"]["name"] for each in listed)
    if names:
        raise BadInput(f"which TxLogCluster of the namespace {namespace}? Name one of {names}")
    raise NotFound(f"there is no TxLogCluster in the namespace {namespace}; see kubectl get txl -A, and -n")


def _token(server: ApiServer, namespace: str, cluster: str, security: Mapping[str, Any]) -> str | None:
    """For masters with users: the environment's, else TxLog's own of their Secret."""
    users = security.get("users")
    if not users:
        return None
    file = os.environ.get(TOKEN_FILE)
    if file:
        try:
            content = Path(file).read_bytes()
        except OSError as wrong:
            raise BadInput(f"{TOKEN_FILE}: {file} cannot be read: {wrong.strerror}") from None
        return _checked_token(content, f"{TOKEN_FILE}: {file}")
    secret = users["secretRef"]["name"]
    hint = (
        f"{cluster} asks who comes: set {TOKEN_FILE} to the file of an admin's token, or be let read {OWN_TOKEN_KEY}"
        f" of the Secret {secret}"
    )
    try:
        data = server.call("GET", object_path(namespace, "secrets", secret)).get("data") or {}
    except (Forbidden, NotFound):
        raise Forbidden(hint) from None
    token = base64.b64decode(data.get(OWN_TOKEN_KEY, ""))
    if not token.strip():
        raise Forbidden(hint)
    return _checked_token(token, f"{OWN_TOKEN_KEY} of the Secret {secret}")


def _checked_token(content: bytes, where: str) -> str:
    """What a header may contain. The message does not show it."""
    token = content.strip()
    if not token or any(not 0x21 <= byte <= 0x7E for byte in token):
        raise BadInput(f"{where}: expected a token, a line of ASCII without spaces")
    return token.decode("ascii")


def _http_port(pod: Mapping[str, Any]) -> int:
    ports = pod["spec"]["containers"][0].get("ports", [])
    return next((int(port["containerPort"]) for port in ports if port.get("name") == HTTP_PORT_NAME), MASTER_PORT)


def _pod_index(pod: Mapping[str, Any]) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])
