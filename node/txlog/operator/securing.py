"""The Secrets that a manifest's ``security`` names: whether they hold what masters need, and how the operator itself
speaks with masters by them.

They are read by name, and only where a manifest names them. What is wrong is found here, before a master that is
restarted would end with it.
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
from txlog.operator.build.common import AUTHORITY_KEY, OWN_TOKEN_KEY, USERS_KEY
from txlog.operator.kube import ApiError, Kube
from txlog.operator.names import Names
from txlog.telemetry.event_log import EventLog

CHECK_S: Final = 600.0
"""Certificates end by themselves: what has not changed is looked at again so often."""
KNOWN_MAX: Final = 4
FORBIDDEN: Final = 403
CERTIFICATE_KEYS: Final = (CERTIFICATE_FILE, KEY_FILE, AUTHORITY_KEY)
NOTHING: Final = Credentials(None)


@dataclass(frozen=True)
class Access:
    """How the operator speaks with masters. ``tls``: whom it believes, None where they speak plainly; ``names``: by
    URL, the host that its certificate must name (a pod is asked by its IP address)."""

    tls: ssl.SSLContext | None = None
    credentials: Credentials = NOTHING
    names: Mapping[str, str] = field(default_factory=dict)

    def client(self, url: str, timeout_s: float, connect_s: float = 2.0) -> MasterClient:
        return MasterClient(
            url,
            timeout_s,
            connect_s=connect_s,
            tls=self.tls,
            credentials=self.credentials,
            name=self.names.get(url),
        )

    def knowing(self, names: Mapping[str, str]) -> Access:
        return replace(self, names=names)


@dataclass(frozen=True)
class Secret:
    """``data``: None when it could not be had, ``why`` says the reason. ``version`` changes with its content."""

    data: Mapping[str, bytes] | None
    version: str = ""
    why: str = ""


@dataclass(frozen=True)
class Reference:
    """A field of a manifest, the Secret that it names, and the keys that are needed of it."""

    field: str
    secret: str
    keys: Sequence[str]


def references(cluster: TxLogCluster) -> list[Reference]:
    security = cluster.spec.security
    found = []
    if security.users is not None:
        keys = (USERS_KEY, OWN_TOKEN_KEY)
        found.append(Reference("spec.security.users", security.users.secret_ref.name, keys))
    if security.tls_secret_ref is not None:
        found.append(Reference("spec.security.tlsSecretRef", security.tls_secret_ref.name, CERTIFICATE_KEYS))
    if security.peer_tls_secret_ref is not None:
        found.append(Reference("spec.security.peerTlsSecretRef", security.peer_tls_secret_ref.name, CERTIFICATE_KEYS))
    return found


async def read_secrets(kube: Kube, cluster: TxLogCluster) -> dict[str, Secret]:
    """By name. :class:`~txlog.operator.kube.ApiError` when the API server cannot be asked at all."""
    names = list(dict.fromkeys(each.secret for each in references(cluster)))
    found = await asyncio.gather(*(_read(kube, cluster.metadata.namespace, name) for name in names))
    return dict(zip(names, found, strict=True))


async def _read(kube: Kube, namespace: str, name: str) -> Secret:
    try:
        found = await kube.get("Secret", namespace, name)
    except ApiError as error:
        if error.code != FORBIDDEN:
            raise
        why = f"may not be read by the operator; let it: helm upgrade of its chart with readSecrets={{{name}}}"
        return Secret(None, why=why)
    if found is None:
        return Secret(None, why="is not there")
    try:
        data = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    except binascii.Error:
        return Secret(None, why="cannot be read: its data is no base64")
    return Secret(data, found["metadata"].get("resourceVersion", ""))


def problems_of(cluster: TxLogCluster, secrets: Mapping[str, Secret]) -> list[str]:
    """What is wrong with them: field, Secret, key and reason, a line each. Nothing of what they hold is repeated."""
    return [problem for reference in references(cluster) for problem in _problems(cluster, reference, secrets)]


def _problems(cluster: TxLogCluster, reference: Reference, secrets: Mapping[str, Secret]) -> Iterator[str]:
    secret, said = secrets[reference.secret], f"{reference.field}: the Secret {reference.secret}"
    if secret.data is None:
        yield f"{said} {secret.why}"
        return
    missing = [key for key in reference.keys if not secret.data.get(key)]
    if missing:
        yield f"{said} lacks {' and '.join(missing)}; expected the keys {', '.join(reference.keys)}"
        return
    try:
        if reference.keys is CERTIFICATE_KEYS:
            _check_certificates(cluster, secret.data, among_masters=reference.field.endswith("peerTlsSecretRef"))
        else:
            _check_users(secret.data)
    except (BadCertificates, BadUsers) as wrong:
        yield f"{said}: {wrong}"


def _check_users(data: Mapping[str, bytes]) -> None:
    try:
        parse_users_file(data[USERS_KEY].decode(), USERS_KEY)
    except UnicodeDecodeError:
        raise BadUsers(f"{USERS_KEY}: expected text in UTF-8") from None
    if _token_of(data) is None:
        raise BadUsers(f"{OWN_TOKEN_KEY}: expected a token, a line of ASCII without spaces")


def _token_of(data: Mapping[str, bytes]) -> Credentials | None:
    try:
        return Credentials.from_token(data.get(OWN_TOKEN_KEY, b"").decode("ascii"))
    except ValueError:
        return None


def _check_certificates(cluster: TxLogCluster, data: Mapping[str, bytes], *, among_masters: bool) -> None:
    """As each master will at its start, and as those will who ask it."""
    names, masters = Names(cluster), cluster.own_peer.masters
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


class Securing:
    """Of one resource. What was right before is used for as long as what came after it is not."""

    def __init__(self, kube: Kube, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._last = Access()
        self._known: dict[tuple[object, ...], tuple[float, Access, list[str]]] = {}

    async def look(self, cluster: TxLogCluster) -> tuple[Access, list[str]]:
        """How to speak with its masters, and what is wrong with its Secrets."""
        if not references(cluster):
            return Access(), []
        secrets = await read_secrets(self._kube, cluster)
        key = (
            *((name, each.version, each.why) for name, each in secrets.items()),
            *((each.field, each.secret) for each in references(cluster)),
            cluster.own_peer.masters,
        )
        known = self._known.get(key)
        if known is None or self._clock() > known[0]:
            problems = await asyncio.to_thread(problems_of, cluster, secrets)
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[key] = (self._clock() + CHECK_S, self._access(cluster, secrets), problems)
        self._last = known[1]
        return known[1], known[2]

    def _access(self, cluster: TxLogCluster, secrets: Mapping[str, Secret]) -> Access:
        security, tls, credentials = cluster.spec.security, None, NOTHING
        if security.tls_secret_ref is not None:
            tls = _trusting(secrets[security.tls_secret_ref.name].data or {}) or self._last.tls
        if security.users is not None:
            credentials = _token_of(secrets[security.users.secret_ref.name].data or {}) or self._last.credentials
        return Access(tls, credentials)


def _trusting(data: Mapping[str, bytes]) -> ssl.SSLContext | None:
    try:
        return ssl.create_default_context(cadata=data[AUTHORITY_KEY].decode("ascii"))
    except (KeyError, ValueError, ssl.SSLError):
        return None
