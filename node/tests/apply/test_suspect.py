"""What it takes before a transaction is said to end or stall a worker."""

from __future__ import annotations

from typing import Any

import pytest
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import apply_up_to
from txlog.apply.suspect import ANNOUNCE_S, RETRY_S, TRIAL_S, Fault, Suspect, add_failure
from txlog.workers.adapter import RequestOutcome, Unreachable, WorkerRequest, WorkerResponse

NOW = 1000.0


def after(*failures: tuple[int, int, str, Fault]) -> Suspect:
    found: Suspect | None = None
    for at, last, txid, fault in failures:
        found = add_failure(found, at, last, txid, fault, NOW)
    assert found is not None
    return found


ENDED, STALLED = Fault.ENDED, Fault.STALLED


def test_three_ends_are_a_verdict_and_two_of_them_alone() -> None:
    alone = (4, 5, "t5", ENDED)
    assert after(alone, alone).verdict is None
    assert after(alone, alone, alone).verdict is ENDED
    assert after((4, 9, "", ENDED), alone, alone).verdict is ENDED
    assert after((0, 9, "", ENDED), (0, 9, "", ENDED), alone).verdict is None
    assert after((0, 9, "", ENDED), (0, 9, "", ENDED), (0, 9, "", ENDED)).verdict is None


def test_two_stalls_are_a_verdict_and_the_last_one_alone() -> None:
    assert after((4, 5, "t5", STALLED)).verdict is None
    assert after((4, 5, "t5", STALLED), (4, 5, "t5", STALLED)).verdict is STALLED
    assert after((0, 9, "", STALLED), (4, 5, "t5", STALLED)).verdict is STALLED
    assert after((0, 9, "", STALLED), (0, 9, "", STALLED)).verdict is None
    assert after((4, 5, "t5", STALLED), (4, 5, "t5", ENDED)).verdict is None


def test_another_transaction_begins_anew() -> None:
    """Of a batch that failed, the transactions before the harmful one have moved the worker."""
    assert after((4, 5, "t5", ENDED), (4, 5, "t5", ENDED), (5, 6, "t6", ENDED)).verdict is None
    assert after((4, 5, "t5", STALLED), (5, 6, "t6", STALLED)).verdict is None
    assert after((4, 5, "t5", ENDED), (4, 5, "t5", ENDED), (4, 5, "u5", ENDED)).verdict is None, "another branch"


def test_a_request_without_an_answer_is_running_and_one_that_was_closed_is_not() -> None:
    assert after((4, 5, "t5", STALLED)).running_since == NOW
    assert after((4, 5, "t5", STALLED), (4, 5, "t5", ENDED)).running_since == 0


def test_what_is_reported_at_which_time() -> None:
    trial = after((4, 5, "t5", ENDED))
    assert trial.reported_fault(NOW) == "suspected"
    assert trial.reported_fault(NOW + TRIAL_S) is None
    judged = after(*[(4, 5, "t5", ENDED)] * 3)
    assert judged.reported_fault(NOW + TRIAL_S) == "ended"
    assert judged.is_held(NOW + RETRY_S - 0.1)
    assert not judged.is_held(NOW + RETRY_S)
    assert judged.reported_fault(NOW + RETRY_S - ANNOUNCE_S) == "suspected", "no skip is decided while it runs again"
    again = add_failure(judged, 4, 5, "t5", ENDED, NOW + RETRY_S)
    assert again.reported_fault(NOW + RETRY_S) == "ended"


class Closing:
    """Closes the connection at the poison."""

    def __init__(self, worker: OxigraphProcess) -> None:
        self._inner = worker.transport
        self.url = self._inner.url
        self.closed = 0

    def send(self, request: WorkerRequest) -> WorkerResponse:
        if b"urn:poison" not in request.body:
            return self._inner.send(request)
        self.closed += 1
        raise Unreachable(self._inner.url, "no answer", RequestOutcome.UNKNOWN)

    def settled(self) -> bool:
        return True


@pytest.mark.parametrize("ended_min", [2, 3, 6])
def test_a_manifest_says_how_many_ends_are_a_verdict(worker: OxigraphProcess, ended_min: int) -> None:
    log, closing = MemoryLog(), Closing(worker)
    log.add("<urn:poison> <urn:p> <urn:o> .")
    told: dict[str, Any] = {"ended_min": ended_min, "takeover_s": 0.0}  # the lock of a lost request ends with it
    done = apply_up_to(ADAPTER, closing, log, 1, **told)
    while closing.closed < 2 * ended_min and (done.suspect is None or done.suspect.verdict is None):
        done = apply_up_to(ADAPTER, closing, log, 1, held=done.foreign_lock, suspect=done.suspect, **told)
    found = done.suspect
    assert found is not None
    assert (found.verdict, closing.closed) == (ENDED, ended_min)
