"""``make rdf4j-suite``: RDF4J's own test suites, against an RDF4J server and against masters, every test by name.

The suites run through RDF4J's ``HTTPRepository``: first against a real server, then against a master with one store,
for each engine. docs/reference/rdf4j-suite.md lists what may fail: what the server fails in the same run, or what the
engine's store fails when it is asked directly. The last line of stdout is JSON: ``{"tests", "passed", "failed",
"allowed", "open", "skipped", ...}``, for each engine and group, too. The exit code is 1 when a test fails that may not,
when a listed test passes, and while tests are open.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

from e2e.conformance.rdf4j.suite_list import (
    ENGINES,
    LIST_FILE,
    Judgement,
    ListedTest,
    Proof,
    judge,
    read_list,
    renew_list,
    write_list,
)
from e2e.conformance.rdf4j.suite_programs import GROUPS, SuiteOutcome, SuiteTarget, is_same_failure, run_suites
from e2e.conformance.rdf4j.suite_targets import master_target, server_target, store_target
from e2e.lib.report import BenchReport, CannotMeasure, build_table, console, print_table
from txlog.local.local_errors import CannotRun

TESTS_MIN: Final = 1300
"""Of a whole run, on each engine."""
PROGRESS_S: Final = 5.0
REASON_MAX: Final = 300
TIMED_OUT: Final = "timed out after"
"""Of a test that JUnit ends: it is run once more alone, because a busy machine is no fault of a master."""
SERVER_REPEATS: Final = 10
"""How often the server is asked again for a test that it fails in some runs only."""


class SuiteSelection(NamedTuple):
    """``words``: of the names of the tests, "" for all."""

    groups: tuple[str, ...]
    words: str

    @property
    def is_whole(self) -> bool:
        return self.groups == GROUPS and not self.words


def select_tests(only: str) -> SuiteSelection:
    """``only``: a group, some with commas, or words of a test's name; "" for everything."""
    named = tuple(only.split(","))
    if only and set(named) <= set(GROUPS):
        return SuiteSelection(tuple(group for group in GROUPS if group in named), "")
    return SuiteSelection(GROUPS, only)


class SuiteProgress:
    """Says now and then how far a run is, and each failure at once where it is not expected."""

    def __init__(self, where: str, expected: Iterable[str] = ()) -> None:
        self._where = where
        self._expected = set(expected)
        self._counts: Counter[str] = Counter()
        self._shown = time.monotonic()

    def __call__(self, outcome: SuiteOutcome) -> None:
        self._counts[outcome.word] += 1
        if outcome.word == "failed" and outcome.name not in self._expected:
            why = outcome.why.replace("\n", " ")[:REASON_MAX]
            console.print(f"{self._where}: {outcome.name}: {why}", highlight=False, markup=False)
        if time.monotonic() > self._shown + PROGRESS_S:
            self._shown = time.monotonic()
            counts = ", ".join(f"{count} {word}" for word, count in self._counts.items())
            console.print(f"{self._where}: {outcome.group}: {counts}")


def run_target(
    where: str,
    target: AbstractContextManager[SuiteTarget],
    selection: SuiteSelection,
    folder: Path,
    *,
    asked: Sequence[str] | None = None,
    expected: Iterable[str] = (),
) -> list[SuiteOutcome]:
    """The outcomes at one target, which is there only meanwhile."""
    console.print(f"{where}: starting")
    with target as at:
        outcomes = run_suites(
            at,
            selection.groups,
            folder / "suites",
            asked=asked,
            words=selection.words,
            progress=SuiteProgress(where, expected),
        )
        late = {outcome.name for outcome in outcomes if outcome.word == "failed" and TIMED_OUT in outcome.why}
        if late:
            console.print(f"{where}: once more, alone: {', '.join(sorted(late))}", highlight=False, markup=False)
            again = by_name(run_suites(at, selection.groups, folder / "suites", asked=late))
            outcomes = [again.get(outcome.name, outcome) for outcome in outcomes]
        return outcomes


def by_name(outcomes: Iterable[SuiteOutcome]) -> dict[str, SuiteOutcome]:
    return {outcome.name: outcome for outcome in outcomes}


def run_engine(
    engine: str,
    selection: SuiteSelection,
    listed: Sequence[ListedTest],
    server: Mapping[str, SuiteOutcome],
    folder: Path,
) -> tuple[list[SuiteOutcome], Judgement]:
    """A master with ``engine``, and what a store alone does with the tests that are listed with that proof."""
    here = [test for test in listed if engine in test.engines]
    expected = [test.name for test in here]
    master = folder / f"master-{engine}"
    outcomes = run_target(f"master, {engine}", master_target(master, engine), selection, master, expected=expected)
    proofs: dict[Proof, Mapping[str, SuiteOutcome]] = {Proof.SERVER: server}
    names = {outcome.name for outcome in outcomes}
    here = [test for test in here if test.name in names]
    moody = {test.name for test in here if test.proof is Proof.SOMETIMES}
    moody = {outcome.name for outcome in outcomes if outcome.name in moody and outcome.word == "failed"}
    proofs[Proof.SOMETIMES] = _ask_server_again(selection, moody, server, folder / f"again-{engine}")
    asked = [test.name for test in here if test.proof is Proof.STORE]
    if asked:
        at_store = _ask_store(engine, selection, asked, folder / f"store-{engine}")
        # A test may break a store for those after it, so what fails otherwise there is asked once more, alone.
        for number, outcome in enumerate(outcomes):
            other = at_store.get(outcome.name)
            if other is not None and outcome.word == "failed" and not is_same_failure(other, outcome):
                at_store |= _ask_store(engine, selection, [outcome.name], folder / f"store-{engine}-{number}")
        proofs[Proof.STORE] = at_store
    return outcomes, judge(engine, outcomes, here, proofs)


def _ask_server_again(
    selection: SuiteSelection, names: set[str], server: Mapping[str, SuiteOutcome], folder: Path
) -> dict[str, SuiteOutcome]:
    """Failures of these tests at the server: of its run, or else of one of some further runs."""
    found = {name: server[name] for name in names if name in server and server[name].word == "failed"}
    if found.keys() == names:
        return found
    with server_target(folder) as at:
        for _ in range(SERVER_REPEATS):
            outcomes = run_suites(at, selection.groups, folder / "suites", asked=names - found.keys())
            found |= {outcome.name: outcome for outcome in outcomes if outcome.word == "failed"}
            if found.keys() == names:
                break
    return found


def _ask_store(engine: str, selection: SuiteSelection, asked: Sequence[str], folder: Path) -> dict[str, SuiteOutcome]:
    whole = SuiteSelection(selection.groups, "")
    return by_name(
        run_target(f"store, {engine}", store_target(folder, engine), whole, folder, asked=asked, expected=asked)
    )


def run_given(url: str, repository: str, selection: SuiteSelection, folder: Path) -> int:
    """Against a running server or master, without proofs; the exit code."""
    target = nullcontext(SuiteTarget("rdf4j", url, repository))
    outcomes = run_target(url, target, selection, folder)
    report = BenchReport("rdf4j-suite")
    counts = Counter(outcome.word for outcome in outcomes)
    for word in ("passed", "skipped"):
        report.figure(word, counts[word])
    report.equal("failed", counts["failed"], 0)
    return report.end()


def count_groups(outcomes: Sequence[SuiteOutcome], judgement: Judgement) -> dict[str, dict[str, int]]:
    """Per group: how many tests, and how many of each verdict."""
    verdicts = {"passed": judgement.passed, "failed": judgement.failed, "allowed": judgement.allowed}
    verdicts |= {"open": judgement.open, "skipped": judgement.skipped}
    found: dict[str, dict[str, int]] = {}
    for group in GROUPS:
        names = {outcome.name for outcome in outcomes if outcome.group == group}
        if names:
            counts = {word: len(names.intersection(chosen)) for word, chosen in verdicts.items()}
            found[group] = {"tests": len(names) - counts["skipped"], **counts}
    return found


def report_engine(
    report: BenchReport,
    engine: str,
    outcomes: Sequence[SuiteOutcome],
    judgement: Judgement,
    server: Mapping[str, SuiteOutcome],
) -> dict[str, dict[str, int]]:
    """Print one engine's failures and its table; what may not be is a miss. The counts per group."""
    reasons = {outcome.name: outcome.why.replace("\n", " ")[:REASON_MAX] for outcome in outcomes}
    for title, names in (("failed", judgement.failed), ("open", judgement.open)):
        for name in names:
            print(f"{title} on {engine}: {name}: {reasons[name]}")
    for line in judgement.untrue:
        print(f"not as {LIST_FILE.name} says: {line}")
    groups = count_groups(outcomes, judgement)
    columns = ("group", "tests", "passed", "failed", "allowed", "open", "skipped", "RDF4J's server fails")
    rows: list[tuple[str | int, ...]] = [
        (group, *counts.values(), sum(o.group == group and o.word == "failed" for o in server.values()))
        for group, counts in groups.items()
    ]
    print_table(build_table(f"RDF4J's suites: a master with {engine}", columns, rows))
    for word, names in (("failed", judgement.failed), ("open", judgement.open), ("untrue", judgement.untrue)):
        report.require(f"{engine}: no test is {word}", not names, len(names))
    return groups


def run_all(
    selection: SuiteSelection, engines: Sequence[str], report: BenchReport, folder: Path, *, renew: bool = False
) -> None:
    """The server, and each engine's master. ``renew``: renew the list at the end."""
    listed = read_list(LIST_FILE.read_text())
    at_server = run_target(
        "RDF4J server",
        server_target(folder / "server"),
        selection,
        folder / "server-run",
        expected=[test.name for test in listed],
    )
    server = by_name(at_server)
    totals: Counter[str] = Counter()
    nested: dict[str, object] = {}
    made: dict[str, list[SuiteOutcome]] = {}
    for engine in engines:
        outcomes, judgement = run_engine(engine, selection, listed, server, folder)
        made[engine] = outcomes
        groups = report_engine(report, engine, outcomes, judgement, server)
        nested[engine] = groups
        mine: Counter[str] = Counter()
        for counts in groups.values():
            mine.update(counts)
        totals.update(mine)
        if selection.is_whole:
            report.at_least(f"tests_{engine}", mine["tests"], TESTS_MIN)
    report.nested({word: totals[word] for word in ("tests", "passed", "failed", "allowed", "open", "skipped")})
    report.figure("server_failed", sum(one.word == "failed" for one in server.values()))
    report.nested({"groups": nested})
    report.require("tests were run", totals["tests"] > 0)
    if renew:
        LIST_FILE.write_text(write_list(LIST_FILE.read_text(), renew_list(listed, made, server)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.conformance.rdf4j.suite_run", description=__doc__)
    parser.add_argument("--only", default="", help=f"a group ({', '.join(GROUPS)}), or words of a test's name")
    parser.add_argument("--engine", choices=ENGINES, help="of the master's store; both without it")
    parser.add_argument("--url", help="a running server or master, up to /rdf4j-server; nothing else is run")
    parser.add_argument("--repository", default="catalogue", help="of --url")
    parser.add_argument("--renew", action="store_true", help=f"renew the lists of {LIST_FILE.name}; a whole run")
    given = parser.parse_args(arguments)
    selection = select_tests(given.only)
    report = BenchReport("rdf4j-suite")
    folder = Path(tempfile.mkdtemp(prefix="txlog-suite-"))
    try:
        if given.url:
            return run_given(given.url, given.repository, selection, folder)
        renew = given.renew and selection.is_whole
        run_all(selection, [given.engine] if given.engine else ENGINES, report, folder, renew=renew)
    except (CannotRun, CannotMeasure, OSError) as why:
        report.failed("all tests are run", str(why))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
