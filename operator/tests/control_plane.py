"""A real API server with its etcd and controllers, on loopback, for one run of the tests. No kubelet: tests play it.

Programs: the folder ``KUBEBUILDER_ASSETS``, else what ``e2e.cluster`` builds and keeps for every clone.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubernetes.aio.client import Configuration

from e2e.lib.ports import free_ports
from txlog_operator.kube_client import BEARER_TOKEN, ApiEndpoint

READY_S = 120.0
ROOT = Path(__file__).parents[2]


def programs() -> Path:
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given:
        return Path(given)
    from e2e.cluster.programs import build_programs

    return build_programs()


def helm(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [str(programs() / "helm"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=60)


def _with_us() -> None:
    """Ends when the tests do, however they end."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class ControlPlane:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.admin = secrets.token_hex(16)
        self.programs = self._bin = programs()
        self._running: list[subprocess.Popen[bytes]] = []
        self._etcd, self._etcd_peers, self._api, self._kcm = free_ports(4)
        self.server = f"https://127.0.0.1:{self._api}"

    @property
    def place(self) -> ApiEndpoint:
        """The administrator's."""
        return self.of(self.admin)

    def of(self, token: str) -> ApiEndpoint:
        credentials = {BEARER_TOKEN: f"Bearer {token}"}
        return ApiEndpoint(Configuration(self.server, api_key=credentials, ssl_ca_cert=str(self.folder / "ca.crt")))

    def kubeconfig(self, token: str, file: Path) -> Path:
        told = {
            "clusters": [
                {"name": "c", "cluster": {"server": self.server, "certificate-authority": str(self.folder / "ca.crt")}}
            ],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
            "apiVersion": "v1",
            "kind": "Config",
        }
        file.write_text(json.dumps(told))
        return file

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        config = self.folder / "admin.kubeconfig"
        if not config.exists():
            self.kubeconfig(self.admin, config)
        command = [str(self._bin / "kubectl"), "--kubeconfig", str(config), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=check, timeout=60)

    def start(self) -> None:
        self._keys()
        here = f"http://127.0.0.1:{self._etcd}"
        peers = f"http://127.0.0.1:{self._etcd_peers}"
        self._run(
            "etcd",
            *("--data-dir", str(self.folder / "etcd"), "--log-level", "error", "--unsafe-no-fsync"),
            *("--listen-client-urls", here, "--advertise-client-urls", here),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"default={peers}"),
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers={here}",
            *("--bind-address=127.0.0.1", f"--secure-port={self._api}"),
            f"--tls-cert-file={self.folder}/api.crt",
            f"--tls-private-key-file={self.folder}/api.key",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self.folder}/sa.key",
            f"--service-account-key-file={self.folder}/sa.key",
            "--authorization-mode=RBAC",
            "--profiling=false",
            f"--audit-policy-file={self._audit()}",
            f"--audit-log-path={self.folder}/audit.log",
        )
        self._wait_ready()
        config = self.kubeconfig("kcm", self.folder / "kcm.kubeconfig")
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={config}",
            "--leader-elect=false",
            f"--secure-port={self._kcm}",
            f"--service-account-private-key-file={self.folder}/sa.key",
            "--use-service-account-credentials=true",
            "--concurrent-gc-syncs=4",
            "--profiling=false",
        )

    def stop(self) -> None:
        for each in reversed(self._running):
            each.kill()
            each.wait()

    def forbidden(self, namespace: str) -> list[str]:
        """Requests of the accounts of that namespace that were refused (403), by who asked what."""
        file = self.folder / "audit.log"
        told = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        refused = [each for each in told if each.get("responseStatus", {}).get("code") == 403]
        said = [f"{each['user']['username']}: {each['verb']} {each['requestURI']}" for each in refused]
        return [each for each in said if f":{namespace}:" in each]

    def _audit(self) -> Path:
        file = self.folder / "audit.json"
        rules = [
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
            {"level": "None"},
        ]
        told = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
        file.write_text(json.dumps(told))
        return file

    def _keys(self) -> None:
        def openssl(*words: str) -> None:
            subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        openssl("req", "-x509", *new, "-subj", "/CN=ca", "-days", "2", "-keyout", "ca.key", "-out", "ca.crt")
        openssl("req", *new, "-subj", "/CN=kube-apiserver", "-keyout", "api.key", "-out", "api.csr")
        (self.folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
        ca = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext"]
        openssl("x509", "-req", "-in", "api.csr", *ca, "-out", "api.crt")
        openssl("genrsa", "-out", "sa.key", "2048")
        rows = [f'{self.admin},admin,a,"system:masters"', "kcm,system:kube-controller-manager,k"]
        (self.folder / "tokens.csv").write_text("".join(f"{row}\n" for row in rows))

    def _run(self, program: str, *arguments: str) -> None:
        log = open(self.folder / f"{program}.log", "wb")  # noqa: SIM115 - it is the process's from here on
        command = [str(self._bin / program), *arguments]
        self._running.append(
            subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, preexec_fn=_with_us)
        )
        log.close()

    def _wait_ready(self) -> None:
        tls = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        asked = urllib.request.Request(f"{self.server}/readyz", headers={"Authorization": f"Bearer {self.admin}"})
        until = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(asked, timeout=2, context=tls):
                    return
            except OSError as wrong:
                ended = next((each for each in self._running if each.poll() is not None), None)
                if ended is not None or time.monotonic() > until:
                    said = (self.folder / "kube-apiserver.log").read_text()[-2000:]
                    raise AssertionError(f"the API server is not ready: {wrong}\n{said}") from None
                time.sleep(0.1)  # until it answers, which nothing else tells


@contextmanager
def running(folder: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(folder)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
