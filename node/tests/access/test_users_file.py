"""The file of users, and what stands in it in place of secrets."""

from __future__ import annotations

import pytest

from txlog.auth import (
    BadUsers,
    Rights,
    Role,
    UserDatabase,
    add_user,
    generate_token,
    hash_password,
    hash_token,
    parse_users_file,
    remove_user,
    secret_hashes,
)
from txlog.auth.secret_hashes import ScryptHash, parse_hash
from txlog.model.errors import NotFound

TOKEN = generate_token()
QUICK = "$scrypt$ln=1,r=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$" + "A" * 43


def test_a_password_fits_its_hash_alone() -> None:
    made = hash_password("pässword one")
    assert made != hash_password("pässword one"), "the salt is drawn"
    assert made.startswith("$scrypt$ln=14,r=8,p=5$")
    found = parse_hash(made)
    assert isinstance(found, ScryptHash)
    assert found.matches("pässword one".encode())
    assert not found.matches(b"password one")


def test_users_by_token_and_password() -> None:
    text = add_user(add_user("", "ann", Role.WRITER, hash_token(TOKEN)), "ann", Role.WRITER, hash_password("secret 1"))
    users = UserDatabase(parse_users_file(text, "users"), own_token="own")
    assert users.authenticate_token(TOKEN) == ("ann", Rights(Role.WRITER))
    assert users.authenticate_token("own") == ("txlog", Rights(Role.ADMIN))
    assert users.authenticate_token("") is None
    assert users.authenticate_token(TOKEN[:-1]) is None
    assert users.authenticate_password("ann", b"secret 1") == ("ann", Rights(Role.WRITER))
    assert users.authenticate_password("ann", b"secret 2") is None
    assert UserDatabase([]).authenticate_token("") is None


def test_a_name_that_is_not_there_costs_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[tuple[int, int, int]] = []

    def counted(password: bytes, log2_n: int, r: int, p: int, salt: bytes) -> bytes:
        costs.append((log2_n, r, p))
        return bytes(32)

    users = UserDatabase(parse_users_file(f"ann reader {hash_password('secret 1')}", "users"))
    monkeypatch.setattr(secret_hashes, "_derive_key", counted)
    users.authenticate_password("ann", b"guess")
    assert users.authenticate_password("nobody", b"guess") is None, "although it fits the hash of nobody"
    assert costs[0] == costs[1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ann reader", "NAME ROLE HASH"),
        (f"ann reader {QUICK} more", "NAME ROLE HASH"),
        (f"ann owner {QUICK}", "reader, writer or admin"),
        (f"a:b reader {QUICK}", "a name of letters"),
        (f"txlog admin {QUICK}", "other than txlog"),
        ("ann reader plain-secret-1", "expected a hash"),
        ("ann reader $sha256$" + "g" * 64, "expected a hash"),
        ("ann reader " + QUICK.replace("ln=1", "ln=18"), "expected a hash"),
        ("ann reader " + QUICK.replace("ln=1,r=1", "ln=17,r=64"), "expected a hash"),
        ("ann reader " + QUICK.replace("p=1", "p=17"), "expected a hash"),
        ("ann reader " + QUICK[:-1], "expected a hash"),
        (f"ann reader {QUICK}\nann admin {QUICK}", "the same role"),
    ],
)
def test_what_is_wrong_is_named_by_its_line_and_not_repeated(line: str, said: str) -> None:
    with pytest.raises(BadUsers) as refused:
        parse_users_file(f"# remark\n\n{line}\n", "the-file")
    assert f"the-file:{3 + line.count(chr(10))}: " in str(refused.value)
    assert said in str(refused.value)
    assert "plain-secret-1" not in str(refused.value)
    assert "MDEyMzQ1Njc4OWFiY2RlZg" not in str(refused.value)


def test_lines_come_and_go() -> None:
    text = add_user("# ours\n", "ann", Role.ADMIN, QUICK)
    text = add_user(text, "bob", Role.READER, QUICK)
    assert text == f"# ours\nann admin {QUICK}\nbob reader {QUICK}\n"
    assert remove_user(text, "ann") == f"# ours\nbob reader {QUICK}\n"
    with pytest.raises(NotFound):
        remove_user(text, "an")
    with pytest.raises(BadUsers, match="the same role"):
        add_user(text, "ann", Role.READER, QUICK)
