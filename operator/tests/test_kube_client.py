"""The adapter against a local HTTPS server with the answers of an API server."""

import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from certifying import Authority
from kubernetes.aio.config import incluster_config

from txlog_operator import kube_client
from txlog_operator.kube_client import ApiEndpoint, ApiError, KubeClient
from txlog_operator.main import connection_info

SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "graphs", "name": "people"}}
SECRET_PATH = "/api/v1/namespaces/graphs/secrets/people"
CLUSTER = {
    "apiVersion": "txlog.io/v1alpha1",
    "kind": "TxLogCluster",
    "metadata": {"namespace": "graphs", "name": "catalogue", "resourceVersion": "7"},
}
CLUSTER_PATH = "/apis/txlog.io/v1alpha1/namespaces/graphs/txlogclusters/catalogue"


class ApiServer:
    """``answers``: status and body of the next requests, in order; 200 and an empty object when none is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = Authority().issue(folder / "api")
        self.answers: list[tuple[int, Any]] = []
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.retry_after = ""
        """The header of answers with 429."""

    async def handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        body = json.loads(text) if text else None
        self.requests.append((request.method, request.path, dict(request.query), body))
        self.headers.append(dict(request.headers))
        status, answer = self.answers.pop(0) if self.answers else (200, {})
        headers = {"Retry-After": self.retry_after} if status == 429 and self.retry_after else {}
        if isinstance(answer, str):
            return web.Response(status=status, text=answer, headers=headers)
        return web.json_response(answer, status=status)

    def refuse(self, code: int, message: str) -> None:
        self.answers.append((code, {"kind": "Status", "status": "Failure", "code": code, "message": message}))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(application)
        await runner.setup()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        yield
        await runner.cleanup()

    def kubeconfig(self, **user: Any) -> dict[str, Any]:
        authority = str(self.folder / "ca.crt")
        return {
            "clusters": [{"name": "c", "cluster": {"server": f"{self.url}/", "certificate-authority": authority}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }


async def find_endpoint(content: dict[str, Any], folder: Path) -> ApiEndpoint:
    """Of this kubeconfig."""
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBECONFIG", str(file))
        return await ApiEndpoint.find()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    found = ApiServer(tmp_path)
    async with found.running():
        yield found


@pytest.fixture
async def kube(server: ApiServer, tmp_path: Path) -> AsyncIterator[KubeClient]:
    found = KubeClient(await find_endpoint(server.kubeconfig(token="t"), tmp_path))
    yield found
    await found.close()


async def test_each_call_is_the_request_that_an_api_server_expects(server: ApiServer, kube: KubeClient) -> None:
    status = {"state": "Joined"}
    await kube.get("Secret", "graphs", "people")
    await kube.apply(SECRET)
    await kube.create(SECRET)
    await kube.replace_status(CLUSTER, status)
    await kube.delete("Secret", "graphs", "people", uid="u-1")
    manager = {"fieldManager": "txlog-operator"}
    deletion = {"propagationPolicy": "Background", "preconditions": {"uid": "u-1"}}
    assert server.requests == [
        ("GET", SECRET_PATH, {}, None),
        ("PATCH", SECRET_PATH, {**manager, "force": "true", "fieldValidation": "Strict"}, SECRET),
        ("POST", "/api/v1/namespaces/graphs/secrets", manager, SECRET),
        ("PUT", f"{CLUSTER_PATH}/status", manager, {**CLUSTER, "status": status}),
        ("DELETE", SECRET_PATH, {}, deletion),
    ]
    assert {each["Authorization"] for each in server.headers} == {"Bearer t"}
    assert [each.get("Content-Type") for each in server.headers][1:] == [
        "application/apply-patch+yaml",
        *["application/json"] * 3,
    ]
    assert kube.write_count == 4


async def test_a_list_has_all_pages_and_its_items_their_kind(server: ApiServer, kube: KubeClient) -> None:
    server.answers = [
        (200, {"metadata": {"continue": "x+/="}, "items": [{"metadata": {"name": "a"}}]}),
        (200, {"metadata": {}, "items": [{"metadata": {"name": "b"}}]}),
    ]
    found = await kube.list("StatefulSet", "graphs", {"app.kubernetes.io/name": "txlog", "x": "y"})
    assert [(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in found] == [
        ("apps/v1", "StatefulSet", "a"),
        ("apps/v1", "StatefulSet", "b"),
    ]
    labels = {"labelSelector": "app.kubernetes.io/name=txlog,x=y", "limit": "500"}
    assert [each[2] for each in server.requests] == [labels, {**labels, "continue": "x+/="}]


async def test_what_is_gone_is_none_and_is_deleted(server: ApiServer, kube: KubeClient) -> None:
    server.refuse(404, 'secrets "people" not found')
    assert await kube.get("Secret", "graphs", "people") is None
    for code in (404, 409):
        server.refuse(code, "gone, or another one")
        await kube.delete("Secret", "graphs", "people")
    server.refuse(403, "no")
    with pytest.raises(ApiError, match="403"):
        await kube.delete("Secret", "graphs", "people")


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422, 500, 503])
async def test_a_refusal_has_its_code_and_its_message(server: ApiServer, kube: KubeClient, code: int) -> None:
    server.refuse(code, "the reason")
    with pytest.raises(ApiError, match=f"^{code}: PATCH {SECRET_PATH}: the reason$") as refused:
        await kube.apply(SECRET)
    assert refused.value.code == code


async def test_a_server_that_is_too_busy_is_asked_again(
    server: ApiServer, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_client, "RETRY_DELAYS_S", (0.0, 0.0))
    server.answers = [(429, "Too many requests, please try again later.")] * 2 + [(200, SECRET)]
    assert await kube.apply(SECRET) == SECRET
    assert server.requests[0] == server.requests[2]
    server.answers = [(429, "Too many requests, please try again later.")] * 3
    with pytest.raises(ApiError, match=r"429: .*Too many requests"):
        await kube.apply(SECRET)


@pytest.mark.parametrize(
    ("said", "least_s", "most_s"),
    [("9", 1.5, 9.0), ("0", 0.0, 1.5), ("", 0.0, 1.5), ("Fri, 27 Nov 2026 00:00:00 GMT", 0.0, 1.5)],
)
async def test_a_busy_server_is_asked_again_when_it_says(
    server: ApiServer, kube: KubeClient, monkeypatch: pytest.MonkeyPatch, said: str, least_s: float, most_s: float
) -> None:
    """As Kubernetes' fairness refuses: in words, and with a time that the client bounds."""
    monkeypatch.setattr(kube_client, "RETRY_DELAYS_S", (0.0,))
    monkeypatch.setattr(kube_client, "RETRY_AFTER_MAX_S", 1.5)
    monkeypatch.setattr(kube_client, "RETRY_JITTER", (1.0, 1.0))
    await kube.get("Secret", "graphs", "people")  # connected
    server.retry_after = said
    server.answers = [(429, "Too many requests, please try again later.")]
    began = time.monotonic()
    await kube.get("Secret", "graphs", "people")
    assert least_s <= time.monotonic() - began < most_s


def test_clients_that_were_refused_together_do_not_come_again_together() -> None:
    low, high = kube_client.RETRY_JITTER
    assert low == 1.0, "never before the time that the server names"
    assert high > low


async def test_no_answer_and_no_json_are_code_0(server: ApiServer, kube: KubeClient, tmp_path: Path) -> None:
    server.answers = [(200, "<html>")]
    with pytest.raises(ApiError, match="not reached: GET"):
        await kube.get("Secret", "graphs", "people")
    (server.folder / "ca.crt").write_bytes(Authority("another").pem)
    stranger = KubeClient(await find_endpoint(server.kubeconfig(), tmp_path))
    with pytest.raises(ApiError, match="certificate") as untrusted:
        await stranger.get("Secret", "graphs", "people")
    await stranger.close()
    assert untrusted.value.code == 0


async def test_a_pod_reads_its_token_again(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    host, _, port = server.url.removeprefix("https://").rpartition(":")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(ApiError, match="set KUBECONFIG"):
        await ApiEndpoint.find()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(server.folder / "ca.crt"))
    place = await ApiEndpoint.find()
    kube = KubeClient(place)
    await kube.get("Secret", "graphs", "people")
    token.write_text("second")
    hook = place.configuration.refresh_api_key_hook
    loader = hook.__closure__[0].cell_contents
    loader.token_expires_at = loader.token_expires_at.fromtimestamp(time.time() - 1)
    await kube.get("Secret", "graphs", "people")
    await kube.close()
    assert [each["Authorization"] for each in server.headers] == ["bearer first", "bearer second"]
    assert (await connection_info(place)).as_http_headers() == {"Authorization": "bearer second"}


async def test_a_kubeconfig_is_followed(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, file = tmp_path / "token", tmp_path / "config"
    token.write_text("of a file\n")
    certificate, key = str(server.folder / "tls.crt"), str(server.folder / "tls.key")
    user = {"tokenFile": str(token), "client-certificate": certificate, "client-key": key}
    file.write_text(json.dumps(server.kubeconfig(**user)))
    monkeypatch.setenv("KUBECONFIG", str(file))
    place = await ApiEndpoint.find()
    assert place.server == server.url
    assert await place.authorization() == "Bearer of a file"
    assert place.configuration.verify_ssl
    known = await connection_info(place)
    assert (known.server, known.certificate_path, known.private_key_path) == (server.url, certificate, key)
    assert known.ca_path == str(server.folder / "ca.crt")
    assert known.as_http_headers() == {"Authorization": "Bearer of a file"}


@pytest.mark.parametrize("content", [{}, {"current-context": "c"}, {"current-context": "c", "contexts": []}])
async def test_what_is_no_kubeconfig_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="is no kubeconfig"):
        await find_endpoint(content, tmp_path)
