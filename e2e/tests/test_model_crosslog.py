"""The model of several logs: a few runs with all rules, one that breaks each mutant, and its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from e2e.model.crosslog.count import main, name_of
from e2e.model.crosslog.crosslog_mutant import MIXED, MUTANTS, MUTANTS_FROM, RULES, CrosslogMutant
from e2e.model.crosslog.random_run import CrosslogOptions, run
from e2e.model.crosslog.values import CrosslogViolation, MissingPart

README = (Path(__file__).parents[1] / "model/crosslog/README.md").read_text()
MET = ("committed", "aborted", "ended by another", "forgotten", "cuts", "consistent cuts", "rejoins", "crashes")


@pytest.mark.parametrize("options", RULES, ids=name_of)
def test_nothing_breaks_with_all_rules(options: CrosslogOptions) -> None:
    counts = sum((run(seed, options) for seed in range(7, 12)), start=run(6, options))
    assert all(counts[met] for met in MET), counts


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(11, MIXED) == run(11, MIXED) != run(12, MIXED)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.missing.value)
def test_each_mutant_breaks(mutant: CrosslogMutant) -> None:
    assert MUTANTS_FROM <= mutant.seed < MUTANTS_FROM + mutant.within
    with pytest.raises(CrosslogViolation):
        run(mutant.seed, mutant.broken())


def test_every_part_of_the_rules_has_a_mutant_and_the_page_names_it() -> None:
    assert [each.missing for each in MUTANTS] == list(MissingPart)
    table = README.partition("## Rules")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (R\d+) \| .* \| (.*) \|$", table, re.MULTILINE)
    assert {(rule, name) for rule, names in rows for name in re.findall(r"`(\w+)`", names)} == {
        (each.rule, each.missing.value) for each in MUTANTS
    }


def test_the_command_prints_a_table_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "own_abort"]) == 0
    assert main(["--only", "unsettled", "--count", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("R13 own_abort: mixed"), lines
    assert json.loads(lines[1])["mutants"] == 1
    assert json.loads(lines[-1])["wrong"] == []
