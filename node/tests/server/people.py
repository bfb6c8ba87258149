"""Users for tests: a name for each role, each with a password and a token."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from master_cluster import Cluster

from txlog.auth import hash_token

ROLES: Final = ("reader", "writer", "admin")
PASSWORDS: Final = {role: f"correct horse of the {role}" for role in ROLES}
TOKENS: Final = {role: f"txlog_token-of-the-{role}" for role in ROLES}
OWN: Final = "txlog_token-of-its-own"
SECRETS: Final = (*PASSWORDS.values(), *TOKENS.values(), OWN, "another-clusters-secret", "a-shared-secret", "$scrypt$")


def quick_hash(password: str) -> str:
    """As ``hash_password`` makes them, of the least cost: tests check many."""
    key = hashlib.scrypt(password.encode(), salt=b"0123456789abcdef", n=2, r=1, p=1, dklen=32)
    salt, told = (base64.b64encode(part).decode().rstrip("=") for part in (b"0123456789abcdef", key))
    return f"$scrypt$ln=1,r=1,p=1${salt}${told}"


def users_text() -> str:
    lines = [f"{role} {role} {quick_hash(PASSWORDS[role])}" for role in ROLES]
    lines += [f"{role} {role} {hash_token(TOKENS[role])}  # for programs" for role in ROLES]
    return "\n".join(["# who may do what", "", *lines, ""])


def guarded(clusters: Callable[..., Cluster], folder: Path, count: int = 1, **changes: Any) -> Cluster:
    """Masters that ask who comes."""
    (folder / "users").write_text(users_text())
    (folder / "own-token").write_text(OWN + "\n")
    files = {"users_file": str(folder / "users"), "own_token_file": str(folder / "own-token")}
    return clusters(count, **files, **changes)


def bearer(who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[who]}"}


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


async def raw(cluster: Cluster, request: bytes) -> tuple[int, bytes]:
    """The bytes as they are; status and everything that came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.ports[0])
    try:
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = await asyncio.wait_for(reader.readexactly(int(length[0].split(b":")[1])), 60) if length else b""
        return int(head.split()[1]), head + body
    finally:
        writer.close()
