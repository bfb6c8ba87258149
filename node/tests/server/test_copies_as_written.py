"""A copy of stores that hold literals as they were sent has them as they were sent, and computes with their values."""

from __future__ import annotations

import io

import pyoxigraph as ox
import pytest
from forms_as_sent import FORMS_AS_SENT, XSD
from hypothesis import assume, given, settings
from test_copies import SEED, UPDATES, at, evaluated

from txlog.config.units import AS_WRITTEN
from txlog.evaluation.dataset_copy import PARTIAL_COPY, DatasetCopy, load_copy
from txlog.evaluation.literal_forms import LiteralForms
from txlog.evaluation.pipe_protocol import MatchRequest, QueryRequest, TransactionStep
from txlog.evaluation.read_operations import execute_query, match_quads, serialise_quads
from txlog.evaluation.transaction_replay import replay_steps
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, Position
from txlog.model.errors import BadInput, Unavailable
from txlog.sparql import EFFECT_CONDITION, EvaluatedUpdate, names_form
from txlog.workers import ADAPTERS
from txlog.workers.adapter import EMPTY_MARKER, StoreOperation

FORMS = [*FORMS_AS_SENT, f'"-02"^^<{XSD}integer>', '"01"', '"x"@en', "<urn:o>"]
EVERYTHING = 1 << 20


def _copy(*literals: str) -> DatasetCopy:
    lines = "".join(f"<urn:s> <urn:p> {each} <urn:g> .\n" for each in literals)
    return DatasetCopy(ox.parse(lines, ox.RdfFormat.N_QUADS), EMPTY_MARKER.position, forms=LiteralForms())


def _held(copy: DatasetCopy) -> list[str]:
    lines = copy.decode(serialise_quads(match_quads(copy, (None, None, None), None), False, EVERYTHING)).decode()
    return sorted(line.removeprefix("<urn:s> <urn:p> ").removesuffix(" <urn:g> .") for line in lines.splitlines())


def _ask(copy: DatasetCopy, text: str) -> list[str]:
    asked = QueryRequest(text, True, (), (), "text/tab-separated-values", EVERYTHING)
    return execute_query(copy, asked).decode().splitlines()[1:]


def _drawn() -> int:
    return 7


def test_every_form_is_a_statement_of_its_own() -> None:
    copy = _copy(*FORMS)
    assert _held(copy) == sorted(FORMS)
    for form in FORMS:
        assert len([*match_quads(copy, (None, None, form), None)]) == 1, form
    gone, added = FORMS[1], f'"007"^^<{XSD}int>'
    payload = f"D <urn:s> <urn:p> {gone} <urn:g> .\nA <urn:s> <urn:p> {added} <urn:g> .\n".encode()
    copy.apply_operations([StoreOperation(KIND_QUADS, payload)], Position(1, 1, b""))
    assert _held(copy) == sorted({*FORMS, added} - {gone})


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT ?o { ?s ?p ?o } ORDER BY ?o", ["-02", "01", f'"7"^^<{XSD}int>']),
        ("SELECT ?o { ?s ?p ?o FILTER(?o = 7) }", [f'"7"^^<{XSD}int>']),
        ("SELECT ?o { ?s ?p ?o FILTER(?o IN (1, 2)) }", ["01"]),
        ("SELECT ?o { ?s ?p ?o FILTER EXISTS { ?s ?p ?x FILTER(?x > 6) } FILTER(-?o > 1) }", ["-02"]),
        ("SELECT ?s { ?s ?p 1 }", []),
        ("SELECT ?s { ?s ?p 01 }", ["<urn:s>"]),
        (f"PREFIX xsd: <{XSD}> SELECT ?s {{ ?s ?p '7'^^xsd:int }}", ["<urn:s>"]),
        ("SELECT ?o { VALUES ?o { 01 7 } ?s ?p ?o }", ["01"]),
        ("SELECT ?x { ?s ?p ?o BIND(?o AS ?x) FILTER(sameTerm(?x, 01)) }", ["01"]),
        ("SELECT (STR(?o) AS ?x) { ?s ?p ?o FILTER(?o = 1) }", ['"01"']),
        (f"SELECT (<{XSD}string>(?o) AS ?x) {{ ?s ?p ?o FILTER(<{XSD}integer>(?o) = 1) }}", ['"01"']),
        ("SELECT (COUNT(*) AS ?n) (DATATYPE(?o) AS ?x) { ?s ?p ?o FILTER(?o = 7) } GROUP BY ?o", [f"1\t<{XSD}int>"]),
        ("SELECT (SUM(?o) AS ?x) (COUNT(DISTINCT ?o) AS ?n) { ?s ?p ?o }", ["6\t3"]),
        ("SELECT (COALESCE(?none, ?o) AS ?x) { ?s ?p ?o FILTER(COALESCE(?o, 0) + 1 = 2) }", ["01"]),
        ("SELECT (IF(?o > 1, ?o, 0) AS ?x) { ?s ?p ?o FILTER(IF(?o > 1, ?o, 0) > 0) }", [f'"7"^^<{XSD}int>']),
        ("SELECT ?o { ?s ?p ?o } GROUP BY ?o HAVING(?o > 1)", [f'"7"^^<{XSD}int>']),
        ("SELECT ?o { ?s ?p ?o } ORDER BY DESC(?o) LIMIT 01", [f'"7"^^<{XSD}int>']),
        ("SELECT ?x { { SELECT (?o + 1 AS ?x) { ?s ?p ?o } ORDER BY ?o LIMIT 1 } FILTER(?x < 0) }", ["-1"]),
        ("SELECT ?o ?n { VALUES (?o ?n) { (01 1) (7 2) } ?s ?p ?o FILTER(?n = ?o) }", ["01\t1"]),
        (
            "SELECT DISTINCT ?o { ?s ?p ?o , [] , ?q FILTER(?q IN (5+2)) FILTER NOT EXISTS { ?s ?p 1 } FILTER(?o<0) }",
            ["-02"],
        ),
        ("SELECT (SAMPLE(?o) AS ?x) { ?s ?p ?o } GROUP BY (?o > 1) HAVING(SAMPLE(?o) > 1)", [f'"7"^^<{XSD}int>']),
        ("SELECT ?o { ?s (<urn:p>|<urn:q>) ?o FILTER regex(STR(?o), '^0') }", ["01"]),
    ],
)
def test_a_query_matches_terms_and_compares_values(text: str, rows: list[str]) -> None:
    copy = _copy(f'"01"^^<{XSD}integer>', f'"-02"^^<{XSD}integer>', f'"7"^^<{XSD}int>')
    found = [
        row.replace(f'"01"^^<{XSD}integer>', "01").replace(f'"-02"^^<{XSD}integer>', "-02") for row in _ask(copy, text)
    ]
    assert found == rows


@settings(deadline=None, max_examples=150)
@given(UPDATES)
def test_a_rewritten_update_does_what_the_update_does(text: str) -> None:
    """Beside a literal in another form every text is rewritten; where it meets none, it must mean the same."""
    try:
        update = evaluated(
            f"{text} ; INSERT {{ ?s <a:more> ?n }} WHERE {{ ?s <a:r> ?o BIND(?o + 1 AS ?n) FILTER(?o > 1) }}"
        )
    except BadInput:
        assume(False)
        raise
    plain = DatasetCopy(at(SEED), EMPTY_MARKER.position)
    copy = DatasetCopy(at(SEED), EMPTY_MARKER.position, forms=LiteralForms())
    assert copy.forms is not None
    copy.forms.found = True
    expected, found = (one.execute_update(update, _drawn, EVERYTHING) for one in (plain, copy))
    assert sorted(found.splitlines()) == sorted(expected.splitlines())
    assert copy.fingerprint(None) == plain.fingerprint(None)


def test_an_effect_names_the_forms_that_are_there() -> None:
    copy = _copy(f'"01"^^<{XSD}integer>', f'"7"^^<{XSD}int>', '"x"')
    update = EvaluatedUpdate(
        "DELETE { GRAPH ?g { ?s <urn:p> ?o } } INSERT { GRAPH ?g { ?s <urn:q> ?o , 02 } } "
        "WHERE { GRAPH ?g { ?s <urn:p> ?o } FILTER(?o < 8 && RAND() < 2) }",
        ("<urn:p>", "<urn:q>"),
    )
    before = _held(copy)
    effect = copy.evaluate(update, _drawn, EVERYTHING)
    assert _held(copy) == before, "the copy is not as it was"
    text = effect.body.payload.decode()
    assert EFFECT_CONDITION in text
    assert names_form(text, AS_WRITTEN)
    for form in (f'"01"^^<{XSD}integer>', f'"7"^^<{XSD}int>', f'"02"^^<{XSD}integer>'):
        assert form in text
    copy.apply_operations([StoreOperation(KIND_UPDATE, effect.body.payload)], Position(1, 1, b""))
    assert _ask(copy, "SELECT ?o { ?s <urn:p> ?o }") == ['"x"']
    assert sorted(_ask(copy, "SELECT (STR(?o) AS ?x) { ?s <urn:q> ?o }")) == ['"01"', '"02"', '"7"']


def test_another_form_of_one_value_makes_an_effect_void() -> None:
    update = EvaluatedUpdate(
        "DELETE { GRAPH <urn:g> { ?s <urn:p> ?o } } WHERE { GRAPH <urn:g> { ?s <urn:p> ?o } }", ("<urn:p>",)
    )
    effect = _copy(f'"01"^^<{XSD}integer>').evaluate(update, _drawn, EVERYTHING)
    for other in (f'"1"^^<{XSD}integer>', f'"1"^^<{XSD}int>', f'"001"^^<{XSD}integer>'):
        copy = _copy(other)
        assert copy.fingerprint(update.read_predicates) != effect.fingerprint
        copy.apply_operations([StoreOperation(KIND_UPDATE, effect.body.payload)], Position(1, 1, b""))
        assert _held(copy) == [other]


def test_an_update_of_a_transaction_tells_the_forms_that_it_changed() -> None:
    copy = _copy(f'"01"^^<{XSD}integer>', f'"7"^^<{XSD}int>')
    update = EvaluatedUpdate(
        f"DELETE {{ GRAPH ?g {{ ?s ?p ?o }} }} INSERT {{ GRAPH ?g {{ ?s ?p '+7'^^<{XSD}int> , [] }} }} "
        "WHERE { GRAPH ?g { ?s ?p ?o FILTER(?o = 7) } }",
        None,
    )
    payload = copy.execute_update(update, _drawn, EVERYTHING).decode()
    assert f'D <urn:s> <urn:p> "7"^^<{XSD}int> <urn:g> .' in payload
    assert f'A <urn:s> <urn:p> "+7"^^<{XSD}int> <urn:g> .' in payload
    assert {f'"01"^^<{XSD}integer>', f'"+7"^^<{XSD}int>'} < {*_held(copy)}


def test_two_copies_replay_the_same_steps_to_the_same_digest() -> None:
    step = TransactionStep(read=MatchRequest((None, None, f'"01"^^<{XSD}integer>'), None, False, EVERYTHING))
    everything = TransactionStep(read=MatchRequest((None, None, None), None, False, EVERYTHING))
    same = [replay_steps(_copy(f'"01"^^<{XSD}integer>'), [each]) for each in (step, everything)]
    assert len({*same}) == 1
    assert replay_steps(_copy(f'"1"^^<{XSD}integer>'), [everything]) != same[0]


def test_a_copy_does_not_guess_the_form_of_a_value_that_a_store_computed() -> None:
    copy = _copy(f'"01"^^<{XSD}integer>')
    computed = (
        b"INSERT { GRAPH <urn:g> { ?s <urn:p> ?x } } WHERE { GRAPH <urn:g> { ?s <urn:p> ?o BIND(?o * 1.50 AS ?x) } }"
    )
    with pytest.raises(Unavailable) as refused:
        copy.apply_operations([StoreOperation(KIND_UPDATE, computed)], Position(1, 1, b""))
    assert refused.value.reason == PARTIAL_COPY
    copied = b"INSERT { GRAPH <urn:g> { ?s <urn:q> ?o } } WHERE { GRAPH <urn:g> { ?s <urn:p> ?o FILTER(?o = 1) } }"
    copy.apply_operations([StoreOperation(KIND_UPDATE, copied)], Position(1, 1, b""))
    assert _ask(copy, "SELECT (STR(?o) AS ?x) { ?s <urn:q> ?o }") == ['"01"']


def test_the_rows_of_a_store_keep_their_forms() -> None:
    marker = "urn:txlog:system:5:" + "ab" * 16 + ":0:1"
    form = f'{{"type":"literal","value":"01","datatype":"{XSD}integer"}}'
    rows = (
        '{"head":{"vars":["g","s","p","o"]},"results":{"bindings":['
        f'{{"g":{{"type":"uri","value":"{marker}"}}}},'
        f'{{"g":{{"type":"uri","value":"urn:g"}},"s":{{"type":"uri","value":"urn:s"}},'
        f'"p":{{"type":"uri","value":"urn:p"}},"o":{form}}}]}}}}'
    )
    copy, position = load_copy(ADAPTERS[AS_WRITTEN], io.BytesIO(rows.encode()))
    assert position == Position(1, 5, b"\xab" * 16)
    assert _held(copy) == [f'"01"^^<{XSD}integer>']
    copy, _ = load_copy(ADAPTERS["rdf4j"], io.BytesIO(rows.encode()))
    assert _held(copy) == [f'"1"^^<{XSD}integer>']
