"""Who stands at the door: credentials of a request to a user, and whether that user's role is enough.

A token is compared at once. A password costs some 250 ms of scrypt in a thread of its own, one at a time, so it is
asked once: who showed the right one is known for :data:`KNOWN_S`, by a keyed hash of what was shown. Files are looked
at again, at most every :data:`LOOK_S`, with the next request; when one has changed, nobody is known any more.
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

from txlog.access import BadUsers, Role, User, Users, parse_users
from txlog.model.errors import Forbidden, Unauthorized, Unavailable
from txlog.runtime.events import EventLog
from txlog.runtime.marks import marks_of

LOOK_S: Final = 1.0
KNOWN_S: Final = 300.0
KNOWN_MAX: Final = 1000
WAITING_MAX: Final = 16
"""Passwords that wait for their scrypt, some 0.25 s each: one more is answered 503."""
SHOWN_MAX: Final = 4096
"""A longer header is nobody's."""
FILE_BYTES_MAX: Final = 4 << 20


class Guard:
    """Of one master. ``users_file``: as :mod:`txlog.access.users` reads it; ``own_token_file``: what TxLog's own
    processes show. :class:`BadUsers` when one cannot be read at the start; later what was read before counts on, and
    the log says so."""

    def __init__(
        self,
        users_file: Path,
        own_token_file: Path | None,
        log: EventLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = (users_file, own_token_file)
        self._log = log
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, tuple[float, User]] = {}
        self._asking: dict[bytes, asyncio.Future[User | None]] = {}
        self._pool = ThreadPoolExecutor(1, "txlog-passwords")
        self._marks = marks_of(self._files)
        self._users = self._read()
        self._looked = clock()

    # At the door

    async def admit(self, shown: str | None, role: Role) -> User:
        """Who showed this (the header ``Authorization``), when that is enough. :class:`Unauthorized` without or with
        wrong credentials, :class:`Forbidden` for a lesser role, :class:`Unavailable` while too many ask at once."""
        if shown is None:
            raise Unauthorized("this master wants to know who asks: send a password (Basic) or a token (Bearer)")
        user = self.known(shown)
        if user is None:
            user = await self._ask(shown)
        if user is None:
            self._log.limited("WrongCredentials", "", message="somebody showed a wrong password or token")
            raise Unauthorized("wrong name, password or token")
        if user.role < role:
            raise Forbidden(f"{user.name} is {user.role.word}; this needs {role.word}")
        return user

    def may_write(self, shown: str | None) -> bool:
        """Whether it is sure without waiting that this one may; False for whom :meth:`admit` must ask."""
        if shown is None:
            return False
        user = self.known(shown)
        return user is not None and user.role >= Role.WRITER

    def known(self, shown: str) -> User | None:
        """Who this is, as far as it can be said at once: by a token, or a password that was right lately."""
        now = self._clock()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._look_again()
        if len(shown) > SHOWN_MAX:
            return None
        mark = self._mark(shown)
        seen = self._known.get(mark)
        if seen is not None:
            if now < seen[0]:
                return seen[1]
            del self._known[mark]
        scheme, _, token = shown.partition(" ")
        if scheme.lower() != "bearer":
            return None
        user = self._users.of_token(token.strip())
        if user is not None:
            self._remember(mark, user)
        return user

    async def _ask(self, shown: str) -> User | None:
        """By a password; None when it is wrong, or nothing of the kind was shown."""
        pair = basic_of(shown)
        if pair is None:
            return None
        mark = self._mark(shown)
        asking = self._asking.get(mark)
        if asking is None:
            if len(self._asking) >= WAITING_MAX:
                raise Unavailable("TooManyLogins", "many passwords are being checked; ask again, or show a token")
            users = self._users
            loop = asyncio.get_running_loop()
            asking = self._asking[mark] = loop.run_in_executor(self._pool, users.of_password, *pair)
            asking.add_done_callback(lambda done: self._asked(mark, users, done))
        return await asyncio.shield(asking)

    def _asked(self, mark: bytes, users: Users, done: asyncio.Future[User | None]) -> None:
        self._asking.pop(mark, None)
        if done.cancelled() or done.exception() is not None:
            return
        user = done.result()
        if user is not None and users is self._users:  # else the file has changed meanwhile
            self._remember(mark, user)

    def _mark(self, shown: str) -> bytes:
        return blake2b(shown.encode("utf-8", "replace"), digest_size=16, key=self._key).digest()

    def _remember(self, mark: bytes, user: User) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[mark] = (self._clock() + KNOWN_S, user)

    # The files

    def _look_again(self) -> None:
        marks = marks_of(self._files)
        if marks == self._marks:
            return
        self._marks = marks
        try:
            self._users = self._read()
        except BadUsers as wrong:
            self._log.error("UsersNotRead", message=f"{wrong}; the users of before count on")
            return
        self._known.clear()
        self._log.info("UsersRead")

    def _read(self) -> Users:
        users_file, own_token_file = self._files
        assert users_file is not None, "made without a file of users"
        lines = parse_users(_text(users_file), str(users_file))
        own = _text(own_token_file).strip() if own_token_file is not None else None
        if own == "":
            raise BadUsers(f"{own_token_file}: expected a token, a line of text")
        return Users(lines, own)


def _text(file: Path) -> str:
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


def basic_of(shown: str) -> tuple[str, bytes] | None:
    """Name and password of ``Basic …``; None when it is something else."""
    scheme, _, coded = shown.partition(" ")
    if scheme.lower() != "basic" or len(shown) > SHOWN_MAX:
        return None
    try:
        name, colon, password = base64.b64decode(coded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None
