"""The interface of every worker engine: requests and responses as data.

An :class:`Adapter` builds a :class:`WorkerRequest` and parses the :class:`WorkerResponse`; it never sends anything.
Sending is a port: :class:`Transport` blocks (a Spark task, a job); a master sends the same requests with aiohttp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple, Protocol

from txlog.config.units import AS_WRITTEN
from txlog.model.entry import Position
from txlog.model.errors import WorkerFault
from txlog.model.hashes import NO_HASH
from txlog.model.store_cell import StoreCell

SYSTEM = "urn:txlog:system"
"""The prefix of system graphs, which belong to TxLog: no client may name one, no answer may show one."""


class MarkerPosition(NamedTuple):
    """The marker that a worker stores: its position, and the fence that an apply request must find there.
    ``unordered``: positions (index, chain hash) on abandoned branches from which a skip-ahead moved it to the log. From
    them the masters know which entries it executed elsewhere (``splitRecovery: None``). A takeover (:mod:`txlog.apply`)
    and a restore raise the fence: a request of the earlier applier, which expects the old one, changes nothing.
    ``cluster``: the id of the cluster whose log the store executed; empty in an earlier marker. ``base``: which content
    the store had before the first entry of that log (:func:`txlog.model.hashes.content_base`); empty for none."""

    position: Position
    fence: int
    unordered: tuple[tuple[int, bytes], ...] = ()
    cluster: bytes = b""
    base: bytes = b""


EMPTY_MARKER = MarkerPosition(Position(0, 0, NO_HASH), 0)
"""The position of an empty store without a marker. The hash has no meaning there."""


class LoadMarker(NamedTuple):
    """The record that a worker stores in place of a marker while data is loaded into it: the position after the load,
    and a random number below 2**63 that identifies the load. No applier writes to such a worker.

    ``since``: the load is the net effect of the log from that marker (:mod:`txlog.pipeline.batch`;
    :data:`EMPTY_MARKER`: into an empty store), and may be repeated from there. None: the load is a whole data set into
    an empty store."""

    position: Position
    token: int
    since: MarkerPosition | None = None


class StoreOperation(NamedTuple):
    """The effect of a log entry on a store: ``kind`` and ``payload`` of :mod:`txlog.model.entry`; never a no-op."""

    kind: int
    payload: bytes


TAKEOVER_S: Final = 45.0
"""Seconds that a worker's lock must be unchanged before an applier takes its owner, in another process, for dead. It is
longer than an owner's usual time-out; an applier adds the rest. If the owner writes after it, there are two markers."""

# -- requests and answers


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """One HTTP request; ``path`` is relative to the URL, with a query. ``timeout_s``: None for the transport's own.
    ``reads``: it changes nothing, so it is over for the caller when its answer is no longer awaited."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout_s: float | None = None
    reads: bool = False


@dataclass(frozen=True, slots=True)
class WorkerResponse:
    """One complete HTTP answer. Names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx: the worker executed the request."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text for messages: at most 2,000 characters."""
        return self.body[:8000].decode("utf-8", "replace")[:2000]


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """An answer whose body is read in chunks."""

    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]


class RequestOutcome(Enum):
    """The possible outcomes of a request that got no answer."""

    NOT_SENT = "not sent"
    """The request was not sent: the worker has not executed it and will not."""
    CLOSED = "connection closed"
    """The worker closed the connection, as an ending process does: it executed the request wholly or not at all."""
    UNKNOWN = "no answer in time"
    """The worker may have executed the request or not, and may still execute it."""


class Unreachable(WorkerFault):
    """No answer of a worker, or 502, 503 or 504. Transient. ``fate``: whether it may have executed the request."""

    def __init__(self, url: str, why: str, fate: RequestOutcome) -> None:
        super().__init__(f"{url}: {why}")
        self.url = url
        self.fate = fate


class WorkerRefused(WorkerFault):
    """This worker may not be used as it is. ``reason`` is a stable word: ForeignStore, NotAtomic, NoGuard,
    UnionDefaultGraph, NoDefaultGraph, NotAWorker, OtherCluster, UnknownPosition, UnknownMarker."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class WorkerDiverged(WorkerFault):
    """A worker holds data that no log can have written (two markers): rebuild it from another worker."""


class UnexpectedAnswer(WorkerFault):
    """A worker answered a request of TxLog with an error, or in a form that this engine never sends."""

    def __init__(self, asked: str, response: WorkerResponse) -> None:
        super().__init__(f"{asked}: the worker answered {response.status}: {response.text[:500]}")
        self.status_code = response.status


class Transport(Protocol):
    """Sends requests to one worker and blocks. Used by one thread at a time."""

    @property
    def url(self) -> str:
        """The URL of the worker, for messages."""

    def send(self, request: WorkerRequest) -> WorkerResponse:
        """The answer, with any status. Raises :class:`Unreachable`."""

    def settled(self) -> bool:
        """Whether every request of this transport that ended as :attr:`RequestOutcome.UNKNOWN`, and may change the
        worker, is over by now: answered, or the worker is gone. Of use only in the process that sent the request."""


class StreamTransport(Transport, Protocol):
    """A transport that can also stream an answer's body."""

    def stream(self, request: WorkerRequest) -> AbstractContextManager[StreamedResponse]:
        """The answer, to be read in chunks. Raises :class:`Unreachable`, also while the chunks are read."""


# -- what an engine can do


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One row of the table of engines.

    ``atomic_request``: the engine executes all operations of a request or none.
    ``guard``: a request can be made to fail when the marker is not the expected one.
    ``serial_updates``: two update requests never overlap. Otherwise :mod:`txlog.apply` takes a lock inside the worker.
    ``snapshot``: the whole data set can be read as of one moment while updates go on.
    ``bulk_load``: N-Quads can be loaded faster than by updates (not atomically).
    ``held_load``: of the body of one :meth:`~Adapter.load` nothing is seen before its end, and then all.
    ``digest``: two workers of one content have the same N-Quads after :meth:`~Adapter.clean_snapshot`.
    ``terms``: quads whose canonical terms differ are two quads to it, and no others (:func:`fingerprint_family`).
    ``keeps_empty_graphs``: a named graph without quads can exist.
    ``hidden_marker``: its snapshots and query results hold no marker. Otherwise its snapshots go through
    :meth:`~Adapter.clean_snapshot`, and queries through ``sparql.hide_marker``.
    ``union_of``: the graphs that together are the union. Not empty where a query of the union does not see all graphs
    by GRAPH; the query then names each graph (``sparql.with_dataset``).
    ``parts``: :meth:`~Adapter.dump` can be restricted to predicates, and cells can be read.
    ``exact_rows``: the rows of a query have the literals that :meth:`~Adapter.clean_snapshot` gives of a snapshot.
    ``finds_literals``: a literal in a pattern matches exactly the quads that have it, in its canonical form.
    ``matches``: it has :meth:`~Adapter.match`, which costs less than a query.
    """

    atomic_request: bool
    guard: bool
    serial_updates: bool
    snapshot: bool
    bulk_load: bool
    digest: bool
    terms: bool
    keeps_empty_graphs: bool
    hidden_marker: bool
    union_of: tuple[str, ...]
    parts: bool = True
    exact_rows: bool = True
    finds_literals: bool = True
    matches: bool = False
    held_load: bool = False


_RDF4J: Final = Capabilities(
    atomic_request=True,
    guard=True,
    serial_updates=False,
    snapshot=True,
    bulk_load=True,
    digest=True,
    terms=True,
    keeps_empty_graphs=False,
    hidden_marker=False,
    union_of=(),
)
CAPABILITIES: Mapping[str, Capabilities] = {
    "oxigraph": replace(_RDF4J, keeps_empty_graphs=True, hidden_marker=True, held_load=True),
    "fuseki": replace(
        _RDF4J,
        serial_updates=True,
        union_of=("urn:x-arq:DefaultGraph", "urn:x-arq:UnionGraph"),
        finds_literals=False,
    ),
    "rdf4j": replace(_RDF4J, matches=True),
    AS_WRITTEN: replace(_RDF4J, terms=False, matches=True),
    "virtuoso": Capabilities(
        atomic_request=True,
        guard=True,
        serial_updates=True,
        snapshot=True,
        bulk_load=True,
        digest=True,
        terms=False,
        keeps_empty_graphs=False,
        hidden_marker=True,
        union_of=(),
        parts=False,
        exact_rows=False,
        finds_literals=False,
    ),
}


def fingerprint_family(engine: str) -> str:
    """The same word for engines whose digests are equal after the same log. ``engine``: also an unknown one, or ""."""
    known = CAPABILITIES.get(engine or "oxigraph")
    return "canonical" if known is not None and known.digest and known.terms else engine


class ApplyResult(Enum):
    """The meaning of the response to an apply request."""

    APPLIED = "applied"
    MOVED = "the marker is not the expected one"
    CONTENDED = "another applier is at it, or took the lock away"
    REFUSED = "the worker refused an operation"


@dataclass(frozen=True, slots=True)
class SystemGraphs:
    """All system graphs of a worker. ``claims``: names of lock graphs, empty when no applier has a lock. ``loading``:
    loads that have begun and not ended."""

    markers: tuple[MarkerPosition, ...]
    claims: frozenset[str]
    loading: tuple[LoadMarker, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphCounts:
    """The number of quads in each graph, by IRI (empty: the default graph), and the system graphs, as of one moment."""

    system: SystemGraphs
    graphs: Mapping[str, int]


class LockAction(Enum):
    """How an apply request treats the applier's lock inside the worker."""

    NONE = "none"
    """The engine needs no lock."""
    CONFIRM = "confirm"
    """Fail unless exactly this applier holds it: for the first request after claiming."""
    KEEP = "keep"
    """The lock was confirmed before: only hide it from the operations."""


class Adapter(Protocol):
    """One engine. Building requests and parsing responses are pure. Every ``parse_*`` raises :class:`UnexpectedAnswer`
    for a response that is no valid answer."""

    @property
    def engine(self) -> str:
        """The name of the engine, a key of :data:`CAPABILITIES`."""

    @property
    def capabilities(self) -> Capabilities:
        """The row of :data:`CAPABILITIES` for this engine."""

    @property
    def token_limit(self) -> int:
        """Tokens of a lock are below this number."""

    # position

    def read_system(self) -> WorkerRequest:
        """A request for all system graphs. Its time grows with the number of named graphs: on (re)connect only."""

    def parse_system_graphs(self, response: WorkerResponse) -> SystemGraphs:
        """The system graphs in the response to :meth:`read_system`."""

    def system_graphs_from_names(self, names: Iterable[str]) -> SystemGraphs:
        """The system graphs with these names, parsed."""

    def is_at(self, marker: MarkerPosition) -> WorkerRequest:
        """Ask whether the worker is at exactly this marker. A large store takes no longer."""

    def parse_is_at(self, response: WorkerResponse) -> bool:
        """The answer to :meth:`is_at` or :meth:`is_loading`."""

    def is_empty(self) -> WorkerRequest:
        """Ask whether a worker without a marker is empty: it has no quad and no empty graph either."""

    def parse_is_empty(self, response: WorkerResponse) -> bool:
        """The answer to :meth:`is_empty`."""

    # apply

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
        """Apply ``operations`` in order, together with the move from ``expected`` (None: the store is empty) to
        ``new``, in one transaction. ``release``: release the lock ``token`` in the same transaction. ``new`` None: a
        trial, which changes nothing. Its last part fails as for a moved marker (:attr:`ApplyResult.MOVED`), so any
        other refusal is that of an operation."""

    def parse_apply_result(self, response: WorkerResponse) -> ApplyResult:
        """The meaning of the response to :meth:`apply`."""

    def rewrite_refused(self, operation: StoreOperation, response: WorkerResponse) -> StoreOperation | None:
        """The same operation in a form that does not meet the fault of this engine that the refusal names; None where
        it names none, or the form would be the same."""

    def claim(self, token: int) -> WorkerRequest:
        """Claim the lock. The applier owns it once a request with :attr:`LockAction.CONFIRM` has succeeded. A response
        that is not ``ok`` means that another applier has the lock; the request changed nothing. ``token``: a random
        number below :attr:`token_limit`."""

    def claims_for_token(self, token: int) -> frozenset[str]:
        """The claims of :class:`SystemGraphs` that belong to this token."""

    def release_claim(self, token: int) -> WorkerRequest:
        """Release the lock, whether it was confirmed or not."""

    def renew(self, token: int, new: int) -> WorkerRequest:
        """Replace the lock ``token`` by ``new``: the owner's heartbeat. If the response is not ``ok``, it is lost."""

    def take_over(self, found: MarkerPosition | None, token: int) -> WorkerRequest:
        """Take the lock from an applier that is gone: remove every claim and raise the fence by one."""

    def drop_marker(self, marker: MarkerPosition) -> WorkerRequest:
        """Remove the caller's own marker, when a late request of the old owner wrote another one beside it after
        :meth:`take_over`."""

    # reading

    def query(
        self,
        text: str,
        accept: str,
        *,
        union: bool = True,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
    ) -> WorkerRequest:
        """A request for a query that already hides system graphs (``sparql.hide_system_graphs``). ``union``: the
        default graph of the query is the union of all graphs; pass False for a query with FROM or FROM NAMED."""

    def size(self, graphs: Sequence[str | None] | None = None) -> WorkerRequest:
        """Ask for the number of statements of all graphs, or of the named ones (None: the default graph)."""

    def size_up_to(self, limit: int) -> WorkerRequest:
        """Ask for the number of statements of all graphs, ``limit`` for any larger number, so that no more are read."""

    def parse_size(self, response: WorkerResponse) -> int:
        """The number of statements in the response to :meth:`size` or :meth:`size_up_to`."""

    def counts(self) -> WorkerRequest:
        """Ask for the number of statements in each graph together with the marker, as of one moment. It reads the
        whole store: only for small ones (:meth:`size_up_to`)."""

    def parse_counts(self, response: WorkerResponse) -> GraphCounts:
        """The counts in the response to :meth:`counts`. Graphs without statements are left out."""

    def list_cells(self, graphs: Sequence[str], first: int, count: int) -> WorkerRequest:
        """Ask which predicates ``count`` quads of these graphs (empty: the default graph) have, after the first
        ``first`` quads of them."""

    def parse_cells(self, graphs: Sequence[str], response: WorkerResponse) -> dict[StoreCell, int]:
        """The cells in the response to :meth:`list_cells`, each with its number of quads there."""

    def read_cells(self, cells: Sequence[StoreCell]) -> WorkerRequest:
        """Ask for all quads of these cells and all system graphs, as of one moment; stream it. The answer is SPARQL
        results (:attr:`dump_media_type`): ``?c ?s ?p ?o``, where ``?c`` is the place of the cell in ``cells`` and
        ``?p`` is unbound where the cell names it; and ``?s`` alone for each system graph. Only engines with
        :attr:`Capabilities.parts`."""

    def contexts(self) -> WorkerRequest:
        """Ask for the named graphs that hold statements."""

    def parse_contexts(self, response: WorkerResponse) -> list[str]:
        """The IRIs, without brackets, in the response to :meth:`contexts`."""

    def export(self, accept: str, graph: str | None = None) -> WorkerRequest:
        """Ask for one graph (None: the default graph) in an RDF format."""

    def snapshot(self, accept: str = "application/n-quads") -> WorkerRequest:
        """Ask for all statements of all graphs as of one moment; stream it. N-Quads have to go through
        :meth:`clean_snapshot`."""

    def match(self, terms: Sequence[str | None], graphs: Sequence[str] | None) -> WorkerRequest:
        """As :meth:`snapshot`, the statements with these terms (None: any), in these graphs ("": the default one)."""

    def clean_snapshot(self, chunks: Iterable[bytes]) -> Iterable[bytes]:
        """The N-Quads of :meth:`snapshot`, without system graphs and with canonical literals. A chunk may end inside a
        line."""

    def dump(self, predicates: Sequence[str] | None = None) -> WorkerRequest:
        """Ask for all statements, or at least all with these predicates (``<iri>``), and all system graphs, as of one
        moment; stream it. The answer is SPARQL results (:attr:`dump_media_type`): ``?g ?s ?p ?o``, and ``?g`` alone
        for each system graph."""

    @property
    def dump_media_type(self) -> str:
        """The media type of the answer to :meth:`dump`."""

    def begin_loading(self, loading: LoadMarker, token: int) -> WorkerRequest:
        """Record that a load begins, if the worker is empty (else :attr:`ApplyResult.MOVED`). Confirms the lock
        ``token`` and releases it. :meth:`parse_apply_result` parses the answer."""

    def mark_unusable(self, found: SystemGraphs, loading: LoadMarker, token: int) -> WorkerRequest:
        """The same for a worker that is not empty, before :meth:`clear`. Removes every marker and load that was
        ``found`` (:attr:`ApplyResult.MOVED` when one is not there any more); the data stays."""

    def clear(self) -> WorkerRequest:
        """Delete everything, system graphs too. Its time does not depend on what the worker holds. Only after
        :meth:`mark_unusable`, which excludes appliers."""

    def is_loading(self, loading: LoadMarker) -> WorkerRequest:
        """Ask whether this load has begun and not ended. Fast; :meth:`parse_is_at` parses the answer."""

    def load(self, quads: bytes) -> WorkerRequest:
        """Bulk load of N-Quads, whole lines. Not atomic: after :meth:`begin_loading` only."""

    def delete_quads(self, quads: Sequence[bytes], left: Sequence[bytes]) -> WorkerRequest:
        """Delete these quads (lines of N-Quads). The graphs ``left`` (IRIs in brackets) exist afterwards, empty or not,
        as they do where a quad was added and deleted. Only while there is a :class:`LoadMarker`."""

    def end_loading(self, loading: LoadMarker, new: MarkerPosition) -> WorkerRequest:
        """Replace ``loading`` by the marker ``new``, in one transaction; fails when ``loading`` is not there."""

    # registration

    def probe_steps(self) -> Sequence[ProbeStep]:
        """The steps that :func:`txlog.workers.probe.probe` sends, in order."""


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One step of the probe: the request, the expected statuses, and the reason and message for any other status."""

    request: WorkerRequest
    expected_statuses: range | tuple[int, ...]
    reason: str
    message: str
    empty: bool = False
    """The answer must be an empty SPARQL result in CSV (a header line alone)."""
    holds: bytes = b""
    """The answer must contain this."""
