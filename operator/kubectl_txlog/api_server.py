"""Requests to a Kubernetes API server, and through it to the masters' pods. Needs Python's own library alone, so that
the plugin can be one file."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from txlog.model.errors import BadInput, Forbidden, NotFound, Refused, TxLogError, Unavailable

TIMEOUT_S: Final = 15.0
ANSWER_BYTES_MAX: Final = 64 << 20
REQUIRED_RIGHTS: Final = (
    "kubectl txlog needs get and list of txlogclusters, list of pods, get of pods/proxy, and more for some commands:"
    " see docs/how-to/monitor.md"
)
_BY_STATUS: Final[Mapping[int, type[TxLogError]]] = {
    400: BadInput,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    422: BadInput,
}


class ApiServer:
    """The API server of one context. ``content``: the kubeconfig of that context, with its files inside. Raises
    :class:`BadInput` for one that names no server, or credentials that cannot be read."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        cluster: Mapping[str, Any] = next((each["cluster"] for each in content.get("clusters") or []), {})
        user: Mapping[str, Any] = next((each["user"] for each in content.get("users") or []), {})
        self.server = str(cluster.get("server") or "").rstrip("/")
        parts = urlsplit(self.server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"the kubeconfig names no API server: {self.server!r}; expected https://HOST")
        self._host, self._port, self._prefix = parts.hostname, parts.port, parts.path
        self.tls = _tls_context(cluster, user) if parts.scheme == "https" else None
        """For connections to it; None without TLS."""
        authorization = _authorization(user)
        self.headers = {"Authorization": authorization} if authorization is not None else {}
        """The credentials."""

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        """The JSON of the answer. A refusal raises what its status means: :class:`BadInput`, :class:`Forbidden`,
        :class:`NotFound`, :class:`Refused`; :class:`Unavailable` when nothing answers, or answers 5xx."""
        connection = open_connection(self._host, self._port, self.tls, timeout_s)
        sent = {**self.headers, "Accept": "application/json", **(headers or {})}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, self._prefix + path, content, sent)
            answer = connection.getresponse()
            text = answer.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as failed:
            raise Unavailable("NotReached", f"{self.server} is not reached: {failed!r}") from None
        finally:
            connection.close()
        if answer.status >= 400:
            raise _error(answer.status, text, method, path)
        try:
            return json.loads(text or b"null")
        except ValueError:
            raise Unavailable("Malformed", f"{method} {path}: the answer is no JSON: {text[:100]!r}") from None


def open_connection(
    host: str, port: int | None, tls: ssl.SSLContext | None, timeout_s: float
) -> http.client.HTTPConnection:
    """A connection that is made with its first request; plain without ``tls``."""
    if tls is None:
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls)


def object_path(namespace: str, plural: str, name: str | None = None, group: str | None = None) -> str:
    """The path of a kind's list, or of one object. ``group``: with its version; None: the core group."""
    prefix = f"/apis/{group}" if group is not None else "/api/v1"
    return f"{prefix}/namespaces/{quote(namespace)}/{plural}" + (f"/{quote(name)}" if name is not None else "")


def pod_proxy_path(namespace: str, scheme: str, pod: str, port: int) -> str:
    """Where the API server passes requests on to a port of a pod."""
    prefix = "https:" if scheme == "https" else ""
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{prefix}{quote(pod)}:{port}/proxy"


def _error(status: int, text: bytes, method: str, path: str) -> TxLogError:
    """What the status means, in the words of the API server or of the master behind it."""
    try:
        found = json.loads(text)
        message = str(found["message"])
    except (ValueError, KeyError, TypeError):
        message = f"{method} {path}: {status} {text[:200].decode('utf-8', 'replace')}"
    if status == 401:
        message = f"{message}: what the kubeconfig shows, or the token of TxLog, is not taken"
    if status == 403:
        message = f"{message}; {REQUIRED_RIGHTS}"
    if status >= 500 or status == 429:
        return Unavailable("Unavailable", message)
    return _BY_STATUS.get(status, Refused)(message)


def _tls_context(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        authority = cluster.get("certificate-authority-data")
        context = ssl.create_default_context(cadata=_decoded(authority).decode() if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = user.get("client-certificate-data"), user.get("client-key-data")
        if certificate and key:
            with tempfile.TemporaryDirectory(prefix="kubectl-txlog-") as folder:  # only its owner may enter it
                files = [Path(folder, name) for name in ("certificate", "key")]
                for file, given in zip(files, (certificate, key), strict=True):
                    file.write_bytes(_decoded(given))
                context.load_cert_chain(files[0], files[1])
    except (OSError, ValueError) as wrong:
        raise BadInput(f"the kubeconfig has a certificate that cannot be read: {wrong!r}") from None
    return context


def _decoded(text: Any) -> bytes:
    return base64.b64decode(str(text))


def _authorization(user: Mapping[str, Any]) -> str | None:
    if user.get("tokenFile"):
        try:
            return f"Bearer {Path(user['tokenFile']).read_text().strip()}"
        except OSError as wrong:
            raise BadInput(f"{user['tokenFile']} of the kubeconfig cannot be read: {wrong.strerror}") from None
    if user.get("token"):
        return f"Bearer {user['token']}"
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return None
