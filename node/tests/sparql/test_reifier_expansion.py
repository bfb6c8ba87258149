"""Reifiers in updates, written in full: the expanded text does what a store of SPARQL 1.2 does with the client's."""

from __future__ import annotations

import pyoxigraph as ox
import pytest

from txlog.model.errors import BadInput, NotDeterministic
from txlog.sparql import prepare_evaluated, prepare_update
from txlog.sparql.rewrite.reifier_expansion import DEPTH_MAX, expand_reifiers
from txlog.sparql.tokens import tokens

NOW = "2026-01-01T00:00:00Z"
PROLOGUE = "PREFIX : <http://x/> "
DATA = """PREFIX : <http://x/>
:s :p :o ~ :r {| :q :z ; :w 'a' , 'b' |} .
:s :p 5 {| :q :z |} .
<< :a :b :c ~ :r2 >> :p :o1 {| :y [ :n 1 ] |} .
:t :p <<( :a :b "x"@en--ltr )>> ~ :r3 .
"""
Statement = tuple[str, str, str, str]


def store() -> ox.Store:
    made = ox.Store()
    made.load(DATA.encode(), ox.RdfFormat.TRIG)
    return made


def statements(at: ox.Store) -> ox.Dataset:
    """The contents up to the labels of blank nodes; a triple term is a node with three parts."""
    found: list[ox.Quad] = []
    nodes: dict[ox.Triple, ox.BlankNode] = {}

    def plain(term: object) -> ox.NamedNode | ox.BlankNode | ox.Literal:
        if not isinstance(term, ox.Triple):
            assert isinstance(term, ox.NamedNode | ox.BlankNode | ox.Literal)
            return term
        if term not in nodes:
            node = nodes[term] = ox.BlankNode()
            for name, part in (("s", term.subject), ("p", term.predicate), ("o", term.object)):
                found.append(ox.Quad(node, ox.NamedNode(f"urn:{name}"), plain(part)))
        return nodes[term]

    found += [ox.Quad(quad.subject, quad.predicate, plain(quad.object), quad.graph_name) for quad in at]
    made = ox.Dataset(found)
    made.canonicalize(ox.CanonicalizationAlgorithm.RDFC_1_0)
    return made


@pytest.mark.parametrize(
    "update",
    [
        "INSERT { << :a :b :c ~ :n >> :p ?o } WHERE { :s :p ?o }",
        "INSERT { << :a :b :c >> :p ?o } WHERE { :s :p ?o }",
        "INSERT { ?s :p2 ?o ~ :n1 ~ :n2 {| :q ?r |} {| :q 2 |} } WHERE { ?s :p ?o ~ ?r }",
        "INSERT { ?s :p2 ?o ~ } WHERE { ?s :p ?o {| :q :z |} }",
        "INSERT { ?r :found ?z } WHERE { << ?s ?p ?o ~ ?r >> ?q ?z }",
        "INSERT { ?s :x ?w } WHERE { ?s :p ?o {| :q ?z ; :w ?w |} FILTER(1 = 1 && EXISTS { :s :p 5 {| :q ?z |} }) }",
        "INSERT { :x :found ?v } WHERE { << :a :b << ?x ?y ?v >> >> :p :o2 }",
        "INSERT { :x :found ?n } WHERE { << :a :b :c ~ :r2 >> :p :o1 {| :y [ :n ?n ] |} }",
        "INSERT { [ :p << :a :b :c >> ] :q ( 1 << :a :b :d >> ) } WHERE {}",
        "INSERT { << :a :b :c >> } WHERE {}",
        "INSERT { << << :a :b -1.5 >> a <<( :a :b 'y'@en )>> >> :q true ; } WHERE {}",
        "DELETE { ?s ?p ?o ~ ?r {| :q :z |} } WHERE { ?s ?p ?o ~ ?r {| :q :z |} FILTER(isIRI(?r)) }",
        "DELETE WHERE { ?s :p ?o ~ ?r . ?r ?q ?z }",
        "INSERT { GRAPH :g { ?s ?p ?o ~ :n } } WHERE { { ?s ?p ?o ~ ?r } UNION { << ?s ?p ?o >> :w 'a' } }",
        "INSERT { :x :n ?n } WHERE { SELECT (COUNT(?r) AS ?n) { ?s :p ?o ~ ?r OPTIONAL { ?r :q+ ?z } } HAVING (1>0) }",
        "INSERT { :x :found ?v } WHERE { VALUES ?v { <<( :a :b :c )>> } ?r ?p ?v ~ :none }",
        "INSERT { :x :found ?t } WHERE { :t :p ?t ~ ?r BIND(<<( :a :b :c )>> AS ?u) MINUS { << :s :p :o >> :q ?t } }",
        "INSERT DATA { :s :p :o ~ :n {| :q 1 |} } ; INSERT { :x :y ?o ~ :m } WHERE { :s :p ?o ~ :n }",
        "INSERT { :x :y 'a ~ b << c >>'@en {| :q '''1\n2''' |} } WHERE {} # ~ << {|",
    ],
)
def test_the_expanded_update_does_the_same(update: str) -> None:
    text = PROLOGUE + update
    expanded = expand_reifiers(text).text
    assert expanded != text
    wanted, found = store(), store()
    before = statements(found)
    wanted.update(text)
    found.update(expanded)
    assert statements(found) == statements(wanted)
    if ":none" not in update and ":o2" not in update:
        assert statements(found) != before
    written = expanded.partition("INSERT DATA")[0] or expanded
    marks = {token.text for token in tokens(written) if token.kind == "MARK"}
    assert not marks & {"<<", ">>", "{|", "|}", "~"}


@pytest.mark.parametrize(
    "text",
    [
        "INSERT { ?s ?p <<( :a :b :c )>> } WHERE { ?s ?p ?o }",
        "INSERT DATA { << :a :b :c >> :p :o }",
        "DELETE DATA { :a :b :c ~ :r }",
        "INSERT { :a :b '<< :a :b :c >> ~' } WHERE {}",
        "INSERT { << :a :b ( 1 ) >> :p :o } WHERE {}",
        "INSERT { << :a :b [ :p 1 ] >> :p :o } WHERE {}",
        "INSERT { << :a :b/:c :d >> :p :o } WHERE {}",
        "INSERT { :a :b :c } WHERE { :a :b+ :c {| :p :o |} }",
        "INSERT { << :a :b :c >> :p :o } WHERE { FILTER(<< :a :b :c >> = 1) ",
        "INSERT { << :a :b :c :p :o } WHERE {}",
        "INSERT { ( 1 2 ) :p :o {| :q :z |} } WHERE {}",
        "<<",
        "INSERT { :s :p 1^^",
        "INSERT { :s :p '1'^^",
        "INSERT { :s :p " + ":o {| :q " * 2000 + ":z" + "|}" * 2000 + " } WHERE {}",
        "INSERT { " + "[ :p " * DEPTH_MAX + "<< :a :b :c >>" + "]" * DEPTH_MAX + " :p :o } WHERE {}",
    ],
)
def test_data_and_texts_that_do_not_parse_stay(text: str) -> None:
    assert expand_reifiers(text).text == text


def test_labels_are_new() -> None:
    text = "INSERT { _:reifier1 :p :o {|\n:q 1 # a comment\n\n|} }\nWHERE {}"
    expanded = expand_reifiers(text).text
    assert "_:reifierx1" in expanded


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("INSERT { << :a :b\n:c ~ :r >> :p :o }\nWHERE { ?s }", "3:"),
        ("INSERT { << :a :b :c ~ :r >> :p :o } WHERE { ?s }", f"1:{len(PROLOGUE) + 49}:"),
        ("INSERT { :x :y :z . :a :b :c ~ :r } WHERE { ?s :p ?o ~ ?r ?q }", f"1:{len(PROLOGUE) + 62}:"),
        ("DELETE { :x :y :z . :a :b :c ~ } WHERE { ?s :p ?o }", f"1:{len(PROLOGUE) + 34}:"),
        ("DELETE WHERE { << ?s ?p ?o >> ?q ?r }", f"1:{len(PROLOGUE) + 37}:"),
    ],
)
def test_an_error_has_its_place_in_the_text_of_the_client(text: str, place: str) -> None:
    with pytest.raises(BadInput, match=f"error at {place}"):
        prepare_update(PROLOGUE + text, base=None, now=NOW, draw=lambda: 7)


def test_a_text_grows_by_a_bounded_length() -> None:
    long = "'" + "x" * 10_000 + "'"
    with pytest.raises(BadInput, match="reifiers repeat too much"):
        expand_reifiers(f"INSERT {{ :s :p {long} {'~ :r ' * 200} }} WHERE {{}}")
    many = "'" + "x" * 5_000_000 + "'"
    with pytest.raises(BadInput, match="reifiers repeat too much"):
        expand_reifiers(f"INSERT {{ :s :p {many} {'~ :r ' * 20_000} }} WHERE {{}}")


def test_a_named_reifier_is_logged_and_one_without_a_name_is_evaluated_once() -> None:
    named = PROLOGUE + "INSERT { ?s :p2 ?o ~ :n } WHERE { ?s :p ?o ~ ?r }"
    logged = prepare_update(named, base=None, now=NOW, draw=lambda: 7).payload.decode()
    at, wanted = store(), store()
    at.update(logged)
    wanted.update(named)
    assert statements(at) == statements(wanted)
    anonymous = PROLOGUE + "INSERT { ?s :p2 ?o {| :q 1 |} } WHERE { ?s :p ?o }"
    with pytest.raises(NotDeterministic, match="a blank node in an INSERT template") as refused:
        prepare_update(anonymous, base=None, now=NOW, draw=lambda: 7)
    assert refused.value.once
    assert "_:reifier1" in prepare_evaluated(anonymous, base=None, now=NOW, draw=lambda: 7).text
    with pytest.raises(BadInput, match="MALFORMED QUERY"):
        prepare_update(
            PROLOGUE + "DELETE { :s :p ?o {| :q 1 |} } WHERE { :s :p ?o }", base=None, now=NOW, draw=lambda: 7
        )


def test_an_update_with_one_solution_gets_a_constant_for_a_reifier() -> None:
    text = PROLOGUE + "INSERT { << :a :b :c >> :p :o } WHERE {}"
    at = ox.Store()
    at.update(prepare_update(text, base=None, now=NOW, draw=lambda: 7).payload.decode())
    assert len(at) == 2
    assert len({quad.subject for quad in at}) == 1
