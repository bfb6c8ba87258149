"""Safeguards of what a client is told of its retry (rules 15, 16), one each taken out. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

SUBMISSION = "txlog/protocol/replication/submission.py"
FOUNDING = "txlog/protocol/membership/bootstrap.py"
KEYS = "txlog/protocol/log/idempotency_keys.py"
LOG = "txlog/protocol/log/log_state.py"
STATUS = "txlog/runtime/master_status.py"

CLIENT_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a-retry-is-answered-with-a-txid-of-nothing",
        "16",
        False,
        (
            SourceEdit(
                SUBMISSION,
                "    return SubmissionAccepted(txid, repeat=True)",
                "    return SubmissionAccepted(Txid(txid.origin, txid.seq + 1000), repeat=True)",
            ),
        ),
        profile="retries",
    ),
    Mutant(
        "a-retry-after-the-retention-is-swallowed",
        "16",
        False,
        (
            SourceEdit(
                KEYS,
                "before = self._find_counting(key_name(key), stamp)",
                "before = next(iter(self.final.find(key_name(key))), None)",
            ),
        ),
        profile="retries",
    ),
    Mutant(
        "another-body-in-the-same-batch-is-a-repeat",
        "16",
        False,
        (SourceEdit(SUBMISSION, "txid, content = fresh[key]", "(txid, _), content = fresh[key], one.content"),),
    ),
    Mutant(
        "a-repeat-told-before-its-disk-has-it",
        "15",
        False,
        (SourceEdit(STATUS, " and self._executor.is_durable(txid)", ""),),
        profile="retries",
    ),
    Mutant(
        "last-seen-is-ignored",
        "2",
        False,
        (SourceEdit(FOUNDING, "if seen_birth == self.local.birth and seen_start >= self.local.start:", "if False:"),),
        profile="lone",
    ),
    Mutant(
        "a-first-stamp-is-forgotten-in-a-crash",
        "16",
        False,
        (SourceEdit(LOG, "max([self.last_stamp, queue.last_stamp, *firsts[stamped:]])", "max(self.last_stamp, 0)"),),
        test="node/tests/protocol/test_accepting.py::"
        "test_the_stamp_to_come_lies_above_the_first_stamp_also_after_a_restart",
    ),
)
