"""A copy of the namespaces' objects, kept by one list and one watch for each kind. All reconcilers read it.

A client with a cache reads its own writes: the answer to a write goes into the copy at once. Without this, a hundred
clusters would list twelve kinds each in every reconcile.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from txlog.supervision.retry_delay import next_delay_s
from txlog_operator.kube_client import ApiEndpoint, ApiError, KubeClient, KubeObjects
from txlog_operator.specs.common import KubeObject

log = logging.getLogger("txlog_operator")

OURS: Final = {"app.kubernetes.io/name": "txlog"}
CACHED_KINDS: Final[Mapping[str, Mapping[str, str] | None]] = {
    **dict.fromkeys(("TxLogCluster", "TxLogBackup", "TxLogRestore", "TxLogRehearsal", "TxLogBackupSchedule")),
    **dict.fromkeys(("Pod", "ConfigMap", "Service", "StatefulSet", "Deployment", "PersistentVolumeClaim"), OURS),
    **dict.fromkeys(("PodDisruptionBudget", "NetworkPolicy", "Job"), OURS),
}
"""The kinds that are kept, with the labels of the objects that are."""
KINDS_WITH_MANAGERS: Final = (
    *("StatefulSet", "Deployment", "Service"),
    *("PodDisruptionBudget", "NetworkPolicy", "ConfigMap"),
)
"""Kinds of which it is kept who set which field. For the others, of which there are many, it is left out."""
HTTP_GONE: Final = 410
FIRST_LIST_S: Final = 30.0
WATCH_S_MIN: Final = 1.0
"""An API server ends a watch after minutes. A proxy that ends it at once must not be asked without a pause."""
RETRY_DELAY_S: Final = (0.5, 5.0)
"""Before a list is repeated: at first, and at most."""
JITTER: Final = (1.0, 1.5)
"""By this the delays vary, so that the copies of many kinds do not come again together."""
Key = tuple[str, str]
ObjectChanged = Callable[[str, KubeObject, KubeObject | None], None]
"""Receives the kind, the object, and the object before; called for changes that others made."""


class ObjectCopy:
    """The objects of one kind in one namespace."""

    def __init__(
        self,
        client: KubeClient,
        kind: str,
        namespace: str,
        on_change: ObjectChanged,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self._kind, self._namespace = client, kind, namespace
        self._on_change = on_change
        self._sleep = sleep
        self._delay_s = 0.0
        """Of the last pause; 0 after the API server has sent something."""
        self._logged = ""
        self._objects: dict[str, KubeObject] = {}
        self._by_cluster: dict[str, dict[str, KubeObject]] = {}
        self._complete = False
        self._answered = asyncio.Event()
        """Set when the API server has answered the first list, or refused it."""
        self._error: ApiError | None = None
        self._watched = 0

    async def objects(self, selector: Mapping[str, str] | None) -> KubeObjects:
        """The objects with these labels. :class:`ApiError` while the API server refuses the list, or does not
        answer."""
        try:
            await asyncio.wait_for(self._answered.wait(), FIRST_LIST_S)
        except TimeoutError:
            raise ApiError(0, f"list {self._kind} in {self._namespace}: no answer") from None
        if self._error is not None:
            raise ApiError(self._error.code, str(self._error))
        wanted = dict(selector or {})
        cluster = wanted.get("app.kubernetes.io/instance")
        among = self._objects if cluster is None else self._by_cluster.get(cluster, {})
        return [each for each in among.values() if wanted.items() <= (each["metadata"].get("labels") or {}).items()]

    async def get(self, name: str) -> KubeObject | None:
        """The object of that name."""
        await self.objects({"app.kubernetes.io/instance": ""})
        return self._objects.get(name)

    def put(self, found: KubeObject) -> KubeObject | None:
        """Keeps an object, unless a newer one is here. Returns the former one; the same object when it was here."""
        found, name = _compact(self._kind, found), found["metadata"]["name"]
        before = self._objects.get(name)
        version = _version(found)
        if before is not None and 0 < version <= _version(before):
            return before
        if before is None and 0 < version <= self._watched:
            return found  # the watch has passed it: it is gone again
        if before is not None:
            self._by_cluster.get(_cluster_of(before), {}).pop(name, None)
        self._objects[name] = found
        self._by_cluster.setdefault(_cluster_of(found), {})[name] = found
        return before

    def remove(self, name: str, uid: str | None = None) -> None:
        """Forgets an object; with ``uid``, that one only."""
        before = self._objects.get(name)
        if before is None or uid not in (None, before["metadata"].get("uid")):
            return
        del self._objects[name]
        self._by_cluster.get(_cluster_of(before), {}).pop(name, None)

    async def run(self) -> None:
        """Lists and watches until it is cancelled."""
        while True:
            try:
                version = await self._list()
            except ApiError as wrong:
                self._error = wrong
                self._answered.set()
                await self._pause(f"the copy of {self._kind} in {self._namespace}: {wrong}")
                continue
            try:
                while True:
                    began = time.monotonic()
                    version = await self._watch(version)
                    if time.monotonic() - began < WATCH_S_MIN:
                        await self._sleep(WATCH_S_MIN * random.uniform(*JITTER))
            except ApiError as wrong:
                if wrong.code != HTTP_GONE:
                    await self._pause(f"the watch of {self._kind} in {self._namespace}: {wrong}")

    async def _pause(self, why: str) -> None:
        """Longer each time, and logged once: a namespace without the operator's Role may stay so."""
        if why != self._logged:
            log.warning("%s", why)
        self._logged = why
        self._delay_s = next_delay_s(self._delay_s, RETRY_DELAY_S)
        await self._sleep(self._delay_s * random.uniform(*JITTER))

    async def _watch(self, version: str) -> str:
        async for event, found in self._client.watch(self._kind, self._namespace, CACHED_KINDS[self._kind], version):
            version = str(found["metadata"]["resourceVersion"])
            self._delay_s, self._logged = 0.0, ""
            if event != "BOOKMARK":
                self._take(event, found)
            self._watched = max(self._watched, _version(found))
        return version

    async def _list(self) -> str:
        found, version = await self._client.list_with_version(self._kind, self._namespace, CACHED_KINDS[self._kind])
        names, was_complete = {str(each["metadata"]["name"]) for each in found}, self._complete
        at = int(version) if version.isdecimal() else 0
        went_back = at < self._watched
        for name in self._objects.keys() - names:
            self._take("DELETED", self._objects[name])
        if went_back:  # the API server was restored from a backup: its versions begin again at an earlier one
            self._objects, self._by_cluster, self._watched = {}, {}, 0
        for each in found:
            if was_complete:
                self._take("MODIFIED", each)
            else:
                self.put(each)
        self._watched = max(self._watched, at)
        self._error = None
        self._complete = True
        self._answered.set()
        return version

    def _take(self, event: str, found: KubeObject) -> None:
        if event == "DELETED":
            self.remove(found["metadata"]["name"], found["metadata"].get("uid"))
            self._on_change(self._kind, found, found)
            return
        before = self.put(found)
        if before is None or _version(before) != _version(found):
            self._on_change(self._kind, found, before)


def _version(found: KubeObject) -> int:
    """Resource versions grow; 0 where it is none."""
    text = str(found["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def _cluster_of(found: KubeObject) -> str:
    labels: Mapping[str, str] = found["metadata"].get("labels") or {}
    return labels.get("app.kubernetes.io/instance", "")


def _compact(kind: str, found: KubeObject) -> KubeObject:
    if kind in KINDS_WITH_MANAGERS or "managedFields" not in found["metadata"]:
        return found
    meta = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    return {**found, "metadata": meta}


class CachedKubeClient(KubeClient):
    """A client that answers reads of :data:`CACHED_KINDS` from copies. It starts a copy with the first read of its kind
    in a namespace, and another one should a copy end by a bug."""

    def __init__(
        self,
        place: ApiEndpoint,
        on_answer: Callable[[str, int], None] | None = None,
        on_change: ObjectChanged = lambda _kind, _found, _before: None,
    ) -> None:
        super().__init__(place, on_answer)
        self._on_change = on_change
        self._copies: dict[Key, tuple[ObjectCopy, asyncio.Task[None]]] = {}

    async def close(self) -> None:
        """Ends the watches and closes all connections."""
        tasks = [task for _, task in self._copies.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await super().close()

    async def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """From the copy; of other kinds, from the API server."""
        if kind not in CACHED_KINDS:
            return await super().get(kind, namespace, name)
        return await self._copy(kind, namespace).get(name)

    async def list(
        self, kind: str, namespace: str, selector: Mapping[str, str] | None = None, fields: str | None = None
    ) -> KubeObjects:
        """From the copy; of other kinds, and with a field selector, from the API server."""
        if kind not in CACHED_KINDS or fields is not None:
            return await super().list(kind, namespace, selector, fields)
        return await self._copy(kind, namespace).objects(selector)

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str | None = None, *, orphan: bool = False
    ) -> None:
        """As of :class:`KubeClient`. The copy shows the object until the API server tells of its end."""
        await super().delete(kind, namespace, name, uid, orphan=orphan)
        await self._refresh(kind, namespace, name, uid)

    async def refresh(self, kind: str, namespace: str, name: str) -> None:
        """As of :class:`KubeClient`: a watch may have lost its connection, which shows after a minute only."""
        await self._refresh(kind, namespace, name, None)

    async def _refresh(self, kind: str, namespace: str, name: str, uid: str | None) -> None:
        if (kind, namespace) not in self._copies:
            return
        found = await self.get_live(kind, namespace, name)
        copy = self._copies[kind, namespace][0]
        if found is None:
            copy.remove(name, uid)
        else:
            copy.put(found)

    async def _write(self, method: str, path: str, body: KubeObject, **options: Any) -> KubeObject:
        found = await super()._write(method, path, body, **options)
        kind, namespace = found.get("kind", ""), found.get("metadata", {}).get("namespace", "")
        if method != "DELETE" and (kind, namespace) in self._copies and _is_kept(kind, found):
            self._copies[kind, namespace][0].put(found)
        return found

    def _copy(self, kind: str, namespace: str) -> ObjectCopy:
        key = (kind, namespace)
        if key not in self._copies or self._copies[key][1].done():
            copy = ObjectCopy(self, kind, namespace, self._on_change)
            task = asyncio.get_running_loop().create_task(copy.run(), name=f"copy of {kind} in {namespace}")
            self._copies[key] = (copy, task)
        return self._copies[key][0]


def _is_kept(kind: str, found: KubeObject) -> bool:
    return (CACHED_KINDS[kind] or {}).items() <= (found["metadata"].get("labels") or {}).items()
