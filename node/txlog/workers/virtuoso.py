"""OpenLink Virtuoso (7): ``http://HOST:PORT``, its HTTP server, where ``virtuoso.sql`` was run once.

- **One request, one transaction**: Virtuoso's SPARQL endpoint commits each operation of a request by itself. So TxLog
  installs a procedure at ``/txlog`` (``virtuoso.sql``). It executes the *parts* of one request in one SQL transaction.
  Queries go to Virtuoso's own ``/sparql``.
- **Marker and guard**: names (:mod:`txlog.workers.marker_names`) in an SQL table. The part ``leave`` fails, and with it
  the request, where its name is not there. No query sees that table.
- **Serial**: a request first changes one row, so that the next request waits for its end.
- **A crash** resets the store to its last checkpoint, a minute or two ago, marker and data together. The applier then
  applies the missing entries again. Virtuoso's own log is not used: its replay after a crash is wrong.
- **Default graph**: there is none; a graph named :data:`DEFAULT_GRAPH_IRI` holds the quads of the default graph.
- **Quads** are not written in SPARQL but as Turtle. Literals that Virtuoso would change are kept as written.
- The reasons, and what it cannot store: docs/decisions/0017-how-a-virtuoso-is-guarded.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

import pyoxigraph as ox

from txlog.model.entry import KIND_QUADS
from txlog.model.quads import split_graph
from txlog.model.store_cell import StoreCell
from txlog.workers.adapter import (
    SYSTEM,
    ApplyResult,
    LoadMarker,
    LockAction,
    MarkerPosition,
    ProbeStep,
    StoreOperation,
    SystemGraphs,
    UnexpectedAnswer,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.canonical_literals import canonical_lines, clean_quads
from txlog.workers.marker_names import TRIAL_NAME, loading_name, marker_name, marker_or_load_name
from txlog.workers.sparql_http import N_QUADS, UnlockedAdapter, dataset_parameters, parse_boolean
from txlog.workers.union_default_graph import (
    DefaultGraphScope,
    canonical_constants,
    exclude_default_graph,
    has_dataset_clause,
    scoped_query,
    scoped_update,
    split_operations,
)
from txlog.workers.update_batches import merge_quad_changes

PROCEDURES: Final = Path(__file__).with_name("virtuoso.sql")
"""The SQL script that the user ``dba`` has to run on a Virtuoso once."""
DEFAULT_GRAPH_IRI: Final = f"{SYSTEM}:default"
"""The graph that holds the quads of the default graph. ``virtuoso.sql`` has the same constant."""
KEPT: Final = "urn:txlog:kept:"
"""Prefix of a datatype: the literal is kept as it is written, under that datatype. ``virtuoso.sql`` has the same."""
SHAPE: Final = "urn:txlog:shape:"
"""Permanent prefix of a geometry datatype: Virtuoso refuses such a datatype on a literal that it cannot parse."""
IRI_BYTES_MAX: Final = 1_800
"""A longer IRI does not fit into a key of Virtuoso."""
ROWS_MAX: Final = 1 << 31
"""Maximum rows of an answer. Without this parameter Virtuoso truncates the answer after a million rows."""
_CHUNK_BYTES: Final = 1 << 20
_ENDPOINT_PREFIX: Final = "/txlog"
_SCOPE: Final = DefaultGraphScope(f"<{DEFAULT_GRAPH_IRI}>", inserts=True, hides=True)
_VERSION: Final = b"txlog 1"
_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_LITERAL: Final = re.compile(rb'("(?:[^"\\\n]++|\\.|)*+")\^\^<([^<>]*)>')
_LONG_IRI: Final = re.compile(rb"<[^<>]{%d,}>" % (IRI_BYTES_MAX + 1))
_NATIVE: Final = re.compile(
    # Literals that it parses as values and returns unchanged, in the form of :mod:`txlog.workers.canonical_literals`.
    rb'"-?[0-9]{1,18}"\^\^<XSD#integer>'
    rb'|"-?[0-9]{1,15}(?:\.[0-9]{1,15})?"\^\^<XSD#decimal>'
    rb'|"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?"\^\^<XSD#(?:double|float)>'
    rb'|"(?:true|false)"\^\^<XSD#boolean>'
    rb'|"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z?"\^\^<XSD#dateTime>'
    rb'|"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"\^\^<XSD#date>'.replace(b"XSD#", _XSD.encode())
)
_WHOLE: Final = re.compile(rb'"(-?[0-9]+)"\^\^<%s>$' % f"{_XSD}integer".encode())
"""Integers, to be written without quotes: in quotes Virtuoso would read one above 2^31 as a decimal."""
_NUMBERS: Final = frozenset(f"{_XSD}{kind}".encode() for kind in ("integer", "decimal", "double", "float", "boolean"))
_SHAPES: Final = (b"http://www.openlinksw.com/schemas/virtrdf#Geometry", b"http://www.opengis.net/ont/geosparql#")
_MANAGED: Final = {"CLEAR", "DROP", "CREATE", "COPY", "MOVE", "ADD"}


class ProcedureStep(NamedTuple):
    """One part of a request: its verb, the name that it applies to, and its data."""

    verb: str
    name: str = "-"
    text: bytes = b""


class VirtuosoAdapter(UnlockedAdapter):
    """The adapter for Virtuoso: see the module. It has no state."""

    engine = "virtuoso"
    query_path = "/sparql"
    update_path = f"{_ENDPOINT_PREFIX}/apply"
    data_path = f"{_ENDPOINT_PREFIX}/quads"

    def _parse_rows(self, asked: str, response: WorkerResponse) -> list[str]:
        if response.status != 200:
            raise UnexpectedAnswer(asked, response)
        try:
            return response.body.decode().splitlines()
        except UnicodeDecodeError:
            raise UnexpectedAnswer(asked, response) from None

    # -- position

    def read_system(self) -> WorkerRequest:
        return _procedure_request("state")

    def is_at(self, marker: MarkerPosition) -> WorkerRequest:
        return _procedure_request("at", marker_name(marker))

    def is_loading(self, loading: LoadMarker) -> WorkerRequest:
        return _procedure_request("at", loading_name(loading))

    def is_empty(self) -> WorkerRequest:
        return _procedure_request("vacant")

    def parse_is_empty(self, response: WorkerResponse) -> bool:
        return parse_boolean("looking for foreign data", response)

    def drop_marker(self, marker: MarkerPosition) -> WorkerRequest:
        return encode_steps([ProcedureStep("leave", marker_name(marker))])

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
        parts = [ProcedureStep("vacant") if expected is None else ProcedureStep("leave", marker_or_load_name(expected))]
        end = ProcedureStep("leave", TRIAL_NAME) if new is None else ProcedureStep("enter", marker_or_load_name(new))
        return encode_steps([*parts, *steps_for_operations(operations), end])

    def parse_apply_result(self, response: WorkerResponse) -> ApplyResult:
        if response.ok:
            return ApplyResult.APPLIED
        return ApplyResult.MOVED if response.status == 409 else ApplyResult.REFUSED

    def checkpoint(self) -> WorkerRequest:
        """Request a checkpoint: Virtuoso writes all changes to its data file. By itself it does so within a minute or
        two."""
        return WorkerRequest("POST", f"{_ENDPOINT_PREFIX}/settle")

    def _do_nothing(self) -> WorkerRequest:
        return _procedure_request("version")

    def take_over(self, found: MarkerPosition | None, token: int) -> WorkerRequest:
        if found is None:
            return self._do_nothing()
        raised = found._replace(fence=found.fence + 1)
        return encode_steps([ProcedureStep("leave", marker_name(found)), ProcedureStep("enter", marker_name(raised))])

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
        text = exclude_default_graph(canonical_constants(text), _SCOPE)
        if not asked and not union and not has_dataset_clause(text):
            text = scoped_query(text, _SCOPE)
        return self._query_request(text, accept, asked)

    def _query_request(self, text: str, accept: str, dataset: Sequence[tuple[str, str]]) -> WorkerRequest:
        # Virtuoso never answers a query that is sent as the body of a request.
        form = urlencode([("query", text), ("maxrows", str(ROWS_MAX)), *dataset])
        # Virtuoso refuses an unknown media type even beside known ones, and has formats of its own for some.
        known = [each for each in accept.split(",") if "x-binary" not in each and "boolean" not in each]
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": ",".join(known) or "*/*"}
        return WorkerRequest("POST", self.query_path, headers, form.encode(), reads=True)

    def size(self, graphs: Sequence[str | None] | None = None) -> WorkerRequest:
        return _procedure_request(
            "size", "" if graphs is None else " ".join(graph or DEFAULT_GRAPH_IRI for graph in graphs) or "none:"
        )

    def size_up_to(self, limit: int) -> WorkerRequest:
        return self.size()  # it counts its index, without the statements

    def list_cells(self, graphs: Sequence[str], first: int, count: int) -> WorkerRequest:
        raise NotImplementedError("virtuoso has no cells: Capabilities.parts")

    def read_cells(self, cells: Sequence[StoreCell]) -> WorkerRequest:
        raise NotImplementedError("virtuoso has no cells: Capabilities.parts")

    def counts(self) -> WorkerRequest:
        return _procedure_request("counts")

    def _parse_count(self, row: str) -> tuple[str, int]:
        graph, _, count = row.rpartition(" ")
        return "" if graph == DEFAULT_GRAPH_IRI else graph, int(count)

    def contexts(self) -> WorkerRequest:
        return _procedure_request("contexts")

    def export(self, accept: str, graph: str | None = None) -> WorkerRequest:
        return _procedure_request("graph", DEFAULT_GRAPH_IRI if graph is None else graph)

    def snapshot(self, accept: str = N_QUADS) -> WorkerRequest:
        return _procedure_request("quads")

    def clean_snapshot(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for lines in clean_quads(chunks, f"<{SYSTEM}> ".encode()):
            yield lines.replace(f'"^^<{SHAPE}'.encode(), b'"^^<')

    def dump(self, predicates: Sequence[str] | None = None) -> WorkerRequest:
        return _procedure_request("everything")

    # -- loading

    def begin_loading(self, loading: LoadMarker, token: int) -> WorkerRequest:
        return encode_steps([ProcedureStep("vacant"), ProcedureStep("enter", loading_name(loading))])

    def mark_unusable(self, found: SystemGraphs, loading: LoadMarker, token: int) -> WorkerRequest:
        names = [marker_name(marker) for marker in found.markers] + [loading_name(each) for each in found.loading]
        return encode_steps(
            [*(ProcedureStep("leave", name) for name in names), ProcedureStep("enter", loading_name(loading))]
        )

    def clear(self) -> WorkerRequest:
        return encode_steps([ProcedureStep("forget"), ProcedureStep("clear-all")])

    def load(self, quads: bytes) -> WorkerRequest:
        return encode_steps(_chunk_steps("add", _drop_equal_values(_normalise_quads(quads).splitlines())))

    def delete_quads(self, quads: Sequence[bytes], left: Sequence[bytes]) -> WorkerRequest:
        return encode_steps(_chunk_steps("take", _normalise_quads(b"\n".join(quads)).splitlines()))

    def end_loading(self, loading: LoadMarker, new: MarkerPosition) -> WorkerRequest:
        ended = encode_steps([ProcedureStep("leave", loading_name(loading)), ProcedureStep("enter", marker_name(new))])
        # The loader does not repeat a finished load, so it must survive a crash at once.
        return replace(ended, path=f"{ended.path}?name=settle")

    # -- registration

    def probe_steps(self) -> Sequence[ProbeStep]:
        scratch = f"{SYSTEM}:probe"
        insert = ProcedureStep("add", scratch, f"<{scratch}> <{scratch}> <{scratch}> .\n".encode())
        not_atomic = "it keeps a part of a request whose last part failed; a crash would lose the position"
        return (
            ProbeStep(
                _procedure_request("version"),
                (200,),
                "NotAWorker",
                "nothing of TxLog answers at /txlog; run what `txlog virtuoso-sql` prints on it, as dba",
                holds=_VERSION,
            ),
            ProbeStep(
                self._query_request("ASK {}", "application/sparql-results+json", ()),
                (200,),
                "NotAWorker",
                "it does not answer SPARQL queries at /sparql",
                holds=b"true",
            ),
            ProbeStep(
                encode_steps([insert, ProcedureStep("leave", f"{scratch}:absent")]),
                (409,),
                "NoGuard",
                "a request that expects another position is carried out",
            ),
            ProbeStep(_procedure_request("size", scratch), (200,), "NotAtomic", not_atomic, holds=b"0\n"),
            ProbeStep(encode_steps([insert, ProcedureStep("fail")]), (500,), "NotAtomic", not_atomic),
            ProbeStep(_procedure_request("size", scratch), (200,), "NotAtomic", not_atomic, holds=b"0\n"),
            ProbeStep(
                encode_steps(
                    [
                        ProcedureStep("enter", scratch),
                        insert,
                        ProcedureStep("clear", scratch),
                        ProcedureStep("leave", scratch),
                    ]
                ),
                (200,),
                "NotAWorker",
                "it takes no updates",
            ),
        )


# -- requests


def _procedure_request(what: str, name: str = "") -> WorkerRequest:
    asked = f"?{urlencode({'name': name})}" if name else ""
    return WorkerRequest("GET", f"{_ENDPOINT_PREFIX}/{what}{asked}", reads=True)


def encode_steps(parts: Iterable[ProcedureStep]) -> WorkerRequest:
    """A request that executes these parts in order, in one transaction. The body: the length of the table in ten
    digits; the table, one line for each part; the parts' bytes."""
    parts = list(parts)
    table = "\n".join([f"{part.verb} {len(part.text)} {part.name}" for part in parts]).encode()
    body = b"".join([b"%010d" % len(table), table, *(part.text for part in parts)])
    return WorkerRequest("POST", VirtuosoAdapter.update_path, {"Content-Type": "application/octet-stream"}, body)


def steps_for_operations(operations: Sequence[StoreOperation]) -> Iterator[ProcedureStep]:
    """The steps of operations of the log, one operation after the other. They cannot be merged: of literals with equal
    values a graph holds the first."""
    for operation in operations:
        yield from _quad_steps(operation.payload) if operation.kind == KIND_QUADS else _update_steps(operation.payload)


# -- quads


def _quad_steps(payload: bytes) -> Iterator[ProcedureStep]:
    """The steps of one ``KIND_QUADS`` transaction."""
    deletes, adds, _ = merge_quad_changes([_normalise_quads(payload)])
    yield from _chunk_steps("take", deletes)
    yield from _chunk_steps("add", _drop_equal_values(adds))


def _chunk_steps(verb: str, lines: Sequence[bytes]) -> Iterator[ProcedureStep]:
    """Normalised lines of N-Quads as parts of one graph each, none longer than a string of Virtuoso may be."""
    graphs: dict[bytes, list[bytes]] = {}
    for line in lines:
        if long := _LONG_IRI.search(line):
            yield _refusal_step(f"an IRI of {len(long[0]) - 2} bytes; Virtuoso has room for {IRI_BYTES_MAX}")
            return
        triple, graph = split_graph(line)
        graphs.setdefault(graph, []).append(_WHOLE.sub(rb"\1", triple))
    for graph, triples in graphs.items():
        name = graph[1:-1].decode() or DEFAULT_GRAPH_IRI
        piece, size = list[bytes](), 0
        for triple in triples:
            piece.append(triple)
            size += len(triple)
            if size > _CHUNK_BYTES:
                yield ProcedureStep(verb, name, b" .\n".join(piece) + b" .\n")
                piece, size = [], 0
        if piece:
            yield ProcedureStep(verb, name, b" .\n".join(piece) + b" .\n")


def _normalise_quads(lines: bytes) -> bytes:
    """Quads, or a payload of them, in Virtuoso's form: literals that it would change are marked."""
    return _LITERAL.sub(_mark_literal, canonical_lines(lines))


def _mark_literal(literal: re.Match[bytes]) -> bytes:
    kind = literal[2]
    if kind.startswith(_SHAPES):
        return b"%s^^<%s%s>" % (literal[1], SHAPE.encode(), kind)
    interpreted = kind.startswith(_XSD.encode()) or kind.endswith(b"#XMLLiteral")
    if not interpreted or _NATIVE.fullmatch(literal[0]):
        return literal[0]
    return b"%s^^<%s%s>" % (literal[1], KEPT.encode(), kind)


def _drop_equal_values(lines: Sequence[bytes]) -> list[bytes]:
    """The lines without those that Virtuoso takes for an earlier one: ``1`` and ``1.0`` of one subject and predicate
    are equal to it. Which of them stays must not depend on the order of its hashes."""
    seen: dict[tuple[bytes, bytes, float], bytes] = {}
    kept = list[bytes]()
    for line in lines:
        value = _numeric_value(line)
        if value is not None:
            number, kind, place = value
            triple, graph = split_graph(line)
            if seen.setdefault((triple[:place], graph, number), kind) != kind:
                continue
        kept.append(line)
    return kept


def _numeric_value(line: bytes) -> tuple[float, bytes, int] | None:
    """The value, datatype and offset of an object that is a number to Virtuoso; None for any other object."""
    begin = line.find(b"> ", line.find(b"> ") + 2) + 2
    found = _LITERAL.match(line, begin)
    if found is None or found[2] not in _NUMBERS:
        return None
    text = found[1][1:-1]
    return float({b"true": b"1", b"false": b"0"}.get(text, text)), found[2], begin


# -- updates


def _update_steps(payload: bytes) -> Iterator[ProcedureStep]:
    for text, words in split_operations(payload.decode()):
        first = words[0].upper()
        if first in _MANAGED:
            yield from _graph_management_steps(first, words[1:])
        elif first in ("INSERT", "DELETE") and words[1:2] and words[1].upper() == "DATA":
            try:
                lines = _normalise_quads(_parse_data_block(f"INSERT{text[len(first) :]}")).splitlines()
            except SyntaxError as wrong:
                yield _refusal_step(f"{first} DATA: {wrong}")
                continue
            yield from (
                _chunk_steps("add", _drop_equal_values(lines)) if first == "INSERT" else _chunk_steps("take", lines)
            )
        elif first in ("INSERT", "DELETE", "WITH"):
            yield ProcedureStep("update", "-", scoped_update(canonical_constants(text), _SCOPE).encode())
        else:
            yield _refusal_step(f"{first} is no update of a log")


def _refusal_step(why: str) -> ProcedureStep:
    return ProcedureStep("refuse", "-", why.encode())


def _parse_data_block(text: str) -> bytes:
    store = ox.Store()
    store.update(text)
    lines = store.dump(format=ox.RdfFormat.N_QUADS)
    assert lines is not None, "it is given back, not written to a file"
    return lines


def _graph_management_steps(verb: str, words: Sequence[str]) -> Iterator[ProcedureStep]:
    names = [word for word in words if word.upper() not in ("SILENT", "GRAPH", "TO", "INTO")]
    graphs = [DEFAULT_GRAPH_IRI if name.upper() == "DEFAULT" else name.strip("<>") for name in names]
    if len(graphs) != (2 if verb in ("COPY", "MOVE", "ADD") else 1):
        yield _refusal_step(f"{verb} with {len(graphs)} graphs")
        return
    if verb == "CREATE" or (verb in ("COPY", "MOVE", "ADD") and graphs[0] == graphs[1]):
        return
    if verb in ("CLEAR", "DROP"):
        every = {"ALL": "clear-all", "NAMED": "clear-named"}.get(names[0].upper())
        yield ProcedureStep(every) if every else ProcedureStep("clear", graphs[0])
        return
    source, target = graphs
    if verb != "ADD":
        yield ProcedureStep("clear", target)
    yield ProcedureStep("copy", source, target.encode())
    if verb == "MOVE":
        yield ProcedureStep("clear", source)
