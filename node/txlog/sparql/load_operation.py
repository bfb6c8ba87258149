"""``LOAD`` in an update: what it asks for, and the document that was fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txlog.sparql.prologue import Prologue
from txlog.sparql.tokens import Token, malformed_query


class LoadRequest(NamedTuple):
    """A ``LOAD`` of an update. ``graph``: the IRI of its ``INTO GRAPH``, None without."""

    url: str
    graph: str | None
    silent: bool


class LoadedDocument(NamedTuple):
    """A document that a ``LOAD`` has fetched: ``media_type`` as its server sent it, ``url`` after all redirects."""

    body: bytes
    media_type: str
    url: str


def parse_load(source: str, toks: Sequence[Token], names: Prologue) -> LoadRequest:
    """``LOAD [SILENT] <iri> [INTO GRAPH <iri>]``. ``BadInput`` for anything else."""
    rest = toks[1:]
    silent = bool(rest) and rest[0].text.upper() == "SILENT"
    rest = rest[1:] if silent else rest
    into = [token.text.upper() for token in rest[1:3]] == ["INTO", "GRAPH"] and len(rest) == 4
    if not (into or len(rest) == 1) or any(token.kind not in ("IRI", "PNAME") for token in (rest[0], rest[-1])):
        raise malformed_query(source, toks[0].start, "LOAD: expected LOAD [SILENT] <iri> [INTO GRAPH <iri>]")
    return LoadRequest(names.expand(source, rest[0]), names.expand(source, rest[3]) if into else None, silent)
