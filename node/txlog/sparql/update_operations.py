"""The operations of an update as a worker executes them: what each deletes, inserts, clears or copies.

Only the normalised text of an entry is read (:func:`~txlog.sparql.update_normaliser.prepare_update`): each IRI is
written in full there, and no template holds a blank node.

Source: SPARQL 1.1 Update, sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pyoxigraph as ox

from txlog.sparql.quad_template import QuadTemplate, parse_data, parse_template
from txlog.sparql.tokens import Token, TokenCursor, tokens_by_operation

_MANAGED: Final = ("CLEAR", "DROP")
_TRANSFERRED: Final = ("COPY", "MOVE", "ADD")


class DataOperation(msgspec.Struct, frozen=True):
    """``INSERT DATA`` or ``DELETE DATA``. ``quads``: as the client sent them."""

    adds: bool
    quads: list[ox.Quad]


class PatternOperation(msgspec.Struct, frozen=True):
    """``DELETE`` and ``INSERT`` with a pattern. ``query``: a SELECT of the variables of both templates, in the order of
    their columns, or an ASK where they have none. ``default_graph``: the IRI of ``WITH`` where no ``USING`` overrides
    it; "" for none."""

    delete: QuadTemplate
    insert: QuadTemplate
    query: str
    default_graph: str = ""


class ClearOperation(msgspec.Struct, frozen=True):
    """``CLEAR`` or ``DROP``. ``target``: ``DEFAULT``, ``NAMED``, ``ALL`` or the IRI of a graph."""

    target: str


class TransferOperation(msgspec.Struct, frozen=True):
    """``COPY``, ``MOVE`` or ``ADD``. ``source`` and ``target``: the IRI of a graph, "" for the default graph."""

    word: str
    source: str
    target: str


class CreateOperation(msgspec.Struct, frozen=True):
    """``CREATE``: it changes no quad."""


Operation = DataOperation | PatternOperation | ClearOperation | TransferOperation | CreateOperation


def parse_operations(text: str) -> Iterator[Operation]:
    """The operations of a normalised update, in order. Raises ``ValueError`` (also as ``SyntaxError``) for a text that
    is none."""
    for operation in tokens_by_operation(text):
        yield _OperationParser(text, operation).parse()


class _OperationParser(TokenCursor):
    """Parses one operation."""

    def __init__(self, text: str, toks: Sequence[Token]) -> None:
        super().__init__(toks)
        self._text = text

    def parse(self) -> Operation:
        word, second = self._word_at(0), self._word_at(1)
        if word in ("INSERT", "DELETE") and second == "DATA":
            inside, _ = self._group(2)
            return DataOperation(word == "INSERT", parse_data(inside))
        if word in ("INSERT", "DELETE", "WITH"):
            return self._modify()
        at = 1 + (second == "SILENT")
        if word in _MANAGED:
            target = self._word_at(at)
            return ClearOperation(target if target in ("DEFAULT", "NAMED", "ALL") else self._iri(at + 1))
        if word in _TRANSFERRED:
            source, end = self._graph_or_default(at)
            if self._word_at(end) != "TO":
                raise self._unexpected(end)
            return TransferOperation(word, source, self._graph_or_default(end + 1)[0])
        if word == "CREATE":
            return CreateOperation()
        raise self._unexpected(0)

    def _unexpected(self, at: int) -> ValueError:
        return ValueError(f"no normalised operation: unexpected {self._token_at(at).text[:80]!r}")

    def _iri(self, at: int) -> str:
        token = self._token_at(at)
        if token.kind != "IRI":
            raise self._unexpected(at)
        return token.text[1:-1]

    def _graph_or_default(self, at: int) -> tuple[str, int]:
        if self._word_at(at) == "DEFAULT":
            return "", at + 1
        at += self._word_at(at) == "GRAPH"
        return self._iri(at), at + 1

    def _group(self, at: int) -> tuple[Sequence[Token], int]:
        """The tokens inside the braces that open at ``at``, and the index behind them."""
        if self._mark_at(at) != "{":
            raise self._unexpected(at)
        depth = 0
        for end in range(at, len(self._toks)):
            depth += {"{": 1, "}": -1}.get(self._mark_at(end), 0)
            if not depth:
                return self._toks[at + 1 : end], end + 1
        raise self._unexpected(at)

    def _modify(self) -> PatternOperation:
        at, graph = 0, ""
        if self._word_at(0) == "WITH":
            at, graph = 2, self._token_at(1).text
        columns: dict[str, int] = {}
        templates = {"DELETE": QuadTemplate(), "INSERT": QuadTemplate()}
        if self._word_at(at) == "DELETE" and self._word_at(at + 1) == "WHERE":
            at += 1
            inside, _ = self._group(at + 1)
            templates["DELETE"] = parse_template(inside, graph, columns)
        while self._word_at(at) in templates:
            inside, end = self._group(at + 1)
            templates[self._word_at(at)] = parse_template(inside, graph, columns)
            at = end
        dataset: list[str] = []
        while self._word_at(at) == "USING":
            named = self._word_at(at + 1) == "NAMED"
            dataset.append(f"FROM {'NAMED ' * named}<{self._iri(at + 1 + named)}> ")
            at += 2 + named
        if self._word_at(at) != "WHERE":
            raise self._unexpected(at)
        pattern = self._text[self._token_at(at + 1).start : self._token_at(len(self._toks) - 1).start + 1]
        head = f"SELECT {' '.join(f'?{name}' for name in columns)} " if columns else "ASK "
        query = f"{head}{''.join(dataset)}WHERE {pattern}"
        return PatternOperation(templates["DELETE"], templates["INSERT"], query, "" if dataset else graph[1:-1])
