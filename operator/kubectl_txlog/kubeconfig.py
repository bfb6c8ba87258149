"""The kubeconfig as kubectl reads it, with the credentials of its plugins. Needs Python's own library alone."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from txlog.model.errors import BadInput

KUBECTL_TIMEOUT_S: Final = 30.0
CREDENTIAL_PLUGIN_TIMEOUT_S: Final = 120.0
"""It may prompt for a password."""


def read_kubeconfig(context: str | None, file: Path | None) -> dict[str, Any]:
    """One context of the kubeconfig as kubectl merges it, with the credentials that a credential plugin returns.
    :class:`BadInput` in kubectl's own words when there is none."""
    if file is not None and not file.is_file():
        raise BadInput(f"--kubeconfig {file}: there is no such file")
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise BadInput("kubectl is not in the PATH; this is a plugin of it, and asks it for the kubeconfig")
    command = [kubectl, "config", "view", "--raw", "--minify", "--flatten", "-o", "json"]
    command += ["--context", context] if context is not None else []
    command += ["--kubeconfig", str(file)] if file is not None else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=KUBECTL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BadInput(f"kubectl config view did not end within {KUBECTL_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise BadInput(f"kubectl config view: {done.stderr.strip() or done.returncode}")
    content: dict[str, Any] = json.loads(done.stdout)
    for each in content.get("clusters") or []:
        for field in ("proxy-url", "tls-server-name"):
            if each["cluster"].get(field):
                raise BadInput(f"the kubeconfig has {field}, which kubectl txlog does not follow")
    for each in content.get("users") or []:
        each["user"] = _with_credentials(each.get("user") or {})
    return content


def context_namespace(content: Mapping[str, Any]) -> str:
    """The namespace of the kubeconfig's context."""
    chosen: Mapping[str, Any] = next((each["context"] for each in content.get("contexts") or []), {})
    return str(chosen.get("namespace") or "default")


def _with_credentials(user: Mapping[str, Any]) -> dict[str, Any]:
    """The user with the credentials that its plugin returns (client.authentication.k8s.io). The package ``kubernetes``
    would hide what the plugin prints for the user, and would drop one of token and certificate."""
    if "auth-provider" in user:
        raise BadInput("the kubeconfig has an auth-provider, which Kubernetes has given up; expected exec")
    plugin = user.get("exec")
    if not plugin:
        return dict(user)
    info = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": sys.stdin.isatty()}}
    named = {each["name"]: each["value"] for each in plugin.get("env") or []}
    environment = {**os.environ, **named, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    command = [plugin["command"], *(plugin.get("args") or [])]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, env=environment, timeout=CREDENTIAL_PLUGIN_TIMEOUT_S, check=True
        )
        status = json.loads(done.stdout)["status"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as wrong:
        why = (
            f"exit code {wrong.returncode}"
            if isinstance(wrong, subprocess.CalledProcessError)
            else type(wrong).__name__
        )
        raise BadInput(f"{plugin['command']} of the kubeconfig gave no credentials: {why}") from None
    found = {"token": status.get("token")}
    for field, key in (("client-certificate-data", "clientCertificateData"), ("client-key-data", "clientKeyData")):
        if status.get(key):
            found[field] = _base64_pem(status[key])
    return {key: value for key, value in found.items() if value}


def _base64_pem(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()
