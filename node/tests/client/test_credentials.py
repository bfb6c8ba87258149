"""What a client shows: the token of a file, as it is now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_master import Handler, ScriptedMaster, scripted_master

from txlog.client import MasterClient, WriteRequest
from txlog.client.credentials import TOKEN_FILE, Credentials
from txlog.client.errors import parse_error
from txlog.model.errors import Forbidden, Unauthorized


@pytest.fixture
def master() -> Iterator[ScriptedMaster]:
    with scripted_master() as master:
        yield master


@pytest.fixture
def shown(master: ScriptedMaster) -> list[str | None]:
    """What each request to ``/metrics`` and each of many lines brought."""
    found: list[str | None] = []

    def look(handler: Handler) -> None:
        found.append(handler.headers.get("Authorization"))
        if handler.headers.get("Transfer-Encoding") == "chunked":
            for _ in handler.lines_in():
                pass
        handler.answer(200, b"")

    master.answers["GET", "/metrics"] = master.answers["POST", "/txlog/transactions"] = look
    return found


def test_nothing_is_shown_unless_a_file_is_named(
    master: ScriptedMaster, shown: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_FILE, raising=False)
    with MasterClient(master.url, 5) as client:
        client.metrics()
    assert shown == [None]


def test_the_token_of_the_file_and_the_next_one(
    master: ScriptedMaster, shown: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    monkeypatch.setenv(TOKEN_FILE, str(file))
    with MasterClient(master.url, 5) as client:
        client.metrics()
        list(client.submit([WriteRequest(update="x")]))
        file.write_text("the second one".replace(" ", "-"))
        client.metrics()
    assert shown == ["Bearer first", "Bearer first", "Bearer the-second-one"]


@pytest.mark.parametrize("text", [None, "", "two words", "line\nline", "ü"])
def test_a_file_without_a_token_is_said_before_anything_is_sent(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Unauthorized, match=f"{TOKEN_FILE}=") as refused:
        Credentials(file).headers()
    assert "two words" not in str(refused.value)


def test_refusals_are_told_apart() -> None:
    assert type(parse_error("u", 401, {}, b"wrong\n")) is Unauthorized
    assert type(parse_error("u", 403, {}, b'{"error":"Forbidden","message":"needs admin"}')) is Forbidden
    assert type(parse_error("u", 403, {}, b"needs admin\n")) is Forbidden
