"""The role that each route of the HTTP API needs; a test compares docs/reference/http-api.md with it."""

from __future__ import annotations

import re
from typing import Final

from txlog.auth.rights import Scope
from txlog.auth.roles import Role

_REPOSITORY_PREFIX = re.compile(r"^(?:/rdf4j-server)?/repositories/[^/]+")

PUBLIC_ROUTES: Final = frozenset(
    {
        ("GET", "/health/live"),
        ("GET", "/health/ready"),
        ("GET", "/health/startup"),
        # Masters authenticate to each other with the token of their cluster: that path has its own check
        # (server/peers).
        ("GET", "/txlog/peer"),
        # Files without data; what the page asks for has its own roles.
        ("GET", "/console"),
        ("GET", "/console/"),
        ("GET", "/console/{file}"),
    }
)

_REPOSITORY_PATH: Final = "/repositories/{id}"
_READER_ROUTES: Final = (
    ("GET", "/protocol"),
    ("GET", "/repositories"),
    ("GET", _REPOSITORY_PATH),
    ("POST", _REPOSITORY_PATH),
    ("GET", f"{_REPOSITORY_PATH}/config"),
    ("GET", f"{_REPOSITORY_PATH}/health"),
    ("GET", f"{_REPOSITORY_PATH}/size"),
    ("GET", f"{_REPOSITORY_PATH}/contexts"),
    ("GET", f"{_REPOSITORY_PATH}/statements"),
    ("GET", f"{_REPOSITORY_PATH}/rdf-graphs"),
    ("GET", f"{_REPOSITORY_PATH}/rdf-graphs/service"),
    ("GET", f"{_REPOSITORY_PATH}/rdf-graphs/{{graph}}"),
    ("GET", f"{_REPOSITORY_PATH}/namespaces"),
    ("GET", f"{_REPOSITORY_PATH}/namespaces/"),
    ("GET", f"{_REPOSITORY_PATH}/namespaces/{{prefix}}"),
    ("GET", "/metrics"),
    ("GET", "/txlog/status"),
    ("GET", "/txlog/live"),
    ("GET", "/txlog/recovery"),
    ("GET", "/txlog/synchro"),
    ("GET", "/txlog/sites"),
    ("GET", "/txlog/openapi.json"),
    ("GET", "/txlog/transactions/{txid}"),
    ("GET", "/txlog/repositories"),
    ("GET", "/txlog/repositories/{name}"),
)
_WRITER_ROUTES: Final = (
    # Creates nothing: a client that creates its repository if it is missing learns that it exists.
    ("PUT", _REPOSITORY_PATH),
    *((method, f"{_REPOSITORY_PATH}/statements") for method in ("POST", "PUT", "DELETE")),
    *((method, f"{_REPOSITORY_PATH}/rdf-graphs/service") for method in ("POST", "PUT", "DELETE")),
    *((method, f"{_REPOSITORY_PATH}/rdf-graphs/{{graph}}") for method in ("POST", "PUT", "DELETE")),
    ("DELETE", f"{_REPOSITORY_PATH}/namespaces"),
    *((method, f"{_REPOSITORY_PATH}/namespaces/") for method in ("PUT", "DELETE")),
    *((method, f"{_REPOSITORY_PATH}/namespaces/{{prefix}}") for method in ("PUT", "DELETE")),
    ("POST", f"{_REPOSITORY_PATH}/transactions"),
    *((method, f"{_REPOSITORY_PATH}/transactions/{{transaction}}") for method in ("POST", "PUT", "DELETE")),
    ("POST", "/txlog/transactions"),
)
_ADMIN_ROUTES: Final = (
    ("DELETE", _REPOSITORY_PATH),
    ("POST", f"{_REPOSITORY_PATH}/config"),
    # The log also contains deleted data, which a reader of the repository need not see.
    ("GET", "/txlog/log"),
    ("GET", "/txlog/watch"),
    ("POST", "/txlog/site/values"),
    ("GET", "/txlog/site/state"),
    ("GET", "/txlog/doorbell"),
    ("GET", "/txlog/traces"),
    ("GET", "/txlog/workers"),
    ("POST", "/txlog/workers"),
    ("POST", "/txlog/workers/{name}"),
    ("POST", "/txlog/workers/{name}/look"),
    ("POST", "/txlog/workers/{name}/comparison"),
    ("POST", "/txlog/workers/{name}/adopt"),
    ("POST", "/txlog/workers/{name}/discard"),
    ("DELETE", "/txlog/workers/{name}"),
    ("PUT", "/txlog/holds/{name}"),
    ("DELETE", "/txlog/holds/{name}"),
    ("POST", "/txlog/skip/{txid}"),
    ("GET", "/txlog/duties"),
    ("GET", "/txlog/duties/{id}"),
    ("POST", "/txlog/duties/{id}"),
    ("POST", "/txlog/backups"),
    ("POST", "/txlog/archive"),
    ("POST", "/txlog/changesets"),
    ("POST", "/txlog/sites"),
    ("PATCH", "/txlog/sites/{name}"),
    ("POST", "/txlog/rehearsals"),
    ("GET", "/txlog/restore-points"),
    ("POST", "/txlog/restore-points"),
    ("POST", "/txlog/rescued/{txid}"),
    ("GET", "/txlog/bulk"),
    ("PUT", "/txlog/bulk/{id}"),
    ("DELETE", "/txlog/bulk/{id}"),
    ("POST", "/txlog/bulk/{id}"),
    ("GET", "/txlog/splits"),
    ("GET", "/txlog/branch"),
    ("GET", "/txlog/view-report"),
    ("GET", "/txlog/branches"),
    ("GET", "/txlog/branches/{view}"),
    ("GET", "/txlog/settings"),
    ("PATCH", "/txlog/settings"),
    ("GET", "/txlog/configuration"),
    ("PATCH", "/txlog/configuration"),
    ("GET", "/txlog/peers"),
    ("POST", "/txlog/peers"),
    ("PATCH", "/txlog/peers/{node}"),
    ("DELETE", "/txlog/peers/{node}"),
    ("POST", "/txlog/members/{node}/down"),
    ("POST", "/txlog/views"),
    ("POST", "/txlog/synchro/adopt"),
    ("POST", "/txlog/found"),
    # Reads and changes are one route here; only the body distinguishes them.
    ("GET", "/jolokia"),
    ("POST", "/jolokia"),
    ("POST", "/jolokia/"),
    ("GET", "/jolokia/{path*}"),
)
_ANY_REPOSITORY_ROUTES: Final = frozenset(
    {
        ("GET", "/protocol"),
        ("GET", "/txlog/openapi.json"),
        # They show the repositories that the client may read.
        ("GET", "/repositories"),
        ("GET", "/txlog/repositories"),
        ("GET", "/txlog/repositories/{name}"),
    }
)
_ADMIN_OF_ONE_ROUTES: Final = frozenset(
    {
        ("GET", "/txlog/log"),
        ("GET", "/txlog/watch"),
        ("GET", "/txlog/doorbell"),
        ("GET", "/txlog/traces"),
        ("GET", "/txlog/workers"),
        ("POST", "/txlog/skip/{txid}"),
        ("GET", "/txlog/duties"),
        ("GET", "/txlog/duties/{id}"),
        ("GET", "/txlog/restore-points"),
        ("POST", "/txlog/restore-points"),
        ("GET", "/txlog/splits"),
        ("GET", "/txlog/branches"),
        ("GET", "/txlog/branches/{view}"),
        ("GET", "/txlog/settings"),
        ("GET", "/txlog/configuration"),
    }
)
"""What an administrator of one repository may do there. All else of an administrator is about masters, stores by their
URLs, or what processes of TxLog report: it needs one of the whole cluster."""
_ROLE_BY_ROUTE: Final = {
    **dict.fromkeys(_READER_ROUTES, Role.READER),
    **dict.fromkeys(_WRITER_ROUTES, Role.WRITER),
    **dict.fromkeys(_ADMIN_ROUTES, Role.ADMIN),
}


def _route_key(method: str, path: str) -> tuple[str, str]:
    """One key for the cluster's own repository and any other, with and without the prefix of an RDF4J server."""
    bare = path.removeprefix("/rdf4j-server")
    return method, _REPOSITORY_PREFIX.sub(_REPOSITORY_PATH, bare)


def required_role(method: str, path: str) -> Role | None:
    """``path`` in the form of a route. None: no authentication is needed. A route that is not listed needs an
    administrator."""
    known = _route_key(method, path)
    return None if known in PUBLIC_ROUTES else _ROLE_BY_ROUTE.get(known, Role.ADMIN)


def route_scope(method: str, path: str, repository: str | None) -> str | Scope:
    """What the role for a route has to be about. ``path`` in the form of a route; ``repository``: whose route it is,
    None for one of the whole process."""
    key = _route_key(method, path)
    if key in _ANY_REPOSITORY_ROUTES:
        return Scope.ANY_REPOSITORY
    is_of_cluster = required_role(method, path) is Role.ADMIN and key not in _ADMIN_OF_ONE_ROUTES
    return Scope.CLUSTER if repository is None or is_of_cluster else repository


def is_known_route(method: str, path: str) -> bool:
    """Whether this route is listed with its role."""
    known = _route_key(method, path)
    return known in PUBLIC_ROUTES or known in _ROLE_BY_ROUTE
