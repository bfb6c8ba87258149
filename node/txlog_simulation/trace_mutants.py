"""Safeguards of traces, one each taken out. Imports nothing of ``txlog``. A test of the room kills each."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_TRACES = "txlog/runtime/transaction_traces.py"
_CONTEXT = "txlog/telemetry/trace_context.py"
_TESTS = "node/tests/server/test_traces_of_transactions.py"
_HEADERS = "node/tests/telemetry/test_trace_context.py"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"traces-{name}", "traces", False, (SourceEdit(file, old, new),), test=test)


TRACE_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "ignore-the-clients-decision",
        "txlog/telemetry/tracer.py",
        "return parent.is_sampled if parent is not None else ",
        "return ",
        f"{_TESTS}::test_what_is_not_recorded",
    ),
    _mutant(
        "are-not-announced",
        _TRACES,
        "        if accepted:\n            self._announce(accepted)\n",
        "",
        f"{_TESTS}::test_a_transaction_of_a_client_with_a_trace",
    ),
    _mutant(
        "record-a-repeat-again",
        _TRACES,
        "            followed.waiting = []\n            return None\n",
        "            return None\n",
        f"{_TESTS}::test_a_refused_transaction",
    ),
    _mutant(
        "wait-for-a-lost-collector",
        "txlog/telemetry/tracer.py",
        "closing.join(CLOSE_TIMEOUT_S)",
        "closing.join()",
        f"{_TESTS}::test_a_collector_that_is_away_delays_nothing",
    ),
    _mutant(
        "end-the-master",
        _TRACES,
        "        try:\n            self._advance()\n"
        "        except Exception as error:  # noqa: BLE001 - see the class\n            self._fail(error)\n",
        "        self._advance()\n",
        f"{_TESTS}::test_an_error_of_traces_ends_them_alone",
    ),
    _mutant(
        "keep-payloads",
        _TRACES,
        "followed.txid, followed.write = answer.txid, None",
        "followed.txid = answer.txid",
        f"{_TESTS}::test_a_followed_transaction_keeps_no_payload",
    ),
    _mutant(
        "ids-of-zero-are-ids",
        _CONTEXT,
        "    if not trace_id or not span_id:\n        return None\n",
        "",
        f"{_HEADERS}::test_counts_as_none",
    ),
    _mutant(
        "lanes-take-the-whole-log",
        "txlog/pipeline/lane_traces.py",
        "if applied.after < recorded.index <= applied.upto:",
        "if recorded.index:",
        f"{_TESTS}::test_what_a_lane_executes_is_in_the_same_trace",
    ),
)
