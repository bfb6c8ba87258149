"""Updates that mean all graphs: what is said twice, what is evaluated once, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from txlog.model.entry import KIND_QUADS
from txlog.model.errors import BadInput, NotDeterministic
from txlog.sparql import EvaluatedOperation, is_valid_update, prepare_evaluated, prepare_update

NOW = "2026-11-21T10:00:00.123Z"
DRAWN = f"urn:txlog:drawn:{7:032x}"


def text_of(text: str) -> list[str]:
    prepared = prepare_update(text, base=None, now=NOW, draw=lambda: 7, all_graphs=True)
    assert prepared.kind != KIND_QUADS
    assert is_valid_update(prepared.payload.decode())
    return prepared.payload.decode().split(" ;\n")


def parts_of(text: str) -> tuple[EvaluatedOperation, ...]:
    with pytest.raises(NotDeterministic, match="an update of all graphs") as refused:
        prepare_update(text, base=None, now=NOW, draw=lambda: 7, all_graphs=True)
    assert refused.value.once
    found = prepare_evaluated(text, base=None, now=NOW, draw=lambda: 7, all_graphs=True)
    assert all(is_valid_update(part.text) for part in found.operations)
    return found.operations


def test_deleted_data_is_said_twice_where_it_names_no_graph() -> None:
    assert text_of("DELETE DATA { <a:a> <a:b> 1 . GRAPH <a:g> { <a:c> <a:d> 'x' } }") == [
        'DELETE WHERE { <a:a> <a:b> "1"^^<http://www.w3.org/2001/XMLSchema#integer> }',
        'DELETE WHERE { GRAPH ?graph { <a:a> <a:b> "1"^^<http://www.w3.org/2001/XMLSchema#integer> } }',
        'DELETE DATA {\nGRAPH <a:g> {\n<a:c> <a:d> "x" }\n}',
    ]


def test_one_pattern_is_said_twice() -> None:
    said = text_of("PREFIX e: <e:> DELETE WHERE { ?graph a e:x . }")[1]
    assert "".join(said.split()) == "DELETEWHERE{GRAPH?graph_{?grapha<e:x>}}"
    assert len(text_of("DELETE WHERE { ?s ?p ?o }")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "INSERT DATA { <a:a> <a:b> <a:c> }",
        "DELETE WHERE { GRAPH <a:g> { ?s ?p ?o } }",
        "DELETE { GRAPH <a:g> { ?s ?p 1 } } INSERT { ?s ?p 2 } WHERE { GRAPH <a:g> { ?s ?p 1 FILTER(?s != 3) } }",
        "WITH <a:g> DELETE { ?s ?p 1 } WHERE { ?s ?p 1 }",
        "DELETE { ?s ?p 1 } USING <a:g> WHERE { ?s ?p 1 }",
        "INSERT { <a:a> <a:b> ?x } WHERE { BIND(1 AS ?x) }",
        "CLEAR DEFAULT",
        "COPY DEFAULT TO <a:g>",
    ],
)
def test_what_names_its_graphs_means_what_it_did(text: str) -> None:
    one, other = (prepare_update(text, base=None, now=NOW, draw=lambda: 7, all_graphs=all_) for all_ in (True, False))
    assert one == other


def test_an_operation_on_the_union_writes_to_drawn_graphs() -> None:
    (part,) = parts_of(
        "DELETE { ?s <a:p> ?o . GRAPH <a:g> { ?s <a:q> ?o } . ?s <a:r> ?o } "
        "INSERT { ?s <a:n> ?o GRAPH <a:h> { ?o <a:m> ?s } } WHERE { ?s <a:p>+ ?o }"
    )
    assert part.output_graphs == ((f"{DRAWN}:0", ""), (f"{DRAWN}:1", ""), (f"{DRAWN}:2", "<a:h>"))
    said = "".join(part.text.split())
    assert said.startswith("DELETE{GRAPH<a:g>{?s<a:q>?o}}INSERT{")
    assert f"GRAPH<{DRAWN}:0>{{?s<a:p>?o.?s<a:r>?o}}" in said
    assert f"GRAPH<{DRAWN}:1>{{?s<a:n>?o}}" in said
    assert f"GRAPH<{DRAWN}:2>{{?o<a:m>?s}}" in said
    assert said.endswith("WHERE{?s<a:p>+?o}")


def test_others_beside_it_are_carried_out_as_they_are() -> None:
    first, second, third = parts_of(
        "INSERT DATA { <a:a> <a:b> 1 } ; DELETE { ?s ?p ?o } WHERE { ?s ?p ?o, 1 } ; CLEAR DEFAULT"
    )
    assert (first.output_graphs, third.output_graphs) == ((), ())
    assert second.output_graphs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("DELETE { ?s ?p [] } WHERE { ?s ?p ?o }", "a blank node deletes nothing"),
        ("DELETE { ?s ?p _:b } WHERE { ?s ?p ?o }", "a blank node deletes nothing"),
        ("DELETE { ?s ?p ?o } INSERT { GRAPH ?g { ?s ?p ?o } } WHERE { ?s ?p ?o GRAPH ?g {} }", "write GRAPH in both"),
        ("DELETE { ?s ?p } WHERE { ?s ?p ?o }", "MALFORMED QUERY"),
        ("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o ", "MALFORMED QUERY"),
        ("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o } }", "MALFORMED QUERY"),
        ("DELETE WHERE { ?s ?p ?o", "MALFORMED QUERY"),
        ("DELETE { SERVICE <a:b> { ?s ?p ?o } } WHERE { ?s ?p ?o }", "SERVICE"),
    ],
)
def test_what_has_no_meaning_is_refused(text: str, said: str) -> None:
    prepares: tuple[Callable[..., object], ...] = (prepare_update, prepare_evaluated)
    refused: list[BadInput] = []
    for prepare in prepares:
        with pytest.raises(BadInput) as caught:
            prepare(text, base=None, now=NOW, draw=lambda: 7, all_graphs=True)
        refused.append(caught.value)
    first, last = refused
    assert said in str(last)
    assert said in str(first) or (isinstance(first, NotDeterministic) and first.once)
