"""What each route of the HTTP API needs; a test holds docs/reference/http-api.md to it."""

from __future__ import annotations

import re
from typing import Final

from txlog.access.roles import Role

_REPOSITORY = re.compile(r"^(?:/rdf4j-server)?/repositories/[^/]+")

OPEN: Final = frozenset(
    {
        ("GET", "/health/live"),
        ("GET", "/health/ready"),
        ("GET", "/health/startup"),
        # Masters show each other the token of their cluster: that door has its own lock (server/peers).
        ("GET", "/txlog/peer"),
    }
)

_ONE: Final = "/repositories/{id}"
_READER: Final = (
    ("GET", "/protocol"),
    ("GET", "/repositories"),
    ("GET", _ONE),
    ("POST", _ONE),
    ("GET", f"{_ONE}/config"),
    ("GET", f"{_ONE}/size"),
    ("GET", f"{_ONE}/contexts"),
    ("GET", f"{_ONE}/statements"),
    ("GET", f"{_ONE}/rdf-graphs"),
    ("GET", f"{_ONE}/rdf-graphs/service"),
    ("GET", f"{_ONE}/rdf-graphs/{{graph}}"),
    ("GET", f"{_ONE}/namespaces"),
    ("GET", f"{_ONE}/namespaces/"),
    ("GET", f"{_ONE}/namespaces/{{prefix}}"),
    ("GET", "/metrics"),
    ("GET", "/txlog/status"),
    ("GET", "/txlog/openapi.json"),
    ("GET", "/txlog/transactions/{txid}"),
)
_WRITER: Final = (
    # Makes nothing: a client that makes its repository where it is missing learns that it is there.
    ("PUT", _ONE),
    *((method, f"{_ONE}/statements") for method in ("POST", "PUT", "DELETE")),
    *((method, f"{_ONE}/rdf-graphs/service") for method in ("POST", "PUT", "DELETE")),
    *((method, f"{_ONE}/rdf-graphs/{{graph}}") for method in ("POST", "PUT", "DELETE")),
    ("DELETE", f"{_ONE}/namespaces"),
    *((method, f"{_ONE}/namespaces/") for method in ("PUT", "DELETE")),
    *((method, f"{_ONE}/namespaces/{{prefix}}") for method in ("PUT", "DELETE")),
    ("POST", f"{_ONE}/transactions"),
    *((method, f"{_ONE}/transactions/{{transaction}}") for method in ("POST", "PUT", "DELETE")),
    ("POST", "/txlog/transactions"),
)
_ADMIN: Final = (
    ("DELETE", _ONE),
    ("POST", f"{_ONE}/config"),
    # The log holds what was deleted, too: who reads a repository need not see it.
    ("GET", "/txlog/log"),
    ("GET", "/txlog/watch"),
    ("GET", "/txlog/doorbell"),
    ("GET", "/txlog/workers"),
    ("POST", "/txlog/workers"),
    ("POST", "/txlog/workers/{name}"),
    ("POST", "/txlog/workers/{name}/look"),
    ("DELETE", "/txlog/workers/{name}"),
    ("PUT", "/txlog/holds/{name}"),
    ("DELETE", "/txlog/holds/{name}"),
    ("POST", "/txlog/skip/{txid}"),
    ("GET", "/txlog/duties"),
    ("POST", "/txlog/duties/{id}"),
    ("POST", "/txlog/backups"),
    ("GET", "/txlog/splits"),
    ("GET", "/txlog/branch"),
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
    ("POST", "/txlog/found"),
    # Reading and changing are one route there, told apart by the body only.
    ("GET", "/jolokia"),
    ("POST", "/jolokia"),
    ("POST", "/jolokia/"),
    ("GET", "/jolokia/{path*}"),
)
_NEEDED: Final = {
    **dict.fromkeys(_READER, Role.READER),
    **dict.fromkeys(_WRITER, Role.WRITER),
    **dict.fromkeys(_ADMIN, Role.ADMIN),
}


def _known(method: str, path: str) -> tuple[str, str]:
    """The cluster's own repository and any, with and without the prefix of an RDF4J server, are one."""
    bare = path.removeprefix("/rdf4j-server")
    return method, _REPOSITORY.sub(_ONE, bare)


def needed(method: str, path: str) -> Role | None:
    """``path`` as a route has it. None: anybody may ask. A route that stands nowhere here needs an administrator."""
    known = _known(method, path)
    return None if known in OPEN else _NEEDED.get(known, Role.ADMIN)


def is_listed(method: str, path: str) -> bool:
    """Whether somebody has thought of that route."""
    known = _known(method, path)
    return known in OPEN or known in _NEEDED
