"""A thin adapter of the package ``kubernetes``: get, list, server-side apply, create and delete for the kinds that the
operator knows. Objects are plain dictionaries; every failure is an :class:`ApiError`."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.aio.dynamic import DynamicClient, Resource
from kubernetes.aio.dynamic.exceptions import DynamicApiError

from txlog.model.errors import TxLogError
from txlog_operator.specs.common import FIELD_MANAGER, KubeObject

SERVICE_ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(total=15.0)
CONNECTIONS_MAX: Final = 100
"""Each watch keeps one, of 12 for each namespace."""
PAGE_SIZE: Final = 500
HTTP_TOO_MANY_REQUESTS: Final = 429
HTTP_FORBIDDEN: Final = 403
HTTP_NOT_FOUND: Final = 404
HTTP_CONFLICT: Final = 409
WATCH_S: Final = 300
"""The API server ends a watch after so many seconds, and the next one goes on where it ended."""
WATCH_TIMEOUT: Final = aiohttp.ClientTimeout(total=WATCH_S + 30.0, sock_read=90.0)
"""A watch without a word, not even the bookmark of each minute, has lost its connection."""
RETRY_DELAYS_S: Final = (0.2, 0.5, 1.0, 2.0)
RETRY_AFTER_MAX_S: Final = 30.0
"""The longest pause that a server's answer causes."""
RETRY_JITTER: Final = (1.0, 1.5)
"""By this the pauses vary, so that clients which were refused together do not come again together."""
BEARER_TOKEN: Final = "BearerToken"
"""The name under which a ``Configuration`` keeps the content of the ``Authorization`` header."""
UNUSABLE_KUBECONFIG: Final = (
    ConfigException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
)
"""What the package raises for files that are no kubeconfig, and for credentials that it cannot read."""


KubeObjects: TypeAlias = list[KubeObject]


class ApiError(TxLogError):
    """The API server refused or failed. ``code`` is its HTTP status, 0 when it was not reached."""

    def __init__(self, code: int, what: str, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{code or 'not reached'}: {what}")
        self.code = code
        self.retry_after_s = retry_after_s
        """After how many seconds the server wants to be asked again; 0 where it does not say."""


def _resource(group_version: str, kind: str, plural: str) -> Resource:
    group, _, version = group_version.rpartition("/")
    prefix = "apis" if group else "api"
    return Resource(prefix=prefix, group=group, api_version=version, kind=kind, name=plural, namespaced=True)


RESOURCES: Final[Mapping[str, Resource]] = {
    kind: _resource(group_version, kind, plural)
    for group_version, kind, plural in (
        ("v1", "ConfigMap", "configmaps"),
        ("v1", "Service", "services"),
        ("v1", "Secret", "secrets"),
        ("v1", "Pod", "pods"),
        ("v1", "Event", "events"),
        ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
        ("apps/v1", "StatefulSet", "statefulsets"),
        ("apps/v1", "Deployment", "deployments"),
        ("batch/v1", "Job", "jobs"),
        ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
        ("coordination.k8s.io/v1", "Lease", "leases"),
        ("txlog.io/v1alpha1", "TxLogCluster", "txlogclusters"),
        ("txlog.io/v1alpha1", "TxLogBackup", "txlogbackups"),
        ("txlog.io/v1alpha1", "TxLogRestore", "txlogrestores"),
        ("txlog.io/v1alpha1", "TxLogRehearsal", "txlogrehearsals"),
        ("txlog.io/v1alpha1", "TxLogBackupSchedule", "txlogbackupschedules"),
    )
}
"""By kind. The kinds are fixed, so the client needs no discovery: no requests at the start, and no rights for it."""


class ApiEndpoint:
    """An API server and the client's credentials, as the package ``kubernetes`` has loaded them."""

    def __init__(self, configuration: Configuration) -> None:
        configuration.connection_pool_maxsize = CONNECTIONS_MAX
        configuration.client_session_kwargs = {"trust_env": False}  # neither proxies nor ~/.netrc of the environment
        self.configuration = configuration

    @classmethod
    async def find(cls) -> ApiEndpoint:
        """The kubeconfig that ``KUBECONFIG`` names, else the pod's own account, whose token the package reads again
        every minute. :class:`ApiError` when both are missing or unusable."""
        configuration, named = Configuration(), os.environ.get("KUBECONFIG")
        try:
            if named:
                await load_kube_config(named, client_configuration=configuration, persist_config=False)
            else:
                load_incluster_config(configuration)
        except UNUSABLE_KUBECONFIG as wrong:
            why = f"{named} is no kubeconfig" if named else "this is no pod with an account: set KUBECONFIG"
            raise ApiError(0, f"{why}: {wrong!r}") from None
        # A file with a token may end with a line end, which no header may contain.
        configuration.api_key = {name: value.strip() for name, value in configuration.api_key.items()}
        return cls(configuration)

    @property
    def server(self) -> str:
        """The URL of the API server, without a slash at its end."""
        url: str = self.configuration.host
        return url

    async def authorization(self) -> str | None:
        """The current content of the ``Authorization`` header, None without one: a pod's token is replaced from time
        to time."""
        found: str | None = await self.configuration.get_api_key_with_prefix(BEARER_TOKEN)
        return found


class KubeClient:
    """A client of one API server. Every call raises :class:`ApiError` for a status of 400 and above, or when no answer
    comes. It connects with the first request."""

    def __init__(self, place: ApiEndpoint, on_answer: Callable[[str, int], None] | None = None) -> None:
        """``on_answer`` receives the method and the HTTP status (0: none) of every request."""
        self._api = ApiClient(place.configuration)
        self._dynamic = DynamicClient(self._api)
        self._on_answer = on_answer or (lambda _method, _code: None)
        self.write_count = 0
        """Requests that changed an object, or could have."""
        self.request_count = 0
        """All requests, with those that were repeated."""

    async def close(self) -> None:
        """Closes all connections."""
        await self._api.close()

    async def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """The object, or None when it does not exist."""
        return await self.get_live(kind, namespace, name)

    async def get_live(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """As :meth:`get`, always from the API server itself."""
        try:
            return await self._request("GET", RESOURCES[kind].path(name, namespace))
        except ApiError as error:
            if error.code == HTTP_NOT_FOUND:
                return None
            raise

    async def refresh(self, kind: str, namespace: str, name: str) -> None:
        """Makes the next :meth:`get` of this object read what the API server has now. Here it always does."""

    async def list(
        self, kind: str, namespace: str, selector: Mapping[str, str] | None = None, fields: str | None = None
    ) -> list[KubeObject]:
        """All objects of a kind; ``selector``: only those with these labels; ``fields``: a field selector."""
        return (await self.list_with_version(kind, namespace, selector, fields))[0]

    async def list_with_version(
        self, kind: str, namespace: str, selector: Mapping[str, str] | None = None, fields: str | None = None
    ) -> tuple[KubeObjects, str]:
        """As :meth:`list`, and the resource version from which a watch goes on."""
        resource = RESOURCES[kind]
        found: list[KubeObject] = []
        rest: str | None = None
        while True:
            page = await self._request(
                "GET",
                resource.path(namespace=namespace),
                label_selector=_selector_text(selector),
                field_selector=fields,
                limit=PAGE_SIZE,
                _continue=rest,
            )
            # The items of a list carry neither kind nor API version.
            found += [{**each, "kind": kind, "apiVersion": resource.group_version} for each in page["items"]]
            rest = page["metadata"].get("continue")
            if not rest:
                return found, str(page["metadata"].get("resourceVersion", ""))

    async def watch(
        self, kind: str, namespace: str, selector: Mapping[str, str] | None, version: str
    ) -> AsyncIterator[tuple[str, KubeObject]]:
        """Type and object of each change after ``version``, until the API server ends the watch. :class:`ApiError` 410
        when the API server does not remember that version."""
        path = RESOURCES[kind].path(namespace=namespace)
        self.request_count += 1
        try:
            answer = await self._dynamic.request(
                "GET",
                path,
                query_params=[("allowWatchBookmarks", "true")],
                label_selector=_selector_text(selector),
                resource_version=version,
                timeout_seconds=WATCH_S,
                watch=True,
                serialize=False,
                _request_timeout=WATCH_TIMEOUT,
            )
            self._on_answer("WATCH", answer.status)
            async with answer:
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiError(int(event["object"].get("code", 0)), str(event["object"].get("message")))
                    yield event["type"], {**event["object"], "kind": kind}
        except DynamicApiError as refused:
            self._on_answer("WATCH", refused.status)
            raise ApiError(refused.status, f"watch {path}: {_message_of(refused)}") from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, ConfigException) as wrong:
            raise ApiError(0, f"watch {path}: {wrong!r}") from wrong

    async def served_kinds(self, group_version: str) -> set[str]:
        """The kinds that the API server serves of this group and version; none while it does not know the group."""
        try:
            found = await self._request("GET", f"/apis/{group_version}")
        except ApiError as error:
            if error.code == HTTP_NOT_FOUND:
                return set()
            raise
        return {str(each["kind"]) for each in found["resources"]}

    async def apply(self, wanted: KubeObject, *, force: bool = True) -> KubeObject:
        """Server-side apply of the whole object with the operator's field manager; creates the object if it is
        missing. Without ``force``, :class:`ApiError` 409 when another manager set one of its fields otherwise."""
        return await self._write(
            "PATCH",
            _path_of(wanted),
            wanted,
            content_type="application/apply-patch+yaml",
            field_manager=FIELD_MANAGER,
            force_conflicts=force,
        )

    async def create(self, wanted: KubeObject) -> KubeObject:
        """Creates an object and returns it as the server stored it."""
        return await self._write("POST", _path_of(wanted).rpartition("/")[0], wanted, field_manager=FIELD_MANAGER)

    async def replace(self, found: KubeObject) -> KubeObject:
        """Replaces the whole object. :class:`ApiError` 409 when it changed in the meantime."""
        return await self._write("PUT", _path_of(found), found, field_manager=FIELD_MANAGER)

    async def replace_status(self, found: KubeObject, status: KubeObject) -> KubeObject:
        """Replaces the whole status. :class:`ApiError` 409 when the object changed in the meantime."""
        body = {**found, "status": status}
        return await self._write("PUT", f"{_path_of(found)}/status", body, field_manager=FIELD_MANAGER)

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str | None = None, *, orphan: bool = False
    ) -> None:
        """Deletes the object, and what it owns unless ``orphan``. Does nothing when it is gone, or when another object
        (by ``uid``) has its name."""
        body: KubeObject = {"propagationPolicy": "Orphan" if orphan else "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            await self._write("DELETE", RESOURCES[kind].path(name, namespace), body)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def _write(self, method: str, path: str, body: KubeObject, **options: Any) -> KubeObject:
        self.write_count += 1
        return await self._request(method, path, body=body, **options)

    async def _request(self, method: str, path: str, **options: Any) -> KubeObject:
        """The parsed answer. A server that is too busy (429) has done nothing, so the client retries."""
        for pause in RETRY_DELAYS_S:
            try:
                return await self._request_once(method, path, **options)
            except ApiError as error:
                if error.code != HTTP_TOO_MANY_REQUESTS:
                    raise
                pause = max(pause, min(error.retry_after_s, RETRY_AFTER_MAX_S))
            await asyncio.sleep(pause * random.uniform(*RETRY_JITTER))
        return await self._request_once(method, path, **options)

    async def _request_once(self, method: str, path: str, **options: Any) -> KubeObject:
        strict = [("fieldValidation", "Strict")] if method == "PATCH" else []
        self.request_count += 1
        code = 0
        try:
            found: KubeObject = await self._dynamic.request(
                method,
                path,
                query_params=strict,
                serializer=_plain,
                _request_timeout=REQUEST_TIMEOUT,
                **options,
            )
            code = 200
            return found
        except DynamicApiError as refused:
            code = int(refused.status)
            raise ApiError(code, f"{method} {path}: {_message_of(refused)}", _retry_after_s(refused)) from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, ConfigException) as wrong:
            raise ApiError(0, f"{method} {path}: {wrong!r}") from wrong
        finally:
            self._on_answer(method, code)


def _selector_text(selector: Mapping[str, str] | None) -> str | None:
    return ",".join(f"{key}={value}" for key, value in selector.items()) if selector else None


def _path_of(wanted: KubeObject) -> str:
    """The path of one object."""
    meta = wanted["metadata"]
    path: str = RESOURCES[wanted["kind"]].path(meta["name"], meta["namespace"])
    return path


def _message_of(refused: DynamicApiError) -> str:
    """The message of the API server's ``Status``, else the text of the answer, else the reason."""
    try:
        return str(json.loads(refused.body)["message"])
    except (ValueError, TypeError, KeyError):
        return str(refused.body or refused.reason)


def _retry_after_s(refused: DynamicApiError) -> float:
    """The seconds of ``Retry-After``; 0 without it. API servers send no dates."""
    text = str((refused.headers or {}).get("Retry-After", ""))
    return float(text) if text.isascii() and text.isdecimal() else 0.0


def _plain(_client: DynamicClient, answer: KubeObject) -> KubeObject:
    return answer
