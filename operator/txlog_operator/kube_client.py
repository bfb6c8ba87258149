"""A client of the API server with what the operator needs: get, list, server-side apply, patch, delete. Importing it
creates nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from txlog.model.errors import TxLogError
from txlog_operator.specs.common import FIELD_MANAGER, KubeObject

SERVICE_ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REQUEST_TIMEOUT_S: Final = 15.0
TOKEN_CACHE_S: Final = 60.0
"""How long a token is cached. The kubelet replaces a pod's token long before it expires."""
PAGE_SIZE: Final = 500
HTTP_TOO_MANY_REQUESTS: Final = 429
RETRY_DELAYS_S: Final = (0.2, 0.5, 1.0, 2.0)


class ApiError(TxLogError):
    """The API server refused or failed. ``code`` is its HTTP status, 0 when it was not reached."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{code or 'not reached'}: {what}")
        self.code = code


@dataclass(frozen=True)
class ApiResource:
    """API group and version, and plural name, under which the server offers a kind."""

    api: str
    plural: str

    def path(self, namespace: str, name: str = "", sub: str = "") -> str:
        """The path of the collection, of one object, or of its subresource ``sub``."""
        root = f"/api/{self.api}" if "/" not in self.api else f"/apis/{self.api}"
        where = f"{root}/namespaces/{quote(namespace)}/{self.plural}"
        return "/".join(part for part in (where, quote(name), sub) if part)


API_RESOURCES: Final[Mapping[str, ApiResource]] = {
    "ConfigMap": ApiResource("v1", "configmaps"),
    "Service": ApiResource("v1", "services"),
    "Secret": ApiResource("v1", "secrets"),
    "Pod": ApiResource("v1", "pods"),
    "Event": ApiResource("v1", "events"),
    "PersistentVolumeClaim": ApiResource("v1", "persistentvolumeclaims"),
    "StatefulSet": ApiResource("apps/v1", "statefulsets"),
    "Job": ApiResource("batch/v1", "jobs"),
    "PodDisruptionBudget": ApiResource("policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": ApiResource("networking.k8s.io/v1", "networkpolicies"),
    "TxLogCluster": ApiResource("txlog.io/v1alpha1", "txlogclusters"),
    "TxLogBackup": ApiResource("txlog.io/v1alpha1", "txlogbackups"),
    "TxLogRestore": ApiResource("txlog.io/v1alpha1", "txlogrestores"),
    "TxLogBackupSchedule": ApiResource("txlog.io/v1alpha1", "txlogbackupschedules"),
}


@dataclass(frozen=True)
class ApiEndpoint:
    """An API server and the client's credentials. ``ca_pem``, ``certificate_pem`` and ``key_pem`` are PEM."""

    server: str
    token: str | None = None
    token_file: Path | None = None
    ca_pem: bytes | None = None
    insecure: bool = False
    certificate_pem: bytes | None = None
    key_pem: bytes | None = None

    @classmethod
    def find(cls) -> ApiEndpoint:
        """The kubeconfig that ``KUBECONFIG`` names, else the pod's own account. :class:`ApiError` when both are
        missing."""
        named = os.environ.get("KUBECONFIG")
        if named:
            return cls.from_kubeconfig_file(Path(named))
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        if not host or not (SERVICE_ACCOUNT_FOLDER / "token").exists():
            raise ApiError(0, "no KUBECONFIG, and this is no pod with an account: set KUBECONFIG")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        shown = f"[{host}]" if ":" in host else host
        authority = (SERVICE_ACCOUNT_FOLDER / "ca.crt").read_bytes()
        return cls(f"https://{shown}:{port}", token_file=SERVICE_ACCOUNT_FOLDER / "token", ca_pem=authority)

    @classmethod
    def from_kubeconfig_file(cls, file: Path) -> ApiEndpoint:
        """The endpoint of the file's current context. :class:`ApiError` when the file cannot be used."""
        try:
            told = YAML(typ="safe").load(file.read_text())
        except (OSError, ValueError, YAMLError) as wrong:
            raise ApiError(0, f"{file} is no kubeconfig that the operator can use: {wrong!r}") from None
        return cls.from_kubeconfig(told, str(file))

    @classmethod
    def from_kubeconfig(cls, told: Any, where: str) -> ApiEndpoint:
        """The endpoint of a kubeconfig's current context. ``where`` is its source, which :class:`ApiError` names."""
        try:
            context = _named_entry(told, "context", told["current-context"])
            cluster = _named_entry(told, "cluster", context["cluster"])
            user = _named_entry(told, "user", context["user"])
            return cls(
                cluster["server"].rstrip("/"),
                token=user.get("token"),
                token_file=Path(user["tokenFile"]) if "tokenFile" in user and "token" not in user else None,
                ca_pem=_pem_data(cluster, "certificate-authority"),
                insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
                certificate_pem=_pem_data(user, "client-certificate"),
                key_pem=_pem_data(user, "client-key"),
            )
        except (OSError, KeyError, TypeError, ValueError, StopIteration) as wrong:
            raise ApiError(0, f"{where} is no kubeconfig that TxLog can use: {wrong!r}") from None

    def read_token(self) -> str | None:
        """The current token: the kubelet replaces a pod's token from time to time."""
        return self.token_file.read_text().strip() if self.token_file is not None else self.token

    def tls_context(self) -> ssl.SSLContext:
        """TLS for this endpoint, with its authority and the client certificate, if there is one."""
        found = ssl.create_default_context(cadata=self.ca_pem.decode() if self.ca_pem else None)
        if self.insecure:
            found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
        if self.certificate_pem and self.key_pem:
            with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
                pem.write(self.certificate_pem + b"\n" + self.key_pem)
                pem.flush()
                found.load_cert_chain(pem.name)
        return found


def _named_entry(told: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in told[f"{kind}s"] if each["name"] == name)[kind]
    return found


def _pem_data(of: Mapping[str, Any], key: str) -> bytes | None:
    if f"{key}-data" in of:
        return base64.b64decode(of[f"{key}-data"])
    return Path(of[key]).read_bytes() if key in of else None


class KubeClient:
    """A client of one API server. Every call raises :class:`ApiError` for a status of 400 and above, or when no answer
    comes."""

    def __init__(self, place: ApiEndpoint) -> None:
        self._endpoint = place
        self._token = place.read_token()
        self._token_until = 0.0
        connector = aiohttp.TCPConnector(ssl=place.tls_context(), limit=8)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        )
        self.write_count = 0
        """Requests that changed an object, or could have."""

    async def close(self) -> None:
        """Closes all connections."""
        await self._session.close()

    async def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """The object, or None when it does not exist."""
        try:
            return await self._request("GET", API_RESOURCES[kind].path(namespace, name))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def list(self, kind: str, namespace: str, selector: Mapping[str, str] | None = None) -> list[KubeObject]:
        """All objects of a kind; ``selector``: only those with these labels."""
        query = {"limit": str(PAGE_SIZE)}
        if selector:
            query["labelSelector"] = ",".join(f"{key}={value}" for key, value in selector.items())
        found: list[KubeObject] = []
        while True:
            told = await self._request("GET", f"{API_RESOURCES[kind].path(namespace)}?{urlencode(query)}")
            # The items of a list carry neither kind nor API version.
            found += [{**each, "kind": kind, "apiVersion": API_RESOURCES[kind].api} for each in told["items"]]
            rest = told["metadata"].get("continue")
            if not rest:
                return found
            query["continue"] = rest

    async def apply(self, wanted: KubeObject) -> KubeObject:
        """Server-side apply of the whole object with the operator's field manager; creates the object if it is
        missing."""
        meta = wanted["metadata"]
        path = API_RESOURCES[wanted["kind"]].path(meta["namespace"], meta["name"])
        query = urlencode({"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"})
        return await self._send_object("PATCH", f"{path}?{query}", wanted, "application/apply-patch+yaml")

    async def create(self, wanted: KubeObject) -> KubeObject:
        """Creates an object and returns it as the server stored it."""
        meta = wanted["metadata"]
        path = API_RESOURCES[wanted["kind"]].path(meta["namespace"])
        return await self._send_object("POST", f"{path}?fieldManager={FIELD_MANAGER}", wanted, "application/json")

    async def replace_status(self, found: KubeObject, status: KubeObject) -> KubeObject:
        """Replaces the whole status. :class:`ApiError` 409 when the object changed in the meantime."""
        meta = found["metadata"]
        path = API_RESOURCES[found["kind"]].path(meta["namespace"], meta["name"], "status")
        body = {**found, "status": status}
        return await self._send_object("PUT", f"{path}?fieldManager={FIELD_MANAGER}", body, "application/json")

    async def delete(self, kind: str, namespace: str, name: str, uid: str | None = None) -> None:
        """Deletes the object. Does nothing when it is gone, or when another object (by ``uid``) has its name."""
        body: KubeObject = {"propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            await self._send_object("DELETE", API_RESOURCES[kind].path(namespace, name), body, "application/json")
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def _send_object(self, how: str, path: str, body: KubeObject, form: str) -> KubeObject:
        self.write_count += 1
        return await self._request(how, path, json.dumps(body).encode(), form)

    async def _request(self, how: str, path: str, body: bytes | None = None, form: str = "") -> KubeObject:
        """The parsed answer. A server that is too busy (429) has done nothing, so the client retries."""
        for pause in RETRY_DELAYS_S:
            try:
                return await self._request_once(how, path, body, form)
            except ApiError as error:
                if error.code != HTTP_TOO_MANY_REQUESTS:
                    raise
            await asyncio.sleep(pause)
        return await self._request_once(how, path, body, form)

    async def _request_once(self, how: str, path: str, body: bytes | None, form: str) -> KubeObject:
        headers = {"Accept": "application/json"}
        token = await self._bearer_token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = form
        try:
            async with self._session.request(how, self._endpoint.server + path, data=body, headers=headers) as answer:
                told = await answer.json(content_type=None)
                if answer.status >= 400:
                    said = told.get("message") if isinstance(told, dict) else None
                    raise ApiError(answer.status, f"{how} {path.partition('?')[0]}: {said or answer.reason}")
                found: KubeObject = told
                return found
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as wrong:
            raise ApiError(0, f"{how} {path.partition('?')[0]}: {wrong!r}") from wrong

    async def _bearer_token(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if self._endpoint.token_file is not None and now > self._token_until:
            self._token = await asyncio.to_thread(self._endpoint.read_token)
            self._token_until = now + TOKEN_CACHE_S
        return self._token
