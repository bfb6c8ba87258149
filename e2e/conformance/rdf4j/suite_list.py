"""The list of docs/reference/rdf4j-suite.md: which tests of RDF4J's suites may fail, with which proof, and which are
open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from e2e.conformance.rdf4j.suite_programs import SuiteOutcome

LIST_FILE: Final = Path(__file__).parents[3] / "docs" / "reference" / "rdf4j-suite.md"
ENGINES: Final = ("oxigraph", "rdf4j")
BOTH: Final = "both"


class Proof(StrEnum):
    """Who fails a listed test, too. ``NONE``: nobody, so the test is open."""

    SERVER = "server"
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
    proofs: Mapping[Proof, Mapping[str, str]],
) -> Judgement:
    """What ``outcomes`` of a master with ``engine`` come to. ``proofs``: the words of the outcomes at the server, and
    at a store that was asked directly, by test."""
    here = {test.name: test for test in listed if engine in test.engines}
    made = Judgement([], [], [], [], [], [])
    for outcome in outcomes:
        test = here.pop(outcome.name, None)
        if outcome.word == "skipped":
            made.skipped.append(outcome.name)
        elif outcome.word == "passed":
            made.passed.append(outcome.name)
            if test is not None:
                made.untrue.append(f"{outcome.name} passes on {engine}, and is listed")
        elif test is None:
            made.failed.append(outcome.name)
        elif test.proof is Proof.NONE:
            made.open.append(outcome.name)
        elif proofs.get(test.proof, {}).get(outcome.name) == "failed":
            made.allowed.append(outcome.name)
        else:
            made.failed.append(outcome.name)
            made.untrue.append(f"{outcome.name} fails on {engine}, and not at the {test.proof} as listed")
    made.untrue.extend(f"{name} is listed for {engine}, and was not run" for name in here)
    return made
