"""What every engine carries out alike: data, management of graphs, templates over plain patterns and their unions.

Engines agree about little more (docs/limits.md): each has its own numbers, its own order, its own reading of what a
standard leaves open. Where workers are of several engines, everything else is evaluated once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import BadInput, NotDeterministic
from txlog.sparql.analysis.fatal_expressions import find_fatal_expression
from txlog.sparql.tokens import IRI, STRING, TOKEN, Token, tokens
from txlog.sparql.transaction_body import TransactionBody

_UNPORTABLE_KEYWORDS: Final = frozenset(
    ("OPTIONAL", "MINUS", "FILTER", "BIND", "VALUES", "SELECT", "EXISTS", "USING", "SERVICE")
)
_PATH_OPERATORS: Final = frozenset(("/", "|", "^", "*", "!", "?"))
_PLAIN_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_DIRECTION: Final = re.compile(rb"(@[A-Za-z0-9-]*--[A-Za-z]*)")
_DIRECTED_QUAD: Final = re.compile(rb'"(@[A-Za-z0-9-]*--[A-Za-z]*)(?: <[^>\n]*>)? \.$', re.MULTILINE)
"""In canonical N-Quads the object is the last term but one, and no string holds a line break."""
_XSD: Final = rb"http://www\.w3\.org/2001/XMLSchema#"
_SPACE: Final = rb"(?:[ \t\n\r]|\\[tnr])"
_VALUE_TYPES: Final = (
    rb"""["']\^\^<""" + _XSD + rb"(?:[a-z]*[iI]nteger|decimal|double|float|boolean|unsigned[A-Z][a-z]+"
    rb"|int|long|short|byte|date|dateTime|dateTimeStamp|time|g[A-Z][A-Za-z]+|[a-zA-Z]*[dD]uration)>"
)
_NOT_OF_JENA: Final = (
    (
        "seconds with more than 10 decimals",
        re.compile(
            rb"""\.[0-9]{11}[0-9]*+[^"'\\\n]{0,8}["']\^\^<""" + _XSD + rb"(?:dateTime(?:Stamp)?|time|duration)>"
        ),
        "round them",
    ),
    (
        "a value with spaces around it",
        re.compile(rb"""["']""" + _SPACE + rb"""[^"'\n]*+""" + _VALUE_TYPES + rb"|" + _SPACE + _VALUE_TYPES),
        "remove them",
    ),
)
"""Terms that Apache Jena fails at, or stores as another term: what it is, where it stands, and what to do instead."""
_DOT_SEGMENT: Final = re.compile(rb"/\.\.?[/?#>]")
_DOTTED_IRI: Final = re.compile(
    rb"(<[A-Za-z][A-Za-z0-9+.-]*+:/[^<>\"\s?#]*?/\.\.?(?:[/?#][^<>\"\s]*)?>)|" + f"{IRI}|{STRING}".encode(), re.DOTALL
)
_TERMS: Final = frozenset(("VARIABLE", "IRI", "PNAME", "STRING", "NUMBER"))


def refuse_unportable(prepared: TransactionBody) -> TransactionBody:
    """The same transaction; :class:`NotDeterministic` (``once``) where workers of several engines may differ in it."""
    if prepared.kind == KIND_UPDATE and (construct := find_unportable_construct(prepared.payload.decode())):
        raise NotDeterministic(construct, "the engines of this cluster may carry it out differently", once=True)
    return prepared


def refuse_fatal(prepared: TransactionBody, engines: Collection[str]) -> TransactionBody:
    """The same transaction; :class:`NotDeterministic` (``once``) where a store of these engines may end the request
    (:mod:`txlog.sparql.analysis.fatal_expressions`)."""
    if prepared.kind == KIND_UPDATE and (found := find_fatal_expression(prepared.payload.decode(), engines)):
        why = "it ends the request in some stores, and in which depends on their order"
        raise NotDeterministic(found, why, once=True)
    return prepared


def refuse_base_direction(kind: int, payload: bytes) -> None:
    """Raise :class:`BadInput` for quads or an update with a literal that has a base direction (``"x"@he--rtl``, RDF
    1.2): a store of an earlier RDF refuses the whole transaction, and would wait at it for ever."""
    found = _DIRECTED_QUAD.search(payload)
    if found is None and kind == KIND_UPDATE and _DIRECTION.search(payload) is not None:
        languages = (token[0] for token in TOKEN.finditer(payload.decode()) if token.lastgroup == "LANGUAGE")
        found = next((match for language in languages if (match := _DIRECTION.match(language.encode()))), None)
    if found is not None:
        raise BadInput(
            f"MALFORMED DATA: a literal with a base direction (RDF 1.2), {found[1][:40].decode()}: not every store of "
            "this cluster can keep it; leave the direction out, or state it by a property"
        )


def refuse_terms_jena_changes(payload: bytes) -> None:
    """Raise :class:`BadInput` for quads or an update with a term that Apache Jena stores as another one, so that stores
    of other engines differ from it, or that it fails at, so that its store would wait there for ever."""
    for what, pattern, instead in _NOT_OF_JENA:
        found = pattern.search(payload)
        if found is not None:
            raise _not_of_jena(what, found[0], instead)
    if _DOT_SEGMENT.search(payload) is not None:
        dotted = next((found[1] for found in _DOTTED_IRI.finditer(payload) if found[1]), None)
        if dotted is not None:
            raise _not_of_jena("an IRI with the segment . or ..", dotted, "resolve it")


def _not_of_jena(what: str, found: bytes, instead: str) -> BadInput:
    place = found[:60].decode("utf-8", "replace")
    return BadInput(f"MALFORMED DATA: {what}, {place}: not every store of this cluster can keep it; {instead}")


def find_unportable_construct(update: str) -> str:
    """The first thing in a normalised update that engines may carry out differently, for people; "" when there is
    none."""
    toks = _without_renaming([token for token in tokens(update) if token.kind != "SPACE"])
    for at, token in enumerate(toks):
        found = _unportable_token(toks, at, token)
        if found:
            return found
    return "a predicate that is a variable elsewhere, too" if _has_joined_predicate(toks) else ""


def _without_renaming(toks: list[Token]) -> list[Token]:
    """The tokens without ``BIND(?variable AS ?other)`` and the like: every engine gives a term a second name alike."""
    found: list[Token] = []
    at = 0
    while at < len(toks):
        part = toks[at : at + 6]
        words = [token.text.upper() for token in part]
        if (
            len(part) == 6
            and (words[0], words[1], words[3], words[5]) == ("BIND", "(", "AS", ")")
            and part[2].kind in ("VARIABLE", "IRI")
        ):
            at += 6
        else:
            found.append(toks[at])
            at += 1
    return found


def _unportable_token(toks: list[Token], at: int, token: Token) -> str:
    kind, text = token.kind, token.text
    following = toks[at + 1] if at + 1 < len(toks) else None
    if kind == "WORD" and text.upper() in _UNPORTABLE_KEYWORDS:
        return text.upper()
    if kind == "MARK" and (
        text in _PATH_OPERATORS or (text == "+" and (following is None or following.kind != "NUMBER")) or text in "[("
    ):
        return "a blank node or a list" if text in "[(" else "a path"
    if kind == "BLANK":
        return "a blank node or a list"
    if kind == "MARK" and text == "<<(":
        return "a triple term"
    if (kind == "NUMBER" and not _PLAIN_NUMBER.fullmatch(text)) or (kind == "MARK" and text == "^^"):
        return "a literal that engines write differently"
    if kind == "LANGUAGE" and text != text.lower():
        return "a literal that engines write differently"
    return ""


def _has_joined_predicate(toks: list[Token]) -> bool:
    """Jena refuses a pattern whose predicate is bound to a literal by another one. A variable that is a predicate
    everywhere is no literal."""
    place, depth, where, skip = 0, 0, False, False
    verbs, met = set[str](), Counter[str]()
    for token in toks:
        kind, text = token.kind, token.text
        if kind == "WORD" and text.upper() == "WHERE":
            where = True
        elif kind == "MARK" and text in "{}":
            depth += 1 if text == "{" else -1
            place = 0
            if not depth and text == "}" and where:
                if any(met[verb] for verb in verbs):
                    return True
                where = False
                verbs.clear()
                met.clear()
        elif not where:
            continue
        elif kind == "WORD" and text.upper() == "GRAPH":
            skip = True
        elif kind in _TERMS or (kind == "WORD" and text in ("a", "true", "false")):
            if kind == "VARIABLE" and place % 3 != 1:
                met[text] += 1
            if skip:
                skip = False
                continue
            if place % 3 == 1 and kind == "VARIABLE":
                verbs.add(text)
            place += 1
        elif kind == "MARK" and text in (".", ";", ","):
            place = {".": 0, ";": 1, ",": 2}[text]
    return False
