"""The plugin as one file, run by a Python without any library: alone, and against a real API server and a master."""

import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from control_plane import ROOT, ControlPlane
from test_kubectl_plugin import DEADLINE_S, RULES, Behind, founded

BARE_PYTHON = getattr(sys, "_base_executable", sys.executable)
ACTING_RULES = [
    *RULES[:2],
    {**RULES[2], "verbs": ["get", "create", "patch", "delete"]},
    RULES[3],
    {"apiGroups": ["txlog.io"], "resources": ["txlogbackups", "txlogrestores"], "verbs": ["create", "get"]},
]
"""As docs/how-to/monitor.md has them."""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a folder that is put on the PATH."""
    file = tmp_path_factory.mktemp("bin") / "kubectl-txlog"
    subprocess.run([sys.executable, ROOT / "tools/kubectl_plugin.py", file], check=True, timeout=60)
    return file


def alone(plugin: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Without site packages, and without what this environment says to Python."""
    command = [BARE_PYTHON, "-I", "-S", str(plugin), *words]
    given = {"PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=False)


def test_it_is_one_small_file_of_python_that_is_the_same_each_time(plugin: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    subprocess.run([sys.executable, ROOT / "tools/kubectl_plugin.py", again], check=True, timeout=60)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(plugin.read_bytes()).digest()
    names = zipfile.ZipFile(plugin).namelist()
    assert all(name.endswith(".py") for name in names)
    assert {name.partition("/")[0] for name in names} == {"__main__.py", "kubectl_txlog", "txlog"}
    assert os.access(plugin, os.X_OK)
    assert plugin.stat().st_size < 100_000


def test_help_of_every_command(plugin: Path) -> None:
    shown = alone(plugin, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    commands = ["status", "console", "backup", "restore", "rebuild", "adopt", "skip", "force-view", "bootstrap"]
    commands += ["synchro", "adopt-votes", "configuration"]
    for command in commands:
        assert f"    {command}" in shown.stdout
        done = alone(plugin, command, "-h")
        assert (done.returncode, done.stderr) == (0, ""), command
        assert "--kubeconfig" in done.stdout
    peer = alone(plugin, "peer", "--help")
    assert all(word in peer.stdout for word in ("mute", "unmute", "weight", "remove"))
    site = alone(plugin, "site", "--help")
    assert all(word in site.stdout for word in ("status", "offline", "online", "take-state"))
    point = alone(plugin, "restore-point", "--help")
    assert all(word in point.stdout for word in ("create", "list"))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "usage: kubectl txlog"),
        (("peer",), 2, "usage: kubectl txlog peer"),
        (("nonsense",), 2, "invalid choice: 'nonsense'"),
        (("peer", "mute"), 2, "the following arguments are required: NODE"),
        (("peer", "weight", "uk-1", "5000"), 2, "5000 is out of bounds; expected 0 to 1000"),
        (("peer", "weight", "uk-1", "many"), 2, "invalid int value: 'many'"),
        (("backup", "--wait", "-1"), 2, "-1 is out of bounds; expected at least 0"),
        (("force-view",), 2, "the following arguments are required: --without"),
        (("bootstrap",), 2, "the following arguments are required: --member"),
        (("adopt-votes",), 2, "the following arguments are required: NODE"),
        (("status", "--kubeconf", "/a"), 2, "unrecognized arguments: --kubeconf"),
        (("status", "--kubeconfig", "/nowhere"), 1, "--kubeconfig /nowhere: there is no such file"),
        (("status",), 1, "kubectl is not in the PATH"),
    ],
)
def test_wrong_usage_is_said_in_a_line(plugin: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = alone(plugin, *words, PATH="/nowhere")
    assert done.returncode == code
    assert said in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def kubeconfig_in(folder: Path, text: str) -> dict[str, str]:
    """An environment with a kubectl that prints this kubeconfig."""
    kubectl = folder / "kubectl"
    kubectl.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    kubectl.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "names no API server"),
        ({"clusters": [{"cluster": {"server": "ftp://a"}}]}, "expected https://HOST"),
        ({"clusters": [{"cluster": {"server": "https://a", "proxy-url": "http://b"}}]}, "the kubeconfig has proxy-url"),
        (
            {"clusters": [{"cluster": {"server": "https://a", "certificate-authority-data": "AAAA"}}]},
            "a certificate that cannot be read",
        ),
        (
            {"clusters": [{"cluster": {"server": "http://a"}}], "users": [{"user": {"tokenFile": "/nowhere"}}]},
            "/nowhere of the kubeconfig cannot be read",
        ),
        ({"clusters": [{"cluster": {"server": "http://127.0.0.1:1"}}]}, "http://127.0.0.1:1 is not reached"),
    ],
)
def test_a_kubeconfig_that_leads_nowhere(plugin: Path, tmp_path: Path, content: dict[str, object], said: str) -> None:
    done = alone(plugin, "status", **kubeconfig_in(tmp_path, json.dumps(content)))
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def behind(plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Behind]:
    found = Behind(plane, namespace, tmp_path)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.mark.kubernetes
@pytest.mark.timeout(300)
def test_the_file_acts_through_the_api_server(behind: Behind, plugin: Path) -> None:
    founded(behind)
    config = behind.kubeconfig(behind.account("acts", ACTING_RULES))
    environment = {"PATH": f"{behind.plane.programs}:/usr/bin:/bin", "KUBECONFIG": str(config)}

    def ask(*words: str, code: int = 0) -> str:
        done = alone(plugin, *words, **environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    # As people type it: kubectl finds the file on the PATH.
    typed = {**environment, "PATH": f"{plugin.parent}:{environment['PATH']}"}
    done = subprocess.run(["kubectl", "txlog", "status"], env=typed, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("uk-1: Joined, view ")
    assert json.loads(ask("status", "--json"))["masters"][0]["status"]["node"] == "uk-1"

    def role() -> str:
        with behind.master() as master:
            return str(master.configuration()["masters"][0]["role"])

    before = role()
    assert "uk-1 is muted" in ask("peer", "mute", "uk-1")
    muted = role()
    assert muted != before
    assert json.loads(ask("peer", "unmute", "uk-1", "--json"))["masters"][0]["role"] == before
    assert "uk-1: " in ask("peer", "weight", "uk-1", "3")
    assert "uk-9" in ask("peer", "mute", "uk-9", code=1)
    assert "0 undecided" in ask("synchro")
    assert "uk-1" in ask("force-view", "--without", "uk-1", "--yes", code=1)
    assert ask("force-view", "--without", "us-1", code=1).endswith("Aborted.\n"), "no person has agreed"
    assert "us-1" in ask("force-view", "--without", "us-1", "--yes", code=1)
    assert "not a transaction id" in ask("skip", "nonsense", "--yes", code=1)
    assert "uk-1: " in ask("configuration")
    assert json.loads(ask("configuration", "catalogue", "--json"))["masters"][0]["node"] == "uk-1"
    assert "before-it is at index " in ask("restore-point", "create", "before-it")
    assert "before-it: position:" in ask("restore-point", "list")
    _acts_on_sites(behind, ask)
    assert ask("bootstrap", "--member", "uk-1", code=1).endswith("Aborted.\n"), "no person has agreed"
    assert "a founded cluster already" in ask("bootstrap", "--member", "uk-1", "--yes", code=1)
    assert "none of us-1 answers" in ask("bootstrap", "--member", "us-1", "--yes", code=1)
    assert "no master but uk-1 answers" in ask("adopt-votes", "uk-1", "--yes", code=1)
    assert ask("adopt-votes", "us-1", "us-2", code=1).endswith("Aborted.\n"), "no person has agreed"
    assert "no synchronous transactions" in ask("adopt-votes", "us-1", "us-2", "--yes", code=1)
    assert "there are uk-worker-1" in ask("adopt", "uk-worker-9", "--yes", code=1)

    _makes_resources(behind, ask)
    command = [BARE_PYTHON, "-I", "-S", str(plugin), "console", "--no-browser"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            root = serving.stdout.readline().split()[4].removesuffix("console/")
            with urllib.request.urlopen(f"{root}txlog/status", timeout=DEADLINE_S) as answer:
                assert json.loads(answer.read())["node"] == "uk-1"
        finally:
            serving.kill()
    refused = [each for each in behind.plane.forbidden(behind.namespace) if ":acts:" in each]
    assert refused == [], "with the rights that the documentation gives"


def _acts_on_sites(behind: Behind, ask: Callable[..., str]) -> None:
    assert ask("site", "status") == "no links\n"
    assert "no link from nyc was reported to these masters; known: none" in ask("site", "offline", "nyc", code=1)
    with behind.master() as master:
        link = {"site": "lon", "other": "nyc", "state": "Online"}
        master._json.call("POST", "/txlog/sites", dict[str, Any], body=link)  # as the process of a link does
    assert "lon from nyc: Online" in ask("site", "status")
    switched = json.loads(ask("site", "offline", "nyc", "--wait", "0", "--json", code=1))
    assert switched["switch"]["offline"], "in the log; its link does not run here, so it does not follow"
    assert "nyc is switched online (entry " in ask("site", "online", "nyc", "--wait", "0")
    assert ask("site", "take-state", "nyc", code=1).endswith("Aborted.\n"), "no person has agreed"
    ordered = json.loads(ask("site", "take-state", "nyc", "--yes", "--wait", "0", "--json", code=1))
    assert ordered["order"]["takeAt"] > switched["switch"]["index"]
    assert "is not taken any more" in ask("site", "take-state", "nyc", "--cancel")


def _makes_resources(behind: Behind, ask: Callable[..., str]) -> None:
    """Backups and restores are resources that the operator carries out."""
    assert "txlogbackups/by-hand is made" in ask("backup", "--as", "by-hand", "--wait", "0")
    assert spec_of(behind, "txlogbackups/by-hand") == {"cluster": "catalogue", "why": "manual", "incremental": False}
    ask("backup", "--as", "changes", "--incremental", "--wait", "0")
    assert spec_of(behind, "txlogbackups/changes")["incremental"] is True
    assert "already exists" in ask("backup", "--as", "by-hand", "--wait", "0", code=1)
    assert "expected at most 63" in ask("backup", "--as", "By_Hand", code=1)
    assert "no operator has begun it" in ask("backup", "--as", "waits", "--wait", "0.1", code=1)
    ask("restore", "uk-worker-1", "--as", "back", "--yes", "--wait", "0")
    assert spec_of(behind, "txlogrestores/back") == {"cluster": "catalogue", "worker": "uk-worker-1"}
    assert "there are uk-worker-1" in ask("rebuild", "uk-worker-9", "--yes", code=1)
    told = json.loads(ask("rebuild", "uk-worker-1", "--yes", "--wait", "0", "--json"))
    assert spec_of(behind, f"txlogrestores/{told['name']}")["worker"] == "uk-worker-1"


@pytest.mark.kubernetes
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        ({"state": "Done", "backup": "b-7", "position": "7:ab"}, 0, "is Done: b-7 at position 7:ab"),
        ({"state": "Failed", "message": "the target is full"}, 1, "is Failed: the target is full"),
    ],
)
def test_a_backup_is_waited_for(behind: Behind, plugin: Path, status: dict[str, str], code: int, said: str) -> None:
    config = behind.kubeconfig(behind.account("waits", ACTING_RULES))
    environment = {"PATH": f"{behind.plane.programs}:/usr/bin:/bin", "KUBECONFIG": str(config)}
    command = [BARE_PYTHON, "-I", "-S", str(plugin), "backup", "--as", "made"]
    waiting = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + DEADLINE_S
        place = ("-n", behind.namespace, "patch", "txlogbackup", "made", "--subresource=status", "--type=merge")
        patch = (*place, "-p", json.dumps({"status": status}))
        while behind.plane.kubectl(*patch, check=False).returncode:  # as the operator does, once it is there
            assert time.monotonic() < until
        out, _ = waiting.communicate(timeout=DEADLINE_S)
    finally:
        waiting.kill()
    assert (waiting.returncode, out.strip()) == (code, f"txlogbackups/made {said}")


@pytest.mark.kubernetes
@pytest.mark.timeout(300)
def test_who_may_not_act_is_told_so(behind: Behind, plugin: Path) -> None:
    founded(behind)
    config = behind.kubeconfig(behind.account("looks", RULES[:2]))
    environment = {"PATH": f"{behind.plane.programs}:/usr/bin:/bin", "KUBECONFIG": str(config)}
    done = alone(plugin, "backup", **environment)
    assert done.returncode == 1
    assert "or be let read own-token of the Secret people" in done.stderr
    config = behind.kubeconfig(behind.account("reads", [*RULES[:2], RULES[3]]))
    environment["KUBECONFIG"] = str(config)
    for words in (("backup",), ("peer", "mute", "uk-1")):
        done = alone(plugin, *words, **environment)
        assert done.returncode == 1
        assert "cannot" in done.stderr
        assert "kubectl txlog needs get and list of txlogclusters" in done.stderr


def spec_of(behind: Behind, what: str) -> dict[str, Any]:
    found = behind.plane.kubectl("-n", behind.namespace, "get", what, "-o", "json").stdout
    spec: dict[str, Any] = json.loads(found)["spec"]
    return spec
