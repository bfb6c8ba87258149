"""The operator and real masters: API server and controllers are real, the kubelet is played."""

import asyncio
import base64
import http.client
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from certifying import Authority
from control_plane import ControlPlane
from simulated_kubelet import Kubelet
from test_reconciler import becomes
from test_resource_rules import resource

from txlog.auth import hash_token
from txlog.client import MasterClient, WriteRequest
from txlog.client.credentials import Credentials
from txlog.model.durability import Durability
from txlog.model.errors import Unauthorized
from txlog_operator.kube_client import KubeClient
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.reconciler import OperatorSettings, ReconcileInterval, Reconciler
from txlog_operator.specs import BuildContext, KubeObject

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]
PACE = ReconcileInterval(0.5, 0.3, 0.1)
PATIENCE_S = 30.0
"""With a single answer, on a machine that has more to do."""


class Site:
    """One data centre of one namespace, kept by one operator."""

    def __init__(self, kube: KubeClient, namespace: str, kubelet: Kubelet, net: str) -> None:
        self.kube, self.namespace, self.kubelet, self.net = kube, namespace, kubelet, net
        self.keeper = Reconciler(
            kube, namespace, "catalogue", OperatorSettings(BuildContext("txlog:1"), interval=PACE), OperatorMetrics()
        )

    async def want(self, masters: int, **spec: Any) -> None:
        peers = [{"name": "uk", "masters": masters, "address": self.net + ".{index}"}]
        await self.kube.apply(resource(self.namespace, peers=peers, **spec))

    def master(self, index: int) -> MasterClient:
        return MasterClient(f"http://{self.net}.{index}:7300", PATIENCE_S, connect_s=PATIENCE_S)

    def secured(self, index: int, authority: Authority, token: str | None) -> MasterClient:
        return MasterClient(
            f"https://{self.net}.{index}:7300",
            PATIENCE_S,
            connect_s=PATIENCE_S,
            tls=ssl.create_default_context(cadata=authority.pem.decode()),
            credentials=Credentials.from_token(token) if token else Credentials(None),
            name=f"catalogue-{index}.catalogue-masters.{self.namespace}.svc",
        )

    async def status(self) -> KubeObject:
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

    async def hears(self, *nodes: tuple[str, int, str]) -> bool:
        """Whether these masters answered, with id, start and state."""
        told = await self.status()
        said = [(each["node"], each["start"], each["state"]) for each in told.get("nodes", [])]
        return said == list(nodes) and told["state"] == "Joined"

    async def pods(self) -> dict[str, str]:
        found = await self.kube.list("Pod", self.namespace, {"app.kubernetes.io/component": "master"})
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


def secret(namespace: str, name: str, files: Mapping[str, bytes]) -> KubeObject:
    data = {key: base64.b64encode(content).decode() for key, content in files.items()}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


NETS = iter(f"127.77.{at}" for at in range(1, 255))


@pytest.fixture
async def site(plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Site]:
    kube, net = KubeClient(plane.place), next(NETS)
    await kube.apply(secret(namespace, "catalogue-peer-token", {"token": b"shared\n"}))
    kubelet = Kubelet(kube, namespace, tmp_path, net)
    found = Site(kube, namespace, kubelet, net)
    tasks = [asyncio.create_task(kubelet.run()), asyncio.create_task(found.keeper.run())]
    try:
        yield found
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await kube.close()
    finally:
        kubelet.stop()


async def test_masters_come_are_told_are_restarted_and_go(site: Site) -> None:
    await site.want(2)
    await becomes(site.ready("2/2"), 90)
    await becomes(lambda: site.hears(("uk-1", 1, "Joined"), ("uk-2", 1, "Joined")))
    told = await site.status()
    assert (told["peersReachable"], told["recovery"]) == ("0/0", "Smart")
    await settings_reach_masters_without_a_restart(site)
    await one_that_crashed_is_proved_down(site)
    await one_more_comes_and_leaves_in_order(site)
    await each_is_restarted_and_never_two_at_once(site)
    reasons = [each["reason"] for each in await site.kube.list("Event", site.namespace)]
    assert {"ChangeMasterSettings", "ReportDown", "AddPeer", "RemovePeer", "RestartMaster"} <= set(reasons)
    assert reasons.count("RestartMaster") == 2


async def settings_reach_masters_without_a_restart(site: Site) -> None:
    """What masters take live, in any letter case."""
    pods = await site.pods()
    await site.want(2, maxPeerLag="5m", splitRecovery="sImPlE")

    def prefers(master: MasterClient) -> dict[str, str]:
        return {each["key"]: each["value"] for each in master.settings()["settings"]}

    async def told_so() -> bool:
        with site.master(1) as one, site.master(2) as two:
            found = [await asyncio.to_thread(prefers, each) for each in (one, two)]
        return all((each["maxPeerLag"], each["splitRecovery"]) == ("5m", "Simple") for each in found)

    async def recovery() -> bool:
        return (await site.status())["recovery"] == "Simple"

    await becomes(told_so)
    assert await site.pods() == pods
    await becomes(recovery)


async def one_that_crashed_is_proved_down(site: Site) -> None:
    """One that does not come back: the others do not wait for it."""

    async def let_go() -> bool:
        with site.master(1) as one:
            status = await asyncio.to_thread(one.status)
        return status.state == "Joined" and [each.node for each in status.view.out] == ["uk-2"]

    async def one_is_missed() -> bool:
        return (await site.condition("MastersReady"))[0] == "False"

    site.kubelet.held.add("catalogue-2")
    site.kubelet.kill("catalogue-2")
    await becomes(let_go, 90)
    await becomes(one_is_missed)
    site.kubelet.held.clear()
    await becomes(site.ready("2/2"), 60)
    await becomes(lambda: site.hears(("uk-1", 1, "Joined"), ("uk-2", 2, "Joined")))


async def one_more_comes_and_leaves_in_order(site: Site) -> None:
    async def configuration() -> dict[str, Any]:
        with site.master(1) as one:
            return await asyncio.to_thread(one.configuration)

    async def named() -> bool:
        return [each["node"] for each in (await configuration())["masters"]] == ["uk-1", "uk-2", "uk-3"]

    async def gone() -> bool:
        found = await configuration()
        has_left: bool = found["removed"] == ["uk-3"]
        return has_left and sorted(await site.pods()) == ["catalogue-1", "catalogue-2"]

    await site.want(3, maxPeerLag="5m", splitRecovery="Simple")
    await becomes(site.ready("3/3"), 90)
    await becomes(named)
    await site.want(2, maxPeerLag="5m", splitRecovery="Simple")
    await becomes(gone, 90)
    await becomes(site.ready("2/2"), 60)


async def each_is_restarted_and_never_two_at_once(site: Site) -> None:
    """What they learn at their start only."""
    pods, least = await site.pods(), 2

    async def renewed() -> bool:
        nonlocal least
        found = await site.pods()
        least = min(least, site.kubelet.ready)
        return len(found) == 2 and not set(found.values()) & set(pods.values()) and await site.is_ready("2/2")

    await site.want(2, maxPeerLag="5m", splitRecovery="Simple", log={"keep": "1d"})
    await becomes(renewed, 120)
    assert least >= 1


OWN = "txlog_the-operators-and-the-pipelines"
READER, WRITER = "txlog_a-reader", "txlog_a-writer"


def people(*lines: str) -> dict[str, bytes]:
    return {"users": "".join(f"{line}\n" for line in lines).encode(), "own-token": OWN.encode()}


def certificate(authority: Authority, folder: Path, *names: str) -> dict[str, bytes]:
    made = authority.issue(folder, *names)
    return {file.name: file.read_bytes() for file in made.iterdir()}


class SecuredSite:
    """The Secrets of a data centre with certificates and users, and what clients of it see."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.authority = Authority()
        self.writer = f"loader writer {hash_token(WRITER)}"

    async def put(self, name: str, files: Mapping[str, bytes]) -> None:
        await self.site.kube.apply(secret(self.site.namespace, name, files))

    async def put_door(self) -> None:
        host = f"*.catalogue-masters.{self.site.namespace}.svc"
        await self.put("door", certificate(self.authority, self.folder / "door", host))

    async def put_peers(self) -> None:
        await self.put("peers", certificate(self.authority, self.folder / "peers", "uk-1", "uk-2"))

    async def says(self, status: str, *words: str) -> bool:
        """Whether the condition SpecValid has this status, and these words in its message."""
        told = {each["type"]: each for each in (await self.site.status()).get("conditions", [])}
        found = told.get("SpecValid", {})
        return found.get("status") == status and all(word in found["message"] for word in words)

    def write(self, token: str, number: int) -> bool:
        with self.site.secured(2, self.authority, token) as master:
            insert = WriteRequest(f"INSERT DATA {{ <urn:s:{number}> <urn:p> <urn:o> }}")
            (answer,) = master.submit([insert], Durability.SYNCED)
        return answer.error is None

    def serial(self, index: int) -> str:
        return ssl.get_server_certificate((f"{self.site.net}.{index}", 7300), timeout=PATIENCE_S)

    def refuses_strangers(self) -> None:
        """No client gets in without a token or without TLS. At the port for masters, only masters get in."""
        net = self.site.net
        with self.site.secured(1, self.authority, None) as unknown, pytest.raises(Unauthorized):
            unknown.status()
        plain = http.client.HTTPConnection(f"{net}.1", 7300, timeout=PATIENCE_S)
        plain.request("GET", "/txlog/status")
        assert plain.getresponse().status == 400
        stranger = ssl.create_default_context(cadata=self.authority.pem.decode())
        stranger.check_hostname = False
        answered = b""
        with suppress(OSError), socket.create_connection((f"{net}.1", 7301), PATIENCE_S) as sock:
            shaken = stranger.wrap_socket(sock)
            shaken.sendall(b"GET /txlog/status HTTP/1.1\r\nHost: a\r\n\r\n")
            answered = shaken.recv(1)
        assert answered == b""


async def test_masters_with_certificates_and_users_are_founded_kept_and_renewed(site: Site, tmp_path: Path) -> None:
    secured = SecuredSite(site, tmp_path)
    await secrets_that_are_missing_are_named(secured)
    await secured.put("people", people(secured.writer))
    await secured.put_peers()
    await secured.put_door()
    await becomes(site.ready("2/2"), 90)
    assert (await site.condition("SpecValid"))[0] == "True"
    pods = await site.pods()
    await asyncio.to_thread(secured.refuses_strangers)

    async def named() -> bool:
        """The stranger is let go of before that is written."""
        return "NoCertificate" in site.kubelet.log("catalogue-1")

    await becomes(named)
    assert await asyncio.to_thread(secured.write, WRITER, 1)
    with pytest.raises(Unauthorized):
        await asyncio.to_thread(secured.write, READER, 2)
    await new_secrets_count_for_pods_that_run(secured, pods)

    # A Secret that has become wrong changes nothing but what is said of it.
    await secured.put("door", {"ca.crt": secured.authority.pem})
    await becomes(lambda: secured.says("False", "the Secret door lacks tls.crt and tls.key"))
    assert await asyncio.to_thread(secured.write, WRITER, 4)
    await becomes(site.ready("2/2"))
    await secured.put_door()
    await becomes(lambda: secured.says("True"))
    assert await site.pods() == pods


async def secrets_that_are_missing_are_named(secured: SecuredSite) -> None:
    """Each Secret that is not there, or lacks something; and nothing is made meanwhile."""
    site = secured.site
    security = {
        "tlsSecretRef": {"name": "door"},
        "peerTlsSecretRef": {"name": "peers"},
        "users": {"secretRef": {"name": "people"}},
    }
    await site.want(2, security=security)
    missing = ("tlsSecretRef: the Secret door is not there", "the Secret people is not there")
    await becomes(lambda: secured.says("False", *missing))
    await secured.put("people", {"users": f"{secured.writer}\n".encode()})
    await secured.put("peers", certificate(secured.authority, secured.folder / "other", "uk-1"))
    lacking = ("the Secret people lacks own-token", "expected the DNS name uk-2")
    await becomes(lambda: secured.says("False", *lacking))
    assert await site.kube.list("StatefulSet", site.namespace) == []


async def new_secrets_count_for_pods_that_run(secured: SecuredSite, pods: Mapping[str, str]) -> None:
    """Certificates at both doors, and who may come in."""
    site = secured.site
    before = [await asyncio.to_thread(secured.serial, index) for index in (1, 2)]
    await secured.put_door()
    await secured.put_peers()
    await secured.put("people", people(secured.writer, f"other writer {hash_token(READER)}"))

    async def renewed() -> bool:
        now = [await asyncio.to_thread(secured.serial, index) for index in (1, 2)]
        return all(new != old for new, old in zip(now, before, strict=True))

    async def let_in() -> bool:
        with suppress(Unauthorized):
            return await asyncio.to_thread(secured.write, READER, 3)
        return False

    async def read_by_both() -> bool:
        """The door's and the peers', by each."""
        return all(site.kubelet.log(pod).count('"CertificatesRead"') >= 2 for pod in pods)

    await becomes(renewed)
    await becomes(let_in)
    await becomes(read_by_both)
    await becomes(site.ready("2/2"))
