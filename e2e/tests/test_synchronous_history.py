"""The judge of what clients were answered about synchronous writes."""

from __future__ import annotations

import pytest

from e2e.lib.synchronous_history import Attempt, LoggedEffect, Told, judge_synchronous

LOG = [LoggedEffect(1, "t1", "a"), LoggedEffect(2, "t2", "b")]
HASHES = {1: "h1", 2: "h2"}


def findings(*attempts: Attempt, log: list[LoggedEffect] = LOG, **final: list[str]) -> set[str]:
    judged = judge_synchronous(attempts, log, HASHES, final)
    assert judged.is_clean is not any(vars(judged).values())
    return {kind for kind, texts in vars(judged).items() if texts}


@pytest.mark.parametrize(
    "attempt",
    [
        Attempt("a", "uk-1", Told.COMMITTED, "t1", (1, "h1")),
        Attempt("a", "uk-1", Told.PENDING, "t1"),
        Attempt("a", "uk-1", Told.UNKNOWN),
        Attempt("c", "uk-1", Told.REFUSED),
        Attempt("c", "uk-1", Told.ROLLED_BACK, "t3"),
        Attempt("c", "uk-1", Told.PENDING, "t3"),
    ],
)
def test_what_agrees(attempt: Attempt) -> None:
    assert findings(attempt, t1=["committed"], t3=["rolled-back", "rolled-back"]) == set()


@pytest.mark.parametrize(
    ("attempt", "kind"),
    [
        (Attempt("c", "uk-1", Told.COMMITTED, "t3"), "contradictions"),
        (Attempt("a", "uk-1", Told.ROLLED_BACK, "t1"), "contradictions"),
        (Attempt("a", "uk-1", Told.REFUSED), "logged_though_refused"),
        (Attempt("c", "uk-1", Told.ROLLED_BACK, "t3", is_minority=True), "rolled_back_by_minority"),
        (Attempt("a", "uk-1", Told.COMMITTED, "t1", (1, "other")), "moved"),
        (Attempt("a", "uk-1", Told.COMMITTED, "t1", (9, "h9")), "moved"),
    ],
)
def test_what_does_not(attempt: Attempt, kind: str) -> None:
    assert findings(attempt) == {kind}


def test_executed_twice() -> None:
    assert findings(log=[*LOG, LoggedEffect(3, "t4", "a")]) == {"executed_twice"}
    assert findings(log=[*LOG, LoggedEffect(3, "t4", ""), LoggedEffect(4, "t5", "")]) == set()


@pytest.mark.parametrize("states", [["rolled-back"], ["committed", "rolled-back"], ["pending"]])
def test_masters_that_disagree_with_the_log_in_the_end(states: list[str]) -> None:
    assert findings(t1=states) == {"contradictions"}
    assert findings(t3=["pending"]) == {"contradictions"}


def test_a_rolled_back_try_beside_one_that_took_effect() -> None:
    """Under one key: the first try was rolled back, and another one committed."""
    tries = [Attempt("a", "uk-1", Told.ROLLED_BACK, "t0"), Attempt("a", "uk-2", Told.COMMITTED, "t1", (1, "h1"))]
    assert findings(*tries) == set()


def test_a_committed_try_that_repeats_the_key_of_another_one() -> None:
    tries = [Attempt("a", "uk-1", Told.PENDING, "t0"), Attempt("a", "uk-2", Told.COMMITTED, "t1")]
    assert findings(*tries, t0=["committed"], t1=["committed"]) == set()
    assert findings(*tries, t0=["committed", "rolled-back"]) == {"contradictions"}
    assert findings(Attempt("c", "uk-1", Told.PENDING, "t3"), t3=["committed"]) == {"contradictions"}
