"""What Secrets must hold for masters: each thing that is wrong is named, and nothing of them is repeated."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from certifying import Authority
from observations import manifest

from txlog.auth import hash_token
from txlog.config.cluster import TxLogCluster
from txlog_operator.cluster_secrets import (
    RECHECK_INTERVAL_S,
    REREAD_S,
    ClusterSecrets,
    SecretContent,
    find_secret_problems,
    read_secrets,
)
from txlog_operator.kube_client import ApiError

SECURITY: dict[str, Any] = {
    "tlsSecretRef": {"name": "door"},
    "peerTlsSecretRef": {"name": "peers"},
    "users": {"secretRef": {"name": "people"}},
}
HOSTS = "*.catalogue-masters.graphs.svc"
TOKEN = "txlog_nobody-may-read-this"


def secured() -> TxLogCluster:
    return manifest(2, security=SECURITY)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def right(tmp_path: Path) -> dict[str, dict[str, bytes]]:
    authority = Authority()
    return {
        "door": files(authority.issue(tmp_path / "door", HOSTS)),
        "peers": files(authority.issue(tmp_path / "peers", "uk-1", "uk-2")),
        "people": {"users": f"a admin {hash_token(TOKEN)}".encode(), "own-token": TOKEN.encode()},
    }


def problems(found: Mapping[str, Mapping[str, bytes]]) -> list[str]:
    return find_secret_problems(secured(), {name: SecretContent(data) for name, data in found.items()})


def test_what_is_right_is_taken(right: dict[str, dict[str, bytes]]) -> None:
    assert problems(right) == []


@pytest.mark.parametrize(
    ("secret", "key", "field"),
    [
        ("door", "tls.crt", "tlsSecretRef"),
        ("door", "tls.key", "tlsSecretRef"),
        ("door", "ca.crt", "tlsSecretRef"),
        ("peers", "tls.crt", "peerTlsSecretRef"),
        ("peers", "tls.key", "peerTlsSecretRef"),
        ("peers", "ca.crt", "peerTlsSecretRef"),
        ("people", "users", "users"),
        ("people", "own-token", "users"),
    ],
)
@pytest.mark.parametrize("empty", [False, True])
def test_each_key_that_is_missing_or_empty_is_named(
    right: dict[str, dict[str, bytes]], secret: str, key: str, field: str, empty: bool
) -> None:
    if empty:
        right[secret][key] = b""
    else:
        del right[secret][key]
    (said,) = problems(right)
    assert said.startswith(f"spec.security.{field}: the Secret {secret} lacks {key}; expected the keys ")


def test_what_is_wrong_inside_is_named_and_not_repeated(right: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    other = Authority("another")
    alone = files(other.issue(tmp_path / "one", "uk-1"))
    for secret, content, words in (
        ("peers", {"tls.key": right["door"]["tls.key"]}, "tls.key: it is not the key of tls.crt"),
        ("peers", {"ca.crt": other.pem}, "tls.crt: clients would refuse it"),
        ("peers", alone, "tls.crt: expected the DNS name uk-2, its master's; it names uk-1"),
        ("peers", files(other.issue(tmp_path / "old", "uk-1", "uk-2", days=-1)), "certificate has expired"),
        ("door", {"tls.crt": b"no certificate"}, "tls.crt, tls.key: expected a certificate and its key as PEM"),
        ("door", right["peers"], "Hostname mismatch"),
        ("people", {"users": b"a admin " + TOKEN.encode()}, "users:1: expected a hash"),
        ("people", {"users": b"\xff"}, "expected text in UTF-8"),
        ("people", {"own-token": b"two words"}, "own-token: expected a token"),
    ):
        found = {**right, secret: {**right[secret], **content}}
        (said,) = problems(found)
        assert f"the Secret {secret}: " in said
        assert words in said, said
        assert "/tmp" not in said
        assert TOKEN not in said


class Api:
    """What the operator asks of an API server here: Secrets by name."""

    def __init__(self, secrets: Mapping[str, Mapping[str, bytes]], forbidden: str = "") -> None:
        self.secrets, self.forbidden, self.version = secrets, forbidden, 1

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        import base64

        assert (kind, namespace) == ("Secret", "graphs")
        if name == self.forbidden:
            raise ApiError(403, "secrets is forbidden")
        data = self.secrets.get(name)
        if data is None:
            return None
        told = {key: base64.b64encode(value).decode() for key, value in data.items()}
        return {"metadata": {"resourceVersion": str(self.version)}, "data": told}


async def test_what_may_not_be_read_or_is_not_there_is_named(right: dict[str, dict[str, bytes]]) -> None:
    del right["people"]
    told = await read_secrets(Api(right, forbidden="door"), secured())  # type: ignore[arg-type]
    users, door = find_secret_problems(secured(), told)
    assert users == "spec.security.users: the Secret people is not there"
    assert "the Secret door may not be read by the operator" in door
    assert "readSecrets={door}" in door


async def test_what_was_right_is_used_until_what_came_after_it_is(right: dict[str, dict[str, bytes]]) -> None:
    now = 0.0
    api = Api(right)
    securing = ClusterSecrets(api, lambda: now)  # type: ignore[arg-type]
    before, wrong = await securing.read_access(secured())
    assert wrong == []
    assert before.tls is not None
    assert before.credentials.headers() == {"Authorization": f"Bearer {TOKEN}"}
    api.secrets, api.version = {"door": {}, "peers": {}, "people": {}}, 2
    soon, wrong = await securing.read_access(secured())
    assert (soon, wrong) == (before, []), "they are read every few seconds"
    now = REREAD_S + 1
    after, wrong = await securing.read_access(secured())
    assert len(wrong) == 3
    assert (after.tls, after.credentials) == (before.tls, before.credentials)
    api.secrets, api.version = {**right, "people": {**right["people"], "own-token": b"another"}}, 3
    after, wrong = await securing.read_access(secured())
    assert wrong == []
    assert after.credentials.headers() == {"Authorization": "Bearer another"}


async def test_certificates_that_end_are_noticed_although_nothing_changes(
    right: dict[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, looked = 0.0, []
    api = Api(right)
    securing = ClusterSecrets(api, lambda: now)  # type: ignore[arg-type]
    real = find_secret_problems
    monkeypatch.setattr(
        "txlog_operator.cluster_secrets.find_secret_problems", lambda *told: looked.append(1) or real(*told)
    )
    for _ in range(3):
        await securing.read_access(secured())
    assert len(looked) == 1
    now = RECHECK_INTERVAL_S + 1
    await securing.read_access(secured())
    assert len(looked) == 2


async def test_a_manifest_without_security_reads_no_secret() -> None:
    access, wrong = await ClusterSecrets(Api({}, forbidden="door")).read_access(manifest(2))  # type: ignore[arg-type]
    assert (access.tls, access.credentials.headers(), wrong) == (None, {}, [])
