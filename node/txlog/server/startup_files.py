"""The files of a start beside the configuration: users, certificates, the secret of the masters; and the file that
names this process."""

from __future__ import annotations

import json
from pathlib import Path

from txlog.auth import BadUsers
from txlog.auth.authenticator import Authenticator
from txlog.auth.tls import BadCertificates, Certificates, TlsConfig
from txlog.config.process_config import NodeConfig
from txlog.model.errors import TxLogError
from txlog.model.records import RecoveredState
from txlog.telemetry.event_log import EventLog


class BadStart(TxLogError):
    """The input of this process is not valid; the message gives the reason (exit code 64)."""


def write_identity(file: Path, node: str, recovered: RecoveredState) -> None:
    """Writes which process of this master this is, so that an observer of its end can name it. If the file cannot be
    written, the start fails."""
    identity = {"node": node, "birth": f"{recovered.birth:016x}", "start": recovered.start}
    try:
        file.write_text(json.dumps(identity) + "\n")
    except OSError as wrong:
        raise BadStart(f"identity_file {file}: {wrong.strerror}") from None


def load_authenticator(config: NodeConfig, log: EventLog) -> Authenticator | None:
    """The authenticator of clients; None if the manifest names no users. :class:`BadStart` when the file is missing or
    not valid: a master that must authenticate never admits every client instead."""
    if config.users_file is None:
        return None
    try:
        return Authenticator(
            config.users_file, config.own_token_file, log, by_repository=config.repositories is not None
        )
    except BadUsers as wrong:
        raise BadStart(f"users_file {wrong}") from None


def load_tls(config: NodeConfig, log: EventLog) -> TlsConfig:
    """The certificates for TLS. :class:`BadStart` when a file is missing or not valid: a master that must use TLS never
    falls back to plain connections."""

    def read(folder: Path | None, field: str, node: str | None) -> Certificates | None:
        try:
            return Certificates(folder, log, node=node) if folder is not None else None
        except BadCertificates as wrong:
            raise BadStart(f"{field} {wrong}") from None

    return TlsConfig(
        clients=read(config.tls_folder, "tls_folder", None),
        peers=read(config.peer_tls_folder, "peer_tls_folder", config.node),
    )


def load_peer_token(config: NodeConfig) -> bytes:
    """The secret that the masters share."""
    try:
        token = config.peer_token_file.read_bytes().strip()
    except OSError as wrong:
        raise BadStart(f"peer_token_file {config.peer_token_file}: {wrong.strerror}") from None
    if not token or not token.isascii():
        raise BadStart(f"peer_token_file {config.peer_token_file}: a line of ASCII, the same for all masters")
    return token
