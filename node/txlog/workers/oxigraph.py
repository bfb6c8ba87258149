"""Oxigraph's HTTP server (0.5): ``oxigraph serve -l DIR -b HOST:PORT``, without ``--union-default-graph``.

- **Marker**: an empty named graph whose name encodes it, ``urn:txlog:system:<index>:<hash>:<fence>:<epoch>``.
  ``DROP GRAPH`` of the old one comes first in a request and fails when it is not there. ``CREATE GRAPH`` of the new
  one comes last. Between them the store holds no marker (docs/decisions/0002-marker-is-an-empty-graph.md).
- **Lock**: Oxigraph executes overlapping updates on snapshots and commits them without a conflict check. A guard that
  two requests check at the same time lets both pass. A lock is a set of empty graphs that encode a random token, one
  graph for each digit. An applier that finds exactly its own digits after writing them has the lock: a later applier
  finds these digits, too.
- **Updates** follow SPARQL 1.1: without GRAPH, WITH or USING they read and write the default graph. The server's
  switch would change that, and make it refuse every WITH and USING, so the probe refuses such a server.
- **Queries** run on the union of all graphs by a parameter of the request, as RDF4J does by default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from txlog.model.entry import KIND_UPDATE
from txlog.workers.adapter import (
    SYSTEM,
    ApplyResult,
    LoadMarker,
    LockAction,
    MarkerPosition,
    ProbeStep,
    StoreOperation,
    SystemGraphs,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.marker_names import TRIAL_NAME, loading_name, marker_name, marker_or_load_name
from txlog.workers.sparql_http import ALWAYS_TRUE_QUERY, N_QUADS, NOT_ATOMIC, USER_GRAPHS_FILTER, SparqlAdapter
from txlog.workers.update_batches import OPERATION_SEPARATOR, group_by_graph, update_texts

_DIGITS = 8
_BASE = 4  # the least names to look at for a number of tokens
TOKEN_LIMIT: int = 1 << (2 * _DIGITS)
"""The number of different lock tokens. Two appliers that claim within the same fraction of a millisecond draw the same
token once in so many times. Only then does the marker detect the overlap instead of the lock preventing it."""
_LOCKS = [[f"<{SYSTEM}:lock:{place}{digit}>" for digit in range(_BASE)] for place in range(_DIGITS)]
_DROP_ALL_LOCKS = OPERATION_SEPARATOR.join(f"DROP SILENT GRAPH {name}" for names in _LOCKS for name in names)
_SEES_GRAPHS = re.compile(r"\bgraph\s*[?$#]|\b(all|named)\b", re.IGNORECASE)
"""Matches updates that may read graphs without naming them; it matches too many rather than too few."""
_GUARD_GRAPH = f"<{SYSTEM}:empty>"
_ONLY_IF_EMPTY = (
    # Any quad or graph creates the guard graph, which makes the CREATE after it fail.
    f"INSERT {{ GRAPH {_GUARD_GRAPH} {{ {_GUARD_GRAPH} {_GUARD_GRAPH} {_GUARD_GRAPH} }} }} "
    "WHERE { SELECT * { { ?s ?p ?o } UNION { GRAPH ?g {} } } LIMIT 1 }",
    f"CREATE GRAPH {_GUARD_GRAPH}",
    f"DROP GRAPH {_GUARD_GRAPH}",
)
"""The guard of a store that has no marker yet: it fails unless the store is empty."""


def _confirm_lock(mine: Sequence[str]) -> list[str]:
    """Operations that fail unless this lock, and no other, is in the store; they remove it."""
    others = [name for names in _LOCKS for name in names if name not in mine]
    return [
        *(f"DROP GRAPH {name}" for name in mine),
        *(text for name in others for text in (f"CREATE GRAPH {name}", f"DROP GRAPH {name}")),
    ]


def _lock_graphs(token: int) -> list[str]:
    return [names[token >> (2 * place) & (_BASE - 1)] for place, names in enumerate(_LOCKS)]


class OxigraphAdapter(SparqlAdapter):
    """The adapter for Oxigraph's server: see the module. It has no state."""

    engine = "oxigraph"
    data_path = "/store"
    named_quads = "{ GRAPH ?g { ?s ?p ?o } }"  # a marker holds no statements, so nothing of ours is met
    system_names = f'{{ GRAPH ?s {{}} FILTER(STRSTARTS(STR(?s),"{SYSTEM}")) }}'

    @property
    def token_limit(self) -> int:
        return TOKEN_LIMIT

    # -- position

    def read_system(self) -> WorkerRequest:
        return self._select(f'SELECT ?g {{ GRAPH ?g {{}} FILTER(STRSTARTS(STR(?g),"{SYSTEM}")) }}')

    def is_at(self, marker: MarkerPosition) -> WorkerRequest:
        return self._ask(f"ASK {{ GRAPH <{marker_name(marker)}> {{}} }}")

    def is_empty(self) -> WorkerRequest:
        return self._ask(f"ASK {{ {{ ?s ?p ?o }} UNION {{ GRAPH ?g {{}} {USER_GRAPHS_FILTER} }} }}")

    # -- apply

    def apply(
        self,
        operations: Sequence[StoreOperation],
        expected: MarkerPosition | LoadMarker | None,
        new: MarkerPosition | LoadMarker | None,
        *,
        lock: LockAction = LockAction.NONE,
        token: int = 0,
        release: bool = False,
    ) -> WorkerRequest:
        texts: list[str] = []
        mine = _lock_graphs(token)
        recreate = lock is not LockAction.NONE and not release
        if lock is LockAction.CONFIRM:
            texts += _confirm_lock(mine)
        elif lock is LockAction.KEEP and any(
            o.kind == KIND_UPDATE and _SEES_GRAPHS.search(o.payload.decode()) for o in operations
        ):
            # Other appliers may have added claims by now. This removes them as well; their owners notice it.
            texts.append(_DROP_ALL_LOCKS)
        elif lock is LockAction.KEEP:
            recreate = False
            if release:
                texts += [f"DROP SILENT GRAPH {name}" for name in mine]
        if expected is None:
            texts += _ONLY_IF_EMPTY
        else:
            texts.append(f"DROP GRAPH <{marker_or_load_name(expected)}>")
        texts += update_texts(operations)
        texts.append(f"DROP GRAPH <{TRIAL_NAME}>" if new is None else f"CREATE GRAPH <{marker_or_load_name(new)}>")
        if recreate:
            texts += [f"CREATE SILENT GRAPH {name}" for name in mine]
        # Oxigraph accepts a prologue only at the very beginning, so updates of the log have none and use full IRIs.
        return self._update(texts)

    def parse_apply_result(self, response: WorkerResponse) -> ApplyResult:
        if response.ok:
            return ApplyResult.APPLIED
        if response.status == 500 and b"<urn:txlog:system:" in response.body:
            return ApplyResult.CONTENDED if b"<urn:txlog:system:lock:" in response.body else ApplyResult.MOVED
        return ApplyResult.REFUSED

    def claim(self, token: int) -> WorkerRequest:
        return self._update([f"CREATE GRAPH {name}" for name in _lock_graphs(token)])

    def claims_for_token(self, token: int) -> frozenset[str]:
        return frozenset(name[1:-1] for name in _lock_graphs(token))

    def release_claim(self, token: int) -> WorkerRequest:
        return self._update([f"DROP SILENT GRAPH {name}" for name in _lock_graphs(token)])

    def renew(self, token: int, new: int) -> WorkerRequest:
        return self._update(
            [f"{do} GRAPH {name}" for do, its in (("DROP", token), ("CREATE", new)) for name in _lock_graphs(its)]
        )

    def take_over(self, found: MarkerPosition | None, token: int) -> WorkerRequest:
        move = []
        if found is not None:
            raised = found._replace(fence=found.fence + 1)
            move = [f"DROP GRAPH <{marker_name(found)}>", f"CREATE GRAPH <{marker_name(raised)}>"]
        return self._update([*move, _DROP_ALL_LOCKS, *(f"CREATE GRAPH {name}" for name in _lock_graphs(token))])

    def drop_marker(self, marker: MarkerPosition) -> WorkerRequest:
        return self._update([f"DROP GRAPH <{marker_name(marker)}>"])

    # -- reading

    def query(
        self,
        text: str,
        accept: str,
        *,
        union: bool = True,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
    ) -> WorkerRequest:
        asked = [("default-graph-uri", g) for g in default_graphs] + [("named-graph-uri", g) for g in named_graphs]
        if not asked and union:
            # The parameter overrides FROM, so it is sent only for queries that have none.
            asked = [("union-default-graph", "")]
        return self._query_request(text, accept, asked)

    def counts(self) -> WorkerRequest:
        # One query reads one snapshot. System graphs hold no statements, so they are selected by their names.
        text = (
            "SELECT ?g (COUNT(?s) AS ?n) { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } "
            f'UNION {{ GRAPH ?g {{}} FILTER(STRSTARTS(STR(?g),"{SYSTEM}")) }} }} GROUP BY ?g'
        )
        return self._select(text)

    def contexts(self) -> WorkerRequest:
        return self._select(
            f"SELECT ?g {{ GRAPH ?g {{}} {USER_GRAPHS_FILTER} FILTER EXISTS {{ GRAPH ?g {{ ?s ?p ?o }} }} }}"
        )

    def clean_snapshot(self, chunks: Iterable[bytes]) -> Iterable[bytes]:
        # A snapshot holds no empty graph, so no marker, and Oxigraph's literals are canonical already.
        return chunks

    def dump(self, predicates: Sequence[str] | None = None) -> WorkerRequest:
        # One query reads one snapshot.
        text = (
            f"SELECT ?g ?s ?p ?o {{ {self.quads_with(predicates)} "
            f'UNION {{ GRAPH ?g {{}} FILTER(STRSTARTS(STR(?g),"{SYSTEM}")) }} }}'
        )
        return self._select(text, self.dump_media_type)

    # -- loading

    def begin_loading(self, loading: LoadMarker, token: int) -> WorkerRequest:
        return self._update(
            [*_confirm_lock(_lock_graphs(token)), *_ONLY_IF_EMPTY, f"CREATE GRAPH <{loading_name(loading)}>"]
        )

    def mark_unusable(self, found: SystemGraphs, loading: LoadMarker, token: int) -> WorkerRequest:
        names = [marker_name(marker) for marker in found.markers] + [loading_name(each) for each in found.loading]
        drops = [f"DROP GRAPH <{name}>" for name in names]
        return self._update([*_confirm_lock(_lock_graphs(token)), *drops, f"CREATE GRAPH <{loading_name(loading)}>"])

    def clear(self) -> WorkerRequest:
        # Alone it is one range delete (1 ms). With any other operation Oxigraph deletes each quad (29 s for 200,000).
        return self._update(["DROP ALL"])

    def is_loading(self, loading: LoadMarker) -> WorkerRequest:
        return self._ask(f"ASK {{ GRAPH <{loading_name(loading)}> {{}} }}")

    def load(self, quads: bytes) -> WorkerRequest:
        return WorkerRequest("POST", f"{self.data_path}?no_transaction", {"Content-Type": N_QUADS}, quads)

    def delete_quads(self, quads: Sequence[bytes], left: Sequence[bytes]) -> WorkerRequest:
        texts = [f"DELETE DATA {{{group_by_graph(quads)}}}"] if quads else []
        return self._update([*texts, *(f"CREATE SILENT GRAPH {graph.decode()}" for graph in left)])

    def end_loading(self, loading: LoadMarker, new: MarkerPosition) -> WorkerRequest:
        return self._update([f"DROP GRAPH <{loading_name(loading)}>", f"CREATE GRAPH <{marker_name(new)}>"])

    # -- registration

    def probe_steps(self) -> Sequence[ProbeStep]:
        scratch = f"<{SYSTEM}:probe>"
        absent = f"<{SYSTEM}:probe:absent>"
        insert = f"INSERT DATA {{ GRAPH {scratch} {{ {scratch} {scratch} {scratch} }} }}"
        clear = self._update([f"DROP SILENT GRAPH {scratch}"])
        nothing_left = self._select(f"SELECT ?s {{ GRAPH {scratch} {{ ?s ?p ?o }} }}")
        no_queries = "it does not answer SPARQL queries at /query; check the URL"
        return (
            ProbeStep(self._ask(ALWAYS_TRUE_QUERY), (200,), "NotAWorker", no_queries),
            ProbeStep(clear, (204,), "NotAWorker", "it takes no updates at /update"),
            ProbeStep(
                self._update([insert, f"CREATE GRAPH {scratch}"]),
                range(400, 600),
                "NotAtomic",
                "CREATE GRAPH of a graph that exists does not fail, so that a failure would look like a success",
            ),
            ProbeStep(nothing_left, (200,), "NotAtomic", NOT_ATOMIC, empty=True),
            ProbeStep(
                self._update([insert, f"DROP GRAPH {absent}"]),
                range(400, 600),
                "NoGuard",
                "DROP GRAPH of a graph that does not exist does not fail, so that an apply could not be guarded",
            ),
            ProbeStep(nothing_left, (200,), "NotAtomic", NOT_ATOMIC, empty=True),
            ProbeStep(
                self._update([f"WITH {scratch} DELETE {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o }}"]),
                (204,),
                "UnionDefaultGraph",
                "it refuses WITH and USING: start it without --union-default-graph (queries ask for the union)",
            ),
            ProbeStep(clear, (204,), "NotAWorker", "it cannot remove the probe's graph"),
        )
