"""``txlog user``: the file of users that masters read, written by hand or by these commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from txlog.auth import (
    BadUsers,
    Rights,
    add_user,
    generate_token,
    hash_password,
    hash_token,
    parse_users_file,
    remove_user,
)
from txlog.auth.rights import BadRights, parse_rights
from txlog.auth.secret_hashes import ScryptHash
from txlog.cli.options import LocalOptions, StateOption, register
from txlog.cli.tables import print_line, print_rows, show_json
from txlog.config.atomic_file import write_atomically
from txlog.config.previews import REPOSITORIES_PREVIEW, is_preview_on
from txlog.local.state_folder import DEFAULT_FOLDER, USERS_FILE, StateFolder
from txlog.model.errors import BadInput

user_app = typer.Typer(
    no_args_is_help=True, help="Manage who may read, write and administer (`security.users` of the manifest)."
)

SecretOption = Annotated[str, typer.Option("--secret", help="the manifest's secretRef.name, in the state folder")]
FileOption = Annotated[Path | None, typer.Option("--file", help="this file instead of one in the state folder")]
DEFAULT_SECRET = "users"


@register(user_app, "add")
def add_user_command(
    name: Annotated[str, typer.Argument(help="letters, digits and . _ @ -")],
    role: Annotated[
        str, typer.Option(help="reader, writer or admin; several repositories: ROLE:REPOSITORY, with commas")
    ],
    token: Annotated[bool, typer.Option("--token", help="create a token and print it once")] = False,
    stdin: Annotated[bool, typer.Option("--password-stdin", help="the password is the first line of stdin")] = False,
    secret: SecretOption = DEFAULT_SECRET,
    file: FileOption = None,
    *,
    local: LocalOptions,
) -> None:
    """Add a password or a token for a name. Running masters use it within two seconds."""
    try:
        rights = parse_rights(role, by_repository=is_preview_on(REPOSITORIES_PREVIEW))
    except BadRights as wrong:
        raise BadInput(f"--role {role}: {wrong}") from None
    if token and stdin:
        raise BadInput("either --token or --password-stdin")
    path = _users_file_path(file, local.state, secret)
    text = _read_users_file(path)
    drawn = generate_token() if token else None
    hashed = hash_token(drawn) if drawn else hash_password(_read_password(stdin))
    _write_users_file(path, add_user(text, name, rights, hashed))
    if local.json:
        show_json({"name": name, "role": role, "file": str(path), **({"token": drawn} if drawn else {})})
    elif drawn:
        typer.echo(drawn)
    else:
        print_line(f"{name} is {role} in {path}")


@register(user_app, "remove")
def remove_user_command(
    name: Annotated[str, typer.Argument(help="the name")],
    secret: SecretOption = DEFAULT_SECRET,
    file: FileOption = None,
    state: StateOption = DEFAULT_FOLDER,
) -> None:
    """Remove all passwords and tokens of a name."""
    path = _users_file_path(file, state, secret)
    _write_users_file(path, remove_user(_read_users_file(path), name))
    print_line(f"{name} is no user any more in {path}")


@register(user_app, "list")
def list_users(
    secret: SecretOption = DEFAULT_SECRET,
    file: FileOption = None,
    *,
    local: LocalOptions,
) -> None:
    """List names and roles, without secrets."""
    path = _users_file_path(file, local.state, secret)
    found: dict[str, tuple[Rights, int, int]] = {}
    for one, hashed in parse_users_file(_read_users_file(path), str(path), by_repository=True):
        _, passwords, tokens = found.get(one.name, (one.rights, 0, 0))
        is_password = isinstance(hashed, ScryptHash)
        found[one.name] = (one.rights, passwords + is_password, tokens + (not is_password))
    rows = [(name, role.label, passwords, tokens) for name, (role, passwords, tokens) in found.items()]
    as_dicts = [dict(zip(("name", "role", "passwords", "tokens"), row, strict=True)) for row in rows]
    print_rows(local.json, as_dicts, ["USER", "ROLE", "PASSWORDS", "TOKENS"], rows, "no users")


def _users_file_path(file: Path | None, state: Path, secret: str) -> Path:
    if file is not None:
        return file
    folder = StateFolder(state)
    folder.prepare()
    path = folder.secret(secret) / USERS_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _read_users_file(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as wrong:
        raise BadUsers(f"{path}: cannot be read: {wrong}") from None


def _write_users_file(path: Path, text: str) -> None:
    """Replace the file atomically; only its owner may read it."""
    try:
        write_atomically(path, text.encode(), 0o600)
    except OSError as wrong:
        raise BadInput(f"{path}: {wrong.strerror}") from None


def _read_password(stdin: bool) -> str:
    if stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    if len(password) < 8:
        raise BadInput("a password has at least 8 characters")
    return str(password)
