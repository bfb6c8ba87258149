"""An effect in a later place of the log is what the update itself would have done there, or nothing."""

from __future__ import annotations

import io

import pyoxigraph
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from txlog.evaluation.dataset_copy import DatasetCopy, load_copy
from txlog.model.entry import Position
from txlog.model.errors import BadInput, TooLarge
from txlog.sparql import EvaluatedUpdate, prepare_evaluated
from txlog.workers import OxigraphAdapter
from txlog.workers.adapter import EMPTY_MARKER, StoreOperation
from txlog.workers.update_batches import update_texts

NOW = "2026-11-21T10:00:00.123Z"
SEED = """INSERT DATA { <a:a> <a:p> <a:b>, <a:c> . <a:b> <a:q> <a:a>, 1, "x"@en . <a:c> a <a:b> .
GRAPH <a:g> { <a:a> <a:q> <a:b> . <a:b> <a:p> <a:c> } GRAPH <a:h> { <a:a> a <a:b> . <a:c> <a:r> 2 } }"""


def at(*texts: str) -> pyoxigraph.Store:
    store = pyoxigraph.Store()
    for text in texts:
        store.update(text)
    return store


def quads(store: pyoxigraph.Store) -> list[str]:
    return sorted(map(str, store))


def evaluated(text: str) -> EvaluatedUpdate:
    return prepare_evaluated(text, base=None, now=NOW, draw=lambda: 7)


NODES = st.sampled_from(["?s", "?o", "?o", "<a:a>", "<a:b>", "<a:c>"])
VERBS = st.sampled_from(["<a:p>", "<a:q>", "<a:r>", "a", "<a:p>/<a:q>", "^<a:q>", "(<a:p>|<a:q>)+", "?v", "!<a:p>"])
PATTERNS = st.recursive(
    st.builds("{} {} {} . ".format, NODES, VERBS, NODES),
    lambda inner: st.one_of(
        inner.map("OPTIONAL {{ {} }} ".format),
        inner.map("GRAPH ?g {{ {} }} ".format),
        inner.map("FILTER NOT EXISTS {{ {} }} ".format),
        inner.map("MINUS {{ {} }} ".format),
        inner.map("{{ SELECT ?s (COUNT(*) AS ?o) {{ {} }} GROUP BY ?s }} ".format),
        st.builds("{} {}".format, inner, inner),
        st.builds("{{ {} }} UNION {{ {} }} ".format, inner, inner),
    ),
    max_leaves=3,
)
PLAIN = st.sampled_from(["<a:p>", "<a:q>", "<a:r>", "<a:new>", "a"])
TEMPLATES = st.one_of(
    st.builds("{} {} {} . ".format, NODES, PLAIN, NODES),
    st.builds("GRAPH <a:g> {{ {} {} {} }} ".format, NODES, PLAIN, NODES),
)
MODIFIES = st.one_of(
    st.builds("DELETE {{ {} }} WHERE {{ {} }}".format, TEMPLATES, PATTERNS),
    st.builds("INSERT {{ {} }} WHERE {{ {} }}".format, TEMPLATES, PATTERNS),
    st.builds("DELETE {{ {} }} INSERT {{ {} }} WHERE {{ {} }}".format, TEMPLATES, TEMPLATES, PATTERNS),
    st.builds("WITH <a:g> INSERT {{ {} }} WHERE {{ {} }}".format, st.just("?s <a:new> ?o"), PATTERNS),
)
UPDATES = st.lists(
    st.one_of(
        MODIFIES,
        st.sampled_from(
            ["DELETE WHERE { ?s <a:q> ?o }", "CLEAR GRAPH <a:g>", "COPY <a:g> TO <a:h>", "INSERT DATA {<a:a> <a:r> 3}"]
        ),
    ),
    min_size=1,
    max_size=2,
).map(" ; ".join)
BETWEEN = st.one_of(
    st.builds(
        "{} DATA {{ {} {} {} }}".format,
        st.sampled_from(["INSERT", "DELETE"]),
        *(st.sampled_from(["<a:a>", "<a:b>", "<a:c>"]), PLAIN, st.sampled_from(["<a:a>", "<a:b>", "<a:c>", "1"])),
    ),
    st.sampled_from(["DELETE DATA { GRAPH <a:g> { <a:a> <a:q> <a:b> } }", "DROP GRAPH <a:h>", "INSERT DATA {}"]),
)


@settings(deadline=None, max_examples=500)
@given(UPDATES, BETWEEN)
def test_an_effect_in_a_later_place_is_the_updates_own_or_nothing(text: str, between: str) -> None:
    """These updates say what they do, so what they would do in the later place can be seen by doing it."""
    try:
        update = evaluated(text)
    except BadInput:
        assume(False)
        raise
    copy = DatasetCopy(at(SEED), EMPTY_MARKER.position)
    effect = copy.evaluate(update, lambda: 7, 1 << 20)
    assert copy.fingerprint(None) == DatasetCopy(at(SEED), EMPTY_MARKER.position).fingerprint(None), (
        "the copy is not as it was"
    )
    carried = update_texts([StoreOperation(effect.body.kind, effect.body.payload)])
    assert quads(at(SEED, *carried)) == quads(at(SEED, update.text))
    found = quads(at(SEED, between, *carried))
    before = at(SEED, between)
    if DatasetCopy(before, EMPTY_MARKER.position).fingerprint(update.read_predicates) == effect.fingerprint:
        event("counts" if quads(before) != quads(at(SEED)) else "nothing came between")
        assert found == quads(at(SEED, between, update.text))
    else:
        event("overtaken")
        assert found == quads(before)


def test_a_copy_that_refuses_is_as_it_was() -> None:
    copy = DatasetCopy(at(SEED), EMPTY_MARKER.position)
    before = copy.fingerprint(None)
    with pytest.raises(TooLarge, match="one transaction may hold 20"):
        copy.evaluate(evaluated("INSERT { ?s <a:new> ?u } WHERE { ?s ?p ?o BIND(UUID() AS ?u) }"), lambda: 7, 20)
    with pytest.raises(BadInput, match="fails where it is evaluated"):
        copy.evaluate(EvaluatedUpdate("DELETE WHERE { ?s ?p ?o } ; DROP GRAPH <a:none>", None), lambda: 7, 1 << 20)
    assert copy.fingerprint(None) == before


MARKER = "urn:txlog:system:5:" + "ab" * 16 + ":0:1"


@pytest.mark.parametrize(
    ("rows", "position"),
    [
        ("", Position(0, 0, bytes(16))),
        (f"<{MARKER}>\t\t\t\n", Position(1, 5, b"\xab" * 16)),
        (f"\t<a:s>\t<a:p>\t1\n<{MARKER}>\t\t\t\n<a:g>\t<a:s>\t<a:p>\t\"x\"@en\n", Position(1, 5, b"\xab" * 16)),
        ("\t<a:s>\t<a:p>\t1\n", None),
        (f"<{MARKER}>\t\t\t\n<{MARKER.replace(':5:', ':6:')}>\t\t\t\n", None),
        (f"<{MARKER}>\t\t\t\n\t_:b\t<a:p>\t1\n", None),
        (f"<{MARKER}:u3-{'cd' * 16}>\t\t\t\n", None),
        (f"<urn:txlog:system:loading:5:{'ab' * 16}:1:7>\t\t\t\n", None),
        (f"<{MARKER}>\t\t\t\n<urn:txlog:system:lock:00>\t\t\t\n", Position(1, 5, b"\xab" * 16)),
    ],
)  # fmt: skip
def test_only_what_stands_somewhere_on_a_log_is_copied(rows: str, position: Position | None) -> None:
    copy, stands = load_copy(OxigraphAdapter(), io.BytesIO(f"?g\t?s\t?p\t?o\n{rows}".encode()))
    assert stands == position
    assert copy.has_quads == ("<a:p>" in rows), "a transaction reads it all the same"
