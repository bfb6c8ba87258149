"""The users file: a line for each secret, ``NAME ROLE HASH``; ``#`` begins a comment. ``ROLE``: see
:mod:`txlog.auth.rights`.

A name may have several lines. A new password or token is thus valid together with the old one until every client has
it. Errors name the line and never its content.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from txlog.auth.rights import ALL_RIGHTS, BadRights, Rights, parse_rights
from txlog.auth.roles import Role
from txlog.auth.secret_hashes import DUMMY_HASH, ScryptHash, Sha256Hash, parse_hash, token_digest
from txlog.model.errors import BadInput, NotFound

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
INTERNAL_USER: Final = "txlog"
"""The user of TxLog's own processes: pipeline, supervisor, duties, command line."""
LINES_MAX: Final = 10_000


class BadUsers(BadInput):
    """A users file that is not valid. The message names file and line, and the expectation."""


class User(NamedTuple):
    """A user and its rights."""

    name: str
    rights: Rights


class UserDatabase:
    """The users of one file, and TxLog's own token."""

    def __init__(self, lines: Iterable[tuple[User, ScryptHash | Sha256Hash]], own_token: str | None = None) -> None:
        self.passwords: dict[str, list[tuple[User, ScryptHash]]] = {}
        self._tokens: list[tuple[User, bytes]] = []
        for user, secret in lines:
            if isinstance(secret, ScryptHash):
                self.passwords.setdefault(user.name, []).append((user, secret))
            else:
                self._tokens.append((user, secret.digest))
        if own_token is not None:
            self._tokens.append((User(INTERNAL_USER, ALL_RIGHTS), token_digest(own_token)))

    def authenticate_token(self, token: str) -> User | None:
        """The user with this token. Every token is compared, so that the time reveals nothing."""
        given, found = token_digest(token), None
        for user, digest in self._tokens:
            if hmac.compare_digest(digest, given):
                found = user
        return found

    def authenticate_password(self, name: str, password: bytes) -> User | None:
        """The user with this name and password. Slow on purpose, and as slow for an unknown name: call it in a
        thread."""
        found = None
        for user, hashed in self.passwords.get(name, [(User("", Rights(None)), DUMMY_HASH)]):
            if hashed.matches(password) and user.name:
                found = user
        return found


def parse_users_file(
    text: str, where: str, *, by_repository: bool = False
) -> list[tuple[User, ScryptHash | Sha256Hash]]:
    """The lines of a file; ``where`` names it in errors. ``by_repository``: whether roles may name a repository.
    :class:`BadUsers` for the first line that is not valid."""
    found: list[tuple[User, ScryptHash | Sha256Hash]] = []
    known: dict[str, Rights] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        at = f"{where}:{number}"
        if len(words) != 3:
            raise BadUsers(f"{at}: expected NAME ROLE HASH, as txlog user add writes them")
        name, word, hashed = words
        if not NAME_PATTERN.fullmatch(name) or name == INTERNAL_USER:
            raise BadUsers(
                f"{at}: expected a name of letters, digits and . _ @ - (at most 64), other than {INTERNAL_USER}"
            )
        try:
            rights = parse_rights(word, by_repository=by_repository)
        except BadRights as wrong:
            raise BadUsers(f"{at}: {wrong}") from None
        secret = parse_hash(hashed)
        if secret is None:
            raise BadUsers(f"{at}: expected a hash, $scrypt$… of a password or $sha256$… of a token (txlog user add)")
        if known.setdefault(name, rights) != rights:
            raise BadUsers(f"{at}: expected the same role in every line of that name")
        found.append((User(name, rights), secret))
        if len(found) > LINES_MAX:
            raise BadUsers(f"{at}: expected at most {LINES_MAX} lines")
    return found


def add_user(text: str, name: str, rights: Role | Rights, hashed: str) -> str:
    """The file with one more line. :class:`BadUsers` if the result would not be valid."""
    more = f"{text.rstrip()}\n{name} {rights.label} {hashed}\n".lstrip("\n")
    parse_users_file(more, "users", by_repository=True)
    return more


def remove_user(text: str, name: str) -> str:
    """The file without the lines of that name. :class:`NotFound` if there are none."""
    lines = text.splitlines(keepends=True)
    kept = [line for line in lines if line.split("#", 1)[0].split()[:1] != [name]]
    if len(kept) == len(lines):
        raise NotFound(f"no user is called {name}")
    return "".join(kept)
