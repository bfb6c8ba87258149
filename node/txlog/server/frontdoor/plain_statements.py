"""Recognises plain reads of statements: ``GET`` of all statements of a repository, or of those of a pattern.

What is not recognised is no error: :mod:`.read_handler` answers it, or refuses it.
"""

from __future__ import annotations

from typing import Final

from txlog.model.errors import TxLogError
from txlog.server.frontdoor.plain_heads import RequestHead
from txlog.server.frontdoor.plain_queries import (
    PlainRead,
    PlainReadHead,
    StatementParameters,
    parse_parameters,
    read_head,
)
from txlog.server.frontdoor.query_request import ACCEPT_CHARS_MAX
from txlog.server.frontdoor.request_parameters import TERM_NAMES, parse_contexts, parse_term
from txlog.server.frontdoor.result_formats import RDF_FORMATS, find_format
from txlog.server.frontdoor.statement_lines import StatementPattern
from txlog.server.frontdoor.statement_reads import read_of_pattern
from txlog.sparql.rewrite.query_template import split_template

_CONTEXT: Final = "context"


def recognise_statements(head: RequestHead) -> PlainReadHead | None:
    """The read of a head with the path of a repository's statements; None if it is not a plain one."""
    if head.content_length or b"prefer" in head.headers:
        return None
    given = parse_parameters(head.target.partition(b"?")[2])
    fields = dict(given)
    contexts = [value for name, value in given if name == _CONTEXT]
    if len(fields) - (_CONTEXT in fields) + len(contexts) != len(given):
        return None  # a name is there twice
    accept = fields.get("Accept") or head.headers.get(b"accept") or "*/*"
    subject, predicate, value = (fields.get(name, "") for name in TERM_NAMES)
    if len(accept) > ACCEPT_CHARS_MAX or value.startswith("<<"):
        return None
    try:
        form = find_format(accept, tuple(RDF_FORMATS))
        graphs = parse_contexts(contexts) if contexts else None
    except TxLogError:
        return None
    asked = StatementParameters((subject, predicate, value), None if graphs is None else tuple(graphs), form)
    return read_head(head, given, accept, statements=asked)


def plain_statements(asked: StatementParameters, *, as_written: bool) -> PlainRead | None:
    """The read for a worker; None if a term is wrong. ``as_written``: as in :func:`~.request_parameters.parse_term`."""
    try:
        subject, predicate, value = (
            parse_term(text, name, as_written=as_written) if text else None
            for name, text in zip(TERM_NAMES, asked.terms, strict=True)
        )
    except TxLogError:
        return None
    build, headers, convert = read_of_pattern(StatementPattern(subject, predicate, value, asked.graphs), asked.form)
    if isinstance(build, StatementPattern):
        return PlainRead(build, (), headers, convert)
    template, iris = split_template(build.text)
    return PlainRead(build._replace(text=template), tuple(iri.encode() for iri in iris), headers, convert)
