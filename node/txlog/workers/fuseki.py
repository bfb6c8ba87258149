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
from collections.abc import Sequence
from typing import Final

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
from txlog.workers.marked import ANYTHING, TRIP, TRIPLE, MarkedAdapter, enter
from txlog.workers.naming import marker_name, state_name
from txlog.workers.netting import JOIN, update_texts
from txlog.workers.protocol import NOT_OURS, TRUE, dataset

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


class FusekiAdapter(MarkedAdapter):
    """See the module. Holds nothing."""

    engine = "fuseki"
    fail = f"INSERT {{ }} WHERE {{ GRAPH {TRIP} {{ ?s ?p ?service }} SERVICE ?service {{ ?a ?b ?c }} }}"

    @property
    def tokens(self) -> int:
        return 1

    def given(self, lines: bytes) -> bytes:
        return _given(lines)

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
        texts = self.trip(ANYTHING) if expected is None else self.leave(state_name(expected))
        given = [_portable(text) for text in update_texts(operations, _given)]
        return self._update([*texts, *given, enter(state_name(new))])

    def verdict(self, response: WorkerResponse) -> Verdict:
        if response.ok:
            return Verdict.APPLIED
        if response.status == 500 and _DENIED in response.body:
            return Verdict.MOVED
        return Verdict.REFUSED

    # There is no lock to hold: the guard is enough where updates are serial. Whoever asks for one has it.

    def claim(self, token: int) -> WorkerRequest:
        return self._ask(TRUE)

    def claims_of(self, token: int) -> frozenset[str]:
        return frozenset()

    def unclaim(self, token: int) -> WorkerRequest:
        return self._ask(TRUE)

    def renew(self, token: int, new: int) -> WorkerRequest:
        return self._ask(TRUE)

    def take_over(self, found: MarkerPosition | None, token: int) -> WorkerRequest:
        if found is None:
            return self._ask(TRUE)
        return self._update(
            [*self.leave(marker_name(found)), enter(marker_name(found._replace(fence=found.fence + 1)))]
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
        return self._asked(text, accept, dataset(default_graphs, named_graphs))

    def contexts(self) -> WorkerRequest:
        return self._select(f"SELECT ?g {{ GRAPH ?g {{ }} {NOT_OURS} }}")

    # -- registration

    def probe_requests(self) -> Sequence[ProbeStep]:
        scratch = f"{SYSTEM}:probe"
        insert = f"INSERT DATA {{ GRAPH <{scratch}> {{ {TRIPLE} }} }}"
        nothing_left = self._select(f"SELECT ?s {{ GRAPH <{scratch}> {{ ?s ?p ?o }} }}")
        clear = self._update([f"DROP SILENT GRAPH <{scratch}>"])
        not_atomic = "it keeps a part of a request whose last operation failed; a crash would lose the position"
        union = (
            f"ASK {{ GRAPH <{scratch}> {{ {TRIPLE} }} FILTER NOT EXISTS {{ {TRIPLE} }} }}",
            "UnionDefaultGraph",
            "its default graph is the union of all graphs: take tdb2:unionDefaultGraph out (queries ask for the union)",
        )
        return (
            ProbeStep(
                self._ask(TRUE),
                (200,),
                "NotAWorker",
                "it does not answer SPARQL queries at query; the URL of a data set looks like http://host:3030/name",
            ),
            ProbeStep(clear, (200, 204), "NotAWorker", "it takes no updates at update"),
            ProbeStep(
                self._update([insert, *self.leave(f"{scratch}:absent")]),
                (500,),
                "NoGuard",
                "a request for another marker does not fail; an apply could not be guarded",
                holds=_DENIED,
            ),
            ProbeStep(nothing_left, (200,), "NotAtomic", not_atomic, empty=True),
            ProbeStep(
                self._update([*self.trip("FILTER(false)"), insert]),
                (200, 204),
                "NoGuard",
                "a request that should pass fails: it asks other addresses; set arq:httpServiceAllowed to false",
            ),
            ProbeStep(self._ask(union[0]), (200,), union[1], union[2], holds=b"true"),
            ProbeStep(clear, (200, 204), "NotAWorker", "it cannot remove the probe's graph"),
        )
