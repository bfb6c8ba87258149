"""What ``make test-clients`` says of the clients that it ran, and of those that it did not."""

from __future__ import annotations

import pytest

from e2e.conformance.foreign_clients import ClientCheck, ClientUnavailable, exit_code, run_all, summary


def _passes(url: str, repository: str) -> None:
    assert (url, repository) == ("http://master", "catalogue")


def _fails(_url: str, _repository: str) -> None:
    raise AssertionError("the answer: 1 instead of 2")


def _is_not_here(_url: str, _repository: str) -> None:
    raise ClientUnavailable("no such program")


@pytest.mark.parametrize(
    ("clients", "counts", "code", "code_with_skips"),
    [
        ({"a": _passes}, (1, 0, 0), 0, 0),
        ({"a": _passes, "b": _fails}, (1, 1, 0), 1, 1),
        ({"a": _passes, "b": _is_not_here}, (1, 0, 1), 1, 0),
        ({"a": _is_not_here}, (0, 0, 1), 1, 1),
        ({}, (0, 0, 0), 1, 1),
    ],
)
def test_a_client_that_was_not_run_has_not_passed(
    clients: dict[str, ClientCheck], counts: tuple[int, int, int], code: int, code_with_skips: int
) -> None:
    told = summary(run_all("http://master", "catalogue", clients, "uk"))
    assert (told["passed"], told["failed"], told["skipped"]) == counts
    assert list(told["clients"]) == [f"{name} at uk" for name in clients]
    assert exit_code(told, skips_are_fine=False) == code
    assert exit_code(told, skips_are_fine=True) == code_with_skips


def test_a_verdict_says_why() -> None:
    told = run_all("http://master", "catalogue", {"b": _fails, "c": _is_not_here})
    assert told == {"b": "failed: AssertionError: the answer: 1 instead of 2", "c": "skipped: no such program"}
