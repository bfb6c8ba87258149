"""What an open transaction sees once it has written, or from its first read on where its isolation level says so: a
copy of the data with its own changes in it.

SPARQL over changes that stand nowhere yet cannot be asked of a worker, and workers have no transactions to ask in. So
the first such read copies everything from a worker, as of one moment, into a process (``evaluators.py``), and the
changes are carried out there as a worker of the same engine would. Nobody else's transactions are seen from then on.
Where everything is too much, what a query and the changes name by predicates is copied, for one query after the other.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
from aiohttp import ClientError

from txlog.evaluation.frames import Count, Follow, Load, Matching, Query, SumsOf
from txlog.model.errors import NotAcceptable, TooLarge, Unavailable, WorkerFault
from txlog.runtime.web import Request, Response, bytes_answer
from txlog.server.frontdoor.blank import blank_again
from txlog.server.frontdoor.evaluators import Evaluator, Evaluators, read_sums
from txlog.server.frontdoor.forms import (
    BINARY_TABLE,
    BOOLEAN,
    FORMS,
    LIKED,
    N_QUADS,
    N_TRIPLES,
    RESULTS_JSON,
    TABLE_ALIASES,
    TABLES,
    Form,
    converter,
    to_binary_table,
)
from txlog.server.frontdoor.reads import Question, Reads
from txlog.server.frontdoor.stores import RETRY_S
from txlog.server.frontdoor.tables import accepted
from txlog.server.frontdoor.through import ending
from txlog.sparql import Prepared, Sums

COPY_BYTES_MAX: Final = 64 << 20
"""Of N-Quads: some 400,000 statements. In memory it takes five times as much."""
COPIES_MAX: Final = 4
"""At the same time in one master."""
ANSWER_BYTES_MAX: Final = 64 << 20
"""As the process writes it; what is made of it in another form may be larger. It is held whole."""
THREADS: Final = 2

_pool = ThreadPoolExecutor(THREADS, "overlay")
T = TypeVar("T")


class Overlay:
    """One transaction's copy, in its ``evaluator``: of all quads with these ``predicates``, or of all (None). Used by
    one request at a time."""

    def __init__(self, evaluator: Evaluator, predicates: frozenset[str] | None) -> None:
        self.evaluator = evaluator
        self.predicates = predicates
        self._done = 0

    @classmethod
    async def copy(
        cls,
        evaluators: Evaluators,
        reads: Reads,
        request: Request,
        predicates: frozenset[str] | None,
        *,
        keep: bool = False,
    ) -> Overlay:
        """What a worker holds now: with these predicates, or everything. ``keep``: of everything, for
        :meth:`sums_before`. :class:`TooLarge` for memory."""
        why = "can be reached"
        for store in await reads.stores.choose(request):
            if predicates is not None and not store.adapter.capabilities.parts:
                raise TooLarge("its engine gives everything or nothing")
            evaluator = await evaluators.take()
            try:
                if predicates is None:
                    await evaluator.load(Load("", keep=keep), _bounded(reads.everything(request)))
                else:
                    work = Load(store.adapter.engine, tuple(predicates))
                    await evaluator.load(work, reads.stores.rows(store, tuple(predicates), COPY_BYTES_MAX))
                return cls(evaluator, predicates)
            except (TimeoutError, WorkerFault, ClientError, OSError) as fault:
                evaluators.give_back(evaluator)
                why = f"can be copied: {fault}"
            except BaseException:
                evaluators.give_back(evaluator)
                raise
        raise Unavailable("NoWorker", f"no worker of this data centre {why}; ask again", RETRY_S)

    def shows(self, wanted: frozenset[str] | None) -> bool:
        """Whether it holds all quads with these predicates (None: with any)."""
        return self.predicates is None or (wanted is not None and wanted <= self.predicates)

    async def follow(self, parts: Sequence[Prepared]) -> None:
        """Carry out what has been written since the last time."""
        news = tuple((part.kind, part.payload) for part in parts[self._done :])
        if news:
            await self.evaluator.ask(Follow(news, None))
        self._done = len(parts)

    async def sums_before(self, looks_at: tuple[str, ...] | None) -> Sums:
        """Of the quads with these predicates, or of all, without the transaction's own changes. Only of what was
        copied to ``keep``."""
        return read_sums(await self.evaluator.ask(SumsOf(looks_at, before=True)))

    async def query(self, asked: Question) -> Response:
        """The answer to a query, whole. :class:`Unavailable` when it takes more time or memory than it may."""
        wanted, written = _forms(asked)
        work = Query(asked.text, asked.union, tuple(asked.default), tuple(asked.named), written, ANSWER_BYTES_MAX)
        body = await self.evaluator.ask(work, asked.seconds)
        if wanted == BOOLEAN:
            return bytes_answer(b"true" if msgspec.json.decode(body)["boolean"] else b"false", BOOLEAN)
        return bytes_answer(await _in_thread(lambda: _made(body, written, wanted)), wanted)

    async def statements(
        self, terms: tuple[str | None, str | None, str | None], graphs: Sequence[str] | None, form: Form
    ) -> bytes:
        """What matches (canonical N-Triples, None for any), written in that form."""
        within = None if graphs is None else tuple(graphs)
        body = await self.evaluator.ask(Matching(terms, within, not form.quads, ANSWER_BYTES_MAX))
        return await _in_thread(lambda: _made(body, N_QUADS, form.media))

    async def size(self, graphs: Sequence[str] | None) -> int:
        """The number of statements in these graphs, or in all."""
        return int(await self.evaluator.ask(Count(None if graphs is None else tuple(graphs))))


async def _bounded(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async with ending(pieces):
        async for piece in pieces:
            size += len(piece)
            if size > COPY_BYTES_MAX:
                raise TooLarge(f"it is more than {COPY_BYTES_MAX >> 20} MiB")
            yield piece


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_pool, work)


def _forms(asked: Question) -> tuple[str, str]:
    """The media type that the client gets, and the one that the process writes for it."""
    if asked.form in ("CONSTRUCT", "DESCRIBE"):
        media = accepted(asked.accept, LIKED, {})
        if media is None:
            raise NotAcceptable(f"Accept: {asked.accept[:100]}; there are {', '.join(FORMS)}")
        return media, N_TRIPLES
    own = BOOLEAN if asked.form == "ASK" else BINARY_TABLE
    media = accepted(asked.accept, (*TABLES, own), TABLE_ALIASES)
    if media is None:
        raise NotAcceptable(f"Accept: {asked.accept[:100]}; there are {', '.join((*TABLES, own))}")
    return media, RESULTS_JSON if media == own else media


def _made(body: bytes, written: str, wanted: str) -> bytes:
    """One form of another, with blank nodes where the process has names for them."""
    body = blank_again(written, body)
    if written == wanted:
        return body
    out = io.BytesIO()
    (to_binary_table if wanted == BINARY_TABLE else converter(FORMS[wanted]))(io.BytesIO(body), out)
    return out.getvalue()
