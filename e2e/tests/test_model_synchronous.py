"""The model of synchronous transactions: a few runs with all rules, one that breaks each mutant, and its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from e2e.model.synchronous.count import breaks_by_hand, main
from e2e.model.synchronous.directed_run import run_directed
from e2e.model.synchronous.random_run import RunOptions, run
from e2e.model.synchronous.synchronous_mutant import MUTANTS, MUTANTS_FROM, RULES, SMART_5, SynchronousMutant
from e2e.model.synchronous.values import Missing, ModelViolation

README = (Path(__file__).parents[1] / "model/synchronous/README.md").read_text()


@pytest.mark.parametrize("options", RULES, ids=str)
def test_nothing_breaks_with_all_rules(options: RunOptions) -> None:
    counts = run(7, options) + run(8, options)
    for met in ("answered committed", "views installed", "transactions"):
        assert counts[met], counts


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(11, SMART_5) == run(11, SMART_5) != run(12, SMART_5)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.missing.value)
def test_each_mutant_breaks(mutant: SynchronousMutant) -> None:
    if not mutant.within:
        assert breaks_by_hand(mutant.broken())
        return
    assert MUTANTS_FROM <= mutant.seed < MUTANTS_FROM + mutant.within
    with pytest.raises(ModelViolation):
        run(mutant.seed, mutant.broken())


def test_a_decision_may_precede_what_it_names() -> None:
    assert run_directed(SMART_5)["decided ahead of the log start"] == 1
    assert not breaks_by_hand(SMART_5)


def test_every_part_of_the_rules_has_a_mutant_and_the_page_names_it() -> None:
    assert [each.missing for each in MUTANTS] == list(dict.fromkeys(each.missing for each in MUTANTS))
    assert {each.missing for each in MUTANTS} == set(Missing)
    table = README.partition("## Rules")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (S\d+) \| .* \| (.*) \|$", table, re.MULTILINE)
    assert {(rule, name) for rule, names in rows for name in re.findall(r"`(\w+)`", names)} - {("S6", "any_view")} == {
        (each.rule, each.missing.value) for each in MUTANTS
    }


def test_the_command_prints_a_table_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "foot_early"]) == 0
    assert main(["--only", "weak", "--count", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("S13 foot_early"), lines
    assert json.loads(lines[1])["mutants"] == 1
    assert json.loads(lines[-1])["wrong"] == []
