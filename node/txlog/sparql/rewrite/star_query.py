"""Queries of clients that speak RDF-star, for stores of RDF 1.2.

Both write ``<<s p o>>``. In SPARQL-star it is the triple itself, in SPARQL 1.2 a node that reifies the triple. As an
object, in an expression and in VALUES the triple is a triple term, ``<<( s p o )>>``. As the subject of a pattern it
stays: what is said of a triple in RDF 1.2 is said of such a node. A graph whose subjects are triples cannot be made.

RDF4J's clients name their own formats of results (``application/x-sparqlstar-results+json``) in each request.
"""

from __future__ import annotations

from typing import Final

from txlog.model.errors import BadInput
from txlog.sparql.tokens import Edit, Token, apply_edits, significant_tokens
from txlog.sparql.triple_terms import SUBJECT_REFUSED

_STAR_RESULTS: Final = "x-sparqlstar-results"
_STAR_GRAPHS: Final = ("x-turtlestar", "x-trigstar")
_VERBS: Final = ("VARIABLE", "IRI", "PNAME")
_BEFORE_TERM: Final = frozenset((",", "(", "=", "!=", "*", "+", "?", "<<(", "&&", "||", "!"))


def speaks_star(accept: str) -> bool:
    """Whether a client with this Accept header means RDF-star by ``<<s p o>>``."""
    return _STAR_RESULTS in accept or any(media in accept for media in _STAR_GRAPHS)


def quoted_to_terms(query: str) -> str:
    """The query for a store of RDF 1.2. Raises :class:`BadInput` where it makes a graph with a triple as subject."""
    if "<<" not in query:
        return query
    toks = significant_tokens(query)
    edits, opened, braces = list[Edit](), list[bool](), ""
    for at, token in enumerate(toks):
        if token.kind == "MARK" and token.text in ("{", "}"):
            braces = _word_before(toks, at) if token.text == "{" else ""
        if token.kind != "MARK" or token.text not in ("<<", ">>"):
            continue
        if token.text == "<<":
            opened.append(braces == "VALUES" or _is_term(toks, at))
            if not opened[-1] and braces == "CONSTRUCT":
                raise BadInput(f"MALFORMED QUERY: {SUBJECT_REFUSED}")
            changed = "<<( "
        else:
            changed = " )>>"
        if opened and opened[-1]:
            edits.append((token.start, token.end, changed))
        if token.text == ">>" and opened:
            opened.pop()
    return apply_edits(query, edits)


def _is_term(toks: list[Token], at: int) -> bool:
    """Whether the quoted triple at ``at`` is an object or a value."""
    before = toks[at - 1] if at else toks[at]
    if before.kind == "MARK":
        return before.text in _BEFORE_TERM
    return before.kind in _VERBS or before.text == "a"


def _word_before(toks: list[Token], at: int) -> str:
    """The word before the brace at ``at``, and before the variables of a VALUES: neither a template nor a block of
    values holds braces."""
    before = at - 1
    while before >= 0 and (toks[before].kind == "VARIABLE" or toks[before].text in ("(", ")")):
        before -= 1
    return toks[before].text.upper() if before >= 0 and toks[before].kind == "WORD" else ""
