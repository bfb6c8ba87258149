"""``application/x-rdftransaction``: RDF4J's older way to send several changes as one transaction, in XML.

Source: RDF4J's ``TransactionReader`` (tags and their order); a document type declaration is refused.
A blank node is the one that its label names (``blank.py``), as in RDF4J: clients send nodes that they know.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from xml.parsers import expat

import pyoxigraph as ox

from txlog.model.errors import BadInput
from txlog.model.namespaces import NamespaceChange
from txlog.sparql.expansion_limit import check_expansion, limit_for
from txlog.sparql.language_tags import tagged_literal
from txlog.sparql.rdf_upload import prepare_rdf
from txlog.sparql.rewrite.bound_parameters import UpdateGraphs, apply_parameters
from txlog.sparql.skolem_iris import skolemise_term
from txlog.sparql.terms import refuse_system
from txlog.sparql.transaction_body import TransactionBody
from txlog.sparql.transaction_builder import concatenate, delete_matching, drop_graphs
from txlog.sparql.update_normaliser import prepare_update

DEPTH_MAX: Final = 8


@dataclass
class _XmlElement:
    name: str
    attributes: dict[str, str]
    pieces: list[str] = field(default_factory=list)
    children: list[_XmlElement] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def child(self, name: str) -> _XmlElement | None:
        return next((each for each in self.children if each.name == name), None)


class RdfTransaction(NamedTuple):
    """``prepared``: the changes of data; ``namespaces``: the changes of namespaces, in the order of the document."""

    prepared: TransactionBody
    namespaces: list[NamespaceChange]


def prepare_rdf_transaction(body: bytes, *, now: str, draw: Callable[[], int]) -> RdfTransaction:
    """All changes of data of a document as one transaction. Raises ``BadInput`` (``MALFORMED DATA``, with the reason),
    and ``TooLarge`` when it expands beyond the limit."""
    root = _parse(body)
    if root.name != "transaction":
        raise _malformed_data(f"<{root.name[:40]}> where <transaction> is expected")
    parts: list[TransactionBody] = []
    namespaces: list[NamespaceChange] = []
    size, limit = 0, limit_for(len(body))
    for each in root.children:
        if each.name in _NAMESPACES:
            namespaces.append(_namespace_change(each))
            continue
        parts.append(_operation(each, now, draw))
        size += len(parts[-1].payload)
        check_expansion(size, limit)
    return RdfTransaction(concatenate(parts), namespaces)


_NAMESPACES: Final = ("setNamespace", "removeNamespace", "clearNamespaces")


def _namespace_change(element: _XmlElement) -> NamespaceChange:
    if element.name == "clearNamespaces":
        return NamespaceChange(None, None)
    given = [element.attributes.get(name) for name in ("prefix", "name")]
    if element.name == "removeNamespace":
        given[1] = None
    if given[0] is None or (element.name == "setNamespace" and given[1] is None):
        raise _malformed_data(f"<{element.name}> needs a prefix, and setNamespace a name, as attributes")
    return NamespaceChange(*given)


def _malformed_data(why: str) -> BadInput:
    return BadInput(f"MALFORMED DATA: {why}")


def _parse(body: bytes) -> _XmlElement:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    top = _XmlElement("", {})
    stack = [top]

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(stack) > DEPTH_MAX:
            raise ValueError(f"<{name[:40]}> stands too deep")
        stack[-1].children.append(_XmlElement(name, attributes))
        stack.append(stack[-1].children[-1])

    def characters(text: str) -> None:
        stack[-1].pieces.append(text)

    def doctype(*_: object) -> None:
        raise ValueError("a document type declaration; send it without")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(body, True)
    except expat.ExpatError as wrong:
        raise _malformed_data(f"line {wrong.lineno}: {expat.ErrorString(wrong.code)}") from None
    except ValueError as wrong:
        raise _malformed_data(f"line {parser.CurrentLineNumber}: {wrong}") from None
    return top.children[0]


def _operation(element: _XmlElement, now: str, draw: Callable[[], int]) -> TransactionBody:
    name = element.name
    if name in ("add", "remove"):
        if len(element.children) < 3:
            raise _malformed_data(f"<{name}> needs subject, predicate and object")
        subject, predicate, value = (_term(each) for each in element.children[:3])
        graphs = _contexts(element)
        if name == "remove":
            if any(term is not None and term.startswith('"') for term in (subject, predicate)):
                raise _malformed_data("a literal is no subject and no predicate")
            return delete_matching(subject, predicate, value, graphs or None)
        if subject is None or predicate is None or value is None:
            raise _malformed_data("<add> needs three terms")
        line = f"{subject} {predicate} {value} .\n".encode()
        contexts = [graph or "null" for graph in graphs]
        return prepare_rdf(line, "application/n-triples", base=None, contexts=contexts, draw=draw)
    if name == "clear":
        return drop_graphs(_contexts(element) or None)
    if name == "sparql":
        return _update(element, now, draw)
    known = ", ".join(("add", "remove", "clear", "sparql", *_NAMESPACES))
    raise _malformed_data(f"<{name[:40]}> is no operation; there are {known}")


def _contexts(element: _XmlElement) -> list[str]:
    found = element.child("contexts")
    graphs = [] if found is None else [_term(each) or "" for each in found.children]
    if any(graph.startswith('"') for graph in graphs):
        raise _malformed_data("<contexts> has a literal; a graph is named by an IRI")
    return graphs


def _term(element: _XmlElement) -> str | None:
    """Canonical N-Triples; None for ``<null/>``."""
    text = element.text
    try:
        if element.attributes.get("encoding") == "base64":
            text = base64.b64decode(text, validate=True).decode()
        if element.name == "null":
            return None
        if element.name == "uri":
            refuse_system(text)
            return str(ox.NamedNode(text))
        if element.name == "bnode":
            return skolemise_term(str(ox.BlankNode(text)))
        if element.name == "literal":
            return _literal(text, element.attributes.get("xml:lang"), element.attributes.get("datatype"))
    except (ValueError, binascii.Error) as wrong:
        raise _malformed_data(f"<{element.name[:40]}> {text[:80]!r}: {wrong}") from None
    raise _malformed_data(f"<{element.name[:40]}> is no term")


def _literal(text: str, language: str | None, datatype: str | None) -> str:
    if language:
        return str(tagged_literal(text, language))
    return str(ox.Literal(text, datatype=ox.NamedNode(datatype)) if datatype else ox.Literal(text))


def _update(element: _XmlElement, now: str, draw: Callable[[], int]) -> TransactionBody:
    text = element.child("updateString")
    if text is None:
        raise _malformed_data("<sparql> needs an <updateString>")
    bindings: dict[str, str] = {}
    for each in getattr(element.child("bindings"), "children", ()):
        kind = each.name.removeprefix("binding_")
        value = _term(_XmlElement(kind, {**each.attributes, **_language(each)}, each.pieces))
        if value is None:
            raise _malformed_data("a binding is a term")
        bindings[each.attributes.get("name", "")] = value
    graphs = UpdateGraphs(*(_graphs(element.child("dataset"), name) for name in _GRAPHS))
    update = apply_parameters(text.text, bindings, graphs) if bindings or graphs else text.text
    return prepare_update(update, base=element.attributes.get("baseURI"), now=now, draw=draw)


_GRAPHS: Final = ("defaultGraphs", "namedGraphs", "defaultRemoveGraphs", "defaultInsertGraph")


def _language(each: _XmlElement) -> dict[str, str]:
    attributes = {"xml:lang": each.attributes.get("language"), "datatype": each.attributes.get("dataType")}
    return {name: value for name, value in attributes.items() if value}


def _graphs(dataset: _XmlElement | None, name: str) -> Sequence[str]:
    found = dataset.child(name) if dataset is not None else None
    if found is None:
        return ()
    texts = [each.text.strip() for each in found.children] or [found.text.strip()]
    for text in texts:
        refuse_system(text)
        try:
            ox.NamedNode(text or "x:empty")
        except ValueError as wrong:
            raise _malformed_data(f"<{name}> {text[:80]!r}: {wrong}") from None
    return [text for text in texts if text]
