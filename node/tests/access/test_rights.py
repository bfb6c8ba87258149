"""Rights: roles for all repositories, and for named ones."""

from __future__ import annotations

import pytest

from txlog.auth import BadUsers, Rights, Role, Scope, hash_token, parse_users_file, route_scope
from txlog.auth.rights import REPOSITORIES_MAX, BadRights, parse_rights

READER, WRITER, ADMIN = Role


@pytest.mark.parametrize(
    ("text", "rights"),
    [
        ("reader", Rights(READER)),
        ("reader:stock", Rights(None, (("stock", READER),))),
        ("reader,writer:stock", Rights(READER, (("stock", WRITER),))),
        ("admin:a,reader:B-_1", Rights(None, (("a", ADMIN), ("B-_1", READER)))),
    ],
)
def test_the_text_of_rights(text: str, rights: Rights) -> None:
    assert parse_rights(text, by_repository=True) == rights
    assert rights.label == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "reader, writer or admin"),
        ("owner", "reader, writer or admin"),
        ("Reader", "reader, writer or admin"),
        ("reader,", "reader, writer or admin"),
        (":stock", "reader, writer or admin"),
        ("reader,writer", "one role for all"),
        ("reader:", "the name of a repository"),
        ("reader:*", "the name of a repository"),
        ("reader:a/b", "the name of a repository"),
        ("reader:a:b", "the name of a repository"),
        ("reader:-a", "the name of a repository"),
        ("reader:" + "a" * 64, "the name of a repository"),
        ("reader:System", "not `system`"),
        ("reader:a,writer:a", "each repository once"),
        (",".join(f"reader:r{n}" for n in range(REPOSITORIES_MAX + 1)), f"at most {REPOSITORIES_MAX}"),
    ],
)
def test_a_text_that_names_no_rights(text: str, said: str) -> None:
    with pytest.raises(BadRights, match=said):
        parse_rights(text, by_repository=True)


def test_a_file_that_may_not_name_repositories() -> None:
    line = f"ann reader:stock {hash_token('t')}"
    with pytest.raises(BadUsers, match=r"^u:1: .* is a preview"):
        parse_users_file(line, "u")
    [(user, _)] = parse_users_file(line, "u", by_repository=True)
    assert user.rights == Rights(None, (("stock", READER),))
    with pytest.raises(BadUsers, match=r"^u:2: expected the same role"):
        parse_users_file(f"{line}\nann reader {hash_token('u')}", "u", by_repository=True)


def test_rights_hold_for_what_they_name() -> None:
    of_stock = Rights(None, (("stock", WRITER),))
    assert of_stock.allow(READER, "stock")
    assert of_stock.allow(WRITER, "stock")
    assert not of_stock.allow(ADMIN, "stock")
    assert of_stock.allow(WRITER, Scope.ANY_REPOSITORY)
    assert not of_stock.allow(ADMIN, Scope.ANY_REPOSITORY)
    for about in ("Stock", "stock2", "stoc", "", Scope.CLUSTER):
        assert not of_stock.allow(READER, about), about
    both = Rights(READER, (("stock", WRITER),))
    assert both.allow(READER, "other")
    assert both.allow(READER, Scope.CLUSTER)
    assert both.allow(WRITER, "stock")
    assert not both.allow(WRITER, "other")
    assert not Rights(None).allow(READER, Scope.ANY_REPOSITORY)


def test_what_a_role_has_to_be_about() -> None:
    for path in ("/repositories/{id}/statements", "/rdf4j-server/repositories/{id}/statements"):
        assert route_scope("POST", path, "stock") == "stock"
    assert route_scope("GET", "/txlog/status", "stock") == "stock"
    assert route_scope("GET", "/txlog/watch", "stock") == "stock"
    for path in ("/protocol", "/rdf4j-server/repositories", "/txlog/repositories"):
        assert route_scope("GET", path, None) is Scope.ANY_REPOSITORY
    for method, path in (
        ("GET", "/metrics"),
        ("POST", "/txlog/views"),
        ("PATCH", "/txlog/settings"),
        ("POST", "/txlog/members/{node}/down"),
        ("DELETE", "/repositories/{id}"),
        ("PUT", "/txlog/repositories/{name}"),
        ("GET", "/txlog/something-new"),
    ):
        about = None if path == "/metrics" else "stock"
        assert route_scope(method, path, about) is Scope.CLUSTER, path
