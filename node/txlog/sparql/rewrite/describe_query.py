"""``DESCRIBE`` through blank nodes, for stores that hold a blank node as an IRI (``skolem_iris.py``).

RDF4J describes a resource by its statements and by those that have it as their object. A blank node that is the object
of the first kind is described by its own statements, one that is the subject of the second kind by the statements that
have it as their object, and so on. A store sees IRIs there and stops. So :func:`describe_steps` asks it for blank nodes
level by level, and :func:`statement_queries` then asks for the statements. No other engine's idea of ``DESCRIBE``
matters.

The functions are pure: they give texts of queries and get rows. The caller sends the texts.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyoxigraph

from txlog.model.errors import TooLarge
from txlog.sparql.skolem_iris import SKOLEM_PREFIX
from txlog.sparql.tokens import Token, TokenCursor, significant_tokens

NODES_MAX: Final = 100_000
"""Resources and blank nodes of one description. Their names are in memory, some 10 MB."""
NODES_PER_QUERY: Final = 500
"""Names in one text. A description of at most so many is read by one query, so as of one moment."""
ROWS_BYTES_MAX: Final = 64 << 20
"""Bytes of one answer with rows."""

Row = Mapping[str, str]
"""A solution: terms as SPARQL writes them, by variable, without blank nodes and unbound variables."""


class DescribeQuery(NamedTuple):
    """A DESCRIBE in parts. ``constants``: the resources that it names, as written. ``dataset``: its FROM clauses.
    ``solutions``: the query for the other resources, or whether there are solutions; "" if it needs none."""

    prologue: str
    constants: tuple[str, ...]
    dataset: str
    solutions: str


class Description(NamedTuple):
    """Nodes whose statements belong to a description, and nodes that are objects of statements of it."""

    subjects: list[str]
    objects: list[str]


def parse_describe(text: str) -> DescribeQuery | None:
    """The parts of a DESCRIBE; None for a text that is none, or is malformed before its WHERE."""
    return _DescribeParser(text).parse()


class _DescribeParser(TokenCursor):
    def __init__(self, text: str) -> None:
        self._text = text
        super().__init__(significant_tokens(text), Token("END", "", len(text)))
        self._at = 0

    def _word(self) -> str:
        return self._word_at(self._at)

    def _kind(self) -> str:
        return self._token_at(self._at).kind

    def _is_iri(self) -> bool:
        return self._kind() in ("IRI", "PNAME")

    def parse(self) -> DescribeQuery | None:
        while self._word() in ("BASE", "PREFIX"):
            self._at += 2 if self._word() == "BASE" else 3
        if self._word() != "DESCRIBE":
            return None
        prologue = self._text[: self._token_at(self._at).start]
        self._at += 1
        variables, constants = self._resources()
        dataset = self._dataset()
        if (not variables and not constants) or dataset is None:
            return None
        rest = self._text[self._token_at(self._at).start :]
        if not rest:
            return DescribeQuery(prologue, tuple(constants), dataset, "" if constants else f"{prologue}ASK {{ }}")
        where = rest if self._word() == "WHERE" or self._mark_at(self._at) == "{" else f"{{ }} {rest}"
        return DescribeQuery(prologue, tuple(constants), dataset, self._solutions(prologue, variables, dataset, where))

    def _resources(self) -> tuple[list[str], list[str]]:
        variables, constants = list[str](), list[str]()
        if self._mark_at(self._at) == "*":
            self._at += 1
            return ["*"], constants
        while self._kind() == "VARIABLE" or self._is_iri():
            (constants if self._is_iri() else variables).append(self._token_at(self._at).text)
            self._at += 1
        return variables, constants

    def _dataset(self) -> str | None:
        """The FROM clauses; None for a malformed one."""
        start = self._token_at(self._at).start
        while self._word() == "FROM":
            self._at += 2 if self._word_at(self._at + 1) == "NAMED" else 1
            if not self._is_iri():
                return None
            self._at += 1
        return self._text[start : self._token_at(self._at).start]

    def _solutions(self, prologue: str, variables: Sequence[str], dataset: str, where: str) -> str:
        if not variables:
            return f"{prologue}ASK {dataset}{where}"
        # What LIMIT counts are solutions, also equal ones.
        limited = any(self._word_at(at) in ("LIMIT", "OFFSET") for at in self._outside_groups())
        return f"{prologue}SELECT {'' if limited else 'DISTINCT '}{' '.join(variables)} {dataset}{where}"

    def _outside_groups(self) -> Iterable[int]:
        depth, at = 0, self._at
        while self._token_at(at).kind != "END":
            mark = self._mark_at(at)
            depth += (mark in ("{", "(")) - (mark in ("}", ")"))
            if not depth:
                yield at
            at += 1


def describe_steps(query: DescribeQuery, nodes_max: int = NODES_MAX) -> Generator[str, Sequence[Row], Description]:
    """Yields the texts of queries in turn, expects the rows of each, and returns what to describe. An ASK has a row
    without variables for true, and none for false. Raises :class:`TooLarge` above ``nodes_max`` nodes."""
    found = dict.fromkeys(query.constants)
    if query.solutions:
        rows = yield query.solutions
        if not rows:
            return Description([], [])
        for row in rows:
            found |= dict.fromkeys(row.values())
            _check_size(len(found), nodes_max)
    objects = list(found)
    subjects = [term for term in objects if not term.startswith('"')]
    first = _FirstLevel()
    for part in _parts(objects):
        first.add(
            (yield _neighbours_query(query, [term for term in part if not term.startswith('"')], part, nodes_max))
        )
        _check_size(len(objects) + len(first.outgoing) + len(first.incoming), nodes_max)
    outgoing = yield from _follow(query, first.outgoing, _OUT, nodes_max, len(objects))
    # RDF4J does not go back through a blank node that it has gone through.
    start = {term: None for term in first.incoming if term not in outgoing}
    incoming = yield from _follow(query, start, _IN, nodes_max, len(objects), outgoing)
    return Description(list(dict.fromkeys([*subjects, *outgoing])), list(dict.fromkeys([*objects, *incoming])))


_OUT, _IN = "out", "in"


class _FirstLevel:
    """The blank nodes beside the resources, in the order in which they were found."""

    def __init__(self) -> None:
        self.outgoing: dict[str, None] = {}
        self.incoming: dict[str, None] = {}

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for name, into in ((_OUT, self.outgoing), (_IN, self.incoming)):
                if name in row:
                    into[row[name]] = None


def _follow(
    query: DescribeQuery,
    start: Mapping[str, None],
    name: str,
    nodes_max: int,
    resources: int,
    passed: Mapping[str, None] = {},
) -> Generator[str, Sequence[Row], dict[str, None]]:
    """The blank nodes of ``start`` and all that are behind them in one direction, but for those ``passed``."""
    found, level = dict(start), list(start)
    while level:
        behind = dict[str, None]()
        for part in _parts(level):
            rows = yield _neighbours_query(query, part if name == _OUT else (), part if name == _IN else (), nodes_max)
            behind |= {row[name]: None for row in rows if row[name] not in found and row[name] not in passed}
            _check_size(resources + len(passed) + len(found) + len(behind), nodes_max)
        found |= behind
        level = list(behind)
    return found


def _parts(nodes: Sequence[str]) -> Iterator[Sequence[str]]:
    return (nodes[at : at + NODES_PER_QUERY] for at in range(0, len(nodes), NODES_PER_QUERY))


def _check_size(nodes: int, nodes_max: int) -> None:
    if nodes > nodes_max:
        raise TooLarge(
            f"DESCRIBE: its resources and the blank nodes behind them are more than {NODES_MAX:,}; "
            "describe fewer of them, or ask for the statements with CONSTRUCT"
        )


def _neighbours_query(query: DescribeQuery, subjects: Sequence[str], objects: Sequence[str], nodes_max: int) -> str:
    """For the blank nodes beside these nodes. One row more than there may be nodes: so a cut answer is too large."""
    parts = [
        f"{{ VALUES ?s {{ {' '.join(nodes)} }} {pattern} FILTER(isIRI(?{name}) "
        f'&& STRSTARTS(STR(?{name}), "{SKOLEM_PREFIX}")) }}'
        for nodes, pattern, name in ((subjects, "?s ?p ?out", _OUT), (objects, "?in ?p ?s", _IN))
        if nodes
    ]
    names = " ".join(f"?{name}" for nodes, name in ((subjects, _OUT), (objects, _IN)) if nodes)
    return (
        f"{query.prologue}SELECT DISTINCT {names} {query.dataset}WHERE {{ {' UNION '.join(parts)} }} "
        f"LIMIT {nodes_max + 1}"
    )


def statement_queries(query: DescribeQuery, found: Description) -> list[str]:
    """The queries that give the statements, one at least. A statement may be in the answers of two."""
    parts = [
        *((f"VALUES ?s {{ {' '.join(nodes)} }} ?s ?p ?o", len(nodes)) for nodes in _parts(found.subjects)),
        *((f"VALUES ?o {{ {' '.join(nodes)} }} ?s ?p ?o", len(nodes)) for nodes in _parts(found.objects)),
    ]
    groups, size = list[list[str]](), NODES_PER_QUERY
    for part, nodes in parts:
        if size + nodes > NODES_PER_QUERY:
            groups.append([])
            size = 0
        groups[-1].append(f"{{ {part} }}")
        size += nodes
    head = f"{query.prologue}CONSTRUCT {{ ?s ?p ?o }} {query.dataset}WHERE"
    return [f"{head} {{ {' UNION '.join(group)} }}" for group in groups] or [f"{head} {{ ?s ?p ?o }} LIMIT 0"]


def read_rows(results: bytes) -> list[Row]:
    """The rows of an answer in SPARQL's JSON. ValueError for another text."""
    answer: dict[str, Any] = json.loads(results)
    if "boolean" in answer:
        return [{}] if answer["boolean"] else []
    return [
        {name: text for name, value in row.items() if (text := _term_text(value))}
        for row in answer["results"]["bindings"]
    ]


def _term_text(term: Mapping[str, Any]) -> str:
    """As SPARQL writes it; "" for what no query can name."""
    try:
        if term["type"] == "uri":
            return str(pyoxigraph.NamedNode(term["value"]))
        if term["type"] in ("literal", "typed-literal"):
            return str(_literal(term))
    except ValueError:
        pass
    return ""


def _literal(term: Mapping[str, Any]) -> pyoxigraph.Literal:
    if "xml:lang" in term:
        return pyoxigraph.Literal(term["value"], language=term["xml:lang"])
    kind = term.get("datatype")
    return pyoxigraph.Literal(term["value"], datatype=None if kind is None else pyoxigraph.NamedNode(kind))
