"""What prepare_update makes of texts, and what it refuses by name."""

from __future__ import annotations

import pyoxigraph
import pytest

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput, NotDeterministic, SystemGraphNamed
from txlog.model.quads import decode_quads, split_graph
from txlog.sparql import LoadedDocument, LoadRequest, TransactionBody, find_loads, prepare_loaded, prepare_update

NOW = "2026-11-21T10:00:00.123Z"
STEM = "urn:txlog:bnode:00000000000000000000000000000abc"


def prepare(text: str, base: str | None = None) -> TransactionBody:
    return prepare_update(text, base=base, now=NOW, draw=lambda: 0xABC)


def quads_of(text: str, base: str | None = None) -> str:
    prepared = prepare(text, base)
    assert prepared.kind == KIND_QUADS, prepared
    assert prepared.change_count == len(list(decode_quads(prepared.payload)))
    for _, line in decode_quads(prepared.payload):
        split_graph(line)
    return prepared.payload.decode()


def text_of(text: str, base: str | None = None) -> str:
    prepared = prepare(text, base)
    assert prepared.kind == KIND_UPDATE, prepared
    return prepared.payload.decode()


XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("", ""),
        ("# nothing", ""),
        ("PREFIX a: <a:b>", ""),
        ("INSERT DATA {}", ""),
        ("INSERT DATA { <a:s> <a:p> <a:o> }", "A <a:s> <a:p> <a:o> .\n"),
        ("insert\ndata{<a:s><a:p>'x'.}", 'A <a:s> <a:p> "x" .\n'),
        ("INSERT DATA { <a:s> <a:p> <a:o> } ;", "A <a:s> <a:p> <a:o> .\n"),
        ("INSERT DATA { GRAPH <a:g> { <a:s> <a:p> 'GRAPH {' } }", 'A <a:s> <a:p> "GRAPH {" <a:g> .\n'),
        (
            "INSERT DATA { <a:s> <a:p> 1. GRAPH <a:g> { <a:s> a <a:t> } . <a:s> <a:p> true # }\n}",
            f'A <a:s> <a:p> "1"^^<{XSD}integer> .\n'
            "A <a:s> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <a:t> <a:g> .\n"
            f'A <a:s> <a:p> "true"^^<{XSD}boolean> .\n',
        ),
        ("PREFIX e: <e:> INSERT DATA { e:a.GRAPH e:\\(b 'x'@EN }", 'A <e:a.GRAPH> <e:(b> "x"@en .\n'),
        ("INSERT DATA { <a:s> rdf:type xsd:int }", None),
        ("DELETE DATA { <a:s> <a:p> 1 }; INSERT DATA { <a:s> <a:p> 1 }", f'A <a:s> <a:p> "1"^^<{XSD}integer> .\n'),
        ("INSERT DATA { <a:s> <a:p> 1 }; DELETE DATA { <a:s> <a:p> 1 }", f'D <a:s> <a:p> "1"^^<{XSD}integer> .\n'),
        (
            "PREFIX e: <e:> INSERT DATA { e:s <a:p> 1 } ; PREFIX e: <f:> DELETE DATA { e:s <a:p> 1 }",
            f'D <f:s> <a:p> "1"^^<{XSD}integer> .\nA <e:s> <a:p> "1"^^<{XSD}integer> .\n',
        ),
        ("BASE <http://x/y/> INSERT DATA { <> <../p> <#o> }", "A <http://x/y/> <http://x/p> <http://x/y/#o> .\n"),
        ("INSERT DATA { <a:s> <a:p> '\\u0022\\u000A' }", 'A <a:s> <a:p> "\\"\\n" .\n'),
        ("INSERT DATA { <a:\\u0073> <a:p> 'x'^^xsd:string }", 'A <a:s> <a:p> "x" .\n'),
        (
            "INSERT DATA { _:b <a:p> [ <a:q> _:b ] }",
            f"A <{STEM}:0> <a:q> <{STEM}:1> .\nA <{STEM}:1> <a:p> <{STEM}:0> .\n",
        ),
        ("INSERT DATA { _:b <a:p> '_:b <x> ' }", f'A <{STEM}:0> <a:p> "_:b <x> " .\n'),
        ("INSERT DATA { _:b <a:p> 'x' } ; INSERT DATA { _:c <a:p> 'x' }",
         f'A <{STEM}:0> <a:p> "x" .\nA <{STEM}:1> <a:p> "x" .\n'),
    ],
)  # fmt: skip
def test_data_becomes_quads(text: str, payload: str | None) -> None:
    found = quads_of(text)
    if payload is not None:
        assert sorted(found.splitlines()) == sorted(payload.splitlines())
        assert found.find("\nD ") < 0 or found.find("A ") > found.rfind("D ")


def test_the_base_of_the_request_resolves_and_the_java_clients_form_is_known() -> None:
    for base in ("http://x/y", "<http://x/y>"):
        assert quads_of("INSERT DATA { <z> <a:p> <a:o> }", base) == "A <http://x/z> <a:p> <a:o> .\n"


def test_values_that_a_store_may_write_alike_keep_the_order_of_their_operations() -> None:
    text = text_of("INSERT DATA { <a:s> <a:p> 01 } ; DELETE DATA { <a:s> <a:p> 1 }")
    assert text.index("INSERT") < text.index("DELETE")
    assert prepare("INSERT DATA { <a:s> <a:p> 01 } ; DELETE DATA { <a:s> <a:q> 1 }").kind == KIND_QUADS


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("DELETE WHERE { ?s ?p ?o }", "DELETE WHERE { ?s ?p ?o }"),
        ("PREFIX e: <e:>\nDELETE { ?s e:p ?o } # c\n WHERE { ?s e:p ?o };",
         "DELETE { ?s <e:p> ?o } WHERE { ?s <e:p> ?o }"),
        ("CLEAR ALL", "CLEAR SILENT ALL"),
        ("DROP SILENT GRAPH <a:g>", "DROP SILENT GRAPH <a:g>"),
        ("COPY DEFAULT TO <a:g>; move <a:g> to <a:h>", "COPY SILENT DEFAULT TO <a:g> ;\nMOVE SILENT <a:g> to <a:h>"),
        (
            "CREATE GRAPH <a:g>; PREFIX e: <e:> INSERT DATA { e:s e:p 'x' . GRAPH e:g { e:s e:p e:o } }",
            'CREATE SILENT GRAPH <a:g> ;\nINSERT DATA {\n<e:s> <e:p> "x" .\nGRAPH <e:g> {\n<e:s> <e:p> <e:o> }\n}',
        ),
        (
            "INSERT { ?s <a:p> ?n } WHERE { ?s ?p ?o BIND(now() AS ?n) }",
            f'INSERT {{ ?s <a:p> ?n }} WHERE {{ ?s ?p ?o BIND(("{NOW}"^^<{XSD}dateTime>) AS ?n) }}',
        ),
        ("INSERT { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(?o<rdf:x) }", None),
        ("INSERT { ?s ?p '\\u0022' } WHERE { ?s ?p ?o }", 'INSERT { ?s ?p "\\"" } WHERE { ?s ?p ?o }'),
        ("INSERT { ?s ?p () } WHERE { ?s ?p (1 [] _:b) }", "INSERT { ?s ?p () } WHERE { ?s ?p (1 [] _:b) }"),
        ("INSERT { ?s ?p ?x } WHERE { ?s ?p ?o BIND(IRI('a:b') AS ?x) }",
         "INSERT { ?s ?p ?x } WHERE { ?s ?p ?o BIND(<a:b> AS ?x) }"),
        ("DELETE WHERE { GRAPH ?g { ?s ?p true } }", "DELETE { GRAPH ?g { ?s ?p true } } WHERE { GRAPH ?g "
         '{ ?s ?p true } FILTER(COALESCE(!STRSTARTS(STR(?g),"urn:txlog:system"),true)) }'),
        ("INSERT { ?s ?p ?o } WHERE { ?s ?p ?o FILTER EXISTS { GRAPH ?g { OPTIONAL { ?s ?p 1 } ?s a ?t } } }",
         "INSERT { ?s ?p ?o } WHERE { ?s ?p ?o FILTER EXISTS { GRAPH ?g { OPTIONAL { ?s ?p 1 } ?s a ?t } "
         'FILTER(COALESCE(!STRSTARTS(STR(?g),"urn:txlog:system"),true)) } }'),
        ("INSERT { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o } }",
         "INSERT { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o } }"),
        ("WITH <a:g> DELETE { ?s ?p ?o } USING <a:h> USING NAMED <a:i> WHERE { ?s ?p ?o "
         "VALUES (?s ?o) { (<a:b> -1) (UNDEF 2) } FILTER(xsd:integer(?o) > -1) }", None),
        ("DELETE { ?s ?p ?o } WHERE { { SELECT ?s (COUNT(DISTINCT ?x) AS ?o) WHERE { ?s ?p ?x } GROUP BY ?s "
         "HAVING(COUNT(*) > 1) } ?s ?p ?o }", None),
    ],
)  # fmt: skip
def test_other_operations_travel_as_one_text_without_prologue(text: str, payload: str | None) -> None:
    found = text_of(text)
    if payload is not None:
        assert found == payload
    # More operations can follow in the same request, and what was prepared is prepared: nothing changes any more.
    pyoxigraph.Store().update(f"DROP SILENT GRAPH <a:m> ;\n{found} ;\n{found} ;\nINSERT DATA {{ <a:s> <a:p> 1 }}")
    if "STRSTARTS" not in found:
        assert text_of(found) == found


CONSTRUCTS = {
    "RAND": "RAND()",
    "UUID": "UUID()",
    "STRUUID": "STRUUID()",
    "BNODE": "BNODE()",
    "SAMPLE": "SAMPLE(?o)",
    "GROUP_CONCAT": "GROUP_CONCAT(?o)",
    "SERVICE": "SERVICE <a:e> {}",
    "LIMIT": "LIMIT 1",
    "OFFSET": "OFFSET 1",
    "REDUCED": "SELECT REDUCED *",
    "LOAD": "LOAD <http://a/b>",
}


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_what_only_looks_like_a_construct_passes(construct: str) -> None:
    for word in (construct, construct.lower()):
        call = CONSTRUCTS[construct].replace(construct, word)
        for text in (
            f"INSERT {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o # {call}\n }}",
            f"INSERT {{ ?s ?p '''\"{call}''' }} WHERE {{ ?s ?p ?o }}",
            f'INSERT {{ ?s ?p "\\"{call}" }} WHERE {{ ?s ?p ?o }}',
            f"INSERT {{ ?s ?p <http://a/{word}()> }} WHERE {{ ?s ?p ?o }}",
            f"PREFIX {word}: <e:> INSERT {{ ?s {word}:{word} ?{word} }} WHERE {{ ?s ?p ?{word} }}",
            f"INSERT {{ ?s ?p 'x'@{word.replace('_', '')[:8]} }} WHERE {{ ?s ?p _:{word} }}",
        ):
            text_of(text)


NOT_DETERMINISTIC = {
    "RAND": [
        "INSERT {?s ?p ?x} WHERE {?s ?p ?o BIND(rAnD() AS ?x)}",
        "DELETE {?s ?p ?o} WHERE {?s ?p ?o FILTER(1+RAND()>1)}",
    ],
    "UUID": ["INSERT {?x <a:p> 1} WHERE {?s ?p ?o BIND(#c\nUUID#c\n() AS ?x)}"],
    "STRUUID": ["INSERT {<a:s> <a:p> ?x} WHERE {SELECT (STRUUID() AS ?x) {}}"],
    "BNODE": ["INSERT {?x <a:p> 1} WHERE {BIND(BNODE('k') AS ?x)}"],
    "SERVICE": ["INSERT {?s ?p ?o} WHERE {SERVICE SILENT <a:e> {?s ?p ?o}}"],
    "LOAD": [
        "LOAD <http://127.0.0.1:1/x>",
        "LOAD SILENT <file:///etc/passwd> INTO GRAPH <a:g>",
        "CLEAR ALL; LOAD <a:b>",
    ],
    "SAMPLE": ["INSERT {<a:s> <a:p> ?x} WHERE {SELECT (SAMPLE(?o) AS ?x) {?s ?p ?o}}"],
    "GROUP_CONCAT": ["INSERT {<a:s> <a:p> ?x} WHERE {SELECT (GROUP_CONCAT(?o; SEPARATOR=',') AS ?x) {?s ?p ?o}}"],
    "LIMIT": ["DELETE {?s ?p ?o} WHERE {SELECT * {?s ?p ?o} ORDER BY ?s LIMIT 1}"],
    "OFFSET": ["DELETE {?s ?p ?o} WHERE {SELECT * {?s ?p ?o} OFFSET 1}"],
    "a blank node in an INSERT template": [
        "INSERT {_:x ?p ?o} WHERE {?s ?p ?o}",
        "INSERT {GRAPH <a:g> {?s ?p []}} WHERE {?s ?p ?o}",
        "INSERT {[ ?p ?o ] ?p ?o} WHERE {?s ?p ?o}",
        "INSERT {?s ?p (1 2)} WHERE {?s ?p ?o}",
        "DELETE {?s ?p ?o} INSERT {?s ?p _:x} WHERE {?s ?p ?o}",
    ],
    "the function <a:f>": [
        "INSERT {?s ?p ?x} WHERE {?s ?p ?o BIND(<a:f>(?o) AS ?x)}",
        "PREFIX a: <a:> DELETE {?s ?p ?o} WHERE {?s ?p ?o FILTER a:f(?o)}",
        "INSERT {?s <a:p> 1} WHERE {SELECT ?s {?s ?p ?o} GROUP BY ?s <a:f>(?o)}",
        "INSERT {?s <a:p> 1} WHERE {SELECT (<a:f>(1) AS ?s) {}}",
    ],
}


@pytest.mark.parametrize(("construct", "text"), [(c, t) for c, texts in NOT_DETERMINISTIC.items() for t in texts])
def test_what_could_differ_between_workers_is_refused_by_name(construct: str, text: str) -> None:
    with pytest.raises(NotDeterministic) as refused:
        prepare(text)
    assert refused.value.construct == construct


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("INSERT DATA { <urn:txlog:system> <a:p> 1 }", None),
        ('INSERT DATA { <a:s> <a:p> "x"^^<urn:txlog:system:t> }', None),
        ("INSERT DATA { GRAPH <urn:txlog:system:5:a:0> { <a:s> <a:p> 1 } }", None),
        ("INSERT DATA { <a:s> <a:p> <urn:txlog:\\u0073ystem> }", None),
        ("PREFIX u: <urn:tx> DELETE DATA { u:log:system:1 <a:p> 1 }", None),
        ("PREFIX u: <urn:tx> DELETE { GRAPH u:log:system { ?s ?p ?o } } WHERE { ?s ?p ?o }", None),
        ("BASE <urn:x> DROP GRAPH <./txlog:system>", None),
        ("BASE <urn:txlog:system/> CLEAR ALL", None),
        ("PREFIX s: <urn:txlog:system:> CLEAR ALL", None),
        ("DROP GRAPH <./txlog:system>", "urn:x"),
        ("CLEAR ALL", "urn:txlog:system"),
        ("INSERT { GRAPH ?g { ?s ?p ?o } } WHERE { ?s ?p ?o BIND(IRI('urn:txlog:system:1') AS ?g) }", None),
        ("INSERT { GRAPH ?g { ?s ?p ?o } } WHERE { ?s ?p ?o VALUES ?g { <urn:txlog:system:1> } }", None),
        ("ADD DEFAULT TO <urn:txlog:system>", None),
        ("DELETE { ?s ?p ?o } USING NAMED <urn:txlog:system> WHERE { ?s ?p ?o }", None),
    ],
)
def test_nobody_names_a_graph_of_ours(text: str, base: str | None) -> None:
    with pytest.raises(SystemGraphNamed, match="urn:txlog:system"):
        prepare(text, base)


def test_our_name_as_a_string_or_as_a_part_is_nobodys_business() -> None:
    text = "INSERT DATA { <http://x/urn:txlog:system> <urn:txlog:sys> '<urn:txlog:system>', 'urn:txlog:system' }"
    assert prepare(text).change_count == 2


@pytest.mark.parametrize(
    "made",
    [
        "IRI(?x)", "URI(STR(?x))", "IRI(CONCAT('urn:', SUBSTR(?x, 5)))", "IRI(CONCAT('urn:txlog:sys', SUBSTR(?x, 14)))",
        "IRI(CONCAT('', ?x))", "IRI(IF(true, ?x, CONCAT('x:', ?x)))", "iri(COALESCE(CONCAT('a:b'), ?x))",
        "IRI(CONCAT(SUBSTR(?x, 1, 4), SUBSTR(?x, 5)))", "IRI(REPLACE(?x, 'q', 'q'))",
    ],
)  # fmt: skip
def test_no_computed_iri_is_one_of_ours_or_depends_on_the_workers_address(made: str) -> None:
    text = text_of(
        "INSERT { GRAPH ?g { <a:s> <a:p> ?x } } "
        'WHERE { VALUES ?x { "urn:txlog:system:1" "urn:txlog:other" "rel" "" "http://x/y" } '
        f"BIND({made} AS ?g) }}"
    )
    store = pyoxigraph.Store()
    store.update(text, base_iri="http://127.0.0.1:7001/update")
    graphs = {graph.value for graph in store.named_graphs() if isinstance(graph, pyoxigraph.NamedNode)}
    assert not [graph for graph in graphs if graph.startswith(("urn:txlog:system", "http://127"))]
    if made == "IRI(?x)":
        assert graphs == {"urn:txlog:other", "http://x/y"}


def test_a_computed_iri_that_is_seen_to_be_harmless_stays_as_it_is() -> None:
    text = "INSERT { ?s ?p ?x } WHERE { ?s ?p ?o BIND(IRI(CONCAT('http://x/', LCASE(?o))) AS ?x) }"
    assert text_of(text) == text


BAD = {
    "INSERT DATA { <a:s> <a:p> }": "1:27",
    "INSERT DATA {\n <a:s> <a:p> 'x' <a:b> }": "2:18",
    "INSERT DATA { <a:s> <a:p> 1": "1:28: expected }",
    "INSERT DATA { <a:s> <a:p> ?o }": "1:27: ?o: variables are not allowed",
    "INSERT DATA { { <a:s> <a:p> 1 } }": "1:15: unexpected {",
    "INSERT DATA { <a:g> { <a:s> <a:p> 1 } }": "1:21: unexpected {",
    "INSERT DATA { GRAPH ?g { <a:s> <a:p> 1 } }": "1:15: unexpected GRAPH",
    "INSERT DATA { <s> <a:p> 1 }": "1:15: the IRI is relative",
    "INSERT DATA { e:s <a:p> 1 }": "1:15",
    "INSERT DATA { <<( <a:s> <a:p> 1 )>> <a:p> 1 }": "1:15: <<( is not a valid",
    "DELETE DATA { << <a:s> <a:p> 1 >> <a:p> 1 }": "a blank node names nothing that could be deleted",
    "INSERT DATA { <a:s> <a:p> 'x }": "1:27: a string is opened and not closed",
    "INSERT DATA { <a:s> \\u003Ca:p> 1 }": "1:21: a backslash stands outside",
    "INSERT DATA { <a:s>\u00a0<a:p> 1 }": "1:20: U+00A0 is no space",
    "INSERT DATA { <a:s> <a:p> '\\x' }": "1:",
    "INSERT DATA {} INSERT DATA {}": "1:16: expected ;",
    "INSERT DATA {} ;; INSERT DATA {}": "1:17: an operation is missing",
    "INSERT DATA { _:b <a:p> 1 } ; INSERT DATA { _:b <a:p> 1 }": "1:31: the blank node _:b is of another operation",
    "DELETE DATA { _:b <a:p> 1 }": "a blank node names nothing",
    "PREFIX a:b <c:d> CLEAR ALL": "1:8: a:b is no prefix",
    "PREFIX a: <c> CLEAR ALL": "1:11: <c> is relative",
    "SELECT * {}": "1:1: SELECT begins no operation",
    "FOO": "1:1: FOO begins no operation",
    "INSERTDATA { <a:s> <a:p> [] }": "1:1: INSERTDATA begins no operation",
    "INSERT { ?s ?p ?o } WHERE { ?s ?p ?o FILTERRAND() }": "1:38: FILTERRAND is no word",
    "INSERT { ?s ?p ?o } WHERE { LATERAL { ?s ?p ?o } }": "1:29: LATERAL is no word",
    "INSERT { ?s ?p ?o } WHERE { ?s ?p <o> }": "1:35: <o> is relative",
    "INSERT { ?s ?p ?o } WHERE { ?s x:p ?o }": "1:32: the prefix x: is not declared",
    "INSERT { ?s ?p ?o } WHERE { ?s ?p ?o ": "} is missing at the end",
    "INSERT { ?s ?p ?o } WHERE { ?s ?p ?o ) }": "1:38: ) closes nothing",
    "INSERT { ?s ?p ?o } {\n ?s ?p ?o }": "2:5: expected one of USING, WHERE",
    "INSERT { ?s ?p ?o } WHERE {\n ?s ?p ?o . FILTER(?o >) }": "2:",
    "DELETE { ?s ?p _:b } WHERE { ?s ?p ?o }": "1:",
    "INSERT { <<?s ?p (1)>> ?p ?o } WHERE { ?s ?p ?o }": "1:10: <<: a reifier that is not as SPARQL 1.2 writes it",
    "INSERT { ?s ?p ?o } WHERE { ?s <a:p>+ ?o {| <a:p> 1 |} }": "1:42: {|: a reifier that is not as SPARQL 1.2",
    "INSERT { ?s ?p ?o } WHERE { ?s ?p ?o ~ ?r ?q }": "1:46: expected",
    "INSERT { ?s ?p <<( ?s ?p ?o } WHERE { ?s ?p ?o }": "1:",
    "INSERT { ?s ?p ?x } WHERE { ?s ?p ?o BIND(IRI('a b') AS ?x) }": "1:47: 'a b' is no IRI",
    "INSERT { ?s ?p ?x } WHERE { ?s ?p ?o BIND(IRI('rel') AS ?x) }": "1:47: <rel> is relative",
    "INSERT { ?s ?p ?x } WHERE { ?s ?p ?o BIND(IRI(IRI(?o)) AS ?x) }": "IRI() inside IRI()",
    "INSERT { ?s ?p <a:\\u0020> } WHERE { ?s ?p ?o }": "1:16: U+0020 is not allowed in an IRI",
    "INSERT { ?s ?p '\\uD800' } WHERE { ?s ?p ?o }": "1:16: \\uD800 is no character",
    "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER" + "(" * 5000 + "1" + ")" * 5000 + "}": "more than 64 brackets",
    "DELETE { ?s ?p ?o } WHERE { " + "{" * 5000 + "}" * 5001: "more than 64 brackets",
    "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(1" + "||1" * 5000 + ")}": "more than 500 groups and operators",
    "DELETE { ?s ?p ?o } WHERE { " + "{} UNION " * 5000 + "{}}": "more than 500 groups and operators",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_bad_texts_are_refused_with_their_place(text: str) -> None:
    with pytest.raises(BadInput, match="MALFORMED QUERY: ") as refused:
        prepare(text)
    assert BAD[text] in str(refused.value)
    assert type(refused.value) is BadInput
    assert len(str(refused.value)) < 700


def test_a_base_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="baseURI 'rel' is no absolute IRI"):
        prepare("CLEAR ALL", "rel")


def test_the_judge_executes_nothing() -> None:
    from txlog.sparql import update_normaliser

    text_of("INSERT { <a:s> <a:p> ?x } WHERE { VALUES ?x { 1 2 } }")
    assert not len(update_normaliser._syntax_checker)
    assert not list(update_normaliser._syntax_checker.named_graphs())


def test_many_operations_take_linear_time() -> None:
    # The test's time limit is the assertion: 12 MB of it would take an hour if each looked through the rest.
    text = "PREFIX e: <e:> " + " ; ".join(f"INSERT DATA {{ e:s{n} e:p 'x' }}" for n in range(20000))
    assert prepare(text).change_count == 20000
    assert prepare(text + "; DELETE DATA { e:s1 e:p 'x' } ; CLEAR DEFAULT").kind == KIND_UPDATE


def test_half_a_character_is_refused() -> None:
    with pytest.raises(BadInput, match="1:28: half a surrogate pair"):
        prepare("INSERT DATA { <a:s> <a:p> '\ud800' }")


def test_prefixed_names_are_found_by_their_longest_form() -> None:
    # Without a space between them, what follows a name is still outside of it.
    assert text_of("PREFIX e: <e:> DELETE {?s e:p ?o} WHERE {?s e:p/e:q*|^e:r ?o FILTER(?o<e:x||?o>e:y)}") == (
        "DELETE {?s <e:p> ?o} WHERE {?s <e:p>/<e:q>*|^<e:r> ?o FILTER(?o< <e:x>||?o><e:y>)}"
    )


LOADS = "PREFIX h: <http://h/> LOAD h:a ; load silent <b> into graph <urn:g> ; DROP GRAPH <urn:x> ; LOAD <http://h/a>"


def test_loads_are_found_and_become_the_data_of_their_documents() -> None:
    asked = find_loads(LOADS, base="http://base/")
    assert asked == [
        LoadRequest("http://h/a", None, silent=False),
        LoadRequest("http://base/b", "urn:g", silent=True),
        LoadRequest("http://h/a", None, silent=False),
    ]
    documents = {
        "http://h/a": LoadedDocument(b"<urn:s> <urn:p> _:x <urn:k> .\n", "application/n-quads", "http://h/a"),
        "http://base/b": LoadedDocument(b"<#s> <#p> 1 .", "text/turtle; charset=utf-8", "http://elsewhere/b#part"),
    }
    prepared = prepare_loaded(LOADS, documents, base="http://base/", now=NOW, draw=lambda: 0xABC)
    assert prepared.kind == KIND_UPDATE
    first, second, third, fourth = prepared.payload.decode().split(" ;\n")
    assert first == f"INSERT DATA {{\nGRAPH <urn:k> {{\n<urn:s> <urn:p> <{STEM}:0> }}\n}}"
    assert second == (
        "INSERT DATA {\nGRAPH <urn:g> {\n<http://elsewhere/b#s> <http://elsewhere/b#p> "
        '"1"^^<http://www.w3.org/2001/XMLSchema#integer> }\n}'
    )
    assert third == "DROP SILENT GRAPH <urn:x>"
    assert fourth == first.replace(":0>", ":1>"), "another blank node, as another body's"
    alone = prepare_loaded("LOAD <http://base/b>", documents, base=None, now=NOW, draw=lambda: 0xABC)
    assert alone.kind == KIND_QUADS
    assert prepare_loaded("LOAD SILENT <u:x>", {}, base=None, now=NOW, draw=lambda: 1).change_count == 0


@pytest.mark.parametrize("wrong", ["", " SILENT", " <a:b> <a:c>", " <a:b> INTO <a:c>", " <a:b> INTO GRAPH ?g", " 'a'"])
def test_what_is_no_load_is_refused_before_anything_is_fetched(wrong: str) -> None:
    with pytest.raises(BadInput, match="LOAD: expected LOAD"):
        find_loads(f"LOAD{wrong}", base=None)
    with pytest.raises(NotDeterministic, match="RAND"):
        find_loads("LOAD <a:b> ; DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(RAND() > 0.5) }", base=None)
