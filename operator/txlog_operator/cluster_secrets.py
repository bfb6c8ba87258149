"""Validates the Secrets that a manifest's ``security`` names, and derives the operator's own access to the masters.

The operator reads them by name, and only where a manifest names them. It finds mistakes here, before a restarted master
would exit because of them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from txlog.auth import BadUsers, parse_users_file
from txlog.auth.tls import CERTIFICATE_FILE, KEY_FILE, BadCertificates, Certificates, check_hostname
from txlog.client import MasterClient
from txlog.client.credentials import Credentials
from txlog.config.cluster import TxLogCluster
from txlog.telemetry.event_log import EventLog
from txlog_operator.kube_client import HTTP_FORBIDDEN, ApiError, KubeClient
from txlog_operator.object_names import ObjectNames
from txlog_operator.specs.common import CA_KEY, INTERNAL_TOKEN_KEY, USERS_KEY

REREAD_S: Final = 10.0
"""Secrets with which nothing is wrong are read again after so many seconds."""
RECHECK_INTERVAL_S: Final = 600.0
"""Certificates expire: unchanged Secrets are checked again after so many seconds."""
CACHED_MAX: Final = 4
CERTIFICATE_KEYS: Final = (CERTIFICATE_FILE, KEY_FILE, CA_KEY)
NO_CREDENTIALS: Final = Credentials(None)


@dataclass(frozen=True)
class MasterAccess:
    """The operator's credentials for the masters. ``tls``: the trusted authorities, None without TLS. ``tls_hosts``: by
    URL, the host that the certificate must name (the operator reaches a pod by its IP address)."""

    tls: ssl.SSLContext | None = None
    credentials: Credentials = NO_CREDENTIALS
    tls_hosts: Mapping[str, str] = field(default_factory=dict)

    def client(self, url: str, timeout_s: float, connect_s: float = 2.0) -> MasterClient:
        """A client of the master at ``url`` with these credentials; time-outs are in seconds."""
        return MasterClient(
            url,
            timeout_s,
            connect_s=connect_s,
            tls=self.tls,
            credentials=self.credentials,
            name=self.tls_hosts.get(url),
        )

    def with_hosts(self, names: Mapping[str, str]) -> MasterAccess:
        """A copy with ``names`` as the expected hosts by URL."""
        return replace(self, tls_hosts=names)


@dataclass(frozen=True)
class SecretContent:
    """``data``: None when the Secret could not be read; ``error`` gives the reason. ``version`` changes with the
    content."""

    data: Mapping[str, bytes] | None
    version: str = ""
    error: str = ""


@dataclass(frozen=True)
class SecretReference:
    """A field of a manifest, the Secret that it names, and the keys that the Secret must have."""

    field: str
    secret: str
    keys: Sequence[str]


def secret_references(cluster: TxLogCluster) -> list[SecretReference]:
    """Every Secret that the manifest's ``security`` names."""
    security = cluster.spec.security
    users = security.users.secret_ref if security.users is not None else None
    listed = (
        ("spec.security.users", users, (USERS_KEY, INTERNAL_TOKEN_KEY)),
        ("spec.security.tlsSecretRef", security.tls_secret_ref, CERTIFICATE_KEYS),
        ("spec.security.peerTlsSecretRef", security.peer_tls_secret_ref, CERTIFICATE_KEYS),
    )
    return [SecretReference(field, secret.name, keys) for field, secret, keys in listed if secret is not None]


async def read_secrets(kube: KubeClient, cluster: TxLogCluster) -> dict[str, SecretContent]:
    """The content by name. :class:`~txlog_operator.kube_client.ApiError` when the API server cannot be reached."""
    names = list(dict.fromkeys(each.secret for each in secret_references(cluster)))
    found = await asyncio.gather(*(_read_secret(kube, cluster.metadata.namespace, name) for name in names))
    return dict(zip(names, found, strict=True))


async def _read_secret(kube: KubeClient, namespace: str, name: str) -> SecretContent:
    try:
        found = await kube.get("Secret", namespace, name)
    except ApiError as error:
        if error.code != HTTP_FORBIDDEN:
            raise
        why = f"may not be read by the operator; let it: helm upgrade of its chart with readSecrets={{{name}}}"
        return SecretContent(None, error=why)
    if found is None:
        return SecretContent(None, error="is not there")
    try:
        data = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    except binascii.Error:
        return SecretContent(None, error="cannot be read: its data is no base64")
    return SecretContent(data, found["metadata"].get("resourceVersion", ""))


def find_secret_problems(cluster: TxLogCluster, secrets: Mapping[str, SecretContent]) -> list[str]:
    """The problems, one line each: field, Secret, key and reason. No line contains secret content."""
    return [
        problem
        for reference in secret_references(cluster)
        for problem in _problems_of_reference(cluster, reference, secrets)
    ]


def _problems_of_reference(
    cluster: TxLogCluster, reference: SecretReference, secrets: Mapping[str, SecretContent]
) -> Iterator[str]:
    secret, where = secrets[reference.secret], f"{reference.field}: the Secret {reference.secret}"
    if secret.data is None:
        yield f"{where} {secret.error}"
        return
    missing = [key for key in reference.keys if not secret.data.get(key)]
    if missing:
        yield f"{where} lacks {' and '.join(missing)}; expected the keys {', '.join(reference.keys)}"
        return
    try:
        if reference.keys is CERTIFICATE_KEYS:
            _check_certificates(cluster, secret.data, among_masters=reference.field.endswith("peerTlsSecretRef"))
        else:
            _check_users(secret.data)
    except (BadCertificates, BadUsers) as wrong:
        yield f"{where}: {wrong}"


def _check_users(data: Mapping[str, bytes]) -> None:
    try:
        parse_users_file(data[USERS_KEY].decode(), USERS_KEY)
    except UnicodeDecodeError:
        raise BadUsers(f"{USERS_KEY}: expected text in UTF-8") from None
    if _internal_token(data) is None:
        raise BadUsers(f"{INTERNAL_TOKEN_KEY}: expected a token, a line of ASCII without spaces")


def _internal_token(data: Mapping[str, bytes]) -> Credentials | None:
    try:
        return Credentials.from_token(data.get(INTERNAL_TOKEN_KEY, b"").decode("ascii"))
    except ValueError:
        return None


def _check_certificates(cluster: TxLogCluster, data: Mapping[str, bytes], *, among_masters: bool) -> None:
    """The checks of a master at its start, and of its clients."""
    names, masters = ObjectNames(cluster), cluster.own_peer.masters
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for key in CERTIFICATE_KEYS:
            (folder / key).write_bytes(data[key])
        try:
            if among_masters:
                for node in cluster.own_peer.nodes:
                    Certificates(folder, EventLog(node), node=node)
                return
            Certificates(folder, EventLog(cluster.data_center))
            for index in range(1, masters + 1):
                check_hostname(folder, names.master_host(index))
        except BadCertificates as wrong:
            raise BadCertificates(str(wrong).replace(f"{folder}/", "")) from None


class ClusterSecrets:
    """The Secrets of one resource. The last valid content stays in effect while newer content is invalid."""

    def __init__(self, kube: KubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._last = MasterAccess()
        self._read: tuple[float, list[SecretReference], dict[str, SecretContent]] | None = None
        self._checked: dict[tuple[object, ...], tuple[float, MasterAccess, list[str]]] = {}

    async def read_access(self, cluster: TxLogCluster) -> tuple[MasterAccess, list[str]]:
        """The credentials for the masters, and the problems of the Secrets."""
        if not secret_references(cluster):
            return MasterAccess(), []
        secrets = await self._read_again(cluster)
        key = (
            *((name, each.version, each.error) for name, each in secrets.items()),
            *((each.field, each.secret) for each in secret_references(cluster)),
            cluster.own_peer.masters,
        )
        known = self._checked.get(key)
        if known is None or self._clock() > known[0]:
            problems = await asyncio.to_thread(find_secret_problems, cluster, secrets)
            if len(self._checked) >= CACHED_MAX:
                self._checked.clear()
            known = self._checked[key] = (
                self._clock() + RECHECK_INTERVAL_S,
                self._last_valid_access(cluster, secrets),
                problems,
            )
        self._last = known[1]
        if known[2]:
            self._read = None  # a person may be correcting it
        return known[1], known[2]

    async def _read_again(self, cluster: TxLogCluster) -> dict[str, SecretContent]:
        """The Secrets, as they were read a few seconds ago while nothing was wrong with them."""
        references = list(secret_references(cluster))
        if self._read is None or self._read[1] != references or self._clock() > self._read[0]:
            self._read = (self._clock() + REREAD_S, references, await read_secrets(self._kube, cluster))
        return self._read[2]

    def _last_valid_access(self, cluster: TxLogCluster, secrets: Mapping[str, SecretContent]) -> MasterAccess:
        security, tls, credentials = cluster.spec.security, None, NO_CREDENTIALS
        if security.tls_secret_ref is not None:
            tls = _tls_context(secrets[security.tls_secret_ref.name].data or {}) or self._last.tls
        if security.users is not None:
            credentials = _internal_token(secrets[security.users.secret_ref.name].data or {}) or self._last.credentials
        return MasterAccess(tls, credentials)


def _tls_context(data: Mapping[str, bytes]) -> ssl.SSLContext | None:
    try:
        return ssl.create_default_context(cadata=data[CA_KEY].decode("ascii"))
    except (KeyError, ValueError, ssl.SSLError):
        return None
