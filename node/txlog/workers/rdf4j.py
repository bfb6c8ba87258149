"""RDF4J's server (4 or newer): ``http://HOST:PORT/rdf4j-server/repositories/NAME``, a repository on disk.

- **Marker**: as in every engine without empty graphs (:mod:`txlog.workers.triple_marker`).
- **Guard**: ``CREATE GRAPH`` fails where the graph holds something, and with it the request, which is one transaction.
- **Lock**: RDF4J executes overlapping updates on snapshots and lets both commit. A guard that two requests check at the
  same time lets both pass. A lock is the marker's triple in the graph whose name encodes a random token. An applier
  that finds its own lock and no other after writing it has the lock: a later applier finds this one, too.
- **Scope**: patterns and DELETE templates without GRAPH match all graphs in RDF4J. In the log they match the default
  graph, so updates are rewritten (:mod:`txlog.workers.union_default_graph`). For DELETE DATA the parameter
  ``remove-graph-uri=null`` does it.
- **Literals** are written in the canonical form of all engines and converted to it again when they are read: RDF4J
  keeps them as they are written. The engine :data:`AS_WRITTEN` leaves them as the log has them, in both directions,
  except for language tags, which are in lower case (:func:`~txlog.workers.canonical_literals.lines_with_lower_tags`).
- **Variables** that a triple has twice get a filter (:mod:`txlog.workers.rdf4j_repeats`), those of ``VALUES`` a name
  (:mod:`txlog.workers.rdf4j_values`); ``MINUS`` sees its own only (:mod:`txlog.workers.rdf4j_minus`).
- **IF** gets its errors (:func:`~txlog.workers.union_default_graph.give_if_its_errors`).
- The reasons: docs/decisions/0016-how-an-rdf4j-is-guarded.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import urlencode

from txlog.config.units import AS_WRITTEN
from txlog.model.entry import KIND_UPDATE
from txlog.sparql import EFFECT_CONDITION, names_form
from txlog.workers.adapter import (
    SYSTEM,
    ApplyResult,
    LoadMarker,
    LockAction,
    MarkerPosition,
    ProbeStep,
    StoreOperation,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.canonical_literals import canonical_lines, clean_quads, lines_with_lower_tags
from txlog.workers.marker_names import TRIAL_NAME, marker_name, marker_or_load_name
from txlog.workers.rdf4j_minus import isolate_minus
from txlog.workers.rdf4j_repeats import separate_repeats
from txlog.workers.rdf4j_values import name_values
from txlog.workers.sparql_http import dataset_parameters
from txlog.workers.triple_marker import (
    GUARD_GRAPH,
    MARKER_TRIPLE,
    NON_EMPTY_PATTERN,
    PROBE_NAME,
    SYSTEM_LINE,
    SYSTEM_TERM,
    TripleMarkerAdapter,
    delete_marker,
    filter_not_exists,
    insert_marker,
)
from txlog.workers.union_default_graph import (
    NIL,
    canonical_constants,
    give_if_its_errors,
    has_dataset_clause,
    lower_tags,
    scoped_query,
    scoped_update,
)
from txlog.workers.update_batches import update_texts

_LOCK: Final = f"{SYSTEM}:lock:"
_CONTENDED: Final = f"<{SYSTEM}:contended>"
_A_LOCK: Final = f'GRAPH ?g {{ {MARKER_TRIPLE} }} FILTER(STRSTARTS(STR(?g),"{_LOCK}"))'
_DELETE_ALL_LOCKS: Final = f"DELETE {{ GRAPH ?g {{ {MARKER_TRIPLE} }} }} WHERE {{ {_A_LOCK} }}"
_EXISTS: Final = b"Named graph %s already exists"
_MOVED: Final = _EXISTS % GUARD_GRAPH[1:-1].encode()
_REFUSED_EFFECT: Final = "EffectOfCanonicalLiterals"
"""No SPARQL; the engine's error message repeats it."""
_TAKEN: Final = _EXISTS % _CONTENDED[1:-1].encode()


def _lock(token: int) -> str:
    return f"{_LOCK}{token}"


def _fail_if_contended(condition: str) -> list[str]:
    """Operations that fail, and with them the request, where ``condition`` holds: another applier is active."""
    return [
        f"INSERT {{ GRAPH {_CONTENDED} {{ {MARKER_TRIPLE} }} }} WHERE {{ {condition} }}",
        f"CREATE GRAPH {_CONTENDED}",
    ]


class Rdf4jAdapter(TripleMarkerAdapter):
    """The adapter for RDF4J's server: see the module. It has no state. ``engine``: ``rdf4j``, or :data:`AS_WRITTEN`,
    with which literals stay as they were sent."""

    query_path = ""
    update_path = "/statements?remove-graph-uri=null"
    data_path = "/statements"
    boolean_media_type = "text/boolean"
    charset = ";charset=utf-8"
    dump_media_type = "application/sparql-results+json"  # its TSV writes strings without quotes: ambiguous
    default_quads = f"{{ GRAPH {NIL} {{ ?s ?p ?o }} }}"
    named_quads = f"{{ GRAPH ?g {{ ?s ?p ?o }} FILTER(?p!={SYSTEM_TERM}) }}"
    fail = f"CREATE GRAPH {GUARD_GRAPH}"

    def __init__(self, engine: str = "rdf4j") -> None:
        self.engine = engine
        self._as_written = engine == AS_WRITTEN

    @property
    def token_limit(self) -> int:
        return 1 << 62

    def normalise_quads(self, lines: bytes) -> bytes:
        return lines_with_lower_tags(lines) if self._as_written else canonical_lines(lines)

    def clean_snapshot(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        return clean_quads(chunks, SYSTEM_LINE, as_written=self._as_written)

    def _scoped_update(self, text: str) -> str:
        if self._as_written and EFFECT_CONDITION in text and not names_form(text, AS_WRITTEN):
            # A master computed it on literals in their canonical form, so it would miss quads here, or find a change
            # where there is none. RDF4J refuses this text, and with it the transaction, by this name.
            return _REFUSED_EFFECT
        return name_values(separate_repeats(isolate_minus(scoped_update(self._dialect(text)))))

    def _dialect(self, text: str) -> str:
        """The constants of a query or an update as this engine holds them, and IF as SPARQL defines it."""
        return give_if_its_errors(lower_tags(text) if self._as_written else canonical_constants(text))

    def confirm_lock(self, token: int) -> list[str]:
        mine = _lock(token)
        return [
            *_fail_if_contended(filter_not_exists(mine)),
            *_fail_if_contended(f"{_A_LOCK} FILTER(?g!=<{mine}>)"),
            _DELETE_ALL_LOCKS,
        ]

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
        stays = False
        if lock is LockAction.CONFIRM:
            texts += self.confirm_lock(token)
        elif lock is LockAction.KEEP and any(operation.kind == KIND_UPDATE for operation in operations):
            # Other appliers may have added claims by now. This removes them as well; their owners notice it.
            texts.append(_DELETE_ALL_LOCKS)
        elif lock is LockAction.KEEP:
            stays = True
            if release:
                texts.append(delete_marker(_lock(token)))
        texts += (
            self.fail_if(NON_EMPTY_PATTERN) if expected is None else self.delete_or_fail(marker_or_load_name(expected))
        )
        texts += update_texts(operations, self.normalise_quads, self._scoped_update)
        texts += self.delete_or_fail(TRIAL_NAME) if new is None else [insert_marker(marker_or_load_name(new))]
        if lock is not LockAction.NONE and not release and not stays:
            texts.append(insert_marker(_lock(token)))
        return self._update(texts)

    def parse_apply_result(self, response: WorkerResponse) -> ApplyResult:
        if response.ok:
            return ApplyResult.APPLIED
        if response.status == 500 and _MOVED in response.body:
            return ApplyResult.MOVED
        if response.status == 500 and _TAKEN in response.body:
            return ApplyResult.CONTENDED
        return ApplyResult.REFUSED

    def claim(self, token: int) -> WorkerRequest:
        return self._update([*_fail_if_contended(_A_LOCK), insert_marker(_lock(token))])

    def claims_for_token(self, token: int) -> frozenset[str]:
        return frozenset((_lock(token),))

    def release_claim(self, token: int) -> WorkerRequest:
        return self._update([delete_marker(_lock(token))])

    def renew(self, token: int, new: int) -> WorkerRequest:
        return self._update(
            [
                *_fail_if_contended(filter_not_exists(_lock(token))),
                delete_marker(_lock(token)),
                insert_marker(_lock(new)),
            ]
        )

    def take_over(self, found: MarkerPosition | None, token: int) -> WorkerRequest:
        move = []
        if found is not None:
            raised = found._replace(fence=found.fence + 1)
            move = [*self.delete_or_fail(marker_name(found)), insert_marker(marker_name(raised))]
        return self._update([*move, _DELETE_ALL_LOCKS, insert_marker(_lock(token))])

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
        asked = dataset_parameters(default_graphs, named_graphs)
        # Among equal weights RDF4J would choose its binary format; a master writes that format itself, from another.
        accept = ",".join(each for each in accept.split(",") if "x-binary" not in each) or "*/*"
        text = self._dialect(text)
        if not asked and not union and not has_dataset_clause(text):
            text = scoped_query(text)
        return self._query_request(text, accept, asked)

    def contexts(self) -> WorkerRequest:
        # Not RDF4J's own list of graphs: it is a file beside the data, and may be outdated after a crash.
        return self._select(f"SELECT DISTINCT ?g {self.named_quads}")

    def export(self, accept: str, graph: str | None = None) -> WorkerRequest:
        which = urlencode({"context": "null" if graph is None else f"<{graph}>"})
        return WorkerRequest("GET", f"{self.data_path}?{which}", {"Accept": accept})

    def match(self, terms: Sequence[str | None], graphs: Sequence[str] | None) -> WorkerRequest:
        given = [(name, term) for name, term in zip(("subj", "pred", "obj"), terms, strict=True) if term]
        given += [("context", graph or "null") for graph in dict.fromkeys(graphs or ())]
        return WorkerRequest("GET", f"{self.data_path}?{urlencode(given)}", {"Accept": "application/n-quads"})

    # -- registration

    def probe_steps(self) -> Sequence[ProbeStep]:
        here = f"<{PROBE_NAME}>"
        scope = ProbeStep(
            self._ask(f"ASK {{ {here} {here} {here} FILTER NOT EXISTS {{ GRAPH {NIL} {{ {here} ?p ?o }} }} }}"),
            (200,),
            "NoDefaultGraph",
            "its patterns inside GRAPH rdf4j:nil do not match the default graph: RDF4J 4 or newer is wanted",
            holds=b"true",
        )
        return self.probe_guard(
            f"{here} {here} {here}",
            (204,),
            _MOVED,
            scope,
            answer=b"true",
            no_queries="it does not answer SPARQL queries; the URL of a repository looks like "
            "http://host:8080/rdf4j-server/repositories/name",
            no_updates="it takes no updates at statements",
            never_fails="CREATE GRAPH of a graph that exists does not fail, so that an apply could not be guarded",
            always_fails="CREATE GRAPH of a graph that does not exist fails",
        )
