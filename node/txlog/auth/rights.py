"""What a user may do: a role for the whole cluster, or roles for named repositories only.

Text, as in the users file: ``reader``, or ``reader:stock``, or several of them with commas (``reader,writer:stock``).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from txlog.auth.roles import Role
from txlog.config.repository_names import is_repository_name

ROLES_BY_NAME: Final = {role.label: role for role in Role}
REPOSITORIES_MAX: Final = 16
"""Repositories that one user's rights name; a cluster has no more."""


class Scope(Enum):
    """What a route is about, where that is no single repository."""

    CLUSTER = auto()
    """All repositories, or the cluster itself: a role for named repositories is not enough."""
    ANY_REPOSITORY = auto()
    """The role for one repository is enough, whichever it is."""


class Rights(NamedTuple):
    """``everywhere``: the role for all repositories and the cluster itself; None: no such role. ``by_repository``: name
    and role, which adds to ``everywhere``."""

    everywhere: Role | None
    by_repository: tuple[tuple[str, Role], ...] = ()

    def allow(self, role: Role, about: str | Scope) -> bool:
        """Whether they include this role for a repository, by its exact name, or for another scope."""
        if self.everywhere is not None and self.everywhere >= role:
            return True
        return about is not Scope.CLUSTER and any(
            have >= role and about in (Scope.ANY_REPOSITORY, name) for name, have in self.by_repository
        )

    @property
    def label(self) -> str:
        """The text of these rights."""
        words = [] if self.everywhere is None else [self.everywhere.label]
        return ",".join([*words, *(f"{role.label}:{name}" for name, role in self.by_repository)])


ALL_RIGHTS: Final = Rights(Role.ADMIN)


class BadRights(ValueError):
    """A text that names no rights; the message says what is expected."""


def parse_rights(text: str, *, by_repository: bool) -> Rights:
    """The rights of a text. ``by_repository``: whether roles may name a repository. :class:`BadRights` if it is not
    valid."""
    everywhere: Role | None = None
    named: dict[str, Role] = {}
    for word in text.split(","):
        label, colon, repository = word.partition(":")
        role = ROLES_BY_NAME.get(label)
        if role is None:
            raise BadRights("expected reader, writer or admin behind the name")
        if not colon:
            if everywhere is not None:
                raise BadRights("expected one role for all repositories, and others as ROLE:REPOSITORY")
            everywhere = role
            continue
        if not by_repository:
            raise BadRights("expected a role for all repositories: one for a named repository is a preview")
        if not is_repository_name(repository):
            raise BadRights("expected ROLE:REPOSITORY with the name of a repository, not `system`")
        if repository in named:
            raise BadRights("expected each repository once")
        named[repository] = role
    if len(named) > REPOSITORIES_MAX:
        raise BadRights(f"expected at most {REPOSITORIES_MAX} repositories")
    return Rights(everywhere, tuple(named.items()))
