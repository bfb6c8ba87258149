"""Safeguards of the queues that are looked at for every transaction. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

LOG = "txlog/protocol/log/log_state.py"
QUEUE = "txlog/protocol/log/incoming_queue.py"
SENDER = "txlog/protocol/replication/post_sender.py"
_TESTS = "node/tests/protocol/test_open_queues.py::"

QUEUE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "settled-before-it-is-final",
        "12",
        False,
        (SourceEdit(QUEUE, " and self.final_seq == self.limit and", " and"),),
        test=_TESTS + "test_a_queue_is_settled_once_all_that_the_view_takes_is_final_and_nothing_is_parked",
    ),
    Mutant(
        "settled-before-everything-is-here",
        "12",
        False,
        (
            SourceEdit(
                QUEUE,
                "return self.held == self.limit and self.final_seq == self.limit and self.in_log == self.limit",
                "return self.limit != UNBOUNDED and self.final_seq == self.in_log",
            ),
        ),
        test=_TESTS + "test_a_queue_is_settled_once_all_that_the_view_takes_is_final_and_nothing_is_parked",
    ),
    Mutant(
        "settled-queues-never-miss-anything",
        "18",
        False,
        (SourceEdit(SENDER, "        if len(log.open.slots) == len(log.queues):", "        if True:"),),
        test=_TESTS + "test_what_another_master_parked_in_a_settled_queue_is_fetched",
    ),
    Mutant(
        "what-is-parked-opens-no-queue",
        "18",
        False,
        (SourceEdit(LOG, "            self.open.reopen(self.slots[queue.origin])", "            pass"),),
        test=_TESTS + "test_what_another_master_parked_in_a_settled_queue_is_fetched",
    ),
)
