"""Who is right, by rule: looks at equal positions, and what a worker held before at the same marker."""

from __future__ import annotations

import pytest

from txlog.divergence.detector import POSITIONS_KEPT, DivergenceDetector, ObservedWorker, append_digest, merge_digests
from txlog.model.graph_digests import (
    GRAPHS_MAX,
    KINDS,
    GraphDigests,
    build_cell_digests,
    build_graph_digests,
    differing_graphs,
)
from txlog.model.store_cell import StoreCell
from txlog.wire.divergence_report import DivergenceFinding

RIGHT: dict[str, tuple[int, int | None]] = {"": (2, None), "urn:a": (10, None), "urn:b": (20, None)}
WRONG: dict[str, tuple[int, int | None]] = {**RIGHT, "urn:b": (19, None)}
OTHER: dict[str, tuple[int, int | None]] = {**RIGHT, "urn:c": (1, None)}


def look(
    graphs: dict[str, tuple[int, int | None]], index: int = 5, fence: int = 0, kind: str = "counts"
) -> GraphDigests:
    return build_graph_digests(kind, index, f"{index:02x}" * 16, fence, graphs)


def subject(name: str, *looks: GraphDigests, engine: str = "oxigraph") -> ObservedWorker:
    kept: list[GraphDigests] = []
    for each in looks:
        kept = append_digest(kept, each)
    return ObservedWorker(f"uk/{name}", engine, kept)


def judged(
    *subjects: ObservedWorker, findings: DivergenceDetector | None = None
) -> dict[str, DivergenceFinding | None]:
    findings = findings or DivergenceDetector()
    findings.judge(subjects)
    return {each.name.removeprefix("uk/"): findings.finding_of(each.name) for each in subjects}


def test_equal_workers_are_no_finding_whatever_the_order_of_their_graphs() -> None:
    turned = dict(reversed(RIGHT.items()))
    assert judged(subject("a", look(RIGHT)), subject("b", look(turned))) == {"a": None, "b": None}


def test_the_one_that_the_majority_contradicts_is_wrong_and_its_graphs_are_named() -> None:
    found = judged(subject("a", look(RIGHT)), subject("b", look(WRONG)), subject("c", look(RIGHT)))
    assert found["a"] is found["c"] is None
    b = found["b"]
    assert b is not None
    assert (b.wrong, b.graphs, b.graph_count, b.right) == (True, ["urn:b"], 1, ["uk/a", "uk/c"])
    assert (b.first_index, b.index) == (5, 5)


def test_a_cell_that_changed_outside_the_log_is_no_finding_once_the_sums_are_equal_again() -> None:
    """Each data centre has one worker: no other reading of the cell can contradict its finding."""
    cell = StoreCell("urn:b", "urn:p")
    full, less = (build_cell_digests(cell, 5, "05" * 16, 0, quads, quads) for quads in (20, 19))
    right, wrong = (look({name: (n, n) for name, (n, _) in graphs.items()}, kind="sums") for graphs in (RIGHT, WRONG))
    other = subject("b", right)
    findings = DivergenceDetector()
    for looks in ((right, less, full), (less, full, wrong), (right, full, less)):
        found = judged(subject("a", *looks), other, findings=findings)["a"]
        assert found is not None, "its sums were equal before, or are not"
        assert (found.kind, found.wrong) == ("cells", True)
    for looks in ((less, full, wrong, right), (less, full, wrong, right, look(RIGHT))):
        assert judged(subject("a", *looks), other, findings=findings) == {"a": None, "b": None}
    assert findings.judge([subject("a", less, full, wrong, right), other]) == ([], []), "it stays removed"
    alone = judged(subject("a", less, full, right), subject("b"))["a"]
    assert alone is not None, "no other worker has the same sums"


def test_two_that_differ_are_undecided_both_named_and_nobody_is_called_right() -> None:
    found = judged(subject("a", look(RIGHT)), subject("b", look(WRONG)))
    for each in found.values():
        assert each is not None
        assert (each.wrong, each.graphs, each.right) == (False, ["urn:b"], [])
        assert each.why.startswith("undecided")


def test_three_different_contents_are_undecided_too() -> None:
    found = judged(subject("a", look(RIGHT)), subject("b", look(WRONG)), subject("c", look(OTHER)))
    assert all(each is not None and not each.wrong for each in found.values())


def test_a_worker_that_changed_at_the_same_marker_is_wrong_although_there_are_only_two() -> None:
    found = judged(subject("a", look(RIGHT)), subject("b", look(RIGHT), look(WRONG)))
    assert found["a"] is None
    b = found["b"]
    assert b is not None
    assert b.wrong
    assert b.right == ["uk/a"]
    assert "without TxLog" in b.why


def test_and_although_it_is_alone() -> None:
    b = judged(subject("b", look(RIGHT), look(WRONG)))["b"]
    assert b is not None
    assert (b.wrong, b.graphs, b.right) == (True, ["urn:b"], [])


def test_what_is_known_of_a_worker_holds_at_later_positions_until_its_fence_changes() -> None:
    findings = DivergenceDetector()
    judged(subject("a", look(RIGHT)), subject("b", look(RIGHT), look(WRONG)), findings=findings)
    later = (
        subject("a", look(RIGHT), look(RIGHT, 9)),
        subject("b", look(RIGHT), look(WRONG), look(WRONG, 9)),
    )
    found = judged(*later, findings=findings)["b"]
    assert found is not None
    assert (found.wrong, found.first_index, found.index, found.right) == (True, 5, 9, ["uk/a"])
    repaired = subject("b", look(RIGHT), look(WRONG), look(WRONG, 9), look(RIGHT, 9, fence=1))
    new, lifted = findings.judge([later[0], repaired])
    assert (new, lifted) == ([], ["uk/b"])
    assert findings.finding_of("uk/b") is None


def test_positions_that_are_not_equal_and_hashes_that_are_not_prove_nothing() -> None:
    fork = build_graph_digests("counts", 5, "ff" * 16, 0, WRONG)
    assert judged(subject("a", look(RIGHT)), subject("b", look(WRONG, 6)), subject("c", fork)) == {
        **dict.fromkeys("abc")
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["fuseki", "rdf4j"])
def test_engines_whose_quads_are_the_same_are_compared_with_each_other(engine: str, kind: str) -> None:
    def told(graphs: dict[str, tuple[int, int | None]]) -> GraphDigests:
        return look({name: (n, n if kind == "sums" else None) for name, (n, _) in graphs.items()}, kind=kind)

    alike = judged(subject("a", told(RIGHT)), subject("b", told(RIGHT), engine=engine))
    assert alike == {"a": None, "b": None}
    pair = judged(subject("a", told(RIGHT)), subject("b", told(WRONG), engine=engine))
    assert {name: f and (f.kind, f.wrong, f.graphs) for name, f in pair.items()} == dict.fromkeys(
        "ab", (kind, False, ["urn:b"])
    )
    three = [subject("a", told(RIGHT)), subject("b", told(WRONG), engine=engine), subject("c", told(RIGHT))]
    found = judged(*three)["b"]
    assert found is not None
    assert (found.wrong, found.graphs, found.right) == (True, ["urn:b"], []), "nobody of its engine to copy from"
    assert found.why == "2 of 3 workers hold the same there"
    found = judged(*three, subject("d", told(RIGHT), engine=engine))["b"]
    assert found is not None
    assert found.right == ["uk/d"]


@pytest.mark.parametrize("engine", ["virtuoso", "one-that-nobody-knows"])
def test_engines_whose_quads_are_others_are_compared_among_themselves(engine: str) -> None:
    found = judged(subject("a", look(RIGHT)), subject("b", look(WRONG), engine=engine))
    assert found == {"a": None, "b": None}
    own = judged(subject("a", look(RIGHT), engine=engine), subject("b", look(WRONG), engine=engine))
    assert all(each is not None for each in own.values())


def test_equal_counts_say_nothing_about_sums() -> None:
    one: dict[str, tuple[int, int | None]] = {"urn:a": (1, 7)}
    two: dict[str, tuple[int, int | None]] = {"urn:a": (1, 8)}
    findings = DivergenceDetector()
    looks = [
        subject("a", look(one, kind="sums")),
        subject("b", look(two, kind="sums")),
        subject("c", look(one, kind="sums")),
    ]
    assert judged(*looks, findings=findings)["b"] is not None
    again = [
        ObservedWorker(s.name, s.engine, [*s.digests, look({"urn:a": (1, None)}, 6)])  # counted later, and equal
        for s in looks
    ]
    found = judged(*again, findings=findings)["b"]
    assert found is not None
    assert found.kind == "sums"


def test_what_sums_have_found_is_lifted_by_a_repair_before_anything_is_summed_again() -> None:
    one: dict[str, tuple[int, int | None]] = {"urn:a": (1, 7)}
    two: dict[str, tuple[int, int | None]] = {"urn:a": (1, 8)}
    count: dict[str, tuple[int, int | None]] = {"urn:a": (1, None)}
    a, c = (subject(name, look(one, kind="sums"), look(count)) for name in "ac")
    findings = DivergenceDetector()
    assert judged(a, subject("b", look(two, kind="sums"), look(count)), c, findings=findings)["b"] is not None
    repaired = subject("b", look(two, kind="sums"), look(count), look(count, fence=1))
    assert judged(a, repaired, c, findings=findings)["b"] is None
    again = subject("b", look(count, fence=1), look(two, fence=1, kind="sums"))
    found = judged(a, again, c, findings=findings)["b"]
    assert found is not None
    assert found.fence == 1


def test_a_change_that_is_taken_back_is_lifted() -> None:
    findings = DivergenceDetector()
    assert judged(subject("b", look(RIGHT), look(WRONG)), findings=findings)["b"] is not None
    assert judged(subject("b", look(RIGHT), look(WRONG), look(RIGHT)), findings=findings)["b"] is None


def test_a_refusal_of_what_others_executed_is_a_finding_at_that_transaction() -> None:
    refusing = ObservedWorker("uk/b", "oxigraph", [], "uk-1.00c0ffee00c0ffee.7", 6)
    others = [ObservedWorker("uk/a", "oxigraph", [], None, 7), ObservedWorker("us/a", "oxigraph", [], None, 8)]
    findings = DivergenceDetector()
    new, _ = findings.judge([refusing, *others])
    ((name, found),) = new
    assert (name, found.kind, found.wrong, found.first_index) == ("uk/b", "refusal", True, 7)
    assert found.right == ["uk/a", "us/a"]
    assert findings.judge([refusing, *others]) == ([], []), "said once"
    one = DivergenceDetector()
    one.judge([refusing, others[0]])
    undecided = one.finding_of("uk/b")
    assert undecided is not None
    assert not undecided.wrong
    nobody = DivergenceDetector()
    nobody.judge([refusing, ObservedWorker("uk/a", "oxigraph", [], None, 6)])
    assert nobody.finding_of("uk/b") is None, "nobody has executed it"
    _, lifted = findings.judge([ObservedWorker("uk/b", "oxigraph", [], None, 7), *others])
    assert lifted == ["uk/b"]


def test_many_graphs_are_told_apart_by_their_fingerprint_alone() -> None:
    many: dict[str, tuple[int, int | None]] = {f"urn:{n}": (1, None) for n in range(GRAPHS_MAX + 1)}
    one, other = look(many), look({**many, "urn:0": (2, None)})
    assert one.graphs is None
    assert differing_graphs(one, other) is None
    found = judged(subject("a", one), subject("b", other), subject("c", one))["b"]
    assert found is not None
    assert (found.wrong, found.graphs, found.graph_count) == (True, [], None)


def test_only_a_few_looks_are_remembered() -> None:
    kept: list[GraphDigests] = []
    for index in range(20):
        for graphs in (RIGHT, RIGHT, WRONG, OTHER):
            kept = append_digest(kept, look(graphs, index))
    assert len(kept) == 2 * POSITIONS_KEPT
    assert kept[-1] == look(OTHER, 19)
    assert kept[-2] == look(RIGHT, 19)
    assert merge_digests(kept, kept) == kept
