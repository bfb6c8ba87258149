"""Authenticates requests: maps credentials to a user, and checks that the user's role is sufficient.

A token is compared at once. A password costs some 250 ms of scrypt, in a thread, one at a time. Correct credentials are
therefore cached for :data:`CREDENTIAL_CACHE_S`, under a keyed hash of what was sent. A request checks the files for
changes, at most every :data:`RELOAD_CHECK_S`. When a file has changed, the cache is emptied.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Final

from txlog.auth import ALL_RIGHTS, BadUsers, Rights, Role, Scope, User, UserDatabase, parse_users_file
from txlog.auth.file_fingerprint import fingerprint_files
from txlog.model.errors import Forbidden, Unauthorized, Unavailable
from txlog.telemetry.event_log import EventLog

RELOAD_CHECK_S: Final = 1.0
CREDENTIAL_CACHE_S: Final = 300.0
CREDENTIAL_CACHE_MAX: Final = 1000
PASSWORD_CHECKS_MAX: Final = 16
"""Passwords that wait for their scrypt, some 0.25 s each; one more is answered 503."""
CREDENTIAL_BYTES_MAX: Final = 4096
"""A longer header belongs to no user."""
FILE_BYTES_MAX: Final = 4 << 20


class Authenticator:
    """The authenticator of one master. ``users_file``: in the format of :mod:`txlog.auth.users_file`.
    ``own_token_file``: the token of TxLog's own processes. ``by_repository``: whether roles may name a repository.
    :class:`BadUsers` if a file cannot be read at the start. Later the previous content stays in use, and the master
    logs that."""

    def __init__(
        self,
        users_file: Path,
        own_token_file: Path | None,
        log: EventLog,
        clock: Callable[[], float] = time.monotonic,
        *,
        by_repository: bool = False,
    ) -> None:
        self._by_repository = by_repository
        self._files = (users_file, own_token_file)
        self._log = log
        self._clock = clock
        self._hash_key = secrets.token_bytes(32)
        self._cached_users: dict[bytes, tuple[float, User]] = {}
        self._pending_checks: dict[bytes, asyncio.Future[User | None]] = {}
        self._pool = ThreadPoolExecutor(1, "txlog-passwords")
        self._fingerprint = fingerprint_files(self._files)
        self._users = self._load()
        self._last_reload_check = clock()

    # Requests

    async def authorize(self, shown: str | None, role: Role, about: str | Scope) -> User:
        """The user with these credentials (the header ``Authorization``), if it has the role for a repository, or for
        another scope. :class:`Unauthorized` without credentials or with wrong ones, :class:`Forbidden` for a lesser
        role, :class:`Unavailable` while too many passwords wait."""
        if shown is None:
            raise Unauthorized("this master wants to know who asks: send a password (Basic) or a token (Bearer)")
        user = self.identify_now(shown)
        if user is None:
            user = await self._check_password(shown)
        if user is None:
            self._log.warning_rate_limited("WrongCredentials", "", message="a client sent a wrong password or token")
            raise Unauthorized("wrong name, password or token")
        if not user.rights.allow(role, about):
            raise Forbidden(f"{user.name} is {user.rights.label}; this needs {role.label}{_describe(user, about)}")
        return user

    def may_write(self, shown: str | None, repository: str) -> bool:
        """Whether these credentials are known, without a wait, to permit writes to this repository. If False, call
        :meth:`authorize`."""
        return self._has_role(shown, Role.WRITER, repository)

    def may_read(self, shown: str | None, repository: str) -> bool:
        """The same for reads."""
        return self._has_role(shown, Role.READER, repository)

    def _has_role(self, shown: str | None, role: Role, repository: str) -> bool:
        user = None if shown is None else self.identify_now(shown)
        return user is not None and user.rights.allow(role, repository)

    def identify_now(self, shown: str) -> User | None:
        """The user, if it is known at once: by a token, or by a password that was correct recently."""
        now = self._clock()
        if now - self._last_reload_check >= RELOAD_CHECK_S:
            self._last_reload_check = now
            self._reload_if_changed()
        if len(shown) > CREDENTIAL_BYTES_MAX:
            return None
        mark = self._cache_key(shown)
        seen = self._cached_users.get(mark)
        if seen is not None:
            if now < seen[0]:
                return seen[1]
            del self._cached_users[mark]
        scheme, _, token = shown.partition(" ")
        if scheme.lower() != "bearer":
            return None
        user = self._users.authenticate_token(token.strip())
        if user is not None:
            self._cache_user(mark, user)
        return user

    async def _check_password(self, shown: str) -> User | None:
        """The user with this name and password; None if it is wrong, or if these are other credentials."""
        pair = parse_basic_credentials(shown)
        if pair is None:
            return None
        mark = self._cache_key(shown)
        asking = self._pending_checks.get(mark)
        if asking is None:
            if len(self._pending_checks) >= PASSWORD_CHECKS_MAX:
                raise Unavailable("TooManyLogins", "many passwords are being checked; ask again, or show a token")
            users = self._users
            loop = asyncio.get_running_loop()
            asking = self._pending_checks[mark] = loop.run_in_executor(self._pool, users.authenticate_password, *pair)
            asking.add_done_callback(lambda done: self._password_checked(mark, users, done))
        return await asyncio.shield(asking)

    def _password_checked(self, mark: bytes, users: UserDatabase, done: asyncio.Future[User | None]) -> None:
        self._pending_checks.pop(mark, None)
        if done.cancelled() or done.exception() is not None:
            return
        user = done.result()
        if user is not None and users is self._users:  # else the file has changed meanwhile
            self._cache_user(mark, user)

    def _cache_key(self, shown: str) -> bytes:
        return blake2b(shown.encode("utf-8", "replace"), digest_size=16, key=self._hash_key).digest()

    def _cache_user(self, mark: bytes, user: User) -> None:
        if len(self._cached_users) >= CREDENTIAL_CACHE_MAX:
            self._cached_users.clear()
        self._cached_users[mark] = (self._clock() + CREDENTIAL_CACHE_S, user)

    # The files

    def _reload_if_changed(self) -> None:
        marks = fingerprint_files(self._files)
        if marks == self._fingerprint:
            return
        self._fingerprint = marks
        try:
            self._users = self._load()
        except BadUsers as wrong:
            self._log.error("UsersNotRead", message=f"{wrong}; the users of before count on")
            return
        self._cached_users.clear()
        self._log.info("UsersRead")

    def _load(self) -> UserDatabase:
        users_file, own_token_file = self._files
        assert users_file is not None, "made without a file of users"
        lines = parse_users_file(_read_text(users_file), str(users_file), by_repository=self._by_repository)
        own = _read_text(own_token_file).strip() if own_token_file is not None else None
        if own == "":
            raise BadUsers(f"{own_token_file}: expected a token, a line of text")
        return UserDatabase(lines, own)


async def list_rights(guard: Authenticator | None, shown: str | None) -> Rights:
    """What these credentials may do. Without ``guard`` every client may do everything. For the errors see
    :meth:`Authenticator.authorize`."""
    if guard is None:
        return ALL_RIGHTS
    return (await guard.authorize(shown, Role.READER, Scope.ANY_REPOSITORY)).rights


def _describe(user: User, about: str | Scope) -> str:
    """What the role is needed for, where the user's roles are for named repositories."""
    if not user.rights.by_repository or about is Scope.ANY_REPOSITORY:
        return ""
    return " of all repositories" if isinstance(about, Scope) else f" of {about[:80]}"


def _read_text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(FILE_BYTES_MAX + 1)
    except OSError as wrong:
        raise BadUsers(f"{file}: {wrong.strerror}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise BadUsers(f"{file}: expected at most {FILE_BYTES_MAX} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise BadUsers(f"{file}: expected text in UTF-8") from None


def parse_basic_credentials(shown: str) -> tuple[str, bytes] | None:
    """Name and password of ``Basic …``; None for any other credentials."""
    scheme, _, coded = shown.partition(" ")
    if scheme.lower() != "basic" or len(shown) > CREDENTIAL_BYTES_MAX:
        return None
    try:
        name, colon, password = base64.b64decode(coded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None
