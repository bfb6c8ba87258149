"""The model of certification: histories made by hand, a few random runs, one that breaks each mutant, and its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from e2e.model.certification.certification_mutant import MUTANTS, CertificationMutant
from e2e.model.certification.count import main
from e2e.model.certification.directed_run import HISTORIES, DirectedHistory, broken_histories
from e2e.model.certification.random_run import run
from e2e.model.certification.values import LeftOut, ModelRefusal, RuleBroken

README = (Path(__file__).parents[1] / "model/certification/README.md").read_text()
ALL_RULES: frozenset[LeftOut] = frozenset()


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_each_history_made_by_hand_has_its_verdict(history: DirectedHistory) -> None:
    assert history.run(ALL_RULES) is history.expected


def test_the_histories_reach_every_reason_of_a_refusal_but_age() -> None:
    reached = {history.expected for history in HISTORIES}
    assert reached == set(ModelRefusal) - {ModelRefusal.KEY, ModelRefusal.OLD, ModelRefusal.BASE}


def test_nothing_breaks_with_all_rules() -> None:
    assert not broken_histories(ALL_RULES)
    counts = sum((run(seed) for seed in (4, 5, 6)), start=run(3))
    for met in ("effects: count", "effects: other", "effects: key", "answered done", "splits", "rejoins"):
        assert counts[met], counts


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(11) == run(11) != run(12)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.left_out.value)
def test_each_mutant_breaks(mutant: CertificationMutant) -> None:
    left_out = frozenset({mutant.left_out})
    if mutant.history:
        assert mutant.history in broken_histories(left_out)
        return
    assert mutant.seed < mutant.within
    with pytest.raises(RuleBroken):
        run(mutant.seed, left_out)


def test_every_part_of_the_rules_has_a_mutant_and_the_page_names_it() -> None:
    assert len(MUTANTS) == len({each.left_out for each in MUTANTS}) == len(LeftOut)
    table = README.partition("## Rules")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (C\d+) \| .* \| (.*) \|$", table, re.MULTILINE)
    assert {(rule, name) for rule, names in rows for name in re.findall(r"`(\w+)`", names)} == {
        (each.rule, each.left_out.value) for each in MUTANTS
    }


def test_the_command_prints_a_table_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "risen_ok"]) == 0
    assert main(["--only", "key_first", "--count", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(" C2 risen_ok: risen"), lines
    assert json.loads(lines[1])["mutants"] == 1
    assert json.loads(lines[-1])["wrong"] == []
