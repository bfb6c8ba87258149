"""What engines behind the SPARQL 1.1 Protocol have in common: how they are asked and told, and how rows are read.

Sources: SPARQL 1.1 Protocol; SPARQL 1.1 Query Results CSV and TSV Formats; SPARQL 1.1 Graph Store HTTP Protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlencode

from txlog.workers.base import (
    CAPABILITIES,
    SYSTEM,
    Capabilities,
    Counted,
    Piece,
    SystemGraphs,
    UnexpectedAnswer,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.naming import system_of
from txlog.workers.netting import JOIN

CSV: Final = "text/csv"
TSV: Final = "text/tab-separated-values"
N_QUADS: Final = "application/n-quads"
NOT_OURS: Final = f'FILTER(!STRSTARTS(STR(?g),"{SYSTEM}"))'
TRUE: Final = "ASK {}"
"""Asked where there is nothing to do."""


class SparqlAdapter:
    """The part of an :class:`~txlog.workers.base.Adapter` that is the same for all of them. Holds nothing.

    ``query_path``, ``update_path``, ``data_path``: behind a worker's URL. ``boolean``: the media type in which an ASK
    is answered by one word. ``charset``: behind the media type of what is sent, where an engine takes it for something
    else than UTF-8. ``default_quads``, ``named_quads``: patterns of everything in the default graph, and in
    the named graphs ``?g`` that are not ours."""

    engine = ""
    query_path = "/query"
    update_path = "/update"
    data_path = "/data"
    boolean = CSV
    charset = ""
    everything_media = TSV
    default_quads = "{ ?s ?p ?o }"
    named_quads = f"{{ GRAPH ?g {{ ?s ?p ?o }} {NOT_OURS} }}"

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES[self.engine]

    # -- what is sent

    def _update(self, texts: Sequence[str]) -> WorkerRequest:
        headers = {"Content-Type": "application/sparql-update" + self.charset}
        return WorkerRequest("POST", self.update_path, headers, JOIN.join(texts).encode())

    def _select(self, text: str, accept: str = CSV) -> WorkerRequest:
        return self._asked(text, accept, ())

    def _ask(self, text: str) -> WorkerRequest:
        return self._asked(text, self.boolean, ())

    def _asked(self, text: str, accept: str, dataset: Sequence[tuple[str, str]]) -> WorkerRequest:
        headers = {"Content-Type": "application/sparql-query" + self.charset, "Accept": accept}
        path = self.query_path + (f"?{urlencode(dataset)}" if dataset else "")
        return WorkerRequest("POST", path, headers, text.encode())

    def size(self, graphs: Sequence[str | None] | None = None) -> WorkerRequest:
        if graphs is None:
            where = f"{self.default_quads} UNION {self.named_quads}"
        else:
            each = [self.default_quads if g is None else f"{{ GRAPH <{g}> {{ ?s ?p ?o }} }}" for g in graphs]
            where = " UNION ".join(each)
        return self._select(f"SELECT (COUNT(*) AS ?n) {{ {where} }}")

    def quads_with(self, predicates: Sequence[str] | None) -> str:
        """The pattern of all quads, or of all with these predicates (``<iri>``)."""
        patterns: tuple[str, ...] = (self.default_quads, self.named_quads)
        if predicates is not None:
            patterns = tuple(
                pattern.replace("?s ?p ?o", f"?s {p} ?o").removesuffix("}") + f"BIND({p} AS ?p) }}"
                for p in predicates
                for pattern in patterns
            )
        return " UNION ".join(patterns) or "{ FILTER(false) }"

    def export(self, accept: str, graph: str | None = None) -> WorkerRequest:
        which = "default" if graph is None else urlencode({"graph": graph})
        return WorkerRequest("GET", f"{self.data_path}?{which}", {"Accept": accept})

    def snapshot(self, accept: str = N_QUADS) -> WorkerRequest:
        return WorkerRequest("GET", self.data_path, {"Accept": accept})

    # -- what is answered

    def system_in(self, response: WorkerResponse) -> SystemGraphs:
        return self.system_of(rows("reading the marker", response))

    def system_of(self, names: Iterable[str]) -> SystemGraphs:
        return system_of(names)

    def is_at_in(self, response: WorkerResponse) -> bool:
        return truth("confirming the marker", response)

    def is_empty_in(self, response: WorkerResponse) -> bool:
        return not truth("looking for foreign data", response)

    def size_in(self, response: WorkerResponse) -> int:
        return int(rows("counting statements", response)[0])

    def counts_in(self, response: WorkerResponse) -> Counted:
        asked = "counting statements by graph"
        # Commas in IRIs are not quoted by every engine; a number has none.
        found = [row.rpartition(",") for row in rows(asked, response)]
        try:
            counts = {graph.strip('"'): int(count) for graph, _, count in found}
        except ValueError:
            raise UnexpectedAnswer(asked, response) from None
        ours = [name for name in counts if name.startswith(SYSTEM)]
        return Counted(self.system_of(ours), {name: n for name, n in counts.items() if n and name not in ours})

    def piece(self, first: int, count: int) -> WorkerRequest | None:
        return None

    def piece_in(self, response: WorkerResponse) -> Piece:
        raise UnexpectedAnswer("nothing: pieces have no order here", response)

    def contexts_in(self, response: WorkerResponse) -> list[str]:
        return rows("listing named graphs", response)


def dataset(default_graphs: Sequence[str], named_graphs: Sequence[str]) -> list[tuple[str, str]]:
    """The dataset of a query as parameters of the SPARQL protocol."""
    return [
        *(("default-graph-uri", graph) for graph in default_graphs),
        *(("named-graph-uri", graph) for graph in named_graphs),
    ]


def rows(asked: str, response: WorkerResponse) -> list[str]:
    """The lines of a CSV result behind its header."""
    if response.status != 200:
        raise UnexpectedAnswer(asked, response)
    return response.body.decode().split("\r\n")[1:-1]


def truth(asked: str, response: WorkerResponse) -> bool:
    """The answer to an ASK: one word, perhaps below a header."""
    words = response.body.split()
    if response.status != 200 or len(words) not in (1, 2) or words[-1] not in (b"true", b"false"):
        raise UnexpectedAnswer(asked, response)
    return words[-1] == b"true"
