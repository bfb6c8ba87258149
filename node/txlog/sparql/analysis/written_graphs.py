"""Which graphs a transaction may write, read from what workers execute.

The normalised form decides, and not the client's text: there each IRI is written in full, and the graphs of a request
(``using-graph-uri`` and the others), RDF4J's meaning of an update without a graph, and the content of ``LOAD`` are
written out. Templates bound what an operation writes. A variable in place of a graph's name does not.

Source: SPARQL 1.1 Update, sections 3.1 and 3.2.
"""

from __future__ import annotations

from typing import Final

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.graph_set import EVERY_GRAPH, NO_GRAPH, GraphSet, WrittenGraphs, unite_graphs
from txlog.model.quads import decode_quads, split_graph
from txlog.sparql.terms import iri_text
from txlog.sparql.tokens import TokenCursor, tokens_by_operation
from txlog.sparql.transaction_body import TransactionBody

DEFAULT_ONLY: Final = GraphSet(default=True)


def find_written_graphs(body: TransactionBody) -> WrittenGraphs:
    """A superset of the graphs in which this transaction can change a quad, in any store. ``EVERY_GRAPH`` where no list
    of graphs is one."""
    if body.kind == KIND_QUADS:
        return _graphs_of_quads(body.payload)
    assert body.kind == KIND_UPDATE, body.kind
    found: WrittenGraphs = NO_GRAPH
    for operation in tokens_by_operation(body.payload.decode()):
        found = unite_graphs(found, _OperationReader(operation).read())
    return found


def _graphs_of_quads(payload: bytes) -> WrittenGraphs:
    graphs = {split_graph(line)[1] for _, line in decode_quads(payload)}
    return GraphSet(frozenset(iri_text(graph.decode()) for graph in graphs if graph), b"" in graphs)


class _OperationReader(TokenCursor):
    """Reads what one operation names as its target. Anything unexpected counts as every graph."""

    def read(self) -> WrittenGraphs:
        """The graphs of the operation."""
        word = self._word_at(0)
        if word in ("INSERT", "DELETE", "WITH"):
            return self._modify()
        at = 1 + (self._word_at(1) == "SILENT")
        if word in ("CLEAR", "DROP", "CREATE"):
            return self._managed_graph(at)
        if word in ("COPY", "MOVE", "ADD"):
            source, end = self._graph_or_default(at)
            if self._word_at(end) != "TO":
                return EVERY_GRAPH
            target, _ = self._graph_or_default(end + 1)
            return unite_graphs(source, target) if word == "MOVE" else target
        if word == "LOAD" and [self._word_at(at + 1), self._word_at(at + 2)] == ["INTO", "GRAPH"]:
            return self._named(at + 3)
        return EVERY_GRAPH  # LOAD without a graph: the document may name any

    def _managed_graph(self, at: int) -> WrittenGraphs:
        word = self._word_at(at)
        if word == "DEFAULT":
            return DEFAULT_ONLY
        return self._named(at + 1) if word == "GRAPH" else EVERY_GRAPH  # NAMED, ALL

    def _graph_or_default(self, at: int) -> tuple[WrittenGraphs, int]:
        if self._word_at(at) == "DEFAULT":
            return DEFAULT_ONLY, at + 1
        at += self._word_at(at) == "GRAPH"
        return self._named(at), at + 1

    def _named(self, at: int) -> WrittenGraphs:
        """The graph that an IRI names. A variable may be any."""
        token = self._token_at(at)
        return GraphSet(frozenset((iri_text(token.text),))) if token.kind == "IRI" else EVERY_GRAPH

    def _modify(self) -> WrittenGraphs:
        """``WITH``, and the templates of ``DELETE`` and ``INSERT``: those of DATA, and the pattern of DELETE WHERE, are
        templates, too."""
        at = 0
        plain: WrittenGraphs = DEFAULT_ONLY
        if self._word_at(0) == "WITH":
            at, plain = 2, self._named(1)
        found: WrittenGraphs = NO_GRAPH
        has_template = False
        while self._word_at(at) in ("INSERT", "DELETE"):
            at += 1 + (self._word_at(at + 1) in ("DATA", "WHERE"))
            if self._mark_at(at) != "{":
                return EVERY_GRAPH
            graphs, at = self._template(at + 1, plain)
            found, has_template = unite_graphs(found, graphs), True
        return found if has_template else EVERY_GRAPH

    def _template(self, at: int, plain: WrittenGraphs) -> tuple[WrittenGraphs, int]:
        """The graphs of a template and the index behind its brace. ``plain``: where triples outside of GRAPH go."""
        found: WrittenGraphs = NO_GRAPH
        while at < len(self._toks):
            mark = self._mark_at(at)
            if mark == "}":
                return found, at + 1
            if self._word_at(at) == "GRAPH":
                found = unite_graphs(found, self._named(at + 1))
                at = self._block_end(at + 2)
                continue
            if mark != ".":
                found = unite_graphs(found, plain)
            at += 1
        return EVERY_GRAPH, at

    def _block_end(self, at: int) -> int:
        """The index behind the block that opens at ``at``. Templates have no braces inside a GRAPH."""
        while at < len(self._toks) and self._mark_at(at) != "}":
            at += 1
        return at + 1
