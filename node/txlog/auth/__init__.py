"""Authorisation at a master's HTTP API: users and their rights, the users file, the role that each route needs, and the
detection of cross-site requests.

Pure: no clock, no network. :mod:`txlog.auth.authenticator` reads the file and authenticates the requests.
"""

from txlog.auth.csrf import is_cross_site
from txlog.auth.rights import ALL_RIGHTS, Rights, Scope
from txlog.auth.roles import Role
from txlog.auth.route_roles import is_known_route, required_role, route_scope
from txlog.auth.secret_hashes import generate_token, hash_password, hash_token
from txlog.auth.users_file import BadUsers, User, UserDatabase, add_user, parse_users_file, remove_user

__all__ = [
    "ALL_RIGHTS",
    "BadUsers",
    "Rights",
    "Role",
    "Scope",
    "User",
    "UserDatabase",
    "add_user",
    "generate_token",
    "hash_password",
    "hash_token",
    "is_cross_site",
    "is_known_route",
    "parse_users_file",
    "remove_user",
    "required_role",
    "route_scope",
]
