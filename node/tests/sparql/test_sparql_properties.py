"""The same payload gives the same store everywhere, and what the client meant."""

from __future__ import annotations

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyparsing import ParseBaseException
from rdflib.plugins.sparql.parser import parseUpdate

from txlog.model.entry import KIND_QUADS
from txlog.model.errors import BadInput
from txlog.model.quads import decode_quads
from txlog.sparql import TransactionBody, prepare_update
from txlog.sparql.analysis.empty_graphs import may_match_empty_graph

SEED = """INSERT DATA { <a:a> <a:p> <a:b>, 1, "x"@en .
<a:b> <a:p> <a:c> . GRAPH <a:g> { <a:a> <a:q> <a:b>, 01 }
GRAPH <a:h> { <a:c> <a:p> "2020-01-01T00:00:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTime> } } ;
CREATE GRAPH <a:e>"""


def prepared(text: str) -> TransactionBody:
    return prepare_update(text, base="http://x/", now="2026-11-21T10:00:00.123Z", draw=lambda: 5)


def store_after(*texts: str, folder: str | None = None) -> tuple[list[str], list[str]]:
    store = pyoxigraph.Store()
    store.update(SEED)
    for text in texts:
        if text:
            store.update(text, base_iri="http://x/", prefixes={"xsd": "http://www.w3.org/2001/XMLSchema#"})
    return sorted(map(str, store)), sorted(map(str, store.named_graphs()))


def executed(payload: TransactionBody) -> str:
    """As a worker does it."""
    if payload.kind != KIND_QUADS:
        return payload.payload.decode()
    operations: dict[bool, list[str]] = {False: [], True: []}
    for adds, line in decode_quads(payload.payload):
        quad = next(iter(pyoxigraph.parse(line, pyoxigraph.RdfFormat.N_QUADS)))
        assert isinstance(quad, pyoxigraph.Quad)
        triple = f"{quad.subject} {quad.predicate} {quad.object} ."
        graph = quad.graph_name
        operations[adds].append(
            triple if isinstance(graph, pyoxigraph.DefaultGraph) else f"GRAPH {graph} {{ {triple} }}"
        )
    return f"DELETE DATA {{ {' '.join(operations[False])} }} ;\nINSERT DATA {{ {' '.join(operations[True])} }}"


IRIS = st.sampled_from(["<a:a>", "<a:b>", "<a:c>", "<rel>", "e:x", "e:a.b", "e:\\(", "<a:\\u0062>"])
OBJECTS = st.one_of(
    IRIS,
    st.sampled_from(["1", "01", "-1", "1.5", "1e0", "true", "'x'", '"x"@EN', '"""a "q" }"""', "'GRAPH'", '"\\u0022;"',
                     "'01'^^xsd:int", '"#c"', "'\\n'"]),
)  # fmt: skip
TRIPLES = st.builds("{} {} {} .".format, IRIS, IRIS, OBJECTS)
BLOCKS = st.lists(
    st.one_of(TRIPLES, st.builds("GRAPH {} {{ {} }}".format, IRIS, TRIPLES), st.just("# }\n")), max_size=3
).map(" ".join)
DATA = st.builds("{} DATA {{ {} }}".format, st.sampled_from(["INSERT", "delete"]), BLOCKS)
VARIABLES = st.sampled_from(["?s", "?p", "$o", "?g"])
NAMES = st.one_of(VARIABLES, IRIS)
PATTERN_TRIPLES = st.builds("{} {} {}".format, NAMES, NAMES, st.one_of(VARIABLES, OBJECTS))
WHERE = st.lists(
    st.one_of(
        PATTERN_TRIPLES.map("{} .".format),
        st.builds("GRAPH {} {{ {} }}".format, NAMES, st.one_of(PATTERN_TRIPLES, st.just(""))),
        PATTERN_TRIPLES.map("OPTIONAL {{ {} }}".format),
        PATTERN_TRIPLES.map("FILTER NOT EXISTS {{ {} }}".format),
        st.sampled_from(
            ["FILTER(?o > 0)", "FILTER(ISIRI(?o)||?s=<a:a>)", "VALUES ?s { <a:a> e:x }", "?s e:x*/<a:p>? ?o ."]
        ),
        st.sampled_from(
            ["BIND(NOW() AS ?n)", "BIND(IRI(CONCAT('a:', STR(?p))) AS ?z)", "BIND(xsd:integer('1') AS ?i)"]
        ),
    ),
    min_size=1,
    max_size=3,
).map(" ".join)
TEMPLATES = st.one_of(PATTERN_TRIPLES, st.builds("GRAPH {} {{ {} }}".format, NAMES, PATTERN_TRIPLES))
MANAGEMENT = st.sampled_from(
    ["CLEAR ALL", "DROP NAMED", "CLEAR DEFAULT", "DROP GRAPH <a:g>", "COPY DEFAULT TO <a:h>", "MOVE <a:g> TO DEFAULT",
     "ADD <a:h> TO <a:g>", "CREATE GRAPH <a:n>", "COPY <a:g> TO <a:g>"]
)  # fmt: skip
OPERATIONS = st.one_of(
    DATA,
    DATA,
    MANAGEMENT,
    PATTERN_TRIPLES.map("DELETE WHERE {{ {} }}".format),
    st.builds("DELETE {{ {} }} INSERT {{ {} }} WHERE {{ {} }}".format, TEMPLATES, TEMPLATES, WHERE),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(OPERATIONS, min_size=1, max_size=4))
def test_a_payload_does_what_the_text_said(operations: list[str]) -> None:
    text = "PREFIX e: <http://e/> " + " ; ".join(operations)
    if any(map(may_match_empty_graph, operations)):
        with pytest.raises(BadInput):
            prepared(text)
        return
    try:
        payload = prepared(text)
    except BadInput:
        with pytest.raises((SyntaxError, RuntimeError)):
            store_after(text)
        return
    request = executed(payload)
    quads, graphs = store_after(request)
    assert (quads, graphs) == store_after(request)
    original = text.replace("NOW()", '("2026-11-21T10:00:00.123Z"^^xsd:dateTime)')
    try:
        meant, meant_graphs = store_after(original)
    except RuntimeError:
        # A graph that is missing, or there already, is passed over instead.
        return
    assert quads == meant
    if payload.kind != KIND_QUADS:
        assert graphs == meant_graphs


ACCEPTED = [
    "",
    "PREFIX e: <a:> INSERT DATA { e:s e:p e:o , 'x'@en ; e:q 1.5 . }",
    'BASE <http://x/> PREFIX e: <y#> INSERT DATA { <s> e:p """a\nb""" }',
    "INSERT DATA { GRAPH <a:g> { <a:s> <a:p> 'x'^^<a:t> } }",
    "DELETE DATA { <a:s> <a:p> true } ; INSERT DATA { <a:s> <a:p> false } ;",
    "DELETE WHERE { GRAPH ?g { ?s ?p ?o } }",
    "WITH <a:g> DELETE { ?s ?p ?o } INSERT { ?o ?p ?s } USING <a:h> WHERE { ?s ?p ?o . FILTER(?o >= 1 && ?s != ?o) }",
    "INSERT { ?s <a:n> ?n } WHERE { { SELECT ?s (COUNT(DISTINCT ?o) AS ?n) WHERE { ?s ?p ?o } GROUP BY ?s } }",
    "INSERT { ?s ?p ?o } WHERE { { ?s ?p ?o } UNION { ?o ?p ?s } MINUS { ?s <a:p>/^<a:q>|!<a:r> ?o } }",
    "INSERT { ?s ?p ?x } WHERE { ?s ?p ?o BIND(IF(BOUND(?o), STRDT(STR(?o), <a:t>), COALESCE(?o, 1)) AS ?x) }",
    "CREATE SILENT GRAPH <a:g> ; DROP DEFAULT ; CLEAR NAMED ; COPY GRAPH <a:g> TO DEFAULT",
    "PREFIX e: <a:> CLEAR ALL ; PREFIX f: <b:> INSERT DATA { e:s f:p 1 } ; PREFIX e: <c:> DELETE DATA { e:s f:p 1 }",
    "INSERT { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(?o IN (1) || REGEX(STR(?o), '^a\\\\.b', 'i')) VALUES ?p { <a:p> } }",
]
REFUSED = [
    "INSERT DATA { <a:s> <a:p> 1 } INSERT DATA {}",
    "INSERT { ?s ?p ?o }",
    "SELECT * { ?s ?p ?o }",
    "INSERT DATA { GRAPH <a:g> { GRAPH <a:h> {} } }",
    "DELETE WHERE { ?s ?p ?o FILTER(1) }",
    "PREFIX e <a:> CLEAR ALL",
    "CLEAR",
    "DROP GRAPH",
    "COPY <a:g>",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_an_independent_parser_accepts_it_too(text: str) -> None:
    parseUpdate(text)
    parseUpdate(prepared(text).payload.decode() if prepared(text).kind != KIND_QUADS else executed(prepared(text)))


@pytest.mark.parametrize("text", REFUSED)
def test_an_independent_parser_refuses_it_too(text: str) -> None:
    with pytest.raises(ParseBaseException):
        parseUpdate(text)
    with pytest.raises(BadInput, match="MALFORMED QUERY"):
        prepared(text)
