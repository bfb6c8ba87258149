"""OpenLink Virtuoso (7): ``http://HOST:PORT``, its HTTP server, where ``virtuoso.sql`` was run once.

- **One request, one transaction**: Virtuoso's SPARQL end point commits each operation of a request by itself. So there
  is a procedure of ours behind ``/txlog`` (``virtuoso.sql``), which carries out what one request says, its *parts*, in
  one SQL transaction. Queries go to Virtuoso's own ``/sparql``.
- **Marker and guard**: names (:mod:`txlog.workers.naming`) in a table of SQL. The part ``leave`` fails, and with it the
  request, where its name is not there; no query sees any of it.
- **Serial**: the first thing a request does is to change one row, so that the next one waits for its end.
- **A crash** sets it back to its last checkpoint, a minute or two ago, marker and data together, and what is missing is
  applied again. Its own log is not used: what it makes of it after a crash is wrong.
- **Default graph**: there is none; a graph named :data:`DEFAULT` holds what is in no named graph.
- **Quads** are not written in SPARQL but as Turtle. Literals that Virtuoso would make others of are kept as written.
- Why so, and what it cannot hold: docs/decisions/0017-how-a-virtuoso-is-guarded.md.
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
from txlog.workers.base import (
    SYSTEM,
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
from txlog.workers.naming import loading_name, marker_name, state_name
from txlog.workers.netting import net
from txlog.workers.protocol import N_QUADS, TSV, SparqlAdapter, dataset, truth
from txlog.workers.scoping import (
    Scope,
    canonical_constants,
    hiding_query,
    operations_of,
    says_from,
    scoped_query,
    scoped_update,
)

PROCEDURES: Final = Path(__file__).with_name("virtuoso.sql")
"""What has to be run on a Virtuoso, as its ``dba``."""
DEFAULT: Final = f"{SYSTEM}:default"
"""The graph of what is in no named graph. ``virtuoso.sql`` names the same."""
KEPT: Final = "urn:txlog:kept:"
"""Before a datatype: the literal is kept as it is written, under that datatype. ``virtuoso.sql`` names the same."""
SHAPE: Final = "urn:txlog:shape:"
"""Before a datatype of geometry, for good: Virtuoso lets nothing have those that it would not read."""
IRI_BYTES_MAX: Final = 1_800
"""A longer one does not fit into a key of Virtuoso's."""
ROWS_MAX: Final = 1 << 31
"""Of an answer; unless told, Virtuoso leaves out what comes behind a million."""
_PIECE: Final = 1 << 20
_OURS: Final = "/txlog"
_SCOPE: Final = Scope(f"<{DEFAULT}>", inserts=True, hides=True)
_VERSION: Final = b"txlog 1"
_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_LITERAL: Final = re.compile(rb'("(?:[^"\\\n]++|\\.|)*+")\^\^<([^<>]*)>')
_LONG_IRI: Final = re.compile(rb"<[^<>]{%d,}>" % (IRI_BYTES_MAX + 1))
_NATIVE: Final = re.compile(
    # What it reads as a value and gives out again as it was, in the form of :mod:`txlog.workers.canonical`.
    rb'"-?[0-9]{1,18}"\^\^<XSD#integer>'
    rb'|"-?[0-9]{1,15}(?:\.[0-9]{1,15})?"\^\^<XSD#decimal>'
    rb'|"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?"\^\^<XSD#(?:double|float)>'
    rb'|"(?:true|false)"\^\^<XSD#boolean>'
    rb'|"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z?"\^\^<XSD#dateTime>'
    rb'|"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"\^\^<XSD#date>'.replace(b"XSD#", _XSD.encode())
)
_WHOLE: Final = re.compile(rb'"(-?[0-9]+)"\^\^<%s>$' % f"{_XSD}integer".encode())
"""In quotes it would read one above 2^31 as a decimal."""
_NUMBERS: Final = frozenset(f"{_XSD}{kind}".encode() for kind in ("integer", "decimal", "double", "float", "boolean"))
_SHAPES: Final = (b"http://www.openlinksw.com/schemas/virtrdf#Geometry", b"http://www.opengis.net/ont/geosparql#")
_MANAGED: Final = {"CLEAR", "DROP", "CREATE", "COPY", "MOVE", "ADD"}


class Part(NamedTuple):
    """One thing to do: its verb, the name that it is about, the bytes that it is done with."""

    verb: str
    name: str = "-"
    text: bytes = b""


class VirtuosoAdapter(SparqlAdapter):
    """See the module. Holds nothing."""

    engine = "virtuoso"
    query_path = "/sparql"
    update_path = f"{_OURS}/apply"
    data_path = f"{_OURS}/quads"

    @property
    def tokens(self) -> int:
        return 1

    # -- position

    def read_system(self) -> WorkerRequest:
        return _tell("state")

    def system_in(self, response: WorkerResponse) -> SystemGraphs:
        return self.system_of(_lines("reading the marker", response))

    def is_at(self, marker: MarkerPosition) -> WorkerRequest:
        return _tell("at", marker_name(marker))

    def is_loading(self, loading: Loading) -> WorkerRequest:
        return _tell("at", loading_name(loading))

    def is_empty(self) -> WorkerRequest:
        return _tell("vacant")

    def is_empty_in(self, response: WorkerResponse) -> bool:
        return truth("looking for foreign data", response)

    def drop_marker(self, marker: MarkerPosition) -> WorkerRequest:
        return request_of([Part("leave", marker_name(marker))])

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
        parts = [Part("vacant") if expected is None else Part("leave", state_name(expected))]
        return request_of([*parts, *parts_of(operations), Part("enter", state_name(new))])

    def verdict(self, response: WorkerResponse) -> Verdict:
        if response.ok:
            return Verdict.APPLIED
        return Verdict.MOVED if response.status == 409 else Verdict.REFUSED

    def settle(self) -> WorkerRequest:
        """Have it put all that was done into its data file, which it otherwise does within a minute or two."""
        return WorkerRequest("POST", f"{_OURS}/settle")

    # There is no lock to hold: the guard is enough where updates are serial. Whoever asks for one has it.

    def claim(self, token: int) -> WorkerRequest:
        return _tell("version")

    def claims_of(self, token: int) -> frozenset[str]:
        return frozenset()

    def unclaim(self, token: int) -> WorkerRequest:
        return _tell("version")

    def renew(self, token: int, new: int) -> WorkerRequest:
        return _tell("version")

    def take_over(self, found: MarkerPosition | None, token: int) -> WorkerRequest:
        if found is None:
            return _tell("version")
        raised = found._replace(fence=found.fence + 1)
        return request_of([Part("leave", marker_name(found)), Part("enter", marker_name(raised))])

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
        text = hiding_query(canonical_constants(text), _SCOPE)
        if not asked and not union and not says_from(text):
            text = scoped_query(text, _SCOPE)
        return self._asked(text, accept, asked)

    def _asked(self, text: str, accept: str, dataset: Sequence[tuple[str, str]]) -> WorkerRequest:
        # A query as the body of a request is never answered.
        form = urlencode([("query", text), ("maxrows", str(ROWS_MAX)), *dataset])
        # It refuses what it does not know without a look at the rest, and has forms of its own for some.
        known = [each for each in accept.split(",") if "x-binary" not in each and "boolean" not in each]
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": ",".join(known) or "*/*"}
        return WorkerRequest("POST", self.query_path, headers, form.encode())

    def size(self, graphs: Sequence[str | None] | None = None) -> WorkerRequest:
        return _tell("size", "" if graphs is None else " ".join(graph or DEFAULT for graph in graphs) or "none:")

    def size_in(self, response: WorkerResponse) -> int:
        asked = "counting statements"
        try:
            return int(_lines(asked, response)[0])
        except (ValueError, IndexError):
            raise UnexpectedAnswer(asked, response) from None

    def counts(self) -> WorkerRequest:
        return _tell("counts")

    def counts_in(self, response: WorkerResponse) -> Counted:
        asked = "counting statements by graph"
        rows = [line.rpartition(" ") for line in _lines(asked, response)]
        try:
            counts = {"" if graph == DEFAULT else graph: int(count) for graph, _, count in rows}
        except ValueError:
            raise UnexpectedAnswer(asked, response) from None
        ours = [name for name in counts if name.startswith(SYSTEM)]
        return Counted(self.system_of(ours), {name: n for name, n in counts.items() if n and name not in ours})

    def contexts(self) -> WorkerRequest:
        return _tell("contexts")

    def contexts_in(self, response: WorkerResponse) -> list[str]:
        return _lines("listing named graphs", response)

    def export(self, accept: str, graph: str | None = None) -> WorkerRequest:
        return _tell("graph", DEFAULT if graph is None else graph)

    def snapshot(self, accept: str = N_QUADS) -> WorkerRequest:
        return _tell("quads")

    def cleaned(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for lines in cleaned(chunks, f"<{SYSTEM}> ".encode()):
            yield lines.replace(f'"^^<{SHAPE}'.encode(), b'"^^<')

    def everything(self, predicates: Sequence[str] | None = None) -> WorkerRequest:
        return _tell("everything")

    everything_media = TSV

    # -- loading

    def begin_loading(self, loading: Loading, token: int) -> WorkerRequest:
        return request_of([Part("vacant"), Part("enter", loading_name(loading))])

    def condemn(self, found: SystemGraphs, loading: Loading, token: int) -> WorkerRequest:
        names = [marker_name(marker) for marker in found.markers] + [loading_name(each) for each in found.loading]
        return request_of([*(Part("leave", name) for name in names), Part("enter", loading_name(loading))])

    def empty(self) -> WorkerRequest:
        return request_of([Part("forget"), Part("clear-all")])

    def load(self, quads: bytes) -> WorkerRequest:
        return request_of(_written("add", _of_one_value(_given(quads).splitlines())))

    def erase(self, quads: Sequence[bytes], left: Sequence[bytes]) -> WorkerRequest:
        return request_of(_written("take", _given(b"\n".join(quads)).splitlines()))

    def end_loading(self, loading: Loading, new: MarkerPosition) -> WorkerRequest:
        ended = request_of([Part("leave", loading_name(loading)), Part("enter", marker_name(new))])
        # Whoever asked for a load does not come again: it is to outlive a crash at once.
        return replace(ended, path=f"{ended.path}?name=settle")

    # -- registration

    def probe_requests(self) -> Sequence[ProbeStep]:
        scratch = f"{SYSTEM}:probe"
        insert = Part("add", scratch, f"<{scratch}> <{scratch}> <{scratch}> .\n".encode())
        not_atomic = "it keeps a part of a request whose last part failed; a crash would lose the position"
        return (
            ProbeStep(
                _tell("version"),
                (200,),
                "NotAWorker",
                "nothing of TxLog answers at /txlog; run what `txlog virtuoso-sql` prints on it, as dba",
                holds=_VERSION,
            ),
            ProbeStep(
                self._asked("ASK {}", "application/sparql-results+json", ()),
                (200,),
                "NotAWorker",
                "it does not answer SPARQL queries at /sparql",
                holds=b"true",
            ),
            ProbeStep(
                request_of([insert, Part("leave", f"{scratch}:absent")]),
                (409,),
                "NoGuard",
                "a request that expects another position is carried out",
            ),
            ProbeStep(_tell("size", scratch), (200,), "NotAtomic", not_atomic, holds=b"0\n"),
            ProbeStep(request_of([insert, Part("fail")]), (500,), "NotAtomic", not_atomic),
            ProbeStep(_tell("size", scratch), (200,), "NotAtomic", not_atomic, holds=b"0\n"),
            ProbeStep(
                request_of([Part("enter", scratch), insert, Part("clear", scratch), Part("leave", scratch)]),
                (200,),
                "NotAWorker",
                "it takes no updates",
            ),
        )


# -- requests


def _tell(what: str, name: str = "") -> WorkerRequest:
    asked = f"?{urlencode({'name': name})}" if name else ""
    return WorkerRequest("GET", f"{_OURS}/{what}{asked}")


def request_of(parts: Iterable[Part]) -> WorkerRequest:
    """Carries them out in order, whole or not at all. The body: the length of the table in ten digits; the table, a
    line for each part; the parts' bytes."""
    parts = list(parts)
    table = "\n".join([f"{part.verb} {len(part.text)} {part.name}" for part in parts]).encode()
    body = b"".join([b"%010d" % len(table), table, *(part.text for part in parts)])
    return WorkerRequest("POST", VirtuosoAdapter.update_path, {"Content-Type": "application/octet-stream"}, body)


def parts_of(operations: Sequence[Operation]) -> Iterator[Part]:
    """What operations of the log do, one after the other: of literals of one value a graph holds the first, so that
    neighbours cannot be merged."""
    for operation in operations:
        yield from _changes(operation.payload) if operation.kind == KIND_QUADS else _updates(operation.payload)


def _lines(asked: str, response: WorkerResponse) -> list[str]:
    if response.status != 200:
        raise UnexpectedAnswer(asked, response)
    return response.body.decode().splitlines()


# -- quads


def _changes(payload: bytes) -> Iterator[Part]:
    """One transaction of quads."""
    deletes, adds, _ = net([_given(payload)])
    yield from _written("take", deletes)
    yield from _written("add", _of_one_value(adds))


def _written(verb: str, lines: Sequence[bytes]) -> Iterator[Part]:
    """Lines of N-Quads, given, as parts of one graph each, none longer than Virtuoso's strings may be."""
    graphs: dict[bytes, list[bytes]] = {}
    for line in lines:
        if long := _LONG_IRI.search(line):
            yield _refused(f"an IRI of {len(long[0]) - 2} bytes; Virtuoso has room for {IRI_BYTES_MAX}")
            return
        triple, graph = split_graph(line)
        graphs.setdefault(graph, []).append(_WHOLE.sub(rb"\1", triple))
    for graph, triples in graphs.items():
        name = graph[1:-1].decode() or DEFAULT
        piece, size = list[bytes](), 0
        for triple in triples:
            piece.append(triple)
            size += len(triple)
            if size > _PIECE:
                yield Part(verb, name, b" .\n".join(piece) + b" .\n")
                piece, size = [], 0
        if piece:
            yield Part(verb, name, b" .\n".join(piece) + b" .\n")


def _given(lines: bytes) -> bytes:
    """Quads, or a payload of them, as Virtuoso is to have them: what it would make others of is marked."""
    return _LITERAL.sub(_marked, canonical_lines(lines))


def _marked(literal: re.Match[bytes]) -> bytes:
    kind = literal[2]
    if kind.startswith(_SHAPES):
        return b"%s^^<%s%s>" % (literal[1], SHAPE.encode(), kind)
    interpreted = kind.startswith(_XSD.encode()) or kind.endswith(b"#XMLLiteral")
    if not interpreted or _NATIVE.fullmatch(literal[0]):
        return literal[0]
    return b"%s^^<%s%s>" % (literal[1], KEPT.encode(), kind)


def _of_one_value(lines: Sequence[bytes]) -> list[bytes]:
    """Without those that mean to Virtuoso what one before means: ``1`` and ``1.0`` of one subject and predicate are one
    to it. Which of them stays must not depend on the order of its hashes."""
    seen: dict[tuple[bytes, bytes, float], bytes] = {}
    kept = list[bytes]()
    for line in lines:
        value = _value(line)
        if value is not None:
            number, kind, place = value
            triple, graph = split_graph(line)
            if seen.setdefault((triple[:place], graph, number), kind) != kind:
                continue
        kept.append(line)
    return kept


def _value(line: bytes) -> tuple[float, bytes, int] | None:
    """Of an object that is a number to Virtuoso: its value, datatype, and where it begins."""
    begin = line.find(b"> ", line.find(b"> ") + 2) + 2
    found = _LITERAL.match(line, begin)
    if found is None or found[2] not in _NUMBERS:
        return None
    text = found[1][1:-1]
    return float({b"true": b"1", b"false": b"0"}.get(text, text)), found[2], begin


# -- updates


def _updates(payload: bytes) -> Iterator[Part]:
    for text, words in operations_of(payload.decode()):
        first = words[0].upper()
        if first in _MANAGED:
            yield from _managed(first, words[1:])
        elif first in ("INSERT", "DELETE") and words[1:2] and words[1].upper() == "DATA":
            try:
                lines = _given(_quads_of(f"INSERT{text[len(first) :]}")).splitlines()
            except SyntaxError as wrong:
                yield _refused(f"{first} DATA: {wrong}")
                continue
            yield from _written("add", _of_one_value(lines)) if first == "INSERT" else _written("take", lines)
        elif first in ("INSERT", "DELETE", "WITH"):
            yield Part("update", "-", scoped_update(text, _SCOPE).encode())
        else:
            yield _refused(f"{first} is no update of a log")


def _refused(why: str) -> Part:
    return Part("refuse", "-", why.encode())


def _quads_of(text: str) -> bytes:
    store = ox.Store()
    store.update(text)
    lines = store.dump(format=ox.RdfFormat.N_QUADS)
    assert lines is not None, "it is given back, not written to a file"
    return lines


def _managed(verb: str, words: Sequence[str]) -> Iterator[Part]:
    names = [word for word in words if word.upper() not in ("SILENT", "GRAPH", "TO", "INTO")]
    graphs = [DEFAULT if name.upper() == "DEFAULT" else name.strip("<>") for name in names]
    if len(graphs) != (2 if verb in ("COPY", "MOVE", "ADD") else 1):
        yield _refused(f"{verb} with {len(graphs)} graphs")
        return
    if verb == "CREATE" or (verb in ("COPY", "MOVE", "ADD") and graphs[0] == graphs[1]):
        return
    if verb in ("CLEAR", "DROP"):
        every = {"ALL": "clear-all", "NAMED": "clear-named"}.get(names[0].upper())
        yield Part(every) if every else Part("clear", graphs[0])
        return
    source, target = graphs
    if verb != "ADD":
        yield Part("clear", target)
    yield Part("copy", source, target.encode())
    if verb == "MOVE":
        yield Part("clear", source)
