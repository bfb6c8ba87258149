"""Apache Jena Fuseki (5) with a data set of TDB2: ``http://HOST:PORT/NAME`` with ``query``, ``update`` and ``data``.

- **Marker**: Jena has no empty graphs. So the graph whose name encodes the marker (:mod:`txlog.workers.marker_names`)
  holds one triple, ``<urn:txlog:system> <urn:txlog:system> <urn:txlog:system>``. A request deletes it first and inserts
  it last, so updates never match it. Reads hide it (``sparql.hide_marker``, :meth:`FusekiAdapter.clean_snapshot`).
- **Guard**: neither DROP nor CREATE fails in Jena, nor does any expression. ``SERVICE`` fails, because a worker has it
  switched off (``arq:httpServiceAllowed``); no client's update with a SERVICE comes here. Where the marker is not the
  expected one, the request has a solution for a SERVICE, and Jena rolls it back wholly.
- **Serial**: TDB2 has a single writer and commits with fsync, so the guard alone is enough for two appliers.
- **Templates** make triples of RDF only (:mod:`txlog.workers.jena_templates`).
- **Literals** are written in Oxigraph's form and converted to it again when they are read
  (:mod:`txlog.workers.canonical_literals`).
- The reasons: docs/decisions/0014-how-a-fuseki-is-guarded.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from txlog.model.entry import KIND_UPDATE
from txlog.workers.adapter import (
    ApplyResult,
    LoadMarker,
    LockAction,
    MarkerPosition,
    ProbeStep,
    StoreOperation,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.canonical_literals import canonical_lines
from txlog.workers.jena_joins import FAULT, separate_joins
from txlog.workers.jena_templates import guard_templates
from txlog.workers.marker_names import TRIAL_NAME, marker_name, marker_or_load_name
from txlog.workers.sparql_http import USER_GRAPHS_FILTER, UnlockedAdapter, dataset_parameters
from txlog.workers.triple_marker import (
    GUARD_GRAPH,
    MARKER_TRIPLE,
    NON_EMPTY_PATTERN,
    PROBE_NAME,
    TripleMarkerAdapter,
    insert_marker,
)
from txlog.workers.update_batches import OPERATION_SEPARATOR, update_texts

_DENIED: Final = b"SERVICE execution disabled"
_WHOLE_DECIMAL: Final = re.compile(rb'"(-?[0-9]+)"(\^\^<http://www\.w3\.org/2001/XMLSchema#decimal>)')
_MAY_NEED_REWRITING: Final = re.compile(
    r"\b(?:COPY|MOVE|ADD|HOURS|MINUTES|SECONDS|TIMEZONE|TZ)\b|\^\^|[0-9]*\.[0-9]", re.IGNORECASE
)
_TEXT: Final = re.compile(
    # Strings and IRIs first, so that their contents are not rewritten. An update of the log has full IRIs.
    r'(?P<string>"""(?:[^"\\]|\\.|"(?!""))*"""'
    r"|'''(?:[^'\\]|\\.|'(?!''))*'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*')(?P<type>\^\^<http://www\.w3\.org/2001/XMLSchema#[A-Za-z]+>|)"
    r"|(?P<before>^|;\s*)(?P<verb>COPY|MOVE|ADD)\s+SILENT\s+(?:GRAPH\s+)?(?P<source>DEFAULT|<[^>]*>)"
    r"\s+TO\s+(?:GRAPH\s+)?(?P<target>DEFAULT|<[^>]*>)"
    r"|(?<![\w?$])(?P<part>HOURS|MINUTES|SECONDS|TIMEZONE|TZ)\s*\(\s*(?P<of>[?$]\w+)\s*\)"
    r"|<[^<>\"{}|^`\\\s]*>"
    r"|(?<![\w.])(?P<decimal>[0-9]*\.[0-9]+)(?![0-9eE.])",
    re.IGNORECASE | re.DOTALL,
)
_SIMPLE: Final = re.compile(r"[^\"'\\\n]*")


def _normalise_quads(lines: bytes) -> bytes:
    """Quads in TDB2's form. A literal that TDB2 later returns as `1.0` has to be written so; otherwise a copy that an
    update makes of it is another node to TDB2 than the first."""
    return _WHOLE_DECIMAL.sub(rb'"\1.0"\2', canonical_lines(lines))


def _rewrite_update(text: str) -> str:
    """An update of the log in TDB2's form: its constants as :func:`_normalise_quads` writes those of quads, and COPY,
    MOVE and ADD as the operations that they are short for. Jena's versions do nothing where the source does not exist;
    SPARQL 1.1 Update, section 3.2.3, empties the destination all the same. The parts of times are tested first: Jena
    ends the request at what is no literal."""
    return _TEXT.sub(_rewrite_constant, text) if _MAY_NEED_REWRITING.search(text) else text


def _rewrite_constant(found: re.Match[str]) -> str:
    if found["verb"]:
        return found["before"] + OPERATION_SEPARATOR.join(
            _expand_graph_management(found["verb"].upper(), found["source"], found["target"])
        )
    if found["part"]:
        return f"IF(isLITERAL({found['of']}),{found['part']}({found['of']}),1/0)"
    if found["decimal"]:
        whole, _, part = found["decimal"].partition(".")
        return f"{whole.lstrip('0') or '0'}.{part.rstrip('0') or '0'}"
    if found["type"]:
        value = found["string"].strip(found["string"][0])
        if _SIMPLE.fullmatch(value):
            return _normalise_quads(f'"{value}"{found["type"]}'.encode()).decode()
    return found[0]


def _expand_graph_management(verb: str, source: str, target: str) -> list[str]:
    source, target = ("DEFAULT" if graph.upper() == "DEFAULT" else graph for graph in (source, target))
    if source == target:
        return ["DELETE DATA { }"]
    texts = [f"INSERT {{ {_graph_pattern(target)} }} WHERE {{ {_graph_pattern(source)} }}"]
    if verb != "ADD":
        texts.insert(0, f"CLEAR SILENT {_named(target)}")
    if verb == "MOVE":
        texts.append(f"CLEAR SILENT {_named(source)}")
    return texts


def _graph_pattern(graph: str) -> str:
    return "?s ?p ?o" if graph == "DEFAULT" else f"GRAPH {graph} {{ ?s ?p ?o }}"


def _named(graph: str) -> str:
    return graph if graph == "DEFAULT" else f"GRAPH {graph}"


class FusekiAdapter(TripleMarkerAdapter, UnlockedAdapter):
    """The adapter for Fuseki with TDB2: see the module. It has no state."""

    engine = "fuseki"
    fail = f"INSERT {{ }} WHERE {{ GRAPH {GUARD_GRAPH} {{ ?s ?p ?service }} SERVICE ?service {{ ?a ?b ?c }} }}"

    def normalise_quads(self, lines: bytes) -> bytes:
        return _normalise_quads(lines)

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
        texts = (
            self.fail_if(NON_EMPTY_PATTERN) if expected is None else self.delete_or_fail(marker_or_load_name(expected))
        )
        given = [_rewrite_update(text) for text in update_texts(operations, _normalise_quads, guard_templates)]
        end = self.delete_or_fail(TRIAL_NAME) if new is None else [insert_marker(marker_or_load_name(new))]
        return self._update([*texts, *given, *end])

    def parse_apply_result(self, response: WorkerResponse) -> ApplyResult:
        if response.ok:
            return ApplyResult.APPLIED
        if response.status == 500 and _DENIED in response.body:
            return ApplyResult.MOVED
        return ApplyResult.REFUSED

    def rewrite_refused(self, operation: StoreOperation, response: WorkerResponse) -> StoreOperation | None:
        if operation.kind != KIND_UPDATE or response.status != 500 or FAULT not in response.body:
            return None
        text = operation.payload.decode()
        separated = separate_joins(text)
        return StoreOperation(KIND_UPDATE, separated.encode()) if separated != text else None

    def take_over(self, found: MarkerPosition | None, token: int) -> WorkerRequest:
        if found is None:
            return self._do_nothing()
        return self._update(
            [
                *self.delete_or_fail(marker_name(found)),
                insert_marker(marker_name(found._replace(fence=found.fence + 1))),
            ]
        )

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
        if not default_graphs and union:
            default_graphs = self.capabilities.union_of
        return self._query_request(text, accept, dataset_parameters(default_graphs, named_graphs))

    def contexts(self) -> WorkerRequest:
        return self._select(f"SELECT ?g {{ GRAPH ?g {{ }} {USER_GRAPHS_FILTER} }}")

    # -- registration

    def probe_steps(self) -> Sequence[ProbeStep]:
        inside = f"{{ GRAPH <{PROBE_NAME}> {{ {MARKER_TRIPLE} }} FILTER NOT EXISTS {{ {MARKER_TRIPLE} }} }}"
        scope = ProbeStep(
            self._ask(f"ASK {inside}"),
            (200,),
            "UnionDefaultGraph",
            "its default graph is the union of all graphs: take tdb2:unionDefaultGraph out (queries ask for the union)",
            holds=b"true",
        )
        return self.probe_guard(
            MARKER_TRIPLE,
            (200, 204),
            _DENIED,
            scope,
            no_queries="it does not answer SPARQL queries at query; the URL of a data set looks like "
            "http://host:3030/name",
            no_updates="it takes no updates at update",
            never_fails="a request for another marker does not fail; an apply could not be guarded",
            always_fails="a request that should pass fails: it asks other addresses; set arq:httpServiceAllowed to "
            "false",
        )
