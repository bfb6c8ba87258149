"""A transaction of a COMMIT of several that ends or stalls its worker is found by trials that are rolled back."""

from __future__ import annotations

from math import ceil, log2

import msgspec
import pytest
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess
from test_several_effects import add_commit, effect, quad

from txlog.apply import WorkerState, apply_up_to
from txlog.apply.outcome import ApplyOutcome
from txlog.apply.suspect import Fault, Suspect, add_failure, add_prefix_failure, add_survival, find_trial
from txlog.model.entry_effects import encode_effects

ENDED, STALLED = Fault.ENDED, Fault.STALLED
PATTERNS = " ".join(f"?s <urn:p{n}> ?o{n} ." for n in range(10_000))
ENDS = f"DELETE {{ ?s <urn:k> ?o }} WHERE {{ {PATTERNS} ?s <urn:k> ?o }}"
"""Oxigraph overflows its stack."""
FAILURES_MAX = 12


def search(count: int, harmful: int, fault: Fault) -> tuple[Suspect, int]:
    """As the sessions of an applier: what is known at the verdict, and the number of failures."""
    txids = [f"t{number}" for number in range(count)]
    known = add_prefix_failure(None, 4, 5, txids, count, fault, 0.0)
    failures = 1
    while known.verdict is None:
        prefix = find_trial(known, count)
        assert prefix is not None, "the whole is not sent before there is a verdict"
        if prefix > harmful:
            known = add_prefix_failure(known, 4, 5, txids, prefix, fault, 0.0)
            failures += 1
        else:
            known = add_survival(known, prefix)
    return known, failures


@pytest.mark.parametrize("fault", [ENDED, STALLED])
@pytest.mark.parametrize("count", [2, 3, 7, 500])
def test_each_place_is_found_with_few_failures(count: int, fault: Fault) -> None:
    for harmful in {0, 1, count // 2, count - 1}:
        known, failures = search(count, harmful, fault)
        assert (known.txid, known.verdict) == (f"t{harmful}", fault)
        assert failures <= ceil(log2(count)) + 3


def test_the_evidence_is_that_of_a_transaction_alone() -> None:
    """Three closed connections, two of them with nothing before it that the worker had not survived."""
    whole = add_prefix_failure(None, 4, 5, ["a", "b"], 2, ENDED, 0.0)
    assert (whole.txid, whole.verdict, find_trial(whole, 2)) == ("", None, 1)
    behind = add_survival(whole, 1)
    once = add_prefix_failure(behind, 4, 5, ["a", "b"], 2, ENDED, 0.0)
    assert (once.txid, once.verdict, find_trial(once, 2)) == ("b", None, 2)
    twice = add_prefix_failure(once, 4, 5, ["a", "b"], 2, ENDED, 0.0)
    assert (twice.txid, twice.verdict, find_trial(twice, 2)) == ("b", ENDED, None)


def test_a_prefix_that_failed_once_and_is_answered_ends_the_search() -> None:
    whole = add_prefix_failure(None, 4, 5, ["a", "b"], 2, ENDED, 0.0)
    once = add_prefix_failure(add_survival(whole, 1), 4, 5, ["a", "b"], 2, ENDED, 0.0)
    over = add_survival(once, 2)
    assert (over.txid, over.ended_alone, find_trial(over, 2)) == ("", 0, None)


def test_a_repetition_after_the_verdict_counts_for_the_same_one() -> None:
    known, _ = search(5, 1, ENDED)
    again = add_prefix_failure(known, 4, 5, [f"t{number}" for number in range(5)], 5, ENDED, 200.0)
    assert (again.txid, again.verdict, again.judged_at) == ("t1", ENDED, 200.0)


def test_an_entry_with_other_transactions_is_sent_as_it_is() -> None:
    """One of them is skipped since."""
    known, _ = search(5, 1, ENDED)
    assert find_trial(known._replace(ended=0), 4) is None


def test_nothing_is_tried_before_a_commit_alone_has_failed() -> None:
    """Of a batch with several entries, also those without operations are sent as they are."""
    batch = add_failure(None, 0, 5, "", STALLED, 0.0)
    assert [find_trial(batch, count) for count in (0, 1, 3)] == [None, None, None]


def follow(worker: OxigraphProcess, log: MemoryLog, suspect: Suspect | None = None) -> ApplyOutcome:
    """Until the worker is blocked or done; it is started again whenever it has ended. A lock of a request that was lost
    is taken over at once."""
    done = apply_up_to(ADAPTER, worker.transport, log, log.end, takeover_s=0.0, suspect=suspect)
    for _ in range(FAILURES_MAX):
        if done.state is WorkerState.UNREACHABLE:
            worker.kill()
            worker.start()
        elif done.state is not WorkerState.WORKING or done.error is None:
            break
        known = {"suspect": done.suspect, "held": done.foreign_lock}
        done = apply_up_to(ADAPTER, worker.transport, log, log.end, takeover_s=0.0, **known)  # type: ignore[arg-type]
    return done


@pytest.mark.parametrize("harmful", [0, 2])
def test_the_others_take_effect_once_the_harmful_one_is_skipped(worker: OxigraphProcess, harmful: int) -> None:
    log = MemoryLog()
    log.update("INSERT DATA { <urn:s> <urn:k> 1 }")
    texts = [quad("a"), quad("b"), quad("c")]
    texts[harmful] = ENDS
    add_commit(log, *texts)
    found = follow(worker, log)
    assert (found.state, found.refused and found.refused.status) == (WorkerState.BLOCKED, None)
    assert found.refused is not None
    assert (found.refused.index, found.refused.txid) == (2, effect(harmful + 1, "").txid)
    assert (found.position and found.position.position) == log.position(1)
    assert len(worker.quads()) == 1, "nothing of the COMMIT is there, also of what was tried"
    kept = [effect(seq, text) for seq, text in enumerate(texts, 1) if seq != harmful + 1]
    log.entries[1] = msgspec.structs.replace(log.entries[1], payload=encode_effects(kept))
    done = follow(worker, log, found.suspect)
    assert (done.state, len(worker.quads())) == (WorkerState.WORKING, 3)
    assert done.suspect is None
