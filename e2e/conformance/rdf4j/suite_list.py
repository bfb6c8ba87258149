"""The list of docs/reference/rdf4j-suite.md: which tests of RDF4J's suites may fail, with which proof, and which are
open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from e2e.conformance.rdf4j.suite_programs import SuiteOutcome, fails_later, is_same_failure

LIST_FILE: Final = Path(__file__).parents[3] / "docs" / "reference" / "rdf4j-suite.md"
ENGINES: Final = ("oxigraph", "rdf4j")
BOTH: Final = "both"


class Proof(StrEnum):
    """What else fails a listed test. ``SOMETIMES``: the server, in some runs, and so does a master. ``NONE``: nothing
    else, so the test is open."""

    SERVER = "server"
    SOMETIMES = "sometimes"
    STORE = "store"
    NONE = "open"


class ListedTest(NamedTuple):
    """A line of the list. ``engines``: those of :data:`ENGINES` on which the test fails."""

    name: str
    engines: frozenset[str]
    proof: Proof
    why: str


class Judgement(NamedTuple):
    """Of one engine: names of tests. ``untrue``: what is listed and not so, each a sentence."""

    passed: list[str]
    allowed: list[str]
    open: list[str]
    failed: list[str]
    skipped: list[str]
    untrue: list[str]


def read_list(text: str) -> list[ListedTest]:
    """The lines ``| test | engines | proof | why |`` of the document. ValueError for one that says nothing."""
    found: dict[tuple[str, str], ListedTest] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("| `") or len(cells) != 4:
            continue
        name, engines, proof, why = cells[0].strip("`"), cells[1], cells[2], cells[3]
        if (name, engines) in found or engines not in (*ENGINES, BOTH) or proof not in [*Proof] or not why:
            raise ValueError(f"a line that is there twice, or says nothing: {line}")
        chosen = frozenset(ENGINES) if engines == BOTH else frozenset({engines})
        found[name, engines] = ListedTest(name, chosen, Proof(proof), why)
    return [*found.values()]


def judge(
    engine: str,
    outcomes: Iterable[SuiteOutcome],
    listed: Sequence[ListedTest],
    proofs: Mapping[Proof, Mapping[str, SuiteOutcome]],
) -> Judgement:
    """What ``outcomes`` of a master with ``engine`` come to. ``proofs``: those at the server and at a store that
    was asked directly, by test. A store must fail as the master does."""
    here = {test.name: test for test in listed if engine in test.engines}
    made = Judgement([], [], [], [], [], [])
    for outcome in outcomes:
        test = here.pop(outcome.name, None)
        if outcome.word == "skipped":
            made.skipped.append(outcome.name)
        elif outcome.word == "passed":
            made.passed.append(outcome.name)
            if test is not None and test.proof is not Proof.SOMETIMES:
                made.untrue.append(f"{outcome.name} passes on {engine}, and is listed")
        elif test is None:
            made.failed.append(outcome.name)
        elif test.proof is Proof.NONE:
            made.open.append(outcome.name)
        elif _proves(test.proof, proofs.get(test.proof, {}).get(outcome.name), outcome):
            made.allowed.append(outcome.name)
        else:
            made.failed.append(outcome.name)
            made.untrue.append(f"{outcome.name} fails on {engine}, and not at the {test.proof} as listed")
    made.untrue.extend(f"{name} is listed for {engine}, and was not run" for name in here)
    return made


def _proves(proof: Proof, other: SuiteOutcome | None, outcome: SuiteOutcome) -> bool:
    if other is None or proof is not Proof.STORE:
        return other is not None and other.word == "failed"
    return is_same_failure(other, outcome) or fails_later(other, outcome)


UNEXPLAINED: Final = "not explained yet"


def renew_list(
    listed: Sequence[ListedTest], outcomes: Mapping[str, Iterable[SuiteOutcome]], server: Mapping[str, SuiteOutcome]
) -> list[ListedTest]:
    """The list as whole runs make it. ``outcomes``: of each engine. What passes goes; what fails and
    is not listed is added, with the server's failure as proof, or as open."""
    known = {(test.name, engine): test for test in listed for engine in test.engines}
    found: dict[tuple[str, Proof, str], set[str]] = {}
    for engine, name in (
        (engine, one.name) for engine, each in outcomes.items() for one in each if one.word == "failed"
    ):
        test = known.get((name, engine))
        proof = Proof.SERVER if name in server and server[name].word == "failed" else Proof.NONE
        key = (name, proof, UNEXPLAINED) if test is None else (name, test.proof, test.why)
        found.setdefault(key, set()).add(engine)
    for (name, engine), test in known.items():
        if engine not in outcomes or test.proof is Proof.SOMETIMES:
            found.setdefault((name, test.proof, test.why), set()).add(engine)
    return [ListedTest(name, frozenset(engines), proof, why) for (name, proof, why), engines in found.items()]


def _row(test: ListedTest) -> str:
    engines = BOTH if test.engines == set(ENGINES) else min(test.engines)
    return f"| `{test.name}` | {engines} | {test.proof} | {test.why} |"


def write_list(text: str, listed: Sequence[ListedTest]) -> str:
    """The document with these lines: the first table has those with a proof, the second the open ones."""
    lines = [line for line in text.splitlines() if not line.startswith("| `")]
    heads = [at for at, line in enumerate(lines) if line.startswith("|---")]
    if len(heads) != 2:
        raise ValueError(f"the document has {len(heads)} tables, and not two")
    for at, is_open in ((heads[1], True), (heads[0], False)):
        lines[at + 1 : at + 1] = [_row(test) for test in listed if (test.proof is Proof.NONE) == is_open]
    return "\n".join(lines) + "\n"
