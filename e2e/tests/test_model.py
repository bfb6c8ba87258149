"""The TLA+ module and the tables beside it agree with one another and with the protocol's page; TLC's output is read
right; and, with TLC, one run holds and one mutant dies."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from e2e.model import check
from e2e.model.check import explore, kill
from e2e.model.model_mutant import MUTANTS, ModelMutant
from e2e.model.model_run import DEEP_RUNS, RUNS
from e2e.model.tla_checker import CheckerFailed, CheckResult, prepare, read_result
from e2e.model.tla_source import PROPERTIES_OF_STEPS, BadEdit, edited, module_text, properties_of, rules_of
from txlog.local.local_errors import CannotRun

ROOT = Path(__file__).parents[2]
PROTOCOL = (ROOT / "docs/design/protocol.md").read_text()
README = (ROOT / "e2e/model/README.md").read_text()


def _rules_of_the_page() -> set[int]:
    return {int(number) for number in re.findall(r"^(\d+)\. ", PROTOCOL.partition("## 9. Rules")[2], re.MULTILINE)}


def test_the_module_names_rules_that_the_page_has() -> None:
    assert rules_of() <= _rules_of_the_page()


def test_the_modules_rules_are_those_that_it_is_about() -> None:
    """Taking a rule's name out of the module, or naming one that is out of its scope, changes this list."""
    assert sorted(rules_of()) == [1, 2, 3, 4, 5, 7, 8, 10, 12, 13, 14, 15, 16, 20, 21, 24, 25, 26, 33, 34]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_mutants_texts_apply(mutant: ModelMutant) -> None:
    assert edited(mutant.edits) != module_text()
    assert mutant.violates in properties_of()
    assert mutant.rule in rules_of()
    assert mutant.run in [run.name for run in RUNS]


def test_a_text_that_is_not_there_once_is_refused() -> None:
    with pytest.raises(BadEdit, match="0 times"):
        edited((("no such text", ""),))
    with pytest.raises(BadEdit, match="2 times"):
        edited((("b", ""),), "a b b")


def test_each_property_has_a_mutant_and_names_are_used_once() -> None:
    assert {mutant.violates for mutant in MUTANTS} == set(properties_of())
    names = [one.name for one in (*RUNS, *DEEP_RUNS, *MUTANTS)]
    assert len(names) == len(set(names))


def test_the_readme_lists_the_properties_with_the_modules_rules() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| ([\d, ]+) \|$", README.partition("## Names")[0], re.MULTILINE)
    assert [name for name, _ in rows] == properties_of()
    comments = re.findall(r"\(\*([^*]*)\*\)\n(\w+) ==", module_text().partition("(* Properties *)")[2])
    named = {name: rules_of(comment) for comment, name in comments}
    assert {name: {int(n) for n in rules.split(",")} for name, rules in rows} == named


def test_the_readme_names_code_that_exists() -> None:
    for path in re.findall(r"`((?:replication|views|log)/\w+\.py)`", README):
        assert (ROOT / "node/txlog/protocol" / path).exists(), path


def test_the_module_is_small_enough_to_read() -> None:
    assert len(module_text().splitlines()) < 500


def test_a_configuration_checks_all_properties_or_those_that_are_asked_for() -> None:
    every = RUNS[0].configuration([])
    for name in properties_of():
        assert f"{'PROPERTY' if name in PROPERTIES_OF_STEPS else 'INVARIANT'} {name}\n" in every
    one = RUNS[0].configuration(["OneOrder"])
    assert one.count("INVARIANT") == 1
    with pytest.raises(AssertionError):
        RUNS[0].resized({"NoSuchConstant": "1"}).configuration([])


def test_the_checkers_output_is_read() -> None:
    counts = "120 states generated, 40 distinct states found, {} states left on queue.\n"
    done = read_result("Model checking completed. No error has been found.\n" + counts.format(0))
    assert (done.generated, done.distinct, done.violated) == (120, 40, "")
    assert read_result("Error: Invariant OneOrder is violated.\n" + counts.format(7)).violated == "OneOrder"
    assert read_result("Error: Action property PromisesGrow is violated.\n" + counts.format(7)).violated
    for output in ("", counts.format(0), "Error: Evaluating invariant OneOrder failed.\n" + counts.format(3)):
        with pytest.raises(CheckerFailed):
            read_result(output)


def test_a_checker_that_fails_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> CheckResult:
        raise CheckerFailed("no heap")

    monkeypatch.setattr(check, "prepare", lambda: (Path("java"), Path("jar")))
    monkeypatch.setattr(check, "check_module", fail)
    assert check.main(["--only", "crash"]) == 1
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["mutants_killed"] == 0
    assert set(figures["wrong"]) >= {"crashes", "counter-lost-in-a-crash"}


def test_a_mutant_that_lives_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    violated = {"": ""}
    monkeypatch.setattr(check, "prepare", lambda: (Path("java"), Path("jar")))
    monkeypatch.setattr(check, "check_module", lambda *_: CheckResult(2, 1, violated[""], ""))
    assert check.main(["--only", "rounds"]) == 0
    assert check.main(["--only", "counter-lost-in-a-crash"]) == 1
    assert check.main(["--only", "no such name"]) == 1
    violated[""] = "PromisesGrow"
    assert check.main(["--only", "counter-lost-in-a-crash"]) == 0
    assert check.main(["--only", "rounds"]) == 1


@pytest.mark.timeout(300)
def test_a_mutant_dies_and_the_module_without_the_edit_lives() -> None:
    try:
        tools = prepare()
    except CannotRun as why:
        pytest.skip(str(why))
    mutant = next(one for one in MUTANTS if one.name == "counter-lost-in-a-crash")
    assert kill(tools, mutant)[0].violated == mutant.violates
    small = next(one for one in RUNS if one.name == "crashes").resized({"MaxWrites": "1", "MaxCrashes": "1"})
    result = explore(tools, small)[0]
    assert not result.violated
    assert result.distinct > 50
