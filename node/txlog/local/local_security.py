"""The security of manifests on one machine: the users files, the certificates, and the authorities that local processes
trust."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from txlog.auth import parse_users_file
from txlog.auth.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE, BadCertificates, Certificates, check_hostname
from txlog.config.manifest_reader import ClusterManifest
from txlog.config.resource_specs import SecretRef
from txlog.local.local_errors import CannotRun
from txlog.local.state_folder import USERS_FILE, StateFolder
from txlog.telemetry.event_log import EventLog

log = logging.getLogger("txlog.local")

RENEWAL_CHECK_INTERVAL_S: Final = 30.0
"""Interval of checks of TxLog's own certificates, and of the authorities of supplied ones."""
LOOPBACK: Final = "127.0.0.1"


def users_file(manifest: ClusterManifest, state: StateFolder) -> Path | None:
    """The users file of that data centre's masters; None when its manifest names no users."""
    users = manifest.cluster.spec.security.users
    return state.secret(users.secret_ref.name) / USERS_FILE if users is not None else None


def tls_folder(secret: SecretRef | None, node: str, state: StateFolder) -> Path | None:
    """The folder of that master's certificate: that of the Secret, if it was supplied; else the generated one."""
    if secret is None:
        return None
    given = state.secret(secret.name)
    return given if given.exists() else state.certificates / node


def security_fields(manifest: ClusterManifest, node: str, state: StateFolder) -> dict[str, Path]:
    """The security fields of a master's configuration."""
    security, file = manifest.cluster.spec.security, users_file(manifest, state)
    found = {
        "users_file": file,
        "own_token_file": state.own_token_file if file is not None else None,
        "tls_folder": tls_folder(security.tls_secret_ref, node, state),
        "peer_tls_folder": tls_folder(security.peer_tls_secret_ref, node, state),
    }
    return {field: path for field, path in found.items() if path is not None}


def prepare_security(manifests: Sequence[ClusterManifest], state: StateFolder, *, by_repository: bool = False) -> None:
    """Creates what is missing and can be generated. Otherwise :class:`CannotRun` names what is missing or wrong, or
    :class:`~txlog.auth.BadUsers` for a users file that masters would reject. ``by_repository``: whether they accept
    roles for named repositories."""
    for manifest in manifests:
        _check_users(manifest, state, by_repository=by_repository)
    _check_tls_is_complete(manifests)
    create_certificates(manifests, state)
    for manifest in manifests:
        for node in manifest.cluster.own_peer.nodes:
            _check_certificates(manifest, node, state)
    write_trusted_authorities(manifests, state)


async def renew_certificates(manifests: Sequence[ClusterManifest], state: StateFolder) -> None:
    """Renews certificates before they expire, and trusts replaced authorities. Runs for ever."""

    def renew() -> None:
        made = create_certificates(manifests, state)
        if made:
            log.info("made new certificates for %s", ", ".join(made))
        write_trusted_authorities(manifests, state)

    while True:
        await asyncio.sleep(RENEWAL_CHECK_INTERVAL_S)
        try:
            await asyncio.to_thread(renew)
        except (OSError, ValueError) as wrong:
            log.error("certificates: %s", wrong)


def create_certificates(manifests: Sequence[ClusterManifest], state: StateFolder) -> list[str]:
    """Creates certificates for masters that need one and have none; returns their names."""
    nodes = [
        node
        for manifest in manifests
        for node in manifest.cluster.own_peer.nodes
        if any(folder == state.certificates / node for folder in security_fields(manifest, node, state).values())
    ]
    if not nodes:
        return []
    from txlog.local.dev_ca import make_certificates  # imported late: most clusters on a laptop need no certificates

    return make_certificates(state.certificates, nodes)


def write_trusted_authorities(manifests: Sequence[ClusterManifest], state: StateFolder) -> None:
    """Writes the authorities of all masters that use TLS for clients. ``OSError`` when one cannot be read."""
    folders = {
        folder
        for manifest in manifests
        for node in manifest.cluster.own_peer.nodes
        if (folder := tls_folder(manifest.cluster.spec.security.tls_secret_ref, node, state)) is not None
    }
    texts = dict.fromkeys((folder / CA_FILE).read_text("ascii") for folder in sorted(folders))
    state.write_trusted("\n".join(texts) if texts else None)


def _check_users(manifest: ClusterManifest, state: StateFolder, *, by_repository: bool) -> None:
    file = users_file(manifest, state)
    if file is None:
        return
    try:
        parse_users_file(file.read_text("utf-8"), str(file), by_repository=by_repository)
    except (OSError, UnicodeDecodeError) as wrong:
        why = wrong.strerror if isinstance(wrong, OSError) else "not UTF-8"
        add = f"txlog user add NAME --role admin --secret {file.parent.name} --state {state.root}"
        raise CannotRun(f"{manifest.file}: spec.security.users: {file}: {why}; make it: {add}") from None


def _check_tls_is_complete(manifests: Sequence[ClusterManifest]) -> None:
    """A manifest that requires TLS must not get half of it."""
    asks = [(manifest, manifest.cluster.spec.security) for manifest in manifests]
    secured = [manifest for manifest, security in asks if security.peer_tls_secret_ref is not None]
    for manifest, security in asks:
        if security.peer_tls_secret_ref is not None:
            continue
        if security.tls_secret_ref is not None:
            raise CannotRun(
                f"{manifest.file}: spec.security.tlsSecretRef needs peerTlsSecretRef beside it: what clients send would"
                " go on to the other masters plainly"
            )
        if secured:
            raise CannotRun(
                f"{manifest.file}: spec.security.peerTlsSecretRef is missing, and {secured[0].file} has it: masters"
                " with certificates speak to none without"
            )


def _check_certificates(manifest: ClusterManifest, node: str, state: StateFolder) -> None:
    security, events = manifest.cluster.spec.security, EventLog(node)
    among_masters = (
        ("peerTlsSecretRef", security.peer_tls_secret_ref, node),
        ("tlsSecretRef", security.tls_secret_ref, None),
    )
    for field, secret, named in among_masters:
        folder = tls_folder(secret, node, state)
        if folder is None:
            continue
        try:
            Certificates(folder, events, node=named)
            if named is None:
                check_hostname(folder, LOOPBACK)
        except (BadCertificates, ssl.SSLError) as wrong:
            raise CannotRun(
                f"{manifest.file}: spec.security.{field}: {wrong}; put {CERTIFICATE_FILE}, {KEY_FILE} and "
                f"{CA_FILE} there, or nothing at all: then txlog up makes its own"
            ) from None
