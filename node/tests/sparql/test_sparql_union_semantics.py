"""Updates that mean all graphs: how they are written out, what is evaluated once, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from txlog.model.entry import KIND_QUADS
from txlog.model.errors import BadInput, Conflict, NotDeterministic
from txlog.sparql import (
    EvaluatedOperation,
    RequestDataset,
    find_created_graphs,
    is_valid_update,
    prepare_evaluated,
    prepare_update,
)

NOW = "2026-11-21T10:00:00.123Z"
DRAWN = f"urn:txlog:drawn:{7:032x}"


def text_of(text: str) -> list[str]:
    prepared = prepare_update(text, base=None, now=NOW, draw=lambda: 7, all_graphs=True)
    assert prepared.kind != KIND_QUADS
    assert is_valid_update(prepared.payload.decode())
    return prepared.payload.decode().split(" ;\n")


def parts_of(text: str) -> tuple[EvaluatedOperation, ...]:
    with pytest.raises(NotDeterministic, match="a path of any length without a graph") as refused:
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
        "INSERT { ?s ?p 1 } USING <a:g> WHERE { ?s ?p 1 }",
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
        "INSERT DATA { <a:a> <a:b> 1 } ; DELETE { ?s <a:p> ?o } WHERE { ?s <a:p>* ?o } ; CLEAR DEFAULT"
    )
    assert (first.output_graphs, third.output_graphs) == ((), ())
    assert second.output_graphs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("DELETE { ?s ?p [] } WHERE { ?s ?p ?o }", "MALFORMED QUERY: error at 1:"),
        ("DELETE { ?s ?p _:b } WHERE { ?s ?p ?o }", "MALFORMED QUERY: error at 1:"),
        ("DELETE { ?s <a:p> [] } WHERE { ?s <a:p>+ ?o }", "MALFORMED QUERY: error at 1:"),
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


def scoped(text: str, dataset: RequestDataset | None = None) -> str:
    prepared = prepare_update(text, base=None, now=NOW, draw=lambda: 7, all_graphs=True, dataset=dataset)
    assert is_valid_update(prepared.payload.decode())
    return " ".join(prepared.payload.decode().split())


def test_a_pattern_is_matched_in_each_graph_and_deleted_where_it_matched() -> None:
    assert scoped('DELETE { ?s <a:p> ?o } INSERT { ?s <a:p> "x" } WHERE { ?s <a:p> ?o }') == (
        'DELETE { ?g2 <a:p> ?o GRAPH ?g1 { ?s <a:p> ?o } } INSERT { ?s <a:p> "x" } '
        "WHERE { { ?s <a:p> ?o BIND(?s AS ?g2) } UNION { GRAPH ?g1 { ?s <a:p> ?o } } }"
    )


def test_a_triple_that_no_pattern_matched_is_searched_and_its_variables_are_not_bound_by_that() -> None:
    assert scoped("DELETE { ?s <a:q> ?x } WHERE { ?s <a:p> 1 OPTIONAL { ?s <a:r> ?x } }").endswith(
        "BIND(COALESCE(?x, <urn:txlog:absent>) AS ?g4) {} UNION { GRAPH ?g3 { ?s <a:q> ?g4 } } }"
    )


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (RequestDataset(using=("<a:u>",), remove=("",)), "DELETE { ?s <a:p> 1 } USING <a:u> WHERE { ?s <a:p> 1 }"),
        (
            RequestDataset(using=("",), remove=("<a:r>",), insert="<a:i>"),
            "DELETE { GRAPH <a:r> { ?s <a:p> 1 } } WHERE { ?s <a:p> 1 }",
        ),
    ],
)
def test_the_data_set_of_a_request_is_written_into_the_operation(dataset: RequestDataset, said: str) -> None:
    assert scoped("DELETE { ?s <a:p> 1 } WHERE { ?s <a:p> 1 }", dataset) == said


def test_data_goes_into_the_graphs_of_the_request() -> None:
    dataset = RequestDataset(insert="<a:i>", remove=("<a:r>", ""))
    text = "INSERT DATA { <a:a> <a:b> <a:c> } ; DELETE DATA { <a:a> <a:b> <a:d> . GRAPH <a:g> { <a:a> <a:b> <a:e> } }"
    prepared = prepare_update(text, base=None, now=NOW, draw=lambda: 7, all_graphs=True, dataset=dataset)
    assert sorted(prepared.payload.splitlines()) == [
        b"A <a:a> <a:b> <a:c> <a:i> .",
        b"D <a:a> <a:b> <a:d> .",
        b"D <a:a> <a:b> <a:d> <a:r> .",
        b"D <a:a> <a:b> <a:e> <a:g> .",
    ]


def test_the_sign_of_a_number_is_no_path() -> None:
    assert "?g2 <a:p> +2 GRAPH ?g1 { ?s <a:p> +2 }" in scoped("DELETE { ?s <a:p> +2 } WHERE { ?s <a:p> +2 }")


def test_each_pattern_between_other_elements_is_matched_in_each_graph() -> None:
    text = f"INSERT {{ <a:a> <a:b> <a:c> }} WHERE {{ {' OPTIONAL {} '.join(f'?s <a:p{n}> ?o' for n in range(3))} }}"
    assert scoped(text).count("UNION") == 3


def test_a_create_is_checked_unless_the_update_decides_it() -> None:
    def created(text: str) -> list[str]:
        return find_created_graphs(text, base=None)

    assert created("CREATE GRAPH <a:g> ; CREATE GRAPH <a:g> ; CREATE SILENT GRAPH <a:h>") == ["<a:g>"]
    assert created("DROP GRAPH <a:g> ; CREATE GRAPH <a:g>") == []
    assert created("CLEAR ALL ; CREATE GRAPH <a:g>") == []
    with pytest.raises(Conflict, match="Named graph a:g already exists"):
        created("INSERT DATA { GRAPH <a:g> { <a:a> <a:b> <a:c> } } ; CREATE GRAPH <a:g>")


def test_prefixes_that_rdf4j_knows_need_no_declaration() -> None:
    assert "<http://xmlns.com/foaf/0.1/name>" in scoped(
        "INSERT { ?s skos:p 1 } WHERE { GRAPH <a:g> { ?s foaf:name 1 } }"
    )
