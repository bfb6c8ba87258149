"""``application/x-rdftransaction``."""

from __future__ import annotations

from itertools import count

import pytest

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import TxLogError
from txlog.sparql import TransactionBody
from txlog.sparql.formats.rdf4j_transaction_xml import RdfTransaction, prepare_rdf_transaction

NOW = "2026-01-01T00:00:00Z"
S, P, V = "<uri>urn:s</uri>", "<uri>urn:p</uri>", "<literal>o</literal>"


def prepared(inside: str) -> TransactionBody:
    return read(inside).prepared


def read(inside: str) -> RdfTransaction:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<transaction>\n{inside}\n</transaction>'
    return prepare_rdf_transaction(body.encode(), now=NOW, draw=count(7).__next__)


def test_changes_of_namespaces_stand_beside_the_data() -> None:
    made = read(
        f'<setNamespace prefix="a" name="urn:a:"/><add>{S}{P}{V}</add><removeNamespace prefix="b" name="x"/>'
        '<clearNamespaces/><setNamespace prefix="" name="urn:c:"></setNamespace>'
    )
    assert made.prepared.change_count == 1
    assert made.namespaces == [("a", "urn:a:"), ("b", None), (None, None), ("", "urn:c:")]


def test_what_is_added_is_quads() -> None:
    made = prepared(
        f"<add>{S}{P}{V}</add>"
        f'<add>{S}{P}<literal xml:lang="en">a &lt; b</literal><contexts><uri>urn:g</uri><null/></contexts></add>'
        f'<add><bnode>x</bnode>{P}<literal datatype="urn:t" encoding="base64">dw==</literal></add>'
    )
    assert made.kind == KIND_QUADS
    assert made.payload.decode().splitlines() == [
        'A <urn:s> <urn:p> "o" .',
        'A <urn:s> <urn:p> "a < b"@en <urn:g> .',
        'A <urn:s> <urn:p> "a < b"@en .',
        'A <urn:txlog:bnode:kept:x> <urn:p> "w"^^<urn:t> .',
    ]


def test_a_label_is_one_node_in_all_operations_and_another_label_is_another() -> None:
    inside = "".join(
        f"<add><bnode>{label}</bnode>{P}<bnode>{other}</bnode></add>" for label, other in ("xy", "xx", "yz")
    )
    made = prepared(f"{inside}<add>{S}{P}{V}<contexts><bnode>x</bnode></contexts></add>")
    node = "<urn:txlog:bnode:kept:%s>"
    x, y, z = (node % label for label in "xyz")
    assert made.payload.decode().splitlines() == [
        f"A {x} <urn:p> {y} .",
        f"A {x} <urn:p> {x} .",
        f"A {y} <urn:p> {z} .",
        f'A <urn:s> <urn:p> "o" {x} .',
    ]
    removed = prepared(f"<remove><bnode>x</bnode>{P}<null/></remove>")
    assert removed.payload.decode().startswith(f"DELETE WHERE {{ {x} <urn:p> ?o }}")


def test_a_label_of_an_update_is_its_own() -> None:
    """As in RDF4J: what INSERT DATA names is new each time."""
    update = "<sparql><updateString>INSERT DATA { _:x &lt;urn:p> 1 }</updateString></sparql>"
    lines = prepared(f"<add><bnode>x</bnode>{P}{V}</add>{update}{update}").payload.decode().splitlines()
    assert [line.split(" ")[1] for line in lines] == [
        "<urn:txlog:bnode:kept:x>",
        f"<urn:txlog:bnode:{7:032x}:0>",
        f"<urn:txlog:bnode:{8:032x}:0>",
    ]


def test_what_is_removed_and_cleared() -> None:
    made = prepared(
        f"<remove>{S}<null/><null/></remove>"
        f"<remove>{S}{P}{V}<contexts><uri>urn:g</uri></contexts></remove>"
        "<clear><contexts><uri>urn:h</uri><null/></contexts></clear><clear/>"
    )
    assert made.kind == KIND_UPDATE
    assert made.payload.decode().split(" ;\n") == [
        "DELETE WHERE { <urn:s> ?p ?o }",
        "DELETE WHERE { GRAPH ?g { <urn:s> ?p ?o } }",
        'DELETE DATA {\nGRAPH <urn:g> {\n<urn:s> <urn:p> "o" }\n}',
        "DROP SILENT GRAPH <urn:h>",
        "DROP SILENT DEFAULT",
        "DROP SILENT ALL",
    ]


def test_an_update_with_all_that_it_may_have() -> None:
    made = prepared(
        '<sparql baseURI="urn:base:" includeInferred="true"><updateString>'
        "INSERT { ?s &lt;urn:q&gt; ?o } WHERE { ?s &lt;urn:p&gt; ?o }</updateString>"
        "<dataset><defaultGraphs><graph>urn:g</graph></defaultGraphs>"
        "<defaultInsertGraph>urn:h</defaultInsertGraph></dataset>"
        '<bindings><binding_uri name="s">urn:s</binding_uri>'
        '<binding_literal name="o" language="en">v</binding_literal></bindings></sparql>'
    )
    text = made.payload.decode()
    for part in ("GRAPH <urn:h>", "USING <urn:g>", 'VALUES (?o ?s) { ("v"@en <urn:s>) }'):
        assert part in text
    made = prepared(
        "<sparql><updateString>DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }</updateString>"
        '<bindings><binding_bnode name="s">x</binding_bnode></bindings></sparql>'
    )
    assert "VALUES (?s) { (<urn:txlog:bnode:kept:x>) }" in made.payload.decode()


@pytest.mark.parametrize(
    ("inside", "says"),
    [
        (f"<add>{S}{P}</add>", "needs subject"),
        (f"<add>{S}{P}<null/></add>", "needs three terms"),
        (f"<add>{S}<literal>p</literal>{V}</add>", "MALFORMED DATA"),
        (f"<add><uri>rel</uri>{P}{V}</add>", "MALFORMED DATA"),
        (f"<add><uri>urn:txlog:system:x</uri>{P}{V}</add>", "belong to TxLog"),
        (f'<add>{S}{P}<literal encoding="base64">?</literal></add>', "MALFORMED DATA"),
        (f"<remove><bnode>b c</bnode>{P}{V}</remove>", "MALFORMED DATA"),
        ('<sparql><updateString>DROP ALL</updateString><bindings><null name="x"/></bindings></sparql>', "a term"),
        ('<setNamespace prefix="a"/>', "needs a prefix"),
        ('<setNamespace name="urn:a:"/>', "needs a prefix"),
        ("<removeNamespace/>", "needs a prefix"),
        ("<clearNamespace/>", "no operation"),
        (f"<remove><literal>s</literal>{P}{V}</remove>", "no subject and no predicate"),
        (f"<remove><literal>s</literal>{P}<null/></remove>", "no subject and no predicate"),
        (f"<remove>{S}<literal>p</literal><null/></remove>", "no subject and no predicate"),
        (f"<remove>{S}{P}<null/><contexts><literal>g</literal></contexts></remove>", "named by an IRI"),
        (f"<add>{S}{P}{V}<contexts><literal>g</literal></contexts></add>", "named by an IRI"),
        ("<clear><contexts><literal>g</literal></contexts></clear>", "named by an IRI"),
        ("<jump/>", "no operation"),
        ("<sparql/>", "updateString"),
        ("<sparql><updateString>INSERT</updateString></sparql>", "MALFORMED QUERY"),
        (
            "<sparql><updateString>INSERT{?s ?p ?x} WHERE {?s ?p ?o BIND(UUID()AS ?x)}</updateString></sparql>",
            "UUID",
        ),
        ("<add>" * 9 + "</add>" * 9, "too deep"),
        ("<add>", "line 4: mismatched tag"),
    ],
)
def test_what_is_wrong_is_said(inside: str, says: str) -> None:
    with pytest.raises(TxLogError) as refused:
        prepared(inside)
    assert says in str(refused.value)
    assert refused.value.status == 400


def test_no_document_type_and_no_other_root() -> None:
    for body in (b"<!DOCTYPE transaction []><transaction/>", b"<other/>", b"", b"\xff"):
        with pytest.raises(TxLogError, match="MALFORMED DATA"):
            prepare_rdf_transaction(body, now=NOW, draw=lambda: 7)
