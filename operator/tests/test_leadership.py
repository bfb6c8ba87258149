"""One of several operators acts, and another one when it is gone."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from control_plane import ROOT, ControlPlane, helm
from test_reconciler import becomes, operator, standing
from test_resource_rules import resource

from txlog_operator.kube_client import ApiError, KubeClient
from txlog_operator.leadership import LeaderElection, LeadershipLost, LeaseTiming, lease_to_write
from txlog_operator.main import Operator
from txlog_operator.reconciler import OperatorSettings
from txlog_operator.specs import BuildContext, KubeObject

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TIMING = LeaseTiming(duration_s=15.0, renew_deadline_s=10.0, retry_s=0.0)


class Leases:
    """An API server with one Lease. While ``broken``, it does not answer."""

    def __init__(self) -> None:
        self.found: KubeObject | None = None
        self.broken = False
        self.version = 0

    async def get_live(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        if self.broken:
            raise ApiError(0, "GET")
        return self.found

    async def create(self, wanted: KubeObject) -> KubeObject:
        if self.found is not None:
            raise ApiError(409, "POST")
        return self._put(wanted)

    async def replace(self, wanted: KubeObject) -> KubeObject:
        assert self.found is not None
        if wanted["metadata"]["resourceVersion"] != self.found["metadata"]["resourceVersion"]:
            raise ApiError(409, "PUT")
        return self._put(wanted)

    def _put(self, wanted: KubeObject) -> KubeObject:
        self.version += 1
        self.found = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": str(self.version)}}
        return self.found

    @property
    def holder(self) -> str:
        assert self.found is not None
        return str(self.found["spec"]["holderIdentity"])


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def elected(clock: Clock, identity: str) -> LeaderElection:
    return LeaderElection("graphs", "txlog", identity, TIMING, clock)


def test_a_lease_of_another_one_is_left_to_it() -> None:
    taken = lease_to_write(None, "one", TIMING, True, NOW)
    assert taken is not None
    assert (taken["holderIdentity"], taken["leaseDurationSeconds"], taken["leaseTransitions"]) == ("one", 15, 0)
    held = {"spec": taken}
    assert lease_to_write(held, "two", TIMING, False, NOW) is None
    renewed = lease_to_write(held, "one", TIMING, False, NOW.replace(day=3))
    assert renewed is not None
    assert (renewed["acquireTime"], renewed["renewTime"][:10]) == (taken["acquireTime"], "2026-01-03")
    expired = lease_to_write(held, "two", TIMING, True, NOW)
    assert expired is not None
    assert (expired["holderIdentity"], expired["leaseTransitions"]) == ("two", 1)
    free = lease_to_write({"spec": {**taken, "holderIdentity": ""}}, "two", TIMING, False, NOW)
    assert free is not None


async def test_a_lease_expires_by_ones_own_clock_alone() -> None:
    server: Any = Leases()
    clock = Clock()
    one, two = elected(clock, "one"), elected(clock, "two")
    assert await one._try(server)
    server.found["spec"]["renewTime"] = "2000-01-01T00:00:00.000000Z"  # a clock that is years behind
    assert not await two._try(server)
    clock.now += 14.0
    assert not await two._try(server)
    assert await one._try(server)
    clock.now += 14.0
    assert not await two._try(server), "it was renewed meanwhile"
    clock.now += 16.0
    assert await two._try(server)
    assert server.holder == "two"
    assert not await one._try(server)


async def test_who_cannot_renew_gives_up_before_others_may_take_it() -> None:
    server: Any = Leases()
    clock, led = Clock(), asyncio.Event()
    one = elected(clock, "one")
    running = asyncio.create_task(one.run(server, led.set))
    await led.wait()
    server.broken = True
    clock.now += 9.0
    assert not await one._try_in_time(server, 1.0)
    assert not running.done()
    clock.now += 2.0
    with pytest.raises(LeadershipLost, match="was not renewed for 10 s"):
        await running
    assert clock.now - 100.0 < TIMING.duration_s


async def test_a_released_lease_is_free_at_once_and_no_other_one_is_released() -> None:
    server: Any = Leases()
    clock = Clock()
    one, two = elected(clock, "one"), elected(clock, "two")
    assert await one._try(server)
    await two.release(server)
    assert server.holder == "one"
    await one.release(server)
    assert await two._try(server)


async def test_a_standby_starts_what_it_knows_when_it_leads() -> None:
    place: Any = object()
    standby = Operator(place, OperatorSettings(BuildContext("txlog:1")), LeaderElection("graphs", "txlog", "one"))
    started: list[str] = []
    standby._start_reconciler = lambda namespace, name: started.append(name)  # type: ignore[method-assign]
    for name in ("a", "b"):
        standby.on_changed("graphs", name, 1)
    standby.on_deleted("graphs", "b")
    assert started == []
    standby.lead()
    assert started == ["a"]
    standby.on_changed("graphs", "c", 1)
    assert started == ["a", "c"]


@pytest.mark.kubernetes
@pytest.mark.timeout(300)
async def test_another_operator_goes_on_when_one_is_killed(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    chart = str(ROOT / "charts" / "txlog-operator")
    reported = helm("template", "op", chart, "-n", namespace, "--kube-version=1.34.0", "-s", "templates/rbac.yaml")
    plane.kubectl("apply", "-f", "-", stdin=reported.stdout)
    token = plane.kubectl("-n", namespace, "create", "token", "op").stdout.strip()
    kube = KubeClient(plane.place)
    lease = ("--lease", "op", "--lease-namespace", namespace)

    async def holder() -> str:
        found = await kube.get_live("Lease", namespace, "op")
        return str(found["spec"]["holderIdentity"]) if found is not None else ""

    async def mended() -> bool:
        return ("Service", "catalogue") in await standing(kube, namespace)

    await kube.apply(resource(namespace))
    with operator(plane, namespace, token, tmp_path / "one", *lease) as one:
        first = await becomes(holder, 60)
        await becomes(mended, 60)
        with operator(plane, namespace, token, tmp_path / "two", *lease) as two:
            one.kill()
            one.wait(10)
            await kube.delete("Service", namespace, "catalogue")

            async def taken_over() -> bool:
                return await holder() not in ("", first)

            await becomes(taken_over, 90)
            await becomes(mended, 60)
            # One that is stopped in order leaves the Lease to the next one at once.
            two.terminate()
            assert two.wait(60) == 0

            async def free() -> bool:
                return await holder() == ""

            await becomes(free, 10)
    assert plane.forbidden(namespace) == []
    await kube.close()
