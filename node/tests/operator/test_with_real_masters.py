"""The operator and real masters: API server and controllers are real, the kubelet is played."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from control_plane import ControlPlane
from playing_kubelet import Kubelet
from test_keeping_true import becomes
from test_resource_rules import resource

from txlog.client import MasterClient
from txlog.operator.build import Object
from txlog.operator.keeper import Keeper, Pace, Settings
from txlog.operator.kube import Kube
from txlog.operator.metrics import Metrics

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]
PACE = Pace(0.5, 0.3, 0.1)


class Site:
    """One data centre of one namespace, kept by one operator."""

    def __init__(self, kube: Kube, namespace: str, kubelet: Kubelet, net: str) -> None:
        self.kube, self.namespace, self.kubelet, self.net = kube, namespace, kubelet, net
        self.keeper = Keeper(kube, namespace, "catalogue", Settings("txlog:1", pace=PACE), Metrics())

    async def want(self, masters: int, **spec: Any) -> None:
        peers = [{"name": "uk", "masters": masters, "address": self.net + ".{index}"}]
        await self.kube.apply(resource(self.namespace, peers=peers, **spec))

    def master(self, index: int) -> MasterClient:
        return MasterClient(f"http://{self.net}.{index}:7300", 5.0)

    async def status(self) -> Object:
        found = await self.kube.get("TxLogCluster", self.namespace, "catalogue")
        return found.get("status", {}) if found else {}

    async def condition(self, kind: str) -> tuple[str, str]:
        told = {each["type"]: each for each in (await self.status()).get("conditions", [])}
        return (told[kind]["status"], told[kind]["reason"]) if kind in told else ("", "")

    async def is_ready(self, masters: str) -> bool:
        told = await self.status()
        return (await self.condition("MastersReady"))[0] == "True" and told["mastersReady"] == masters

    def ready(self, masters: str) -> Callable[[], Awaitable[bool]]:
        return lambda: self.is_ready(masters)

    async def pods(self) -> dict[str, str]:
        found = await self.kube.list("Pod", self.namespace, {"app.kubernetes.io/component": "master"})
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


NETS = iter(f"127.77.{at}" for at in range(1, 255))


@pytest.fixture
async def site(plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Site]:
    kube, net = Kube(plane.place), next(NETS)
    kubelet = Kubelet(kube, namespace, tmp_path, net)
    found = Site(kube, namespace, kubelet, net)
    tasks = [asyncio.create_task(kubelet.run()), asyncio.create_task(found.keeper.run())]
    yield found
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    kubelet.stop()
    await kube.close()


async def test_masters_come_are_told_are_restarted_and_go(site: Site) -> None:
    await site.want(2)
    await becomes(site.ready("2/2"), 90)
    told = await site.status()
    assert (told["state"], told["peersReachable"], told["recovery"]) == ("Joined", "0/0", "Smart")
    assert [(node["node"], node["start"], node["state"]) for node in told["nodes"]] == [
        ("uk-1", 1, "Joined"),
        ("uk-2", 1, "Joined"),
    ]
    pods = await site.pods()

    # What masters take live reaches them, and restarts nobody. In any letter case.
    await site.want(2, maxPeerLag="30s", splitRecovery="sImPlE")

    def prefers(master: MasterClient) -> dict[str, str]:
        return {each["key"]: each["value"] for each in master.settings()["settings"]}

    async def told_so() -> bool:
        with site.master(1) as one, site.master(2) as two:
            found = [await asyncio.to_thread(prefers, each) for each in (one, two)]
        return all((each["maxPeerLag"], each["splitRecovery"]) == ("30s", "Simple") for each in found)

    await becomes(told_so)
    assert await site.pods() == pods

    async def recovery() -> bool:
        return (await site.status())["recovery"] == "Simple"

    await becomes(recovery)

    # One that crashed and does not come back is proved down: nobody waits for it.
    site.kubelet.held.add("catalogue-2")
    site.kubelet.kill("catalogue-2")

    async def let_go() -> bool:
        with site.master(1) as one:
            status = await asyncio.to_thread(one.status)
        return status.state == "Joined" and [each.node for each in status.view.out] == ["uk-2"]

    await becomes(let_go, 20)
    assert (await site.condition("MastersReady"))[0] == "False"
    site.kubelet.held.clear()
    await becomes(site.ready("2/2"), 60)
    assert [node["start"] for node in (await site.status())["nodes"]] == [1, 2]

    # One more; then one less, which leaves in order.
    await site.want(3, maxPeerLag="30s", splitRecovery="Simple")
    await becomes(site.ready("3/3"), 90)

    async def named() -> bool:
        with site.master(1) as one:
            found = await asyncio.to_thread(one.configuration)
        return [each["node"] for each in found["masters"]] == ["uk-1", "uk-2", "uk-3"]

    await becomes(named)
    await site.want(2, maxPeerLag="30s", splitRecovery="Simple")

    async def gone() -> bool:
        with site.master(1) as one:
            found = await asyncio.to_thread(one.configuration)
        return found["removed"] == ["uk-3"] and sorted(await site.pods()) == ["catalogue-1", "catalogue-2"]

    await becomes(gone, 90)
    await becomes(site.ready("2/2"), 60)

    # What they learn at their start only: each is restarted, never two at once.
    pods = await site.pods()
    least = 2

    async def renewed() -> bool:
        nonlocal least
        found = await site.pods()
        with suppress(Exception):
            running = sum(each["state"] == "Joined" for each in (await site.status())["nodes"])
            least = min(least, running)
        return len(found) == 2 and not set(found.values()) & set(pods.values()) and await site.is_ready("2/2")

    await site.want(2, maxPeerLag="30s", splitRecovery="Simple", log={"keep": "1d"})
    await becomes(renewed, 120)
    assert least >= 1
    reasons = [each["reason"] for each in await site.kube.list("Event", site.namespace)]
    assert {"Tell", "Prove", "NameMaster", "TakeOut", "Restart"} <= set(reasons)
    assert reasons.count("Restart") == 2
