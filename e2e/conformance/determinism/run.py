"""``make determinism``: every update that a master accepts does the same in all stores.

The W3C's update tests and random updates (``updates.py``), through the door of a real master into real stores:

======== =====================================================================================
first    a worker as it is run
second   one that is filled anew, in another order, from time to time. Of Oxigraphs without a disk: its quads lie in the
         order in which they came; TDB2 and LMDB number terms in that order
merged   a worker that is behind: it takes many transactions in one request
fuseki   another engine, Apache Jena Fuseki with TDB2; the master knows that they are mixed (``mixedEngines``)
rdf4j    a third one, an RDF4J server (only with ``--rdf4j``)
======== =====================================================================================

``--engines``: ``mixed`` has Oxigraphs for the first three, ``fuseki`` beside them, and ``mixedEngines``. Without that a
master accepts far more as it is: ``plain`` (three Oxigraphs), ``fuseki`` (three TDB2) and ``rdf4j`` (three LMDB).

``--capture``: a capture store follows the log, too. After each update its change set must be exactly what came to the
first store and went from it, and the inverse must give the state before (``wrong_sets``, ``wrong_inverse``).

After each update the digests of all but ``merged`` are compared, after some also that of ``merged``.
The last line of stdout is JSON: ``{"updates", "refused", "unequal", ...}``. ``updates``: accepted and carried out, as
many as were asked for at least; ``refused``: by name, since stores could differ. ``refusedByAll``: every store answered
the update alone with an error, so it is skipped, as a cluster does, and no store has executed it. Where only some
stores refuse, they are unequal. Whatever else is refused is a miss.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from e2e.conformance.determinism.capture_check import CaptureCheck
from e2e.conformance.determinism.random_updates import RandomUpdates
from e2e.conformance.w3c.case_kinds import UpdateTest
from e2e.conformance.w3c.dataset_setup import fill_dataset
from e2e.conformance.w3c.suite import W3cSuite, quads_of
from e2e.lib.cluster.harness import MEMORY, MasterHarness, StoreBlocked, StoreKind, start_master_harness
from e2e.lib.report import BenchReport, CannotMeasure, build_table, console, print_table
from txlog.apply.outcome import Refusal
from txlog.model.entry import KIND_QUADS
from txlog.workers.adapter import MarkerPosition, StoreOperation

STORES: Final = {"first": StoreKind.DISK, "second": StoreKind.MEMORY, "merged": StoreKind.DISK}
SYNCHRONOUS_STORES: Final = ("first", "second")
JENA: Final = {"fuseki": StoreKind.FUSEKI}
TRIPLE_TERMS: Final = 0.05
"""The share of terms that are triple terms, where every store has them."""
RDF4J: Final = {"rdf4j": StoreKind.RDF4J}
ENGINES: Final = {
    "mixed": STORES,
    "plain": STORES,
    "fuseki": dict.fromkeys(STORES, StoreKind.FUSEKI),
    "rdf4j": dict.fromkeys(STORES, StoreKind.RDF4J),
}
QUADS_MAX: Final = 150
"""Above it the world is emptied: patterns grow faster than data."""
MERGE_EACH: Final = 20
REFILL_EACH: Final = 50
REFILL_EACH_OF_JAVA: Final = 250
"""A store in Java starts for seconds, and is slow until its code is compiled."""
ATTEMPTS_FACTOR_MAX: Final = 4
"""So many times the updates that were asked for are drawn at most, until so many are accepted."""
NO_CHANGE: Final = "DROP SILENT GRAPH <urn:none>"
SHOWN_MAX: Final = 10
IRI_RULES: Final = (" is relative: send baseURI", " is no IRI", "IRI() inside IRI()")
"""What node/txlog/sparql/README.md says of IRIs that an expression makes."""

MASTER_RULES: Final = {
    "already exists; CREATE SILENT": "CREATE of a graph that exists",
    "INSERT into GRAPH ?variable beside a DELETE from all graphs": "INSERT into GRAPH ?variable, evaluated once",
}
"""What a master refuses for reasons of its own."""


class DeterminismRun:
    """One door, and what was seen at it."""

    def __init__(
        self,
        at: MasterHarness,
        chance: random.Random,
        prompt: tuple[str, ...] = SYNCHRONOUS_STORES,
        capture: CaptureCheck | None = None,
    ) -> None:
        self._master = at
        self._capture = capture
        self._synchronous = prompt
        self._chance = chance
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        self.refused_by_all: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.unequal: list[str] = []
        self.met: Counter[str] = Counter()
        self.quads = 0
        self._since: list[str] = []
        self._history: list[str] = []
        """What was carried out since all stores were empty: with it a difference comes again."""

    def update(self, text: str, path: str = "/statements") -> None:
        """One update, and whether all stores are alike afterwards."""
        self._check_capture("what filled the stores")
        before = self._master.last.index
        try:
            answer = self._master.update(text, path)
        except StoreBlocked as blocked:
            if blocked.refused is None:
                raise StoreBlocked(f"{blocked}\n    {text}") from None
            self._skip_refused(blocked.refused, text)
            return
        if answer.status == 204:
            self.accepted += 1
            self._since.append(text)
            self._history.append(f"{path}  {text}")
            if self._master.last.index - before > 1:
                self.met["tried again"] += self._master.last.index - before - 1
            self.compare(self._synchronous, text)
            self._check_capture(text)
        elif answer.status in (400, 409) and (name := _refusal(answer.text)):
            self.refused[name] += 1
        else:
            self.wrong.append(f"{answer.status} {answer.text.strip()[:500]}\n    {text}")

    def _check_capture(self, what: str) -> None:
        if self._capture is not None:
            self._capture.check(what)

    def _skip_refused(self, first: Refusal, text: str) -> None:
        """What a store refuses must be refused by all of them, the one that is behind too."""
        answers = {name: self._refusal_of(name) for name in self._master.stores}
        others = {str(refused.txid) for refused in answers.values() if refused is not None} - {str(first.txid)}
        if others:
            raise StoreBlocked(f"{', '.join(others)} and {first.txid} are refused by different stores\n    {text}")
        self._master.master.skip(str(first.txid))
        executed = [name for name, refused in answers.items() if refused is None]
        if not executed:
            self.refused_by_all[f"{first.status} {_reason(first.body)}"] += 1
            self._master.update(NO_CHANGE)
            return
        told = f"{first.status} {first.body.strip()[:500]}"
        what = f"{', '.join(executed)} executed what other stores refuse with {told}\n    {text}"
        self._note_unequal([what])

    def _refusal_of(self, name: str) -> Refusal | None:
        try:
            self._master.apply_all(name)
        except StoreBlocked as blocked:
            if blocked.refused is None:
                raise
            return blocked.refused
        return None

    def compare(self, names: tuple[str, ...], what: str) -> None:
        """``what`` is shown when they differ; then they are made equal, so that one difference counts once."""
        stores = self._master.stores
        digests = [stores[name].digest() for name in names]
        self.quads = digests[0].quads
        if all(one == digests[0] for one in digests):
            return
        told = [f"{' and '.join(names)} differ after:\n    {what}"]
        first, *others = (set(stores[name].sorted_quads()) for name in names)
        for name, lines in zip(names[1:], others, strict=True):
            told += [f"    not {name}: {line.decode()}" for line in sorted(first - lines)[:5]]
            told += [f"    {name}, not {names[0]}: {line.decode()}" for line in sorted(lines - first)[:5]]
        self._note_unequal(told)

    def _note_unequal(self, told: list[str]) -> None:
        self.unequal.append("\n".join([*told, "  since the stores were empty:", *self._history]))
        self.clear()
        self._master.apply_all(*self._master.stores)

    def clear(self) -> None:
        """Empty the world."""
        self._master.update("DROP ALL")
        self.quads = 0
        self._history.clear()

    def merge(self) -> None:
        """The worker that is behind takes what has come since in one go."""
        self._master.apply_all("merged")
        self.compare(("first", "merged"), "\n    ".join(self._since))
        self._since.clear()

    def refill(self) -> None:
        """The second store, anew: the same quads in another order, and no empty graphs, as one that is restored."""
        first, second = self._master.stores["first"], self._master.stores["second"]
        lines = first.sorted_quads()
        self._chance.shuffle(lines)
        second.restart_empty()
        operations = [StoreOperation(KIND_QUADS, b"".join(b"A " + line + b"\n" for line in lines))]
        assert first.marker is not None
        marker = MarkerPosition(first.marker.position, 1)
        answer = second.transport.send(second.adapter.apply(operations, None, marker))
        if not answer.ok:
            raise CannotMeasure(f"the second store is not filled anew: {answer.status} {answer.text}")
        second.marker = marker


def _refusal(text: str) -> str:
    """The construct that is refused by name, "" when the answer says something else."""
    construct, _, why = text.partition(" is not deterministic: ")
    if why:
        return construct
    for rule, name in MASTER_RULES.items():
        if rule in text:
            return name
    return "IRI()" if any(rule in text for rule in IRI_RULES) else ""


def _reason(body: str) -> str:
    """The kind of a store's error: the last part of its first line, without terms."""
    lines = body.strip().splitlines() or [""]
    return re.sub(r"<[^>]*>|\"[^\"]*\"|urn:\S+", "...", lines[0].rpartition("Exception: ")[2])[:80]


def run_suite(run: DeterminismRun, at: MasterHarness, tests: W3cSuite) -> None:
    """The W3C's: each on its own data; what it comes to is ``make w3c``'s to judge."""
    for test in tests.tests:
        if not isinstance(test, UpdateTest):
            continue
        run.clear()
        fill_dataset(at, quads_of(tests, test.before))
        run.update(test.request)
    run.merge()


def run_random(run: DeterminismRun, at: MasterHarness, seed: int, count: int, triple_terms: float = 0.0) -> None:
    """Random updates until ``count`` are accepted, but not for ever. ``triple_terms``: the share of such terms."""
    updates = RandomUpdates(random.Random(f"updates {seed}"), triple_terms=triple_terms)
    refill_each = REFILL_EACH if at.stores["second"].kind is StoreKind.MEMORY else REFILL_EACH_OF_JAVA
    shown = time.monotonic()
    until = run.accepted + count
    for number in range(1, ATTEMPTS_FACTOR_MAX * count + 1):
        if run.accepted >= until:
            break
        if run.quads > QUADS_MAX:
            run.clear()
        run.update(updates.update(), f"/statements{updates.data_set()}")
        run.met.update(updates.used)
        if number % MERGE_EACH == 0:
            run.merge()
        if number % refill_each == 0:
            run.refill()
        if time.monotonic() > shown + 15:
            shown = time.monotonic()
            console.print(
                f"{number} random updates, {run.refused.total()} refused, {len(run.unequal)} unequal, "
                f"{len(run.wrong)} wrong"
            )
    run.merge()


def _report_capture(capture: CaptureCheck, report: BenchReport) -> None:
    for text in capture.wrong_sets[:SHOWN_MAX] + capture.wrong_inverse[:SHOWN_MAX]:
        print(text)
    capture.close()
    report.figure("captured", capture.entries)
    report.figure("capturedSeveralOperations", capture.with_several_operations)
    report.equal("wrong_sets", len(capture.wrong_sets), 0)
    report.equal("wrong_inverse", len(capture.wrong_inverse), 0)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.conformance.determinism.run", description=__doc__)
    parser.add_argument("--updates", type=int, default=1000, help="random ones; the W3C's come besides")
    parser.add_argument("--seed", type=int, default=None, help="of the random ones (drawn and printed when not given)")
    parser.add_argument("--engines", choices=ENGINES, default="mixed", help="of the stores")
    parser.add_argument("--no-jena", action="store_true", help="mixed: without a Fuseki beside the Oxigraphs")
    parser.add_argument("--rdf4j", action="store_true", help="mixed: with an RDF4J server beside them")
    parser.add_argument("--capture", action="store_true", help="compare the change sets of a capture store, too")
    parser.add_argument("--no-w3c", action="store_true", help="leave the W3C's out: they are fetched")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    console.print(f"seed {seed}")
    report = BenchReport("determinism")
    tests = None if options.no_w3c else W3cSuite()
    folder = Path(tempfile.mkdtemp(prefix="txlog-determinism-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        mixed = options.engines == "mixed"
        lacks_triple_terms = options.rdf4j or options.engines == "rdf4j"
        others = {**({} if options.no_jena else JENA), **(RDF4J if options.rdf4j else {})} if mixed else {}
        prompt = (*SYNCHRONOUS_STORES, *others)
        with start_master_harness(folder, {**ENGINES[options.engines], **others}, prompt, mixed_engines=mixed) as at:
            capture = CaptureCheck(at) if options.capture else None
            run = DeterminismRun(at, random.Random(f"order {seed}"), prompt, capture)
            try:
                if tests is not None:
                    run_suite(run, at, tests)
                run_random(run, at, seed, options.updates, 0.0 if lacks_triple_terms else TRIPLE_TERMS)
            except StoreBlocked as blocked:
                report.failed("every accepted update is carried out", str(blocked))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_table(build_table("forms met", ("form", "updates"), sorted(run.met.items())))
    if run.refused_by_all:
        rows = run.refused_by_all.most_common()
        print_table(build_table("refused by all stores alike, and skipped", ("error", "updates"), rows))
    print_table(build_table("refused, for stores could differ", ("construct", "updates"), run.refused.most_common()))
    for text in run.unequal[:SHOWN_MAX] + run.wrong[:SHOWN_MAX]:
        print(text)
    report.at_least("updates", run.accepted, options.updates)
    report.figure("refused", run.refused.total())
    report.figure("refusedByAll", run.refused_by_all.total())
    report.equal("unequal", len(run.unequal), 0)
    report.equal("wrong", len(run.wrong), 0)
    if capture is not None:
        _report_capture(capture, report)
    report.figure("seed", seed)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
