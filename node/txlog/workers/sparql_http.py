"""The common part of engines with the SPARQL 1.1 Protocol: building requests and parsing rows.

Sources: SPARQL 1.1 Protocol; SPARQL 1.1 Query Results CSV and TSV Formats; SPARQL 1.1 Graph Store HTTP Protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlencode

from txlog.model.store_cell import StoreCell
from txlog.workers.adapter import (
    CAPABILITIES,
    SYSTEM,
    Capabilities,
    GraphCounts,
    StoreOperation,
    SystemGraphs,
    UnexpectedAnswer,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.marker_names import system_graphs_from_names
from txlog.workers.update_batches import OPERATION_SEPARATOR

CSV: Final = "text/csv"
TSV: Final = "text/tab-separated-values"
N_QUADS: Final = "application/n-quads"
USER_GRAPHS_FILTER: Final = f'FILTER(!STRSTARTS(STR(?g),"{SYSTEM}"))'
ALWAYS_TRUE_QUERY: Final = "ASK {}"
"""A query without effect, sent where there is nothing to do."""
NOT_ATOMIC: Final = "it keeps a part of a request whose last operation failed; a crash would lose the position"
"""Why a store cannot be a worker (:attr:`~txlog.workers.adapter.ProbeStep.message`)."""


class SparqlAdapter:
    """The part of an :class:`~txlog.workers.adapter.Adapter` that is the same for all these engines. It has no state.

    ``query_path``, ``update_path``, ``data_path``: relative to a worker's URL. ``boolean_media_type``: the media type
    in which the answer to an ASK is one word. ``charset``: appended to the media type of a request body, where an
    engine would not read it as UTF-8. ``default_quads``, ``named_quads``: patterns of all quads in the default graph,
    and in the named graphs ``?g`` that are no system graphs. ``system_names``: pattern of the system graphs ``?s``."""

    engine = ""
    query_path = "/query"
    update_path = "/update"
    data_path = "/data"
    boolean_media_type = CSV
    charset = ""
    dump_media_type = TSV
    default_quads = "{ ?s ?p ?o }"
    named_quads = f"{{ GRAPH ?g {{ ?s ?p ?o }} {USER_GRAPHS_FILTER} }}"
    system_names = ""

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES[self.engine]

    def rewrite_refused(self, operation: StoreOperation, response: WorkerResponse) -> StoreOperation | None:
        return None

    # -- requests

    def _update(self, texts: Sequence[str]) -> WorkerRequest:
        headers = {"Content-Type": "application/sparql-update" + self.charset}
        return WorkerRequest("POST", self.update_path, headers, OPERATION_SEPARATOR.join(texts).encode())

    def _select(self, text: str, accept: str = CSV) -> WorkerRequest:
        return self._query_request(text, accept, ())

    def _ask(self, text: str) -> WorkerRequest:
        return self._query_request(text, self.boolean_media_type, ())

    def _query_request(self, text: str, accept: str, dataset: Sequence[tuple[str, str]]) -> WorkerRequest:
        headers = {"Content-Type": "application/sparql-query" + self.charset, "Accept": accept}
        path = self.query_path + (f"?{urlencode(dataset)}" if dataset else "")
        return WorkerRequest("POST", path, headers, text.encode(), reads=True)

    def size(self, graphs: Sequence[str | None] | None = None) -> WorkerRequest:
        if graphs is None:
            where = f"{self.default_quads} UNION {self.named_quads}"
        else:
            each = [self.default_quads if g is None else f"{{ GRAPH <{g}> {{ ?s ?p ?o }} }}" for g in graphs]
            where = " UNION ".join(each)
        return self._select(f"SELECT (COUNT(*) AS ?n) {{ {where} }}")

    def size_up_to(self, limit: int) -> WorkerRequest:
        return self._select(
            f"SELECT (COUNT(*) AS ?n) {{ SELECT ?s {{ {self.default_quads} UNION {self.named_quads} }} LIMIT {limit} }}"
        )

    def list_cells(self, graphs: Sequence[str], first: int, count: int) -> WorkerRequest:
        quads = self._cells_pattern([StoreCell(graph, None) for graph in graphs])
        part = f"{{ SELECT ?c ?s ?p {{ {quads} }} OFFSET {first} LIMIT {count} }}"
        return self._select(f"SELECT ?c ?p (COUNT(?s) AS ?n) {{ {part} }} GROUP BY ?c ?p")

    def read_cells(self, cells: Sequence[StoreCell]) -> WorkerRequest:
        # The system graphs come first, so that a reader knows the position before the data.
        text = f"SELECT ?c ?s ?p ?o {{ {self.system_names} UNION {self._cells_pattern(cells)} }}"
        return self._select(text, self.dump_media_type)

    def _cells_pattern(self, cells: Sequence[StoreCell]) -> str:
        """Explicit names let an engine use its indexes; ``VALUES`` may be joined with all quads of the store."""
        branches = []
        for at, (graph, predicate) in enumerate(cells):
            quads = f"{{ GRAPH <{graph}> {{ ?s ?p ?o }} }}" if graph else self.default_quads
            if predicate is not None:
                quads = quads.replace("?s ?p ?o", f"?s <{predicate}> ?o")
            branches.append(f"{quads.removesuffix('}')} BIND({at} AS ?c) }}")
        return " UNION ".join(branches)

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

    def match(self, terms: Sequence[str | None], graphs: Sequence[str] | None) -> WorkerRequest:
        raise NotImplementedError(f"{self.engine} has no search by terms: Capabilities.matches")

    # -- responses

    def _parse_rows(self, asked: str, response: WorkerResponse) -> list[str]:
        return parse_rows(asked, response)

    def _parse_count(self, row: str) -> tuple[str, int]:
        """The graph and the number of a row of :meth:`counts`."""
        # Commas in IRIs are not quoted by every engine; a number has none.
        graph, _, count = row.rpartition(",")
        return graph.strip('"'), int(count)

    def parse_system_graphs(self, response: WorkerResponse) -> SystemGraphs:
        return self.system_graphs_from_names(self._parse_rows("reading the marker", response))

    def system_graphs_from_names(self, names: Iterable[str]) -> SystemGraphs:
        return system_graphs_from_names(names)

    def parse_is_at(self, response: WorkerResponse) -> bool:
        return parse_boolean("confirming the marker", response)

    def parse_is_empty(self, response: WorkerResponse) -> bool:
        return not parse_boolean("looking for foreign data", response)

    def parse_size(self, response: WorkerResponse) -> int:
        asked = "counting statements"
        try:
            return int(self._parse_rows(asked, response)[0])
        except (ValueError, IndexError):
            raise UnexpectedAnswer(asked, response) from None

    def parse_counts(self, response: WorkerResponse) -> GraphCounts:
        asked = "counting statements by graph"
        try:
            counts = dict(map(self._parse_count, self._parse_rows(asked, response)))
        except ValueError:
            raise UnexpectedAnswer(asked, response) from None
        ours = [name for name in counts if name.startswith(SYSTEM)]
        return GraphCounts(
            self.system_graphs_from_names(ours), {name: n for name, n in counts.items() if n and name not in ours}
        )

    def parse_cells(self, graphs: Sequence[str], response: WorkerResponse) -> dict[StoreCell, int]:
        asked = "listing the predicates of graphs"
        found: dict[StoreCell, int] = {}
        try:
            for row in parse_rows(asked, response):
                at, _, rest = row.partition(",")
                predicate, _, quads = rest.rpartition(",")
                if predicate and int(quads):
                    found[StoreCell(graphs[int(at)], predicate.strip('"'))] = int(quads)
        except (ValueError, IndexError):
            raise UnexpectedAnswer(asked, response) from None
        return found

    def parse_contexts(self, response: WorkerResponse) -> list[str]:
        return self._parse_rows("listing named graphs", response)


class UnlockedAdapter(SparqlAdapter):
    """An engine without a lock: the guard is enough where updates are serial. Every claim succeeds."""

    def _do_nothing(self) -> WorkerRequest:
        """A request without effect."""
        return self._ask(ALWAYS_TRUE_QUERY)

    @property
    def token_limit(self) -> int:
        return 1

    def claim(self, token: int) -> WorkerRequest:
        return self._do_nothing()

    def claims_for_token(self, token: int) -> frozenset[str]:
        return frozenset()

    def release_claim(self, token: int) -> WorkerRequest:
        return self._do_nothing()

    def renew(self, token: int, new: int) -> WorkerRequest:
        return self._do_nothing()


def dataset_parameters(default_graphs: Sequence[str], named_graphs: Sequence[str]) -> list[tuple[str, str]]:
    """The dataset of a query as parameters of the SPARQL protocol."""
    return [
        *(("default-graph-uri", graph) for graph in default_graphs),
        *(("named-graph-uri", graph) for graph in named_graphs),
    ]


def parse_rows(asked: str, response: WorkerResponse) -> list[str]:
    """The lines of a CSV result after its header. Raises :class:`~txlog.workers.adapter.UnexpectedAnswer`, also for one
    that does not end with a line."""
    if response.status != 200 or not response.body.endswith(b"\r\n"):
        raise UnexpectedAnswer(asked, response)
    try:
        return response.body.decode().split("\r\n")[1:-1]
    except UnicodeDecodeError:
        raise UnexpectedAnswer(asked, response) from None


def parse_boolean(asked: str, response: WorkerResponse) -> bool:
    """The answer to an ASK: one word, perhaps after a header line."""
    words = response.body.split()
    if response.status != 200 or len(words) not in (1, 2) or words[-1] not in (b"true", b"false"):
        raise UnexpectedAnswer(asked, response)
    return words[-1] == b"true"
