"""A cluster whose manifest asks for TLS and names users, as `txlog up` runs it: with certificates of its own making."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from e2e.lib.cluster.local import LocalCluster, run_txlog
from txlog.client import MasterClient, MasterUnreachable
from txlog.client.ca_trust import CA_FILE
from txlog.client.credentials import TOKEN_FILE
from txlog.local.dev_ca import make_certificates
from txlog.model.errors import BadInput

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(420)]

MANIFEST = """
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {name: catalogue}
spec:
  dataCenter: uk
  peers: [{name: uk, masters: 2, address: "txlog-uk-{index}.example.net"}]
  security:
    tlsSecretRef: {name: door}
    peerTlsSecretRef: {name: peers}
    users: {secretRef: {name: users}}
"""
STATEMENTS = "/repositories/catalogue/statements"
ASK = "/repositories/catalogue?query=ASK%20%7B%20%3Curn%3Atls%3As%3E%20%3Curn%3Atls%3Ap%3E%20%3Fo%20%7D"


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """Of each role, made as an administrator makes them."""
    state = ("--state", tmp_path / "state")
    return {
        role: json.loads(run_txlog("user", "add", f"a-{role}", "--role", role, "--token", "--json", *state))["token"]
        for role in ("reader", "writer")
    }


@pytest.fixture
def cluster(tmp_path: Path, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    folder, manifest = tmp_path / "state", tmp_path / "uk.yaml"
    manifest.write_text(MANIFEST)
    monkeypatch.delenv(TOKEN_FILE, raising=False)
    monkeypatch.delenv(CA_FILE, raising=False)
    try:
        run_txlog("up", "--detach", "-f", manifest, "--state", folder)
        yield LocalCluster(folder)
    finally:
        run_txlog("down", "--state", folder)


def ask(url: str, token: str, trusted: Path | None, update: str | None = None, at: str = "") -> tuple[int, str, bytes]:
    """A client that is none of ours: status, position, body."""
    context = ssl.create_default_context(cafile=str(trusted) if trusted else None)
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/boolean", "Prefer": "wait=60"}
    if update is not None:
        headers["Content-Type"] = "application/sparql-update"
    if at:
        headers["TxLog-Min-Position"] = at
    request = urllib.request.Request(url, update.encode() if update is not None else None, headers)
    try:
        with urllib.request.urlopen(request, timeout=70, context=context) as answer:
            return answer.status, answer.headers.get("TxLog-Position", ""), answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, "", refused.read()


def shown_at(url: str, trusted: Path) -> str | None:
    """Which certificate is shown there: its number."""
    place = urlsplit(url)
    context = ssl.create_default_context(cafile=str(trusted))
    with (
        socket.create_connection((place.hostname, place.port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=place.hostname) as secure,
    ):
        told = secure.getpeercert()
        return str(told["serialNumber"]) if told else None


def test_everything_works_over_tls_and_nothing_without(
    cluster: LocalCluster, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uk, other = cluster.masters
    trusted = cluster.state.trusted_file
    assert uk.startswith("https://")
    # The default level is applied: the pipeline has heard of it, and executed it.
    for number, url in enumerate((uk, other)):
        status, at, _ = ask(
            url + STATEMENTS, tokens["writer"], trusted, f'INSERT DATA {{ <urn:tls:s> <urn:tls:p> "{number}" }}'
        )
        assert status in (200, 204)
        assert ask(uk + ASK, tokens["reader"], trusted, at=at)[::2] == (200, b"true")
    assert ask(uk + STATEMENTS, tokens["reader"], trusted, "CLEAR ALL")[0] == 403
    assert ask(uk + STATEMENTS, "wrong", trusted, "CLEAR ALL")[0] == 401
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        ask(uk + ASK, tokens["reader"], None)
    status, _, body = ask(uk.replace("https", "http") + ASK, tokens["reader"], trusted)
    assert (status, body) == (400, b"this port speaks TLS: ask with https://\n")

    monkeypatch.setenv(TOKEN_FILE, str(cluster.state.own_token_file))
    with pytest.raises(MasterUnreachable, match=CA_FILE), MasterClient(uk) as client:
        client.status()
    monkeypatch.setenv(CA_FILE, str(trusted))
    with MasterClient(uk) as client:
        assert client.status().node == "uk-1"
        assert [peer["connected"] for peer in client.peers() if peer["node"] == "uk-2"] == [True]
    with pytest.raises(BadInput, match="this port speaks TLS"), MasterClient(uk.replace("https", "http")) as client:
        client.status()

    # Our own processes: pipeline, supervisor, the command line.
    cluster.wait_applying(180)
    state = ("--state", cluster.state.root)
    assert run_txlog("verify", *state)
    assert json.loads(run_txlog("set", "maxPeerLag", "50s", "--json", *state))["took"] == list(cluster.nodes)
    cluster.kill("uk-2")
    cluster.wait_applying(120)
    cluster.wait_converged(120)
    supervisor = cluster.state.log("supervisor")
    until = time.monotonic() + 60
    while "uk-1: let go" not in supervisor.read_text():
        assert time.monotonic() < until, "the supervisor's proof was not taken"
        time.sleep(0.1)

    # Certificates are renewed while everything runs.
    before = shown_at(uk, trusted)
    (cluster.state.certificates / "uk-1" / "tls.key").unlink()
    assert make_certificates(cluster.state.certificates, ["uk-1"]) == ["uk-1"]
    until = time.monotonic() + 60
    while shown_at(uk, trusted) == before:
        assert time.monotonic() < until, "the new certificate is not shown"
        time.sleep(0.2)
    cluster.wait_applying(120)
    assert ask(uk + ASK, tokens["reader"], trusted)[::2] == (200, b"true")

    said = "".join(log.read_text(errors="replace") for log in cluster.state.logs.iterdir())
    assert not [secret for secret in (*tokens.values(), cluster.state.token_file.read_text().strip()) if secret in said]
    assert "PRIVATE KEY" not in said
