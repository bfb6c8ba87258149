"""Triple terms of RDF 1.2 in quads, updates, queries, and in RDF4J's forms of them."""

from __future__ import annotations

import base64
import io
import time
from contextlib import nullcontext

import pyoxigraph as ox
import pytest

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput
from txlog.model.quads import split_graph
from txlog.server.frontdoor.result_formats import RDF_FORMATS, converter
from txlog.server.frontdoor.statement_lines import line_filter
from txlog.sparql import prepare_removal, prepare_update, query_predicates
from txlog.sparql.formats.rdf4j_binary import MalformedBinaryRdf, read_rdf, write_rdf
from txlog.sparql.net_effect import build_net_effect
from txlog.sparql.rdf_upload import to_nquads
from txlog.sparql.rewrite.star_query import quoted_to_terms, speaks_star
from txlog.sparql.skolem_iris import skolemise_kept_lines, unskolemise_lines
from txlog.sparql.triple_terms import decode_triple_iris, find_triple_term, parse_star_term
from txlog.workers.canonical_literals import canonical_lines
from txlog.workers.digest import digest

TERM = b'<<( <a:s> <a:q> "x \\")>> ."@en )>>'
NESTED = b"<<( <a:s> <a:q> " + TERM + b" )>>"
NODE = b"<urn:txlog:bnode:kept:b>"


def test_the_graph_of_a_quad_is_behind_its_triple_term() -> None:
    assert split_graph(b"<a:s> <a:p> " + NESTED + b" .") == (b"<a:s> <a:p> " + NESTED, b"")
    assert split_graph(b"<a:s> <a:p> " + NESTED + b" <a:g> .") == (b"<a:s> <a:p> " + NESTED, b"<a:g>")
    assert split_graph(b"<a:s> <a:p> <<( <a:s> <a:p> <a:g> )>> .")[1] == b""


def test_digests_count_it_in_its_graph() -> None:
    lines = (b"<a:s> <a:p> ", NESTED, b" <a:g> .\n<a:s> <a:p> <<( <a:s> <a:p> <a:g> )>> .\n")
    found = digest([b"".join(lines)])
    assert {graph: count for graph, (count, _) in found.graphs.items()} == {"a:g": 1, "": 1}


def test_its_blank_nodes_are_named_and_restored() -> None:
    line = b"_:b <a:p> <<( _:b <urn:txlog:bnode:kept:p> <<( <a:s> <a:p> _:b )>> )>> ."
    stored = skolemise_kept_lines(line)
    assert stored == line.replace(b"_:b", NODE)
    assert unskolemise_lines(stored) == line


def test_its_literals_are_canonical() -> None:
    one = b'"01"^^<http://www.w3.org/2001/XMLSchema#int>'
    integer = b'"1"^^<http://www.w3.org/2001/XMLSchema#integer>'
    assert canonical_lines(b"A <a:s> <a:p> <<( <a:s> <a:p> %s )>> .\n" % one) == (
        b"A <a:s> <a:p> <<( <a:s> <a:p> %s )>> .\n" % integer
    )
    added, deleted = (b"<a:s> <a:p> <<( <a:s> <a:p> %s )>> ." % form for form in (one, integer))
    assert build_net_effect([(True, [added]), (False, [deleted])]) is None, "they are one quad to a store"


@pytest.mark.parametrize(
    ("kind", "payload", "found"),
    [
        (KIND_QUADS, b"A <a:s> <a:p> " + TERM + b" .\n", "a triple term"),
        (KIND_QUADS, b"D <a:s> <a:p> <a:o> .\nA <a:s> <a:p> " + NESTED + b" <a:g> .\n", "a triple term"),
        (KIND_QUADS, b'A <a:s> <a:p> "<a:s> <a:p> <<( " .\n', ""),
        (KIND_UPDATE, b"INSERT { ?s ?p <<( ?s ?p ?o )>> } WHERE { ?s ?p ?o }", "a triple term"),
        (KIND_UPDATE, b"DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(isTriple (?o)) }", "the function ISTRIPLE"),
        (KIND_UPDATE, b"INSERT { ?s ?p '<<( triple(' } WHERE { ?s ?p ?object }", ""),
    ],
)
def test_a_transaction_with_one_is_known(kind: int, payload: bytes, found: str) -> None:
    assert find_triple_term(kind, payload) == found


def test_updates_over_all_graphs_are_written_out_around_it() -> None:
    text = "INSERT { ?s <a:r> ?x } WHERE { ?s <a:p> <<( _:b a ?x )>> }"
    prepared = prepare_update(text, base=None, now="", draw=lambda: 0, all_graphs=True)
    assert prepared.payload.count(b"<a:p> <<( ?g1 a ?x )>>") == 2
    assert b"GRAPH" in prepared.payload
    with pytest.raises(BadInput, match="1:35: expected one of Blank nodes are not allowed in DELETE WHERE"):
        prepare_update("DELETE WHERE { <<?s ?p ?o>> ?q ?r }", base=None, now="", draw=lambda: 0)


@pytest.mark.parametrize("string", ["'''a\"b'''", '"""a"b"""@en', "'a\"b'", '"""a"b\\u0020"""'])
def test_it_may_hold_any_string(string: str) -> None:
    prepared = prepare_update(
        f"INSERT DATA {{ <a:s> <a:p> <<( <a:s> <a:p> {string} )>> }}", base=None, now="", draw=int
    )
    assert b'<<( <a:s> <a:p> "a\\"b' in prepared.payload
    assert to_nquads(f"<a:s> <a:p> <<( <a:s> <a:p> {string} )>> .".encode(), "text/turtle", None)


def test_a_query_reads_the_predicates_around_it() -> None:
    assert query_predicates("SELECT * { ?s <a:p> <<( ?a <a:q> <<( ?b a 1 )>> )>> }") == frozenset(("<a:p>",))
    assert query_predicates("SELECT * { ?s <a:p> <<( ?a ?any ?b )>> ; ?every 1 }") is None


def test_a_removal_by_statements_names_it() -> None:
    removed = prepare_removal(b"<a:s> <a:p> " + NESTED + b" <a:g> .", "application/n-quads", base=None, graphs=None)
    assert removed.payload == b"D <a:s> <a:p> " + NESTED + b" <a:g> .\n"


def test_lines_match_by_it() -> None:
    line = b"<a:s> <a:p> " + NESTED + b" <a:g> ."
    assert line_filter([None, None, NESTED], ["<a:g>"])(line)
    assert not line_filter([None, None, TERM], None)(line)
    assert not line_filter([None, None, NESTED], [""])(line)


# -- RDF4J's forms


@pytest.mark.parametrize("media", list(RDF_FORMATS))
def test_every_format_gives_it_back(media: str) -> None:
    line = b"<a:s> <a:p> " + NESTED + b" .\n"
    out = io.BytesIO()
    converter(RDF_FORMATS[media])(io.BytesIO(line), out)
    assert to_nquads(out.getvalue(), media, None) == line
    assert (b"urn:rdf4j:triple:" in out.getvalue()) == (
        media in ("text/n3", "application/ld+json", "application/trix", "application/rdf+json")
    )


def test_binary_rdf_refuses_a_triple_as_subject_and_too_many_inside_one_another() -> None:
    out = io.BytesIO()
    write_rdf(ox.parse(b"<a:s> <a:p> " + TERM + b" .", ox.RdfFormat.N_QUADS), out)
    whole = out.getvalue()
    at = whole.index(b"\x07")
    triple, iri = whole[at:-2], b"\x01\x00\x00\x00\x03\x00a\x00:\x00p"
    for subject in (triple, b"\x07" * 40):
        with pytest.raises(MalformedBinaryRdf, match=r"as a subject|inside one another"):
            list(read_rdf(whole[:8] + b"\x01" + subject + iri + iri + b"\x00\x7f"))


def test_a_triple_of_declared_triples_is_as_deep_as_they_are() -> None:
    iri = b"\x01\x00\x00\x00\x03\x00a\x00:\x00p"

    def nested(depth: int) -> bytes:
        body, value = b"BRDF\x00\x00\x00\x01", iri
        for number in range(depth):
            body += b"\x03" + number.to_bytes(4, "big") + b"\x07" + iri + iri + value
            value = b"\x06" + number.to_bytes(4, "big")
        return body + b"\x01" + iri + iri + value + b"\x00\x7f"

    assert len(list(read_rdf(nested(16)))) == 1
    with pytest.raises(MalformedBinaryRdf, match="more than 16 triples inside one another"):
        list(read_rdf(nested(17)))


def test_an_iri_that_names_no_triple_stays() -> None:
    for coded in (b"A", b"A=A", b"_w==", b"PGE6cz4"):
        line = b"<a:s> <a:p> <urn:rdf4j:triple:%s> ." % coded
        assert decode_triple_iris(line) == line


def test_an_iri_of_too_many_triples_inside_one_another_is_refused() -> None:
    for depth, is_taken in ((16, True), (17, False), (100_000, False)):
        coded = base64.urlsafe_b64encode(b"<<<a:s> <a:p> " * depth + b"<a:o>" + b">>" * depth)
        line = b"<a:s> <a:p> <urn:rdf4j:triple:%s> ." % coded
        with nullcontext() if is_taken else pytest.raises(BadInput, match="more than 16 triples"):
            assert decode_triple_iris(line).count(b"<<(") == depth


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'<<<a:s> <a:p> "<<">>', '<a:s> <a:p> "<<"'),
        (b"<<( <a:s> <a:p> << <a:s> <a:p> 'x' >> )>>", None),
        (b'<< <a:s> <a:p> <<<a:s> <a:p> "x">> >>', '<a:s> <a:p> <<( <a:s> <a:p> "x" )>>'),
        (b"<<<<<a:s> <a:p> <a:o>>> <a:p> <a:o>>>", None),
        (b"<a:s>", None),
        (b"<< \xff >>", None),
    ],
)
def test_a_term_as_rdf4j_writes_it(text: bytes, found: str | None) -> None:
    term = parse_star_term(text)
    assert (None if term is None else str(term)) == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT * { ?a ?b <<?s <a:p> ?o>>. }", "SELECT * { ?a ?b <<( ?s <a:p> ?o )>>. }"),
        ("ASK { ?a a <<?s a <<?x a ?y>>>>, <<?s a 1>> }", "ASK { ?a a <<( ?s a <<( ?x a ?y )>> )>>, <<( ?s a 1 )>> }"),
        ("SELECT * { BIND(<<?s ?p ?o>> AS ?t) }", "SELECT * { BIND(<<( ?s ?p ?o )>> AS ?t) }"),
        (
            "ASK { VALUES ?t { <<<a:s> a 1>> <<<a:s> a 2>> } VALUES (?a ?b) { (1 <<<a:s> a 1>>) } }",
            "ASK { VALUES ?t { <<( <a:s> a 1 )>> <<( <a:s> a 2 )>> } VALUES (?a ?b) { (1 <<( <a:s> a 1 )>>) } }",
        ),
        ("SELECT * { <<?s ?p ?o>> ?a '<<' }", None),
        ("SELECT * { ?a ?b ?c . <<?s ?p ?o>> ?a <<( ?x ?y ?z )>> }", None),
        ("CONSTRUCT { ?s ?p ?o } WHERE { <<?s ?p ?o>> ?a ?b }", None),
    ],
)  # fmt: skip
def test_a_query_of_a_client_that_speaks_rdf_star(query: str, found: str | None) -> None:
    assert quoted_to_terms(query) == (found or query)


def test_a_long_query_takes_linear_time() -> None:
    query = "SELECT * { " + "<<?a ?b ?c>> ?d ?e . " * 20_000 + "}"
    began = time.process_time()
    assert quoted_to_terms(query) == query
    assert time.process_time() - began < 10


def test_a_graph_whose_subjects_are_triples_is_refused() -> None:
    with pytest.raises(BadInput, match="as a subject"):
        quoted_to_terms("CONSTRUCT { ?s ?p ?o . <<?s ?p ?o>> <a:p> 1 } WHERE { ?s ?p ?o }")
    assert speaks_star("application/x-sparqlstar-results+json;q=0.8, text/csv")
    assert not speaks_star("application/sparql-results+json, text/turtle")
