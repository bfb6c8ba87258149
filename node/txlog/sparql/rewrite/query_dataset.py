"""Queries that name RDF4J's default graph: ``FROM DEFAULT``, ``FROM rdf4j:nil``, ``GRAPH rdf4j:nil {...}``.

No other engine knows these names, and SPARQL has none for a default graph beside others. So such a query is written out
for its graphs in plain SPARQL, like an update without a graph (``pattern_union.py``), and then asked of the default
graph that a store really has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from txlog.model.errors import BadInput
from txlog.sparql.expansion_limit import limit_for
from txlog.sparql.prologue import Prologue
from txlog.sparql.rewrite.pattern_union import NO_GRAPH_NAMES, PatternWriter
from txlog.sparql.rewrite.read_query import parse_prologue
from txlog.sparql.rewrite.triple_reader import FreshVariables
from txlog.sparql.tokens import TokenCursor, UnsupportedPattern, apply_edits, significant_tokens

_MAY_NAME_IT: Final = re.compile(r"nil\b|\bdefault\b", re.IGNORECASE)
_AFTER: Final = ("GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "VALUES")
"""What may stand behind a pattern, or in place of one."""
NULL: Final = "null"
"""The default graph among the graphs of a request."""
DEFAULT_GRAPH_NAMES: Final = frozenset((NULL, *(name[1:-1] for name in NO_GRAPH_NAMES)))
"""What a request may call it."""


class QueryDataset(NamedTuple):
    """``default``: graphs (``<iri>``, "" for the default graph) that patterns match, None for all. ``named``: those
    that ``GRAPH`` may name, None for all."""

    default: tuple[str, ...] | None
    named: tuple[str, ...] | None


def write_out_dataset(text: str, default: Sequence[str], named: Sequence[str]) -> str:
    """A query that names the default graph, for the default graph of a store; any other query unchanged. ``default``,
    ``named``: the graphs of its request, bare IRIs or ``null``; they count instead of its FROM. Raises ``BadInput``
    where plain SPARQL cannot say it, and for a prefix that is not declared."""
    if not (NULL in default and len(default) + len(named) > 1) and not _MAY_NAME_IT.search(text):
        return text
    query = _QueryParser(_expand(text))
    if not query.parse():
        return text
    dataset = _request_dataset(default, named) if default or named else query.dataset()
    if dataset is None:
        return text
    try:
        return query.write(dataset)
    except UnsupportedPattern as why:
        raise BadInput(f"MALFORMED QUERY: the default graph beside other graphs, and {why}, cannot be asked") from None


def _request_dataset(default: Sequence[str], named: Sequence[str]) -> QueryDataset | None:
    """None where the protocol can say it."""
    if NULL not in default or len(default) + len(named) == 1:
        return None
    return QueryDataset(
        tuple(dict.fromkeys("" if graph == NULL else f"<{graph}>" for graph in default)),
        tuple(f"<{graph}>" for graph in named),
    )


def _expand(text: str) -> str:
    """The same query with its IRIs in full. Raises ``BadInput`` for a prefix that is not declared."""
    toks = significant_tokens(text)
    names = Prologue(None, limit_for(len(text)))
    return apply_edits(
        text,
        [
            (token.start, token.end, f"<{names.expand(text, token, lenient=True)}>")
            for token in toks[parse_prologue(text, toks, names) :]
            if token.kind in ("IRI", "PNAME")
        ],
    )


class _QueryParser(TokenCursor):
    """Finds the parts of a query around its pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._toks = significant_tokens(text)
        super().__init__(self._toks)
        self._form = 0
        self._clauses: tuple[int, int] = (0, 0)
        """The tokens of FROM."""
        self._group = 0
        self._default = list[str]()
        self._named = list[str]()

    def parse(self) -> bool:
        """Whether it is a query with a pattern, or a DESCRIBE without one."""
        at = 0
        while self._word_at(at) in ("BASE", "PREFIX"):
            at += 2 if self._word_at(at) == "BASE" else 3
        self._form = at
        if self._word_at(at) == "CONSTRUCT" and self._mark_at(at + 1) == "{":
            at = self._closing(at + 1)
        while self._word_at(at) not in ("FROM", "WHERE", *_AFTER) and self._mark_at(at) != "{" and at < len(self._toks):
            at = self._closing(at) if self._mark_at(at) == "(" else at + 1
        start = at
        while self._word_at(at) == "FROM":
            at = self._read_from(at + 1)
        self._clauses = (start, at)
        self._group = at + (self._word_at(at) == "WHERE")
        if self._mark_at(self._group) == "{":
            return self._closing(self._group) <= len(self._toks)
        return self._word_at(self._form) == "DESCRIBE" and (at == len(self._toks) or self._word_at(at) in _AFTER)

    def _read_from(self, at: int) -> int:
        named = self._word_at(at) == "NAMED"
        name = self._token_at(at + named)
        is_default = name.text in NO_GRAPH_NAMES or self._word_at(at + named) == "DEFAULT"
        (self._named if named else self._default).append("" if is_default else name.text)
        return at + named + 1

    def _closing(self, at: int) -> int:
        """The index after the bracket that closes the one at ``at``; beyond the end where none does."""
        depth = 0
        while at < len(self._toks):
            depth += (self._mark_at(at) in ("{", "(", "[")) - (self._mark_at(at) in ("}", ")", "]"))
            at += 1
            if not depth:
                return at
        return at + 1

    def dataset(self) -> QueryDataset | None:
        """The graphs that it names, None where every engine knows them by these names."""
        if "" in self._default or "" in self._named:
            return QueryDataset(tuple(dict.fromkeys(self._default)), tuple(each for each in self._named if each))
        names_it = any(
            self._word_at(at) == "GRAPH" and self._token_at(at + 1).text in NO_GRAPH_NAMES
            for at in range(self._group, len(self._toks))
        )
        return QueryDataset(None, None) if names_it and not self._default and not self._named else None

    def write(self, dataset: QueryDataset) -> str:
        """The query for these graphs, without FROM."""
        if self._word_at(self._form) == "DESCRIBE" and dataset.default != ("",):
            raise UnsupportedPattern("DESCRIBE")  # its statements would be those of the default graph alone
        if self._mark_at(self._group) != "{":
            start, stop = (self._token_at(at).start for at in self._clauses)
            return self._text[:start] + (self._text[stop:] if self._clauses[1] < len(self._toks) else "")
        group, end = self._group, self._closing(self._group)
        if any(
            self._mark_at(at) == "{" and self._word_at(self._before(at)) != "VALUES"
            for at in range(end, len(self._toks))
        ):
            raise UnsupportedPattern("EXISTS behind the pattern")
        fresh = FreshVariables(self._toks)
        writer = PatternWriter(self._text, self._toks, fresh, default=dataset.default, named=dataset.named)
        pattern = writer.pattern(group)
        stop = self._token_at(end).start if end < len(self._toks) else len(self._text)
        return f"{self._head()} WHERE {{ {pattern} }} {self._text[stop:]}"

    def _before(self, at: int) -> int:
        """The index of the word before the variables of a VALUES."""
        while self._token_at(at - 1).kind == "VARIABLE" or self._mark_at(at - 1) in ("(", ")"):
            at -= 1
        return at - 1

    def _head(self) -> str:
        """What stands before FROM. The variables of ``*`` are named, and a CONSTRUCT has a template."""
        start = self._token_at(self._clauses[0]).start
        head = self._text[:start]
        word = self._word_at(self._form)
        if word == "CONSTRUCT" and self._mark_at(self._form + 1) != "{":
            inside = self._text[
                self._token_at(self._group).start : self._token_at(self._closing(self._group) - 1).start
            ]
            return f"{head} {inside} }}"
        stars = [at for at in range(self._form, self._clauses[0]) if self._mark_at(at) == "*"]
        if word not in ("SELECT", "DESCRIBE") or not stars or self._mark_at(self._clauses[0] - 1) != "*":
            return head
        star = self._token_at(stars[-1]).start
        names, _ = self._visible(self._group)
        return f"{head[:star]}{' '.join(names) or '(1 AS ?nothing)'} {head[star + 1 :]}"

    def _visible(self, at: int) -> tuple[list[str], int]:
        """The variables of a group that ``*`` shows, and the index after the group."""
        end = self._closing(at) - 1
        at += 1
        if self._word_at(at) == "SELECT":
            return self._projected(at, end), end + 1
        found = dict[str, None]()
        while at < end:
            if self._word_at(at) in ("FILTER", "MINUS"):
                while at < end and self._mark_at(at) not in ("(", "{"):
                    at += 1
                at = self._closing(at)
            elif self._word_at(at) == "BIND":
                at = self._closing(at + 1)
                found[f"?{self._token_at(at - 2).text[1:]}"] = None
            elif self._mark_at(at) == "{" and self._word_at(self._before(at)) != "VALUES":
                inside, at = self._visible(at)
                found |= dict.fromkeys(inside)
            else:
                if self._token_at(at).kind == "VARIABLE":
                    found[f"?{self._token_at(at).text[1:]}"] = None
                at += 1
        return list(found), end + 1

    def _projected(self, at: int, end: int) -> list[str]:
        """The variables of a SELECT inside of a group."""
        found = list[str]()
        while at < end and self._mark_at(at) != "{":
            if self._mark_at(at) == "*":
                while at < end and self._mark_at(at) != "{":
                    at += 1
                return self._visible(at)[0] if at < end else found
            if self._mark_at(at) == "(":
                at = self._closing(at)
                found.append(f"?{self._token_at(at - 2).text[1:]}")
            else:
                if self._token_at(at).kind == "VARIABLE":
                    found.append(f"?{self._token_at(at).text[1:]}")
                at += 1
        return found
