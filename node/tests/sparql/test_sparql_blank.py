"""Blank nodes have an IRI in stores and a label at the door, and each tells the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.model.errors import BadInput
from txlog.sparql import prepare_lines, prepare_rdf, prepare_removal
from txlog.sparql.blank import blank_lines, blank_terms, iri_of, label_of, named, named_lines
from txlog.sparql.parameters import parse_binding

HEX = "0123456789abcdef" * 2
IRI = f"urn:txlog:bnode:{HEX}:7"
LABEL = f"txlog-{HEX}-7"


def test_each_tells_the_other() -> None:
    for rest in ("0", "b12", "x-5f3a"):
        assert iri_of(f"txlog-{HEX}-{rest}") == f"urn:txlog:bnode:{HEX}:{rest}"
        assert label_of(f"urn:txlog:bnode:{HEX}:{rest}") == f"txlog-{HEX}-{rest}"
    assert named(f"_:{LABEL}") == f"<{IRI}>"
    for other in ("b0", f"txlog-{HEX}", f"txlog-{HEX.upper()}-7", f"txlog-{HEX}-", f"x{LABEL}"):
        assert iri_of(other) is None
        assert named(f"_:{other}") == f"_:{other}"
    assert label_of("urn:txlog:bnode:00:1") is None
    assert label_of(f"{IRI}.") is None


def test_strings_and_predicates_stay() -> None:
    line = f'<{IRI}> <{IRI}> "<{IRI}> \\" <{IRI}>"@en <{IRI}> .\n'.encode()
    assert blank_lines(line) == f'_:{LABEL} <{IRI}> "<{IRI}> \\" <{IRI}>"@en _:{LABEL} .\n'.encode()
    assert blank_terms(f'"<{IRI}>"\t<{IRI}>\t<{IRI}x/>\n'.encode()) == f'"<{IRI}>"\t_:{LABEL}\t<{IRI}x/>\n'.encode()
    back = f'_:{LABEL} <urn:p> "_:{LABEL} " _:{LABEL} .\n_:b <urn:p> _:{LABEL}.x .\n'.encode()
    assert named_lines(back) == f'<{IRI}> <urn:p> "_:{LABEL} " <{IRI}> .\n_:b <urn:p> _:{LABEL}.x .\n'.encode()


TERMS = st.sampled_from([f"<{IRI}>", "<urn:a>", f'"<{IRI}>"', f'"\\"<{IRI}>\\\\"@en', f'"_:{LABEL} "'])


@given(st.lists(st.tuples(TERMS, TERMS), max_size=5))
def test_there_and_back(pairs: list[tuple[str, str]]) -> None:
    lines = "".join(f"<{IRI}> <urn:p> {value} .\n<urn:s> <urn:p> {other} .\n" for value, other in pairs).encode()
    assert named_lines(blank_lines(lines)) == lines


def test_an_upload_has_new_nodes_unless_it_means_the_same() -> None:
    body = f"_:{LABEL} <urn:p> _:other .".encode()
    draw = lambda: 5  # noqa: E731
    new = prepare_rdf(body, "text/turtle", base=None, contexts=[], draw=draw)
    assert IRI.encode() not in new.payload
    same = prepare_rdf(body, "text/turtle", base=None, contexts=[], draw=draw, same_nodes=True)
    assert f"<{IRI}> <urn:p> <urn:txlog:bnode:{5:032x}:0> .".encode() in same.payload


def test_what_goes_is_named_by_its_label() -> None:
    gone = prepare_lines("", f"_:{LABEL} <urn:p> <urn:o> .", draw=lambda: 5)
    assert f"<{IRI}> <urn:p> <urn:o>".encode() in gone.payload
    removed = prepare_removal(f"_:{LABEL} <urn:p> <urn:o> .".encode(), "application/n-triples", base=None, graphs=[""])
    assert f"<{IRI}> <urn:p> <urn:o>".encode() in removed.payload
    assert parse_binding("x", f"_:{LABEL}") == f"<{IRI}>"
    with pytest.raises(BadInput, match="names nothing"):
        prepare_lines("", "_:b <urn:p> <urn:o> .", draw=lambda: 5)
    with pytest.raises(BadInput, match="an IRI in <>"):
        parse_binding("x", "_:b")
