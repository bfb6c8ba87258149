"""The graphs that an operation of an update works on, as RDF4J chooses them, and the operation in plain SPARQL.

Without ``WITH``, ``USING`` and parameters, patterns match all graphs and a deletion deletes from all of them. A request
may send a data set beside its update. Parts of it stay in force where the update names graphs of its own
(:func:`active_dataset`). The result is one operation that every store executes itself: no parameter and no other
meaning of the default graph is left in it.

Source: RDF4J's documentation of ``SimpleDataset`` and of the REST parameters; ``docs/decisions``, number 59, has the
experiments with a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from txlog.model.quads import split_graph
from txlog.sparql.rewrite.pattern_union import NO_GRAPH_NAMES, CoveredPattern, PatternWriter, variable_name
from txlog.sparql.rewrite.triple_reader import FreshVariables, TriplePattern, TripleReader
from txlog.sparql.rewrite.union_semantics import has_term_outside_graph
from txlog.sparql.tokens import Token, UnsupportedPattern, closing_index, significant_tokens, word_at

ABSENT: Final = "<urn:txlog:absent>"
"""Stands for an unbound variable. A quad that held it would be found in vain: its template has the variable."""
REMOVALS_MAX: Final = 200
"""Patterns of one operation that are searched in all graphs because they are to be removed from them."""


class RequestDataset(NamedTuple):
    """The graphs of a request beside its update: ``<iri>``, "" for the default graph."""

    using: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    insert: str = ""


class UpdateDataset(NamedTuple):
    """The graphs that one operation works on; None: all of them. ``default``: together they are the default graph of
    its pattern. ``named``: those that GRAPH may name there. ``remove``, ``insert``: the graphs from which triples
    outside of GRAPH are deleted, and into which they are inserted."""

    default: tuple[str, ...] | None
    named: tuple[str, ...] | None
    remove: tuple[str, ...] | None
    insert: str


class DatasetClauses(NamedTuple):
    """What an operation says itself: ``WITH`` ("" without), ``USING`` and ``USING NAMED``."""

    with_graph: str = ""
    using: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


class ParsedOperation(NamedTuple):
    """An operation of ``DELETE`` and ``INSERT``: the tokens inside the braces of its templates (None without such a
    clause). ``where``: the index of the brace that opens its pattern. ``same``: it is ``DELETE WHERE``."""

    clauses: DatasetClauses
    delete: Sequence[Token] | None
    insert: Sequence[Token] | None
    where: int
    same: bool


def active_dataset(own: DatasetClauses, request: RequestDataset | None) -> UpdateDataset:
    """The data set of an operation. ``WITH`` replaces what the request says of removals, insertions and plain patterns;
    ``USING`` replaces its graphs of patterns. Without a request's data set, GRAPH beside ``WITH`` names any graph, as
    in SPARQL."""
    if own.with_graph:
        default = own.using or (own.with_graph,)
        named: tuple[str, ...] | None = _named(own.named) if own.using or own.named else None
        if request is not None:
            named = _named(request.named)
        return UpdateDataset(_real(default), named, _real((own.with_graph,)), own.with_graph)
    sent = request or RequestDataset()
    default = own.using or sent.using
    named = own.named or (() if own.using else sent.named)
    reads_all = not default and not named
    return UpdateDataset(
        None if reads_all else _real(default),
        None if reads_all else _named(named),
        _real(sent.remove) or None,
        sent.insert,
    )


def _real(graphs: Sequence[str]) -> tuple[str, ...]:
    """The graphs; RDF4J's names of the default graph are the default graph."""
    return tuple("" if graph in NO_GRAPH_NAMES else graph for graph in graphs)


def _named(graphs: Sequence[str]) -> tuple[str, ...]:
    """Those that ``GRAPH`` can name: the default graph is none of them."""
    return tuple(graph for graph in _real(graphs) if graph)


def restrict_lines(lines: list[bytes], request: RequestDataset, *, adds: bool) -> list[bytes]:
    """The quads (lines of N-Quads) of INSERT DATA or DELETE DATA, those without a graph in the graphs of the
    request."""
    graphs = (request.insert,) if adds else _real(request.remove)
    if graphs in ((), ("",)):
        return lines
    found: list[bytes] = []
    for line in lines:
        triple, named = split_graph(line)
        ends = [named.decode()] if named else graphs
        found += [b"%s %s ." % (triple.rstrip(), end.encode()) if end else b"%s ." % triple.rstrip() for end in ends]
    return found


def parse_operation(toks: Sequence[Token]) -> ParsedOperation | None:
    """The parts of an operation without spaces and comments; None for one that is no ``DELETE`` or ``INSERT`` with a
    pattern."""
    with_graph, at = "", 0
    if word_at(toks, 0) == "WITH":
        with_graph, at = toks[1].text, 2
    templates: dict[str, Sequence[Token]] = {}
    using: list[str] = []
    named: list[str] = []
    for verb in ("DELETE", "INSERT"):
        if word_at(toks, at) == verb and word_at(toks, at + 1) != "WHERE":
            if word_at(toks, at + 1) == "DATA":
                return None
            end = closing_index(toks, at + 1)
            templates[verb], at = toks[at + 2 : end], end + 1
    same = not templates and word_at(toks, at) == "DELETE"
    at += same
    while word_at(toks, at) == "USING":
        is_named = word_at(toks, at + 1) == "NAMED"
        at += 1 + is_named
        (named if is_named else using).append(toks[at].text)
        at += 1
    if word_at(toks, at) != "WHERE" or not (templates or same):
        return None
    delete = toks[at + 2 : closing_index(toks, at + 1)] if same else templates.get("DELETE")
    clauses = DatasetClauses(with_graph, tuple(using), tuple(named))
    return ParsedOperation(clauses, delete, templates.get("INSERT"), at + 1, same)


def apply_dataset(text: str, request: RequestDataset | None) -> str:
    """A normalised operation (full IRIs, valid) in plain SPARQL, with the graphs that RDF4J would give it. Operations
    without a pattern are returned unchanged. Raises :class:`UnsupportedPattern`."""
    toks = significant_tokens(text)
    operation = parse_operation(toks)
    if operation is None:
        return text
    dataset = active_dataset(operation.clauses, request)
    if _means_the_same(operation, dataset, toks, request):
        return write_path_steps(text, toks, operation.where)
    return _Writer(text, toks, operation, dataset).run()


def write_path_steps(text: str, toks: Sequence[Token], where: int) -> str:
    """The same operation with its negated sets and alternatives as patterns of one step, where they can be
    (``pattern_union.py`` says why). ``where``: the index of the brace that opens its pattern."""
    if not any(token.kind == "MARK" and token.text in ("!", "|") for token in toks[where:]):
        return text
    writer = PatternWriter(text, toks, FreshVariables(toks), default=("",), named=None)
    try:
        inside = writer.pattern(where)
    except UnsupportedPattern:
        return text
    return f"{text[: toks[where].start]}{{ {inside} }}" if writer.has_written_steps else text


def _means_the_same(
    operation: ParsedOperation, dataset: UpdateDataset, toks: Sequence[Token], request: RequestDataset | None
) -> bool:
    """Whether SPARQL itself gives the operation this data set."""
    if request is not None or any(token.text in NO_GRAPH_NAMES for token in toks):
        return False
    if operation.clauses.with_graph:
        return True
    if has_term_outside_graph(operation.delete or []):
        return False
    return dataset.default is not None or not has_term_outside_graph(toks[operation.where + 1 : -1])


class _Writer:
    """Writes one operation for a data set."""

    def __init__(self, text: str, toks: Sequence[Token], operation: ParsedOperation, dataset: UpdateDataset) -> None:
        self._text = text
        self._toks = toks
        self._operation = operation
        self._dataset = dataset
        self._fresh = FreshVariables(toks)

    def run(self) -> str:
        """The operation."""
        operation, dataset = self._operation, self._dataset
        plain, blocks = self._split(operation.delete or ())
        triples = [triple for part in plain for triple in self._triples(part)]
        wanted = triples if dataset.remove is None else []
        clauses, where, covered, searched = self._where(wanted)
        if searched and any(token.kind == "BLANK" or token.text in ("[", "(") for token in operation.insert or ()):
            # The search repeats a solution for each graph, and each repetition would make blank nodes of its own.
            raise UnsupportedPattern("blank nodes to insert beside a triple to remove from all graphs")
        templates = [*self._deletions(triples, covered, searched), *self._kept_blocks(blocks)]
        head = [f"DELETE {{ {_join_quads(templates)} }}"] if operation.delete is not None else []
        if operation.insert is not None:
            head.append(f"INSERT {{ {self._insertions(operation.insert)} }}")
        return f"{' '.join(head)}{clauses} WHERE {{ {where} }}"

    def _where(
        self, wanted: Sequence[TriplePattern]
    ) -> tuple[str, str, dict[TriplePattern, CoveredPattern], dict[TriplePattern, str]]:
        """Clauses and contents of the pattern; and for each wanted triple the variables of its graphs, or the one
        variable of a search for it."""
        dataset, at = self._dataset, self._operation.where
        given = dataset.default
        is_plain = given is not None and "" not in given and dataset.named is not None and (given or dataset.named)
        if is_plain and not wanted and given is not None and dataset.named is not None:
            clauses = "".join([f" USING {each}" for each in given] + [f" USING NAMED {each}" for each in dataset.named])
            inside = self._text[self._toks[at].start + 1 : self._toks[-1].start]
            return clauses, inside, {}, {}
        writer = PatternWriter(
            self._text, self._toks, self._fresh, default=given, named=dataset.named, wanted=frozenset(wanted)
        )
        where = writer.pattern(at)
        searched = {triple: self._fresh.draw() for triple in dict.fromkeys(wanted) if triple not in writer.covered}
        if len(searched) > REMOVALS_MAX:
            raise UnsupportedPattern(f"more than {REMOVALS_MAX} triples to remove from all graphs")
        if searched:
            where = self._search(where, searched, writer.bound)
        return "", where, writer.covered, searched

    def _search(self, where: str, searched: dict[TriplePattern, str], bound: set[str]) -> str:
        """The pattern, joined with the named graphs that hold the triples of each solution. A variable that may be
        unbound is searched under another name, so that the search does not bind it."""
        renamed: dict[str, str] = {}
        branches: list[str] = []
        for triple, graph in searched.items():
            terms: list[str] = []
            for term in triple:
                if term[:1] in ("?", "$") and variable_name(term) not in bound:
                    term = renamed.setdefault(
                        variable_name(term), renamed.get(variable_name(term)) or self._fresh.draw()
                    )
                terms.append(term)
            branches.append(f"{{ GRAPH {graph} {{ {' '.join(terms)} }} }}")
        binds = " ".join(f"BIND(COALESCE(?{name}, {ABSENT}) AS {other})" for name, other in renamed.items())
        return f"{{ {where} }} {binds} {{}} UNION {' UNION '.join(branches)}"

    # -- templates

    def _split(self, toks: Sequence[Token]) -> tuple[list[Sequence[Token]], list[tuple[Token, str]]]:
        """The parts of a template outside of GRAPH; name and contents of each GRAPH."""
        plain: list[Sequence[Token]] = []
        blocks: list[tuple[Token, str]] = []
        begin = at = 0
        while at <= len(toks):
            if at == len(toks) or word_at(toks, at) == "GRAPH":
                part = toks[begin:at]
                while part and part[0].text == ".":
                    part = part[1:]
                plain += [part] if part else []
                if at == len(toks):
                    break
                end = closing_index(toks, at + 2)
                blocks.append((toks[at + 1], self._text[toks[at + 2].start + 1 : toks[end].start]))
                begin = at = end + 1
            else:
                at += 1
        return plain, blocks

    def _triples(self, toks: Sequence[Token]) -> list[TriplePattern]:
        reader, at = TripleReader(toks, self._fresh), 0
        found: list[TriplePattern] = []
        while at < len(toks):
            if toks[at].text == ".":
                at += 1
                continue
            some, at = reader.same_subject(at)
            found += [TriplePattern(subject, path.text, value) for subject, path, value in some]
        return found

    def _deletions(
        self,
        triples: Sequence[TriplePattern],
        covered: dict[TriplePattern, CoveredPattern],
        searched: dict[TriplePattern, str],
    ) -> list[tuple[str, str]]:
        """Pairs of a graph ("": the default graph) and a triple in it."""
        quads: list[tuple[str, str]] = []
        for triple in triples:
            text = triple.text()
            if self._dataset.remove is not None:
                quads += [(graph, text) for graph in self._dataset.remove]
            elif triple in covered:
                subject, graph = covered[triple]
                quads += [("", triple._replace(subject=subject).text()), (graph, text)]
            else:
                quads += [("", text), (searched[triple], text)]
        return quads

    @staticmethod
    def _kept_blocks(blocks: Sequence[tuple[Token, str]]) -> list[tuple[str, str]]:
        return [("" if name.text in NO_GRAPH_NAMES else name.text, inside) for name, inside in blocks]

    def _insertions(self, toks: Sequence[Token]) -> str:
        """An INSERT template; its triples outside of GRAPH go into the graph of the data set."""
        if not self._dataset.insert:
            return _slice(self._text, toks)
        plain, blocks = self._split(toks)
        quads = [(self._dataset.insert, _slice(self._text, part)) for part in plain]
        return _join_quads([*quads, *((name.text, inside) for name, inside in blocks)])


def _slice(text: str, toks: Sequence[Token]) -> str:
    return text[toks[0].start : toks[-1].end] if toks else ""


def _join_quads(quads: Sequence[tuple[str, str]]) -> str:
    """A template. Triples of the default graph come first: after a GRAPH they would need no dot."""
    plain = [text.strip().removesuffix(".") for graph, text in quads if not graph]
    return " . ".join(text for text in plain if text) + "".join(
        f" GRAPH {graph} {{ {text} }}" for graph, text in quads if graph
    )
