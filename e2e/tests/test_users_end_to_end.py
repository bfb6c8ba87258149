"""A cluster whose manifests name users, as `txlog up` runs it: who may, can; who may not, cannot; all else works."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.lib.cluster.local import LocalCluster, run_txlog
from txlog.client import MasterClient
from txlog.client.connection import HttpReply, MasterConnection
from txlog.client.credentials import TOKEN_FILE
from txlog.model.errors import Forbidden, Unauthorized

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(420)]

MANIFEST = """
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {name: catalogue}
spec:
  dataCenter: uk
  peers: [{name: uk, masters: 2, address: "txlog-uk-{index}.example.net"}]
  security: {users: {secretRef: {name: users}}}
"""
PASSWORD = "correct horse battery"
UPDATE = {"Content-Type": "application/sparql-update", "Prefer": "wait=60"}
ASK = "/repositories/catalogue?query=ASK%20%7B%20%3Curn%3Ausers%3As%3E%20%3Curn%3Ausers%3Ap%3E%20%3Fo%20%7D"


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    file = tmp_path / "uk.yaml"
    file.write_text(MANIFEST)
    return file


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """Of each role, made as an administrator makes them."""
    state = ("--state", tmp_path / "state")
    made = {
        role: json.loads(run_txlog("user", "add", f"a-{role}", "--role", role, "--token", "--json", *state))["token"]
        for role in ("reader", "writer", "admin")
    }
    subprocess.run(
        [Path(sys.executable).with_name("txlog"), "user", "add", "ann", "--role=writer", "--password-stdin", *state],
        input=PASSWORD,
        text=True,
        check=True,
        capture_output=True,
    )
    return made


@pytest.fixture
def cluster(
    tmp_path: Path, manifest: Path, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalCluster]:
    folder = tmp_path / "state"
    monkeypatch.delenv(TOKEN_FILE, raising=False)
    try:
        run_txlog("up", "--detach", "-f", manifest, "--state", folder)
        yield LocalCluster(folder)
    finally:
        run_txlog("down", "--state", folder)


def ask(url: str, method: str, path: str, shown: str | None, body: bytes | None = None, at: str = "") -> HttpReply:
    headers = {**(UPDATE if body is not None else {"Accept": "text/boolean"})}
    connection = MasterConnection(url, timeout_s=70.0)
    try:
        if shown is not None:
            headers["Authorization"] = shown
        if at:
            headers["TxLog-Min-Position"] = at
        return connection.request(method, path, body=body, headers=headers)
    finally:
        connection.close()


def test_who_may_can_and_everything_else_goes_on(
    cluster: LocalCluster, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    uk, other = cluster.masters
    statements = "/repositories/catalogue/statements"
    bearer = {role: f"Bearer {token}" for role, token in tokens.items()}
    basic = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()

    # The default level is applied: a pipeline has executed it, with a token of its own.
    for number, shown in enumerate((bearer["writer"], bearer["admin"], basic)):
        body = f'INSERT DATA {{ <urn:users:s> <urn:users:p> "{number}" }}'.encode()
        told = ask(uk, "POST", statements, shown, body)
        assert told.headers["TxLog-Durability"] in ("applied", "applied-all")
        at = told.headers["TxLog-Position"]
        assert ask(uk, "GET", ASK, bearer["reader"], at=at).body == b"true"

    update = b"INSERT DATA { <urn:users:s> <urn:users:p> 1 }"
    for url in (uk, other):
        for wrong in (None, "Bearer wrong", "Basic " + base64.b64encode(b"ann:wrong password").decode()):
            for method, path, data in (("POST", statements, update), ("GET", ASK, None)):
                with pytest.raises(Unauthorized):
                    ask(url, method, path, wrong, data)
        with pytest.raises(Forbidden, match="needs writer"):
            ask(url, "POST", statements, bearer["reader"], update)
        with pytest.raises(Forbidden, match="needs admin"):
            ask(url, "GET", "/txlog/log?after=0", bearer["writer"])

    own = cluster.state.own_token_file.read_text().strip()
    monkeypatch.setenv(TOKEN_FILE, str(cluster.state.own_token_file))
    cluster.wait_applying(180)
    state = ("--state", cluster.state.root)
    assert run_txlog("verify", *state)
    settings = json.loads(run_txlog("set", "maxPeerLag", "50s", "--json", *state))
    assert settings["took"] == list(cluster.nodes)
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
    (tmp_path / "token").write_text(tokens["reader"])
    with MasterClient(uk) as client:
        assert client.status().node == "uk-1"
        with pytest.raises(Forbidden):
            client.settings()
        (tmp_path / "token").write_text(tokens["admin"] + "\n")
        assert client.settings()["node"] == "uk-1"

    # A master that was killed is proven down and let in again: the supervisor shows its own token.
    monkeypatch.setenv(TOKEN_FILE, str(cluster.state.own_token_file))
    cluster.kill("uk-2")
    cluster.wait_applying(120)
    cluster.wait_converged(120)
    supervisor = cluster.state.log("supervisor")
    until = time.monotonic() + 60
    while "uk-1: let go" not in supervisor.read_text():
        assert time.monotonic() < until, "the supervisor's proof was not taken"
        time.sleep(0.1)
    duties = cluster.state.log("uk-duties").read_text()
    assert '"Unauthorized"' not in duties, duties

    said = "".join(log.read_text(errors="replace") for log in cluster.state.logs.iterdir())
    found = [name for name, secret in {**tokens, "own": own, "password": PASSWORD}.items() if secret in said]
    assert not found, "secrets in the logs"
    for file in cluster.state.root.rglob("*"):
        if file.is_file() and file.suffix in (".json", "") and file.stat().st_size < 1 << 20:
            assert file == cluster.state.own_token_file or own.encode() not in file.read_bytes(), file


def test_up_says_what_is_missing_before_anything_runs(tmp_path: Path, manifest: Path) -> None:
    program = Path(sys.executable).with_name("txlog")
    done = subprocess.run(
        [program, "up", "--detach", "-f", manifest, "--state", tmp_path / "state"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "txlog user add NAME --role admin --secret users" in " ".join((done.stdout + done.stderr).split())
