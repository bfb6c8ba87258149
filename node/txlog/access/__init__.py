"""Who may do what at a master's door: users and their roles, the file they stand in, what each route needs,
and which requests are none of a user's own.

Pure: no clock, no network. :mod:`txlog.runtime.guard` reads the file and stands at the door.
"""

from txlog.access.hashing import draw_token, hash_password, hash_token
from txlog.access.origin import is_foreign
from txlog.access.roles import Role
from txlog.access.rules import is_listed, needed
from txlog.access.users import OWN_NAME, BadUsers, User, Users, parse_users, with_user, without_user

__all__ = [
    "OWN_NAME",
    "BadUsers",
    "Role",
    "User",
    "Users",
    "draw_token",
    "hash_password",
    "hash_token",
    "is_foreign",
    "is_listed",
    "needed",
    "parse_users",
    "with_user",
    "without_user",
]
