"""The view of an open transaction: a copy of the data with the transaction's own changes. It exists once the
transaction has written, or from its first read on if its isolation level requires that.

A worker cannot run SPARQL over changes that are not stored anywhere yet, and workers have no transactions of this kind.
So the first such read copies everything from a worker, as of one moment, into a process (:mod:`.evaluator_pool`). The
process executes the changes as a worker of the same engine would. From then on the view shows no transactions of
others. If everything is too much, it copies the predicates that a query and the changes name, for one query at a time.
"""

from __future__ import annotations

import asyncio
import io
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
from aiohttp import ClientError

from txlog.config.units import AS_WRITTEN
from txlog.evaluation.pipe_protocol import (
    ApplyOperations,
    CountRequest,
    ExecuteUpdate,
    FingerprintRequest,
    LoadDataset,
    MatchRequest,
    QueryRequest,
    ReplayRequest,
    TransactionStep,
)
from txlog.http.router import Request, Response, bytes_response
from txlog.model.entry import KIND_QUADS
from txlog.model.errors import Conflict, NotAcceptable, TooLarge, Unavailable, WorkerFault
from txlog.server.frontdoor.blank_nodes import restore_blank_nodes
from txlog.server.frontdoor.evaluator_pool import Evaluator, EvaluatorPool, decode_fingerprint
from txlog.server.frontdoor.query_request import ParsedQuery
from txlog.server.frontdoor.read_handler import ReadHandler
from txlog.server.frontdoor.read_router import RETRY_S
from txlog.server.frontdoor.result_formats import (
    BINARY_TABLE,
    BOOLEAN,
    N_QUADS,
    N_TRIPLES,
    PREFERRED_FORMATS,
    RDF_FORMATS,
    RESULTS_JSON,
    TABULAR_ALIASES,
    TABULAR_MEDIA_TYPES,
    ResultFormat,
    convert_to_binary_table,
    converter,
)
from txlog.server.frontdoor.stream_converter import closing_stream
from txlog.server.frontdoor.tabular_results import negotiate_media_type
from txlog.server.frontdoor.xml_text import keep_carriage_returns
from txlog.sparql import DataFingerprint, EvaluatedUpdate, TransactionBody
from txlog.sparql.analysis.predicates import UnknownPredicates, predicates_of_update
from txlog.sparql.update_effect import PREDICATES_MAX

COPY_BYTES_MAX: Final = 64 << 20
"""Maximum size of the N-Quads, in bytes: some 400,000 statements. In memory they take five times as much."""
VIEWS_MAX: Final = 4
"""Concurrent views in one master."""
ANSWER_BYTES_MAX: Final = 64 << 20
"""Maximum size as the process writes the answer, in bytes; its conversion may be larger. It is held in memory whole."""
THREADS: Final = 2

_pool = ThreadPoolExecutor(THREADS, "overlay")
T = TypeVar("T")


class TransactionView:
    """One transaction's copy, in its ``evaluator``: of all quads with these ``predicates``, or of all quads (None).
    Only one request uses it at a time. ``log_index``: how far workers could execute when it was asked for."""

    def __init__(self, evaluator: Evaluator, predicates: frozenset[str] | None, log_index: int) -> None:
        self.evaluator = evaluator
        self.predicates = predicates
        self.log_index = log_index
        self._applied_count = 0

    @classmethod
    async def create(
        cls,
        evaluators: EvaluatorPool,
        reads: ReadHandler,
        request: Request,
        predicates: frozenset[str] | None,
        log_index: int,
        *,
        keep: bool = False,
    ) -> TransactionView:
        """Copies what a worker holds now: all quads with these predicates, or everything. ``keep_source``: keep it for
        :meth:`fingerprint_before`; with everything only. :class:`TooLarge` if it takes too much memory."""
        why = "can be reached"
        for store in await reads.router.choose(request):
            if predicates is not None and not store.adapter.capabilities.parts:
                raise TooLarge("its engine gives everything or nothing")
            evaluator = await evaluators.acquire()
            try:
                if predicates is None:
                    work = LoadDataset("", keep_source=keep, as_written=store.adapter.engine == AS_WRITTEN)
                    await evaluator.load(work, _limit_bytes(reads.dump_statements(request)))
                else:
                    work = LoadDataset(store.adapter.engine, tuple(predicates))
                    await evaluator.load(work, reads.router.stream_rows(store, tuple(predicates), COPY_BYTES_MAX))
                return cls(evaluator, predicates, log_index)
            except (TimeoutError, WorkerFault, ClientError, OSError) as fault:
                evaluators.release(evaluator)
                why = f"can be copied: {fault}"
            except BaseException:
                evaluators.release(evaluator)
                raise
        raise Unavailable("NoWorker", f"no worker of this data centre {why}; ask again", RETRY_S)

    def covers(self, wanted: frozenset[str] | None) -> bool:
        """Whether the view holds all quads with these predicates (None: all quads)."""
        return self.predicates is None or (wanted is not None and wanted <= self.predicates)

    async def apply_changes(self, parts: Sequence[TransactionBody]) -> None:
        """Applies the writes since the last call."""
        news = tuple((part.kind, part.payload) for part in parts[self._applied_count :])
        if news:
            await self.evaluator.execute(ApplyOperations(news, None))
        self._applied_count = len(parts)

    async def execute_update(self, update: EvaluatedUpdate, bytes_max: int) -> TransactionBody:
        """Executes an update, and gives what it deleted and added: the transaction's next write, which is applied
        already. Raises :class:`TooLarge` where that is more than ``bytes_max``, and has changed nothing then."""
        payload = await self.evaluator.execute(ExecuteUpdate(update, secrets.token_bytes(16), bytes_max))
        if payload:
            self._applied_count += 1
        return TransactionBody(KIND_QUADS, payload, payload.count(b"\n"))

    async def replay_before(self, steps: tuple[TransactionStep, ...]) -> bytes:
        """The digest of these steps on the data without the transaction's own changes. Needs a copy with
        ``keep_source``."""
        return await self.evaluator.execute(ReplayRequest(steps, before_changes=True))

    async def fingerprint_before(self, looks_at: tuple[str, ...] | None) -> DataFingerprint:
        """The fingerprint of the quads with these predicates, or of all, without the transaction's own changes. Needs a
        copy with ``keep_source``."""
        return decode_fingerprint(await self.evaluator.execute(FingerprintRequest(looks_at, before_changes=True)))

    async def query(self, asked: ParsedQuery) -> Response:
        """The whole answer to a query. :class:`Unavailable` if it exceeds its time or memory."""
        wanted, written = _choose_formats(asked)
        body = await self.evaluator.execute(query_request(asked, written), asked.seconds)
        if wanted == BOOLEAN:
            return bytes_response(b"true" if msgspec.json.decode(body)["boolean"] else b"false", BOOLEAN)
        return bytes_response(await _in_thread(lambda: _convert_result(body, written, wanted)), wanted)

    async def statements(
        self, terms: tuple[str | None, str | None, str | None], graphs: Sequence[str] | None, form: ResultFormat
    ) -> bytes:
        """The statements that match (canonical N-Triples, None for any), written in that format."""
        body = await self.evaluator.execute(match_request(terms, graphs, form))
        return await _in_thread(lambda: _convert_result(body, N_QUADS, form.media_type))

    async def size(self, graphs: Sequence[str] | None) -> int:
        """The number of statements in these graphs, or in all."""
        return int(await self.evaluator.execute(count_request(graphs)))


def query_request(asked: ParsedQuery, written: str = RESULTS_JSON) -> QueryRequest:
    """The query as an evaluator gets it. ``written``: the media type of its answer."""
    return QueryRequest(asked.text, asked.union, asked.default, asked.named, written, ANSWER_BYTES_MAX)


def match_request(
    terms: tuple[str | None, str | None, str | None], graphs: Sequence[str] | None, form: ResultFormat
) -> MatchRequest:
    """The same of statements that match."""
    return MatchRequest(terms, None if graphs is None else tuple(graphs), not form.has_graphs, ANSWER_BYTES_MAX)


def count_request(graphs: Sequence[str] | None) -> CountRequest:
    """The same of a number of statements."""
    return CountRequest(None if graphs is None else tuple(graphs))


async def _limit_bytes(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async with closing_stream(pieces):
        async for piece in pieces:
            size += len(piece)
            if size > COPY_BYTES_MAX:
                raise TooLarge(f"it is more than {COPY_BYTES_MAX >> 20} MiB")
            yield piece


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_pool, work)


def _choose_formats(asked: ParsedQuery) -> tuple[str, str]:
    """The media type that the client gets, and the one that the process writes for it."""
    if asked.form in ("CONSTRUCT", "DESCRIBE"):
        media = negotiate_media_type(asked.accept, PREFERRED_FORMATS, {})
        if media is None:
            raise NotAcceptable(f"Accept: {asked.accept[:100]}; there are {', '.join(RDF_FORMATS)}")
        return media, N_TRIPLES
    own = BOOLEAN if asked.form == "ASK" else BINARY_TABLE
    media = negotiate_media_type(asked.accept, (*TABULAR_MEDIA_TYPES, own), TABULAR_ALIASES)
    if media is None:
        raise NotAcceptable(f"Accept: {asked.accept[:100]}; there are {', '.join((*TABULAR_MEDIA_TYPES, own))}")
    return media, RESULTS_JSON if media == own else media


def _convert_result(body: bytes, written: str, wanted: str) -> bytes:
    """Converts one format to another, with blank nodes in place of the process's names for them."""
    body = keep_carriage_returns(written, restore_blank_nodes(written, body, final=written == wanted))
    if written == wanted:
        return body
    out = io.BytesIO()
    (convert_to_binary_table if wanted == BINARY_TABLE else converter(RDF_FORMATS[wanted]))(io.BytesIO(body), out)
    return out.getvalue()


LOWER_LEVEL_ADVICE: Final = "begin it at READ_COMMITTED"
SMALLER_READ_ADVICE: Final = "read before writing, or name predicates that fewer have"


def view_too_large(what: str, advice: str) -> Conflict:
    """``what`` is larger than a copy may be."""
    return Conflict(
        f"Transaction handling error: this transaction reads a copy, and {what} is larger than "
        f"{COPY_BYTES_MAX >> 20} MiB of N-Quads; {advice}"
    )


def view_lost() -> Conflict:
    """The copy that a transaction reads is gone, and it asked to see nothing newer."""
    return Conflict(
        "Transaction handling error: what it saw went with an evaluation that took too much time or memory, and it "
        "asked to see nothing newer; roll it back"
    )


def evaluated_update(part: TransactionBody) -> EvaluatedUpdate:
    """A normalised update as one to evaluate."""
    text = part.payload.decode()
    try:
        found = predicates_of_update(text)
    except UnknownPredicates:
        return EvaluatedUpdate(text, None)
    return EvaluatedUpdate(text, tuple(sorted(found)) if len(found) <= PREDICATES_MAX else None)
