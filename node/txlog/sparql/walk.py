"""One pass over the tokens of a query, or of one operation of an update.

It keeps track of where it is (template, pattern, expression, data), because the same tokens mean different things
there, and writes the text again: IRIs in full, ``NOW()`` pinned, no variable graph that could be one of ours. What
cannot be made the same on every worker is refused by name. Whether the text is SPARQL at all is judged by
Oxigraph's parser afterwards; here only what that parser is too lenient about is refused.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Literal

from txlog.model.errors import BadInput, NotDeterministic
from txlog.sparql.terms import (
    ABSOLUTE,
    DEFAULT_PREFIXES,
    SYSTEM_GRAPHS,
    iri_text,
    local_text,
    refuse_system,
    resolve,
    string_text,
    string_token,
)
from txlog.sparql.tokens import Token, bad_token, malformed

MAX_DEPTH: Final = 64
"""Brackets of any kind inside one another. Oxigraph's parser recurses: about 700 end the process that parses."""
MAX_CHAIN: Final = 500
"""Groups, binds and binary operators in one operation, for the same reason: about 1000 end it."""

_XSD: Final = DEFAULT_PREFIXES["xsd"]
_TERMS: Final = frozenset(("VARIABLE", "IRI", "PNAME", "BLANK", "STRING", "NUMBER"))
_VERBS: Final = frozenset(("VARIABLE", "IRI", "PNAME"))
_CHAIN_WORDS: Final = frozenset(("BIND", "FILTER", "OPTIONAL", "UNION", "MINUS", "GRAPH", "EXISTS", "SELECT"))
_CHAIN_MARKS: Final = frozenset(("||", "&&", "+", "-", "*", "/", "|", "!", "{"))
_CLOSES: Final = {"{": "}", "(": ")", "[": "]"}

_REFUSED: Final = {
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
    "REDUCED": "workers remove different numbers of duplicates; use DISTINCT or leave it out",
}
_WORDS: Final = frozenset(
    """A ABS ADD ALL AS ASC ASK AVG BASE BIND BNODE BOUND BY CEIL CLEAR COALESCE CONCAT CONSTRUCT CONTAINS COPY COUNT
    CREATE DATA DATATYPE DAY DEFAULT DELETE DESC DESCRIBE DISTINCT DROP ENCODE_FOR_URI EXISTS FALSE FILTER FLOOR FROM
    GRAPH GROUP GROUP_CONCAT HAVING HOURS IF IN INSERT INTO IRI ISBLANK ISIRI ISLITERAL ISNUMERIC ISURI LANG LANGMATCHES
    LCASE LIMIT LOAD MAX MD5 MIN MINUS MINUTES MONTH MOVE NAMED NOT NOW OFFSET OPTIONAL ORDER PREFIX RAND REDUCED REGEX
    REPLACE ROUND SAMETERM SAMPLE SECONDS SELECT SEPARATOR SERVICE SHA1 SHA256 SHA384 SHA512 SILENT STR STRAFTER
    STRBEFORE STRDT STRENDS STRLANG STRLEN STRSTARTS STRUUID SUBSTR SUM TIMEZONE TO TRUE TZ UCASE UNDEF UNION URI USING
    UUID VALUES WHERE WITH YEAR""".split()
)
# A word outside this list may be two glued together (Oxigraph reads FILTERRAND() as FILTER RAND()), or one that only
# some workers know.

Place = Literal["top", "template", "erase", "pattern", "quads", "data", "expression", "collection"]


class Names:
    """BASE and PREFIX as they stand at one place of a text. Declarations accumulate; a later one wins."""

    def __init__(self, base: str | None) -> None:
        self.base = base
        self.prefixes: dict[str, str] = {}
        self.relative = False
        self.defaults: set[str] = set()

    def iri(self, source: str, token: Token, *, lenient: bool = False) -> str:
        """An ``IRI`` or ``PNAME`` token in full. Raises ``BadInput`` and ``SystemGraphNamed``. With ``lenient`` a
        relative IRI without base is given back as it is, for whoever knows the base."""
        if token.kind == "IRI":
            try:
                full = iri_text(token.text)
                if not ABSOLUTE.match(full):
                    self.relative = True
                    if self.base is not None:
                        full = resolve(full, self.base)
                    elif not lenient:
                        raise malformed(
                            source,
                            token.start,
                            f"<{full[:200]}> is relative: send baseURI, or write BASE or the full IRI",
                        )
            except ValueError as error:
                raise malformed(source, token.start, str(error)) from None
        else:
            prefix, _, local = token.text.partition(":")
            stem = self.prefixes.get(prefix)
            if stem is None:
                stem = DEFAULT_PREFIXES.get(prefix)
                if stem is None:
                    raise malformed(source, token.start, f"the prefix {prefix}: is not declared")
                self.defaults.add(prefix)
            full = stem + local_text(local)
        refuse_system(full)
        return full


class Piece(list[tuple[str, int]]):
    """Text written so far, each part with the offset in the source that it comes from."""

    def text(self) -> str:
        return "".join([part for part, _ in self])

    def source_offset(self, at: int) -> int:
        """Where in the source the character ``at`` of :meth:`text` comes from."""
        if not self:
            return 0
        starts = list(accumulate((len(part) for part, _ in self), initial=0))
        index = min(bisect_right(starts, max(at, 0)) - 1, len(self) - 1)
        return self[index][1]


def significant(toks: Sequence[Token]) -> list[Token]:
    """Without spaces and comments."""
    return [token for token in toks if token.kind not in ("SPACE", "COMMENT")]


def needs_triple(toks: Sequence[Token], at: int) -> bool:
    """Whether a group whose first significant token is ``toks[at]`` begins with a plain triple, so that it has no
    solution in an empty graph. (Not the reverse: ``False`` says nothing.)"""
    if at + 2 >= len(toks):
        return False
    first, verb, third = toks[at : at + 3]
    return (
        first.kind in _TERMS
        and (verb.kind in _VERBS or (verb.kind == "WORD" and verb.text == "a"))
        and third.kind in _TERMS
    )


def hiding(variable: str) -> str:
    """The end of a group ``{ GRAPH ?v {...}`` that yields none of our graphs."""
    return f' FILTER(!STRSTARTS(STR({variable}),"{SYSTEM_GRAPHS}"))}}'


class Walk:
    """Writes tokens again. ``pinned`` is the text for ``NOW()``; without it the tokens are a query's, which may use
    anything and keeps its names."""

    def __init__(self, source: str, names: Names, pinned: str | None) -> None:
        self.source = source
        self.names = names
        self.update = pinned is not None
        self.pinned = pinned or ""
        self.out = Piece()
        self.chain = 0
        self.hidden = 0

    def run(self, toks: Sequence[Token], place: Place) -> None:
        """``toks`` without spaces, beginning in ``place``: ``top`` of an operation or a query, or inside of a group."""
        out, source, update, names = self.out, self.source, self.update, self.names
        last = len(toks) - 1
        stack: list[tuple[str, Place, bool, str, int]] = []
        clause = False
        coming: Place = "pattern"
        before = Token("MARK", "", toks[0].start if toks else 0)
        skip_to = 0
        for at, token in enumerate(toks):
            if at < skip_to:
                continue
            kind, text, start = token
            ended = before.start + len(before.text)
            if start > ended:
                out.append((" " if update else source[ended:start], ended))
            if kind == "MARK":
                if text in _CHAIN_MARKS and place != "data":
                    self._count(token)
                if text in _CLOSES:
                    if len(stack) >= MAX_DEPTH:
                        raise malformed(source, start, f"more than {MAX_DEPTH} brackets inside one another")
                    inner = place
                    if text == "{":
                        inner = self._group(place, coming)
                        coming = "pattern"
                    elif text == "(":
                        inner = self._parenthesis(toks, at, place, clause, before)
                    if (
                        text != "{"
                        and place == "template"
                        and not (text == "(" and at < last and toks[at + 1].text == ")")
                    ):
                        raise NotDeterministic(
                            "a blank node in an INSERT template",
                            "every worker makes another one for each solution; build an IRI instead",
                        )
                    stack.append((_CLOSES[text], place, clause, "", len(out)))
                    place, clause = inner, clause and text != "{"
                    out.append((text, start))
                elif text in ("}", ")", "]"):
                    if not stack or stack[-1][0] != text:
                        raise malformed(source, start, f"{text} closes nothing")
                    _, place, clause, suffix, opened = stack.pop()
                    out.append((text, start))
                    if suffix == "IRI":
                        self._guard(opened, token)
                    elif suffix:
                        out.append((suffix, start))
                elif text in ("<<", "<<(", ">>", ")>>", "{|", "|}", "~") and update:
                    raise malformed(source, start, f"{text}: triples inside triples (RDF 1.2) cannot be carried")
                else:
                    out.append((text, start))
            elif kind == "WORD":
                word = text.upper()
                if word in _CHAIN_WORDS:
                    self._count(token)
                if update:
                    if word not in _WORDS:
                        raise malformed(source, start, f"{text} is no word of SPARQL 1.1")
                    if word in _REFUSED:
                        raise NotDeterministic(word, _REFUSED[word])
                    if word == "NOW" and at + 2 <= last and toks[at + 1].text == "(" and toks[at + 2].text == ")":
                        out.append((self.pinned, start))
                        skip_to = at + 3
                        before = toks[at + 2]
                        continue
                    if word in ("IRI", "URI") and at < last and toks[at + 1].text == "(":
                        end = self._constant_iri(toks, at)
                        if end:
                            skip_to = end
                            before = toks[end - 1]
                            continue
                        if len(stack) >= MAX_DEPTH:
                            raise malformed(source, start, f"more than {MAX_DEPTH} brackets inside one another")
                        proven = self._proven_iri(toks, at)
                        out.append(("IRI", start))
                        out.append(("(", toks[at + 1].start))
                        stack.append((")", place, clause, "" if proven else "IRI", len(out)))
                        place, clause = "expression", False
                        skip_to = at + 2
                        before = toks[at + 1]
                        continue
                    if place == "top":
                        coming = {"INSERT": "template", "DELETE": "erase", "WHERE": "pattern"}.get(word, coming)  # type: ignore[assignment]
                elif "GRAPH" in word and word != "GRAPH" or "NAMED" in word and word != "NAMED":
                    raise malformed(source, start, f"{text} is no word of SPARQL 1.1")
                if word in ("SELECT", "BY", "HAVING"):
                    clause = True
                elif word in ("WHERE", "FROM", "VALUES"):
                    clause = False
                if word == "VALUES":
                    coming = "data"
                elif (
                    word == "GRAPH"
                    and place == "pattern"
                    and at + 2 <= last
                    and toks[at + 1].kind == "VARIABLE"
                    and toks[at + 2].text == "{"
                    and not needs_triple(toks, at + 3)
                ):
                    if len(stack) + 1 >= MAX_DEPTH:
                        raise malformed(source, start, f"more than {MAX_DEPTH} brackets inside one another")
                    variable = toks[at + 1]
                    self._count(token)
                    out.append(("{ ", start))
                    out.append(
                        (source[start : toks[at + 2].start + 1] if not update else f"GRAPH {variable.text} {{", start)
                    )
                    stack.append(("}", place, clause, hiding(variable.text), len(out)))
                    place, clause = "pattern", False
                    skip_to = at + 3
                    before = toks[at + 2]
                    self.hidden += 1
                    continue
                out.append((text, start))
            elif kind in ("IRI", "PNAME"):
                full = names.iri(source, token, lenient=not update)
                if (
                    update
                    and at < last
                    and toks[at + 1].text == "("
                    and not full.startswith(_XSD)
                    and (
                        clause
                        or place == "expression"
                        or (before.kind == "WORD" and before.text.upper() in ("FILTER", "BY", "HAVING"))
                    )
                ):
                    raise NotDeterministic(f"the function <{full[:200]}>", "not every worker knows it, nor the same")
                if update and before.text == "<":
                    out.append((" ", start))
                out.append((f"<{full}>" if update else text, start))
            elif kind == "BLANK" and place == "template":
                raise NotDeterministic(
                    "a blank node in an INSERT template",
                    "every worker makes another one for each solution; build an IRI instead",
                )
            elif kind == "ERROR":
                raise bad_token(source, token)
            elif kind == "STRING" and update and "\\" in text:
                try:
                    value = string_text(text)
                except ValueError as error:
                    raise malformed(source, start, str(error)) from None
                out.append((string_token(value), start))
            else:
                out.append((text, start))
            before = token
        if stack:
            raise malformed(source, len(source), f"{stack[-1][0]} is missing at the end")

    def _count(self, token: Token) -> None:
        self.chain += 1
        if self.chain > MAX_CHAIN:
            raise malformed(
                self.source,
                token.start,
                f"more than {MAX_CHAIN} groups and operators in one operation; send several operations",
            )

    @staticmethod
    def _group(place: Place, coming: Place) -> Place:
        if place == "top" or coming == "data":
            return coming
        if place == "expression":
            return "pattern"
        return place

    def _parenthesis(self, toks: Sequence[Token], at: int, place: Place, clause: bool, before: Token) -> Place:
        if place in ("expression", "data"):
            return place
        if clause:
            return "expression"
        if before.kind == "WORD" and before.text not in ("a", "true", "false"):
            return "data" if before.text.upper() == "VALUES" else "expression"
        if (
            before.kind in ("IRI", "PNAME")
            and at >= 2
            and toks[at - 2].kind == "WORD"
            and toks[at - 2].text.upper() == "FILTER"
        ):
            return "expression"
        return "collection" if place in ("pattern", "top", "collection") else place

    def _constant_iri(self, toks: Sequence[Token], at: int) -> int:
        """``IRI("...")`` written as the IRI; the index after it, or 0 when its argument is no constant."""
        if at + 3 >= len(toks) or toks[at + 3].text != ")":
            return 0
        argument = toks[at + 2]
        if argument.kind == "STRING":
            try:
                value = string_text(argument.text)
            except ValueError as error:
                raise malformed(self.source, argument.start, str(error)) from None
            if re.search(r'[<>"{}|^`\\\x00-\x20]', value):
                raise malformed(self.source, argument.start, f"{argument.text[:200]} is no IRI")
            argument = Token("IRI", f"<{value}>", argument.start)
        elif argument.kind not in ("IRI", "PNAME"):
            return 0
        self.out.append((f"<{self.names.iri(self.source, argument)}>", argument.start))
        return at + 4

    def _proven_iri(self, toks: Sequence[Token], at: int) -> bool:
        """Whether ``IRI(CONCAT("http://...", ...))`` can be seen to give an absolute IRI that is not ours."""
        if at + 4 >= len(toks) or toks[at + 2].text.upper() != "CONCAT" or toks[at + 3].text != "(":
            return False
        first = toks[at + 4]
        if first.kind != "STRING" or at + 5 >= len(toks) or toks[at + 5].text not in (",", ")"):
            return False
        # Nothing may follow CONCAT(...) inside the IRI's own parenthesis: `CONCAT("a:b") = ?x` is another expression.
        depth = 0
        for index in range(at + 3, len(toks)):
            depth += {"(": 1, ")": -1}.get(toks[index].text, 0) if toks[index].kind == "MARK" else 0
            if not depth:
                if index + 1 >= len(toks) or toks[index + 1].text != ")":
                    return False
                break
        try:
            stem = string_text(first.text)
        except ValueError:
            return False
        return bool(ABSOLUTE.match(stem)) and not stem.startswith(SYSTEM_GRAPHS) and not SYSTEM_GRAPHS.startswith(stem)

    def _guard(self, opened: int, token: Token) -> None:
        """An IRI made from data stays an error when it would be relative (a worker's own address is its base) or ours."""
        argument = self.out[opened:-1]
        text = "".join([part for part, _ in argument])
        if "IRI(IF(" in text:
            raise malformed(self.source, token.start, "IRI() inside IRI(); BIND the inner one first")
        del self.out[opened:]
        guard = f'REGEX(STR({text}),"^[A-Za-z][A-Za-z0-9+.-]*:")&&!STRSTARTS(STR({text}),"{SYSTEM_GRAPHS}")'
        self.out.append((f"IF({guard},", token.start))
        self.out.extend(argument)
        self.out.append((",1/0))", token.start))


__all__ = ["BadInput", "Names", "Piece", "Walk", "needs_triple", "significant"]
