"""Oxigraph's HTTP server (0.5): ``oxigraph serve -l DIR -b HOST:PORT``, without ``--union-default-graph``.

- **Marker**: an empty named graph whose name says everything, ``urn:txlog:system:<index>:<hash>:<fence>:<epoch>``.
  ``DROP GRAPH`` of the old one comes first in a request and fails when it is not there, ``CREATE GRAPH`` of the new
  one comes last. Between them the store holds nothing of ours (docs/decisions/0002-marker-is-an-empty-graph.md).
- **Lock**: Oxigraph carries out overlapping updates on snapshots and writes them blindly, so a guard that two requests
  check at the same time lets both pass. A lock is a set of empty graphs that spell a random token, one graph for each
  digit; who finds exactly its own digits, after having written them, is alone (whoever comes later finds these).
- **Updates** mean what SPARQL 1.1 says: without GRAPH, WITH or USING they read and write the default graph. The
  server's switch would change that, and make it refuse every WITH and USING, so the probe refuses such a server.
- **Queries** are asked of the union of all graphs by a parameter of the request, as RDF4J does by default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

from txlog.model.entry import KIND_UPDATE
from txlog.workers.base import (
    CAPABILITIES,
    SYSTEM,
    Capabilities,
    Counted,
    Loading,
    Lock,
    MarkerPosition,
    Operation,
    ProbeStep,
    SystemGraphs,
    UnexpectedAnswer,
    Verdict,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.naming import loading_name, marker_name, state_name, system_of
from txlog.workers.netting import JOIN, grouped, update_texts

_UPDATE = {"Content-Type": "application/sparql-update"}
_QUERY = {"Content-Type": "application/sparql-query", "Accept": "text/csv"}

_DIGITS = 8
_BASE = 4  # the least names to look at for a number of tokens
TOKENS: int = 1 << (2 * _DIGITS)
"""How many locks can be told apart: two appliers that claim within the same fraction of a millisecond pass for one
once in so many times, and only then does the store's marker tell of it instead of preventing it."""
_LOCKS = [[f"<{SYSTEM}:lock:{place}{digit}>" for digit in range(_BASE)] for place in range(_DIGITS)]
_DROP_ALL_LOCKS = JOIN.join(f"DROP SILENT GRAPH {name}" for names in _LOCKS for name in names)
_SEES_GRAPHS = re.compile(r"\bgraph\s*[?$#]|\b(all|named)\b", re.IGNORECASE)
"""Updates that may look at graphs without naming them. Too much is found rather than too little."""
_TRIP = f"<{SYSTEM}:empty>"
_ONLY_IF_EMPTY = (
    # Anything that is there makes the trip graph, which makes its CREATE fail.
    f"INSERT {{ GRAPH {_TRIP} {{ {_TRIP} {_TRIP} {_TRIP} }} }} "
    "WHERE { SELECT * { { ?s ?p ?o } UNION { GRAPH ?g {} } } LIMIT 1 }",
    f"CREATE GRAPH {_TRIP}",
    f"DROP GRAPH {_TRIP}",
)
"""The guard of a store that has no marker yet."""
_NO_SYSTEM = f'FILTER(!STRSTARTS(STR(?g),"{SYSTEM}"))'


def _confirm(mine: Sequence[str]) -> list[str]:
    """Fails unless the lock that stands there is this one and no other; takes it away."""
    others = [name for names in _LOCKS for name in names if name not in mine]
    return [
        *(f"DROP GRAPH {name}" for name in mine),
        *(text for name in others for text in (f"CREATE GRAPH {name}", f"DROP GRAPH {name}")),
    ]


def _mine(token: int) -> list[str]:
    return [names[token >> (2 * place) & (_BASE - 1)] for place, names in enumerate(_LOCKS)]


def _update(texts: Sequence[str]) -> WorkerRequest:
    return WorkerRequest("POST", "/update", _UPDATE, JOIN.join(texts).encode())


def _ask(text: str) -> WorkerRequest:
    return WorkerRequest("POST", "/query", _QUERY, text.encode())


def _rows(asked: str, response: WorkerResponse) -> list[str]:
    """The only column of a CSV result."""
    if response.status != 200:
        raise UnexpectedAnswer(asked, response)
    return response.body.decode().split("\r\n")[1:-1]


def _ask_in(asked: str, response: WorkerResponse) -> bool:
    if response.status != 200 or response.body.strip() not in (b"true", b"false"):
        raise UnexpectedAnswer(asked, response)
    return response.body.strip() == b"true"


class OxigraphAdapter:
    """See the module. Holds nothing."""

    @property
    def engine(self) -> str:
        return "oxigraph"

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES["oxigraph"]

    @property
    def tokens(self) -> int:
        return TOKENS

    # -- position

    def read_system(self) -> WorkerRequest:
        return _ask(f'SELECT ?g {{ GRAPH ?g {{}} FILTER(STRSTARTS(STR(?g),"{SYSTEM}")) }}')

    def system_in(self, response: WorkerResponse) -> SystemGraphs:
        return self.system_of(_rows("reading the marker", response))

    def system_of(self, names: Iterable[str]) -> SystemGraphs:
        return system_of(names)

    def is_at(self, marker: MarkerPosition) -> WorkerRequest:
        return _ask(f"ASK {{ GRAPH <{marker_name(marker)}> {{}} }}")

    def is_at_in(self, response: WorkerResponse) -> bool:
        return _ask_in("confirming the marker", response)

    def is_empty(self) -> WorkerRequest:
        return _ask(f"ASK {{ {{ ?s ?p ?o }} UNION {{ GRAPH ?g {{}} {_NO_SYSTEM} }} }}")

    def is_empty_in(self, response: WorkerResponse) -> bool:
        return not _ask_in("looking for foreign data", response)

    # -- apply

    def apply(
        self,
        operations: Sequence[Operation],
        expected: MarkerPosition | Loading | None,
        new: MarkerPosition | Loading,
        *,
        lock: Lock = Lock.NONE,
        token: int = 0,
        release: bool = False,
    ) -> WorkerRequest:
        texts: list[str] = []
        mine = _mine(token)
        recreate = lock is not Lock.NONE and not release
        if lock is Lock.CONFIRM:
            texts += _confirm(mine)
        elif lock is Lock.KEEP and any(
            o.kind == KIND_UPDATE and _SEES_GRAPHS.search(o.payload.decode()) for o in operations
        ):
            # Claims of others may stand there by now. They are taken away with ours, which their owners notice.
            texts.append(_DROP_ALL_LOCKS)
        elif lock is Lock.KEEP:
            recreate = False
            if release:
                texts += [f"DROP SILENT GRAPH {name}" for name in mine]
        if expected is None:
            texts += _ONLY_IF_EMPTY
        else:
            texts.append(f"DROP GRAPH <{state_name(expected)}>")
        texts += update_texts(operations)
        texts.append(f"CREATE GRAPH <{state_name(new)}>")
        if recreate:
            texts += [f"CREATE SILENT GRAPH {name}" for name in mine]
        # User texts carry a prologue; Oxigraph takes one at the very beginning only, so they name IRIs in full.
        return _update(texts)

    def verdict(self, response: WorkerResponse) -> Verdict:
        if response.ok:
            return Verdict.APPLIED
        if response.status == 500 and b"<urn:txlog:system:" in response.body:
            return Verdict.CONTENDED if b"<urn:txlog:system:lock:" in response.body else Verdict.MOVED
        return Verdict.REFUSED

    def claim(self, token: int) -> WorkerRequest:
        return _update([f"CREATE GRAPH {name}" for name in _mine(token)])

    def claims_of(self, token: int) -> frozenset[str]:
        return frozenset(name[1:-1] for name in _mine(token))

    def unclaim(self, token: int) -> WorkerRequest:
        return _update([f"DROP SILENT GRAPH {name}" for name in _mine(token)])

    def renew(self, token: int, new: int) -> WorkerRequest:
        return _update([f"{do} GRAPH {name}" for do, its in (("DROP", token), ("CREATE", new)) for name in _mine(its)])

    def take_over(self, found: MarkerPosition | None, token: int) -> WorkerRequest:
        move = []
        if found is not None:
            raised = found._replace(fence=found.fence + 1)
            move = [f"DROP GRAPH <{marker_name(found)}>", f"CREATE GRAPH <{marker_name(raised)}>"]
        return _update([*move, _DROP_ALL_LOCKS, *(f"CREATE GRAPH {name}" for name in _mine(token))])

    def drop_marker(self, marker: MarkerPosition) -> WorkerRequest:
        return _update([f"DROP GRAPH <{marker_name(marker)}>"])

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
            # The parameter overrules FROM, so it is sent only for queries that have none.
            asked = [("union-default-graph", "")]
        headers = {"Content-Type": "application/sparql-query", "Accept": accept}
        return WorkerRequest("POST", "/query" + (f"?{urlencode(asked)}" if asked else ""), headers, text.encode())

    def size(self, graphs: Sequence[str | None] | None = None) -> WorkerRequest:
        if graphs is None:
            # A marker holds no statements, so nothing of ours is counted.
            where = "{ ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } }"
        else:
            where = " UNION ".join("{ ?s ?p ?o }" if g is None else f"{{ GRAPH <{g}> {{ ?s ?p ?o }} }}" for g in graphs)
        return _ask(f"SELECT (COUNT(*) AS ?n) {{ {where} }}")

    def size_in(self, response: WorkerResponse) -> int:
        return int(_rows("counting statements", response)[0])

    def counts(self) -> WorkerRequest:
        # One query sees one moment. Graphs of ours hold no statements and come in for their names.
        text = (
            "SELECT ?g (COUNT(?s) AS ?n) { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } "
            f'UNION {{ GRAPH ?g {{}} FILTER(STRSTARTS(STR(?g),"{SYSTEM}")) }} }} GROUP BY ?g'
        )
        return _ask(text)

    def counts_in(self, response: WorkerResponse) -> Counted:
        # Commas in IRIs are not quoted; a number has none.
        rows = [row.rpartition(",") for row in _rows("counting statements by graph", response)]
        try:
            counts = {graph: int(count) for graph, _, count in rows}
        except ValueError:
            raise UnexpectedAnswer("counting statements by graph", response) from None
        ours = [name for name in counts if name.startswith(SYSTEM)]
        return Counted(self.system_of(ours), {name: n for name, n in counts.items() if n and name not in ours})

    def contexts(self) -> WorkerRequest:
        return _ask(f"SELECT ?g {{ GRAPH ?g {{}} {_NO_SYSTEM} FILTER EXISTS {{ GRAPH ?g {{ ?s ?p ?o }} }} }}")

    def contexts_in(self, response: WorkerResponse) -> list[str]:
        return _rows("listing named graphs", response)

    def export(self, accept: str, graph: str | None = None) -> WorkerRequest:
        which = "default" if graph is None else urlencode({"graph": graph})
        return WorkerRequest("GET", f"/store?{which}", {"Accept": accept})

    def snapshot(self, accept: str = "application/n-quads") -> WorkerRequest:
        return WorkerRequest("GET", "/store", {"Accept": accept})

    def cleaned(self, chunks: Iterable[bytes]) -> Iterable[bytes]:
        # An empty graph is in no dump, and its literals are canonical as they are.
        return chunks

    def everything(self) -> WorkerRequest:
        # One query sees one moment.
        text = (
            "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } "
            f'UNION {{ GRAPH ?g {{}} FILTER(STRSTARTS(STR(?g),"{SYSTEM}")) }} }}'
        )
        headers = {"Content-Type": "application/sparql-query", "Accept": "text/tab-separated-values"}
        return WorkerRequest("POST", "/query", headers, text.encode())

    # -- loading

    def begin_loading(self, loading: Loading, token: int) -> WorkerRequest:
        return _update([*_confirm(_mine(token)), *_ONLY_IF_EMPTY, f"CREATE GRAPH <{loading_name(loading)}>"])

    def condemn(self, found: SystemGraphs, loading: Loading, token: int) -> WorkerRequest:
        names = [marker_name(marker) for marker in found.markers] + [loading_name(each) for each in found.loading]
        drops = [f"DROP GRAPH <{name}>" for name in names]
        return _update([*_confirm(_mine(token)), *drops, f"CREATE GRAPH <{loading_name(loading)}>"])

    def empty(self) -> WorkerRequest:
        # Alone it is one range delete (1 ms); beside any other operation every quad is deleted (29 s for 200,000).
        return _update(["DROP ALL"])

    def is_loading(self, loading: Loading) -> WorkerRequest:
        return _ask(f"ASK {{ GRAPH <{loading_name(loading)}> {{}} }}")

    def load(self, quads: bytes) -> WorkerRequest:
        return WorkerRequest("POST", "/store?no_transaction", {"Content-Type": "application/n-quads"}, quads)

    def erase(self, quads: Sequence[bytes], left: Sequence[bytes]) -> WorkerRequest:
        texts = [f"DELETE DATA {{{grouped(quads)}}}"] if quads else []
        return _update([*texts, *(f"CREATE SILENT GRAPH {graph.decode()}" for graph in left)])

    def end_loading(self, loading: Loading, new: MarkerPosition) -> WorkerRequest:
        return _update([f"DROP GRAPH <{loading_name(loading)}>", f"CREATE GRAPH <{marker_name(new)}>"])

    # -- registration

    def probe_requests(self) -> Sequence[ProbeStep]:
        scratch = f"<{SYSTEM}:probe>"
        absent = f"<{SYSTEM}:probe:absent>"
        insert = f"INSERT DATA {{ GRAPH {scratch} {{ {scratch} {scratch} {scratch} }} }}"
        nothing_left = _ask(f"SELECT ?s {{ GRAPH {scratch} {{ ?s ?p ?o }} }}")
        not_atomic = "it keeps a part of a request whose last operation failed; a crash would lose the position"
        return (
            ProbeStep(
                _ask("ASK {}"), (200,), "NotAWorker", "it does not answer SPARQL queries at /query; check the URL"
            ),
            ProbeStep(
                _update([f"DROP SILENT GRAPH {scratch}"]), (204,), "NotAWorker", "it takes no updates at /update"
            ),
            ProbeStep(
                _update([insert, f"CREATE GRAPH {scratch}"]),
                range(400, 600),
                "NotAtomic",
                "CREATE GRAPH of a graph that exists does not fail, so that a failure could not be told from success",
            ),
            ProbeStep(nothing_left, (200,), "NotAtomic", not_atomic, empty=True),
            ProbeStep(
                _update([insert, f"DROP GRAPH {absent}"]),
                range(400, 600),
                "NoGuard",
                "DROP GRAPH of a graph that does not exist does not fail, so that an apply could not be guarded",
            ),
            ProbeStep(nothing_left, (200,), "NotAtomic", not_atomic, empty=True),
            ProbeStep(
                _update([f"WITH {scratch} DELETE {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o }}"]),
                (204,),
                "UnionDefaultGraph",
                "it refuses WITH and USING: start it without --union-default-graph (queries ask for the union)",
            ),
            ProbeStep(
                _update([f"DROP SILENT GRAPH {scratch}"]), (204,), "NotAWorker", "it cannot remove the probe's graph"
            ),
        )
