"""What every worker engine is asked and how it answers, as data.

An :class:`Adapter` builds a :class:`WorkerRequest` and reads the :class:`WorkerResponse`; it never sends anything.
Who sends is a port: :class:`Transport` blocks (a Spark task, a job); a master sends the same requests with aiohttp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from txlog.model.entry import Position
from txlog.model.errors import WorkerFault
from txlog.model.hashes import NO_HASH

SYSTEM = "urn:txlog:system"
"""Every graph whose name begins so is ours: no client may name it, no answer may show it."""


class MarkerPosition(NamedTuple):
    """What a worker stores of itself: how far it is, and the fence that an apply must find there. ``unordered``: places
    (index, chain hash) on abandoned orders where it stood before it was set on the log again without going back: the
    masters know from them what it has executed besides (``splitRecovery: None``).

    The fence grows whenever somebody takes a worker away from whoever applied to it before (:mod:`txlog.apply`,
    a duty to go back): an apply that still expects the old one changes nothing."""

    position: Position
    fence: int
    unordered: tuple[tuple[int, bytes], ...] = ()


EMPTY_MARKER = MarkerPosition(Position(0, 0, NO_HASH), 0)
"""Where an empty store without a marker stands. The hash means nothing at index 0."""


class LoadMarker(NamedTuple):
    """What a worker says of itself while data is loaded into it, in place of a marker: where it will stand, and a
    random number below 2**63 that tells one loading from the next. Nobody applies to such a worker.

    ``since``: the load is the net effect of the log from there (:mod:`txlog.pipeline.batch`; :data:`EMPTY_MARKER`: into
    an empty store), and may be repeated from there. None: a whole data set into an empty store."""

    position: Position
    token: int
    since: MarkerPosition | None = None


class StoreOperation(NamedTuple):
    """What a log entry does to a store: ``kind`` and ``payload`` of :mod:`txlog.model.entry`; never a no-op."""

    kind: int
    payload: bytes


TAKEOVER_S: Final = 45.0
"""How long a worker's lock must lie untouched before its owner, in another process, is taken for dead: longer than that
owner waits for an answer, and than nearly every update. One that runs on after it is found by its second marker."""

# -- requests and answers


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """One HTTP request, ``path`` relative to the worker's URL, query string included."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class WorkerResponse:
    """One complete HTTP answer. Names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body for people: at most 2,000 characters."""
        return self.body[:8000].decode("utf-8", "replace")[:2000]


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """An answer whose body is read piece by piece."""

    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]


class RequestOutcome(Enum):
    """What is known of a request that got no answer."""

    NOT_SENT = "not sent"
    """It never left: nothing happened and nothing will."""
    CLOSED = "connection closed"
    """The worker closed the connection, as a process does that ends: it happened whole or not at all, and is over."""
    UNKNOWN = "no answer in time"
    """It may have happened, may not, and may still be going on."""


class Unreachable(WorkerFault):
    """A worker gave no answer, or answered 502, 503 or 504. Transient: try again later. ``fate`` says whether the
    request may have been carried out; the worker's marker tells."""

    def __init__(self, url: str, why: str, fate: RequestOutcome) -> None:
        super().__init__(f"{url}: {why}")
        self.url = url
        self.fate = fate


class WorkerRefused(WorkerFault):
    """This worker may not be used as it is. ``reason`` is a stable word: ForeignStore, NotAtomic, NoGuard,
    UnionDefaultGraph, NoDefaultGraph, NotAWorker."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class WorkerDiverged(WorkerFault):
    """A worker holds what no log can have put there (two markers): rebuild it from another one."""


class UnexpectedAnswer(WorkerFault):
    """A worker answered a request of ours with an error, or with something that this engine never says."""

    def __init__(self, asked: str, response: WorkerResponse) -> None:
        super().__init__(f"{asked}: the worker answered {response.status}: {response.text[:500]}")
        self.status_code = response.status


class Transport(Protocol):
    """Sends to one worker and blocks. Used by one thread at a time."""

    @property
    def url(self) -> str:
        """The worker, for messages."""

    def send(self, request: WorkerRequest) -> WorkerResponse:
        """The answer, whatever its status. Raises :class:`Unreachable`."""

    def settled(self) -> bool:
        """Whether every request of this transport that ended as :attr:`RequestOutcome.UNKNOWN` is over by now:
        answered, or the worker is gone. Only of use in the process that sent it."""


class StreamTransport(Transport, Protocol):
    """A transport that can also hand out an answer's body piece by piece."""

    def stream(self, request: WorkerRequest) -> AbstractContextManager[StreamedResponse]:
        """The answer; raises :class:`Unreachable`, also while the pieces are read."""


# -- what an engine can do


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One row of the table of engines.

    ``atomic_request``: a request with several operations happens whole or not at all.
    ``guard``: a request can be made to fail when the marker is not the expected one.
    ``serial_updates``: two update requests never overlap, so that the guard alone keeps two appliers apart;
    otherwise :mod:`txlog.apply` takes a lock inside the worker.
    ``snapshot``: the whole data set can be read as of one moment while updates go on.
    ``bulk_load``: N-Quads can be loaded faster than by updates (not atomically).
    ``digest``: the N-Quads that it gives out, :meth:`~Adapter.clean_snapshot`, are canonical, so that digests of two
    workers compare.
    ``terms``: quads whose terms differ are two quads to it, whatever their values are, so that digests and counts
    compare with those of another engine that has this, too (:func:`fingerprint_family`).
    ``keeps_empty_graphs``: a named graph without quads can exist.
    ``hidden_marker``: what it gives out, and what queries see, holds nothing of ours. Otherwise its snapshots are
    :meth:`~Adapter.clean_snapshot`, and queries go through ``sparql.hide_marker``.
    ``union_of``: the graphs that together are the union. Not empty where a query of the union does not see all graphs
    by GRAPH: then these are named to it, and each of the others (``sparql.with_dataset``).
    ``parts``: :meth:`~Adapter.dump` can be had by predicates.
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


CAPABILITIES: Mapping[str, Capabilities] = {
    "oxigraph": Capabilities(
        atomic_request=True,
        guard=True,
        serial_updates=False,
        snapshot=True,
        bulk_load=True,
        digest=True,
        terms=True,
        keeps_empty_graphs=True,
        hidden_marker=True,
        union_of=(),
    ),
    "fuseki": Capabilities(
        atomic_request=True,
        guard=True,
        serial_updates=True,
        snapshot=True,
        bulk_load=True,
        digest=True,
        terms=True,
        keeps_empty_graphs=False,
        hidden_marker=False,
        union_of=("urn:x-arq:DefaultGraph", "urn:x-arq:UnionGraph"),
    ),
    "rdf4j": Capabilities(
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
    ),
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
    ),
}


def fingerprint_family(engine: str) -> str:
    """The same word for engines that hold the same quads after the same log, digest for digest. ``engine`` may be one
    that nobody knows (it is alike to itself alone) or empty: an Oxigraph."""
    known = CAPABILITIES.get(engine or "oxigraph")
    return "canonical" if known is not None and known.digest and known.terms else engine


class ApplyResult(Enum):
    """What an answer to an apply request means."""

    APPLIED = "applied"
    MOVED = "the marker is not the expected one"
    CONTENDED = "another applier is at it, or took the lock away"
    REFUSED = "the worker refused an operation"


@dataclass(frozen=True, slots=True)
class SystemGraphs:
    """Everything of ours that a worker holds. ``claims``: names that stand for locks, empty when nobody applies.
    ``loading``: loads that have begun and not ended."""

    markers: tuple[MarkerPosition, ...]
    claims: frozenset[str]
    loading: tuple[LoadMarker, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphCounts:
    """How many quads stood in each graph, by IRI (empty: the default graph), and what of ours, all at one moment."""

    system: SystemGraphs
    graphs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RangeFingerprint:
    """Some of the quads of a store, with what of ours stood there at that moment. ``quads``: how many, fewer than were
    asked for where it ends. ``fingerprint``: the same in stores that hold the same; where one quad stands in the place
    of another it is another one nearly always."""

    system: SystemGraphs
    quads: int
    fingerprint: str


class LockAction(Enum):
    """What an apply request does about the applier's lock inside the worker."""

    NONE = "none"
    """The engine needs none."""
    CONFIRM = "confirm"
    """Fail unless exactly this applier holds it: for the first request after claiming."""
    KEEP = "keep"
    """Confirmed before: only keep it out of sight and reach of the operations."""


class Adapter(Protocol):
    """One engine. Building and reading are pure; every ``*_in`` raises :class:`UnexpectedAnswer` for an answer
    that is none."""

    @property
    def engine(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def token_limit(self) -> int:
        """Tokens of a lock are below this number."""

    # position

    def read_system(self) -> WorkerRequest:
        """Ask for all system graphs. Its time grows with the number of named graphs: on (re)connect only."""

    def parse_system_graphs(self, response: WorkerResponse) -> SystemGraphs: ...

    def system_graphs_from_names(self, names: Iterable[str]) -> SystemGraphs:
        """What graphs of ours with these names say."""

    def is_at(self, marker: MarkerPosition) -> WorkerRequest:
        """Ask whether the worker stands exactly there. Fast, whatever it holds."""

    def parse_is_at(self, response: WorkerResponse) -> bool: ...

    def is_empty(self) -> WorkerRequest:
        """Ask whether a worker without a marker holds anything, be it an empty graph."""

    def parse_is_empty(self, response: WorkerResponse) -> bool: ...

    # apply

    def apply(
        self,
        operations: Sequence[StoreOperation],
        expected: MarkerPosition | LoadMarker | None,
        new: MarkerPosition | LoadMarker,
        *,
        lock: LockAction = LockAction.NONE,
        token: int = 0,
        release: bool = False,
    ) -> WorkerRequest:
        """``operations`` in order together with the move from ``expected`` (None: the store is empty) to ``new``,
        whole or not at all. ``release``: give the lock ``token`` back in the same transaction."""

    def parse_apply_result(self, response: WorkerResponse) -> ApplyResult:
        """What the answer to :meth:`apply` means."""

    def claim(self, token: int) -> WorkerRequest:
        """Ask for the lock; it counts when a request with :attr:`LockAction.CONFIRM` has succeeded. An answer that is
        not ``ok`` says that another applier has it, and changed nothing. ``token``: drawn at random below
        :attr:`token_limit`."""

    def claims_for_token(self, token: int) -> frozenset[str]:
        """What :class:`SystemGraphs` shows of this claim."""

    def release_claim(self, token: int) -> WorkerRequest:
        """Give the lock back, whether it was confirmed or not."""

    def renew(self, token: int, new: int) -> WorkerRequest:
        """The lock ``token`` becomes the lock ``new``, so that others see that its owner lives. An answer that is not
        ``ok`` says that the lock is lost."""

    def take_over(self, found: MarkerPosition | None, token: int) -> WorkerRequest:
        """Take the lock from an applier that is gone: every claim goes, the fence is raised by one."""

    def drop_marker(self, marker: MarkerPosition) -> WorkerRequest:
        """Take one's own marker back, after :meth:`take_over` turned out to have come between."""

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
        """A query that hides system graphs already (``sparql.hide_system_graphs``). ``union``: where the query says
        nothing else, it is asked of all graphs together; pass False for a query with FROM or FROM NAMED."""

    def size(self, graphs: Sequence[str | None] | None = None) -> WorkerRequest:
        """Ask for the number of statements: of all graphs, or of those named (None: the default graph)."""

    def parse_size(self, response: WorkerResponse) -> int: ...

    def counts(self) -> WorkerRequest:
        """Ask for the number of statements in each graph together with the marker, as of one moment."""

    def parse_counts(self, response: WorkerResponse) -> GraphCounts: ...

    def fingerprint_range(self, first: int, count: int) -> WorkerRequest | None:
        """Ask for the fingerprint of ``count`` quads behind the first ``first``, in an order that is the same in all
        stores that hold the same, together with the marker, as of one moment. None: this engine has no such order."""

    def parse_fingerprint_range(self, response: WorkerResponse) -> RangeFingerprint: ...

    def contexts(self) -> WorkerRequest:
        """Ask for the named graphs that hold statements."""

    def parse_contexts(self, response: WorkerResponse) -> list[str]: ...

    def export(self, accept: str, graph: str | None = None) -> WorkerRequest:
        """One graph (None: the default graph) in an RDF format."""

    def snapshot(self, accept: str = "application/n-quads") -> WorkerRequest:
        """All statements of all graphs as of one moment; stream it. What comes as N-Quads is to be
        :meth:`clean_snapshot`."""

    def clean_snapshot(self, chunks: Iterable[bytes]) -> Iterable[bytes]:
        """N-Quads of :meth:`snapshot`, in pieces cut anywhere: without anything of ours, literals in canonical form."""

    def dump(self, predicates: Sequence[str] | None = None) -> WorkerRequest:
        """All statements, or at least all with these predicates (``<iri>``), and all graphs of ours as of one moment,
        as SPARQL results (:attr:`dump_media_type`): ``?g ?s ?p ?o``, and ``?g`` alone for each graph of ours; stream
        it."""

    @property
    def dump_media_type(self) -> str:
        """The media type in which :meth:`dump` is answered."""

    def begin_loading(self, loading: LoadMarker, token: int) -> WorkerRequest:
        """Say that a data set is loaded from now on, if the worker is empty (else :attr:`ApplyResult.MOVED`); confirms
        the lock ``token`` and gives it back. :meth:`parse_apply_result` reads the answer."""

    def mark_unusable(self, found: SystemGraphs, loading: LoadMarker, token: int) -> WorkerRequest:
        """The same for a worker that is not empty, and is :meth:`emptied <empty>` next: every marker and load that
        was ``found`` goes (:attr:`ApplyResult.MOVED` when one is not there any more), the data stays."""

    def clear(self) -> WorkerRequest:
        """Everything goes, ours too. Fast, whatever the worker holds; after :meth:`mark_unusable` only, which keeps
        appliers away."""

    def is_loading(self, loading: LoadMarker) -> WorkerRequest:
        """Ask whether this very load has begun and not ended. Fast; :meth:`parse_is_at` reads the answer."""

    def load(self, quads: bytes) -> WorkerRequest:
        """Bulk load of N-Quads, whole lines. Not atomic: after :meth:`begin_loading` only."""

    def delete_quads(self, quads: Sequence[bytes], left: Sequence[bytes]) -> WorkerRequest:
        """Take these quads (lines of N-Quads) out; the graphs ``left`` (IRIs in brackets) are there afterwards, empty
        or not, as they are where a quad came and went. While :class:`LoadMarker` only."""

    def end_loading(self, loading: LoadMarker, new: MarkerPosition) -> WorkerRequest:
        """The marker in the place of ``loading``, whole or not at all; fails when that is not there."""

    # registration

    def probe_steps(self) -> Sequence[ProbeStep]:
        """What :func:`txlog.workers.probe.probe` sends, in order."""


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One step of the probe: what is sent, which statuses are right, and what it means when none of them comes."""

    request: WorkerRequest
    expected_statuses: range | tuple[int, ...]
    reason: str
    message: str
    empty: bool = False
    """The answer must be an empty SPARQL result in CSV (a header line alone)."""
    holds: bytes = b""
    """The answer must contain this."""
