"""Normalises updates for the log: to quads where possible, else to a text with the same result on every worker."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import pyoxigraph

from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import BadInput, NotDeterministic
from txlog.model.quads import split_graph
from txlog.sparql.analysis.empty_graphs import empty_graph_error, may_match_empty_graph, select_counts_graphs
from txlog.sparql.analysis.graph_creation import CreatedGraphs
from txlog.sparql.analysis.predicates import UnknownPredicates, predicates_of
from txlog.sparql.data_blocks import GAP, data_as_trig, data_error, format_data_update, shorten_error
from txlog.sparql.data_fast_path import parse_plain_update
from txlog.sparql.expansion_limit import PARSED_BYTES_MAX, check_expansion, limit_for
from txlog.sparql.load_operation import LoadedDocument, LoadRequest, parse_load
from txlog.sparql.nesting_limit import check_triple_term_nesting
from txlog.sparql.net_effect import build_net_effect
from txlog.sparql.plan_limit import check_plan
from txlog.sparql.prologue import Prologue, SourceMappedText
from txlog.sparql.random_functions import has_single_solution
from txlog.sparql.rdf_upload import (
    Skolemiser,
    check_supported_terms,
    parse,
    refuse_blank_deletes,
    split_lines,
    to_nquads,
)
from txlog.sparql.rewrite.blank_node_functions import tell_blank_nodes
from txlog.sparql.rewrite.reifier_expansion import expand_reifiers
from txlog.sparql.rewrite.token_rewriter import TokenRewriter, may_match_without_triple
from txlog.sparql.rewrite.total_order import make_order_total, remove_order_by
from txlog.sparql.rewrite.triple_term_guard import guard_triple_terms
from txlog.sparql.rewrite.union_semantics import (
    ModifyOperation,
    match_any_named_graph,
    parse_modify,
    rewrite_for_union,
    single_pattern,
    uses_all_graphs,
)
from txlog.sparql.rewrite.update_dataset import RequestDataset, apply_dataset, restrict_lines
from txlog.sparql.terms import DEFAULT_PREFIXES, base_iri
from txlog.sparql.tokens import (
    COMMENT,
    IRI,
    PNAME,
    SPACE,
    TOKEN,
    Token,
    UnsupportedPattern,
    bad_token_error,
    line_column,
    malformed_query,
)
from txlog.sparql.transaction_body import TransactionBody
from txlog.sparql.update_effect import PREDICATES_MAX, EvaluatedOperation, EvaluatedUpdate

_FLAGS = re.DOTALL
_TRIVIA = re.compile(GAP, _FLAGS)
_DATA_HEAD = re.compile(rf"{GAP}(?i:(INSERT|DELETE))(?:{SPACE}|{COMMENT}){GAP}(?i:DATA)\b{GAP}\{{", _FLAGS)
_PREFIX = re.compile(rf"{GAP}(?i:PREFIX)\b{GAP}({PNAME}){GAP}({IRI})", _FLAGS)
_BASE = re.compile(rf"{GAP}(?i:BASE)\b{GAP}({IRI})", _FLAGS)
_END = re.compile(rf"{GAP}(?:(;)|\Z)", _FLAGS)
_OPERATIONS: Final = frozenset(("INSERT", "DELETE", "WITH", "LOAD", "CLEAR", "CREATE", "DROP", "ADD", "MOVE", "COPY"))
_SILENT: Final = frozenset(("CLEAR", "CREATE", "DROP", "ADD", "MOVE", "COPY"))
_ERROR_POSITION = re.compile(r"error at (\d+):(\d+): (.*)", re.DOTALL)

# The first operation fails when it is executed, so the syntax check parses everything and executes nothing.
_FAILING_OPERATION: Final = "DROP GRAPH <x:no-such-graph>;\n"
_syntax_checker = pyoxigraph.Store()


def find_loads(text: str, *, base: str | None) -> list[LoadRequest]:
    """Every ``LOAD`` of an update. Raises as :func:`prepare_update`, except for the ``LOAD`` operations."""
    found: list[LoadRequest] = []
    _UpdateNormaliser(text, base_iri(base), "", lambda: 0, load=found.append).normalise()
    return found


def find_created_graphs(text: str, *, base: str | None) -> list[str]:
    """The graphs (``<iri>``) that must not hold a quad before the update (``analysis/graph_creation.py``). Raises as
    :func:`prepare_update`, and ``Conflict`` where the update itself fills such a graph first."""
    update = _UpdateNormaliser(text, base_iri(base), "", lambda: 0, evaluated_once=True, load=lambda _: None)
    update.normalise()
    return update.created.graphs


def prepare_loaded(
    text: str,
    documents: Mapping[str, LoadedDocument],
    *,
    base: str | None,
    now: str,
    draw: Callable[[], int],
    all_graphs: bool = False,
    dataset: RequestDataset | None = None,
) -> TransactionBody:
    """Prepare an update whose ``LOAD`` operations are replaced by the data of their documents, by URL; a missing
    document adds nothing. In a ``LOAD`` without ``INTO GRAPH`` the graphs are those of the document. Raises as
    :func:`prepare_update`."""
    update = _UpdateNormaliser(
        text,
        base_iri(base),
        now,
        draw,
        load=lambda asked: documents.get(asked.url),
        all_graphs=all_graphs,
        dataset=dataset,
    )
    return update.normalise()


def prepare_update(
    text: str,
    *,
    base: str | None,
    now: str,
    draw: Callable[[], int],
    all_graphs: bool = False,
    dataset: RequestDataset | None = None,
) -> TransactionBody:
    """Prepare a SPARQL 1.1 update as a transaction. ``all_graphs``: its graphs are those that RDF4J would choose, with
    the ``dataset`` of the request (``rewrite/update_dataset.py``).

    ``base`` resolves relative IRIs (``baseURI``). ``now`` is the value of ``NOW()`` (an xsd:dateTime). ``draw`` returns
    128 random bits for the names of blank nodes. When every operation is INSERT DATA or DELETE DATA the result is
    ``KIND_QUADS``: the net effect, the last operation on a quad wins. Otherwise it is ``KIND_UPDATE``: operations
    joined with ``;``, without prologue, comment or trailing ``;``.

    Raises ``NotDeterministic``, ``SystemGraphNamed``, ``TooLarge`` and ``BadInput`` (``MALFORMED QUERY: error at
    line:column``).
    Source: SPARQL 1.1 Update; experiments showed which constructs differ between workers (docs of this package).
    """
    root = base_iri(base)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise malformed_query(text, error.start, "half a surrogate pair is no character") from None
    found = parse_plain_update(text)
    if found is not None and dataset is None and not (all_graphs and _deletes_without_graph(found.payload)):
        return found
    return _UpdateNormaliser(text, root, now, draw, all_graphs=all_graphs, dataset=dataset).normalise()


def _deletes_without_graph(payload: bytes) -> bool:
    """Whether the quads of a plain update are deletions, of the default graph: all of them have one graph."""
    return payload.startswith(b"D") and not split_graph(payload[2 : payload.index(b"\n")])[1]


def prepare_evaluated(
    text: str,
    *,
    base: str | None,
    now: str,
    draw: Callable[[], int],
    all_graphs: bool = False,
    dataset: RequestDataset | None = None,
) -> EvaluatedUpdate:
    """The same for an update that :func:`prepare_update` refused as ``NotDeterministic`` (``evaluated_once``): the
    update to evaluate once. Raises the same errors. ``NotDeterministic`` remains for an update that sends requests to
    other addresses, and for one whose meaning differs between stores even with one evaluation."""
    update = _UpdateNormaliser(
        text, base_iri(base), now, draw, evaluated_once=True, all_graphs=all_graphs, dataset=dataset
    )
    prepared = update.normalise()
    return EvaluatedUpdate(prepared.payload.decode(), update.read_predicates(), update.evaluated_operations())


def is_valid_update(text: str) -> bool:
    """Whether the text is a valid update for a worker. Executes nothing."""
    try:
        _syntax_checker.update(_FAILING_OPERATION + text)
    except SyntaxError:
        return False
    except RuntimeError:
        pass  # the barrier
    return True


class _UpdateNormaliser:
    def __init__(
        self,
        text: str,
        base: str | None,
        now: str,
        draw: Callable[[], int],
        *,
        evaluated_once: bool = False,
        load: Callable[[LoadRequest], LoadedDocument | None] | None = None,
        all_graphs: bool = False,
        dataset: RequestDataset | None = None,
    ) -> None:
        self.text = text
        self.all_graphs = all_graphs
        self.dataset = dataset
        self.created = CreatedGraphs()
        self.scoped: dict[int, str] = {}
        """By index of an operation: its text with the graphs that RDF4J would give it."""
        self.output_graphs: dict[int, tuple[tuple[str, str], ...]] = {}
        """By index of an operation on the union: the graphs to which it writes."""
        self.texts: list[str] = []
        self.evaluated_once = evaluated_once
        self.load = load
        self.draw = draw
        self.limit = limit_for(len(text))
        self.prologue = Prologue(base, self.limit)
        self.parsed_bytes = 0
        """Bytes that the parser has read for data, prefixes included; after it, the expanded size."""
        self.expanded_bytes = 0
        self.now_literal = f'("{now}"^^<{DEFAULT_PREFIXES["xsd"]}dateTime>)'
        self.skolem = Skolemiser(draw)
        self.labels: set[bytes] = set()
        self.data: list[tuple[bool, list[bytes]]] = []
        self.operations: list[SourceMappedText | None] = []

    def normalise(self) -> TransactionBody:
        check_triple_term_nesting(self.text)
        expanded = expand_reifiers(self.text)
        self.text = expanded.text
        try:
            return self._normalise()
        except BadInput as error:
            raise expanded.at_source(error) from None

    def _normalise(self) -> TransactionBody:
        text, at = self.text, 1 if self.text.startswith("\ufeff") else 0
        while True:
            at = self._parse_prologue(at)
            if (head := _DATA_HEAD.match(text, at)) is not None:
                at = self._parse_data(head)
            else:
                at = _TRIVIA.match(text, at).end()  # type: ignore[union-attr]
                if at == len(text):
                    break
                at = self._parse_operation(at)
            end = _END.match(text, at)
            if end is None:
                at = _TRIVIA.match(text, at).end()  # type: ignore[union-attr]
                raise malformed_query(text, at, "expected ; or the end")
            at = end.end()
            if end[1] is None:
                break
        if not self.evaluated_once and all(operation is None for operation in self.operations):
            net = build_net_effect(self.data)
            if net is not None:
                return net
        return self._join_operations()

    def _parse_prologue(self, at: int) -> int:
        text, names = self.text, self.prologue
        while True:
            found = _PREFIX.match(text, at)
            if found is not None:
                if not found[1].endswith(":"):
                    raise malformed_query(text, found.start(1), f"{found[1][:80]} is no prefix; it ends with a colon")
                names.prefixes[found[1][:-1]] = names.expand(text, Token("IRI", found[2], found.start(2)))
            else:
                found = _BASE.match(text, at)
                if found is None:
                    return at
                names.base = names.expand(text, Token("IRI", found[1], found.start(1)))
            at = found.end()

    # -- INSERT DATA and DELETE DATA

    def _parse_data(self, head: re.Match[str]) -> int:
        text, adds = self.text, head[1].upper() == "INSERT"
        piece, at = data_as_trig(text, self.prologue, head.end())
        self.parsed_bytes += sum(len(part) for part, _ in piece)
        check_expansion(self.parsed_bytes, max(PARSED_BYTES_MAX, self.limit))
        try:
            nquads = parse(piece.text(), pyoxigraph.RdfFormat.TRIG, self.prologue.base)
        except SyntaxError as error:
            raise data_error(text, error, piece) from None
        except ValueError as error:
            raise malformed_query(text, head.start(1), str(error)) from None
        check_supported_terms(nquads)
        if adds:
            nquads, labels = self.skolem.skolemise(nquads)
            if labels & self.labels:
                raise malformed_query(
                    text, head.start(1), f"the blank node {min(labels & self.labels).decode()} is of another operation"
                )
            self.labels |= labels
        else:
            refuse_blank_deletes(nquads)
        self.expanded_bytes += len(nquads)
        check_expansion(self.expanded_bytes, self.limit)
        lines = split_lines(nquads)
        if adds:
            self.created.add_quads({split_graph(line)[1] for line in lines})
        if self.dataset is not None:
            lines = restrict_lines(lines, self.dataset, adds=adds)
        if self.all_graphs and not adds and not (self.dataset is not None and self.dataset.remove):
            lines = self._delete_from_all_graphs(lines, head.start(1))
            if not lines:
                return at
        self.data.append((adds, lines))
        self.operations.append(None)
        return at

    def _delete_from_all_graphs(self, lines: list[bytes], at: int) -> list[bytes]:
        """Return the lines that name their graph. The others are deleted from every graph, by separate operations."""
        named: list[bytes] = []
        for line in lines:
            triple, graph = split_graph(line)
            if graph:
                named.append(line)
                continue
            text = triple.decode().rstrip()
            # The templates hold no variable, so a graph without the triple is not changed.
            self.operations.append(SourceMappedText([(f"DELETE WHERE {{ {text} }}", at)]))
            self.operations.append(SourceMappedText([(f"DELETE WHERE {{ GRAPH ?graph {{ {text} }} }}", at)]))
        return named

    # -- everything else

    def _parse_operation(self, at: int) -> int:
        """Parse one operation; returns the offset of its ``;`` or of the end."""
        text, found, depth, end = self.text, [], 0, len(self.text)
        for match in TOKEN.finditer(text, at):
            kind = match.lastgroup
            if kind == "SPACE" or kind == "COMMENT":
                continue
            mark = match[0]
            if kind == "MARK":
                if mark == "{":
                    depth += 1
                elif mark == "}":
                    depth -= 1
                elif mark == ";" and depth <= 0:
                    end = match.start()
                    break
            found.append(Token(kind or "", mark, match.start()))
            if kind == "ERROR":
                raise bad_token_error(text, found[-1])
        if not found:
            raise malformed_query(text, at, "an operation is missing before ;")
        first = found[0]
        word = first.text.upper()
        if first.kind != "WORD" or word not in _OPERATIONS:
            raise malformed_query(text, first.start, f"{first.text[:80]} begins no operation of an update")
        check_plan(text, found)
        if word == "LOAD" and self.load is not None:
            self._replace_load(found, self.load)
            return end
        modify = parse_modify(found) if self.all_graphs and self.dataset is None else None
        pattern = single_pattern(modify) if modify is not None and uses_all_graphs(modify) else None
        if pattern is not None:
            for toks in (found, match_any_named_graph(pattern)):
                walk = TokenRewriter(text, self.prologue, self.now_literal, once=self.evaluated_once)
                self._rewrite_delete_where(walk, toks)
                self.operations.append(walk.out)
            return end
        draw = self.draw if not self.evaluated_once and has_single_solution(found) else None
        walk = TokenRewriter(text, self.prologue, self.now_literal, once=self.evaluated_once, draw=draw)
        second = found[1].text.upper() if len(found) > 1 else ""
        self.created.add_operation(found, lambda token: self.prologue.expand(text, token))
        if word in _SILENT and second != "SILENT":
            # A missing graph must not block a worker; RDF4J ignores one, too.
            walk.out.append((f"{word} SILENT ", first.start))
            found = found[1:]
        if word == "DELETE" and second == "WHERE":
            self._rewrite_delete_where(walk, found)
        else:
            walk.run(found, "top")
        if not self.evaluated_once and any(select_counts_graphs(found, at) for at in walk.unnamed_selects):
            raise empty_graph_error()
        if self.all_graphs:
            self._apply_dataset(found, walk.out, modify)
        else:
            self.operations.append(walk.out)
        return end

    def _apply_dataset(self, found: list[Token], written: SourceMappedText, modify: ModifyOperation | None) -> None:
        """Add an operation with the graphs that RDF4J would give it."""
        text = written.text()
        self._check_syntax(text, written)
        if not self.evaluated_once and may_match_empty_graph(text):
            raise empty_graph_error()
        settle = make_order_total if self.evaluated_once else remove_order_by
        try:
            scoped = apply_dataset(settle(text), self.dataset)
        except UnsupportedPattern as lacks:
            if not self.evaluated_once or modify is None:
                why = "stores cannot search several graphs for it; name one graph by GRAPH, WITH or USING"
                raise NotDeterministic(f"{lacks} without a graph", why, once=modify is not None) from None
            self._rewrite_for_all_graphs(modify)
            return
        self._check_syntax(scoped, written)
        self.scoped[len(self.operations)] = tell_blank_nodes(scoped, ranked=False)
        self.operations.append(written)

    def _rewrite_for_all_graphs(self, modify: ModifyOperation) -> None:
        """Add an operation that is evaluated on the union of all graphs."""
        toks, shown = rewrite_for_union(self.text, modify, self.draw())
        walk = TokenRewriter(self.text, self.prologue, self.now_literal, once=True)
        walk.run(toks, "top")
        self.output_graphs[len(self.operations)] = tuple(
            (name, f"<{self.prologue.expand(self.text, graph)}>" if graph is not None else "") for name, graph in shown
        )
        self.operations.append(walk.out)

    def evaluated_operations(self) -> tuple[EvaluatedOperation, ...]:
        """The operations of the prepared update, where some are on the union of all graphs."""
        if not self.output_graphs:
            return ()
        return tuple(EvaluatedOperation(text, self.output_graphs.get(at, ())) for at, text in enumerate(self.texts))

    def _replace_load(self, found: list[Token], load: Callable[[LoadRequest], LoadedDocument | None]) -> None:
        """Replace ``LOAD [SILENT] <iri> [INTO GRAPH <iri>]`` by the data of its document."""
        asked = parse_load(self.text, found, self.prologue)
        document, graph = load(asked), asked.graph
        lines: list[bytes] = []
        if document is not None:
            nquads, _ = self.skolem.skolemise(
                to_nquads(document.body, document.media_type, document.url.partition("#")[0])
            )
            lines = split_lines(nquads)
            if graph is not None:
                end = b" <%s> ." % graph.encode()
                lines = [split_graph(line)[0] + end for line in lines]
            self.expanded_bytes += sum(map(len, lines))
            check_expansion(self.expanded_bytes, self.limit)
        self.data.append((True, lines))
        self.operations.append(None)

    def _rewrite_delete_where(self, walk: TokenRewriter, found: list[Token]) -> None:
        hides = any(
            token.kind == "WORD" and token.text.upper() == "GRAPH" and may_match_without_triple(found, index)
            for index, token in enumerate(found)
        )
        delete, where, body = found[0], found[1], found[2:]
        if not hides:
            # Its one group is both template and pattern: nothing in it may be rewritten.
            walk.out.append(("DELETE WHERE ", delete.start))
            walk.run(body, "quads")
            return
        walk.out.append(("DELETE ", delete.start))
        walk.run(body, "quads")
        walk.out.append((" WHERE ", where.start))
        walk.run(body, "pattern")

    def _join_operations(self) -> TransactionBody:
        texts: list[str] = []
        data = iter(self.data)
        judged: list[tuple[str, SourceMappedText]] = []
        settle = make_order_total if self.evaluated_once else remove_order_by
        for number, operation in enumerate(self.operations):
            if operation is None:
                adds, lines = next(data)
                texts.append(format_data_update(adds, lines))
            elif number in self.scoped:
                texts.append(guard_triple_terms(self.scoped[number]))
            else:
                judged.append((operation.text(), operation))
                texts.append(guard_triple_terms(tell_blank_nodes(settle(judged[-1][0]), ranked=False)))
        for text, piece in judged:
            self._check_syntax(text, piece)
            if not self.evaluated_once and may_match_empty_graph(text):
                raise empty_graph_error()
        self.texts = texts
        payload = " ;\n".join(texts).encode()
        check_expansion(len(payload), self.limit)
        return TransactionBody(KIND_UPDATE, payload, len(texts))

    def read_predicates(self) -> tuple[str, ...] | None:
        """The predicates of all quads that the prepared update may read or write; None for any."""
        found: set[str] = set()
        for _, lines in self.data:
            found.update(line.split(b" ", 2)[1].decode() for line in lines)
        try:
            for operation in self.operations:
                if operation is not None:
                    found |= predicates_of(operation.text())
        except UnknownPredicates:
            return None
        return tuple(sorted(found)) if len(found) <= PREDICATES_MAX else None

    def _check_syntax(self, text: str, piece: SourceMappedText) -> None:
        try:
            _syntax_checker.update(_FAILING_OPERATION + text)
        except SyntaxError as error:
            found = _ERROR_POSITION.match(error.msg)
            if found is None:
                raise BadInput(f"MALFORMED QUERY: {error.msg}") from None
            row, column = int(found[1]), int(found[2])
            at = piece.source_offset(sum(len(line) + 1 for line in text.split("\n")[: row - 2]) + column - 1)
            raise BadInput(
                f"MALFORMED QUERY: error at {line_column(self.text, at)}: {shorten_error(found[3])}"
            ) from None
        except RuntimeError:
            return
