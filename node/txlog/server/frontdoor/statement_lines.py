"""Selects lines of canonical N-Quads by a statement pattern, and adds the changes of an open transaction to them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

from txlog.server.frontdoor.stream_converter import closing_stream
from txlog.workers.adapter import Capabilities

_TERM = rb'(?:<[^>]*>|_:[^ ]+|"(?:[^"\\]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^>]*>)?)'
_LINE = re.compile(rb"^(" + _TERM + rb") (" + _TERM + rb") (" + _TERM + rb"|<<\( .* \)>>)(?: (" + _TERM + rb"))? \.$")


LineChanges = Mapping[bytes, bool]
"""Lines of canonical N-Quads; True if a line was added, False if it was removed."""


def line_filter(terms: list[bytes | None], graphs: list[str] | None) -> Callable[[bytes], bool]:
    """Matches lines with these terms (subject, predicate, object; None: any) in these graphs (None: all; "" is the
    default graph)."""
    wanted = None if graphs is None else {g.encode() for g in graphs}

    def keep(line: bytes) -> bool:
        found = _LINE.match(line)
        if found is None:
            return False
        if any(term is not None and found[at + 1] != term for at, term in enumerate(terms)):
            return False
        return wanted is None or (found[4] or b"") in wanted

    return keep


def unchanged_line_filter(
    terms: list[bytes | None], graphs: list[str] | None, changes: LineChanges
) -> Callable[[bytes], bool]:
    """Matches lines of a worker that :func:`line_filter` matches and that are not among the changes."""
    if not any(terms) and graphs is None:
        return lambda line: line not in changes
    matches = line_filter(terms, graphs)
    return lambda line: line not in changes and matches(line)


def added_lines(terms: list[bytes | None], graphs: list[str] | None, changes: LineChanges) -> list[bytes]:
    """The added lines that :func:`line_filter` matches."""
    matches = line_filter(terms, graphs) if any(terms) or graphs is not None else bool
    return [line for line, added in changes.items() if added and matches(line)]


async def filter_lines(
    pieces: AsyncIterator[bytes], keep: Callable[[bytes], bool], more: Sequence[bytes] = ()
) -> AsyncIterator[bytes]:
    """The lines that ``keep`` selects, then ``more``. A piece may end within a line."""
    rest = b""
    async with closing_stream(pieces):
        async for piece in pieces:
            *whole, rest = (rest + piece).split(b"\n")
            kept = [line for line in whole if keep(line)]
            if kept:
                yield b"\n".join(kept) + b"\n"
        if rest and keep(rest):
            yield rest + b"\n"
    if more:
        yield b"\n".join(more) + b"\n"


def select_lines(text: bytes, keep: Callable[[bytes], bool], more: Sequence[bytes] = ()) -> bytes:
    """As :func:`filter_lines`, of a whole text."""
    kept = [line for line in text.split(b"\n") if line and keep(line)]
    return b"".join(line + b"\n" for line in (*kept, *more))


def construct_query(subject: str | None, predicate: str | None, value: str | None, graphs: list[str] | None) -> str:
    """The query for the statements with these terms (None: any) in these graphs ("": the default graph; None: all)."""
    s, p, o = subject or "?s", predicate or "?p", value or "?o"
    triple = f"{s} {p} {o}"
    if graphs is None:
        where = f"{{ {triple} }} UNION {{ GRAPH ?g {{ {triple} }} }}"
    else:
        where = " UNION ".join(f"{{ GRAPH {g} {{ {triple} }} }}" if g else f"{{ {triple} }}" for g in graphs)
    return f"CONSTRUCT {{ {triple} }} WHERE {{ {where} }}"


class StatementPattern(NamedTuple):
    """The statements with these terms (None: any) in these graphs ("": the default graph; None: all)."""

    subject: str | None
    predicate: str | None
    value: str | None
    graphs: tuple[str, ...] | None

    @property
    def is_everything(self) -> bool:
        """Whether every statement matches."""
        return self.graphs is None and not any(self[:3])

    def is_query_for(self, engine: Capabilities) -> bool:
        """Whether an engine answers :meth:`query` with the same statements as :meth:`line_filter` selects."""
        if self.is_everything or not engine.exact_rows:
            return False
        return engine.finds_literals or not (self.value or "").startswith(('"', "<<"))

    def is_match_for(self, engine: Capabilities) -> bool:
        """Whether an engine's own search answers with the same statements, which are lines already."""
        if self.is_everything or self.graphs == ():
            return False
        return engine.matches and not (self.value or "").startswith("<<")

    def line_filter(self) -> Callable[[bytes], bool] | None:
        """Matches the lines; None if all match."""
        if self.is_everything:
            return None
        graphs = None if self.graphs is None else list(self.graphs)
        return line_filter([None if term is None else term.encode() for term in self[:3]], graphs)

    def query(self) -> str:
        """The query for the rows ``?s ?p ?o``, and ``?g`` unless the statement is in the default graph."""
        terms = {"?s": self.subject, "?p": self.predicate, "?o": self.value}
        triple = " ".join(term or name for name, term in terms.items())
        named = " ".join(f"BIND({term} AS {name})" for name, term in terms.items() if term)
        if self.graphs is None:
            groups = [f"{{ {triple} {named} }}", f"{{ GRAPH ?g {{ {triple} }} {named} }}"]
        else:
            groups = [
                f"{{ GRAPH {graph} {{ {triple} }} {named} BIND({graph} AS ?g) }}"
                if graph
                else f"{{ {triple} {named} }}"
                for graph in dict.fromkeys(self.graphs)
            ]
        return f"SELECT ?s ?p ?o ?g WHERE {{ {' UNION '.join(groups)} }}"
