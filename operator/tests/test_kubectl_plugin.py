"""``kubectl txlog`` against a real API server, whose proxy leads to a real master and a real store. The kubelet is
played: pods have this machine's own address (the API server's proxy leads to none on loopback)."""

import base64
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from control_plane import ControlPlane
from test_resource_rules import resource
from typer.testing import CliRunner
from worker_driver import Driver

from e2e.lib.ports import free_ports
from kubectl_txlog.plugin import app
from txlog.auth import hash_token
from txlog.client import MasterClient, WriteRequest
from txlog.client.credentials import Credentials
from txlog.local.supervisor_main import obtain_oxigraph
from txlog.model.durability import Durability
from txlog.model.errors import TxLogError
from txlog.workers import OxigraphAdapter
from txlog_operator.manifest_validation import parse_manifest
from txlog_operator.specs import BuildContext, KubeObject, desired_objects
from txlog_operator.specs.common import labels

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

OWN = "txlog_of-its-own"
DEADLINE_S = 60.0
RULES = [
    {"apiGroups": ["txlog.io"], "resources": ["txlogclusters"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get", "create", "update", "delete"]},
    {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["people"], "verbs": ["get"]},
]
"""As docs/how-to/monitor.md has them."""


def own_address() -> str:
    """Of this machine: the API server leads nobody to loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("192.0.2.200", 9))  # sends nothing
        address: str = asked.getsockname()[0]
    assert not address.startswith("127."), "this test needs an address of this machine beside loopback"
    return address


class Store:
    def __init__(self, url: str) -> None:
        self.adapter = OxigraphAdapter()
        self.url = url


class Told(NamedTuple):
    code: int
    out: str
    error: str


class Behind:
    """One master and its stores of one TxLogCluster; who asks, asks by kubectl."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, stores: int = 1) -> None:
        self.plane, self.namespace, self.folder = plane, namespace, folder
        self.address = own_address()
        self.port, *self.store_ports = free_ports(1 + stores)
        self.running: list[subprocess.Popen[bytes]] = []
        peers = [{"name": "uk", "masters": 1, "address": "uk"}]
        users = {"users": {"secretRef": {"name": "people"}}}
        self.wanted = resource(namespace, peers=peers, security=users, workers={"replicas": stores})

    def store(self, number: int) -> str:
        """The URL of a store; the first is 1."""
        return f"http://{self.address}:{self.store_ports[number - 1]}"

    def start(self) -> None:
        (self.folder / "users").write_text(f"a admin {hash_token('another')}\n")
        (self.folder / "own-token").write_text(OWN)
        (self.folder / "token").write_text("shared")
        cluster, _ = parse_manifest(self.wanted)
        assert cluster is not None
        maps = {
            each["metadata"]["name"]: each
            for each in desired_objects(cluster, BuildContext("i"))
            if each["kind"] == "ConfigMap"
        }
        told = json.loads(maps["catalogue-masters"]["data"]["uk-1.json"])
        told["peers"][0]["url"] = f"http://{self.address}:{self.port}"
        for worker, port in zip(told["workers"], self.store_ports, strict=True):
            worker["url"] = worker["url"].replace(":7878", f":{port}")
        told |= {"host": self.address, "port": self.port, "journal_folder": str(self.folder / "journal")}
        told |= {"identity_file": str(self.folder / "said"), "peer_token_file": str(self.folder / "token")}
        told |= {key: str(self.folder / Path(told[key]).name) for key in ("users_file", "own_token_file")}
        (self.folder / "uk-1.json").write_text(json.dumps(told))
        self._run(sys.executable, "-m", "txlog.server", f"--config={self.folder}/uk-1.json")
        for port in self.store_ports:
            self._run(obtain_oxigraph(), "serve", "-b", f"{self.address}:{port}")
        self._apply(self.wanted)
        secret = {"users": "", "own-token": base64.b64encode(OWN.encode()).decode()}
        self._apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "people"}, "data": secret})
        self._pod("catalogue-1", labels(cluster, "master"), self.port)
        for number in range(1, len(self.store_ports) + 1):
            self._pod(f"catalogue-worker-{number}", labels(cluster, "worker"), self.port)

    def _run(self, *command: str) -> None:
        with open(self.folder / "log", "ab") as log:
            self.running.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _apply(self, wanted: KubeObject) -> None:
        self.plane.kubectl("-n", self.namespace, "apply", "-f", "-", stdin=json.dumps(wanted))

    def _pod(self, name: str, marks: dict[str, str], port: int) -> None:
        container = {"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": port}]}
        spec = {"containers": [container], "automountServiceAccountToken": False}
        self._apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": marks}, "spec": spec})
        status = {"phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}]}
        patch = ("-n", self.namespace, "patch", "pod", name, "--subresource=status", "--type=merge")
        self.plane.kubectl(*patch, "-p", json.dumps({"status": status}))

    def stop(self) -> None:
        for each in self.running:
            each.kill()
            each.wait()

    def master(self) -> MasterClient:
        return MasterClient(f"http://{self.address}:{self.port}", 30.0, credentials=Credentials.from_token(OWN))

    def account(self, name: str, rules: list[dict[str, Any]]) -> str:
        """A token of somebody with these rights."""
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": name},
            "rules": rules,
        }
        self.plane.kubectl("-n", self.namespace, "create", "serviceaccount", name)
        self._apply(role)
        self.plane.kubectl(
            *("-n", self.namespace, "create", "rolebinding", name, f"--role={name}"),
            f"--serviceaccount={self.namespace}:{name}",
        )
        return self.plane.kubectl("-n", self.namespace, "create", "token", name).stdout.strip()

    def kubeconfig(self, token: str, **user: Any) -> Path:
        file = self.plane.kubeconfig(token, self.folder / f"kubeconfig-{time.monotonic_ns()}")
        told = json.loads(file.read_text())
        told["contexts"][0]["context"]["namespace"] = self.namespace
        if user:
            told["users"][0]["user"] = user
        file.write_text(json.dumps(told))
        return file

    def environment(self, config: Path) -> dict[str, str]:
        """With kubectl and its plugin, the script of this package."""
        path = f"{Path(sys.executable).parent}:{self.plane.programs}:{os.environ['PATH']}"
        return {"PATH": path, "KUBECONFIG": str(config)}

    def ask(self, config: Path, *words: str, **environment: str) -> Told:
        """In this process, since each start of one takes seconds."""
        done = CliRunner().invoke(app, words, env={**self.environment(config), **environment})
        if done.exception is not None and not isinstance(done.exception, TxLogError | SystemExit):
            raise done.exception
        return Told(done.exit_code, done.stdout, str(done.exception or ""))


@pytest.fixture
def behind(plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Behind]:
    found = Behind(plane, namespace, tmp_path)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def founded(behind: Behind) -> None:
    def is_there() -> bool:
        try:
            for number in range(1, len(behind.store_ports) + 1):
                urllib.request.urlopen(f"{behind.store(number)}/").close()
            with behind.master() as master:
                return master.status().state == "Joined"
        except (TxLogError, OSError, http.client.HTTPException):
            return False

    end = time.monotonic() + DEADLINE_S
    while not is_there():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s"
        time.sleep(0.1)


def driven(behind: Behind, number: int) -> Driver:
    """A pipeline that executes the log at this store."""
    store: Any = Store(behind.store(number))
    return Driver(f"http://{behind.address}:{behind.port}", f"uk-worker-{number}", store)


def test_a_worker_is_repaired_through_the_api_server(
    plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = Behind(plane, namespace, tmp_path, stores=2)
    drivers: list[Driver] = []
    try:
        behind.start()
        founded(behind)
        config = behind.kubeconfig(behind.account("repairs", RULES))
        monkeypatch.setenv("TXLOG_TOKEN_FILE", str(behind.folder / "own-token"))
        drivers += [driven(behind, number) for number in (1, 2)]
        with behind.master() as writing:
            insert = [WriteRequest(f"INSERT DATA {{ <urn:s:{n}> <urn:p> <urn:o> }}") for n in range(10)]
            assert all(answer.error is None for answer in writing.submit(insert, Durability.APPLIED))
        assert behind.ask(config, "verify").code == 0
        body, kind = b"DELETE DATA { <urn:s:3> <urn:p> <urn:o> }", {"Content-Type": "application/sparql-update"}
        urllib.request.urlopen(urllib.request.Request(f"{behind.store(2)}/update", body, kind)).close()
        assert behind.ask(config, "verify").code == 1
        told = behind.ask(config, "repair", "uk-worker-2", "--source", "uk-worker-1", "--all", "--json")
        assert told.code == 0, told.error
        done = json.loads(told.out)
        assert (done["way"], done["from"], done["added"], done["removed"]) == ("repair", "uk-worker-1", 1, 0)
        assert behind.ask(config, "verify").code == 0
        assert "no worker is called uk-worker-9" in behind.ask(config, "repair", "uk-worker-9").error
    finally:
        for driver in drivers:
            driver.close()
        behind.stop()
    assert [each for each in plane.forbidden(namespace) if ":repairs:" in each] == []


def test_all_that_is_asked_goes_through_the_api_server(behind: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    founded(behind)
    config = behind.kubeconfig(behind.account("asks", RULES))

    told = behind.ask(config, "status", "--json")
    assert told.code == 0, told.error
    (master,) = json.loads(told.out)["masters"]
    assert master["status"]["node"] == "uk-1"
    assert master["status"]["state"] == "Joined"
    assert master["url"].startswith(behind.plane.server + "/api/v1/namespaces/")

    # As people type it.
    command = ["kubectl", "txlog", "status", "catalogue"]
    env = {**os.environ, **behind.environment(config)}
    typed = subprocess.run(command, env=env, capture_output=True, text=True, timeout=90)
    assert typed.returncode == 0, typed.stderr
    assert "uk-1" in typed.stdout
    command[-1] = "other"
    typed = subprocess.run(command, env=env, capture_output=True, text=True, timeout=90)
    assert typed.returncode == 1
    assert typed.stderr.replace("\n", " ").startswith("there is no TxLogCluster other")
    assert json.loads(behind.ask(config, "peers", "--json").out)["findings"] == []
    report = behind.ask(config, "split-report")
    assert (report.code, report.out.splitlines()[0]) == (0, "no split is known")

    # What the workers hold, read through the proxy too, while a pipeline obeys the hold.
    token = behind.folder / "own-token"
    monkeypatch.setenv("TXLOG_TOKEN_FILE", str(token))
    driver = driven(behind, 1)
    try:
        with behind.master() as writing:
            insert = [WriteRequest(f"INSERT DATA {{ <urn:s:{n}> <urn:p> <urn:o> }}") for n in range(10)]
            assert all(answer.error is None for answer in writing.submit(insert, Durability.APPLIED))
        told = behind.ask(config, "verify", "--json")
        alone = behind.ask(config, "repair", "uk-worker-1", "--all")
    finally:
        driver.close()
    assert (alone.code, "no other worker works" in alone.error) == (1, True), "there is no worker to copy from"
    assert told.code == 0, told.error
    found = json.loads(told.out)
    assert found["equal"] is True
    assert [(worker["name"], worker["quads"]) for worker in found["workers"]] == [("uk-worker-1", 10)]
    refused = [each for each in behind.plane.forbidden(behind.namespace) if ":asks:" in each]
    assert refused == [], "with the rights that the documentation gives"


def test_top_and_the_console_go_through_the_api_server(behind: Behind) -> None:
    founded(behind)
    config = behind.kubeconfig(behind.account("looks", RULES))
    told = behind.ask(config, "top", "--json")
    assert (told.code, json.loads(told.out)["node"]) == (0, "uk-1"), told.error
    assert "as uk-1 in uk sees it" in behind.ask(config, "top").out

    command = ["kubectl", "txlog", "console", "--no-browser"]
    env = {**os.environ, **behind.environment(config)}
    serving = subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell has it ignored
    )
    try:
        assert serving.stdout is not None
        address = serving.stdout.readline().split()[4]
        root = address.removesuffix("console/")
        with urllib.request.urlopen(f"{root}txlog/live") as answer:
            assert json.loads(answer.read())["node"] == "uk-1", "with the token of the Secret, and none of a browser"
        stream = urllib.request.Request(f"{root}txlog/live", headers={"Accept": "text/event-stream"})
        with urllib.request.urlopen(stream, timeout=DEADLINE_S) as answer:
            lines = iter(answer.readline, b"")
            assert next(line for line in lines if line.startswith(b"data: ")), "as it comes, and not at its end"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(address.replace(root.split("/")[3], "guessed"))
        serving.send_signal(signal.SIGINT)
        assert serving.wait(DEADLINE_S) == 130
    finally:
        serving.kill()
        serving.wait()
    assert [each for each in behind.plane.forbidden(behind.namespace) if ":looks:" in each] == []


def test_who_may_not_and_what_is_not_there_is_said_in_a_sentence(behind: Behind, plane: ControlPlane) -> None:
    founded(behind)
    no_proxy = behind.kubeconfig(behind.account("no-proxy", RULES[:2] + RULES[3:]))
    told = behind.ask(no_proxy, "peers")
    assert told.code == 1
    assert 'cannot get resource "pods/proxy"' in told.error
    nobody = behind.kubeconfig(behind.account("nobody", []))
    told = behind.ask(nobody, "status")
    assert told.code == 1
    assert "txlogclusters" in told.error
    assert "kubectl txlog needs get and list of txlogclusters" in told.error

    # Users: without the Secret another token does, and a wrong one does not.
    no_secret = behind.kubeconfig(behind.account("no-secret", RULES[:3]))
    told = behind.ask(no_secret, "peers")
    assert told.code == 1
    assert "set TXLOG_TOKEN_FILE to the file of an admin's token" in told.error
    token = behind.folder / "admins"
    token.write_text("another\n")
    assert behind.ask(no_secret, "peers", TXLOG_TOKEN_FILE=str(token)).code == 0
    token.write_text("wrong\n")
    told = behind.ask(no_secret, "peers", TXLOG_TOKEN_FILE=str(token))
    assert (told.code, "wrong name, password or token" in told.error) == (1, True)

    admin = behind.kubeconfig(plane.admin)
    for words, said in (
        (("status", "other"), f"there is no TxLogCluster other in the namespace {behind.namespace}"),
        (("status", "-n", "default"), "there is no TxLogCluster in the namespace default"),
        (("status", "--context", "nowhere"), "nowhere"),
        (("verify", "--context", "c", "--context", "c"), "two of them lead to the data centre uk"),
        (("status", "--kubeconfig", "/nowhere"), "--kubeconfig /nowhere: there is no such file"),
    ):
        told = behind.ask(admin, *words)
        assert told.code == 1, words
        assert said in told.error, told.error
    told = behind.ask(behind.kubeconfig("nobodys"), "status")
    assert (told.code, "what the kubeconfig shows" in told.error) == (1, True)
    assert behind.ask(admin, "verify", "--wait", "soon").code == 2
    behind._apply({**behind.wanted, "metadata": {"name": "second"}})
    told = behind.ask(admin, "status")
    assert "Name one of catalogue, second" in told.error
    assert "no pod of second's masters is there" in behind.ask(admin, "status", "second").error


def test_credentials_come_from_where_the_kubeconfig_says(behind: Behind, plane: ControlPlane) -> None:
    founded(behind)
    file = behind.folder / "admins-token"
    file.write_text(plane.admin)
    assert behind.ask(behind.kubeconfig("", tokenFile=str(file)), "peers").code == 0
    plugin = behind.folder / "plugin"
    credential = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1"}
    plugin.write_text(
        f"#!{sys.executable}\n"
        "import json, os\n"
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential'\n"
        f"print(json.dumps({{**{credential!r}, 'status': {{'token': os.environ['GIVEN']}}}}))\n"
    )
    plugin.chmod(0o755)
    named = {"apiVersion": credential["apiVersion"], "command": str(plugin), "interactiveMode": "Never"}
    right = {**named, "env": [{"name": "GIVEN", "value": plane.admin}]}
    assert behind.ask(behind.kubeconfig("", exec=right), "peers").code == 0
    told = behind.ask(behind.kubeconfig("", exec=named), "peers")
    assert told.code == 1
    assert "gave no credentials: exit code 1" in told.error


def test_the_api_server_that_is_not_reached_is_named(behind: Behind) -> None:
    config = behind.kubeconfig(behind.plane.admin)
    told = json.loads(config.read_text())
    (port,) = free_ports(1)
    told["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    config.write_text(json.dumps(told))
    found = behind.ask(config, "status")
    assert found.code == 1
    assert "not reached" in found.error
