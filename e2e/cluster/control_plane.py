"""The control plane of one data centre, on its first node: etcd, API server, controllers, scheduler, DNS."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from e2e.cluster.api_client import TOKEN, ApiServerClient
from e2e.cluster.layout import NUMBERS, ClusterSite
from e2e.cluster.node import ClusterNode, run_command, wait_until

READY_S: Final = 90.0
DAYS: Final = "30"
USERS: Final = {
    TOKEN: ("admin", "system:masters"),
    "kcm": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "dns": ("dns", "system:masters"),
}
"""By token: the user's name and group."""


AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
"""What pods ask of the API server is written down."""


def create_credentials(site: ClusterSite) -> None:
    """Its certificates, users and kubeconfigs, unless they are there."""
    keys = site.folder / "pki"
    if (keys / "done").exists():
        return
    keys.mkdir(parents=True, exist_ok=True)
    _create_ca(keys, f"/CN={site.name}-ca")
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names.append(f"kubernetes.default.svc.{site.domain}")
    addresses = ["127.0.0.1", site.services.replace("0/24", "1"), site.host(1)]
    alternatives = ",".join([*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)])
    _create_certificate(keys, "apiserver", "/CN=kube-apiserver", f"subjectAltName={alternatives}")
    _create_certificate(keys, "kubelet-client", "/O=system:masters/CN=apiserver-kubelet", "extendedKeyUsage=clientAuth")
    run_command("openssl", "genrsa", "-out", str(keys / "sa.key"), "2048")
    users = dict(USERS)
    for k in NUMBERS:
        name = ClusterNode(site, k).name
        users[f"node-{name}"] = (f"system:node:{name}", "system:nodes")
        users[f"proxy-{name}"] = ("system:kube-proxy", "")
    rows = (f'{token},{name},{token},"{group}"' for token, (name, group) in users.items())
    (keys / "tokens.csv").write_text("".join(f"{row}\n" for row in rows))
    (keys / "audit.json").write_text(json.dumps(AUDIT_POLICY))
    for token in USERS:
        write_kubeconfig(site, token, site.folder / f"{token}.kubeconfig")
    (keys / "done").touch()


def _create_ca(keys: Path, subject: str) -> None:
    told = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject, "-days", DAYS]
    run_command("openssl", "req", "-x509", *told, "-keyout", str(keys / "ca.key"), "-out", str(keys / "ca.crt"))


def _create_certificate(keys: Path, name: str, subject: str, extension: str) -> None:
    key, request, made, extensions = (keys / f"{name}{end}" for end in (".key", ".csr", ".crt", ".ext"))
    extensions.write_text(extension)
    told = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject]
    run_command("openssl", "req", *told, "-keyout", str(key), "-out", str(request))
    by = ["-CA", str(keys / "ca.crt"), "-CAkey", str(keys / "ca.key"), "-CAcreateserial", "-days", DAYS]
    run_command("openssl", "x509", "-req", "-in", str(request), *by, "-out", str(made), "-extfile", str(extensions))


def write_kubeconfig(site: ClusterSite, token: str, file: Path) -> None:
    """Who shows this token."""
    server = {"server": site.api, "certificate-authority": str(site.folder / "pki" / "ca.crt")}
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": site.name, "cluster": server}],
        "users": [{"name": site.name, "user": {"token": token}}],
        "contexts": [{"name": site.name, "context": {"cluster": site.name, "user": site.name}}],
        "current-context": site.name,
    }
    file.write_text(json.dumps(told, indent=1))


def start_api(node: ClusterNode, programs: Path) -> None:
    """etcd and the API server; back when it is ready."""
    site = node.site
    keys, here = site.folder / "pki", "http://127.0.0.1:2379"
    node.start(
        "etcd",
        str(programs / "etcd"),
        *("--name", site.name, "--data-dir", str(site.folder / "etcd"), "--log-level", "error"),
        *("--listen-client-urls", here, "--advertise-client-urls", here, "--listen-peer-urls", "http://127.0.0.1:2380"),
        "--unsafe-no-fsync",
    )
    node.start(
        "apiserver",
        str(programs / "kube-apiserver"),
        f"--etcd-servers={here}",
        "--bind-address=0.0.0.0",
        f"--advertise-address={site.host(1)}",
        "--secure-port=6443",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--client-ca-file={keys}/ca.crt",
        f"--token-auth-file={keys}/tokens.csv",
        f"--service-cluster-ip-range={site.services}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={keys}/sa.key",
        f"--service-account-key-file={keys}/sa.key",
        "--authorization-mode=Node,RBAC",
        f"--kubelet-client-certificate={keys}/kubelet-client.crt",
        f"--kubelet-client-key={keys}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",  # no DNS knows the nodes' names
        "--allow-privileged=true",
        "--profiling=false",
        f"--audit-policy-file={keys}/audit.json",
        f"--audit-log-path={site.folder}/audit.log",
    )
    wait_until(
        f"the API server of {site.name} ({node.log('apiserver')})",
        READY_S,
        lambda: ApiServerClient(site).is_answering("/readyz"),
    )


def forbidden_requests(site: ClusterSite) -> list[str]:
    """Requests of pods that the API server refused (403), by who asked what. That nothing is made any more in a
    namespace that is being removed is no matter of rights."""
    found = []
    for file in sorted(site.folder.glob("audit*.log")):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            answer = event.get("responseStatus", {})
            causes = {each.get("reason") for each in answer.get("details", {}).get("causes", [])}
            if answer.get("code") == 403 and "NamespaceTerminating" not in causes:
                found.append(f"{event['user']['username']}: {event['verb']} {event['requestURI']}")
    return found


def start_controllers(node: ClusterNode, programs: Path) -> None:
    """Controllers and scheduler."""
    site = node.site
    keys = site.folder / "pki"
    node.start(
        "controllers",
        str(programs / "kube-controller-manager"),
        *_kubeconfig_option(site.folder / "kcm.kubeconfig"),
        "--leader-elect=false",
        f"--service-account-private-key-file={keys}/sa.key",
        f"--root-ca-file={keys}/ca.crt",
        "--use-service-account-credentials=true",
        f"--cluster-signing-cert-file={keys}/ca.crt",
        f"--cluster-signing-key-file={keys}/ca.key",
        "--node-monitor-period=1s",
        "--node-monitor-grace-period=10s",
        "--profiling=false",
    )
    scheduler = str(programs / "kube-scheduler")
    node.start(
        "scheduler", scheduler, *_kubeconfig_option(site.folder / "scheduler.kubeconfig"), "--leader-elect=false"
    )


def _kubeconfig_option(file: Path) -> list[str]:
    return [f"--{what}kubeconfig={file}" for what in ("", "authentication-", "authorization-")]


PUBLIC: Final = "example.net"
"""The domain of the examples' masters. In the world its names are the work of whoever runs the data centres."""
MASTER: Final = r"^txlog-(uk|us)-([0-9]+)\.example\.net\.$"
SERVED: Final = "catalogue-{{ index .Match 2 }}.catalogue-masters.graphs.svc.{{ index .Match 1 }}.local."
"""Where the master lies when ``examples/two-data-centres`` is applied in the namespace ``graphs``."""


def start_dns(node: ClusterNode, programs: Path, peers: Mapping[str, int]) -> None:
    """Names of this data centre, of ``peers`` (name to number) by theirs, and of the examples' masters. All others do
    not exist."""
    site = node.site
    at = f"bind {site.host(1)}"
    told = f"""{site.domain} in-addr.arpa {{
  {at}
  errors
  kubernetes {site.domain} in-addr.arpa {{
    kubeconfig {site.folder}/dns.kubeconfig {site.name}
    ttl 1
  }}
}}
"""
    for name, number in peers.items():
        peer = ClusterSite(name, number)
        told += f"{peer.domain} {{\n  {at}\n  forward . {peer.host(1)}\n}}\n"
    told += f"""{PUBLIC} {{
  {at}
  errors
  template IN A {PUBLIC} {{
    match "{MASTER}"
    answer "{{{{ .Name }}}} 1 IN CNAME {SERVED}"
    fallthrough
  }}
  template ANY ANY {PUBLIC} {{
    match "{MASTER}"
    rcode NOERROR
    fallthrough
  }}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""
    told += f". {{\n  {at}\n  template ANY ANY {{\n    rcode NXDOMAIN\n  }}\n}}\n"
    file = site.folder / "Corefile"
    file.write_text(told)
    node.start("dns", str(programs / "coredns"), "-conf", str(file))


def kubectl(
    site: ClusterSite, programs: Path, *arguments: str, input_text: str | None = None, check: bool = True
) -> str:
    """As the administrator of the data centre."""
    program = [str(programs / "kubectl"), "--kubeconfig", str(site.kubeconfig)]
    return run_command(*program, *arguments, input_text=input_text, check=check)
