"""What ``make rdf4j-suite`` rests on, and a part of it: names, verdicts, and that a list that is not true is a miss."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.conformance.rdf4j.java_client import CLIENT_LOCK_FILE
from e2e.conformance.rdf4j.suite_list import (
    LIST_FILE,
    UNEXPLAINED,
    ListedTest,
    Proof,
    judge,
    read_list,
    renew_list,
    write_list,
)
from e2e.conformance.rdf4j.suite_programs import (
    GROUPS,
    LOCK_FILE,
    OutcomeReader,
    SuiteOutcome,
    base_name,
    read_lock,
)
from e2e.conformance.rdf4j.suite_run import SuiteSelection, count_groups, run_target, select_tests
from e2e.conformance.rdf4j.suite_targets import master_target
from txlog.local.local_errors import CannotRun

QUICK_GROUPS = ("http", "isolation", "update", "compliance")
ASKED = (
    "DeadLockTest.test",
    "HttpCompliance.exists FilterNotExistsBindingToCurrentSolutionMapping",
    "HttpCompliance.orderBy DistinctOptionalOrderBy",
    "HttpConnection.testAddStatement [6] SERIALIZABLE",
    "HttpConnection.testRollback [3] READ_COMMITTED",
    "HttpConnection.testXmlCalendarZ [5] SNAPSHOT",
    "HttpSparqlOrderBy.testQuery1",
    "HttpSparqlSetBinding.testBindingSubselect",
    "HttpTupleQueryResult.testGetBindingNames",
    "HttpUpdate.testInsertData",
    "HttpUpdate.testUpdateSequenceInsertDeleteExample9",
    "IsolationLevelTest.testSerializable",
    "MonotonicTest.test_changedInsert",
    "SerializableTest.testPrepare_conflictPattern",
    "SerializableTest.test_conflictQuery",
    "SerializableTest.test_independentPattern",
    "SerializableTest.test_safeQuery",
    "SnapshotTest.test_mergeInsert",
)


def outcome(name: str, word: str = "passed", group: str = "http") -> SuiteOutcome:
    return SuiteOutcome(group, name, word, 1, "why" if word == "failed" else "")


def test_the_lines_of_the_program_are_read() -> None:
    reader = OutcomeReader()
    assert reader.read("group update") is None
    assert reader.read("A.t\tpassed\t12\t") == SuiteOutcome("update", "A.t", "passed", 12, "")
    again = reader.read("A.t\tfailed\t3\ta\\tb\\nc\\\\d")
    assert again == SuiteOutcome("update", "A.t #2", "failed", 3, "a\tb\nc\\d")
    assert base_name(again.name) == "A.t"
    with pytest.raises(ValueError, match="no line of a test"):
        reader.read("something else")


def test_every_file_is_pinned() -> None:
    files = read_lock(LOCK_FILE.read_text() + CLIENT_LOCK_FILE.read_text())
    assert {"rdf4j-repository-testsuite", "rdf4j-sparql-testsuite"} <= {file.name for file in files}
    assert all(len(file.sha256) == 64 for file in files)
    assert len({file.filename for file in files}) == len(files)
    with pytest.raises(ValueError, match="no file"):
        read_lock("org.eclipse.rdf4j rdf4j-model 5.2.0")


def test_the_list_says_something_in_each_line() -> None:
    line = "| `A.t` | both | server | because |"
    assert read_list(line) == [ListedTest("A.t", frozenset({"oxigraph", "rdf4j"}), Proof.SERVER, "because")]
    for wrong in (f"{line}\n{line}", "| `A.t` | fuseki | server | x |", "| `A.t` | both | hope | x |"):
        with pytest.raises(ValueError, match="twice, or says nothing"):
            read_list(wrong)
    assert read_list(LIST_FILE.read_text())


def test_a_test_may_fail_only_with_its_proof() -> None:
    both = frozenset({"oxigraph", "rdf4j"})
    listed = [
        ListedTest("server", both, Proof.SERVER, "x"),
        ListedTest("store", both, Proof.STORE, "x"),
        ListedTest("open", both, Proof.NONE, "x"),
        ListedTest("other", frozenset({"rdf4j"}), Proof.SERVER, "x"),
    ]
    names = [test.name for test in listed]
    failed = [outcome(name, "failed") for name in (*names, "unlisted")]
    proofs = {
        Proof.SERVER: {name: outcome(name, "failed") for name in ("server", "other")},
        Proof.STORE: {"store": outcome("store", "failed")},
    }
    made = judge("oxigraph", failed, listed, proofs)
    assert (made.allowed, made.open, made.failed) == (["server", "store"], ["open"], ["other", "unlisted"])
    assert made.untrue == []
    moody = [ListedTest("moody", both, Proof.SOMETIMES, "x")]
    assert judge("oxigraph", [outcome("moody")], moody, {}).untrue == []
    again = {Proof.SOMETIMES: {"moody": outcome("moody", "failed")}}
    assert judge("oxigraph", [outcome("moody", "failed")], moody, again).allowed == ["moody"]
    assert judge("oxigraph", [outcome("moody", "failed")], moody, {}).failed == ["moody"]
    unproved = judge("oxigraph", failed, listed, {Proof.SERVER: {"server": outcome("server")}})
    assert {"server", "store"} <= set(unproved.failed)
    assert len(unproved.untrue) == 2
    elsewhere = {Proof.STORE: {"store": outcome("store", "failed")._replace(why="There.java:1 an error")}}
    assert "store" in judge("oxigraph", failed, listed, elsewhere).failed, "it fails in another way"
    passed = judge("oxigraph", [outcome("server"), outcome("open", "skipped")], listed, proofs)
    assert passed.passed == ["server"]
    assert passed.untrue == [
        "server passes on oxigraph, and is listed",
        "store is listed for oxigraph, and was not run",
    ]
    counts = count_groups([outcome("server"), outcome("open", "skipped")], passed)
    assert counts == {"http": {"tests": 1, "passed": 1, "failed": 0, "allowed": 0, "open": 0, "skipped": 1}}


def test_the_list_is_renewed_by_what_was_run() -> None:
    both = frozenset({"oxigraph", "rdf4j"})
    listed = [ListedTest("a", both, Proof.NONE, "x"), ListedTest("b", both, Proof.SERVER, "y")]
    ran = [outcome("a"), *(outcome(name, "failed") for name in "bcd")]
    made = renew_list(listed, {"oxigraph": ran}, {"c": outcome("c", "failed")})
    assert set(made) == {
        ListedTest("a", frozenset({"rdf4j"}), Proof.NONE, "x"),
        ListedTest("b", both, Proof.SERVER, "y"),
        ListedTest("c", frozenset({"oxigraph"}), Proof.SERVER, UNEXPLAINED),
        ListedTest("d", frozenset({"oxigraph"}), Proof.NONE, UNEXPLAINED),
    }
    text = write_list("# T\n|---|---|\n| `old` | both | server | x |\n\n|---|---|\n\nend\n", made)
    assert set(read_list(text)) == set(made)
    assert text.index("`b`") < text.index("`a`") < text.index("end")
    assert write_list(text, read_list(text)) == text


def test_groups_and_words_select() -> None:
    assert select_tests("") == SuiteSelection(GROUPS, "")
    assert select_tests("").is_whole
    assert select_tests("w3c,http") == SuiteSelection(("http", "w3c"), "")
    assert select_tests("testDelete") == SuiteSelection(GROUPS, "testDelete")
    assert not select_tests("testDelete").is_whole


@pytest.mark.cluster
@pytest.mark.timeout(600)  # the suites are fetched the first time
def test_a_part_of_the_suites_passes_on_a_master(tmp_path: Path) -> None:
    target = master_target(tmp_path / "master", "oxigraph")
    try:
        outcomes = run_target("master", target, SuiteSelection(QUICK_GROUPS, ""), tmp_path, asked=ASKED)
    except CannotRun as why:
        pytest.skip(str(why))
    assert {one.name: one.why for one in outcomes if one.word == "failed"} == {}
    assert {one.name for one in outcomes} == set(ASKED)
