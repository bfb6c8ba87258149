"""What all handlers of a repository share: its paths, and terms and graphs as parameters."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import pyoxigraph

from txlog.http.router import Handler, Request, Route
from txlog.http.write_options import WriteOptions, write_options_of
from txlog.model.errors import BadInput
from txlog.runtime.master_context import MasterContext
from txlog.sparql import check_supported_terms
from txlog.sparql.skolem_iris import label_to_iri, skolemise_kept_lines, skolemise_term
from txlog.sparql.terms import refuse_system
from txlog.sparql.triple_terms import parse_star_term
from txlog.workers.canonical_literals import canonical_lines, canonical_literal

CACHED_TERMS_MAX: Final = 1024
"""Terms of patterns that are kept: clients name the same predicates again and again."""
CACHED_TERM_CHARS: Final = 512
PATH_PREFIXES: Final = ("", "/rdf4j-server")
"""Both paths where an RDF4J server may be."""
REPOSITORY_PATH: Final = "/repositories/{id}"
TERM_NAMES: Final = ("subj", "pred", "obj")
_TERM_TEMPLATES = {"subj": "{} <x:p> <x:o> .", "pred": "<x:s> {} <x:o> .", "obj": "<x:s> <x:p> {} ."}
_NOT_IN_IRI = re.compile(r'[\x00-\x20<>"{}|^`\\]')


def draw_blank_node_seed() -> int:
    """128 random bits: the prefix of the blank node labels of one body."""
    return secrets.randbits(128)


def repository_routes(rest: str, **handlers: Handler) -> list[Route]:
    """The routes for ``rest`` after ``/repositories/{id}``, by method. The front door finds the repository by its name:
    a handler serves the one of its log, and gets no ``id``."""
    return [Route(method, f"{REPOSITORY_PATH}{rest}", handler) for method, handler in handlers.items()]


def read_write_options(site: MasterContext, request: Request) -> WriteOptions:
    """The options of a write, over the defaults of the cluster. :class:`BadInput` names a wrong header, or a level that
    no transaction of this cluster reaches."""
    asked = write_options_of(request, site.config.durability, site.config.write_timeout_s)
    site.transactions.check_level(asked.level)
    return asked


def parse_term(text: str, name: str, *, as_written: bool) -> str:
    """A term in N-Triples (``name``: ``subj``, ``pred`` or ``obj``) as canonical text; :class:`BadInput` for any other.
    A literal is in the form in which stores hold it, so that a client finds it by the form that it wrote.
    ``as_written``: that is the form which it has (:attr:`~txlog.runtime.literal_form.LiteralForm.keeps`)."""
    parse = _parse_term_cached if len(text) <= CACHED_TERM_CHARS else _parse_term
    return parse(text, name, as_written)


def _parse_term(text: str, name: str, as_written: bool) -> str:
    if name == "obj" and text.startswith("<<"):
        return _triple_term_parameter(text)
    try:
        [found] = pyoxigraph.parse(_TERM_TEMPLATES[name].format(text), pyoxigraph.RdfFormat.N_TRIPLES)
    except (SyntaxError, ValueError):
        raise BadInput(f"{name}={text[:80]}: a term in N-Triples, such as <http://example.org/a>") from None
    term = str({"subj": found.subject, "pred": found.predicate, "obj": found.object}[name])
    if term.startswith("<"):
        refuse_system(term[1:-1])
    if not term.startswith('"'):
        return skolemise_term(term)
    return term if as_written else canonical_literal(term.encode()).decode()


_parse_term_cached = lru_cache(CACHED_TERMS_MAX)(_parse_term)


def pattern_terms(request: Request, *, as_written: bool) -> tuple[str | None, str | None, str | None]:
    """The terms ``subj``, ``pred`` and ``obj``, each as :func:`parse_term` gives it; None where it is not given."""
    subject, predicate, value = (
        parse_term(text, name, as_written=as_written) if (text := request.query.get(name)) else None
        for name in TERM_NAMES
    )
    return subject, predicate, value


def _triple_term_parameter(text: str) -> str:
    """A triple term, as RDF 1.2 or RDF4J writes it, in the form in which stores hold it."""
    term = parse_star_term(text.encode())
    if term is None:
        raise BadInput(
            f'obj={text[:80]}: a triple term, such as <<( <http://example.org/a> <http://example.org/p> "o" )>>'
        )
    line = b"<x:s> <x:p> <<( %s )>> ." % str(term).encode()
    check_supported_terms(line)
    return canonical_lines(skolemise_kept_lines(line))[len(b"<x:s> <x:p> ") : -len(b" .")].decode()


def parse_graph_iri(text: str, name: str) -> str:
    """A graph's bare IRI, given with or without brackets. BadInput if it is no IRI, SystemGraphNamed if it is one of
    TxLog's system graphs."""
    bare = text[1:-1] if text.startswith("<") and text.endswith(">") else text
    refuse_system(bare)
    try:
        if _NOT_IN_IRI.search(bare):
            raise ValueError
        return pyoxigraph.NamedNode(bare).value
    except ValueError:
        raise BadInput(f"{name}={text[:80]}: an absolute IRI, such as http://example.org/graph") from None


def context_parameters(request: Request) -> list[str] | None:
    """Graphs as ``<iri>``, "" for the default graph (``null``); None if the request names none."""
    given = request.query.getall("context", None)
    return None if given is None else parse_contexts(given)


def parse_contexts(given: Sequence[str]) -> list[str]:
    """The graphs that the values of ``context`` name together; :class:`BadInput` if one names none."""
    graphs: list[str] = []
    for text in (part for one in given for part in _split_contexts(one)):
        if text == "null":
            graphs.append("")
        elif text.startswith("_:"):
            graphs.append(_blank_node_graph(text))
        elif text.startswith("<") and text.endswith(">"):
            graphs.append(f"<{parse_graph_iri(text, 'context')}>")
        else:
            raise BadInput(f"context={text[:80]}: an IRI in <>, a blank node, or null")
    return graphs


def _blank_node_graph(text: str) -> str:
    try:
        return f"<{label_to_iri(pyoxigraph.BlankNode(text[2:]).value)}>"
    except ValueError:
        raise BadInput(f"context={text[:80]}: this is no label of a blank node") from None


def _split_contexts(text: str) -> list[str]:
    """Splits several contexts: rdflib joins them with commas, and an IRI may itself contain commas."""
    return re.findall(r"<[^>]*>|[^,]+", text)
