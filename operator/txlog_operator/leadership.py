"""Which of several operators acts: the holder of a Lease.

As in Kubernetes' own components, only this process's clock is used: a Lease has expired when it did not change for its
duration since this process first saw it so. A holder that cannot renew ends before others may take the Lease. Two that
act at once would do no harm, since every action is idempotent; they would only do everything twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from txlog_operator.kube_client import HTTP_CONFLICT, ApiError, KubeClient
from txlog_operator.specs import KubeObject

log = logging.getLogger("txlog_operator")


@dataclass(frozen=True)
class LeaseTiming:
    """Seconds: how long a Lease counts without a renewal, how long its holder tries to renew it, and between two
    tries."""

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0


class LeadershipLost(Exception):
    """Another operator has the Lease, or it could not be renewed in time. The process must end."""


class LeaderElection:
    """One operator's part in the election for a Lease. ``identity`` is unique for the process."""

    def __init__(
        self,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTiming = LeaseTiming(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity
        self._namespace = namespace
        self._name = name
        self._timing = timing
        self._clock = clock
        self._seen: tuple[str, float] = ("", 0.0)
        """The version of the Lease that was seen last, and when it was first seen."""

    async def run(self, kube: KubeClient, on_lead: Callable[[], None]) -> None:
        """Calls ``on_lead`` when this process has the Lease, and then renews it. Ends with :class:`LeadershipLost`."""
        deadline_s, renewed_at = self._timing.renew_deadline_s, None
        while True:
            asked_at = self._clock()
            left_s = deadline_s if renewed_at is None else max(0.0, renewed_at + deadline_s - asked_at)
            if await self._try_in_time(kube, left_s):
                if renewed_at is None:
                    log.info("%s leads: it has the Lease %s", self.identity, self._name)
                    on_lead()
                renewed_at = asked_at
            elif renewed_at is not None and self._clock() - renewed_at >= deadline_s:
                raise LeadershipLost(f"the Lease {self._name} was not renewed for {deadline_s:.0f} s")
            await asyncio.sleep(self._timing.retry_s)

    async def release(self, kube: KubeClient) -> None:
        """Gives the Lease up, so that another operator need not wait for its end; does nothing without it."""
        try:
            found = await kube.get_live("Lease", self._namespace, self._name)
            if found is not None and found["spec"].get("holderIdentity") == self.identity:
                await kube.replace({**found, "spec": {**found["spec"], "holderIdentity": ""}})
        except ApiError as error:
            log.warning("the Lease %s was not released: %s", self._name, error)

    async def _try_in_time(self, kube: KubeClient, most_s: float) -> bool:
        """As :meth:`_try`, within ``most_s``: what is left until the deadline of the last renewal. With a time-out of
        its own, a request that begins shortly before the deadline could outlast the Lease."""
        try:
            return await asyncio.wait_for(self._try(kube), most_s)
        except TimeoutError:
            log.warning("the Lease %s: no answer within %.1f s", self._name, most_s)
            return False

    async def _try(self, kube: KubeClient) -> bool:
        """Whether this process has the Lease now. It takes a free one, and renews its own."""
        try:
            found = await kube.get_live("Lease", self._namespace, self._name)
            wanted = lease_to_write(found, self.identity, self._timing, self._is_expired(found), datetime.now(UTC))
            if wanted is None:
                return False
            if found is None:
                metadata = {"name": self._name, "namespace": self._namespace}
                await kube.create({**_LEASE, "metadata": metadata, "spec": wanted})
            else:
                await kube.replace({**found, "spec": wanted})
        except ApiError as error:
            if error.code != HTTP_CONFLICT:  # another one was faster
                log.warning("the Lease %s: %s", self._name, error)
            return False
        return True

    def _is_expired(self, found: KubeObject | None) -> bool:
        if found is None:
            return True
        version, now = str(found["metadata"].get("resourceVersion")), self._clock()
        if version != self._seen[0]:
            self._seen = (version, now)
        duration = float(found["spec"].get("leaseDurationSeconds") or self._timing.duration_s)
        return now - self._seen[1] >= duration


_LEASE: Final[KubeObject] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}


def lease_to_write(
    found: KubeObject | None, identity: str, timing: LeaseTiming, is_expired: bool, now: datetime
) -> KubeObject | None:
    """The spec with which this operator takes or renews the Lease; None while another one has it."""
    old: KubeObject = found["spec"] if found is not None else {}
    holder = old.get("holderIdentity") or ""
    if holder not in ("", identity) and not is_expired:
        return None
    at = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    is_mine = holder == identity
    return {
        **old,
        "holderIdentity": identity,
        "leaseDurationSeconds": max(1, int(timing.duration_s)),
        "acquireTime": old.get("acquireTime", at) if is_mine else at,
        "renewTime": at,
        "leaseTransitions": int(old.get("leaseTransitions") or 0) + (found is not None and not is_mine),
    }
