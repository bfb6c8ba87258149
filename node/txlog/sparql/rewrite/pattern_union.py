"""Patterns that match several graphs as one, written in plain SPARQL.

A triple pattern becomes the union of its matches in each graph: ``{ t } UNION { GRAPH ?g { t } }`` for all graphs. Each
quad is one solution, as in RDF4J. Such parts are joined like the triples of one pattern, so blank nodes become
variables, and a sequence, an alternative or an inverse of a path becomes patterns of one step. A path of any length
over several graphs cannot be written this way.

A negated set becomes a pattern whose predicate is a variable, behind a filter; in one graph, too, like an alternative.
An Oxigraph on disk finds other literals, too, where such a path ends at a literal whose stored form ends with the byte
255, like ``-1`` or ``255``; one in memory does not. A pattern compares what it finds.

Source: SPARQL 1.1 Query Language, section 18.2.2 (translation of patterns).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from txlog.sparql.rewrite.triple_reader import (
    TERM_KINDS,
    FreshVariables,
    PathTriple,
    PropertyPath,
    TriplePattern,
    TripleReader,
)
from txlog.sparql.tokens import END, Token, TokenCursor, UnsupportedPattern

PARTS_MAX: Final = 250
"""Parts of unions in one operation. Some thousand of them overflow the stack of a store's parser."""
NO_GRAPH_NAMES: Final = ("<http://www.openrdf.org/schema/sesame#nil>", "<http://rdf4j.org/schema/rdf4j#nil>")
"""RDF4J's names of the default graph."""


class CoveredPattern(NamedTuple):
    """A pattern in all graphs that every solution matches. ``subject`` is bound to the subject where it matched in the
    default graph; ``graph`` to the other graph where it matched there."""

    subject: str
    graph: str


class _Scope(NamedTuple):
    """The graphs that a group reads: as ``default`` of :class:`PatternWriter`. ``inside``: a ``GRAPH`` around it
    names the graph."""

    graphs: tuple[str, ...] | None
    inside: bool = False


_INSIDE: Final = _Scope(("",), inside=True)
_NO_GRAPH: Final = _Scope(("",))


class PatternWriter(TokenCursor):
    """Writes one operation's pattern for the graphs ``default`` (``<iri>``, "" for the default graph; None: all graphs)
    and ``named`` (those that ``GRAPH`` may name; None: all). ``wanted``: the patterns for which :attr:`covered` is
    asked. Raises :class:`UnsupportedPattern`."""

    def __init__(
        self,
        text: str,
        toks: Sequence[Token],
        fresh: FreshVariables,
        *,
        default: tuple[str, ...] | None,
        named: tuple[str, ...] | None,
        wanted: Collection[TriplePattern] = (),
    ) -> None:
        super().__init__(toks)
        self._text = text
        self._reader = TripleReader(toks, fresh)
        self._fresh = fresh
        self._default = _Scope(default)
        self._named = named
        self._wanted = wanted
        self._parts = 0
        self._stars = 0
        self.has_written_steps = False
        """Whether a path in one graph became patterns of one step."""
        self.covered: dict[TriplePattern, CoveredPattern] = {}
        self.bound: set[str] = set()
        """Names of variables that are bound in every solution."""

    def pattern(self, at: int) -> str:
        """The contents of the group that opens at ``at``."""
        return self._group(at, self._default, True)[0]

    def _group(self, at: int, scope: _Scope, certain: bool) -> tuple[str, int]:
        """From ``{`` to after its ``}``: the contents. ``certain``: every solution of the operation has matched it."""
        at += 1
        if self._word_at(at) == "SELECT":
            return self._select(at, scope)
        out: list[str] = []
        while self._mark_at(at) != "}":
            mark, word = self._mark_at(at), self._word_at(at)
            if mark == ".":
                at += 1
                continue
            if mark == "{":
                part, at = self._union(at, scope, certain)
            elif word in ("OPTIONAL", "MINUS"):
                inside, at = self._group(at + 1, scope, False)
                part = f"{word} {{ {inside} }}"
            elif word == "GRAPH":
                part, at = self._named_graph(at, certain)
            elif word in ("FILTER", "BIND"):
                part, at = self._constraint(at, scope)
            elif word == "VALUES":
                part, at = self._values(at, certain)
            else:
                part, at = self._triples(at, scope, certain)
            out.append(part)
        return " ".join(out), at + 1

    def _union(self, at: int, scope: _Scope, certain: bool) -> tuple[str, int]:
        alone = self._word_at(self._after_bracket(at)) != "UNION"
        inside, at = self._group(at, scope, certain and alone)
        parts = [inside]
        while self._word_at(at) == "UNION":
            inside, at = self._group(at + 1, scope, False)
            parts.append(inside)
        return " UNION ".join(f"{{ {part} }}" for part in parts), at

    def _named_graph(self, at: int, certain: bool) -> tuple[str, int]:
        name = self._token_at(at + 1)
        if name.text in NO_GRAPH_NAMES:
            inside, at = self._group(at + 2, _NO_GRAPH, certain)
            is_named = self._named is None or name.text in self._named
            return (f"{{ {inside} }}" if is_named else f"{{ {inside} FILTER(false) }}"), at
        inside, at = self._group(at + 2, _INSIDE, certain)
        if certain and name.kind == "VARIABLE":
            self.bound.add(variable_name(name.text))
        part = f"GRAPH {name.text} {{ {inside} }}"
        if self._named is None or (name.kind == "IRI" and name.text in self._named):
            return part, at
        if name.kind == "IRI" or not self._named:
            return f"{{ {part} FILTER(false) }}", at
        return f"{{ VALUES {name.text} {{ {' '.join(self._named)} }} {part} }}", at

    def _constraint(self, at: int, scope: _Scope) -> tuple[str, int]:
        """``FILTER`` or ``BIND``: up to the group of its EXISTS, or to the parenthesis that closes."""
        out: list[str] = []
        while self._mark_at(at) not in ("(", "{"):
            out.append(self._token_at(at).text)
            at = self._next(at)
        part, at = self._bracket(at, scope)
        return f"{' '.join(out)}{part}", at

    def _bracket(self, at: int, scope: _Scope) -> tuple[str, int]:
        """A group, or an expression in parentheses; its text is kept, its groups are written again."""
        if self._mark_at(at) == "{":
            inside, at = self._group(at, scope, False)
            return f" {{ {inside} }}", at

        def rewrite_group(begin: int) -> tuple[str, int]:
            inside, end = self._group(begin, scope, False)
            return f"{{ {inside} }}", end

        return self._rewrite_expression(self._text, at, rewrite_group)

    def _values(self, at: int, certain: bool) -> tuple[str, int]:
        start, undefined, names = self._token_at(at).start, False, set[str]()
        while self._mark_at(at) != "}":
            token = self._token_at(at)
            undefined = undefined or self._word_at(at) == "UNDEF"
            if token.kind == "VARIABLE":
                names.add(variable_name(token.text))
            at = self._next(at)
        if certain and not undefined:
            self.bound |= names
        return self._text[start : self._token_at(at).end], at + 1

    def _select(self, at: int, scope: _Scope) -> tuple[str, int]:
        """A SELECT inside of a group, up to after the brace that closes the group."""
        out: list[str] = []
        has_star = self._refuse_distinct_star(at, is_one_graph=scope.graphs is not None and len(scope.graphs) == 1)
        self._stars += has_star
        pattern = False
        while self._mark_at(at) != "}":
            if self._word_at(at) == "VALUES" and pattern:
                part, at = self._values(at, False)
            elif self._mark_at(at) == "{" and not pattern:
                inside, at = self._group(at, scope, False)
                part, pattern = f"{{ {inside} }}", True
            elif self._mark_at(at) == "(":
                part, at = self._bracket(at, scope)
            else:
                part, at = self._token_at(at).text, self._next(at)
            out.append(part)
        self._stars -= has_star
        return " ".join(out), at + 1

    def _refuse_distinct_star(self, at: int, *, is_one_graph: bool) -> bool:
        """Whether it is a ``DISTINCT *``, where that can be kept. ``*`` would be more variables than the client's: also
        those of graphs, and those in place of labels. It may stand before the pattern of the SELECT, and behind it in a
        HAVING or ORDER BY."""
        depth, has_star, has_label = 0, False, False
        while depth >= 0 and self._token_at(at) is not END:
            depth += (self._mark_at(at) == "{") - (self._mark_at(at) == "}")
            has_star |= not depth and self._word_at(at) == "DISTINCT" and self._mark_at(at + 1) == "*"
            has_label |= self._token_at(at).kind == "BLANK"
            at += 1
        if has_star and (has_label or not is_one_graph):
            raise UnsupportedPattern("DISTINCT *")
        return has_star

    # -- triples

    def _triples(self, at: int, scope: _Scope, certain: bool) -> tuple[str, int]:
        start, found = at, list[PathTriple]()
        while True:
            some, at = self._reader.same_subject(at)
            found += some
            if self._mark_at(at) != "." or not self._begins_triple(at + 1):
                break
            at += 1
        if certain:
            terms = (term for subject, path, value in found for term in (subject, path.text, value))
            self.bound |= {variable_name(term) for term in terms if term[:1] in ("?", "$")}
        if scope.graphs is not None and len(scope.graphs) == 1:
            if self._may_be_steps(found):
                self.has_written_steps = True
                return " ".join(self._step_or_expand(triple, scope) for triple in found), at
            text = self._verbatim(start, at)
            return (text if not scope.graphs[0] else f"GRAPH {scope.graphs[0]} {{ {text} }}"), at
        return " ".join(part for triple in found for part in self._expand(*triple, scope, certain)), at

    def _may_be_steps(self, found: Sequence[PathTriple]) -> bool:
        """Whether a path is to be written as patterns of one step, and all of ``found`` can be. The variables that this
        draws would be values of a ``DISTINCT *``."""
        paths = [path for _, path, _ in found]
        if any(path.has_kind("any") for path in paths):
            return False
        if self._stars and any(path.has_kind("other") or path.has_kind("sequence") for path in paths):
            return False
        return any(path.has_kind("other") or path.has_kind("alternative") for path in paths)

    def _step_or_expand(self, triple: PathTriple, scope: _Scope) -> str:
        """In one graph: a plain pattern as it is, so that it stays a part of one join."""
        subject, path, value = triple
        if path.kind == "step" and scope.graphs == ("",):
            return f"{subject} {path.text} {value} ."
        return " ".join(self._expand(subject, path, value, scope, False))

    def _begins_triple(self, at: int) -> bool:
        token = self._token_at(at)
        return token.kind in TERM_KINDS or token.text in ("true", "false") or self._mark_at(at) in ("[", "(", "+", "-")

    def _verbatim(self, at: int, end: int) -> str:
        pieces, last = list[str](), self._token_at(at).start
        for index in range(at, end):
            token = self._token_at(index)
            if token.kind == "BLANK":
                pieces += (self._text[last : token.start], self._reader.variable_of(token.text))
                last = token.end
        return "".join([*pieces, self._text[last : self._token_at(end - 1).end]])

    def _expand(self, subject: str, path: PropertyPath, value: str, scope: _Scope, certain: bool) -> list[str]:
        """The elements of a group that match one path."""
        match path.kind:
            case "step":
                return [self._alternatives(TriplePattern(subject, path.text, value), scope, certain)]
            case "other":
                verb = self._fresh.draw()
                but = f" FILTER({verb} NOT IN ({path.text}))" if path.text else ""
                return [self._alternatives(TriplePattern(subject, verb, value), scope, False, but)]
            case "inverse":
                return self._expand(value, path.parts[0], subject, scope, certain)
            case "sequence":
                nodes = [subject, *(self._fresh.draw() for _ in path.parts[1:]), value]
                return [
                    part
                    for index, step in enumerate(path.parts)
                    for part in self._expand(nodes[index], step, nodes[index + 1], scope, certain)
                ]
            case "alternative":
                branches = [" ".join(self._expand(subject, each, value, scope, False)) for each in path.parts]
                return [" UNION ".join(f"{{ {branch} }}" for branch in branches)]
            case _:
                raise UnsupportedPattern("a path of any length")

    def _alternatives(self, triple: TriplePattern, scope: _Scope, certain: bool, but: str = "") -> str:
        """One pattern in each graph. ``but``: a filter of it."""
        text = triple.text() + but
        graphs = scope.graphs
        self._parts += 2 if graphs is None else len(graphs)
        if self._parts > PARTS_MAX:
            raise UnsupportedPattern(f"more than {PARTS_MAX // 2} patterns")
        if graphs is None:
            graph = self._fresh.draw()
            mark = ""
            if certain and triple in self._wanted and triple not in self.covered:
                self.covered[triple] = CoveredPattern(self._fresh.draw(), graph)
                mark = f" BIND({triple.subject} AS {self.covered[triple].subject})"
            return f"{{ {text}{mark} }} UNION {{ GRAPH {graph} {{ {text} }} }}"
        if not graphs:
            return f"{{ {text} FILTER(false) }}"
        return " UNION ".join(f"{{ GRAPH {graph} {{ {text} }} }}" if graph else f"{{ {text} }}" for graph in graphs)


def variable_name(text: str) -> str:
    """The name of a variable: ``?x`` and ``$x`` are one."""
    return text[1:]
