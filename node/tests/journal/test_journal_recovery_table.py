"""The lettered table (rule 28): every combination of observations has exactly one answer."""

from __future__ import annotations

import re

from txlog.journal import recovery_table
from txlog.journal.recovery_table import EndOfRecords, Observation, RecoveryDecision, all_observations, decide


def test_every_combination_has_exactly_one_case() -> None:
    combinations = list(all_observations())
    assert len(combinations) == len(set(combinations)) == 3 * 2**4
    used = {decide(seen).letter for seen in combinations}
    assert used == {row.letter for row in recovery_table.RECOVERY_TABLE}


def test_every_letter_has_its_paragraph() -> None:
    paragraphs = set(re.findall(r"^\*\*([A-Z])\*\*", recovery_table.__doc__ or "", re.M))
    assert paragraphs == {row.letter for row in recovery_table.RECOVERY_TABLE}


def test_nothing_promised_is_ever_cut_or_passed_over_in_silence() -> None:
    named = {RecoveryDecision.DAMAGE_RESUME, RecoveryDecision.DAMAGE_NEXT, RecoveryDecision.REFUSE}
    assert all(decide(seen).decision in named for seen in all_observations() if seen.promised)


def test_only_the_very_end_of_a_whole_file_is_cut() -> None:
    cut = [seen for seen in all_observations() if decide(seen).decision is RecoveryDecision.CUT]
    assert cut == [
        Observation(EndOfRecords.BROKEN, later, next=False, promised=False, whole=True) for later in (False, True)
    ]


def test_a_journal_only_ends_where_nothing_follows() -> None:
    for seen in all_observations():
        if decide(seen).decision in (RecoveryDecision.END, RecoveryDecision.CUT):
            assert not seen.next
            assert not seen.promised
