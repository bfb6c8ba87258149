"""RDF4J's server (4 or newer): ``http://HOST:PORT/rdf4j-server/repositories/NAME``, a repository on disk.

- **Marker**: as in every engine without empty graphs (:mod:`txlog.workers.marked`).
- **Guard**: ``CREATE GRAPH`` fails where the graph holds something, and with it the request, which is one transaction.
- **Lock**: RDF4J carries out overlapping updates on snapshots, and lets both commit, so a guard that two requests check
  at the same time lets both pass. A lock is the marker's triple in the graph that spells a random token. Who finds its
  own and no other, after having written it, is alone: whoever comes later finds this one.
- **Scope**: patterns and DELETE templates without GRAPH reach all graphs in RDF4J. In the log they reach the default
  graph, so updates are told to do so (:mod:`txlog.workers.scoping`); ``remove-graph-uri=null`` says it to DELETE DATA.
- **Literals** are given in the form of all engines, and brought into it again on the way out: RDF4J keeps them as they
  are written.
- Why so: docs/decisions/0016-how-an-rdf4j-is-guarded.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from txlog.model.entry import KIND_UPDATE
from txlog.workers.base import (
    SYSTEM,
    Loading,
    Lock,
    MarkerPosition,
    Operation,
    ProbeStep,
    Verdict,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.canonical import canonical_lines
from txlog.workers.marked import ANYTHING, TERM, TRIP, TRIPLE, MarkedAdapter, absent, enter, remove
from txlog.workers.naming import marker_name, state_name
from txlog.workers.netting import update_texts
from txlog.workers.protocol import TRUE, dataset
from txlog.workers.scoping import NIL, canonical_constants, says_from, scoped_query, scoped_update

_LOCK: Final = f"{SYSTEM}:lock:"
_CONTENDED: Final = f"<{SYSTEM}:contended>"
_A_LOCK: Final = f'GRAPH ?g {{ {TRIPLE} }} FILTER(STRSTARTS(STR(?g),"{_LOCK}"))'
_NO_LOCKS: Final = f"DELETE {{ GRAPH ?g {{ {TRIPLE} }} }} WHERE {{ {_A_LOCK} }}"
_EXISTS: Final = b"Named graph %s already exists"
_MOVED: Final = _EXISTS % TRIP[1:-1].encode()
_TAKEN: Final = _EXISTS % _CONTENDED[1:-1].encode()


def _lock(token: int) -> str:
    return f"{_LOCK}{token}"


def _unless_contended(condition: str) -> list[str]:
    """Operations that fail, and with them the request, where ``condition`` says that another applier is at it."""
    return [f"INSERT {{ GRAPH {_CONTENDED} {{ {TRIPLE} }} }} WHERE {{ {condition} }}", f"CREATE GRAPH {_CONTENDED}"]


class Rdf4jAdapter(MarkedAdapter):
    """See the module. Holds nothing."""

    engine = "rdf4j"
    query_path = ""
    update_path = "/statements?remove-graph-uri=null"
    data_path = "/statements"
    boolean = "text/boolean"
    charset = ";charset=utf-8"
    everything_media = "application/sparql-results+json"  # its TSV writes strings without quotes, which nobody can read
    default_quads = f"{{ GRAPH {NIL} {{ ?s ?p ?o }} }}"
    named_quads = f"{{ GRAPH ?g {{ ?s ?p ?o }} FILTER(?p!={TERM}) }}"
    fail = f"CREATE GRAPH {TRIP}"

    @property
    def tokens(self) -> int:
        return 1 << 62

    def given(self, lines: bytes) -> bytes:
        return canonical_lines(lines)

    def unlock(self, token: int) -> list[str]:
        mine = _lock(token)
        return [
            *_unless_contended(absent(mine)),
            *_unless_contended(f"{_A_LOCK} FILTER(?g!=<{mine}>)"),
            _NO_LOCKS,
        ]

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
        stays = False
        if lock is Lock.CONFIRM:
            texts += self.unlock(token)
        elif lock is Lock.KEEP and any(operation.kind == KIND_UPDATE for operation in operations):
            # Claims of others may stand there by now. They are taken away with ours, which their owners notice.
            texts.append(_NO_LOCKS)
        elif lock is Lock.KEEP:
            stays = True
            if release:
                texts.append(remove(_lock(token)))
        texts += self.trip(ANYTHING) if expected is None else self.leave(state_name(expected))
        given = [
            Operation(each.kind, scoped_update(each.payload.decode()).encode()) if each.kind == KIND_UPDATE else each
            for each in operations
        ]
        texts += update_texts(given, canonical_lines)
        texts.append(enter(state_name(new)))
        if lock is not Lock.NONE and not release and not stays:
            texts.append(enter(_lock(token)))
        return self._update(texts)

    def verdict(self, response: WorkerResponse) -> Verdict:
        if response.ok:
            return Verdict.APPLIED
        if response.status == 500 and _MOVED in response.body:
            return Verdict.MOVED
        if response.status == 500 and _TAKEN in response.body:
            return Verdict.CONTENDED
        return Verdict.REFUSED

    def claim(self, token: int) -> WorkerRequest:
        return self._update([*_unless_contended(_A_LOCK), enter(_lock(token))])

    def claims_of(self, token: int) -> frozenset[str]:
        return frozenset((_lock(token),))

    def unclaim(self, token: int) -> WorkerRequest:
        return self._update([remove(_lock(token))])

    def renew(self, token: int, new: int) -> WorkerRequest:
        return self._update([*_unless_contended(absent(_lock(token))), remove(_lock(token)), enter(_lock(new))])

    def take_over(self, found: MarkerPosition | None, token: int) -> WorkerRequest:
        move = []
        if found is not None:
            raised = found._replace(fence=found.fence + 1)
            move = [*self.leave(marker_name(found)), enter(marker_name(raised))]
        return self._update([*move, _NO_LOCKS, enter(_lock(token))])

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
        asked = dataset(default_graphs, named_graphs)
        # Of equal weight it would choose its own binary form, which a master makes of another.
        accept = ",".join(each for each in accept.split(",") if "x-binary" not in each) or "*/*"
        text = canonical_constants(text)
        if not asked and not union and not says_from(text):
            text = scoped_query(text)
        return self._asked(text, accept, asked)

    def contexts(self) -> WorkerRequest:
        # Not its own list of graphs, a file beside the data, which may be of before a crash.
        return self._select(f"SELECT DISTINCT ?g {self.named_quads}")

    def export(self, accept: str, graph: str | None = None) -> WorkerRequest:
        which = urlencode({"context": "null" if graph is None else f"<{graph}>"})
        return WorkerRequest("GET", f"{self.data_path}?{which}", {"Accept": accept})

    # -- registration

    def probe_requests(self) -> Sequence[ProbeStep]:
        scratch = f"{SYSTEM}:probe"
        here = f"<{scratch}>"
        insert = f"INSERT DATA {{ GRAPH {here} {{ {here} {here} {here} }} }}"
        clear = self._update([f"DROP SILENT GRAPH {here}"])
        nothing_left = self._select(f"SELECT ?s {{ GRAPH {here} {{ ?s ?p ?o }} }}")
        not_atomic = "it keeps a part of a request whose last operation failed; a crash would lose the position"
        no_scope = "its patterns inside GRAPH rdf4j:nil do not match the default graph: RDF4J 4 or newer is wanted"
        return (
            ProbeStep(
                self._ask(TRUE),
                (200,),
                "NotAWorker",
                "it does not answer SPARQL queries; the URL of a repository looks like "
                "http://host:8080/rdf4j-server/repositories/name",
                holds=b"true",
            ),
            ProbeStep(clear, (204,), "NotAWorker", "it takes no updates at statements"),
            ProbeStep(
                self._update([insert, *self.leave(f"{scratch}:absent")]),
                (500,),
                "NoGuard",
                "CREATE GRAPH of a graph that exists does not fail, so that an apply could not be guarded",
                holds=_MOVED,
            ),
            ProbeStep(nothing_left, (200,), "NotAtomic", not_atomic, empty=True),
            ProbeStep(
                self._update([*self.trip("FILTER(false)"), insert]),
                (204,),
                "NoGuard",
                "CREATE GRAPH of a graph that does not exist fails",
            ),
            ProbeStep(
                self._ask(f"ASK {{ {here} {here} {here} FILTER NOT EXISTS {{ GRAPH {NIL} {{ {here} ?p ?o }} }} }}"),
                (200,),
                "NoDefaultGraph",
                no_scope,
                holds=b"true",
            ),
            ProbeStep(clear, (204,), "NotAWorker", "it cannot remove the probe's graph"),
        )
