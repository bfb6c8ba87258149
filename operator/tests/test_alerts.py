"""The chart's alerts: promtool runs the rule tests beside the chart, and each test must notice a changed rule."""

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from control_plane import helm
from ruamel.yaml import YAML
from test_charts import OPERATOR, rendered

from e2e.cluster.linters import build_linter

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]
TESTS = sorted((OPERATOR / "tests").glob("*.yaml"))


@pytest.fixture(scope="module")
def promtool() -> Path:
    return build_linter("promtool")


@pytest.fixture
def groups(tmp_path: Path) -> list[dict[str, Any]]:
    found = rendered(OPERATOR, tmp_path, monitoring={"prometheusRule": True})
    (rule,) = [each for each in found if each["kind"] == "PrometheusRule"]
    wanted: list[dict[str, Any]] = rule["spec"]["groups"]
    return wanted


class RuleTests:
    """The tests beside the rules that they are about, in a folder of their own."""

    def __init__(self, promtool: Path, folder: Path) -> None:
        self._promtool, self._folder = promtool, folder
        for file in TESTS:
            shutil.copy(file, folder)

    def run(self, groups: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
        (self._folder / "rules.yaml").write_text(json.dumps({"groups": groups}))
        command = [str(self._promtool), "test", "rules", *(file.name for file in TESTS)]
        return subprocess.run(command, cwd=self._folder, capture_output=True, text=True, timeout=60, check=False)

    def check(self) -> subprocess.CompletedProcess[str]:
        command = [str(self._promtool), "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"]
        return subprocess.run(command, cwd=self._folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def rule_tests(promtool: Path, tmp_path: Path) -> RuleTests:
    folder = tmp_path / "rules"
    folder.mkdir()
    return RuleTests(promtool, folder)


def expectations() -> Iterator[dict[str, Any]]:
    for file in TESTS:
        for test in YAML(typ="safe").load(file.read_text())["tests"]:
            yield from test["alert_rule_test"]


def test_the_alerts_fire_when_they_should(rule_tests: RuleTests, groups: list[dict[str, Any]]) -> None:
    done = rule_tests.run(groups)
    assert done.returncode == 0, done.stdout + done.stderr
    checked = rule_tests.check()
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_has_a_moment_at_which_it_fires_and_one_at_which_it_does_not(
    groups: list[dict[str, Any]],
) -> None:
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    assert {each["alertname"] for each in expectations() if each["exp_alerts"]} == alerts
    assert {each["alertname"] for each in expectations() if not each["exp_alerts"]} == alerts


def later(rule: dict[str, Any]) -> None:
    rule["for"] = {"15m": "16m", "10m": "11m", "5m": "6m", "2m": "3m", "1m": "2m", None: "1m"}[rule.get("for")]


def sooner(rule: dict[str, Any]) -> None:
    rule.pop("for", None)


def never(rule: dict[str, Any]) -> None:
    rule["expr"] = f"({rule['expr']}) unless vector(1) unless on() vector(1)"


def awake(rule: dict[str, Any]) -> None:
    rule["expr"] = rule["expr"].partition(" unless ")[0]


def of_any_namespace(rule: dict[str, Any]) -> None:
    rule["expr"] = rule["expr"].replace("on(namespace,name)", "on(name)")


def without_a_summary(rule: dict[str, Any]) -> None:
    rule["annotations"].pop("summary")


def calm(rule: dict[str, Any]) -> None:
    rule["labels"] = {"severity": "none"}


@pytest.mark.parametrize("change", [later, sooner, never, awake, of_any_namespace, without_a_summary, calm])
def test_a_changed_rule_is_noticed(
    rule_tests: RuleTests, groups: list[dict[str, Any]], change: Callable[[dict[str, Any]], None]
) -> None:
    """All rules at once: promtool names each alert whose test fails."""
    mutants = deepcopy(groups)
    changed = []
    for rule, mutant in zip(groups[0]["rules"], mutants[0]["rules"], strict=True):
        change(mutant)
        changed += [rule["alert"]] * (mutant != rule)
    assert len(changed) >= 2
    done = rule_tests.run(mutants)
    assert done.returncode != 0
    noticed = re.findall(r"alertname: (\w+)", done.stdout + done.stderr)
    assert sorted(set(noticed)) == sorted(changed)


def test_the_tests_are_no_part_of_the_chart(tmp_path: Path) -> None:
    helm("package", str(OPERATOR), "-d", str(tmp_path))
    (packed,) = tmp_path.glob("*.tgz")
    with tarfile.open(packed) as chart:
        names = chart.getnames()
    assert "txlog-operator/templates/monitoring.yaml" in names
    assert not [name for name in names if "/tests/" in name]
