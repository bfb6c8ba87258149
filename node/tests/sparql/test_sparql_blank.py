"""Blank nodes have an IRI in stores and a label at the door, and each tells the other."""

from itertools import count

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.model.errors import BadInput
from txlog.sparql import prepare_lines, prepare_rdf, prepare_removal
from txlog.sparql.rewrite.bound_parameters import parse_binding
from txlog.sparql.skolem_iris import (
    encode_label,
    iri_to_label,
    label_to_iri,
    make_blank_node,
    skolemise_kept_lines,
    skolemise_term,
    unskolemise_lines,
    unskolemise_terms,
)

HEX = "0123456789abcdef" * 2
IRI = f"urn:txlog:bnode:{HEX}:7"
LABEL = f"txlog-{HEX}-7"


def test_each_tells_the_other() -> None:
    for rest in ("0", "b12", "x-5f3a"):
        assert label_to_iri(f"txlog-{HEX}-{rest}") == f"urn:txlog:bnode:{HEX}:{rest}"
        assert iri_to_label(f"urn:txlog:bnode:{HEX}:{rest}") == f"txlog-{HEX}-{rest}"
    assert skolemise_term(f"_:{LABEL}") == f"<{IRI}>"
    for other in ("b0", f"txlog-{HEX}", f"txlog-{HEX.upper()}-7", f"x{LABEL}", "genid-1_2.3", "0", "_"):
        assert label_to_iri(other) == f"urn:txlog:bnode:kept:{other}"
        assert skolemise_term(f"_:{other}") == f"<urn:txlog:bnode:kept:{other}>"
    for none in ("urn:txlog:bnode:00:1", f"{IRI}.", "urn:txlog:bnode:kept:", "urn:txlog:bnode:kept:a.", "urn:a"):
        assert iri_to_label(none) is None
    assert skolemise_term('"_:b0"') == '"_:b0"'


LABELS = st.one_of(
    st.from_regex(r"[0-9A-Za-z_][0-9A-Za-z_-]*", fullmatch=True),
    st.sampled_from(["é", "x-61", "x-", "a.b", "a·", "x-zz", "X-61", "漢字", "x-x", "hex-", "hex-6", "hex-ff"]),
)


@given(st.lists(LABELS, min_size=2, max_size=2, unique=True))
def test_a_kept_label_comes_back_and_no_two_labels_are_one_node(labels: list[str]) -> None:
    iris = [label_to_iri(label) for label in labels]
    assert [iri_to_label(iri) for iri in iris] == labels
    assert len(set(iris)) == 2
    for iri in iris:
        assert str(ox.NamedNode(iri)) == f"<{iri}>"
        assert iri.isascii()


@given(st.one_of(LABELS, st.text(max_size=5), st.sampled_from(["hex-61", "hex-", LABEL, "a:b", "a.", "", "x-61"])))
def test_any_text_names_a_node_by_a_label_that_every_form_takes(text: str) -> None:
    label = make_blank_node(text).value
    shown = iri_to_label(label_to_iri(label))
    assert shown is not None
    assert label_to_iri(shown) == label_to_iri(label)
    if not text.startswith("hex-"):
        assert label_to_iri(encode_label(text)) == label_to_iri(label)
    assert next(iter(ox.parse(f"_:{shown} <urn:p> 1 .", ox.RdfFormat.TURTLE))).subject == ox.BlankNode(shown)


@pytest.mark.parametrize("rest", ["x-6", "x-zz", "x-22", "x-612e", "x-ff", "x-20", "x-61", "hex-61", "x-6865782d3631"])
def test_an_iri_that_no_label_has_is_shown_as_a_label_all_the_same(rest: str) -> None:
    """An update's IRI() may build one."""
    label = iri_to_label(f"urn:txlog:bnode:kept:{rest}")
    assert label is not None
    assert ox.BlankNode(label).value == label


def test_strings_and_predicates_stay() -> None:
    line = f'<{IRI}> <{IRI}> "<{IRI}> \\" <{IRI}>"@en <{IRI}> .\n'.encode()
    assert unskolemise_lines(line) == f'_:{LABEL} <{IRI}> "<{IRI}> \\" <{IRI}>"@en _:{LABEL} .\n'.encode()
    assert (
        unskolemise_terms(f'"<{IRI}>"\t<{IRI}>\t<{IRI}x/>\n'.encode()) == f'"<{IRI}>"\t_:{LABEL}\t<{IRI}x/>\n'.encode()
    )
    back = f'_:{LABEL} <urn:p> "_:{LABEL} " _:{LABEL} .\n_:b <urn:_:b> _:{LABEL}.x .\n'.encode()
    kept = f"<urn:txlog:bnode:kept:b> <urn:_:b> <urn:txlog:bnode:kept:{LABEL}.x> .\n"
    assert skolemise_kept_lines(back) == f'<{IRI}> <urn:p> "_:{LABEL} " <{IRI}> .\n{kept}'.encode()
    assert unskolemise_lines(kept.encode()) == f"_:b <urn:_:b> _:{LABEL}.x .\n".encode()


TERMS = st.sampled_from([f"<{IRI}>", "<urn:a>", f'"<{IRI}>"', f'"\\"<{IRI}>\\\\"@en', f'"_:{LABEL} "'])


@given(st.lists(st.tuples(TERMS, TERMS), max_size=5))
def test_there_and_back(pairs: list[tuple[str, str]]) -> None:
    lines = "".join(f"<{IRI}> <urn:p> {value} .\n<urn:s> <urn:p> {other} .\n" for value, other in pairs).encode()
    assert skolemise_kept_lines(unskolemise_lines(lines)) == lines


def test_an_upload_has_new_nodes_unless_it_means_the_same() -> None:
    body = f"_:{LABEL} <urn:p> _:other .".encode()
    draw = count(5).__next__
    new = prepare_rdf(body, "text/turtle", base=None, contexts=[], draw=draw)
    assert IRI.encode() not in new.payload
    same = prepare_rdf(body, "text/turtle", base=None, contexts=[], draw=draw, same_nodes=True)
    assert f"<{IRI}> <urn:p> <urn:txlog:bnode:kept:other> .".encode() in same.payload
    again = prepare_rdf(body, "text/turtle", base=None, contexts=[], draw=draw, same_nodes=True)
    assert again == same
    assert prepare_rdf(body, "text/turtle", base=None, contexts=[], draw=draw) != new


def test_what_goes_is_named_by_its_label() -> None:
    gone = prepare_lines("", f"_:{LABEL} <urn:p> <urn:o> .", draw=lambda: 5)
    assert f"<{IRI}> <urn:p> <urn:o>".encode() in gone.payload
    removed = prepare_removal(f"_:{LABEL} <urn:p> <urn:o> .".encode(), "application/n-triples", base=None, graphs=[""])
    assert f"<{IRI}> <urn:p> <urn:o>".encode() in removed.payload
    assert parse_binding("x", f"_:{LABEL}") == f"<{IRI}>"
    kept = b"D <urn:txlog:bnode:kept:b> <urn:p> <urn:o> .\n"
    assert prepare_lines("", "_:b <urn:p> <urn:o> .", draw=lambda: 5).payload == kept
    removed = prepare_removal(b"_:b <urn:p> <urn:o> .", "application/n-triples", base=None, graphs=[""])
    assert removed.payload == kept
    assert parse_binding("x", "_:b") == "<urn:txlog:bnode:kept:b>"
    with pytest.raises(BadInput, match="a term in N-Triples"):
        parse_binding("x", "_:")
