"""Rewrites the tokens of a query, or of one operation of an update, in one pass.

The rewriter tracks its context (template, pattern, expression, data), because the same tokens have different meanings
there. It writes the text again: full IRIs, ``NOW()`` as a constant, no variable graph that could match a system graph.
It refuses by name what cannot have the same result on every worker. Oxigraph's parser checks the syntax afterwards;
the rewriter refuses only what that parser is too lenient about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, NoReturn

from txlog.model.errors import NotDeterministic
from txlog.sparql.prologue import Prologue, SourceMappedText
from txlog.sparql.random_functions import RANDOM_FUNCTIONS, random_constant
from txlog.sparql.terms import (
    ABSOLUTE,
    DEFAULT_PREFIXES,
    NOT_IN_IRI,
    SYSTEM_GRAPHS,
    string_text,
    string_token,
)
from txlog.sparql.tokens import Token, bad_token_error, malformed_query
from txlog.sparql.triple_terms import FUNCTIONS

MAX_DEPTH: Final = 64
"""Nested brackets of any kind. Oxigraph's parser is recursive: about 700 end the process that parses."""
MAX_CHAIN: Final = 500
"""Groups, binds and binary operators in one operation, for the same reason: about 1000 end it."""
NO_VALUE: Final = 'COALESCE(ABS(""))'
"""An error in every engine that ends only its expression. ``1/0`` ends the whole request in Virtuoso."""
_XSD: Final = DEFAULT_PREFIXES["xsd"]
_TERMS: Final = frozenset(("VARIABLE", "IRI", "PNAME", "BLANK", "STRING", "NUMBER"))
_VERBS: Final = frozenset(("VARIABLE", "IRI", "PNAME"))
_CHAIN_WORDS: Final = frozenset(("BIND", "FILTER", "OPTIONAL", "UNION", "MINUS", "GRAPH", "EXISTS", "SELECT"))
_CHAIN_MARKS: Final = frozenset(("||", "&&", "+", "-", "*", "/", "|", "!"))
_REIFIERS: Final = frozenset(("<<", ">>", "{|", "|}", "~"))
_CLOSES: Final = {"{": "}", "(": ")", "[": "]"}
_AGGREGATE_BARRIERS: Final = ("OPTIONAL", "MINUS", "EXISTS")
_BEFORE_JOINED: Final = frozenset(("{", "}", ".", ")", "]"))

_NON_DETERMINISTIC: Final = {
    "RAND": "every worker draws another number",
    "UUID": "every worker draws another name",
    "STRUUID": "every worker draws another name",
    "BNODE": "every worker makes another blank node; build an IRI instead",
    "SERVICE": "the other endpoint may answer differently to each worker; query it first and send the result",
    "LOAD": "the document may change between the workers; send it as an upload",
    "SAMPLE": "workers choose different members; use MIN or MAX",
    "GROUP_CONCAT": "workers join the members in different orders",
    "LIMIT": "workers keep different solutions, also after ORDER BY where some are equal",
    "OFFSET": "workers pass over different solutions, also after ORDER BY where some are equal",
}
_NEVER_ALLOWED: Final = ("SERVICE", "LOAD")
"""Not evaluated once either: they send requests to other addresses."""
_SPARQL_KEYWORDS: Final = frozenset(
    word
    for line in (
        "A ABS ADD ALL AS ASC ASK AVG BASE BIND BNODE BOUND BY CEIL CLEAR COALESCE CONCAT CONSTRUCT CONTAINS",
        "COPY COUNT CREATE DATA DATATYPE DAY DEFAULT DELETE DESC DESCRIBE DISTINCT DROP ENCODE_FOR_URI EXISTS",
        "FALSE FILTER FLOOR FROM GRAPH GROUP GROUP_CONCAT HAVING HOURS IF IN INSERT INTO IRI ISBLANK ISIRI",
        "ISLITERAL ISNUMERIC ISURI LANG LANGMATCHES LCASE LIMIT LOAD MAX MD5 MIN MINUS MINUTES MONTH MOVE",
        "NAMED NOT NOW OFFSET OPTIONAL ORDER PREFIX RAND REDUCED REGEX REPLACE ROUND SAMETERM SAMPLE SECONDS",
        "SELECT SEPARATOR SERVICE SHA1 SHA256 SHA384 SHA512 SILENT STR STRAFTER STRBEFORE STRDT STRENDS",
        "STRLANG STRLEN STRSTARTS STRUUID SUBSTR SUM TIMEZONE TO TRUE TZ UCASE UNDEF UNION URI USING UUID",
        "VALUES WHERE WITH YEAR",
    )
    for word in line.split()
)
# A word outside this list may be two joined words (Oxigraph reads FILTERRAND() as FILTER RAND()), or a word that only
# some workers know.

TokenContext = Literal["top", "template", "erase", "pattern", "quads", "data", "expression", "collection"]
_CONTEXT_AFTER: Final[dict[str, TokenContext]] = {
    "INSERT": "template",
    "DELETE": "erase",
    "WHERE": "pattern",
    "VALUES": "data",
}


def begins_with_triple(toks: Sequence[Token], at: int) -> bool:
    """Whether a group whose first significant token is ``toks[at]`` begins with a plain triple, so that it has no
    solution in an empty graph. (Not the reverse: after ``False`` a solution is possible, not certain.)"""
    if at + 2 >= len(toks):
        return False
    first, verb, third = toks[at : at + 3]
    return (
        first.kind in _TERMS
        and (verb.kind in _VERBS or (verb.kind == "WORD" and verb.text == "a"))
        and third.kind in _TERMS
    )


def exclusion_filter(variable: str) -> str:
    """The filter at the end of a group that excludes solutions with a system graph as ``?v``. (Oxigraph leaves ``?v``
    unbound where nothing in the group of ``GRAPH ?v`` reads a graph, for instance around another GRAPH. Such a solution
    stays.)"""
    return f'FILTER(COALESCE(!STRSTARTS(STR({variable}),"{SYSTEM_GRAPHS}"),true))'


class _ActiveGraph(NamedTuple):
    """The ``GRAPH ?v`` around a token."""

    variable: str
    """Empty where the variable is not visible: in a SELECT that does not project it."""
    may_be_empty_graph: bool
    """Whether the variable may be bound to a graph without quads there."""


class _BracketFrame(NamedTuple):
    """The state to restore when an open bracket closes."""

    close: str
    context: TokenContext
    in_clause: bool
    opened_at: int
    """The index in the output at which its contents begin."""
    filters: dict[str, str] | None
    """For a group that can hold filters: each variable that must be no system graph, with its filter."""
    is_guarded: bool
    graph: _ActiveGraph | None


class TokenRewriter:
    """Rewrites tokens. ``pinned`` is the text for ``NOW()``. Without it the tokens are those of a query, which may use
    any function and keeps its names, spaces and comments. ``once``: the operation is evaluated once, so that it may use
    nearly any function, too. ``draw``: returns 128 random bits, where the operation has one solution at most. Then a
    constant replaces a random function."""

    def __init__(
        self,
        source: str,
        names: Prologue,
        pinned: str | None,
        *,
        once: bool = False,
        draw: Callable[[], int] | None = None,
    ) -> None:
        self.source = source
        self.prologue = names
        self.out = SourceMappedText()
        self.filter_count = 0
        self.unnamed_selects: list[int] = []
        """Indices of the SELECTs inside a ``GRAPH ?v`` that do not project ``?v``."""
        self._update = pinned is not None
        self._now_literal = pinned or ""
        self._evaluated_once = once
        self._draw = draw
        self._blank_nodes: dict[str, str] = {}
        self._chain_length = 0
        self._toks: Sequence[Token] = ()
        self._stack: list[_BracketFrame] = []
        self._context: TokenContext = "top"
        self._next_context: TokenContext = "pattern"
        self._in_clause = False
        """Between SELECT, BY or HAVING and the group after it: every parenthesis there holds an expression."""
        self._graph: _ActiveGraph | None = None

    def run(self, toks: Sequence[Token], place: TokenContext) -> None:
        """Rewrite ``toks`` (without spaces), beginning in the context ``place``: ``top`` of an operation or a query, or
        inside of a group."""
        out, source, update = self.out, self.source, self._update
        self._toks, self._context = toks, place
        at, total = 0, len(toks)
        ended = toks[0].start if toks else 0
        while at < total:
            token = toks[at]
            kind, text, start = token
            if start > ended:
                out.append((" " if update else source[ended:start], ended))
            if kind == "MARK":
                at = self._write_mark(at, token)
            elif kind == "WORD":
                at = self._write_word(at, token)
            elif kind in ("IRI", "PNAME"):
                at = self._write_iri(at, token)
            elif kind == "ERROR":
                raise bad_token_error(source, token)
            elif kind == "BLANK" and self._context == "template" and not self._evaluated_once:
                out.append((self._blank_node_iri(text), start))
                at += 1
            else:
                out.append(
                    (self._format_string(token) if kind == "STRING" and update and "\\" in text else text, start)
                )
                at += 1
            ended = toks[at - 1].end
        if self._stack:
            raise malformed_query(source, len(source), f"{self._stack[-1].close} is missing at the end")

    # -- each method writes one token and returns the index of the next one

    def _write_mark(self, at: int, token: Token) -> int:
        text, start = token.text, token.start
        if text in _CLOSES:
            joined = text != "{" or self._is_joined(at)
            place = self._group_context(token) if text == "{" else self._bracket_context(at, token)
            self.out.append((text, start))
            self._push_bracket(token, place, clause=self._in_clause and text != "{", filters=not joined)
            if text == "{" and place == "pattern":
                self._enter_group(at, joined=joined)
            return at + 1
        if text in ("}", ")", "]"):
            if not self._stack or self._stack[-1].close != text:
                raise malformed_query(self.source, start, f"{text} closes nothing")
            frame = self._stack.pop()
            self._context, self._in_clause, self._graph = frame.context, frame.in_clause, frame.graph
            if frame.is_guarded:
                self._guard_iri(frame.opened_at, token)
            if frame.filters:
                gap = "" if self.out[-1][0][-1:].isspace() else " "
                self.out.append((f"{gap}{' '.join(frame.filters.values())} ", start))
            self.out.append((text, start))
            return at + 1
        if text in _CHAIN_MARKS and self._context != "data":
            self._count_chain(token)
        if text in _REIFIERS and self._update:
            raise malformed_query(self.source, start, f"{text}: a reifier that is not as SPARQL 1.2 writes it")
        self.out.append((text, start))
        return at + 1

    def _write_word(self, at: int, token: Token) -> int:
        text, start = token.text, token.start
        word = text.upper()
        if word in _CHAIN_WORDS:
            self._count_chain(token)
        if self._update:
            if word not in _SPARQL_KEYWORDS and word not in FUNCTIONS:
                raise malformed_query(self.source, start, f"{text} is no word of SPARQL 1.1")
            if word in _NON_DETERMINISTIC:
                return self._write_non_deterministic(at, token, word)
            if word == "REDUCED":
                # REDUCED may remove any number of duplicates; DISTINCT, which removes all, is one valid result.
                self.out.append(("DISTINCT", start))
                return at + 1
            if word == "NOW" and self._is_mark(at + 1, "(") and self._is_mark(at + 2, ")"):
                self.out.append((self._now_literal, start))
                return at + 3
            if word in ("IRI", "URI") and self._is_mark(at + 1, "("):
                return self._write_computed_iri(at, token)
        elif word != "GRAPH" and word.endswith("GRAPH"):
            # Oxigraph needs no space between words: `trueGRAPH ?g {}`.
            raise malformed_query(self.source, start, f"{text} is no word of SPARQL")
        if word in ("BY", "HAVING") or word.startswith("SELECT"):  # SELECTDISTINCT is two words to Oxigraph
            self._in_clause = True
            if word.startswith("SELECT") and self._graph is not None and self._context == "pattern":
                self._enter_select(at, self._graph)
        elif word in ("WHERE", "FROM", "VALUES"):
            self._in_clause = False
        if word == "VALUES" or self._context == "top":
            self._next_context = _CONTEXT_AFTER.get(word, self._next_context)
        elif word == "GRAPH" and self._context == "pattern" and may_match_without_triple(self._toks, at):
            self._add_exclusion_filter(self._toks[at + 1].text)
        self.out.append((text, start))
        return at + 1

    def _write_iri(self, at: int, token: Token) -> int:
        full = self.prologue.expand(self.source, token, lenient=not self._update)
        if not self._update:
            self.out.append((token.text, token.start))
            return at + 1
        if self._is_mark(at + 1, "(") and not full.startswith(_XSD) and self._is_function_call(at):
            raise NotDeterministic(f"the function <{full[:200]}>", "not every worker knows it, nor the same")
        # `?a<x:b` compares; with a full IRI the `<` would be read as the begin of an IRI.
        before = self._toks[at - 1] if at else token
        gap = " " if before.text == "<" and before.start + 1 == token.start else ""
        self.out.append((f"{gap}<{full}>", token.start))
        return at + 1

    def _format_string(self, token: Token) -> str:
        try:
            return string_token(string_text(token.text))
        except ValueError as error:
            raise malformed_query(self.source, token.start, str(error)) from None

    # -- brackets

    def _push_bracket(
        self, token: Token, place: TokenContext, *, clause: bool, filters: bool = False, guarded: bool = False
    ) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise malformed_query(self.source, token.start, f"more than {MAX_DEPTH} brackets inside one another")
        close = _CLOSES[token.text]
        hidden = dict[str, str]() if filters else None
        self._stack.append(
            _BracketFrame(close, self._context, self._in_clause, len(self.out), hidden, guarded, self._graph)
        )
        self._context, self._in_clause = place, clause

    def _group_context(self, token: Token) -> TokenContext:
        place, coming = self._context, self._next_context
        self._next_context = "pattern"
        if coming == "data":
            return "data"
        self._count_chain(token)
        if place == "top":
            return coming
        return "pattern" if place == "expression" else place

    def _bracket_context(self, at: int, token: Token) -> TokenContext:
        place = self._context
        if place == "template" and not self._evaluated_once and not (token.text == "(" and self._is_mark(at + 1, ")")):
            self._refuse_blank_node()
        if token.text == "[" or place in ("expression", "data"):
            return place
        if self._in_clause or self._is_function_call(at - 1):
            return "expression"
        before = self._toks[at - 1] if at else token
        if before.kind == "WORD" and before.text not in ("a", "true", "false"):
            return "data" if before.text.upper() == "VALUES" else "expression"
        return "collection" if place == "pattern" else place

    def _is_function_call(self, at: int) -> bool:
        """Whether the IRI at ``at``, with a parenthesis after it, is a function's name and not a predicate."""
        if at < 0 or self._toks[at].kind not in ("IRI", "PNAME"):
            return False
        if self._in_clause or self._context == "expression":
            return True
        return at > 0 and self._toks[at - 1].text.upper() == "FILTER"

    def _is_mark(self, at: int, mark: str) -> bool:
        return at < len(self._toks) and self._toks[at].text == mark and self._toks[at].kind == "MARK"

    def _count_chain(self, token: Token) -> None:
        self._chain_length += 1
        if self._chain_length > MAX_CHAIN:
            raise malformed_query(
                self.source,
                token.start,
                f"more than {MAX_CHAIN} groups and operators in one operation; send several operations",
            )

    @staticmethod
    def _refuse_blank_node() -> NoReturn:
        raise NotDeterministic(
            "a blank node in an INSERT template",
            "every worker makes another one for each solution; build an IRI instead",
            once=True,
        )

    # -- constructs that differ between workers

    def _write_non_deterministic(self, at: int, token: Token, word: str) -> int:
        called = self._is_mark(at + 1, "(") and self._is_mark(at + 2, ")")
        if self._draw is not None and called and word in RANDOM_FUNCTIONS:
            self.out.append((random_constant(word, self._draw()), token.start))
            return at + 3
        if word in _NEVER_ALLOWED or not self._evaluated_once:
            raise NotDeterministic(word, _NON_DETERMINISTIC[word], once=word not in _NEVER_ALLOWED)
        if word == "BNODE" and not called:
            # In Oxigraph it is the same node in every solution, and in every update.
            raise NotDeterministic(word, "with an argument it is not the same node in all stores; build an IRI instead")
        self.out.append((token.text, token.start))
        return at + 1

    def _blank_node_iri(self, label: str) -> str:
        if self._draw is None:
            self._refuse_blank_node()
        if label not in self._blank_nodes:
            self._blank_nodes[label] = random_constant("BNODE", self._draw())
        return self._blank_nodes[label]

    # -- graphs and IRIs that only appear at run time

    def _enter_group(self, at: int, *, joined: bool) -> None:
        """Record the graph that the group opened at ``at`` reads, and whether it may be a system graph. It may in a
        group of OPTIONAL, MINUS or EXISTS where the surrounding group reads no graph (``GRAPH ?g { VALUES ?x { 1 }
        OPTIONAL { } }``). A filter further out would be too late there."""
        toks = self._toks
        if at > 1 and toks[at - 2].kind == "WORD" and toks[at - 2].text.upper() == "GRAPH":
            name = toks[at - 1]
            self._graph = (
                _ActiveGraph(name.text, may_match_without_triple(toks, at - 2)) if name.kind == "VARIABLE" else None
            )
        elif joined and self._graph is not None and not begins_with_triple(toks, at + 1):
            # Oxigraph may evaluate this group first, whatever comes before it in the text.
            self._graph = self._graph._replace(may_be_empty_graph=True)
        elif not joined and self._graph is not None and self._graph.variable and self._graph.may_be_empty_graph:
            begin = " ".join([token.text.upper() for token in toks[at + 1 : at + 3]])
            # The group of a SELECT that is empty before VALUES reads no graph.
            own = not toks[at - 1].text.upper().endswith(_AGGREGATE_BARRIERS)
            # `{ SELECT ... }` cannot hold a filter beside the SELECT; the filter goes into the SELECT's own group.
            if not (begins_with_triple(toks, at + 1) or begin.startswith("SELECT") or (own and begin == "} VALUES")):
                self._add_exclusion_filter(self._graph.variable)

    def _enter_select(self, at: int, graph: _ActiveGraph) -> None:
        """Enter a SELECT inside of ``GRAPH ?v``. Where the SELECT does not project ``?v``, Oxigraph reads another graph
        there, which has no name. Where it does, the filter goes into the SELECT, which may count or limit its
        solutions."""
        given, depth = set[str](), 0
        for token in self._toks[at + 1 :]:
            if token.kind == "MARK":
                depth += {"(": 1, ")": -1}.get(token.text, 0)
                if token.text == "{" and not depth:
                    break
            if token.kind == "VARIABLE" and not depth:
                given.add(token.text[1:])
        named = graph.variable if graph.variable[1:] in given else ""
        self._graph = _ActiveGraph(named, may_be_empty_graph=True)
        if not named:
            self.unnamed_selects.append(at)

    def _add_exclusion_filter(self, variable: str) -> None:
        """Add the filter as far out as possible, past groups that are only joined or united. Directly after its
        ``GRAPH`` it would separate joins that Oxigraph evaluates as one, and change their order. Not every order gives
        the same result: the variables of an ``EXISTS`` see bindings from outside of their group, or do not."""
        self.filter_count += 1
        for frame in reversed(self._stack):
            if frame.filters is not None:
                frame.filters.setdefault(variable[1:], exclusion_filter(variable))
                return

    def _is_joined(self, at: int) -> bool:
        """Whether the group that opens at ``at`` is a part of a join or a union, so that each of its solutions is part
        of a solution of the surrounding group. ``False`` where that is not certain: a filter is correct in any
        group."""
        if self._context != "pattern" or self._in_clause or not at or not self._stack:
            return False
        before = self._toks[at - 1]
        if before.kind == "WORD":
            return before.text.upper() == "UNION"
        if before.kind == "MARK":
            return before.text in _BEFORE_JOINED
        behind = self._toks[at - 2] if at > 1 else before
        return before.kind in _TERMS and (behind.kind != "WORD" or behind.text.upper() in ("GRAPH", "A"))

    def _write_computed_iri(self, at: int, token: Token) -> int:
        """Write ``IRI(...)``: its value where it is a constant. Otherwise with a guard, so that it returns no system
        IRI, and none that depends on the worker's own address."""
        argument = self._toks[at + 2] if self._is_mark(at + 3, ")") else None
        if argument is not None and argument.kind == "STRING":
            argument = Token("IRI", f"<{self._expand_iri(argument)}>", argument.start)
        if argument is not None and argument.kind in ("IRI", "PNAME"):
            self.out.append((f"<{self.prologue.expand(self.source, argument)}>", token.start))
            return at + 4
        self.out.append((token.text, token.start))
        self.out.append(("(", token.start))
        guarded = not self._iri_is_safe(at)
        if guarded and any(frame.is_guarded for frame in self._stack):
            # Each guard repeats its argument three times.
            raise malformed_query(
                self.source, token.start, "IRI() inside IRI(): BIND the inner one to a variable first"
            )
        self._push_bracket(self._toks[at + 1], "expression", clause=False, guarded=guarded)
        return at + 2

    def _expand_iri(self, token: Token) -> str:
        try:
            value = string_text(token.text)
        except ValueError as error:
            raise malformed_query(self.source, token.start, str(error)) from None
        if NOT_IN_IRI.search(value):
            raise malformed_query(self.source, token.start, f"{token.text[:200]} is no IRI")
        return value

    def _iri_is_safe(self, at: int) -> bool:
        """Whether ``IRI(CONCAT("http://...", ...))`` certainly returns an absolute IRI that is no system IRI."""
        toks = self._toks
        if at + 5 >= len(toks) or toks[at + 2].text.upper() != "CONCAT" or not self._is_mark(at + 3, "("):
            return False
        first = toks[at + 4]
        if first.kind != "STRING" or toks[at + 5].text not in (",", ")"):
            return False
        # CONCAT must be the whole argument of IRI: `IRI(CONCAT("x:y") || ?x)` is another expression.
        depth = 0
        for index in range(at + 3, len(toks)):
            if toks[index].kind == "MARK":
                depth += {"(": 1, ")": -1}.get(toks[index].text, 0)
            if not depth:
                if not self._is_mark(index + 1, ")"):
                    return False
                break
        stem = self._expand_iri(first)
        return bool(ABSOLUTE.match(stem)) and not stem.startswith(SYSTEM_GRAPHS) and not SYSTEM_GRAPHS.startswith(stem)

    def _guard_iri(self, opened: int, token: Token) -> None:
        argument = self.out[opened:]
        text = "".join([part for part, _ in argument])
        guard = f'IF(REGEX(STR({text}),"^[A-Za-z][A-Za-z0-9+.-]*:")&&!STRSTARTS(STR({text}),"{SYSTEM_GRAPHS}"),'
        self.out.insert(opened, (guard, argument[0][1] if argument else token.start))
        self.out.append((f",{NO_VALUE})", token.start))


def may_match_without_triple(toks: Sequence[Token], at: int) -> bool:
    """Whether ``GRAPH`` at ``at`` is ``GRAPH ?v {`` with a group that could match an empty graph."""
    return (
        at + 2 < len(toks)
        and toks[at + 1].kind == "VARIABLE"
        and toks[at + 2].text == "{"
        and not begins_with_triple(toks, at + 3)
    )
