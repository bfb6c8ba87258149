"""The requests that a master and an RDF4J server are both sent, in this order; the data of one step is there in the
next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

from e2e.conformance.rdf4j.body_steps import BODY_STEPS, BodyStep
from e2e.conformance.rdf4j.rdf_formats import binary_document

JSON: Final = "application/sparql-results+json"
UPDATE: Final = "application/sparql-update"
QUERY: Final = "application/sparql-query"
FORM: Final = "application/x-www-form-urlencoded"
TURTLE: Final = "text/turtle"
N_QUADS: Final = "application/n-quads"
N_TRIPLES: Final = "application/n-triples"
TRIG: Final = "application/trig"
XML: Final = "application/x-rdftransaction"
BINARY: Final = "application/x-binary-rdf"
BINARY_TABLE: Final = "application/x-binary-rdf-results-table"
ISOLATION: Final = "transaction-setting__org.eclipse.rdf4j.common.transaction.IsolationLevel"


class RequestStep(NamedTuple):
    """``path`` stands behind ``/rdf4j-server``; ``@`` in it is the repository, ``@tx`` the open transaction."""

    name: str
    method: str
    path: str
    body: str | bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


def _get(name: str, path: str, accept: str = "") -> RequestStep:
    return RequestStep(name, "GET", path, headers={"Accept": accept} if accept else {})


def _send(name: str, method: str, path: str, media: str, body: str | bytes) -> RequestStep:
    return RequestStep(name, method, path, body, {"Content-Type": media} if media else {})


def _ask(name: str, query: str, accept: str = JSON, **parameters: str) -> RequestStep:
    return _get(name, "@?" + urlencode({"query": query, **parameters}), accept)


def _of_body(step: BodyStep) -> RequestStep:
    headers = {"Content-Type": step.media} if step.media else {}
    headers |= {"Content-Encoding": step.coding} if step.coding else {}
    headers |= {"Accept": N_QUADS} if step.method == "GET" and "Accept=" not in step.path else {}
    return RequestStep(step.name, step.method, step.path, step.body, headers)


G: Final = quote("<urn:g>", safe="")
ONE: Final = quote('"1"^^<http://www.w3.org/2001/XMLSchema#integer>', safe="")
DATA: Final = """@prefix ex: <urn:ex:> .
ex:a ex:p 1 , 2 ; ex:q "text" , "Wort"@de . ex:b ex:p ex:a ."""
GRAPHS: Final = (
    """<urn:g> { <urn:ex:c> <urn:ex:p> 3 . <urn:ex:c> <urn:ex:r> "x\\ty\\"z" } <urn:h> { <urn:ex:d> <urn:ex:p> 4 }"""
)
NIL: Final = "http://rdf4j.org/schema/rdf4j#nil"
SELECT: Final = "SELECT ?s ?o { ?s <urn:ex:p> ?o }"
CONSTRUCT: Final = "CONSTRUCT { ?s <urn:made> ?o } WHERE { ?s <urn:ex:p> ?o }"

CONFIG: Final = """@prefix rep: <http://www.openrdf.org/config/repository#> .
@prefix sr: <http://www.openrdf.org/config/repository/sail#> . @prefix sail: <http://www.openrdf.org/config/sail#> .
[] a rep:Repository ; rep:repositoryID "another" ; rep:repositoryImpl [ rep:repositoryType "openrdf:SailRepository" ;
   sr:sailImpl [ sail:sailType "openrdf:MemoryStore" ] ] ."""


FORMS: Final[dict[str, tuple[str, str | bytes]]] = {
    "N3": ("text/n3", "@prefix ex: <urn:ex:> . [] ex:p ( 1 'a' ) ; = ex:a ."),
    "TriX": (
        "application/trix",
        "<TriX xmlns='http://www.w3.org/2004/03/trix/trix-1/'><graph><triple><id>n1</id><uri>urn:p</uri>"
        "<plainLiteral xml:lang='en'>v</plainLiteral></triple><triple><uri>urn:s</uri><uri>urn:p</uri>"
        "<typedLiteral datatype='urn:t'>w</typedLiteral></triple></graph></TriX>",
    ),
    "RDF/JSON": (
        "application/rdf+json",
        '{"_:n1":{"urn:p":[{"type":"literal","value":"v","lang":"en"},{"type":"bnode","value":"_:n1"},'
        '{"type":"literal","value":"w","datatype":"urn:t"},{"type":"uri","value":"urn:o"}]}}',
    ),
    "JSON-LD": (
        "application/ld+json",
        '{"@context":{"ex":"urn:ex:"},"@id":"urn:s","ex:p":[1,{"@id":"_:n1"},{"@list":["a"]}],"ex:q":{"ex:r":true}}',
    ),
    "binary RDF": (BINARY, binary_document("8062b")),
    "RDF/XML": (
        "application/rdf+xml",
        "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns:ex='urn:ex:'>"
        "<rdf:Description rdf:about='urn:s'><ex:p rdf:parseType='Resource'><ex:q>v</ex:q></ex:p></rdf:Description>"
        "</rdf:RDF>",
    ),
}
"""By name, media type and a document."""
F: Final = quote("<urn:f>", safe="")


def _in_each_form() -> Iterator[RequestStep]:
    """What each form brings, in and out."""
    for name, (media, body) in FORMS.items():
        yield _send(f"add {name}", "PUT", f"@/statements?context={F}", media, body)
        yield _get(f"what {name} brought", f"@/statements?context={F}", N_QUADS)
        yield _get(f"the same as {name}", f"@/statements?context={F}", media)
        yield _send(f"add malformed {name}", "POST", f"@/statements?context={F}", media, body[: len(body) // 2])
    yield RequestStep("remove what came so", "DELETE", f"@/statements?context={F}")


def _add_xml(*labels: str) -> str:
    return "".join(
        f"<add><bnode>{label}</bnode><uri>urn:p</uri><literal>{n}</literal></add>" for n, label in enumerate(labels)
    )


KEPT: Final = "preserveNodeId=true"
_NODES: Final = (
    _send("keep a label", "POST", f"@/statements?{KEPT}", TURTLE, "_:x <urn:p> 1 ; <urn:q> _:y ."),
    _send("keep it again", "POST", f"@/statements?{KEPT}", TURTLE, "_:x <urn:p> 2 ."),
    _send("do not keep it", "POST", "@/statements", TURTLE, "_:x <urn:p> 3 . _:x <urn:p> 4 ."),
    _send("a label in INSERT DATA", "POST", "@/statements", UPDATE, "INSERT DATA { _:x <urn:p> 5 }"),
    _send("keep a label in binary", "POST", f"@/statements?{KEPT}", BINARY, binary_document("8062b")),
    _send("labels in XML", "POST", "@/statements", XML, f"<transaction>{_add_xml('x', 'z', 'x')}</transaction>"),
    _get("nodes after all that", "@/statements", N_QUADS),
    _ask("labels as JSON", "SELECT ?s { ?s <urn:p> 2 }"),
    _get("by a label", "@/statements?subj=_:x", "text/plain"),
    _get("by a label that nobody has", "@/statements?subj=_:nobody", N_QUADS),
    _get("by the label of a graph that nobody has", "@/statements?context=_:nobody", N_QUADS),
    _ask("a variable bound to a label", "SELECT ?o { ?s <urn:p> ?o }", **{"$s": "_:x"}),
    RequestStep("begin with nodes", "POST", "@/transactions"),
    _send("ADD a kept label", "PUT", f"@tx?action=ADD&{KEPT}", TURTLE, "_:x <urn:t> 1 . _:w <urn:t> 7 ."),
    _send("its label in an UPDATE", "PUT", "@tx?action=UPDATE", UPDATE, "INSERT DATA { _:w <urn:t> 2 }"),
    _send("ADD it again", "PUT", f"@tx?action=ADD&{KEPT}", TURTLE, "_:x <urn:t> 3 . _:w <urn:t> 4 ."),
    _send("ADD it and do not keep it", "PUT", "@tx?action=ADD", TURTLE, "_:x <urn:t> 5 ."),
    _send("DELETE by a label", "PUT", "@tx?action=DELETE", TURTLE, "_:x <urn:p> 2 ."),
    _send("DELETE by a kept label", "PUT", f"@tx?action=DELETE&{KEPT}", TURTLE, "_:x <urn:p> 1 . _:nobody <urn:p> 9 ."),
    RequestStep("nodes inside", "PUT", "@tx?action=GET", headers={"Accept": N_QUADS}),
    RequestStep("PREPARE", "PUT", "@tx?action=PREPARE"),
    RequestStep("COMMIT of nodes", "PUT", "@tx?action=COMMIT"),
    _get("nodes after the commit", "@/statements", N_QUADS),
    _send(
        "remove by a label in XML",
        "POST",
        "@/statements",
        XML,
        "<transaction><remove><bnode>x</bnode><uri>urn:p</uri><null/></remove></transaction>",
    ),
    _get("nodes after the removal", "@/statements", N_QUADS),
)
_XML: Final = (
    _send(
        "namespaces and data in XML",
        "POST",
        "@/statements",
        XML,
        "<transaction><setNamespace prefix='old' name='urn:old:'/><clearNamespaces/><setNamespace prefix='a' "
        "name='urn:a:'/><add><uri>urn:s</uri><uri>urn:p</uri><literal>v</literal><contexts><uri>urn:g</uri><null/>"
        "</contexts></add><removeNamespace prefix='zz'/></transaction>",
    ),
    _get("namespaces after XML", "@/namespaces", JSON),
    _get("data after XML", f"@/statements?subj={quote('<urn:s>')}", N_QUADS),
    _send(
        "clear and an update in XML",
        "POST",
        "@/statements",
        XML,
        "<transaction><clear><contexts><uri>urn:g</uri></contexts></clear><sparql><updateString>DELETE { ?s &lt;urn:p>"
        " ?o } INSERT { ?s &lt;urn:q> ?o } WHERE { ?s &lt;urn:p> ?o }</updateString><bindings><binding_uri name='s'>"
        "urn:s</binding_uri></bindings></sparql></transaction>",
    ),
    _get("data after the update in XML", f"@/statements?subj={quote('<urn:s>')}", N_QUADS),
    _send("malformed XML", "POST", "@/statements", XML, "<transaction><add>"),
    _send("no operation in XML", "POST", "@/statements", XML, "<transaction><nothing/></transaction>"),
    _send("too few terms in XML", "POST", "@/statements", XML,
          "<transaction><add><uri>urn:s</uri></add></transaction>"),
    _send("a relative namespace in XML", "POST", "@/statements", XML,
          "<transaction><setNamespace prefix='r' name='rel'/></transaction>"),
    _send("a namespace without prefix in XML", "POST", "@/statements", XML,
          "<transaction><setNamespace name='urn:r:'/></transaction>"),
)  # fmt: skip
_REPOSITORIES: Final = (
    _send("make what is there", "PUT", "@", TURTLE, CONFIG),
    _send("make what is there of nonsense", "PUT", "@", TURTLE, "nonsense"),
    _send("make another of nonsense", "PUT", "/repositories/another", TURTLE, "nonsense"),
    _send("make another", "PUT", "/repositories/another", TURTLE, CONFIG),
    RequestStep("remove another", "DELETE", "/repositories/another"),
    RequestStep("remove it twice", "DELETE", "/repositories/another"),
    RequestStep("remove with a query", "DELETE", "@?query=ASK%20%7B%7D"),
    _get("the configuration", "@/config", TURTLE),
    _get("the configuration in no known form", "@/config", "application/x-nothing"),
    _get("the configuration of an unknown repository", "/repositories/nobody/config", TURTLE),
    RequestStep("the configuration by HEAD", "HEAD", "@/config", headers={"Accept": TURTLE}),
    _send("configure an unknown repository", "POST", "/repositories/nobody/config", TURTLE, CONFIG),
)

STEPS: Final = (
    _get("protocol", "/protocol"),
    _get("repositories", "/repositories", JSON),
    _get("an unknown repository's size", "/repositories/nobody/size"),
    _ask("a query of an unknown repository", "ASK {}")._replace(path="/repositories/nobody?query=ASK%20%7B%7D"),
    # Statements
    _get("size of nothing", "@/size"),
    _get("statements of nothing", "@/statements", N_QUADS),
    _send("add Turtle", "POST", "@/statements", TURTLE, DATA),
    _send("add TriG", "POST", "@/statements", TRIG, GRAPHS),
    _send("add to a graph", "POST", f"@/statements?context={G}", N_TRIPLES, "<urn:ex:e> <urn:ex:p> <urn:ex:a> .\n"),
    _send("add with a base", "POST", f"@/statements?baseURI={quote('<urn:base:x>')}", TURTLE, "<#i> <urn:ex:n> true ."),
    _send("add malformed Turtle", "POST", "@/statements", TURTLE, "<urn:a> <urn:b> "),
    _send("add an unknown type", "POST", "@/statements", "application/x-nothing", "x"),
    _send("add without a type", "POST", "@/statements", "", "<urn:a> <urn:b> <urn:c> .\n"),
    _send("add a malformed context", "POST", "@/statements?context=urn:g", TURTLE, "<urn:a> <urn:b> <urn:c> ."),
    _get("size", "@/size"),
    _get("size of a graph", f"@/size?context={G}"),
    _get("size of no graph", "@/size?context=null"),
    _get("size of two", f"@/size?context={G}&context=null"),
    _get("contexts", "@/contexts", JSON),
    _get("all as N-Quads", "@/statements", N_QUADS),
    _get("all as TriG", "@/statements", TRIG),
    _get("all as Turtle", "@/statements", TURTLE),
    _get("all as RDF/XML", "@/statements", "application/rdf+xml"),
    _get("all as N-Triples", "@/statements", N_TRIPLES),
    _get("all as N3", "@/statements", "text/n3"),
    _get("all as TriX", "@/statements", "application/trix"),
    _get("all as RDF/JSON", "@/statements", "application/rdf+json"),
    _get("all as JSON-LD", "@/statements", "application/ld+json"),
    _get("all as binary RDF", "@/statements", BINARY),
    _get("a graph", f"@/statements?context={G}", N_QUADS),
    _get("no graph", "@/statements?context=null", N_QUADS),
    _get("by subject", f"@/statements?subj={quote('<urn:ex:a>')}", N_QUADS),
    _get("by object", "@/statements?obj=%22Wort%22%40de", N_QUADS),
    _get("by all three", f"@/statements?subj={quote('<urn:ex:a>')}&pred={quote('<urn:ex:p>')}&obj={ONE}", N_QUADS),
    _get("by a malformed subject", "@/statements?subj=urn:ex:a", N_QUADS),
    _get("statements in no known form", "@/statements", "application/x-nothing"),
    RequestStep("statements by HEAD", "HEAD", "@/statements", headers={"Accept": N_QUADS}),
    # Queries
    _ask("SELECT as JSON", SELECT),
    _ask("SELECT as XML", SELECT, "application/sparql-results+xml"),
    _ask("SELECT as CSV", SELECT, "text/csv"),
    _ask("SELECT as TSV", SELECT, "text/tab-separated-values"),
    _ask("SELECT in binary", SELECT, BINARY_TABLE),
    _ask("SELECT of nothing in binary", "SELECT ?s ?o { ?s <urn:nothing> ?o }", BINARY_TABLE),
    _ask("CONSTRUCT in binary", CONSTRUCT, BINARY),
    _ask("a query within its time", SELECT, timeout="30"),
    _ask("a query without limit of time", SELECT, timeout="0"),
    _ask("a time that is none", SELECT, timeout="nonsense"),
    _ask("SELECT in any form", "SELECT ?o { <urn:ex:d> <urn:ex:p> ?o }", "*/*"),
    _ask("ASK as JSON", "ASK { ?s <urn:ex:p> 4 }"),
    _ask("ASK as text", "ASK { ?s <urn:ex:p> 4 }", "text/boolean"),
    _ask("CONSTRUCT as Turtle", CONSTRUCT, TURTLE),
    _ask("CONSTRUCT as N-Triples", CONSTRUCT, N_TRIPLES),
    _ask("DESCRIBE", "DESCRIBE <urn:ex:c>", N_TRIPLES),
    _ask("SELECT as Turtle", SELECT, TURTLE),
    _ask("CONSTRUCT as results", CONSTRUCT, JSON),
    _ask("SELECT in no known form", SELECT, "application/x-nothing"),
    _ask("a variable bound", SELECT, **{"$s": "<urn:ex:a>"}),
    _ask(
        "a variable bound to a literal",
        "SELECT ?s { ?s <urn:ex:p> ?o }",
        **{"$o": '"3"^^<http://www.w3.org/2001/XMLSchema#integer>'},
    ),
    _ask("a variable bound to nonsense", SELECT, **{"$s": "nonsense"}),
    _ask("the default graph only", SELECT, **{"default-graph-uri": "null"}),
    _ask("the default graph by RDF4J's name", SELECT, **{"default-graph-uri": NIL}),
    _ask("FROM the default graph", f"SELECT ?s ?o FROM <{NIL}> {{ ?s <urn:ex:p> ?o }}"),
    _ask("FROM sesame:nil", "SELECT ?s ?o FROM sesame:nil { ?s <urn:ex:p> ?o }"),
    _ask("one graph as default", SELECT, **{"default-graph-uri": "urn:g"}),
    _ask("named graphs", "SELECT ?g ?s { GRAPH ?g { ?s <urn:ex:p> ?o } }", **{"named-graph-uri": "urn:h"}),
    _ask("FROM", "SELECT ?s FROM <urn:h> { ?s ?p ?o }"),
    _ask("GRAPH", "SELECT ?g ?s { GRAPH ?g { ?s ?p ?o } }"),
    _ask("limit and offset", "SELECT ?o { ?s <urn:ex:p> ?o FILTER(isNumeric(?o)) } ORDER BY ?o", limit="2", offset="1"),
    _ask("distinct", "SELECT ?p { ?s ?p ?o }", distinct="true"),
    _ask("inferred", SELECT, infer="true"),
    _ask("RDF4J's own prefixes", "SELECT ?o { ?s <urn:ex:p> ?o FILTER(datatype(?o) = xsd:integer) }"),
    _ask("a malformed query", "SELECT ?s { ?s"),
    _ask("an undeclared prefix", "SELECT ?s { ?s nobody:p ?o }"),
    _ask("another language", SELECT, queryLn="SeRQL-nothing"),
    _get("no query", "@", JSON),
    _send("a query as body", "POST", "@", QUERY, SELECT),
    _send("a query as form", "POST", "@", FORM, urlencode({"query": SELECT})),
    _send("a query of another type", "POST", "@", "text/plain", SELECT),
    _send("an update as query", "POST", "@", QUERY, "INSERT DATA { <urn:a> <urn:b> <urn:c> }"),
    # Updates
    _send("an update as body", "POST", "@/statements", UPDATE, "INSERT DATA { <urn:u> <urn:ex:u> 1 }"),
    _send(
        "an update as form",
        "POST",
        "@/statements",
        FORM,
        urlencode({"update": "INSERT DATA { GRAPH <urn:g> { <urn:u> <urn:ex:u> 2 } }"}),
    ),
    _send("a malformed update", "POST", "@/statements", UPDATE, "INSERT DATA { <urn:u>"),
    _send("an update within its time", "POST", "@/statements?timeout=30", UPDATE, "DROP SILENT GRAPH <urn:missing>"),
    _send("an empty update", "POST", "@/statements", UPDATE, ""),
    _send("a form without update", "POST", "@/statements", FORM, "x=y"),
    _send("DELETE WHERE a graph", "POST", "@/statements", UPDATE, "DELETE WHERE { GRAPH <urn:g> { <urn:u> ?p ?o } }"),
    _send(
        "DELETE and INSERT",
        "POST",
        "@/statements",
        UPDATE,
        "DELETE { ?s <urn:ex:u> ?o } INSERT { ?s <urn:ex:v> ?o } WHERE { ?s <urn:ex:u> ?o }",
    ),
    _get("after the updates", f"@/statements?subj={quote('<urn:u>')}", N_QUADS),
    _send(
        "DELETE DATA of what stands in a graph",
        "POST",
        "@/statements",
        UPDATE,
        "DELETE DATA { <urn:ex:d> <urn:ex:p> 4 }",
    ),
    _get("after DELETE DATA", f"@/statements?subj={quote('<urn:ex:d>')}", N_QUADS),
    _send("DROP of a graph", "POST", "@/statements", UPDATE, "DROP SILENT GRAPH <urn:h>"),
    _send(
        "an update of one graph",
        "POST",
        "@/statements?using-graph-uri=urn:g&insert-graph-uri=urn:i",
        UPDATE,
        "INSERT { ?s <urn:ex:w> ?o } WHERE { ?s <urn:ex:p> ?o }",
    ),
    _get("after it", f"@/statements?context={quote('<urn:i>')}", N_QUADS),
    _send(
        "an insertion into the graph of RDF4J's name",
        "POST",
        f"@/statements?insert-graph-uri={quote(NIL, safe='')}",
        UPDATE,
        "INSERT { ?s <urn:ex:x> 1 } WHERE { ?s <urn:ex:w> ?o }",
    ),
    _get("what it is there", f"@/statements?pred={quote('<urn:ex:x>')}", N_QUADS),
    _send("a removal from it", "POST", "@/statements", UPDATE, "DELETE WHERE { ?s <urn:ex:x> ?o }"),
    _send("DROP of a missing graph", "POST", "@/statements", UPDATE, "DROP GRAPH <urn:missing>"),
    _send("CLEAR of a graph", "POST", "@/statements", UPDATE, "CLEAR GRAPH <urn:i>"),
    # Namespaces
    _get("no namespaces", "@/namespaces", JSON),
    _send("set a namespace", "PUT", "@/namespaces/ex", "text/plain", "urn:ex:"),
    _get("a namespace", "@/namespaces/ex"),
    _get("namespaces", "@/namespaces", JSON),
    _get("an unknown namespace", "@/namespaces/nobody"),
    _send("an empty namespace", "PUT", "@/namespaces/ex", "text/plain", ""),
    RequestStep("remove a namespace", "DELETE", "@/namespaces/ex"),
    RequestStep("remove it again", "DELETE", "@/namespaces/ex"),
    RequestStep("remove all namespaces", "DELETE", "@/namespaces"),
    # Graphs
    _send("PUT a graph", "PUT", "@/rdf-graphs/service?graph=urn:put", TURTLE, "<urn:s> <urn:p> 1 , 2 ."),
    _send("POST to it", "POST", "@/rdf-graphs/service?graph=urn:put", TURTLE, "<urn:s> <urn:p> 3 ."),
    _get("GET it", "@/rdf-graphs/service?graph=urn:put", N_TRIPLES),
    _send("PUT it again", "PUT", "@/rdf-graphs/service?graph=urn:put", TURTLE, "<urn:s> <urn:p> 4 ."),
    _get("GET it again", "@/rdf-graphs/service?graph=urn:put", N_TRIPLES),
    RequestStep("HEAD of it", "HEAD", "@/rdf-graphs/service?graph=urn:put", headers={"Accept": N_TRIPLES}),
    RequestStep("DELETE it", "DELETE", "@/rdf-graphs/service?graph=urn:put"),
    _get("GET what is gone", "@/rdf-graphs/service?graph=urn:put", N_TRIPLES),
    _get("the default graph", "@/rdf-graphs/service?default", N_TRIPLES),
    _get("neither graph nor default", "@/rdf-graphs/service", N_TRIPLES),
    _get("rdf-graphs", "@/rdf-graphs", JSON),
    # Transactions
    RequestStep("begin", "POST", "@/transactions"),
    _send("ADD", "PUT", "@tx?action=ADD", TURTLE, "<urn:t> <urn:ex:t> 1 , 2 ."),
    _send("ADD to a graph", "PUT", f"@tx?action=ADD&context={G}", TURTLE, "<urn:t> <urn:ex:t> 3 ."),
    RequestStep("SIZE inside", "PUT", "@tx?action=SIZE"),
    _send("UPDATE inside", "PUT", "@tx?action=UPDATE", UPDATE, "INSERT DATA { <urn:t> <urn:ex:t> 4 }"),
    RequestStep(
        "QUERY inside",
        "PUT",
        "@tx?action=QUERY",
        "SELECT ?o { <urn:t> ?p ?o }",
        {"Content-Type": QUERY, "Accept": JSON},
    ),
    RequestStep("GET inside", "PUT", f"@tx?action=GET&subj={quote('<urn:t>')}", headers={"Accept": N_QUADS}),
    _ask("outside", "ASK { <urn:t> ?p ?o }"),
    _send("DELETE inside", "PUT", "@tx?action=DELETE", TURTLE, "<urn:t> <urn:ex:t> 2 ."),
    _send("ADD malformed", "PUT", "@tx?action=ADD", TURTLE, "<urn:t> "),
    RequestStep("PING", "POST", "@tx?action=PING"),
    RequestStep("an unknown action", "PUT", "@tx?action=NOTHING"),
    RequestStep("COMMIT", "PUT", "@tx?action=COMMIT"),
    _get("after the commit", f"@/statements?subj={quote('<urn:t>')}", N_QUADS),
    RequestStep("COMMIT again", "PUT", "@tx?action=COMMIT"),
    _send("begin at a level", "POST", "@/transactions", FORM, urlencode({ISOLATION: "SERIALIZABLE"})),
    _send("ADD to be undone", "PUT", "@tx?action=ADD", TURTLE, "<urn:undone> <urn:p> 1 ."),
    RequestStep("roll back", "DELETE", "@tx"),
    _ask("after the roll-back", "ASK { <urn:undone> ?p ?o }"),
    RequestStep("an unknown transaction", "PUT", "@/transactions/3f2504e0-4f89-11d3-9a0c-0305e82c3301?action=COMMIT"),
    RequestStep("no transaction's name", "PUT", "@/transactions/nonsense?action=COMMIT"),
    # Removals
    RequestStep("remove by pattern", "DELETE", f"@/statements?subj={quote('<urn:ex:a>')}&pred={quote('<urn:ex:q>')}"),
    _get("after the removal", "@/size"),
    _send("replace a graph", "PUT", f"@/statements?context={G}", TURTLE, "<urn:new> <urn:p> 1 ."),
    _get("the graph replaced", f"@/statements?context={G}", N_QUADS),
    RequestStep("remove a graph", "DELETE", f"@/statements?context={G}"),
    _send("replace all", "PUT", "@/statements", TURTLE, "<urn:new> <urn:p> 1 ."),
    _get("all replaced", "@/statements", N_QUADS),
    RequestStep("remove all", "DELETE", "@/statements"),
    *_in_each_form(),
    *_NODES,
    *_XML,
    RequestStep("remove all of that", "DELETE", "@/statements"),
    *map(_of_body, BODY_STEPS),
    *_REPOSITORIES,
    _get("size at the end", "@/size"),
)
