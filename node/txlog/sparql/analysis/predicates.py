"""The predicates that an update or a query may read: those of all its triple patterns and templates.

A parser of the grammar of patterns, as far as predicates need it. A construct that it does not know, or that may match
a triple of any predicate (a variable, ``!``, a path of length zero, a graph's existence), counts as *everything*. That
is always correct; its only cost is more conflicts with transactions of others.

Source: SPARQL 1.1 Query Language, section 19.8 (productions 53 to 109).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.sparql.rewrite.token_rewriter import skip_trivia
from txlog.sparql.terms import DEFAULT_PREFIXES
from txlog.sparql.tokens import END, Token, TokenCursor, tokens

_RDF: Final = DEFAULT_PREFIXES["rdf"]
_TYPE: Final = f"<{_RDF}type>"
_LIST: Final = (f"<{_RDF}first>", f"<{_RDF}rest>")
_MODIFY_KEYWORDS: Final = ("WITH", "INSERT", "DELETE")
_TERMS: Final = ("VARIABLE", "IRI", "BLANK", "STRING", "NUMBER")


class UnknownPredicates(Exception):
    """No set of predicates covers what this update or query may read."""


def predicates_of(operation: str) -> frozenset[str]:
    """The predicates of one normalised operation (full IRIs), as ``<iri>``. Raises :class:`UnknownPredicates` where
    they are not known."""
    reader = _PredicateCollector(skip_trivia(tokens(operation)))
    reader.operation()
    return frozenset(reader.predicates)


def predicates_of_update(text: str) -> frozenset[str]:
    """The same for several normalised operations, data operations included."""
    found: set[str] = set()
    operation: list[Token] = []
    depth = 0
    for token in (*skip_trivia(tokens(text)), _END_OF_OPERATION):
        if token.kind == "MARK":
            depth += {"{": 1, "}": -1}.get(token.text, 0)
            if token.text == ";" and not depth:
                reader = _PredicateCollector(operation)
                if operation:
                    reader.operation()
                found |= reader.predicates
                operation = []
                continue
        operation.append(token)
    return frozenset(found)


def predicates_of_query(toks: Sequence[Token]) -> frozenset[str]:
    """The same for a query after its prologue: significant tokens, full IRIs."""
    reader = _PredicateCollector(toks)
    reader.query()
    return frozenset(reader.predicates)


def is_single_pattern_delete(operation: str) -> bool:
    """Whether a normalised operation is ``DELETE WHERE`` with one triple pattern, in a ``GRAPH`` or not."""
    reader = _PredicateCollector(skip_trivia(tokens(operation)))
    try:
        return reader.one_pattern()
    except UnknownPredicates:
        return False


_END_OF_OPERATION: Final = Token("MARK", ";", -1)


class _PredicateCollector(TokenCursor):
    """Each method parses the construct that begins at an index, and returns the index after it."""

    def __init__(self, toks: Sequence[Token]) -> None:
        super().__init__(toks)
        self.predicates: set[str] = set()

    def _expect(self, at: int, mark: str) -> int:
        if self._mark_at(at) != mark:
            raise UnknownPredicates
        return at + 1

    def operation(self) -> None:
        if self._word_at(0) not in _MODIFY_KEYWORDS:
            raise UnknownPredicates
        at = 0
        while at < len(self._toks):
            if self._mark_at(at) == "{":
                at = self._group(at)
            elif self._word_at(at) in ("WITH", "INSERT", "DELETE", "DATA", "USING", "NAMED", "WHERE") or (
                self._token_at(at).kind == "IRI" and self._word_at(at - 1) in ("WITH", "USING", "NAMED")
            ):
                at += 1
            else:
                raise UnknownPredicates

    def query(self) -> None:
        form, at = self._word_at(0), 1
        if form not in ("SELECT", "ASK", "CONSTRUCT"):
            raise UnknownPredicates  # DESCRIBE: whatever is said of a term
        if form == "CONSTRUCT" and self._mark_at(at) == "{":
            while self._mark_at(at) != "}":  # what it makes, it does not read; a template has no braces in it
                if self._token_at(at) is END:
                    raise UnknownPredicates
                at += 1
            at += 1
        at = self._before_group(at)
        at = self._group(at)
        while at < len(self._toks):
            if self._mark_at(at) in ("{", "}"):
                raise UnknownPredicates
            at = self._modifier(at)

    def one_pattern(self) -> bool:
        if [self._word_at(0), self._word_at(1)] != ["DELETE", "WHERE"]:
            return False
        at = self._expect(2, "{")
        graph = self._word_at(at) == "GRAPH"
        if graph:
            at = self._expect(at + 2, "{")
        at = self._node(at)
        if self._token_at(at).kind not in ("VARIABLE", "IRI") and self._token_at(at).text != "a":
            return False
        at = self._node(at + 1)
        at += self._mark_at(at) == "."
        for _ in range(1 + graph):
            at = self._expect(at, "}")
        return at == len(self._toks)

    # Groups

    def _group(self, at: int) -> int:
        at = self._expect(at, "{")
        while True:
            mark, word = self._mark_at(at), self._word_at(at)
            if mark == "}":
                return at + 1
            if mark == "{":
                at = self._group(at)
            elif mark == "." or word in ("UNION", "OPTIONAL", "MINUS"):
                at += 1
            elif word == "GRAPH":
                # Without a triple in it, GRAPH ?v is every graph that there is, and GRAPH <iri> whether that one is
                # there. (A template without one writes nothing, and is not worth telling apart.)
                if self._token_at(at + 1).kind not in ("IRI", "VARIABLE") or (
                    self._token_at(at + 3).kind not in _TERMS and self._mark_at(at + 3) not in ("[", "(")
                ):
                    raise UnknownPredicates
                at = self._group(at + 2)
            elif word == "FILTER":
                at = self._constraint(at + 1)
            elif word == "BIND":
                at = self._expression(at + 1)
            elif word == "VALUES":
                at = self._values(at + 1)
            elif word == "SELECT":
                at = self._select(at + 1)
            else:
                at = self._triples(at)

    def _constraint(self, at: int) -> int:
        while self._word_at(at) in ("NOT", "EXISTS"):
            at += 1
        if self._mark_at(at) == "{":
            return self._group(at)
        if self._mark_at(at) != "(":
            at += 1  # the name of a function
        return self._expression(at)

    def _expression(self, at: int) -> int:
        """From its opening parenthesis to the one that closes it; groups inside are those of EXISTS."""
        at, depth = self._expect(at, "("), 1
        while depth:
            mark = self._mark_at(at)
            if self._token_at(at) is END or mark == "}":
                raise UnknownPredicates
            if mark == "{":
                at = self._group(at)
                continue
            depth += {"(": 1, ")": -1}.get(mark, 0)
            at += 1
        return at

    def _values(self, at: int) -> int:
        while self._mark_at(at) != "}":
            if self._token_at(at) is END:
                raise UnknownPredicates
            at += 1
        return at + 1

    def _select(self, at: int) -> int:
        """A sub-select, up to the brace that ends the group around it."""
        at = self._group(self._before_group(at))
        while self._mark_at(at) != "}":
            if self._token_at(at) is END or self._mark_at(at) == "{":
                raise UnknownPredicates
            at = self._modifier(at)
        return at

    def _before_group(self, at: int) -> int:
        """The part before the group of a query: its projection, its graphs."""
        while self._mark_at(at) != "{":
            if self._token_at(at) is END or self._mark_at(at) == "}":
                raise UnknownPredicates
            at = self._expression(at) if self._mark_at(at) == "(" else at + 1
        return at

    def _modifier(self, at: int) -> int:
        """A token, or a whole bracket, of the part after the group of a query."""
        if self._word_at(at) == "VALUES":
            return self._values(at + 1)
        return self._expression(at) if self._mark_at(at) == "(" else at + 1

    # Triples

    def _triples(self, at: int) -> int:
        bracket = self._mark_at(at) in ("[", "(")
        at = self._node(at)
        if bracket and not self._is_verb(at):
            return at  # [ <p> 1 ] . says all by itself
        return self._properties(at)

    def _node(self, at: int) -> int:
        token = self._token_at(at)
        if token.kind in ("VARIABLE", "IRI", "BLANK", "NUMBER"):
            return at + 1
        if token.kind == "STRING":
            if self._token_at(at + 1).kind == "LANGUAGE":
                return at + 2
            return at + 3 if self._mark_at(at + 1) == "^^" else at + 1
        if self._word_at(at) in ("TRUE", "FALSE"):
            return at + 1
        mark = self._mark_at(at)
        if mark in ("+", "-") and self._token_at(at + 1).kind == "NUMBER":
            return at + 2
        if mark == "[":
            if self._mark_at(at + 1) == "]":
                return at + 2
            return self._expect(self._properties(at + 1), "]")
        if mark == "(":
            at += 1
            while self._mark_at(at) != ")":
                self.predicates.update(_LIST)
                at = self._node(at)
            return at + 1
        if mark == "<<(":  # what it says is a term, and read of no graph
            at = self._node(at + 1)
            at = at + 1 if self._token_at(at).text == "a" else self._node(at)
            return self._expect(self._node(at), ")>>")
        raise UnknownPredicates

    def _is_verb(self, at: int) -> bool:
        token = self._token_at(at)
        return token.kind in ("VARIABLE", "IRI") or token.text == "a" or self._mark_at(at) in ("^", "!", "(")

    def _properties(self, at: int) -> int:
        while True:
            at = self._node(self._path(at))
            while self._mark_at(at) == ",":
                at = self._node(at + 1)
            if self._mark_at(at) != ";":
                return at
            while self._mark_at(at) == ";":
                at += 1
            if not self._is_verb(at):
                return at

    def _path(self, at: int) -> int:
        """A verb. Steps follow one another with ``/`` or ``|``."""
        while True:
            if self._mark_at(at) == "^":
                at += 1
            token = self._token_at(at)
            if token.kind == "IRI":
                self.predicates.add(token.text)
                at += 1
            elif token.kind == "WORD" and token.text == "a":
                self.predicates.add(_TYPE)
                at += 1
            elif self._mark_at(at) == "(":
                at = self._expect(self._path(at + 1), ")")
            else:
                raise UnknownPredicates  # a variable, or a negated set
            if self._mark_at(at) in ("*", "?"):
                raise UnknownPredicates  # of length zero: every term there is
            if self._mark_at(at) == "+":
                # `<p> +1` is an object with a sign; `<p>+ ?o` a path.
                at += self._token_at(at + 1).kind != "NUMBER"
            if self._mark_at(at) not in ("/", "|"):
                return at
            at += 1
