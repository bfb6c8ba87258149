"""Apache Jena Fuseki (5) with a data set of TDB2: ``http://HOST:PORT/NAME`` with ``query``, ``update`` and ``data``.

- **Marker**: Jena has no empty graphs, so the graph whose name says everything (:mod:`txlog.workers.naming`) holds one
  triple, ``<urn:txlog:system> <urn:txlog:system> <urn:txlog:system>``. It is taken out first in a request and put in
  again last, so updates never meet it; reads are kept from it (``sparql.hide_marker``, :meth:`FusekiAdapter.cleaned`).
- **Guard**: neither DROP nor CREATE fails in Jena, nor does any expression. What fails is ``SERVICE``, which a worker
  has switched off (``arq:httpServiceAllowed``; no update of a client gets here with one): where the marker is not the
  expected one, the request makes a solution for a SERVICE, and is rolled back whole.
- **Serial**: TDB2 lets one writer in at a time and commits with fsync, so the guard alone keeps two appliers apart.
- **Literals** are given in Oxigraph's form and brought into it again on the way out (:mod:`txlog.workers.canonical`).
- Why so: docs/decisions/0014-how-a-fuseki-is-guarded.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import urlencode

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
from txlog.workers.canonical import canonical_lines, cleaned
from txlog.workers.naming import loading_name, marker_name, state_name, system_of
from txlog.workers.netting import JOIN, grouped, update_texts

_UPDATE: Final = {"Content-Type": "application/sparql-update"}
_TERM: Final = f"<{SYSTEM}>"
_TRIPLE: Final = f"{_TERM} {_TERM} {_TERM}"
_TRIP: Final = f"<{SYSTEM}:trip>"
_FAIL: Final = f"INSERT {{ }} WHERE {{ GRAPH {_TRIP} {{ ?s ?p ?service }} SERVICE ?service {{ ?a ?b ?c }} }}"
_NOT_OURS: Final = f'FILTER(!STRSTARTS(STR(?g),"{SYSTEM}"))'
_ANYTHING: Final = "{ ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } }"
_DENIED: Final = b"SERVICE execution disabled"
_WHOLE_DECIMAL: Final = re.compile(rb'"(-?[0-9]+)"(\^\^<http://www\.w3\.org/2001/XMLSchema#decimal>)')
_WORTH_A_LOOK: Final = re.compile(r"\b(?:COPY|MOVE|ADD)\b|\^\^|[0-9]*\.[0-9]", re.IGNORECASE)
_TEXT: Final = re.compile(
    # Strings and IRIs first, so that what stands in them is left alone. An update of the log names its IRIs in full.
    r'(?P<string>"""(?:[^"\\]|\\.|"(?!""))*"""'
    r"|'''(?:[^'\\]|\\.|'(?!''))*'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*')(?P<type>\^\^<http://www\.w3\.org/2001/XMLSchema#[A-Za-z]+>|)"
    r"|(?P<before>^|;\s*)(?P<verb>COPY|MOVE|ADD)\s+SILENT\s+(?:GRAPH\s+)?(?P<source>DEFAULT|<[^>]*>)"
    r"\s+TO\s+(?:GRAPH\s+)?(?P<target>DEFAULT|<[^>]*>)"
    r"|<[^<>\"{}|^`\\\s]*>"
    r"|(?<![\w.])(?P<decimal>[0-9]*\.[0-9]+)(?![0-9eE.])",
    re.IGNORECASE | re.DOTALL,
)
_SIMPLE: Final = re.compile(r"[^\"'\\\n]*")
_SYSTEM_LINE: Final = f"{_TERM} ".encode()


def _given(lines: bytes) -> bytes:
    """Quads as TDB2 is to have them: what reads as `1.0` afterwards has to be written so, or a copy that an update
    makes of it is another node to TDB2 than the first."""
    return _WHOLE_DECIMAL.sub(rb'"\1.0"\2', canonical_lines(lines))


def _portable(text: str) -> str:
    """An update of the log as TDB2 is to have it: its constants as :func:`_given` writes those of quads, and COPY, MOVE
    and ADD said by what they do. Jena's do nothing where the source is not there; SPARQL 1.1 Update, section 3.2.3,
    empties the destination all the same."""
    return _TEXT.sub(_said, text) if _WORTH_A_LOOK.search(text) else text


def _said(found: re.Match[str]) -> str:
    if found["verb"]:
        return found["before"] + JOIN.join(_managed(found["verb"].upper(), found["source"], found["target"]))
    if found["decimal"]:
        whole, _, part = found["decimal"].partition(".")
        return f"{whole.lstrip('0') or '0'}.{part.rstrip('0') or '0'}"
    if found["type"]:
        value = found["string"].strip(found["string"][0])
        if _SIMPLE.fullmatch(value):
            return _given(f'"{value}"{found["type"]}'.encode()).decode()
    return found[0]


def _managed(verb: str, source: str, target: str) -> list[str]:
    source, target = ("DEFAULT" if graph.upper() == "DEFAULT" else graph for graph in (source, target))
    if source == target:
        return ["DELETE DATA { }"]
    texts = [f"INSERT {{ {_inside(target)} }} WHERE {{ {_inside(source)} }}"]
    if verb != "ADD":
        texts.insert(0, f"CLEAR SILENT {_named(target)}")
    if verb == "MOVE":
        texts.append(f"CLEAR SILENT {_named(source)}")
    return texts


def _inside(graph: str) -> str:
    return "?s ?p ?o" if graph == "DEFAULT" else f"GRAPH {graph} {{ ?s ?p ?o }}"


def _named(graph: str) -> str:
    return graph if graph == "DEFAULT" else f"GRAPH {graph}"


def _trip(condition: str) -> list[str]:
    """Operations that fail, and with them the request, where ``condition`` has a solution."""
    insert = f"INSERT {{ GRAPH {_TRIP} {{ {_TERM} {_TERM} {_TRIP} }} }} WHERE {{ {condition} }}"
    return [insert, _FAIL]


def _leave(name: str) -> list[str]:
    """Fails unless that graph of ours is there; takes it away."""
    absent = f"FILTER NOT EXISTS {{ GRAPH <{name}> {{ {_TRIPLE} }} }}"
    return [*_trip(absent), f"DELETE DATA {{ GRAPH <{name}> {{ {_TRIPLE} }} }}"]


def _enter(name: str) -> str:
    return f"INSERT DATA {{ GRAPH <{name}> {{ {_TRIPLE} }} }}"


_ONLY_IF_EMPTY: Final = _trip(f"{{ SELECT * {{ {_ANYTHING} }} LIMIT 1 }}")


def _update(texts: Sequence[str]) -> WorkerRequest:
    return WorkerRequest("POST", "/update", _UPDATE, JOIN.join(texts).encode())


def _ask(text: str, accept: str = "text/csv") -> WorkerRequest:
    headers = {"Content-Type": "application/sparql-query", "Accept": accept}
    return WorkerRequest("POST", "/query", headers, text.encode())


def _rows(asked: str, response: WorkerResponse) -> list[str]:
    """The only column of a CSV result."""
    if response.status != 200:
        raise UnexpectedAnswer(asked, response)
    return response.body.decode().split("\r\n")[1:-1]


def _ask_in(asked: str, response: WorkerResponse) -> bool:
    rows = _rows(asked, response)
    if rows not in (["true"], ["false"]):
        raise UnexpectedAnswer(asked, response)
    return rows == ["true"]


class FusekiAdapter:
    """See the module. Holds nothing."""

    @property
    def engine(self) -> str:
        return "fuseki"

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES["fuseki"]

    @property
    def tokens(self) -> int:
        return 1

    # -- position

    def read_system(self) -> WorkerRequest:
        return _ask(f"SELECT ?g {{ GRAPH ?g {{ {_TRIPLE} }} }}")

    def system_in(self, response: WorkerResponse) -> SystemGraphs:
        return self.system_of(_rows("reading the marker", response))

    def system_of(self, names: Iterable[str]) -> SystemGraphs:
        return system_of(names)

    def is_at(self, marker: MarkerPosition) -> WorkerRequest:
        return _ask(f"ASK {{ GRAPH <{marker_name(marker)}> {{ {_TRIPLE} }} }}")

    def is_at_in(self, response: WorkerResponse) -> bool:
        return _ask_in("confirming the marker", response)

    def is_empty(self) -> WorkerRequest:
        return _ask(f"ASK {{ {{ ?s ?p ?o }} UNION {{ GRAPH ?g {{ ?s ?p ?o }} {_NOT_OURS} }} }}")

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
        texts = _ONLY_IF_EMPTY if expected is None else _leave(state_name(expected))
        given = [_portable(text) for text in update_texts(operations, _given)]
        return _update([*texts, *given, _enter(state_name(new))])

    def verdict(self, response: WorkerResponse) -> Verdict:
        if response.ok:
            return Verdict.APPLIED
        if response.status == 500 and _DENIED in response.body:
            return Verdict.MOVED
        return Verdict.REFUSED

    # There is no lock to hold: the guard is enough where updates are serial. Whoever asks for one has it.

    def claim(self, token: int) -> WorkerRequest:
        return _ask("ASK {}")

    def claims_of(self, token: int) -> frozenset[str]:
        return frozenset()

    def unclaim(self, token: int) -> WorkerRequest:
        return _ask("ASK {}")

    def renew(self, token: int, new: int) -> WorkerRequest:
        return _ask("ASK {}")

    def take_over(self, found: MarkerPosition | None, token: int) -> WorkerRequest:
        if found is None:
            return _ask("ASK {}")
        return _update([*_leave(marker_name(found)), _enter(marker_name(found._replace(fence=found.fence + 1)))])

    def drop_marker(self, marker: MarkerPosition) -> WorkerRequest:
        return _update(_leave(marker_name(marker)))

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
        asked = [("default-graph-uri", graph) for graph in default_graphs]
        if not asked and union:
            asked = [("default-graph-uri", graph) for graph in self.capabilities.union_of]
        asked += [("named-graph-uri", graph) for graph in named_graphs]
        headers = {"Content-Type": "application/sparql-query", "Accept": accept}
        return WorkerRequest("POST", "/query" + (f"?{urlencode(asked)}" if asked else ""), headers, text.encode())

    def size(self, graphs: Sequence[str | None] | None = None) -> WorkerRequest:
        if graphs is None:
            where = f"{{ ?s ?p ?o }} UNION {{ GRAPH ?g {{ ?s ?p ?o }} {_NOT_OURS} }}"
        else:
            where = " UNION ".join("{ ?s ?p ?o }" if g is None else f"{{ GRAPH <{g}> {{ ?s ?p ?o }} }}" for g in graphs)
        return _ask(f"SELECT (COUNT(*) AS ?n) {{ {where} }}")

    def size_in(self, response: WorkerResponse) -> int:
        return int(_rows("counting statements", response)[0])

    def counts(self) -> WorkerRequest:
        return _ask(f"SELECT ?g (COUNT(?s) AS ?n) {{ {_ANYTHING} }} GROUP BY ?g")

    def counts_in(self, response: WorkerResponse) -> Counted:
        rows = [row.rpartition(",") for row in _rows("counting statements by graph", response)]
        try:
            counts = {graph.strip('"'): int(count) for graph, _, count in rows}
        except ValueError:
            raise UnexpectedAnswer("counting statements by graph", response) from None
        ours = [name for name in counts if name.startswith(SYSTEM)]
        return Counted(self.system_of(ours), {name: n for name, n in counts.items() if n and name not in ours})

    def contexts(self) -> WorkerRequest:
        return _ask(f"SELECT ?g {{ GRAPH ?g {{ }} {_NOT_OURS} }}")

    def contexts_in(self, response: WorkerResponse) -> list[str]:
        return _rows("listing named graphs", response)

    def export(self, accept: str, graph: str | None = None) -> WorkerRequest:
        which = "default" if graph is None else urlencode({"graph": graph})
        return WorkerRequest("GET", f"/data?{which}", {"Accept": accept})

    def snapshot(self, accept: str = "application/n-quads") -> WorkerRequest:
        return WorkerRequest("GET", "/data", {"Accept": accept})

    def cleaned(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        return cleaned(chunks, _SYSTEM_LINE)

    def everything(self) -> WorkerRequest:
        # One query sees one moment.
        text = (
            f"SELECT ?g ?s ?p ?o {{ {{ ?s ?p ?o }} UNION {{ GRAPH ?g {{ ?s ?p ?o }} {_NOT_OURS} }} "
            f"UNION {{ GRAPH ?g {{ {_TRIPLE} }} }} }}"
        )
        return _ask(text, "text/tab-separated-values")

    # -- loading

    def begin_loading(self, loading: Loading, token: int) -> WorkerRequest:
        return _update([*_ONLY_IF_EMPTY, _enter(loading_name(loading))])

    def condemn(self, found: SystemGraphs, loading: Loading, token: int) -> WorkerRequest:
        names = [marker_name(marker) for marker in found.markers] + [loading_name(each) for each in found.loading]
        return _update([*(text for name in names for text in _leave(name)), _enter(loading_name(loading))])

    def empty(self) -> WorkerRequest:
        return _update(["DROP ALL"])

    def is_loading(self, loading: Loading) -> WorkerRequest:
        return _ask(f"ASK {{ GRAPH <{loading_name(loading)}> {{ {_TRIPLE} }} }}")

    def load(self, quads: bytes) -> WorkerRequest:
        return WorkerRequest("POST", "/data", {"Content-Type": "application/n-quads"}, _given(quads))

    def erase(self, quads: Sequence[bytes], left: Sequence[bytes]) -> WorkerRequest:
        if not quads:
            return _ask("ASK {}")  # graphs without quads do not exist here
        lines = _given(b"\n".join(quads)).split(b"\n")
        return _update([f"DELETE DATA {{{grouped(lines)}}}"])

    def end_loading(self, loading: Loading, new: MarkerPosition) -> WorkerRequest:
        return _update([*_leave(loading_name(loading)), _enter(marker_name(new))])

    # -- registration

    def probe_requests(self) -> Sequence[ProbeStep]:
        scratch = f"{SYSTEM}:probe"
        insert = f"INSERT DATA {{ GRAPH <{scratch}> {{ {_TRIPLE} }} }}"
        nothing_left = _ask(f"SELECT ?s {{ GRAPH <{scratch}> {{ ?s ?p ?o }} }}")
        clear = _update([f"DROP SILENT GRAPH <{scratch}>"])
        not_atomic = "it keeps a part of a request whose last operation failed; a crash would lose the position"
        union = (
            f"ASK {{ GRAPH <{scratch}> {{ {_TRIPLE} }} FILTER NOT EXISTS {{ {_TRIPLE} }} }}",
            "UnionDefaultGraph",
            "its default graph is the union of all graphs: take tdb2:unionDefaultGraph out (queries ask for the union)",
        )
        return (
            ProbeStep(
                _ask("ASK {}"),
                (200,),
                "NotAWorker",
                "it does not answer SPARQL queries at query; the URL of a data set looks like http://host:3030/name",
            ),
            ProbeStep(clear, (200, 204), "NotAWorker", "it takes no updates at update"),
            ProbeStep(
                _update([insert, *_leave(f"{scratch}:absent")]),
                (500,),
                "NoGuard",
                "a request for another marker does not fail; an apply could not be guarded",
                holds=_DENIED,
            ),
            ProbeStep(nothing_left, (200,), "NotAtomic", not_atomic, empty=True),
            ProbeStep(
                _update([*_trip("FILTER(false)"), insert]),
                (200, 204),
                "NoGuard",
                "a request that should pass fails: it asks other addresses; set arq:httpServiceAllowed to false",
            ),
            ProbeStep(_ask(union[0]), (200,), union[1], union[2], holds=b"true"),
            ProbeStep(clear, (200, 204), "NotAWorker", "it cannot remove the probe's graph"),
        )
