"""Patterns that match several graphs as one, written in plain SPARQL.

A triple pattern becomes the union of its matches in each graph: ``{ t } UNION { GRAPH ?g { t } }`` for all graphs. Each
quad is one solution, as in RDF4J. Such parts are joined like the triples of one pattern, so blank nodes become
variables, and a sequence, an alternative or an inverse of a path becomes patterns of one step. A path of any length
over several graphs cannot be written this way.

Source: SPARQL 1.1 Query Language, sections 18.2.2 (translation of patterns) and 19.8 (productions 53 to 113).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from txlog.sparql.tokens import END, Token, TokenCursor

PARTS_MAX: Final = 250
"""Parts of unions in one operation. Some thousand of them overflow the stack of a store's parser."""
_TERMS: Final = ("VARIABLE", "IRI", "BLANK", "STRING", "NUMBER")
_FIRST: Final = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#first>"
_REST: Final = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#rest>"
_NIL: Final = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#nil>"
NO_GRAPH_NAMES: Final = ("<http://www.openrdf.org/schema/sesame#nil>", "<http://rdf4j.org/schema/rdf4j#nil>")
"""RDF4J's names of the default graph."""


class UnsupportedPattern(Exception):
    """A pattern over several graphs that plain SPARQL cannot express."""


class TriplePattern(NamedTuple):
    """One pattern: the texts of its terms. ``verb`` is a term, or a negated property set."""

    subject: str
    verb: str
    value: str

    def text(self) -> str:
        """The pattern as SPARQL."""
        return f"{self.subject} {self.verb} {self.value}"


class CoveredPattern(NamedTuple):
    """A pattern in all graphs that every solution matches. ``subject`` is bound to the subject where it matched in the
    default graph; ``graph`` to the other graph where it matched there."""

    subject: str
    graph: str


class PropertyPath(NamedTuple):
    """``kind``: ``step`` (``text``: a term or a negated set), ``inverse``, ``sequence``, ``alternative`` or ``any`` (of
    any length)."""

    kind: str
    text: str = ""
    parts: tuple[PropertyPath, ...] = ()


PathTriple = tuple[str, PropertyPath, str]


class _Scope(NamedTuple):
    """The graphs that a group reads: as ``default`` of :class:`PatternWriter`. ``inside``: a ``GRAPH`` around it
    names the graph."""

    graphs: tuple[str, ...] | None
    inside: bool = False


_INSIDE: Final = _Scope(("",), inside=True)
_NO_GRAPH: Final = _Scope(("",))


class FreshVariables:
    """Draws variables that an operation does not use."""

    def __init__(self, toks: Sequence[Token]) -> None:
        self._prefix = "g"
        names = {token.text[1:] for token in toks if token.kind == "VARIABLE"}
        while any(name.startswith(self._prefix) for name in names):
            self._prefix += "_"
        self._count = 0

    def draw(self) -> str:
        """Another one, with its question mark."""
        self._count += 1
        return f"?{self._prefix}{self._count}"


class TripleReader(TokenCursor):
    """Reads triples: each method takes the index at which a construct begins, and returns the index after it. Blank
    nodes become variables."""

    def __init__(self, toks: Sequence[Token], fresh: FreshVariables) -> None:
        super().__init__(toks)
        self.fresh = fresh
        self._labels: dict[str, str] = {}

    def variable_of(self, label: str) -> str:
        """The variable in place of a blank node's label."""
        if label not in self._labels:
            self._labels[label] = self.fresh.draw()
        return self._labels[label]

    def same_subject(self, at: int) -> tuple[list[PathTriple], int]:
        """The triples of one subject."""
        found: list[PathTriple] = []
        alone = self._mark_at(at) in ("[", "(")
        subject, at = self._node(at, found)
        if not (alone and not self._is_verb(at)):
            at = self._properties(subject, at, found)
        return found, at

    def _is_verb(self, at: int) -> bool:
        token = self._token_at(at)
        return token.kind in ("VARIABLE", "IRI") or token.text == "a" or self._mark_at(at) in ("^", "!", "(")

    def _properties(self, subject: str, at: int, found: list[PathTriple]) -> int:
        while True:
            path, at = self._verb(at)
            while True:
                inside: list[PathTriple] = []
                value, at = self._node(at, inside)
                found += [(subject, path, value), *inside]
                if self._mark_at(at) != ",":
                    break
                at += 1
            while self._mark_at(at) == ";":
                at += 1
                if self._is_verb(at):
                    break
            else:
                return at

    def _node(self, at: int, found: list[PathTriple]) -> tuple[str, int]:
        token, mark = self._token_at(at), self._mark_at(at)
        if token.kind == "BLANK":
            return self.variable_of(token.text), at + 1
        if token.kind == "STRING":
            if self._token_at(at + 1).kind == "LANGUAGE":
                return token.text + self._token_at(at + 1).text, at + 2
            if self._mark_at(at + 1) == "^^":
                return f"{token.text}^^{self._token_at(at + 2).text}", at + 3
            return token.text, at + 1
        if token.kind in _TERMS or token.text in ("true", "false"):
            return token.text, at + 1
        if mark in ("+", "-"):
            return mark + self._token_at(at + 1).text, at + 2
        if mark == "[":
            name = self.fresh.draw()
            return name, (at + 2 if self._mark_at(at + 1) == "]" else self._properties(name, at + 1, found) + 1)
        if mark == "(":
            return self._collection(at + 1, found)
        if mark == "<<(":
            return self._triple_term(at + 1, found)
        raise UnsupportedPattern(token.text or "the end")

    def _triple_term(self, at: int, found: list[PathTriple]) -> tuple[str, int]:
        subject, at = self._node(at, found)
        verb = "a" if self._token_at(at).text == "a" else ""
        predicate, at = (verb, at + 1) if verb else self._node(at, found)
        value, at = self._node(at, found)
        if self._mark_at(at) != ")>>":
            raise UnsupportedPattern("<<(")
        return f"<<( {subject} {predicate} {value} )>>", at + 1

    def _collection(self, at: int, found: list[PathTriple]) -> tuple[str, int]:
        members: list[str] = []
        while self._mark_at(at) != ")":
            member, at = self._node(at, found)
            members.append(member)
        cells = [self.fresh.draw() for _ in members]
        for cell, member, rest in zip(cells, members, [*cells[1:], _NIL], strict=False):
            found += [
                (cell, PropertyPath("step", _FIRST), member),
                (cell, PropertyPath("step", _REST), rest),
            ]
        return (cells[0] if cells else _NIL), at + 1

    # -- paths

    def _verb(self, at: int) -> tuple[PropertyPath, int]:
        token = self._token_at(at)
        if token.kind == "VARIABLE":
            return PropertyPath("step", token.text), at + 1
        return self._path(at)

    def _path(self, at: int) -> tuple[PropertyPath, int]:
        return self._chain(at, "|", "alternative", lambda at: self._chain(at, "/", "sequence", self._step))

    def _chain(
        self, at: int, mark: str, kind: str, read: Callable[[int], tuple[PropertyPath, int]]
    ) -> tuple[PropertyPath, int]:
        first, at = read(at)
        parts = [first]
        while self._mark_at(at) == mark:
            part, at = read(at + 1)
            parts.append(part)
        return (first if len(parts) == 1 else PropertyPath(kind, parts=tuple(parts))), at

    def _step(self, at: int) -> tuple[PropertyPath, int]:
        token, mark = self._token_at(at), self._mark_at(at)
        if mark == "^":
            path, at = self._step(at + 1)
            return PropertyPath("inverse", parts=(path,)), at
        if mark == "!":
            end = at + 1
            if self._mark_at(end) == "(":
                while self._mark_at(end) != ")":
                    end += 1
            elif self._mark_at(end) == "^":
                end += 1
            text = " ".join(self._token_at(index).text for index in range(at, end + 1))
            path, at = PropertyPath("step", text), end + 1
        elif mark == "(":
            path, at = self._path(at + 1)
            at += 1
        elif token.kind == "IRI" or token.text == "a":
            path, at = PropertyPath("step", token.text), at + 1
        else:
            raise UnsupportedPattern(token.text or "the end")
        if self._mark_at(at) in ("*", "+", "?") and not self._is_signed_number(at):
            return PropertyPath("any"), at + 1
        return path, at

    def _is_signed_number(self, at: int) -> bool:
        """Whether a plus is the sign of a number, as in ``<a:p> +2``."""
        sign, number = self._token_at(at), self._token_at(at + 1)
        return sign.text == "+" and number.kind == "NUMBER" and number.start == sign.start + 1


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
        end = self._end_of_group(at)
        alone = self._word_at(end) != "UNION"
        inside, at = self._group(at, scope, certain and alone)
        parts = [inside]
        while self._word_at(at) == "UNION":
            inside, at = self._group(at + 1, scope, False)
            parts.append(inside)
        return " UNION ".join(f"{{ {part} }}" for part in parts), at

    def _end_of_group(self, at: int) -> int:
        depth = 0
        while self._token_at(at) is not END:
            depth += {"{": 1, "}": -1}.get(self._mark_at(at), 0)
            at += 1
            if not depth:
                return at
        raise UnsupportedPattern("the end")

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
            if self._token_at(at) is END:
                raise UnsupportedPattern("the end")
            out.append(self._token_at(at).text)
            at += 1
        part, at = self._bracket(at, scope)
        return f"{' '.join(out)}{part}", at

    def _bracket(self, at: int, scope: _Scope) -> tuple[str, int]:
        """A group, or an expression in parentheses; its text is kept, its groups are written again."""
        if self._mark_at(at) == "{":
            inside, at = self._group(at, scope, False)
            return f" {{ {inside} }}", at
        out: list[str] = []
        start, depth = self._token_at(at).start, 0
        while True:
            token = self._token_at(at)
            if token is END:
                raise UnsupportedPattern("the end")
            if self._mark_at(at) == "{":
                out.append(self._text[start : token.start])
                inside, at = self._group(at, scope, False)
                out.append(f"{{ {inside} }}")
                start = _end(self._token_at(at - 1))
                continue
            depth += {"(": 1, ")": -1}.get(self._mark_at(at), 0)
            at += 1
            if not depth:
                out.append(self._text[start : _end(token)])
                return "".join(out), at

    def _values(self, at: int, certain: bool) -> tuple[str, int]:
        start, undefined, names = self._token_at(at).start, False, set[str]()
        while self._mark_at(at) != "}":
            token = self._token_at(at)
            if token is END:
                raise UnsupportedPattern("the end")
            undefined = undefined or self._word_at(at) == "UNDEF"
            if token.kind == "VARIABLE":
                names.add(variable_name(token.text))
            at += 1
        if certain and not undefined:
            self.bound |= names
        return self._text[start : _end(self._token_at(at))], at + 1

    def _select(self, at: int, scope: _Scope) -> tuple[str, int]:
        """A SELECT inside of a group, up to after the brace that closes the group."""
        out: list[str] = []
        self._refuse_distinct_star(at, is_one_graph=scope.graphs is not None and len(scope.graphs) == 1)
        pattern = False
        while self._mark_at(at) != "}":
            token = self._token_at(at)
            if token is END:
                raise UnsupportedPattern("the end")
            if self._word_at(at) == "VALUES" and pattern:
                part, at = self._values(at, False)
            elif self._mark_at(at) == "{" and not pattern:
                inside, at = self._group(at, scope, False)
                part, pattern = f"{{ {inside} }}", True
            elif self._mark_at(at) == "(":
                part, at = self._bracket(at, scope)
            else:
                part, at = token.text, at + 1
            out.append(part)
        return " ".join(out), at + 1

    def _refuse_distinct_star(self, at: int, *, is_one_graph: bool) -> None:
        """``*`` would be more variables than those of the client: those of graphs, and those in place of labels. It may
        stand before the pattern of the SELECT, and in a HAVING or ORDER BY behind it."""
        depth, has_star, has_label = 0, False, False
        while depth >= 0 and self._token_at(at) is not END:
            depth += (self._mark_at(at) == "{") - (self._mark_at(at) == "}")
            has_star |= not depth and self._word_at(at) == "DISTINCT" and self._mark_at(at + 1) == "*"
            has_label |= self._token_at(at).kind == "BLANK"
            at += 1
        if has_star and (has_label or not is_one_graph):
            raise UnsupportedPattern("DISTINCT *")

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
            text = self._verbatim(start, at)
            return (text if not scope.graphs[0] else f"GRAPH {scope.graphs[0]} {{ {text} }}"), at
        return " ".join(part for triple in found for part in self._expand(*triple, scope, certain)), at

    def _begins_triple(self, at: int) -> bool:
        token = self._token_at(at)
        return token.kind in _TERMS or token.text in ("true", "false") or self._mark_at(at) in ("[", "(", "+", "-")

    def _verbatim(self, at: int, end: int) -> str:
        pieces, last = list[str](), self._token_at(at).start
        for index in range(at, end):
            token = self._token_at(index)
            if token.kind == "BLANK":
                pieces += (self._text[last : token.start], self._reader.variable_of(token.text))
                last = _end(token)
        return "".join([*pieces, self._text[last : _end(self._token_at(end - 1))]])

    def _expand(self, subject: str, path: PropertyPath, value: str, scope: _Scope, certain: bool) -> list[str]:
        """The elements of a group that match one path."""
        match path.kind:
            case "step":
                return [self._alternatives(TriplePattern(subject, path.text, value), scope, certain)]
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

    def _alternatives(self, triple: TriplePattern, scope: _Scope, certain: bool) -> str:
        text = triple.text()
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


def _end(token: Token) -> int:
    return token.start + len(token.text)
