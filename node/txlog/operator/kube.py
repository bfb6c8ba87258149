"""The API server as the operator uses it: get, list, server-side apply, patch, delete. Nothing is made at import."""

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
from txlog.operator.build.common import MANAGER, Object

IN_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REQUEST_S: Final = 15.0
TOKEN_S: Final = 60.0
"""A pod's token is written anew long before it ends; it is read again so often."""
PAGE: Final = 500
TOO_BUSY: Final = 429
PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0)


class ApiError(TxLogError):
    """The API server refused or failed. ``code``: its HTTP status, 0 when it was not reached."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{code or 'not reached'}: {what}")
        self.code = code


@dataclass(frozen=True)
class Resource:
    """Where a kind is served."""

    api: str
    plural: str

    def path(self, namespace: str, name: str = "", sub: str = "") -> str:
        root = f"/api/{self.api}" if "/" not in self.api else f"/apis/{self.api}"
        where = f"{root}/namespaces/{quote(namespace)}/{self.plural}"
        return "/".join(part for part in (where, quote(name), sub) if part)


KINDS: Final[Mapping[str, Resource]] = {
    "ConfigMap": Resource("v1", "configmaps"),
    "Service": Resource("v1", "services"),
    "Secret": Resource("v1", "secrets"),
    "Pod": Resource("v1", "pods"),
    "Event": Resource("v1", "events"),
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims"),
    "StatefulSet": Resource("apps/v1", "statefulsets"),
    "Job": Resource("batch/v1", "jobs"),
    "PodDisruptionBudget": Resource("policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": Resource("networking.k8s.io/v1", "networkpolicies"),
    "TxLogCluster": Resource("txlog.io/v1alpha1", "txlogclusters"),
    "TxLogBackup": Resource("txlog.io/v1alpha1", "txlogbackups"),
    "TxLogRestore": Resource("txlog.io/v1alpha1", "txlogrestores"),
    "TxLogBackupSchedule": Resource("txlog.io/v1alpha1", "txlogbackupschedules"),
}


@dataclass(frozen=True)
class Place:
    """An API server, and who asks it. ``authority``, ``certificate`` and ``key`` are PEM."""

    server: str
    token: str | None = None
    token_file: Path | None = None
    authority: bytes | None = None
    insecure: bool = False
    certificate: bytes | None = None
    key: bytes | None = None

    @classmethod
    def find(cls) -> Place:
        """The kubeconfig that ``KUBECONFIG`` names, else the pod's own account. :class:`ApiError`: neither is there."""
        named = os.environ.get("KUBECONFIG")
        if named:
            return cls.of_kubeconfig(Path(named))
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        if not host or not (IN_POD / "token").exists():
            raise ApiError(0, "no KUBECONFIG, and this is no pod with an account: set KUBECONFIG")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        shown = f"[{host}]" if ":" in host else host
        authority = (IN_POD / "ca.crt").read_bytes()
        return cls(f"https://{shown}:{port}", token_file=IN_POD / "token", authority=authority)

    @classmethod
    def of_kubeconfig(cls, file: Path) -> Place:
        try:
            told = YAML(typ="safe").load(file.read_text())
        except (OSError, ValueError, YAMLError) as wrong:
            raise ApiError(0, f"{file} is no kubeconfig that the operator can use: {wrong!r}") from None
        return cls.of_told(told, str(file))

    @classmethod
    def of_told(cls, told: Any, where: str) -> Place:
        """What a kubeconfig says, for its current context. :class:`ApiError` names ``where`` it is from."""
        try:
            context = _named(told, "context", told["current-context"])
            cluster = _named(told, "cluster", context["cluster"])
            user = _named(told, "user", context["user"])
            return cls(
                cluster["server"].rstrip("/"),
                token=user.get("token"),
                token_file=Path(user["tokenFile"]) if "tokenFile" in user and "token" not in user else None,
                authority=_data(cluster, "certificate-authority"),
                insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
                certificate=_data(user, "client-certificate"),
                key=_data(user, "client-key"),
            )
        except (OSError, KeyError, TypeError, ValueError, StopIteration) as wrong:
            raise ApiError(0, f"{where} is no kubeconfig that TxLog can use: {wrong!r}") from None

    def read_token(self) -> str | None:
        """As it is now: a pod's is written anew from time to time."""
        return self.token_file.read_text().strip() if self.token_file is not None else self.token

    def tls(self) -> ssl.SSLContext:
        found = ssl.create_default_context(cadata=self.authority.decode() if self.authority else None)
        if self.insecure:
            found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
        if self.certificate and self.key:
            with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
                pem.write(self.certificate + b"\n" + self.key)
                pem.flush()
                found.load_cert_chain(pem.name)
        return found


def _named(told: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in told[f"{kind}s"] if each["name"] == name)[kind]
    return found


def _data(of: Mapping[str, Any], key: str) -> bytes | None:
    if f"{key}-data" in of:
        return base64.b64decode(of[f"{key}-data"])
    return Path(of[key]).read_bytes() if key in of else None


class Kube:
    """One API server. Every call raises :class:`ApiError` for an answer of 400 and more, or none at all."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._token = place.read_token()
        self._token_until = 0.0
        connector = aiohttp.TCPConnector(ssl=place.tls(), limit=8)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=REQUEST_S))
        self.writes = 0
        """Requests that changed something, or could have."""

    async def close(self) -> None:
        await self._session.close()

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """None when it is not there."""
        try:
            return await self._ask("GET", KINDS[kind].path(namespace, name))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def list(self, kind: str, namespace: str, selector: Mapping[str, str] | None = None) -> list[Object]:
        """All of a kind, ``selector``: with these labels."""
        query = {"limit": str(PAGE)}
        if selector:
            query["labelSelector"] = ",".join(f"{key}={value}" for key, value in selector.items())
        found: list[Object] = []
        while True:
            told = await self._ask("GET", f"{KINDS[kind].path(namespace)}?{urlencode(query)}")
            # A list's items do not say what they are.
            found += [{**each, "kind": kind, "apiVersion": KINDS[kind].api} for each in told["items"]]
            rest = told["metadata"].get("continue")
            if not rest:
                return found
            query["continue"] = rest

    async def apply(self, wanted: Object) -> Object:
        """Server-side, with the operator's one field manager: the whole object as it shall be, or made."""
        meta = wanted["metadata"]
        path = KINDS[wanted["kind"]].path(meta["namespace"], meta["name"])
        query = urlencode({"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"})
        return await self._write("PATCH", f"{path}?{query}", wanted, "application/apply-patch+yaml")

    async def create(self, wanted: Object) -> Object:
        meta = wanted["metadata"]
        path = KINDS[wanted["kind"]].path(meta["namespace"])
        return await self._write("POST", f"{path}?fieldManager={MANAGER}", wanted, "application/json")

    async def put_status(self, found: Object, status: Object) -> Object:
        """The whole status. :class:`ApiError` 409 when the object was changed meanwhile."""
        meta = found["metadata"]
        path = KINDS[found["kind"]].path(meta["namespace"], meta["name"], "status")
        body = {**found, "status": status}
        return await self._write("PUT", f"{path}?fieldManager={MANAGER}", body, "application/json")

    async def delete(self, kind: str, namespace: str, name: str, uid: str | None = None) -> None:
        """Nothing when it is gone, or (``uid``) another one has its name."""
        body: Object = {"propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            await self._write("DELETE", KINDS[kind].path(namespace, name), body, "application/json")
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def _write(self, how: str, path: str, body: Object, form: str) -> Object:
        self.writes += 1
        return await self._ask(how, path, json.dumps(body).encode(), form)

    async def _ask(self, how: str, path: str, body: bytes | None = None, form: str = "") -> Object:
        """What is answered. One that is too busy has done nothing: it is asked again."""
        for pause in PAUSES_S:
            try:
                return await self._ask_once(how, path, body, form)
            except ApiError as error:
                if error.code != TOO_BUSY:
                    raise
            await asyncio.sleep(pause)
        return await self._ask_once(how, path, body, form)

    async def _ask_once(self, how: str, path: str, body: bytes | None, form: str) -> Object:
        headers = {"Accept": "application/json"}
        token = await self._bearer()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = form
        try:
            async with self._session.request(how, self._place.server + path, data=body, headers=headers) as answer:
                told = await answer.json(content_type=None)
                if answer.status >= 400:
                    said = told.get("message") if isinstance(told, dict) else None
                    raise ApiError(answer.status, f"{how} {path.partition('?')[0]}: {said or answer.reason}")
                found: Object = told
                return found
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as wrong:
            raise ApiError(0, f"{how} {path.partition('?')[0]}: {wrong!r}") from wrong

    async def _bearer(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if self._place.token_file is not None and now > self._token_until:
            self._token = await asyncio.to_thread(self._place.read_token)
            self._token_until = now + TOKEN_S
        return self._token
